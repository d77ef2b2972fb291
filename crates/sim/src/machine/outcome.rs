//! What came of a run.

use crate::stats::Latencies;
use laneway_policy::CorePlan;

/// What a window of time was like.
#[derive(Debug, Clone, PartialEq)]
pub struct Window {
    /// When it ended, in seconds.
    pub end_s: f64,
    /// p99 over all requests, in microseconds.
    pub p99_us: f64,
    /// Requests answered per second.
    pub answered_per_s: f64,
    /// Large workers at its end.
    pub workers_large: u16,
    /// Threshold at its end.
    pub threshold: u64,
    /// p_L in force at its end.
    pub large_percent: f64,
}

/// What came of a run.
#[derive(Debug, Clone, Default)]
pub struct Outcome {
    /// Latencies of tiny and small requests.
    pub small: Latencies,
    /// Latencies of large requests; those that a quarter more arrivals could not flush out are in
    /// it with their age.
    pub large: Latencies,
    /// Requests counted that arrived.
    pub requests: u64,
    /// Requests simulated, warm-up and all.
    pub simulated: u64,
    /// Requests answered per second between the first and the last that count.
    pub answered_per_s: f64,
    /// The queues grew without bound; the run may have been broken off for that.
    pub overloaded: bool,
    /// p99 is above the traffic's `p99_max`; the run was broken off for that.
    pub limit_missed: bool,
    /// Large requests in the machine, on average over time.
    pub large_backlog: f64,
    /// Large requests that count and were not answered when the last request that counts came.
    pub large_unfinished: u64,
    /// Requests in the machine, on average over the time in which arrivals counted.
    pub in_system: f64,
    /// Mean rate of arrivals in that time, per second.
    pub arrivals_per_s: f64,
    /// Mean wait before service plus service of requests that arrived in that time, in µs.
    pub mean_us: f64,
    /// Share of the time in which the wire was busy.
    pub wire_busy: f64,
    /// Share of the time in which workers were busy, mean over all.
    pub cpu_busy: f64,
    /// Requests and packets served by each worker.
    pub per_worker: Vec<(u64, u64)>,
    /// The plan in force at the end.
    pub plan: Option<CorePlan>,
    /// How long the wire would have needed to send what waited for it, seen now and then.
    pub backlog: Latencies,
    /// Epochs in which the wire was found to be the bottleneck.
    pub epochs_backed_up: u64,
    /// Windows, if they were asked for.
    pub windows: Vec<Window>,
}

impl Outcome {
    /// All latencies.
    pub fn all(&self) -> Latencies {
        let mut all = self.small.clone();
        all.merge(&self.large);
        all
    }
}
