//! Commits, and requests that must wait until nothing else is under way.

use super::before::NOT_IN_LOG;
use super::hands::Order;
use super::shared::bump;
use super::state::DurableExecutor;
use laneway_tier::{Position, Result};
use std::ops::RangeInclusive;

/// A commit is left to the next step for as long as the last group took, so that nobody waits twice
/// as long for it, but at least for about one step, and for half a millisecond at most.
const PUT_OFF_NANOS: RangeInclusive<u64> = 50_000..=500_000;

impl<S> DurableExecutor<S> {
    /// A commit has ended.
    pub(super) fn committed(&mut self, result: Result<()>) {
        self.committing = false;
        self.group_nanos = self.now_nanos.saturating_sub(self.commit_began_nanos);
        let durable = self.durable.tier.durable();
        self.end_befores_until(durable); // before anybody hears of it, or sees its keys again
        while let Some(task) = self.held.pop_front_if(|task| task.waits_for <= Some(durable)) {
            self.answer(task);
        }
        self.pending.retain(|_, pending| durable < pending.until);
        if let Err(error) = result {
            self.trouble.commit_failed(&error, self.now_nanos);
            self.take_all_back(&error.to_string());
        }
        for task in std::mem::take(&mut self.settling) {
            self.admit(task);
        }
    }

    /// What was appended may never be durable: nobody is told that it happened, and it did not.
    fn take_all_back(&mut self, why: &str) {
        let durable = self.durable.tier.durable();
        self.pending.clear();
        self.end_befores_until(NOT_IN_LOG); // of what was to come of the log, too
        self.take_back_of_waiting(durable);
        for mut task in std::mem::take(&mut self.held) {
            let has_several = task.has_several();
            if has_several || task.has_changed_nothing() {
                // It told of somebody else's change, or is to tell what is refused one by one.
                for key in std::mem::take(&mut task.changed) {
                    self.lose(&key);
                }
                for hash in std::mem::take(&mut task.covers) {
                    self.durable.pending_writes.uncover_owner(hash);
                }
                match has_several {
                    true => task.begin_again_behind(durable, why),
                    false => task.begin_again(),
                }
                self.settling.push(task);
                continue;
            }
            for key in std::mem::take(&mut task.changed) {
                self.lose(&key);
            }
            task.fail(why);
            self.answer(task);
        }
    }

    /// A change of this key may never be durable.
    fn lose(&mut self, key: &[u8]) {
        bump(&self.durable.counts.refused.failed);
        self.take_back(key);
    }

    /// What tasks have changed that wait for something else: they are refused once they are done.
    fn take_back_of_waiting(&mut self, durable: Position) {
        let waiting = self.busy.values().flatten();
        let waiting = waiting.chain(self.suspended.values()).chain(&self.settling);
        let waiting = waiting.chain(&self.yielded);
        let lost = waiting.filter(|task| Some(durable) < task.waits_for);
        let keys: Vec<Box<[u8]>> = lost.flat_map(|task| &task.changed).cloned().collect();
        for key in keys {
            self.lose(&key);
        }
    }

    /// Begins a commit if somebody waits for one, or it is time. Where somebody waits and the next
    /// step has more to begin, that is to be in the same group: a pipeline is more than a step, and
    /// would be two groups each time, one behind the other.
    pub(super) fn commit_if_needed(&mut self, has_more: bool) {
        if self.committing {
            return;
        }
        let waiting = !self.held.is_empty() || !self.pending.is_empty();
        let due = match self.durable.waits {
            true => waiting,
            false => {
                let is_time = self.commit_nanos <= self.now_nanos;
                self.appended && (is_time || self.durable.tier.is_commit_urgent())
            }
        };
        if !due {
            return;
        }
        if has_more && self.durable.waits {
            let since = *self.put_off_since.get_or_insert(self.now_nanos);
            let most = self.group_nanos.clamp(*PUT_OFF_NANOS.start(), *PUT_OFF_NANOS.end());
            if self.now_nanos < since + most {
                return;
            }
        }
        self.put_off_since = None;
        self.commit_nanos = self.now_nanos + self.durable.interval_nanos;
        self.committing = true;
        self.commit_began_nanos = self.now_nanos;
        self.group_until = self.appended_until;
        self.appended = false;
        self.hands.order(Order::Commit);
    }

    /// Lets a flush pass once nothing else is under way.
    pub(super) fn pass_barrier(&mut self) -> bool {
        let mut any = false;
        while self.is_still()
            && let Some(task) = self.barrier.pop_front()
        {
            any = true;
            let left = self.barrier.len();
            self.admit(task);
            if left < self.barrier.len() {
                break; // the rest of it is for the next step
            }
        }
        any
    }
}
