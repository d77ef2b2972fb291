//! Holds replies back until the changes that they report are durable.

use super::state::DurableExecutor;
use super::task::Task;
use crate::jobs::handoff::{Finished, Origin};
use laneway_policy::WorkerId;
use laneway_sync::planted::{Bug, is_planted};
use laneway_sync::sleep::Posted;

impl<S> DurableExecutor<S> {
    /// A task is done but for its reply.
    pub(super) fn conclude(&mut self, task: Task) {
        if let Some(connection) = task.connection {
            self.turns.unstall(connection);
        }
        match task.waits_for {
            Some(_) if !is_planted(Bug::ReplyBeforeDurable) => self.held.push_back(task),
            _ => self.answer(task),
        }
    }

    pub(super) fn answer(&mut self, task: Task) {
        if task.counts_as_waiting {
            self.befores.wait_no_more(task.asker());
        }
        for hash in &task.covers {
            self.durable.pending_writes.uncover_owner(*hash);
        }
        if task.origin.is_some() {
            self.durable.answered(task.bytes); // the executor's own were not counted
        }
        if let Some(finished) = task.finish() {
            self.deliver(finished);
        }
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
            // Once it stops there are no workers any more, and nobody makes room.
            if !self.durable.is_stopping() {
                self.undelivered.push_back(finished);
            }
            return;
        }
        if Posted::now().must_wake(&worker.sleeper) {
            worker.wake();
        }
    }
}
