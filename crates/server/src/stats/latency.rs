//! `stats latency` and `stats buckets`: time from a request's last byte in to its reply's last byte
//! handed to the kernel, per operation, small and large apart. Microseconds with tenths, and
//! nanoseconds; the unit is in the name.

use super::lines::{Lines, Micros};
use crate::latency::histogram::Reading;
use crate::latency::{Latencies, Operation, Part, row};

/// Powers of two, in nanoseconds, between which the buckets of `stats buckets` lie: a microsecond
/// to 17 s.
const OCTAVES: std::ops::Range<u32> = 10..34;
/// Such buckets to each power of two.
const QUARTERS: u64 = 4;

/// What is told of an operation in a lane: so many of its requests took no longer.
const QUANTILES: [(&str, f64); 5] = [
    ("latency_us_p50", 0.50),
    ("latency_us_p90", 0.90),
    ("latency_us_p99", 0.99),
    ("latency_us_p99.9", 0.999),
    ("latency_us_max", 1.0),
];

/// Answer `stats latency`: since the start or the last `stats reset`, by row of the workers' books.
/// Of the GETs that the kernel answered, which takes no time of each, there is their number.
pub fn write_latency(rows: &[Reading], kernel_gets: u64, out: &mut Vec<u8>) {
    let mut lines = Lines::new(out);
    for operation in Operation::ALL {
        for (lane, is_large) in [("small", false), ("large", true)] {
            let reading = &rows[row(operation, is_large)];
            let count = reading.count();
            if count == 0 {
                continue;
            }
            let name = |what: &str| format!("{}:{lane}:{what}", operation.name());
            lines.number(&name("count"), count);
            for (what, share) in QUANTILES {
                lines.shown(&name(what), Micros(reading.quantile_nanos(share)));
            }
        }
    }
    if kernel_gets > 0 {
        lines.number("get:kernel:count", kernel_gets);
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
