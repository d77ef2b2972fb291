//! What a worker does next is asked of [`laneway_policy::turn`]; here it is carried out, and here
//! is what a worker sees.

use super::{Central, Doing, Reach, Request, Run, SliceOrder, Transfer, Worker, id};
use crate::events::NEVER;
use laneway_policy::{
    ItemBytes, LargeLane, Move, Others, Route, Sight, WorkerId, WorkerTarget, route, turn,
};
use std::collections::VecDeque;

impl Run<'_> {
    /// Wake a worker if it sleeps.
    pub(super) fn wake(&mut self, worker: usize) {
        if self.asleep >> worker & 1 == 1 {
            self.asleep &= !(1 << worker);
            self.next_work(worker);
        }
    }

    /// Wake one of these workers, if any sleeps: the next one after the last that was woken, or
    /// the first would do all the work.
    pub(super) fn wake_one(&mut self, of: u64) {
        let sleepers = self.asleep & of;
        if sleepers == 0 {
            return;
        }
        let turn = (self.arrivals % self.workers.len() as u64) as u32;
        let after = sleepers >> turn << turn;
        let worker = if after == 0 { sleepers } else { after }.trailing_zeros();
        self.wake(worker as usize);
    }

    /// A request has come into an RX queue.
    #[inline]
    pub(super) fn wake_for_rx(&mut self, queue: usize) {
        if self.asleep == 0 {
            return;
        }
        // A standby that reads on is one of those that may come.
        let own = u64::from(self.control.who.reads(id(queue))) << queue;
        let readers = self.control.readers() | own;
        if self.machine.central_queue || !self.control.reads(queue) {
            self.wake_one(readers);
        } else if self.asleep >> queue & 1 == 1 {
            self.wake(queue);
            return;
        }
        if self.control.plan.steal.when_idle && !self.rx[queue].is_empty() {
            self.wake_one(u64::MAX);
        }
    }

    /// A piece of work is done.
    pub(super) fn worker_done(&mut self, worker: usize) {
        self.events.set(worker, NEVER);
        match std::mem::replace(&mut self.workers[worker].doing, Doing::Nothing) {
            Doing::Nothing | Doing::Come => {}
            Doing::Serve(request) => self.served(worker, request, request.bytes),
            Doing::Hand(request) => self.hand_over(worker, request),
            Doing::Cross(request) => self.crossed(request),
            Doing::Quantum(piece) => self.quantum_over(worker, piece),
            Doing::Search => self.core_goes(worker),
            Doing::Piece(bytes) => self.piece_done(worker, bytes),
            Doing::Turn(connection, count) => self.turn_done(worker, connection, count),
            Doing::Slice { connection, bytes, urgent } => {
                self.slice_done(worker, connection, bytes, urgent);
            }
        }
        if matches!(self.workers[worker].doing, Doing::Nothing) {
            self.next_work(worker);
        }
    }

    pub(super) fn served(&mut self, worker: usize, request: Request, bytes: u32) {
        let state = &mut self.workers[worker];
        state.requests += 1;
        state.packets += ItemBytes(u64::from(request.bytes)).packets().0;
        if state.requests & 15 == 0 {
            self.sample_wire();
        }
        self.reply(worker, request, bytes, true);
    }

    fn piece_done(&mut self, worker: usize, bytes: u32) {
        let state = &mut self.workers[worker];
        let transfer = state.transfers.front_mut().expect("the piece belongs to a transfer");
        transfer.bytes_left -= bytes;
        let transfer = *transfer;
        state.turn.slice_over(&self.control.plan, transfer.bytes_left > 0);
        if transfer.bytes_left == 0 {
            state.transfers.pop_front();
            self.served(worker, transfer.request, bytes);
            return;
        }
        self.reply(worker, transfer.request, bytes, false);
        let state = &mut self.workers[worker];
        if self.control.plan.slice_bytes.is_some()
            && self.machine.slice_order != SliceOrder::OneByOne
        {
            state.transfers.pop_front();
            match self.control.plan.large_lane {
                LargeLane::SharedQueue => self.shared.push_back(transfer),
                _ => state.transfers.push_back(transfer),
            }
        }
    }

    fn hand_over(&mut self, worker: usize, request: Request) {
        // The plan may have changed meanwhile; it is asked again.
        // Whoever takes it over is spared receiving it, and pays for taking it from a queue.
        let spared = self.costs.receive.saturating_sub(self.costs.steal);
        let transfer = self.transfer(request, spared);
        match self.route(worker, &request) {
            Route::Hand(WorkerTarget::Shared) => {
                self.shared.push_back(transfer);
                self.wake_one(!self.control.readers());
            }
            Route::Hand(target) => {
                let target = self.shortest(target);
                self.workers[target].transfers.push_back(transfer);
                self.raise_if_standby(target);
                self.wake(target);
            }
            Route::Here | Route::HereInSlices => {
                self.workers[worker].transfers.push_back(transfer);
            }
        }
    }

    /// Of the workers that a request may be given to, the one with the fewest large requests.
    pub(super) fn shortest(&self, target: WorkerTarget) -> usize {
        let queued = |worker: WorkerId| self.workers[worker.index()].transfers.len() as u64;
        target.shortest(&self.control.plan, self.arrivals, queued).index()
    }

    fn raise_if_standby(&mut self, worker: usize) {
        if self.control.is_standby(worker) && self.control.raise() {
            // Others drain its RX queue from now on.
            for other in (0..self.workers.len()).filter(|&other| other != worker) {
                self.wake(other);
            }
        }
    }

    pub(super) fn transfer(&self, request: Request, spared: u64) -> Transfer {
        let service = request.service.saturating_sub(spared).max(1);
        let request = Request { service, ..request };
        Transfer { request, bytes_left: request.bytes, service_left: service }
    }

    #[inline]
    fn route(&self, worker: usize, request: &Request) -> Route {
        route(&self.control.plan, id(worker), ItemBytes(u64::from(request.bytes)))
    }

    /// Find something to do for a worker that does nothing, or let it sleep.
    pub(super) fn next_work(&mut self, worker: usize) {
        if self.machine.streams.is_some() {
            return self.next_of_streams(worker);
        }
        match self.machine.central {
            None => {}
            Some(Central::Preempt { .. } | Central::Reserve) => {
                return self.next_dispatched(worker);
            }
            Some(Central::Share { quantum, cost }) => {
                return self.next_shared(worker, quantum, cost);
            }
            Some(Central::Grant { search, .. }) => return self.next_granted(worker, search),
        }
        if self.workers[worker].transfers.is_empty() && self.control.is_standby(worker) {
            self.control.lower();
        }
        loop {
            let mut turn = self.workers[worker].turn;
            let view = View { run: self, me: worker };
            let next = turn.next(&self.control.plan, &self.control.who, id(worker), &view);
            self.workers[worker].turn = turn;
            let busy = match next {
                Move::Serve => match self.workers[worker].next_received() {
                    Some(request) => self.take(worker, request, 0),
                    None => false,
                },
                Move::Receive(whose, count) => {
                    self.receive(worker, whose, count);
                    false
                }
                Move::Slice => {
                    if self.machine.slice_order == SliceOrder::ShortestFirst {
                        shortest_to_front(&mut self.workers[worker].transfers);
                    }
                    self.begin_piece(worker)
                }
                Move::TakeShared => {
                    if self.machine.slice_order == SliceOrder::ShortestFirst {
                        shortest_to_front(&mut self.shared);
                    }
                    let taken = self.shared.pop_front();
                    self.workers[worker].transfers.extend(taken);
                    self.begin_piece(worker)
                }
                Move::Steal(whose) => {
                    self.workers[worker].steal_next = whose.0 + 1;
                    match self.steal(whose) {
                        Some(request) => self.take(worker, request, self.costs.steal),
                        None => false,
                    }
                }
                Move::StealReceived(whose) => match self.workers[whose.index()].next_received() {
                    Some(request) => self.take(worker, request, self.costs.steal),
                    None => false,
                },
                Move::Rest => {
                    self.asleep |= 1 << worker;
                    return;
                }
            };
            if busy {
                return;
            }
        }
    }

    fn receive(&mut self, worker: usize, whose: WorkerId, count: u32) {
        let queue = self.queue_of(whose);
        let state = &mut self.workers[worker];
        state.batch.extend(self.rx[queue].drain(..count as usize));
        if self.machine.reach == Reach::Offered {
            self.offer(worker, count);
        }
    }

    /// Over TCP nobody reads another's sockets: of what was received the last ones may be offered.
    fn offer(&mut self, worker: usize, received: u32) {
        let plan = &self.control.plan;
        let idle = || self.asleep & !(1 << worker) != 0;
        let has_slices = |id: WorkerId| !self.workers[id.index()].transfers.is_empty();
        let slices = || plan.large_ids().any(has_slices);
        let offers = turn::offers(plan, id(worker), received, idle, slices);
        if offers > 0 {
            self.workers[worker].offered = offers;
            self.wake_one(u64::MAX);
        }
    }

    /// One of those that wait with this worker.
    fn steal(&mut self, whose: WorkerId) -> Option<Request> {
        match self.machine.reach {
            Reach::Unread | Reach::Sockets => {
                let queue = self.queue_of(whose);
                self.rx[queue].pop_front()
            }
            Reach::Offered => {
                let state = &mut self.workers[whose.index()];
                state.offered = state.offered.checked_sub(1)?;
                state.batch.pop_back()
            }
        }
    }

    fn queue_of(&self, whose: WorkerId) -> usize {
        if self.machine.central_queue { 0 } else { whose.index() }
    }

    /// Begin what a request needs of this worker now. `false`: nothing; it waits for large work's
    /// turn.
    fn take(&mut self, worker: usize, request: Request, extra: u64) -> bool {
        if request.remote {
            self.begin_crossing(worker, request, extra);
            return true;
        }
        let size = ItemBytes(u64::from(request.bytes));
        let waits = || turn::waits_for_its_turn(&self.control.plan, size);
        match self.route(worker, &request) {
            Route::Hand(_) => {
                let time = self.costs.receive + self.costs.handoff + extra;
                self.begin(worker, Doing::Hand(request), time);
                true
            }
            Route::Here if !waits() => {
                if self.wire.is_some() && size > turn::BURST_BYTES {
                    let transfer = self.transfer(request, 0);
                    self.workers[worker].transfers.push_front(transfer);
                    return self.begin_piece(worker);
                }
                self.begin(worker, Doing::Serve(request), request.service + extra);
                true
            }
            Route::Here | Route::HereInSlices => {
                let transfer = self.transfer(request, 0);
                self.workers[worker].transfers.push_back(transfer);
                self.raise_if_standby(worker);
                false
            }
        }
    }

    pub(super) fn begin(&mut self, worker: usize, doing: Doing, time: u64) {
        let time = time + self.wait_for_lines(worker, &doing);
        let state = &mut self.workers[worker];
        state.doing = doing;
        state.busy += time;
        self.events.set(worker, self.now + time);
    }

    /// Begin the next piece of the transfer at the front, unless the wire is to be spared.
    fn begin_piece(&mut self, worker: usize) -> bool {
        let Some(bytes) = self.next_piece(worker) else { return false };
        let plan = &self.control.plan;
        let Some(transfer) = self.workers[worker].transfers.front() else { return false };
        let begun = transfer.is_begun();
        let again = if begun && plan.slice_bytes.is_some() { self.costs.slice } else { 0 };
        let state = &mut self.workers[worker];
        let service = state.transfers.front_mut().map_or(0, |transfer| transfer.take(bytes));
        state.turn.slice_begun();
        self.begin(worker, Doing::Piece(bytes), service + again);
        true
    }

    /// Bytes of the next piece of its transfer, if it has one that may go on.
    fn next_piece(&self, worker: usize) -> Option<u32> {
        let plan = &self.control.plan;
        let transfer = self.workers[worker].transfers.front()?;
        let left = ItemBytes(u64::from(transfer.bytes_left));
        let bytes = turn::slice_of(plan, left, self.wire.is_some());
        if let Some(wire) = &self.wire
            && !transfer.request.put
            && !turn::may_make(plan, ItemBytes(wire.large_unsent[worker]), bytes)
        {
            return None;
        }
        Some(bytes.0 as u32)
    }
}

/// The first one of those with the fewest bytes left goes to the front.
fn shortest_to_front(transfers: &mut VecDeque<Transfer>) {
    let shortest = (0..transfers.len()).min_by_key(|&place| transfers[place].bytes_left);
    let shortest = shortest.and_then(|place| transfers.remove(place));
    shortest.into_iter().for_each(|transfer| transfers.push_front(transfer));
}

impl Worker {
    /// The next of those that it has received; what was offered is served last.
    fn next_received(&mut self) -> Option<Request> {
        let next = self.batch.pop_front();
        self.offered = self.offered.min(self.batch.len() as u32);
        next
    }
}

/// The machine as one of its workers sees it.
struct View<'a, 'b> {
    run: &'a Run<'b>,
    me: usize,
}

impl Sight for View<'_, '_> {
    #[inline]
    fn received(&self) -> u32 {
        self.run.workers[self.me].batch.len() as u32
    }

    #[inline]
    fn unread(&self, whose: WorkerId) -> u32 {
        if self.run.machine.reach == Reach::Offered && whose.index() != self.me {
            return 0;
        }
        self.run.rx[self.run.queue_of(whose)].len() as u32
    }

    #[inline]
    fn may_slice(&self) -> bool {
        self.run.next_piece(self.me).is_some()
    }

    #[inline]
    fn has_no_transfer(&self) -> bool {
        self.run.workers[self.me].transfers.is_empty()
    }

    #[inline]
    fn shared(&self) -> u32 {
        self.run.shared.len() as u32
    }
}

impl Others for View<'_, '_> {
    #[inline]
    fn takable(&self, whose: WorkerId) -> u32 {
        match self.run.machine.reach {
            Reach::Sockets if !turn::looks_into_sockets(&self.run.control.plan, id(self.me)) => 0,
            Reach::Unread | Reach::Sockets => self.run.rx[whose.index()].len() as u32,
            Reach::Offered if whose.index() == self.me => 0,
            Reach::Offered => self.run.workers[whose.index()].offered,
        }
    }

    #[inline]
    fn received_by(&self, whose: WorkerId) -> u32 {
        self.run.workers[whose.index()].batch.len() as u32
    }

    #[inline]
    fn look_first(&self) -> Option<WorkerId> {
        let next = WorkerId(self.run.workers[self.me].steal_next);
        (self.run.machine.reach == Reach::Sockets).then_some(next)
    }
}

#[cfg(test)]
mod decisions;
