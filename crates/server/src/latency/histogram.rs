//! A histogram that one worker counts in and anybody reads, and what a reader makes of it. The
//! counts only ever grow, so that the difference of two readings is what happened in between, and
//! rates and percentiles of any time are computed by who reads. The writer takes no lock and waits
//! for nobody; a reading is exact per bucket, and a moment's smear between them.

use super::buckets::{BUCKETS, bucket, end_nanos};
use crate::counts::counters::Counter;

/// Times, counted by bucket.
#[derive(Debug)]
pub struct Histogram {
    counts: Box<[Counter]>,
    sum_nanos: Counter,
}

impl Default for Histogram {
    fn default() -> Self {
        let counts = (0..BUCKETS).map(|_| Counter::default()).collect();
        Histogram { counts, sum_nanos: Counter::default() }
    }
}

impl Histogram {
    /// So many requests took that long each. Only the worker that owns it calls this.
    #[inline]
    pub fn add_owner(&self, nanos: u64, requests: u64) {
        self.counts[bucket(nanos)].add_owner(requests);
        self.sum_nanos.add_owner(nanos.wrapping_mul(requests));
    }
}

/// Histograms, read and added up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reading {
    counts: Box<[u64]>,
    sum_nanos: u64,
}

impl Default for Reading {
    fn default() -> Self {
        Reading { counts: vec![0; BUCKETS].into(), sum_nanos: 0 }
    }
}

impl Reading {
    /// Add what was counted there.
    pub fn add(&mut self, histogram: &Histogram) {
        for (sum, count) in self.counts.iter_mut().zip(&histogram.counts) {
            *sum += count.get();
        }
        self.sum_nanos = self.sum_nanos.wrapping_add(histogram.sum_nanos.get());
    }

    /// Add another reading.
    pub fn add_reading(&mut self, other: &Reading) {
        for (sum, count) in self.counts.iter_mut().zip(&other.counts) {
            *sum += count;
        }
        self.sum_nanos = self.sum_nanos.wrapping_add(other.sum_nanos);
    }

    /// So many more that took no time.
    pub fn add_zeros(&mut self, requests: u64) {
        self.counts[0] += requests;
    }

    /// Leave out what an earlier reading has.
    pub fn subtract(&mut self, earlier: &Reading) {
        for (count, before) in self.counts.iter_mut().zip(&earlier.counts) {
            *count = count.saturating_sub(*before);
        }
        self.sum_nanos = self.sum_nanos.wrapping_sub(earlier.sum_nanos);
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// How many there are in each bucket.
    pub fn counts(&self) -> impl Iterator<Item = u64> {
        self.counts.iter().copied()
    }

    /// How long all took together.
    pub fn sum_nanos(&self) -> u64 {
        self.sum_nanos
    }

    /// This share of them took no longer, told by the end of a bucket; 0 if there are none.
    pub fn quantile_nanos(&self, share: f64) -> u64 {
        let wanted = (self.count() as f64 * share).ceil().max(1.0) as u64;
        let mut seen = 0;
        let at = self.counts.iter().position(|count| {
            seen += count;
            seen >= wanted
        });
        at.map_or(0, end_nanos)
    }

    /// How many took less than each of these times. Exact for powers of two from 128 ns on, since
    /// a bucket ends there.
    pub fn below(&self, nanos: impl IntoIterator<Item = u64>) -> Vec<u64> {
        let (mut next, mut sum) = (0, 0);
        let below = |end: u64| {
            while next < BUCKETS && end_nanos(next) <= end {
                sum += self.counts[next];
                next += 1;
            }
            sum
        };
        nanos.into_iter().map(below).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_the_ends_of_buckets_and_differences_are_what_came_between() {
        let histogram = Histogram::default();
        histogram.add_owner(1_000, 98);
        histogram.add_owner(1_000_000, 2);
        let mut first = Reading::default();
        first.add(&histogram);
        assert_eq!((first.count(), first.sum_nanos()), (100, 98_000 + 2_000_000));
        let near = |nanos: u64, told: u64| assert!(nanos <= told && told <= nanos + nanos / 15);
        near(1_000, first.quantile_nanos(0.5));
        near(1_000, first.quantile_nanos(0.98));
        near(1_000_000, first.quantile_nanos(0.981));
        near(1_000_000, first.quantile_nanos(1.0));
        assert_eq!(first.below([1 << 9, 1 << 10, 1 << 19, 1 << 20]), [0, 98, 98, 100]);
        histogram.add_owner(5_000, 7);
        let mut second = Reading::default();
        second.add(&histogram);
        second.subtract(&first);
        assert_eq!((second.count(), second.sum_nanos()), (7, 35_000));
        near(5_000, second.quantile_nanos(0.001));
        assert_eq!(Reading::default().quantile_nanos(0.5), 0);
    }

    #[test]
    fn what_takes_longer_than_any_bucket_is_counted_and_below_no_time() {
        let histogram = Histogram::default();
        histogram.add_owner(u64::MAX, 1);
        let mut reading = Reading::default();
        reading.add(&histogram);
        assert_eq!((reading.count(), reading.quantile_nanos(0.5)), (1, u64::MAX));
        assert_eq!(reading.below([1 << 50]), [0]);
    }
}
