//! A worker's part in handing requests over: it puts jobs into queues, executes those of its own
//! queue, of the shared one and, where the plan says so, one at a time of somebody else's, and
//! brings replies to the connections that wait for them.
//!
//! No queue blocks and none loses: a job that finds its queue full stays where it was, as input of
//! its connection; a reply that finds its home's ring full is kept here, and no further job is
//! taken until it is gone. Departs from Minos §3.1: the reply to a stream leaves by its home, since
//! only that worker holds the connection; the values in it are pinned, not copied.

use crate::clock::Clock;
use crate::connection::{Connection, Mode};
use crate::durable::shared::KEEPER;
use crate::execute::{self, Body, Context, Outcome};
use crate::handoff::{Finished, Job, Origin, Served, StreamOrigin, Undone, Work};
use crate::latency::Operation;
use crate::output::Output;
use crate::receive::OUT_BYTES_PER_TURN;
use crate::worker::Worker;
use laneway_policy::{BATCH, Design, ItemBytes, LargeLane, Role, Route, WorkerId, WorkerTarget};
use laneway_sync::planted::{Bug, is_planted};
use laneway_sync::ring::Ring;
use laneway_sync::sleep::Posted;
use laneway_transport::{Interest, Token, Transport};
use laneway_wire::reply::END;
use laneway_wire::{Get, GetVerb, KEY_BYTES_MAX, Keys, Request, parse};
use std::cell::Cell;
use std::io;

/// The two bytes behind a value.
const VALUE_END_BYTES: usize = 2;

/// What is answered where the keeper has no room for a job.
const BUSY: &[u8] = b"SERVER_ERROR too many requests wait for the data folder\r\n";

impl<T: Transport, C: Clock> Worker<T, C> {
    /// Put a request of `connection` into a queue, and keep its reply's place. `Err` gives the work
    /// back: the queue is full.
    pub(crate) fn hand_over(
        &mut self,
        connection: &mut Connection<T::Stream>,
        to: WorkerTarget,
        work: Work,
        size: ItemBytes,
        arrived_nanos: u64,
    ) -> Result<(), Work> {
        connection.output.push_bytes(&self.out);
        self.out.clear();
        let ticket = connection.output.reserve();
        let origin =
            Origin::Stream(StreamOrigin { worker: self.id, token: connection.token, ticket });
        let job = Job { work, size, arrived_nanos, origin, home: None, held: None };
        self.enqueue(to, job).map_err(|job| {
            connection.output.give_up(ticket);
            job.work
        })
    }

    /// Put a job into a queue, and see to it that somebody comes for it; gives it back if the queue
    /// is full.
    pub(crate) fn enqueue(&mut self, to: WorkerTarget, job: Job) -> Result<(), Job> {
        let shared = self.shared.clone();
        if to == KEEPER {
            let durable = shared.durable.get().expect("only where there is a keeper");
            let size = job.size.0;
            durable.push(job)?;
            self.lanes().handed_over.add_owner(1);
            self.count(Operation::Other, size);
            return Ok(());
        }
        if Self::is_abroad(to) {
            return self.enqueue_abroad(to, job);
        }
        match to {
            WorkerTarget::Shared => {
                shared.large_jobs.push(job)?;
                self.lanes().handed_over.add_owner(1);
                let takers = self.plan.large_ids().chain(self.plan.standby());
                self.wake_one(takers);
                // Since then others may have become those who take from it.
                if shared.plan.edition.is_over(self.plan_version) {
                    shared.wake_all();
                }
            }
            WorkerTarget::Between(..) => {
                self.turn_number += 1;
                let queued = |id: WorkerId| shared.workers[id.index()].jobs.len() as u64;
                let worker = to.shortest(&self.plan, self.turn_number, queued);
                return self.enqueue(WorkerTarget::Worker(worker), job);
            }
            WorkerTarget::Worker(worker) => {
                let queue = &shared.workers[worker.index()].jobs;
                queue.push(job)?;
                if worker != self.id {
                    self.lanes().handed_over.add_owner(1);
                    let misdirected = self.plan.design == Design::Hkh;
                    self.lanes().forwarded.add_owner(u64::from(misdirected));
                    self.wake_one([worker]);
                } else if self.plan.steal.when_idle && queue.len() > 1 {
                    let others = self.plan.small_ids().chain(self.plan.large_ids());
                    self.wake_one(others.filter(|&other| other != worker));
                }
            }
        }
        Ok(())
    }

    /// Wake the first of `workers` that sleeps.
    pub(crate) fn wake_one(&self, workers: impl IntoIterator<Item = WorkerId>) {
        if is_planted(Bug::WakeUpLost) {
            return;
        }
        let posted = Posted::now();
        let sleeps =
            |worker: &WorkerId| posted.must_wake(&self.shared.workers[worker.index()].sleeper);
        if let Some(worker) = workers.into_iter().find(sleeps) {
            self.shared.workers[worker.index()].wake();
        }
    }

    /// Say that this worker is about to sleep, then look once more. True: it must not.
    pub(crate) fn may_not_sleep(&self) -> bool {
        self.shared.workers[self.id.index()].sleeper.fall_asleep();
        self.has_jobs()
    }

    /// It is awake: who has a job for it need not wake it.
    pub(crate) fn is_awake(&self) {
        self.shared.workers[self.id.index()].sleeper.wake_up();
    }

    /// Whether a job or a reply waits for this worker.
    pub(crate) fn has_jobs(&self) -> bool {
        let here = &self.shared.workers[self.id.index()];
        !self.undelivered.is_empty()
            || !here.finished.is_empty()
            || !here.jobs.is_empty()
            || (self.takes_large() && !self.shared.large_jobs.is_empty())
            || (self.plan.steal.when_idle && self.longest_queue().is_some())
            || self.has_trains()
    }

    /// Replies that came back go to their connections. Returns whether there were any.
    pub(crate) fn take_finished(&mut self) -> io::Result<bool> {
        let here = &self.shared.workers[self.id.index()];
        if self.undelivered.is_empty() && here.finished.is_empty() {
            return Ok(false);
        }
        let shared = self.shared.clone();
        let mut any = false;
        for _ in 0..self.undelivered.len() {
            let Some(finished) = self.undelivered.pop_front() else { break };
            self.deliver(finished)?;
            any = true;
        }
        for _ in 0..BATCH {
            let Some(finished) = shared.workers[self.id.index()].finished.pop() else { break };
            self.deliver(finished)?;
            any = true;
        }
        Ok(any)
    }

    /// Execute jobs: those in this worker's own queue, then, if it serves the shared one, from
    /// there, each time one; where small requests are served too, one large one of each. Returns
    /// whether there were any.
    pub(crate) fn work(&mut self) -> io::Result<bool> {
        let takes_large = self.takes_large();
        let here = &self.shared.workers[self.id.index()];
        if here.jobs.is_empty() && (!takes_large || self.shared.large_jobs.is_empty()) {
            return Ok(false);
        }
        let shared = self.shared.clone();
        let here = &shared.workers[self.id.index()];
        let mut any = self.work_through(&here.jobs)?;
        if takes_large {
            any |= self.work_through(&shared.large_jobs)?;
        }
        Ok(any)
    }

    fn work_through(&mut self, queue: &Ring<Job>) -> io::Result<bool> {
        let mut any = false;
        // No more than lie there now: what a reply brings behind it waits for the next turn.
        let mut most = queue.len().min(BATCH as usize);
        if self.may_offer() {
            most = most.div_ceil(2); // others look here too
        }
        for _ in 0..most {
            if !self.undelivered.is_empty() {
                break;
            }
            let Some(job) = queue.pop() else { break };
            let is_large = job.size >= self.plan.threshold;
            self.run(job)?;
            any = true;
            if is_large && self.plan.role(self.id) != Role::Large {
                break; // small requests come first, then one more
            }
        }
        Ok(any)
    }

    /// Take one job from the longest queue of another worker.
    pub(crate) fn steal(&mut self) -> io::Result<bool> {
        if !self.plan.steal.when_idle || !self.undelivered.is_empty() {
            return Ok(false);
        }
        let Some(victim) = self.longest_queue() else { return Ok(false) };
        let shared = self.shared.clone();
        let Some(job) = shared.workers[victim.index()].jobs.pop() else { return Ok(false) };
        self.lanes().stolen.add_owner(1);
        self.run(job)?;
        Ok(true)
    }

    /// The worker, not this one, in whose queue the most small jobs lie. A standby's are large.
    pub(crate) fn longest_queue(&self) -> Option<WorkerId> {
        let length = |worker: &WorkerId| self.shared.workers[worker.index()].jobs.len();
        let takes =
            |worker: &WorkerId| *worker != self.id && self.plan.role(*worker) != Role::Standby;
        let others = self.plan.small_ids().filter(takes);
        others.max_by_key(length).filter(|worker| length(worker) > 0)
    }

    pub(crate) fn run(&mut self, job: Job) -> io::Result<()> {
        let elsewhere = match job.origin {
            Origin::Stream(origin) => origin.worker != self.id,
            Origin::Datagram(origin) => usize::from(origin.queue) != self.id.index(),
        };
        if elsewhere || job.home.is_some() {
            self.lanes().jobs_of_others.add_owner(1);
        }
        let Some(job) = self.begin_gathering(job) else { return Ok(()) };
        match self.perform(job) {
            Some(finished) => self.deliver(finished),
            None => Ok(()),
        }
    }

    /// Take a reply to who waits for it.
    pub(crate) fn deliver(&mut self, mut finished: Finished) -> io::Result<()> {
        if let Some(home) = finished.home.take() {
            self.send_home_abroad(home, finished);
            return Ok(());
        }
        let origin = match finished.origin {
            Origin::Stream(origin) => origin,
            Origin::Datagram(_) => {
                self.deliver_datagram(finished);
                return Ok(());
            }
        };
        if origin.worker == self.id {
            return self.bring(origin, finished);
        }
        let shared = self.shared.clone();
        match shared.workers[origin.worker.index()].finished.push(finished) {
            Ok(()) => self.wake_one([origin.worker]),
            Err(finished) => self.undelivered.push_back(finished),
        }
        Ok(())
    }

    /// A reply has come to the connection's home: fill its place, and go on with the connection.
    fn bring(&mut self, origin: StreamOrigin, finished: Finished) -> io::Result<()> {
        let in_slices = finished.large && self.sends_in_slices();
        // A connection that has closed waits for nothing: the reply is dropped, with its pins.
        let Some(connection) = self.table.get_mut(origin.token) else { return Ok(()) };
        if !connection.output.finish_with(origin.ticket, finished.reply) {
            return Ok(());
        }
        connection.tally.merge(&finished.tally);
        if let Some(undone) = &finished.undone {
            connection.put_back(undone);
        }
        if finished.fails
            && !is_planted(Bug::ErrorThenValues)
            && let Mode::Keys { line_bytes, .. } = connection.mode
        {
            connection.mode = Mode::Swallow(line_bytes as u64);
        }
        connection.unserved = !connection.input.is_empty();
        if in_slices {
            connection.large = true;
            if !connection.queued {
                connection.queued = true;
                self.large.push_back(origin.token, connection.is_urgent());
            }
            return Ok(());
        }
        if connection.queued { Ok(()) } else { self.turn(origin.token) }
    }

    /// Something happened to a connection whose reply is on its way: more input, which waits, or
    /// the end of its peer.
    pub(crate) fn disturbed(&mut self, token: Token) -> io::Result<()> {
        let Some(connection) = self.table.take(token) else { return Ok(()) };
        match connection.interest {
            Some(Interest::Nothing) => self.close(token, *connection),
            Some(Interest::Write) => {
                self.table.put(token, connection);
                return self.turn(token);
            }
            Some(Interest::Read) | None => self.watch(token, connection, Interest::Nothing),
        }
        Ok(())
    }

    /// Execute one job. `None`: the keeper does, and answers.
    pub(crate) fn perform(&mut self, job: Job) -> Option<Finished> {
        let Job { work, size, arrived_nanos, origin, home, held } = job;
        let mut served = Served::new(arrived_nanos);
        let mut reply = match work {
            Work::Body(incoming) => {
                self.count_hot(incoming.key(), true);
                let size = incoming.item_bytes();
                let mut out = Vec::new();
                let _alone = self.shared.put_locks.enter(|| incoming.hash());
                let again = incoming.finish(&self.context_of_job(&Cell::new(0)), &mut out);
                assert!(again.is_none(), "only what the keeper executes is asked again");
                self.count_job(&mut served, Operation::Set, size);
                Output::of(out)
            }
            Work::Request { bytes, ends } => {
                let is_stream = matches!(origin, Origin::Stream(_));
                let most = if is_stream { OUT_BYTES_PER_TURN } else { usize::MAX };
                let reply = self.perform_request(&mut served, &bytes, ends, most);
                if served.kept {
                    let work = Work::Request { bytes, ends };
                    let job = Job { work, size, arrived_nanos, origin, home, held };
                    if self.enqueue(KEEPER, job).is_ok() {
                        return None;
                    }
                }
                reply
            }
        };
        let Served { tally, large, kept, undone, .. } = served;
        if kept {
            reply = Output::of(BUSY.to_vec());
        }
        Some(Finished { origin, reply, tally, large, fails: kept, home, undone })
    }

    fn perform_request(
        &mut self,
        served: &mut Served,
        bytes: &[u8],
        ends: bool,
        bytes_most: usize,
    ) -> Output {
        let frame = match parse(bytes, &self.limits) {
            Ok(Some(frame)) => frame,
            // It was parsed before it was handed over.
            Ok(None) => return Output::of(b"ERROR\r\n".to_vec()),
            Err(malformed) => return Output::of(malformed.reply.to_vec()),
        };
        let value = &bytes[frame.head_bytes..];
        let touched = Cell::new(0);
        let mut out = Vec::new();
        match &frame.request {
            Request::Get(get) => return self.perform_get(served, get, ends, bytes_most),
            request @ (Request::Store(_) | Request::MetaSet(_)) => {
                let value_bytes = match request {
                    Request::Store(store) => store.value_bytes,
                    Request::MetaSet(set) => set.value_bytes,
                    _ => unreachable!("matched above"),
                };
                let mut scratch = [0; KEY_BYTES_MAX];
                self.count_hot(execute::key_of_store(request, &mut scratch), true);
                // What is not there has no end either, and is answered so.
                let body = value.get(..value_bytes + VALUE_END_BYTES).unwrap_or_default();
                let _alone = self.shared.put_locks.enter(|| {
                    let mut scratch = [0; KEY_BYTES_MAX];
                    self.shared.store.hash(execute::key_of_store(request, &mut scratch))
                });
                let outcome = execute::store_whole(
                    &self.context_of_job(&touched),
                    request,
                    Body::of(body),
                    &mut out,
                );
                assert!(matches!(outcome, Outcome::Done), "the keeper alone is asked again");
                let mut scratch = [0; KEY_BYTES_MAX];
                let size = execute::key_of_store(request, &mut scratch).len() + value_bytes;
                self.count_job(served, Operation::Set, size as u64);
            }
            request => {
                self.count_hot_request(request);
                let outcome = execute::command(&self.context_of_job(&touched), request, &mut out);
                self.count_job(served, crate::dispatch::operation(request), touched.get());
                return self.conclude_job(served, outcome, out);
            }
        }
        Output::of(out)
    }

    /// Keys one after the other; large values are pinned where they come. Once so many bytes were
    /// copied the keys that are left go back to their connection, which asks for them again when
    /// this much of the reply has left.
    fn perform_get(
        &mut self,
        served: &mut Served,
        get: &Get<'_>,
        ends: bool,
        bytes_most: usize,
    ) -> Output {
        let mut reply = Output::default();
        let Get { verb, exptime, .. } = *get;
        let mut keys = Keys::new(get.keys.rest());
        let most = (usize::MAX, bytes_most);
        self.perform_keys(served, (verb, exptime), &mut keys, most, &mut reply);
        let mut left = keys;
        if left.next().is_some() && !served.kept {
            served.undone = Some(Undone { verb, exptime, keys: keys.rest().to_vec() });
        } else if ends {
            reply.push_bytes(END);
        }
        reply
    }

    /// Look up at most so many of the keys, and no more once so many bytes of small values were
    /// copied. Returns how many bytes that adds to the reply.
    pub(crate) fn perform_keys(
        &mut self,
        served: &mut Served,
        (verb, exptime): (GetVerb, i64),
        keys: &mut Keys<'_>,
        (keys_most, bytes_most): (usize, usize),
        reply: &mut Output,
    ) -> usize {
        let expires = execute::expires_at(exptime, self.now_seconds);
        let mut out = Vec::new();
        let (mut added, mut copied) = (0, 0);
        for key in keys.take(keys_most) {
            self.count_hot(key, crate::forward::writes(verb));
            let before = out.len();
            let hash = self.shared.store.hash(key);
            let touched = Cell::new(0);
            // Its size is no reason to leave it to somebody else, and neither is its place.
            let context = Context { large_from: u64::MAX, ..self.context_for(&touched, key) };
            let outcome = execute::get_key(&context, verb, expires, key, hash, &mut out);
            self.count_job(served, Operation::Get, touched.get());
            if matches!(outcome, Outcome::Kept) {
                served.kept = true;
                break;
            }
            if let Outcome::Transfer(transfer) = outcome {
                reply.push_bytes(&out);
                served.pinned_bytes += transfer.value.value_bytes();
                added += out.len() + transfer.value.value_bytes() + transfer.tail.len();
                out.clear();
                reply.push_value(transfer.value);
                reply.push_bytes(transfer.tail);
                served.large = true;
                continue;
            }
            copied += out.len() - before;
            if copied >= bytes_most {
                break;
            }
        }
        reply.push_bytes(&out);
        added + out.len()
    }

    fn conclude_job(&mut self, served: &mut Served, outcome: Outcome, mut out: Vec<u8>) -> Output {
        match outcome {
            Outcome::Done => {}
            Outcome::Again => out.extend_from_slice(execute::TRY_AGAIN),
            Outcome::Kept => served.kept = true,
            Outcome::Transfer(transfer) => {
                served.large = true;
                let mut reply = Output::of(out);
                reply.push_value(transfer.value);
                reply.push_bytes(transfer.tail);
                return reply;
            }
            // A job is executed whatever its size, and is a request for a key: what is asked of the
            // whole server is answered by who received it, or by the keeper.
            _ => unreachable!("a job is a request for a key"),
        }
        Output::of(out)
    }

    /// A job is executed where it lies, whatever its item's size.
    fn context_of_job<'a>(&'a self, touched: &'a Cell<u64>) -> Context<'a> {
        Context { large_from: u64::MAX, ..self.context(touched) }
    }

    fn count_job(&self, served: &mut Served, operation: Operation, size: u64) {
        let (row, _) = self.count(operation, size);
        served.tally.add(row, served.arrived_nanos);
    }

    /// Whether large replies leave in slices here though the plan runs requests to completion: in
    /// `minos` the reply that a large worker made leaves by a small one, whose small requests must
    /// not wait for it.
    pub(crate) fn sends_in_slices(&self) -> bool {
        self.plan.slice_bytes.is_some() || matches!(self.plan.large_lane, LargeLane::Ranges(_))
    }

    /// Whether a value that goes this way is received in slices: not where requests run to
    /// completion, but where somebody else's large value comes in by a small worker.
    pub(crate) fn receives_in_slices(&self, route: Route) -> bool {
        route == Route::HereInSlices || (matches!(route, Route::Hand(_)) && self.sends_in_slices())
    }

    /// The most that one turn of a large transfer moves.
    pub(crate) fn slice_budget(&self) -> usize {
        if is_planted(Bug::SliceUnbounded) {
            return usize::MAX;
        }
        match self.plan.slice_bytes {
            Some(slice) => slice.0 as usize,
            None if self.sends_in_slices() => self.shared.settings.policy.slice_bytes.0 as usize,
            None => usize::MAX,
        }
    }
}
