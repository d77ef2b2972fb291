//! `stats latency` and `stats buckets`: time from a request's last byte in to its reply's last byte
//! handed to the kernel, per operation, small and large apart. Microseconds with tenths, and
//! nanoseconds; the unit is in the name.

use super::lines::{Lines, Micros};
use crate::latency::{Latencies, Operation, Part, row};

/// Powers of two, in nanoseconds, between which the buckets of `stats buckets` lie: a microsecond
/// to 17 s.
const OCTAVES: std::ops::Range<u32> = 10..34;
/// Such buckets to each power of two.
const QUARTERS: u64 = 4;

/// One operation in one lane. Times in nanoseconds.
#[derive(Debug, Clone, Copy)]
pub struct LatencyRow {
    /// `get`, `set`...
    pub operation: &'static str,
    /// At or above the threshold.
    pub large: bool,
    /// Requests.
    pub count: u64,
    /// The median.
    pub p50_ns: u64,
    /// 90 % took no longer.
    pub p90_ns: u64,
    /// 99 % took no longer.
    pub p99_ns: u64,
    /// 99.9 % took no longer.
    pub p99_9_ns: u64,
    /// None took longer.
    pub max_ns: u64,
}

/// What `stats latency` tells, since the start or the last `stats reset`.
#[derive(Debug, Clone, Default)]
pub struct LatencySnapshot {
    /// The rows, in the order to be written; those without requests are left out.
    pub rows: Vec<LatencyRow>,
    /// GETs answered in the kernel, which takes no time of each.
    pub kernel_gets: u64,
}

/// Answer `stats latency`.
pub fn write_latency(snapshot: &LatencySnapshot, out: &mut Vec<u8>) {
    let mut lines = Lines::new(out);
    for row in snapshot.rows.iter().filter(|row| row.count > 0) {
        let lane = if row.large { "large" } else { "small" };
        let name = |what: &str| format!("{}:{lane}:{what}", row.operation);
        lines.number(&name("count"), row.count);
        lines.shown(&name("latency_us_p50"), Micros(row.p50_ns));
        lines.shown(&name("latency_us_p90"), Micros(row.p90_ns));
        lines.shown(&name("latency_us_p99"), Micros(row.p99_ns));
        lines.shown(&name("latency_us_p99.9"), Micros(row.p99_9_ns));
        lines.shown(&name("latency_us_max"), Micros(row.max_ns));
    }
    if snapshot.kernel_gets > 0 {
        lines.number("get:kernel:count", snapshot.kernel_gets);
    }
    lines.end();
}

/// Where the buckets of `stats buckets` end, in nanoseconds. The server's own end there, too, so
/// that nothing is estimated.
fn ends() -> impl Iterator<Item = u64> {
    let octave =
        |bits: u32| (QUARTERS..2 * QUARTERS).map(move |quarter| (quarter << bits) / QUARTERS);
    OCTAVES.flat_map(octave).chain([1 << OCTAVES.end])
}

/// Answer `stats buckets`: how many requests took how long since the start, by row of the workers'
/// books. Counts only grow, so that two answers tell what happened between them.
pub fn write_buckets(rows: &[Latencies], out: &mut Vec<u8>) {
    let mut lines = Lines::new(out);
    for operation in Operation::ALL {
        for (lane, is_large) in [("small", false), ("large", true)] {
            let latencies = &rows[row(operation, is_large)];
            let parts = Part::ALL.map(|part| (part.name(), &latencies.parts[part as usize]));
            for (part, reading) in [("whole", &latencies.whole)].into_iter().chain(parts) {
                let mut name = |end: &str, count: u64| {
                    if count > 0 {
                        let operation = operation.name();
                        lines.number(&format!("{operation}:{lane}:{part}_ns:{end}"), count);
                    }
                };
                let mut before = 0;
                for (end, below) in ends().zip(reading.below(ends())) {
                    name(&end.to_string(), below - before);
                    before = below;
                }
                name("more", reading.count() - before);
            }
        }
    }
    lines.end();
}
