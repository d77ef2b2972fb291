//! Replies leave once what they tell of is durable.

use super::hands::Order;
use super::keeper::Keeper;
use super::task::Task;
use crate::handoff::{Finished, Origin};
use laneway_policy::WorkerId;
use laneway_sync::planted::{Bug, is_planted};
use laneway_sync::sleep::Posted;
use laneway_tier::Result;

impl<S> Keeper<S> {
    /// A task is done but for its reply.
    pub(super) fn conclude(&mut self, task: Task) {
        match task.waits_for {
            Some(_) if !is_planted(Bug::ReplyBeforeDurable) => self.held.push_back(task),
            _ => self.answer(task),
        }
    }

    fn answer(&mut self, task: Task) {
        for hash in &task.covers {
            self.durable.veil.uncover(*hash);
        }
        self.durable.answered(task.bytes);
        if let Some(finished) = task.finish() {
            self.deliver(finished);
        }
    }

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

    /// Takes replies to who had no room for them; returns whether one left.
    pub(super) fn redeliver(&mut self) -> bool {
        let before = self.undelivered.len();
        for finished in std::mem::take(&mut self.undelivered) {
            self.deliver(finished);
        }
        self.undelivered.len() < before
    }

    fn deliver(&mut self, finished: Finished) {
        let home = match finished.origin {
            Origin::Stream(origin) => origin.worker,
            // Any worker can send it; the queue's own is the likeliest to be awake.
            Origin::Datagram(origin) => {
                let queues = self.shared.udp.get().map_or(&[][..], |udp| &udp.queues);
                let queue = queues.get(usize::from(origin.queue));
                WorkerId(queue.map_or(0, |queue| queue.worker) as u16)
            }
        };
        let worker = &self.shared.workers[home.index()];
        if is_planted(Bug::ReplyLost) && finished.large {
            return;
        }
        if let Err(finished) = worker.finished.push(finished) {
            return self.undelivered.push_back(finished);
        }
        if Posted::now().must_wake(&worker.sleeper) {
            worker.wake();
        }
    }
}
