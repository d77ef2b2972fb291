//! What is read of the requests that workers note: by `stats large`, and by whoever writes them
//! into the log. The log is written by a thread that is no worker, since a pipe that nobody reads
//! stops who writes into it.

use crate::latency::noted::NotedRequest;
use crate::shared::Shared;
use crate::stats::LargeSnapshot;

/// Reads what was noted since it did so last. By itself it has read nothing.
#[derive(Debug, Default)]
pub struct SlowLog {
    /// By worker, of all NUMA domains: the last number read, and how many had been left out.
    read: Vec<(u64, u64)>,
}

/// What was noted meanwhile.
#[derive(Debug, Default)]
pub struct Fresh {
    /// The requests, by when they were answered, each with its worker.
    pub requests: Vec<(usize, NotedRequest)>,
    /// And how many more there were, which nobody remembers.
    pub lost: u64,
}

impl SlowLog {
    /// What was noted since the last time.
    pub fn take<S>(&mut self, shared: &Shared<S>) -> Fresh {
        let (mut fresh, mut number) = (Fresh::default(), 0);
        shared.each_domain(|shared| {
            for worker in &shared.workers {
                if self.read.len() == number {
                    self.read.push((0, 0));
                }
                let (noted, left_out) = worker.noted.counts();
                let (read, left_out_before) = &mut self.read[number];
                if noted != *read {
                    let requests = worker.noted.read(*read);
                    // The worker may have gone on since its counts were read.
                    let last = requests.last().map_or(noted, |last| last.number.max(noted));
                    fresh.lost += (last - *read).saturating_sub(requests.len() as u64);
                    fresh.requests.extend(requests.into_iter().map(|request| (number, request)));
                    *read = last;
                }
                fresh.lost += left_out - std::mem::replace(left_out_before, left_out);
                number += 1;
            }
        });
        fresh.requests.sort_by_key(|(_, request)| request.times.ended_nanos);
        fresh
    }
}

impl SlowLog {
    /// What was noted so far is of no interest.
    pub fn pass_over<S>(&mut self, shared: &Shared<S>) {
        self.read.clear();
        shared.each_domain(|shared| {
            self.read.extend(shared.workers.iter().map(|worker| worker.noted.counts()));
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
                let requests = worker.noted.read_since_reset().into_iter();
                large.requests.extend(requests.map(|request| (number, request)));
                number += 1;
            }
        });
        large
    }
}
