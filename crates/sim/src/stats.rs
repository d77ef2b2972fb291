//! Latencies counted, percentiles read, and how far to trust them.
//!
//! A histogram (the hdrhistogram crate) keeps three significant digits of any latency. Runs with
//! different seeds are independent, and the confidence interval of a figure is Student's over the
//! seeds' own figures: percentiles within one run are correlated, and an interval made from a
//! single run would be too narrow. Unit: picoseconds in, microseconds out.

use hdrhistogram::Histogram;

/// Picoseconds in a microsecond.
pub const US: u64 = 1_000_000;

/// Picoseconds in a second.
pub const SECOND: u64 = 1_000_000 * US;

/// Longest latency told apart, some 19 minutes; longer ones count as this long.
const LATENCY_PS_MAX: u64 = 1 << 50;
/// Of a latency, decimal.
const DIGITS: u8 = 3;

/// Latencies, counted.
#[derive(Debug, Clone)]
pub struct Latencies {
    counts: Histogram<u64>,
    /// The histogram knows its mean only as well as it knows each value.
    sum_us: f64,
}

impl Default for Latencies {
    fn default() -> Self {
        let counts = Histogram::new_with_max(LATENCY_PS_MAX, DIGITS);
        Latencies { counts: counts.expect("bounds that fit"), sum_us: 0.0 }
    }
}

impl Latencies {
    /// None yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Count one.
    #[inline]
    pub fn record(&mut self, latency_ps: u64) {
        self.counts.saturating_record(latency_ps);
        self.sum_us += latency_ps as f64 / US as f64;
    }

    /// Add what another counted.
    pub fn merge(&mut self, other: &Latencies) {
        self.counts.add(&other.counts).expect("the same bounds");
        self.sum_us += other.sum_us;
    }

    /// p99 of a part of these, and of the rest, in microseconds.
    pub fn p99_by_half(&self, first: &Latencies) -> [f64; 2] {
        let mut rest = self.clone();
        rest.counts.subtract(&first.counts).expect("they are among these");
        [first.percentile_us(99.0), rest.percentile_us(99.0)]
    }

    /// Forget all.
    pub fn reset(&mut self) {
        self.counts.reset();
        self.sum_us = 0.0;
    }

    /// How many.
    pub fn count(&self) -> u64 {
        self.counts.len()
    }

    /// Mean, in microseconds; 0 of none.
    pub fn mean_us(&self) -> f64 {
        self.sum_us / self.count().max(1) as f64
    }

    /// The `percent`-th percentile, in microseconds; 0 of none.
    pub fn percentile_us(&self, percent: f64) -> f64 {
        self.counts.value_at_percentile(percent) as f64 / US as f64
    }
}

/// A figure over several seeds: the mean and the half-width of its 95 % confidence interval.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Estimate {
    /// Mean over seeds.
    pub mean: f64,
    /// Half-width of the interval; infinite with a single seed.
    pub half_width: f64,
}

/// Student's t for a two-sided 95 % interval, by degrees of freedom from 1.
const STUDENT_T: [f64; 20] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
    2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086,
];

impl Estimate {
    /// From the figures of independent runs.
    pub fn of(values: &[f64]) -> Estimate {
        let count = values.len() as f64;
        if values.is_empty() {
            return Estimate::default();
        }
        let mean = values.iter().sum::<f64>() / count;
        if values.len() == 1 {
            return Estimate { mean, half_width: f64::INFINITY };
        }
        let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / (count - 1.0);
        let t = STUDENT_T.get(values.len() - 2).copied().unwrap_or(1.98);
        Estimate { mean, half_width: t * (variance / count).sqrt() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_within_a_thousandth() {
        let mut latencies = Latencies::new();
        for i in 1..=100_000_u64 {
            latencies.record(i * 1_000);
        }
        for percent in [1.0, 50.0, 99.0, 99.9, 100.0] {
            let exact = percent; // the value at p % of 0..100 µs
            let got = latencies.percentile_us(percent);
            assert!((got / exact - 1.0).abs() < 0.001, "p{percent}: {got}");
        }
        assert!((latencies.mean_us() - 50.0005).abs() < 1e-6);
    }

    #[test]
    fn an_interval_covers_the_spread() {
        let estimate = Estimate::of(&[9.0, 10.0, 11.0]);
        assert!((estimate.mean - 10.0).abs() < 1e-12);
        assert!((estimate.half_width - 4.303 / 3_f64.sqrt()).abs() < 1e-9);
        assert!(Estimate::of(&[1.0]).half_width.is_infinite());
    }
}
