//! A request goes into the queue of whoever executes it, and somebody comes for it. No queue blocks
//! and none loses: what finds its queue full is given back.

use crate::core::Core;
use crate::durable::shared::EXECUTOR;
use crate::jobs::handoff::{Job, Work};
use crate::jobs::remote::is_remote;
use crate::latency::Operation;
use laneway_policy::{Design, WorkerId, WorkerTarget};
use laneway_transport::Transport;

impl<T: Transport> Core<T> {
    /// Put a job into a queue, and see to it that somebody comes for it; gives it back if the queue
    /// is full.
    pub(crate) fn enqueue(&mut self, to: WorkerTarget, job: Job) -> Result<(), Job> {
        if to == EXECUTOR {
            let durable = self.shared.durable.get().expect("only where there is an executor");
            let size = job.size.0;
            let is_one = !matches!(job.work, Work::Batch { .. }); // else each is counted
            durable.push(job)?;
            self.has_asked = true;
            self.lanes().handed_over.add_owner(1);
            if is_one {
                self.count(Operation::Other, size);
            }
            return Ok(());
        }
        if is_remote(to) {
            return self.enqueue_remote(to, job);
        }
        match to {
            WorkerTarget::Shared => {
                self.shared.large_jobs.push(job)?;
                self.lanes().handed_over.add_owner(1);
                let takers = self.plan.large_ids().chain(self.plan.standby());
                self.wake_one(takers);
                // Since then others may have become those who take from it.
                if self.shared.plan.edition.is_over(self.plan_version) {
                    self.shared.wake_all();
                }
            }
            WorkerTarget::Between(..) => {
                self.turn_number += 1;
                let workers = &self.shared.workers;
                let queued = |id: WorkerId| workers[id.index()].jobs.len() as u64;
                let worker = to.shortest(&self.plan, self.turn_number, queued);
                return self.enqueue(WorkerTarget::Worker(worker), job);
            }
            WorkerTarget::Worker(worker) => {
                let queue = &self.shared.workers[worker.index()].jobs;
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
}
