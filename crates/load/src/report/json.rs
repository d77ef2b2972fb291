//! The report as data: what `--json FILE` writes. The field names are a promise; a change of
//! meaning changes [`SCHEMA`]. Units are the last word of a name.

use crate::cpu::Machine;
use crate::datagram;
use crate::dialect::Dialect;
use crate::laps::Quiet;
use crate::phases::InParts;
use crate::prefill::Prefilled;
use crate::recorder::{Counts, Recorder};
use crate::verdict::Verdict;
use crate::workload::{Class, Operation, WorkloadOptions};
use serde::{Deserialize, Serialize};

pub use super::quantiles::Quantiles;

/// Name and number of this form of report.
pub const SCHEMA: &str = "laneway-bench/1";

/// One invocation of the load generator.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// [`SCHEMA`].
    pub schema: String,
    /// When it ended, in seconds of unix time.
    pub ended_unix_s: u64,
    /// The arguments given.
    pub arguments: Vec<String>,
    /// `release`, or `debug`, whose numbers mean nothing.
    pub build: String,
    /// Where the server listened.
    pub target: String,
    /// The language spoken.
    pub dialect: Dialect,
    /// What the server calls its version.
    pub server_version: String,
    /// Where the client ran.
    pub machine: Machine,
    /// What was asked for.
    pub workload: WorkloadOptions,
    /// Connections in all.
    pub connections: usize,
    /// Threads of the sender.
    pub threads: usize,
    /// How UDP was used, where it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub udp: Option<Udp>,
    /// Length of the measured window.
    pub duration_s: f64,
    /// Time before it, served but not measured.
    pub warmup_s: f64,
    /// The prefill, unless there was none.
    pub prefill: Option<Prefilled>,
    /// Every run, in the order they were made.
    pub runs: Vec<Run>,
}

/// How UDP was used. `connections` are then sockets.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Udp {
    /// By memory shared with the server: a port is then a queue's number.
    pub in_memory: bool,
    /// The first port of the server.
    pub port: u16,
    /// How many there are.
    pub queues: u16,
    /// How one is chosen.
    pub choice: String,
    /// Which way large SETs went.
    pub large_sets: datagram::LargeSets,
    /// After how long a request was given up.
    pub timeout_ms: f64,
}

/// What decides when requests leave.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// A Poisson schedule.
    Open {
        /// Mean arrivals per second.
        rate_per_s: f64,
    },
    /// So many in flight on each connection.
    Closed {
        /// Requests in flight per connection.
        depth: usize,
    },
}

/// One measured window.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// When requests left.
    pub mode: Mode,
    /// Counts of requests.
    pub requests: Requests,
    /// Latencies; absent where the verdict refuses them.
    pub latency_us: Option<Latencies>,
    /// What the laps say in which the client was not disturbed; absent for a closed loop and where
    /// the verdict refuses latencies. Percentiles in microseconds.
    pub quiet: Option<Quiet>,
    /// The run part by part, where what is asked for changed within it (`--p-large-steps`); absent
    /// where the verdict refuses latencies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phases: Option<InParts>,
    /// Points of the whole run's distributions, where they were asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub distribution: Option<Distribution>,
    /// What became of everything sent by UDP; absent for a run over connections.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub udp: Option<datagram::Counts>,
    /// The server's processor time, where it could be had.
    pub server: Option<ServerCpu>,
    /// The client's processor time and the machine's.
    pub client: ClientCpu,
    /// Whether it counts.
    pub verdict: Verdict,
}

/// Counts of the requests due within the window.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Requests {
    /// Due per second (open loop), or sent (closed loop).
    pub offered_per_s: f64,
    /// Answered within the window, per second.
    pub answered_per_s: f64,
    /// Counts of the requests.
    #[serde(flatten)]
    pub counts: Counts,
    /// Share that left within 100 µs of being due.
    pub on_time_share: f64,
    /// How late the latest left.
    pub late_us_max: f64,
    /// Share of the value bytes that large requests moved.
    pub value_bytes_large_share: f64,
}

/// Latencies from the due time (open loop) or the sending (closed loop), by class and operation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Latencies {
    /// Both operations, tiny and small values.
    pub small: Quantiles,
    /// GETs of them.
    pub small_get: Quantiles,
    /// SETs of them.
    pub small_set: Quantiles,
    /// Both operations, large values.
    pub large: Quantiles,
    /// GETs of them.
    pub large_get: Quantiles,
    /// SETs of them.
    pub large_set: Quantiles,
    /// Everything.
    pub all: Quantiles,
}

/// Points of the distributions of latencies: (share of the requests, microseconds that they took at
/// most). They end where fewer than one request is left beyond.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Distribution {
    /// Tiny and small values.
    pub small: Vec<(f64, f64)>,
    /// Large ones.
    pub large: Vec<(f64, f64)>,
}

impl Distribution {
    /// Shares at which the points are, of which the ends are crowded.
    pub const SHARES: [f64; 27] = [
        0.0001, 0.001, 0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.925,
        0.95, 0.97, 0.98, 0.99, 0.993, 0.995, 0.997, 0.999, 0.9995, 0.9999, 0.99999,
    ];

    /// What a recorder holds.
    pub fn of(recorder: &Recorder) -> Self {
        let points = |class| {
            let histogram = recorder.latency_ns(None, Some(class));
            let beyond = |share: f64| histogram.len() as f64 * (1.0 - share);
            let shares = Self::SHARES.into_iter().take_while(|&share| beyond(share) >= 1.0);
            let us_at = |share| histogram.value_at_quantile(share) as f64 / 1e3;
            shares.map(|share| (share, us_at(share))).collect()
        };
        Distribution { small: points(Class::Small), large: points(Class::Large) }
    }
}

/// Processor time of the server.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct ServerCpu {
    /// `schedstat` of its process within the window, or `rusage`: its own account of the whole run.
    pub source: String,
    /// Per request that ended in that time.
    pub cpu_us_per_request: f64,
    /// Per megabyte of values moved by requests due in that time; absent where none were.
    pub cpu_us_per_megabyte: Option<f64>,
    /// CPUs' worth of time it used; absent for `rusage`.
    pub cpus_busy: Option<f64>,
    /// How long it was runnable and others had its CPU; absent for `rusage`.
    pub kept_waiting_ms: Option<f64>,
    /// Its resident memory at the end; absent for `rusage`.
    pub resident_bytes: Option<u64>,
}

/// The client's own condition during the window.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct ClientCpu {
    /// How long the first sending thread was runnable and others had its CPU.
    pub kept_waiting_ms: f64,
    /// How long the hypervisor gave this machine's CPUs to others.
    pub stolen_ms: f64,
    /// All CPUs' time, client and server and everybody else, per request that ended; with
    /// `--count-idle`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine_cpu_us_per_request: Option<f64>,
    /// The same per key, of which a GET may have several; with `--count-idle`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine_cpu_us_per_key: Option<f64>,
    /// Of it CPU 0's, which comparisons give to their servers: what the kernel does there for a
    /// server is in it, on whosever account.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_0_us_per_request: Option<f64>,
}

impl Udp {
    /// As resolved.
    pub fn of(options: &datagram::Options) -> Self {
        let choice = if options.peers.placement.is_some() { "any" } else { "server" };
        Udp {
            in_memory: options.door.is_some(),
            port: options.peers.first.port(),
            queues: options.peers.queues(),
            choice: choice.into(),
            large_sets: options.large_sets,
            timeout_ms: options.timeout.as_secs_f64() * 1e3,
        }
    }
}

impl Latencies {
    /// What a recorder holds.
    pub fn of(recorder: &Recorder) -> Self {
        use {Class::*, Operation::*};
        let of = |operation, class| Quantiles::of(&recorder.latency_ns(operation, class));
        Latencies {
            small: of(None, Some(Small)),
            small_get: of(Some(Get), Some(Small)),
            small_set: of(Some(Set), Some(Small)),
            large: of(None, Some(Large)),
            large_get: of(Some(Get), Some(Large)),
            large_set: of(Some(Set), Some(Large)),
            all: of(None, None),
        }
    }
}

impl Requests {
    /// What a recorder counted in a window of `duration_s`.
    pub fn of(recorder: &Recorder, duration_s: f64) -> Self {
        let counts = &recorder.counts;
        let share = |part: u64, whole: u64| part as f64 / whole.max(1) as f64;
        Requests {
            offered_per_s: counts.due as f64 / duration_s,
            answered_per_s: counts.ended_within as f64 / duration_s,
            counts: *counts,
            on_time_share: 1.0 - share(counts.late + counts.never_sent, counts.due),
            late_us_max: counts.late_ns_max as f64 / 1e3,
            value_bytes_large_share: share(counts.value_bytes_large, counts.value_bytes),
        }
    }
}
