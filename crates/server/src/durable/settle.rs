//! Commits, and what waits for nothing else to be under way.

use super::hands::Order;
use super::state::Keeper;
use laneway_tier::Result;

impl<S> Keeper<S> {
    /// A commit has ended.
    pub(super) fn committed(&mut self, result: Result<()>) {
        self.committing = false;
        let durable = self.durable.tier.durable();
        while let Some(task) = self.held.pop_front_if(|task| task.waits_for <= Some(durable)) {
            self.answer(task);
        }
        self.pending.retain(|_, pending| durable < pending.until);
        if let Err(error) = result {
            self.take_all_back(&error.to_string());
        }
        for task in std::mem::take(&mut self.settling) {
            self.admit(task);
        }
    }

    /// What was appended may never be durable: nobody is told that it happened, and it did not.
    fn take_all_back(&mut self, why: &str) {
        self.pending.clear();
        for mut task in std::mem::take(&mut self.held) {
            if task.has_changed_nothing() {
                // It told of somebody else's change.
                for hash in std::mem::take(&mut task.covers) {
                    self.durable.veil.uncover(hash);
                }
                task.begin_again();
                self.settling.push(task);
                continue;
            }
            for key in std::mem::take(&mut task.changed) {
                self.take_back(&key);
            }
            task.fail(why);
            self.answer(task);
        }
    }

    /// Begins a commit if somebody waits for one, or it is time.
    pub(super) fn commit_if_needed(&mut self) {
        if self.committing {
            return;
        }
        let waiting = !self.held.is_empty() || !self.pending.is_empty();
        let due = match self.durable.waits {
            true => waiting,
            false => self.appended && self.commit_nanos <= self.now_nanos,
        };
        if !due {
            return;
        }
        self.commit_nanos = self.now_nanos + self.durable.interval_nanos;
        self.committing = true;
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
