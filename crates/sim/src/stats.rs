//! Latencies counted, percentiles read, and how far to trust them.
//!
//! A histogram has 128 buckets per octave, so a percentile read from it is off by less than 0.8 %
//! (interpolation makes it less). Runs with different seeds are independent, and the confidence
//! interval of a figure is Student's over the seeds' own figures: percentiles within one run are
//! correlated, and an interval made from a single run would be too narrow. Unit: picoseconds in,
//! microseconds out.

/// Picoseconds in a microsecond.
pub const US: u64 = 1_000_000;

/// Picoseconds in a second.
pub const SECOND: u64 = 1_000_000 * US;

const SUB_BITS: u32 = 7;
const SUB_COUNT: usize = 1 << SUB_BITS;
/// Latencies up to 2^50 ps, 19 minutes.
const BUCKETS: usize = (50 - SUB_BITS as usize) * SUB_COUNT + 2 * SUB_COUNT;

/// Latencies, counted.
#[derive(Debug, Clone)]
pub struct Latencies {
    counts: Vec<u64>,
    count: u64,
    sum_us: f64,
}

impl Default for Latencies {
    fn default() -> Self {
        Latencies { counts: vec![0; BUCKETS], count: 0, sum_us: 0.0 }
    }
}

#[inline]
fn bucket(latency: u64) -> usize {
    if latency < SUB_COUNT as u64 {
        return latency as usize;
    }
    let shift = latency.ilog2() - SUB_BITS;
    (shift as usize * SUB_COUNT + (latency >> shift) as usize).min(BUCKETS - 1)
}

fn bucket_bounds(index: usize) -> (u64, u64) {
    if index < 2 * SUB_COUNT {
        return (index as u64, 1);
    }
    let shift = index / SUB_COUNT - 1;
    (((index % SUB_COUNT + SUB_COUNT) as u64) << shift, 1 << shift)
}

impl Latencies {
    /// None yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Count one.
    #[inline]
    pub fn record(&mut self, latency_ps: u64) {
        self.counts[bucket(latency_ps)] += 1;
        self.count += 1;
        self.sum_us += latency_ps as f64 / US as f64;
    }

    /// Add what another counted.
    pub fn merge(&mut self, other: &Latencies) {
        for (mine, theirs) in self.counts.iter_mut().zip(&other.counts) {
            *mine += theirs;
        }
        self.count += other.count;
        self.sum_us += other.sum_us;
    }

    /// p99 of a part of these, and of the rest, in microseconds.
    pub fn p99_by_half(&self, first: &Latencies) -> [f64; 2] {
        let mut rest = self.clone();
        for (mine, theirs) in rest.counts.iter_mut().zip(&first.counts) {
            *mine -= theirs;
        }
        rest.count -= first.count;
        [first.percentile_us(99.0), rest.percentile_us(99.0)]
    }

    /// Forget all.
    pub fn reset(&mut self) {
        self.counts.fill(0);
        self.count = 0;
        self.sum_us = 0.0;
    }

    /// How many.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Mean, in microseconds; 0 of none.
    pub fn mean_us(&self) -> f64 {
        if self.count == 0 { 0.0 } else { self.sum_us / self.count as f64 }
    }

    /// The `percent`-th percentile, in microseconds; 0 of none.
    pub fn percentile_us(&self, percent: f64) -> f64 {
        let rank = self.count as f64 * percent / 100.0;
        let mut below = 0.0;
        let mut last = 0.0;
        for (index, &count) in self.counts.iter().enumerate().filter(|(_, count)| **count > 0) {
            let (first, width) = bucket_bounds(index);
            let count = count as f64;
            if below + count >= rank {
                let within = ((rank - below) / count).clamp(0.0, 1.0);
                return (first as f64 + within * width as f64) / US as f64;
            }
            below += count;
            last = (first + width) as f64 / US as f64;
        }
        last
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
    fn percentiles_are_within_a_hundredth() {
        let mut latencies = Latencies::new();
        for i in 1..=100_000_u64 {
            latencies.record(i * 1_000);
        }
        for percent in [1.0, 50.0, 99.0, 99.9, 100.0] {
            let exact = percent; // the value at p % of 0..100 µs
            let got = latencies.percentile_us(percent);
            assert!((got / exact - 1.0).abs() < 0.01, "p{percent}: {got}");
        }
        assert!((latencies.mean_us() - 50.0005).abs() < 1e-6);
    }

    #[test]
    fn buckets_hold_what_they_say() {
        for latency in (0..60).flat_map(|bit| [1_u64 << bit, (1 << bit) + 1, (1 << bit) - 1]) {
            let (first, width) = bucket_bounds(bucket(latency));
            let inside = (first..first + width).contains(&latency);
            assert!(inside || bucket(latency) == BUCKETS - 1, "{latency}");
        }
    }

    #[test]
    fn an_interval_covers_the_spread() {
        let estimate = Estimate::of(&[9.0, 10.0, 11.0]);
        assert!((estimate.mean - 10.0).abs() < 1e-12);
        assert!((estimate.half_width - 4.303 / 3_f64.sqrt()).abs() < 1e-9);
        assert!(Estimate::of(&[1.0]).half_width.is_infinite());
    }
}
