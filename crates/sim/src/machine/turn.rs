//! What a worker does next: its batch, the RX queues, large work, somebody else's, or nothing.

use super::{Doing, Request, Run, SliceOrder, Transfer, id};
use crate::events::NEVER;
use laneway_policy::{BATCH, FRAME_BYTES, ItemBytes, LargeLane, Route, WorkerTarget, route};

/// What a worker makes of a large reply before it gives it to the wire, where nobody slices: a
/// burst of frames.
const BURST_BYTES: u32 = BATCH * FRAME_BYTES.0 as u32;

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
    fn wake_one(&mut self, of: u64) {
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
        let readers = self.control.readers();
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
            Doing::Nothing => {}
            Doing::Serve(request) => self.served(worker, request, request.bytes),
            Doing::Hand(request) => self.hand_over(worker, request),
            Doing::Piece(bytes) => self.piece_done(worker, bytes),
        }
        self.next_work(worker);
    }

    fn served(&mut self, worker: usize, request: Request, bytes: u32) {
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
        state.in_a_piece = false;
        if transfer.bytes_left == 0 {
            state.transfers.pop_front();
            self.served(worker, transfer.request, bytes);
            return;
        }
        self.reply(worker, transfer.request, bytes, false);
        let state = &mut self.workers[worker];
        if self.control.plan.slice_bytes.is_none() {
            state.in_a_piece = true;
        } else if self.machine.slice_order == SliceOrder::InTurn {
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
            Route::Hand(WorkerTarget::Worker(target)) => {
                let target = target.index();
                self.workers[target].transfers.push_back(transfer);
                self.raise_if_standby(target);
                self.wake(target);
            }
            Route::Hand(WorkerTarget::Shared) => {
                self.shared.push_back(transfer);
                self.wake_one(!self.control.readers());
            }
            Route::Here | Route::HereInSlices => {
                self.workers[worker].transfers.push_back(transfer);
            }
        }
    }

    fn raise_if_standby(&mut self, worker: usize) {
        if self.control.plan.standby() == Some(id(worker)) && self.control.raise() {
            // Others drain its RX queue from now on.
            for other in (0..self.workers.len()).filter(|&other| other != worker) {
                self.wake(other);
            }
        }
    }

    fn transfer(&self, request: Request, spared: u64) -> Transfer {
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
        if self.workers[worker].in_a_piece && self.begin_piece(worker) {
            return;
        }
        loop {
            if let Some(request) = self.workers[worker].batch.pop_front() {
                if self.take(worker, request, 0) {
                    return;
                }
                continue;
            }
            match self.go_round(worker) {
                Found::Batch => {}
                Found::Work => return,
                Found::Nothing => break,
            }
        }
        while let Some(request) = self.steal_idle(worker) {
            if self.take(worker, request, self.costs.steal) {
                return;
            }
            if self.large_turn(worker) {
                return;
            }
        }
        self.asleep |= 1 << worker;
    }

    /// Go on with the worker's turn, once round at most, until something turns up.
    fn go_round(&mut self, worker: usize) -> Found {
        let readers = self.control.reads(worker);
        let stages = if readers { 1 + self.control.unread.len() as u16 } else { 0 };
        for _ in 0..=stages {
            let state = &mut self.workers[worker];
            let stage = if state.stage > stages { 0 } else { state.stage };
            state.stage = if stage == stages { 0 } else { stage + 1 };
            if stage == stages {
                if self.large_turn(worker) {
                    return Found::Work;
                }
                continue;
            }
            let (queue, most) = match stage {
                0 if self.machine.central_queue => (0, self.machine.batch),
                0 => (worker, self.machine.batch),
                _ => {
                    let queue = usize::from(self.control.unread[usize::from(stage) - 1]);
                    (queue, self.control.batch_unread)
                }
            };
            let count = self.rx[queue].len().min(most as usize);
            if count > 0 {
                state.batch.extend(self.rx[queue].drain(..count));
                return Found::Batch;
            }
        }
        Found::Nothing
    }

    /// Begin what a request needs of this worker now. `false`: nothing; it waits for large work's
    /// turn.
    fn take(&mut self, worker: usize, request: Request, extra: u64) -> bool {
        let waits = || self.control.waits_for_its_turn(ItemBytes(u64::from(request.bytes)));
        match self.route(worker, &request) {
            Route::Hand(_) => {
                let time = self.costs.receive + self.costs.handoff + extra;
                self.begin(worker, Doing::Hand(request), time);
                true
            }
            Route::Here if !waits() => {
                if self.wire.is_some() && request.bytes > BURST_BYTES {
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

    fn begin(&mut self, worker: usize, doing: Doing, time: u64) {
        let state = &mut self.workers[worker];
        state.doing = doing;
        state.busy += time;
        self.events.set(worker, self.now + time);
    }

    /// Large work's turn: one request between slices if the plan says so, else a piece.
    fn large_turn(&mut self, worker: usize) -> bool {
        if self.help_between_slices(worker) {
            return true;
        }
        let state = &mut self.workers[worker];
        if state.transfers.is_empty() {
            let may_share = !self.control.reads(worker)
                && matches!(
                    self.control.plan.large_lane,
                    LargeLane::SharedQueue | LargeLane::Everything
                );
            match self.shared.pop_front() {
                Some(transfer) if may_share => state.transfers.push_back(transfer),
                Some(transfer) => {
                    self.shared.push_front(transfer);
                    return false;
                }
                None => return false,
            }
        }
        self.begin_piece(worker)
    }

    fn help_between_slices(&mut self, worker: usize) -> bool {
        let steal = self.control.plan.steal;
        if steal.between_slices_queue_min.is_none() || self.control.reads(worker) {
            return false;
        }
        let (queue, length) = self.longest_rx();
        if !steal.between_slices(self.workers[worker].took_between, length) {
            self.workers[worker].took_between = 0;
            return false;
        }
        let Some(request) = self.rx[queue].pop_front() else { return false };
        self.workers[worker].took_between += 1;
        self.take(worker, request, self.costs.steal)
    }

    /// Begin the next piece of the transfer at the front, unless the wire is to be spared.
    fn begin_piece(&mut self, worker: usize) -> bool {
        let plan = &self.control.plan;
        let Some(transfer) = self.workers[worker].transfers.front() else { return false };
        let piece = match plan.slice_bytes {
            Some(slice) => slice.0 as u32,
            None if self.wire.is_some() => BURST_BYTES,
            None => u32::MAX,
        };
        let bytes = transfer.bytes_left.min(piece);
        if let (Some(most), Some(wire)) = (plan.large_unsent_bytes_max, &self.wire)
            && !transfer.request.put
            && wire.large_unsent[worker] + u64::from(bytes) > most.0
        {
            return false;
        }
        let begun = transfer.service_left < transfer.request.service;
        let service = if bytes == transfer.bytes_left {
            transfer.service_left
        } else {
            let part = u128::from(transfer.service_left) * u128::from(bytes);
            (part / u128::from(transfer.bytes_left)) as u64
        };
        let again = if begun && plan.slice_bytes.is_some() { self.costs.slice } else { 0 };
        let state = &mut self.workers[worker];
        if let Some(transfer) = state.transfers.front_mut() {
            transfer.service_left -= service;
        }
        state.in_a_piece = true;
        self.begin(worker, Doing::Piece(bytes), service + again);
        true
    }

    /// What a worker with nothing to do takes from another: of what that has received if sizes
    /// mean nothing to the design, else from an RX queue.
    fn steal_idle(&mut self, thief: usize) -> Option<Request> {
        if !self.control.plan.steal.when_idle {
            return None;
        }
        if self.control.plan.large_lane == LargeLane::None {
            let others = (0..self.workers.len()).filter(|&worker| worker != thief);
            let fullest = others.max_by_key(|&worker| self.workers[worker].batch.len())?;
            if let Some(request) = self.workers[fullest].batch.pop_front() {
                return Some(request);
            }
        }
        let (queue, _) = self.longest_rx();
        self.rx[queue].pop_front()
    }

    fn longest_rx(&self) -> (usize, u32) {
        let mut longest = (0, 0);
        for (queue, requests) in self.rx.iter().enumerate() {
            if requests.len() > longest.1 {
                longest = (queue, requests.len());
            }
        }
        (longest.0, longest.1 as u32)
    }
}

enum Found {
    Batch,
    Work,
    Nothing,
}
