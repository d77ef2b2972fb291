//! Executes one request in memory, as a worker would, and has its changes written to the tier.

use super::before::{Before, DURABLE};
use super::capture;
use super::hands::{Order, SCHEDULE_KEY};
use super::shared::bump;
use super::state::DurableExecutor;
use super::task::{Step, Task, Voice};
use crate::counts::watch::of_tier;
use crate::event_log::{Class, DeletedBy};
use crate::execute::{self, Body, Context, Incoming, Outcome};
use crate::jobs::handoff::Work;
use crate::latency::{self, Operation};
use crate::request::requests::operation;
use crate::stats::{TierSnapshot, write_tier};
use laneway_policy::route::lane;
use laneway_policy::{ItemBytes, Lane};
use laneway_store::{Got, KeyHash};
use laneway_sync::planted::{Bug, is_planted};
use laneway_tier::{Error, Position, Result, Stats};
use laneway_wire::reply::{CRLF, OK};
use laneway_wire::{Get, Request};
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

/// Requests of a job for which copies are made. A longer pipeline is a bulk load, whose keys hardly
/// anybody reads meanwhile, and which would pay for each copy.
const COPIED_MAX: usize = 16;

/// How often a flush that is due and was refused is tried again.
const FLUSH_AGAIN_NANOS: u64 = 1_000_000_000;

/// The value of a request. What is not there has no end either, and is answered so.
pub(super) fn body_of<'a>(request: &Request<'_>, value: &'a [u8]) -> Body<'a> {
    let is_there = value.len() == execute::value_behind(request);
    Body::of(if is_there { value } else { &[] })
}

impl<S> DurableExecutor<S> {
    /// Executes `command`, which concerns `key`, and keeps what it changes; where that is a value
    /// which is at hand, it is `stored`. False: nothing was
    /// done, since memory has forgotten the item that was there a moment ago.
    pub(super) fn execute(
        &mut self,
        task: &mut Task,
        key: &[u8],
        operation: Operation,
        (size, stored): (u64, Option<&[u8]>),
        command: impl FnOnce(&Context<'_>, &mut Vec<u8>) -> Outcome,
    ) -> bool {
        let hash = self.shared.store.hash(key);
        self.cover(task, hash);
        let under_way = self.under_way(key);
        let mut before = self.before_command(task, (key, hash), under_way, operation, size);
        let touched = Cell::new(0);
        let mut out = std::mem::take(&mut self.scratch);
        let room = std::mem::take(&mut self.changes);
        let context = self.context(&touched, task.seen);
        let context = Context { read_only: task.read_only, by: task.asker(), ..context };
        let (outcome, mut changes) = capture::during(room, || command(&context, &mut out));
        let may_touch = matches!(operation, Operation::Get | Operation::Touch);
        if is_planted(Bug::TouchUnwritten) && may_touch {
            changes.clear();
        }
        if matches!(outcome, Outcome::Kept) {
            assert!(changes.is_empty() && out.is_empty(), "what is asked again has done nothing");
            (self.scratch, self.changes) = (out, changes);
            return false;
        }
        let writes = !matches!(operation, Operation::Get) || !changes.is_empty();
        self.wait_for_change(task, under_way);
        self.put_reply(task, out, outcome);
        self.account(task, (key, writes), operation, size.max(touched.get()));
        for changed in changes.drain(..) {
            let (mut copied, mut given) = (None, None);
            if *changed.key == *key {
                (copied, given) = (before.take(), stored);
            }
            self.keep(task, changed, given, copied);
        }
        self.changes = changes;
        if let Some(before) = before {
            self.befores.give_back(before); // it has changed nothing
        }
        true
    }

    /// What there is of a key before a task's command, which may change it and stores so many
    /// bytes. None where it is not copied: then who reads the key waits.
    fn before_command(
        &mut self,
        task: &Task,
        (key, hash): (&[u8], KeyHash),
        under_way: Option<Position>,
        operation: Operation,
        size: u64,
    ) -> Option<Before> {
        use Operation::{Arith, Delete, Set, Touch};
        let changes = matches!(operation, Set | Delete | Arith | Touch);
        let value_bytes = (size as usize).saturating_sub(key.len());
        // At an interval what waits for a device alone is not answered at once.
        let waits = self.durable.waits || self.durable.tier.is_large(key.len(), value_bytes);
        if !changes || !waits || task.several.is_some() || COPIED_MAX <= task.marks.len() {
            return None;
        }
        // A copy between two changes of one group would be told to nobody, but by chance.
        let is_of_next = |until: Position| !self.committing || self.group_until < until;
        if under_way.is_some_and(is_of_next) || !self.befores.may_copy() {
            return None;
        }
        self.copy_before((key, hash), under_way.unwrap_or(DURABLE))
    }

    fn copy_before(&mut self, (key, hash): (&[u8], KeyHash), from: Position) -> Option<Before> {
        let mut bytes = self.befores.buffer_of(key);
        let meta = match self.shared.store.peek_value(hash, key, self.now, &mut bytes) {
            Got::Miss => None,
            Got::Copied(meta) => Some(meta),
            Got::Large(meta, pinned) => {
                if self.befores.has_room(pinned.value_bytes()) {
                    pinned.copy_into(&mut bytes);
                }
                Some(meta)
            }
        };
        let copied = bytes.len() - key.len();
        self.moved += copied as u64;
        self.befores.count_copied(copied);
        let is_known = match &meta {
            Some(meta) => copied == meta.value_bytes as usize && self.befores.has_room(copied),
            None => !self.has_item(key),
        };
        let before = Before::new((key, hash), bytes, meta, from);
        if !is_known {
            self.befores.give_back(before);
            return None;
        }
        Some(before)
    }

    /// Puts what a command has written into the reply, and what is to come behind it.
    pub(super) fn put_reply(&mut self, task: &mut Task, mut out: Vec<u8>, outcome: Outcome) {
        task.reply.push_bytes(&out);
        task.reply_bytes[0] += out.len();
        out.clear();
        self.scratch = out;
        if let Outcome::Transfer(rest) = outcome {
            task.large = true;
            task.reply_bytes[1] += rest.part.len();
            task.reply.push_part(rest.value, rest.part);
            task.reply.push_bytes(rest.tail);
        }
    }

    /// Counts a request that is executed, about an item of so many bytes, which it writes or not.
    pub(super) fn account(
        &mut self,
        task: &mut Task,
        (key, writes): (&[u8], bool),
        operation: Operation,
        item_bytes: u64,
    ) {
        if self.dice.falls() && self.shared.hot.is_none() {
            // A sample is left out while another worker takes one.
            self.shared.workers[0].samples.note(key, writes);
        }
        self.moved += item_bytes;
        let large = item_bytes > 0 && lane(&self.plan, ItemBytes(item_bytes)) == Lane::Large;
        task.tally.add(latency::row(operation, large), task.arrived_nanos);
        task.tally.is_about(if large { item_bytes } else { 0 });
    }

    /// The last change of a key that is not durable, if replies must wait for it: it is when the
    /// log is up to here.
    fn under_way(&self, key: &[u8]) -> Option<Position> {
        let pending = self.pending.get(key).filter(|pending| !pending.expired);
        pending.map(|pending| pending.until)
    }

    /// The reply tells of what others have changed, too.
    pub(super) fn wait_for_others(&mut self, task: &mut Task, key: &[u8]) {
        let under_way = self.under_way(key);
        self.wait_for_change(task, under_way);
    }

    fn wait_for_change(&mut self, task: &mut Task, under_way: Option<Position>) {
        if let Some(until) = under_way {
            task.wait_for(until);
            self.count_waiting(task);
        }
    }

    /// Gives back what memory has forgotten the item for.
    pub(super) fn perform_body(
        &mut self,
        task: &mut Task,
        incoming: Incoming,
    ) -> Option<Box<Incoming>> {
        let key: Box<[u8]> = incoming.key().into();
        let size = incoming.item_bytes();
        let mut again = None;
        self.execute(task, &key, Operation::Set, (size, None), |context, out| {
            incoming.finish(context, out).unwrap_or_else(|incoming| {
                again = Some(incoming);
                Outcome::Kept
            })
        });
        again
    }

    /// False as for [`DurableExecutor::execute`].
    pub(super) fn perform_request(
        &mut self,
        task: &mut Task,
        request: &Request<'_>,
        key: &[u8],
        value: &[u8],
    ) -> bool {
        if !matches!(request, Request::Store(_) | Request::MetaSet(_)) {
            let operation = operation(request);
            return self.execute(task, key, operation, (0, None), |context, out| {
                execute::command(context, request, out)
            });
        }
        let body = body_of(request, value);
        let bytes = &value[..value.len().saturating_sub(CRLF.len())];
        let size = (key.len() + bytes.len()) as u64;
        let stored = (!execute::joins(request)).then_some(bytes);
        self.execute(task, key, Operation::Set, (size, stored), |context, out| {
            execute::store_whole(context, request, body, out)
        })
    }

    /// A request that stores only where there is no item, and whose key has one in the tier alone:
    /// that need not be read.
    pub(super) fn perform_refused_add(
        &mut self,
        task: &mut Task,
        request: &Request<'_>,
        key: &[u8],
        value: &[u8],
    ) {
        let size = (key.len() + value.len().saturating_sub(CRLF.len())) as u64;
        let is_done = self.execute(task, key, Operation::Set, (size, None), |context, out| {
            execute::refuse_added(context, request, body_of(request, value), out);
            Outcome::Done
        });
        assert!(is_done, "it looks at nothing that memory could have forgotten");
    }

    /// A request that is about no key and changes nothing.
    pub(super) fn perform_nothing(&mut self, task: &mut Task, request: &Request<'_>) {
        let (touched, mut out) = (Cell::new(0), Vec::new());
        execute::command(&self.context(&touched, false), request, &mut out);
        task.reply.push_bytes(&out);
        task.count(Operation::Other);
    }

    /// False as for [`DurableExecutor::execute`].
    pub(super) fn perform_key(&mut self, task: &mut Task, get: &Get<'_>, key: &[u8]) -> bool {
        let expires = execute::expires_at(get.exptime, self.now);
        self.execute(task, key, Operation::Get, (0, None), |context, out| {
            execute::get_key(context, get.verb, expires, key, context.store.hash(key), out)
        })
    }

    /// Deletes an item that is in the tier alone: its value need not be looked at. What is said of
    /// that is the caller's to say.
    pub(super) fn perform_cold_delete(&mut self, task: &mut Task, key: &[u8], by: DeletedBy) {
        if self.shared.connections.events.watches(Class::Deletions) {
            self.log_cold_delete(task, key, by);
        }
        let hash = self.shared.store.hash(key);
        self.cover(task, hash);
        self.counters().delete_hits.bump_owner();
        if by == DeletedBy::MetaDelete {
            self.counters().cmd_meta.bump_owner();
        }
        task.count(Operation::Delete);
        let change = capture::Change::Deleted;
        let changed = capture::Changed { key: key.into(), hash, change };
        self.keep(task, changed, None, None);
    }

    fn log_cold_delete(&self, task: &Task, key: &[u8], by: DeletedBy) {
        let touched = Cell::new(0);
        let context = Context { by: task.asker(), ..self.context(&touched, false) };
        let value_bytes = self.in_tier_alone(key).map_or(0, |look| look.value_bytes);
        context.log_delete_of(key, by, value_bytes);
    }

    pub(super) fn cover(&mut self, task: &mut Task, hash: KeyHash) {
        // Also where replies do not wait for durability: the tier may yet refuse the change, and a
        // large value is on its way to a device before that is known.
        if self.durable.waits || !is_planted(Bug::UntakenShown) {
            self.durable.pending_writes.cover_owner(hash);
            task.covers.push(hash);
        }
    }

    /// Nothing else is under way. The tier flushes first, which somebody else waits for; then
    /// memory does, a stretch a step.
    pub(super) fn perform_flush(
        &mut self,
        task: &mut Task,
        request: &Request<'_>,
        delay: Option<i64>,
    ) -> Step {
        let is_ours = task.origin.is_none(); // it was allowed when it was asked for
        let due = self.shared.flush_at.load(Ordering::Relaxed); // the executor alone sets it
        let is_due = due != 0 && due <= self.now.seconds();
        if is_ours && task.flushed_at.is_none() && !is_due {
            return Step::Done; // another flush has taken its place
        }
        let may = self.execute_settings.flush_enabled || is_ours;
        if task.flushed_at.is_none() && may {
            task.flushed_at = Some(self.now);
            let at = execute::expires_at(delay.unwrap_or(0), self.now);
            let at = if at > self.now { at.seconds() } else { 0 };
            // What was to come is forgotten with everything else.
            if at != 0 || !is_planted(Bug::FlushSparesTier) {
                self.flushing = true;
                self.order_for(task, |number| Order::Flush { number, at });
                return Step::Suspend;
            }
        }
        if is_ours {
            if !self.shared.store.flush_all() {
                return Step::Barrier;
            }
            self.durable.pending_writes.all_changed_owner();
            self.ends.forget_all();
            if is_due {
                self.shared.flush_at(0);
            }
            return Step::Done;
        }
        let mut out = Vec::new();
        let touched = Cell::new(0);
        let context = self.context(&touched, false);
        // Memory does what the tier has done, though its time may have come in between: when it
        // has, everything is flushed once more.
        let now = task.flushed_at.unwrap_or(context.now);
        let outcome = execute::command(&Context { now, ..context }, request, &mut out);
        self.durable.pending_writes.all_changed_owner();
        self.ends.forget_all();
        match outcome {
            Outcome::Again => return Step::Barrier, // the same, as an outcome
            Outcome::FlushAt(at) => self.shared.flush_at(at),
            _ => {}
        }
        task.reply.push_bytes(&out);
        task.count(Operation::Other);
        Step::Done
    }

    /// A flush that was to come when the server last stopped is to come still. When one that cannot
    /// be read was to come nobody knows, and no client asks for it.
    pub(super) fn recall_flush(&self) {
        let item = match self.durable.tier.get(&SCHEDULE_KEY) {
            Ok(Some(item)) => item,
            Ok(None) => return,
            Err(error) => {
                bump(&self.durable.counts.lost);
                let why = match error {
                    Error::Lost { why, .. } => why, // its key would say nothing
                    error => error.to_string(),
                };
                log::error!(
                    "a flush_all that was to come cannot be read, and is not carried out: {why}; \
                     ask for it again, or for another that takes its place"
                );
                return;
            }
        };
        if is_planted(Bug::DelayedFlushForgotten) {
            return;
        }
        if let Ok(at) = item.value.as_slice().try_into() {
            let at = u32::from_le_bytes(at);
            log::info!(
                "a flush_all of before this start is still to come: it deletes everything at unix \
                 time {at}, or now if that is over"
            );
            self.shared.flush_at(at);
        }
    }

    /// Lets a flush in whose time has come.
    pub(super) fn flush_if_due(&mut self) {
        let at = self.shared.flush_at.load(Ordering::Relaxed); // the executor alone sets it
        if at == 0 || self.now.seconds() < at || self.now_nanos < self.flush_nanos {
            return;
        }
        self.flush_nanos = self.now_nanos + FLUSH_AGAIN_NANOS;
        let work = Work::Request {
            bytes: b"flush_all noreply\r\n".to_vec(),
            ends: true,
            read_only: false,
        };
        self.barrier.push_back(Task::new(work, self.now_nanos, None));
    }

    /// `stats tier`: somebody else counts, since it takes a while.
    pub(super) fn count_all(&mut self, task: &mut Task) -> Step {
        self.order_for(task, |number| Order::Count { number });
        Step::Count
    }

    /// `checkpoint`: somebody else makes it, and no request but this one waits for that.
    pub(super) fn checkpoint(&mut self, task: &mut Task) -> Step {
        self.order_for(task, |number| Order::Checkpoint { number });
        Step::Count
    }

    /// It is durable, or was not made.
    pub(super) fn checkpointed(&mut self, number: u64, result: Result<()>) {
        let Some(mut task) = self.counting.remove(&number) else { return };
        match result {
            Ok(()) => task.reply.push_bytes(OK),
            Err(error) => task.fail(error.to_string()),
        }
        task.count(Operation::Other);
        task.done = true;
        self.conclude(task);
    }

    /// Everything was counted.
    pub(super) fn stats_counted(&mut self, number: u64, stats: &Stats) {
        let Some(mut task) = self.counting.remove(&number) else { return };
        let mut out = Vec::new();
        write_tier(Some(&self.tier_snapshot(stats)), &mut out);
        if let Voice::Binary(echo) = task.voice {
            let text = std::mem::take(&mut out);
            execute::binary::put_stats(echo, &text, &mut out);
        }
        task.reply.push_bytes(&out);
        task.count(Operation::Other);
        task.done = true;
        self.conclude(task);
    }

    fn tier_snapshot(&self, stats: &Stats) -> TierSnapshot {
        let counts = &self.durable.counts;
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed); // statistics
        let mut watch = of_tier(&self.durable);
        watch.queue += self.turns.len() as u64;
        TierSnapshot {
            stats: stats.clone(),
            waits: self.durable.waits,
            evicts: self.durable.tier.evicts(),
            watch,
            set_aside: read(&counts.set_aside),
            answered_before: read(&counts.answered_before),
            expired: read(&counts.expired),
            held: self.held.len() as u64,
            report: self.durable.recovery.report.clone(),
        }
    }
}
