//! Reads the requests that workers have noted, for `stats large` and for the slow log. A thread
//! that is no worker writes that log, since a pipe that nobody reads blocks its writer.

use crate::latency::noted::{NotedRequest, Ring};
use crate::shared::{Shared, WorkerShared};
use crate::stats::LargeSnapshot;

/// Reads what was noted since it did so last. By itself it has read nothing.
#[derive(Debug, Default)]
pub struct SlowLog {
    /// By worker, of all NUMA domains, slow ones and large ones apart: the last number read, and
    /// how many had been left out.
    read: Vec<[(u64, u64); 2]>,
}

/// What was noted meanwhile.
#[derive(Debug, Default)]
pub struct Fresh {
    /// The requests, by when they were answered, each with its worker.
    pub requests: Vec<(usize, NotedRequest)>,
    /// And how many more there were, which nobody remembers.
    pub lost: u64,
}

impl Fresh {
    /// What is in a ring of this worker that was not read yet.
    fn add(&mut self, worker: usize, ring: &Ring, (read, left_out_before): &mut (u64, u64)) {
        let (noted, left_out) = ring.counts();
        if noted != *read {
            let requests = ring.read(*read);
            // The worker may have gone on since its counts were read.
            let last = requests.last().map_or(noted, |last| last.number.max(noted));
            let lost = (last - *read).saturating_sub(requests.len() as u64);
            self.requests.extend(requests.into_iter().map(|request| (worker, request)));
            (*read, self.lost) = (last, self.lost + lost);
        }
        self.lost += left_out - std::mem::replace(left_out_before, left_out);
    }
}

impl SlowLog {
    /// What was noted since the last time.
    pub fn take<S>(&mut self, shared: &Shared<S>) -> Fresh {
        let (mut fresh, mut number) = (Fresh::default(), 0);
        shared.each_domain(|shared| {
            for worker in &shared.workers {
                if self.read.len() == number {
                    self.read.push([(0, 0); 2]);
                }
                for (ring, read) in worker.noted.rings().into_iter().zip(&mut self.read[number]) {
                    fresh.add(number, ring, read);
                }
                number += 1;
            }
        });
        fresh.requests.sort_by_key(|(_, request)| request.times.ended_nanos);
        fresh
    }

    /// What was noted so far is of no interest.
    pub fn pass_over<S>(&mut self, shared: &Shared<S>) {
        self.read.clear();
        shared.each_domain(|shared| {
            let counts = |worker: &WorkerShared<S>| worker.noted.rings().map(Ring::counts);
            self.read.extend(shared.workers.iter().map(counts));
        });
    }
}

impl<S> Shared<S> {
    /// What `stats large` tells.
    pub(crate) fn large(&self, now_nanos: u64) -> LargeSnapshot {
        let keys = self.settings.log_keys && self.settings.dump;
        let slow_nanos = self.slow.nanos();
        let mut large = LargeSnapshot { slow_nanos, keys, now_nanos, ..LargeSnapshot::default() };
        let mut number = 0;
        self.each_domain(|shared| {
            for worker in &shared.workers {
                let (noted, left_out) = worker.noted.counts();
                large.noted += noted;
                large.left_out += left_out;
                let requests = worker.noted.read_since_reset();
                large.requests.extend(requests.map(|request| (number, request)));
                number += 1;
            }
        });
        large
    }
}
