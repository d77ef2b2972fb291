//! What came of a run.

use super::SliceWait;
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

/// Whether what a run says would also be said of a longer one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum State {
    /// It would, as far as one can see.
    #[default]
    Steady,
    /// Percentiles of the second half are another's than the first's.
    Drifting,
    /// A class of requests is left over.
    Starving,
    /// A queue grows from half to half.
    Growing,
    /// Far more arrived than was answered; the run may have been broken off.
    Overload,
}

impl State {
    /// As rows have it.
    pub const fn name(self) -> &'static str {
        match self {
            State::Steady => "steady",
            State::Drifting => "drifting",
            State::Starving => "starving",
            State::Growing => "growing",
            State::Overload => "overload",
        }
    }
}

/// One class of requests, half by half of the time in which arrivals counted.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Halves {
    /// p99 of those that arrived in it, in µs.
    pub p99_us: [f64; 2],
    /// Requests in the machine, on average over it.
    pub backlog: [f64; 2],
    /// Requests that count.
    pub arrived: u64,
    /// Of those, the ones not answered when the last request that counts came.
    pub unfinished: u64,
}

/// A queue that takes in more than this part of its arrivals without giving it back is growing.
const GROWTH_MAX: f64 = 0.01;

/// The same of large requests, which are few: chance alone leaves some of them over.
const GROWTH_LARGE_MAX: f64 = 0.05;

/// As long as a queue is by chance.
const BACKLOG_BY_CHANCE: f64 = 20.0;

/// More than this part of a class left over is a class that starves.
const UNFINISHED_MAX: f64 = 0.1;

/// Fewer than this many are taken for so many, or a single one would be a tenth.
const UNFINISHED_OF_MIN: u64 = 50;

impl Halves {
    /// The part of the arrivals by which the queue grew: twice what the halves differ by, for
    /// their middles are half the time apart.
    pub fn growth(&self) -> f64 {
        2.0 * (self.backlog[1] - self.backlog[0]) / self.arrived.max(1) as f64
    }

    fn grows(&self, growth_max: f64) -> bool {
        self.growth() > growth_max
            && self.backlog[1] > 1.5 * self.backlog[0]
            && self.backlog[1] - self.backlog[0] > BACKLOG_BY_CHANCE
    }

    fn starves(&self) -> bool {
        self.unfinished as f64 > UNFINISHED_MAX * self.arrived.max(UNFINISHED_OF_MIN) as f64
    }
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
    /// Small requests, half by half.
    pub small_halves: Halves,
    /// Large ones.
    pub large_halves: Halves,
    /// Where requests come by connections: what small turns waited for at most, and what runs of
    /// slices did.
    pub slice_waits: [SliceWait; 2],
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
    /// Cores that the server had, on average over the time in which arrivals counted.
    pub cores: f64,
    /// Requests counted that found their RX queue full, each as often as it did.
    pub lost: u64,
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
    /// What a single run tells about whether it is to be believed: halves of one run differ by
    /// chance, so drifting is a matter of several seeds.
    pub fn state(&self) -> State {
        if self.overloaded {
            State::Overload
        } else if self.small_halves.grows(GROWTH_MAX) || self.large_halves.grows(GROWTH_LARGE_MAX) {
            State::Growing
        } else if self.small_halves.starves() || self.large_halves.starves() {
            State::Starving
        } else {
            State::Steady
        }
    }

    /// Whether p99 is within so many microseconds, and nothing is hidden behind it: a lane that is
    /// starved stays out of p99 but not out of the question.
    pub fn holds(&self, slo_us: f64) -> bool {
        self.state() == State::Steady
            && !self.limit_missed
            && self.all().percentile_us(99.0) <= slo_us
    }

    /// All latencies.
    pub fn all(&self) -> Latencies {
        let mut all = self.small.clone();
        all.merge(&self.large);
        all
    }
}
