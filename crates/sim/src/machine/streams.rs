//! Requests that come by connections, as over TCP: replies keep their order on each, so that what
//! is pipelined behind a large request waits for it. A worker's round is the server's: a turn for
//! each of some connections that are ready, a turn for as many that had to wait for another one,
//! then one slice. How many, how long, and whose slice is asked of [`laneway_policy::share`], as
//! the server asks it. Where workers have roles a connection goes to a large worker for its large
//! request, and home again by [`laneway_policy::migrate`].
//!
//! What a small turn or a transfer's run waits for is held against what `share` promises of it.
//! Departs from the server: nothing is offered to others, a write is a large request as a read is,
//! a turn's replies are bounded by requests and not by bytes, run to completion goes on with the
//! turn behind a large value, and the peer takes all that is sent. It knows `lanes` and run to
//! completion, and no wire. Designs that give requests to other workers have no connections here.
//! Units: picoseconds, requests, slices.

use super::{Doing, Request, Run, Transfer, id};
use laneway_policy::migrate::{self, Stay, Visit};
use laneway_policy::share::{self, Depth, LARGE_AT_A_TIME, Round, Share, Step, Waiting};
use laneway_policy::{
    BATCH_BESIDE_LARGE, ItemBytes, LargeLane, Role, Route, WorkerId, route, turn,
};
use std::collections::VecDeque;

/// The connections by which requests come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Streams {
    /// How many.
    pub connections: u32,
    /// Requests that come at once on one of them: a pipeline's depth.
    pub burst: u32,
    /// What a turn of a connection costs beside its requests; half where it need not read.
    pub turn: u64,
    /// Whether `lanes` shares a worker's time by `policy::share`; if not, eight connections have
    /// whole turns between two slices, and nobody is urgent.
    pub urgency: bool,
}

/// What a worker does next, in the order in which it does it.
#[cfg(test)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Decision {
    /// A round begins.
    Round,
    /// So many requests of a connection, one after the other.
    Serve { connection: u32, requests: u32 },
    /// So many bytes of a connection's transfer.
    Slice { connection: u32, bytes: u32 },
    /// The connection that was served goes over to a large worker.
    Hand,
}

/// The most slices that something waited behind, beside its bound.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct SliceWait {
    /// So many.
    pub slices: u64,
    /// The bound of the very one that waited behind so many.
    pub bound: u64,
    /// Of everybody's own bound, the largest part that was used; above 1 a promise was broken.
    pub used: f64,
}

impl SliceWait {
    fn record(&mut self, slices: u64, bound: u64) {
        if slices >= self.slices {
            (self.slices, self.bound) = (slices, bound);
        }
        self.used = self.used.max(slices as f64 / bound as f64);
    }
}

/// A wait under way.
#[derive(Debug, Clone, Copy)]
struct Wait {
    /// Slices that the worker had begun before.
    since: u64,
    /// Connections that were ready before.
    ahead: u64,
    /// Slices it may have to wait for.
    bound: u64,
}

/// A connection.
#[derive(Debug, Default)]
pub(super) struct Stream {
    /// Not answered, in their order, but for `transfer`, which comes before them.
    pending: VecDeque<Request>,
    /// Of those, read.
    read: usize,
    transfer: Option<Transfer>,
    run: share::Run,
    /// It stands in some line, or is being served.
    queued: bool,
    visit: Option<Visit>,
    wait: Option<Wait>,
}

impl Stream {
    fn is_urgent(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Slices of what is left of its run, in a line whose runs have at most so many bytes.
    fn slices_left(&self, run_bytes: usize, slice_bytes: u64) -> u64 {
        let left = self.transfer.map_or(0, |transfer| u64::from(transfer.bytes_left));
        left.min(run_bytes as u64).div_ceil(slice_bytes)
    }
}

/// One worker's connections, by what they wait for, and where the worker is in its round.
#[derive(Debug, Default)]
pub(super) struct Desk {
    /// With requests that nobody has read.
    ready: VecDeque<u32>,
    /// Those of this round.
    polled: VecDeque<u32>,
    /// With requests that were read and had to wait for another turn.
    again: VecDeque<u32>,
    plain: VecDeque<u32>,
    urgent: VecDeque<u32>,
    share: Share,
    depth: Depth,
    /// Turns, and requests in them, in this round.
    had: (u32, u32),
    round: Round,
    /// Requests left to the turn under way.
    quota: usize,
    slices: u64,
    #[cfg(test)]
    decisions: Vec<Decision>,
}

impl Desk {
    fn waiting(&self) -> Waiting {
        Waiting { urgent: self.urgent.len() as u32, plain: self.plain.len() as u32 }
    }

    fn line(&mut self, urgent: bool) -> &mut VecDeque<u32> {
        if urgent { &mut self.urgent } else { &mut self.plain }
    }

    fn is_idle(&self) -> bool {
        self.ready.is_empty() && self.again.is_empty() && self.waiting().is_none()
    }
}

impl Run<'_> {
    /// Requests come on a connection.
    pub(super) fn come(&mut self, connection: u32, requests: impl Iterator<Item = Request>) {
        let stream = &mut self.streams[connection as usize];
        stream.pending.extend(requests);
        if !stream.queued {
            stream.queued = true;
            let home = self.home(connection);
            self.waits(home, connection, false);
        }
    }

    /// It waits with a worker: for another turn, or, at home, with something to read.
    fn waits(&mut self, worker: usize, connection: u32, again: bool) {
        let desk = &mut self.desks[worker];
        let line = if again { &mut desk.again } else { &mut desk.ready };
        let wait = Wait { since: desk.slices, ahead: line.len() as u64, bound: 1 };
        line.push_back(connection);
        self.streams[connection as usize].wait = Some(wait);
        self.wake(worker);
    }

    fn home(&self, connection: u32) -> usize {
        let wanted = WorkerId((connection as usize % self.workers.len()) as u16);
        migrate::home(&self.control.plan, wanted, u64::from(connection)).index()
    }

    fn shares(&self) -> bool {
        self.machine.streams.is_some_and(|streams| streams.urgency)
    }

    /// Find something to do for a worker that does nothing, or let it sleep.
    pub(super) fn next_of_streams(&mut self, worker: usize) {
        loop {
            let desk = &mut self.desks[worker];
            let turn_of = match desk.round.next(desk.polled.len(), desk.again.len()) {
                Step::Ready => desk.polled.pop_front(),
                Step::Again => desk.again.pop_front(),
                Step::Slice => {
                    desk.depth.note(desk.had.0, desk.had.1);
                    if self.begin_slice(worker) {
                        return;
                    }
                    None
                }
                Step::Over => {
                    self.adopt(worker);
                    if self.desks[worker].is_idle() {
                        self.asleep |= 1 << worker;
                        return;
                    }
                    self.begin_round(worker);
                    None
                }
            };
            if let Some(connection) = turn_of {
                return self.begin_turn(worker, connection);
            }
        }
    }

    /// Take on connections with large requests.
    fn adopt(&mut self, worker: usize) {
        let role = self.control.plan.role(id(worker));
        let takes = matches!(role, Role::Large | Role::Standby);
        let room = |desk: &Desk| desk.urgent.len() + desk.plain.len() < LARGE_AT_A_TIME;
        while takes && room(&self.desks[worker]) {
            let Some(connection) = self.handed.pop_front() else { break };
            self.begin_transfer(worker, connection);
        }
    }

    fn begin_round(&mut self, worker: usize) {
        #[cfg(test)]
        self.desks[worker].decisions.push(Decision::Round);
        let shares = self.shares();
        let desk = &mut self.desks[worker];
        let waiting = desk.waiting();
        let burst = match shares || waiting.is_none() {
            true => desk.depth.burst(waiting),
            false => BATCH_BESIDE_LARGE,
        };
        desk.round.begin(burst);
        desk.had = (0, 0);
        for connection in desk.ready.iter().chain(&desk.again) {
            if let Some(wait) = &mut self.streams[*connection as usize].wait {
                wait.bound = wait.bound.max(wait.ahead / u64::from(burst) + 1);
            }
        }
        desk.polled.extend(desk.ready.drain(..desk.ready.len().min(burst as usize)));
    }

    fn begin_turn(&mut self, worker: usize, connection: u32) {
        let shares = self.shares();
        let desk = &mut self.desks[worker];
        let waiting = if shares { desk.waiting() } else { Waiting::default() };
        desk.quota = share::requests_per_turn(waiting);
        let stream = &mut self.streams[connection as usize];
        if let Some(wait) = stream.wait.take() {
            self.outcome.slice_waits[0].record(desk.slices - wait.since, wait.bound);
        }
        let mut calls = self.machine.streams.map_or(0, |streams| streams.turn);
        match stream.read {
            0 => stream.read = stream.pending.len(),
            _ => calls /= 2,
        }
        self.begin_part(worker, connection, calls);
    }

    /// The requests of a turn up to the next large one, whose replies leave together; where nobody
    /// slices a large one is a part of its own.
    fn begin_part(&mut self, worker: usize, connection: u32, calls: u64) {
        let stream = &self.streams[connection as usize];
        let runs_whole = self.control.plan.large_lane == LargeLane::None;
        let (mut time, mut count) = (calls, 0);
        for request in stream.pending.iter().take(stream.read.min(self.desks[worker].quota)) {
            let stops = match runs_whole {
                true => request.large,
                false => self.route_of(worker, request) != Route::Here,
            };
            if stops && !(runs_whole && count == 0) {
                break;
            }
            time += request.service;
            count += 1;
            if stops {
                break;
            }
        }
        #[cfg(test)]
        self.desks[worker].decisions.push(Decision::Serve { connection, requests: count });
        self.begin(worker, Doing::Turn(connection, count), time.max(1));
    }

    fn route_of(&self, worker: usize, request: &Request) -> Route {
        route(&self.control.plan, id(worker), ItemBytes(u64::from(request.bytes)))
    }

    /// So many small requests of a connection have been served.
    pub(super) fn turn_done(&mut self, worker: usize, connection: u32, count: u32) {
        let stream = &mut self.streams[connection as usize];
        stream.read -= count as usize;
        if let Some(visit) = &mut stream.visit {
            (0..count).for_each(|_| visit.small_served());
        }
        for _ in 0..count {
            if let Some(request) = self.streams[connection as usize].pending.pop_front() {
                self.served(worker, request, request.bytes);
            }
        }
        let desk = &mut self.desks[worker];
        desk.quota -= count as usize;
        desk.had = (desk.had.0 + u32::from(count > 0), desk.had.1 + count);
        let stream = &self.streams[connection as usize];
        let next = stream.pending.front().filter(|_| stream.read > 0);
        let Some(next) = next.filter(|_| desk.quota > 0) else {
            return self.goes_on(worker, connection);
        };
        let route = self.route_of(worker, next);
        if route != Route::Here {
            // What ends the turn is a request of it, as the server counts.
            let desk = &mut self.desks[worker];
            desk.had = (desk.had.0 + u32::from(count == 0), desk.had.1 + 1);
        }
        match route {
            Route::Here => self.begin_part(worker, connection, 0),
            Route::HereInSlices => self.begin_transfer(worker, connection),
            Route::Hand(_) => {
                #[cfg(test)]
                self.desks[worker].decisions.push(Decision::Hand);
                self.handed.push_back(connection);
                self.wake_one(!self.control.readers());
            }
        }
    }

    /// Nothing of a connection is under way: it waits for another turn, here or at home, or for
    /// what comes.
    fn goes_on(&mut self, worker: usize, connection: u32) {
        let stream = &mut self.streams[connection as usize];
        let reads = stream.read == 0;
        let stay = stream.visit.as_mut().map(|visit| visit.turn_ended(false, reads));
        let here = if stay == Some(Stay::Here) { worker } else { self.home(connection) };
        let stream = &mut self.streams[connection as usize];
        if here != worker || reads {
            stream.visit = None;
        }
        match (reads, stream.pending.is_empty()) {
            (false, _) => self.waits(here, connection, true),
            (true, false) => {
                let home = self.home(connection);
                self.waits(home, connection, false);
            }
            (true, true) => stream.queued = false,
        }
    }

    /// The large request that is next begins here. Moving a connection costs what a turn does.
    fn begin_transfer(&mut self, worker: usize, connection: u32) {
        let home = self.home(connection);
        let calls = self.machine.streams.map_or(0, |streams| streams.turn);
        let stream = &mut self.streams[connection as usize];
        let Some(mut request) = stream.pending.pop_front() else { return };
        stream.read -= 1;
        if home != worker {
            request.service += if stream.visit.is_none() { calls } else { 0 };
            stream.visit.get_or_insert(Visit::new(id(home))).large_served();
        }
        let (service_left, bytes_left) = (request.service, request.bytes);
        stream.transfer = Some(Transfer { request, bytes_left, service_left });
        self.gets_in_line(worker, connection);
    }

    /// To the end of its line, for a new run.
    fn gets_in_line(&mut self, worker: usize, connection: u32) {
        let urgent = self.shares() && self.streams[connection as usize].is_urgent();
        let slice = self.control.plan.slice_bytes.map_or(u64::MAX, |slice| slice.0);
        let run = if urgent { share::RUN_BYTES_URGENT } else { share::RUN_BYTES };
        let desk = &mut self.desks[worker];
        let ahead = desk.line(urgent).iter();
        let ahead: u64 =
            ahead.map(|&other| self.streams[other as usize].slices_left(run, slice)).sum();
        let bound = if urgent { 4 * ahead / 3 + 1 } else { 4 * ahead + 3 };
        desk.line(urgent).push_back(connection);
        let stream = &mut self.streams[connection as usize];
        stream.run = share::Run::default();
        stream.wait = Some(Wait { since: desk.slices, ahead, bound });
    }

    /// Begin the slice that is next, if there is one.
    fn begin_slice(&mut self, worker: usize) -> bool {
        let desk = &mut self.desks[worker];
        let waiting = desk.waiting();
        let Some(urgent) = desk.share.next_is_urgent(waiting) else { return false };
        let Some(connection) = desk.line(urgent).pop_front() else { return false };
        let stream = &mut self.streams[connection as usize];
        if let Some(wait) = stream.wait.take() {
            self.outcome.slice_waits[1].record(desk.slices - wait.since, wait.bound);
        }
        desk.slices += 1;
        let Some(transfer) = &mut stream.transfer else { return false };
        let left = ItemBytes(u64::from(transfer.bytes_left));
        let bytes = turn::slice_of(&self.control.plan, left, false).0 as u32;
        let again = if transfer.is_begun() { self.costs.slice } else { 0 };
        let time = transfer.take(bytes) + again;
        #[cfg(test)]
        desk.decisions.push(Decision::Slice { connection, bytes });
        self.begin(worker, Doing::Slice { connection, bytes, urgent }, time);
        true
    }

    pub(super) fn slice_done(
        &mut self,
        worker: usize,
        connection: u32,
        bytes: u32,
        was_urgent: bool,
    ) {
        let shares = self.shares();
        let stream = &mut self.streams[connection as usize];
        let Some(transfer) = &mut stream.transfer else { return };
        transfer.bytes_left -= bytes;
        let Transfer { request, bytes_left, .. } = *transfer;
        if bytes_left == 0 {
            stream.transfer = None;
            self.served(worker, request, bytes);
            return self.goes_on(worker, connection);
        }
        let urgent = shares && stream.is_urgent();
        match stream.run.goes_on(bytes as usize, was_urgent, urgent) {
            true => self.desks[worker].line(urgent).push_front(connection),
            false => self.gets_in_line(worker, connection),
        }
    }
}

/// Requests that wait on connections.
pub(super) fn waiting(streams: &[Stream]) -> impl Iterator<Item = &Request> {
    let under_way = streams.iter().filter_map(|stream| stream.transfer.as_ref());
    let pending = streams.iter().flat_map(|stream| &stream.pending);
    pending.chain(under_way.map(|transfer| &transfer.request))
}

#[cfg(test)]
mod decisions;
