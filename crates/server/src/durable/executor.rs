//! The durable executor, one step at a time: it takes results of devices and new jobs, and goes on
//! with the tasks that wait for them.

use super::hands::{DeviceExecutor, Done, SCHEDULE_KEY};
use super::shared::add;
use super::state::DurableExecutor;
use super::task::{KEYS_PER_STEP, LONG, Task};
use crate::shared::Shared;
use laneway_store::{Moment, Store};
use laneway_tier::Wanted;
use std::sync::Arc;

/// Requests taken in one step, so that what ended in between is heard of, and so that a worker that
/// shares the executor's CPU need not wait long: a request takes a few microseconds. A job that has
/// several is begun as a whole.
const REQUESTS_PER_STEP: u64 = 64;
/// No more once those taken have stored or read items of so many bytes.
const BYTES_PER_STEP: u64 = 64 << 10;
/// Items on their way into memory at a time, and such of at most a piece as wait for that; further
/// jobs wait.
const FAULTS_MAX: usize = 512;
/// Longer ones that wait. They are many more, or what is short would wait behind them.
const LONG_WAITING_MAX: usize = 1 << 14;

/// What memory holds was asked for lately, though hits there are none in the tier; once memory has
/// evicted it, it shall be found there.
fn wanted(store: &Store, key: &[u8]) -> Wanted {
    if *key == SCHEDULE_KEY {
        return Wanted::Always;
    }
    // Whether it has expired does not matter here.
    let is_held = store.peek(store.hash(key), key, Moment::NEVER).is_some();
    if is_held { Wanted::Warm } else { Wanted::No }
}

impl<S> DurableExecutor<S> {
    /// The executor of this server, whose `durable` is set.
    pub fn new(shared: Arc<Shared<S>>, hands: Box<dyn DeviceExecutor>) -> DurableExecutor<S> {
        let store = shared.store.clone();
        let executor = DurableExecutor::begin(shared, hands);
        executor.recall_flush();
        // Eviction begins with this, and what has expired goes first.
        executor.durable.tier.tell_time(executor.shared.started_seconds);
        executor.durable.tier.ask_before_evicting(Box::new(move |key| wanted(&store, key)));
        executor
    }

    /// One turn: what has ended, then what is asked. Returns whether there was anything.
    pub fn step(&mut self, now_nanos: u64, now: Moment) -> bool {
        // Who steps it may have looked at the clock before another who did.
        if self.now_nanos <= now_nanos {
            (self.now_nanos, self.now) = (now_nanos, now);
        }
        self.plan = self.shared.plan.get();
        self.durable.tier.tell_time(self.now.seconds());
        self.befores.begin_step();
        let mut busy = self.redeliver();
        let mut done = std::mem::take(&mut self.done);
        self.hands.collect(&mut done);
        // What was carried out may have drawn some: nothing is given out below those.
        self.sequence = self.sequence.max(self.durable.tier.sequence());
        for done in done.drain(..) {
            busy = true;
            match done {
                Done::Committed(result) => self.committed(result),
                Done::Spilled(number, key, result) => self.spilled(number, &key, result),
                Done::Written(number, key, result) => self.written(number, &key, result),
                Done::Flushed(number, result) => self.flushed(number, result),
                Done::Counted(number, stats) => self.stats_counted(number, &stats),
                Done::Checkpointed(number, result) => self.checkpointed(number, result),
                Done::Read(number, answer) => self.was_read(number, answer),
            }
        }
        self.done = done;
        busy |= self.fill();
        (0..self.lines.len()).for_each(|of| self.begin_next(of));
        self.flush_if_due(); // before anything begins in that second
        busy |= self.pass_barrier();
        let mut taken = 0;
        self.moved = 0;
        if self.goes_on()
            && let Some(task) = self.yielded.pop_front()
        {
            busy = true;
            taken += KEYS_PER_STEP;
            self.admit(task);
        }
        while taken < REQUESTS_PER_STEP && self.moved < BYTES_PER_STEP {
            if !self.takes_more() {
                break;
            }
            let Some(task) = self.next_task() else { break };
            busy = true;
            taken += u64::from(task.requests());
            self.admit(task);
        }
        add(&self.durable.counts.requests, taken);
        if !self.yielded.is_empty() && self.goes_on() {
            self.durable.ring(); // a worker may have made this step, and another is needed
        }
        self.drop_expired();
        let has_more = self.has_more() || !self.durable.jobs.is_empty();
        self.commit_if_needed(has_more && self.takes_more());
        if !busy {
            self.hand.empty();
        }
        busy
    }

    /// Whether something may begin.
    pub(super) fn takes_more(&self) -> bool {
        self.goes_on() && self.barrier.is_empty()
    }

    /// Whether what has begun and waits for nothing may go on: also before a flush, which waits for
    /// it.
    fn goes_on(&self) -> bool {
        let full = !self.undelivered.is_empty() || self.has_enough_faults();
        !full && !self.flushing
    }

    fn next_task(&mut self) -> Option<Task> {
        while self.turns.has_room()
            && let Some(job) = self.durable.jobs.pop()
        {
            self.turns.enlist(Task::of(job));
        }
        self.turns.next_job()
    }

    fn has_enough_faults(&self) -> bool {
        let waiting = self.lines.each_ref().map(|line| line.waiting.len());
        let shorter: usize = waiting[..LONG].iter().sum();
        FAULTS_MAX <= self.faults.len() + self.filling.len() + shorter
            || LONG_WAITING_MAX <= waiting[LONG]
    }
}
