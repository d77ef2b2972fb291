//! `stats latency`: time from a request's last byte in to its reply's last byte handed to the
//! kernel, per operation, small and large apart. Microseconds with tenths; the unit is in the name.

use super::lines::{Lines, Micros};

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
