//! How long the media take to make durable what was written, as a histogram by medium, in
//! microseconds: a bucket for each power of two.
//!
//! The tier has no clock: whoever owns the store lends one ([`crate::Tier::lend_clock`]), and
//! without one nothing is counted. A flush of the log that the one of the SSD serves for is none.

use crate::index::tally::Amount;
use std::sync::OnceLock;

/// Buckets: those that end at 1 µs, 2 µs, 4 µs... 2²² µs (4.2 s), and one for all beyond.
pub const FLUSH_BUCKETS: usize = 24;

/// Tells nanoseconds since some moment.
pub type Nanos = Box<dyn Fn() -> u64 + Send + Sync>;

/// What is flushed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Medium {
    /// The log's.
    Log,
    /// The SSD.
    Ssd,
}

#[derive(Default)]
struct Histogram {
    counts: [Amount; FLUSH_BUCKETS],
    nanos: Amount,
}

/// Counts flushes.
#[derive(Default)]
pub struct Flushes {
    nanos: OnceLock<Nanos>,
    log: Histogram,
    ssd: Histogram,
}

/// How long flushes of a medium took.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FlushTimes {
    /// How many took up to the end of each bucket, and longer than to that of the one before.
    pub counts: [u64; FLUSH_BUCKETS],
    /// All of their time.
    pub nanos: u64,
}

fn bucket_of(nanos: u64) -> usize {
    let us = nanos.div_ceil(1000).max(1);
    (us.next_power_of_two().trailing_zeros() as usize).min(FLUSH_BUCKETS - 1)
}

impl Flushes {
    /// By this clock from now on; the first that is lent counts.
    pub fn time_by(&self, nanos: Nanos) {
        let _ = self.nanos.set(nanos);
    }

    /// What it says now.
    pub fn now(&self) -> Option<u64> {
        self.nanos.get().map(|nanos| nanos())
    }

    /// Times a flush of this medium.
    pub fn timed<T>(&self, medium: Medium, flush: impl FnOnce() -> T) -> T {
        let Some(nanos) = self.nanos.get() else { return flush() };
        let began = nanos();
        let flushed = flush();
        let took = nanos().saturating_sub(began);
        let histogram = self.of(medium);
        histogram.counts[bucket_of(took)].add(1);
        histogram.nanos.add(took);
        flushed
    }

    /// How long those of this medium took.
    pub fn told(&self, medium: Medium) -> FlushTimes {
        let Histogram { counts, nanos } = self.of(medium);
        FlushTimes { counts: counts.each_ref().map(Amount::get), nanos: nanos.get() }
    }

    fn of(&self, medium: Medium) -> &Histogram {
        match medium {
            Medium::Log => &self.log,
            Medium::Ssd => &self.ssd,
        }
    }
}

impl FlushTimes {
    /// How many there were.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Where a bucket ends, in microseconds; the last has no end.
    pub fn end_us(bucket: usize) -> Option<u64> {
        (bucket + 1 < FLUSH_BUCKETS).then_some(1 << bucket)
    }

    /// So many of a thousand took at most this many microseconds: the end of a bucket, so up to
    /// twice the exact percentile; of what is in the last bucket, where that begins. 0 of none.
    pub fn us_at(&self, permille: u64) -> u64 {
        let wanted = (self.count() * permille).div_ceil(1000);
        let mut below = 0;
        for (bucket, count) in self.counts.iter().enumerate() {
            below += count;
            if 0 < below && wanted <= below {
                return FlushTimes::end_us(bucket).unwrap_or(1 << (FLUSH_BUCKETS - 2));
            }
        }
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

    #[test]
    fn a_flush_counts_in_the_bucket_of_its_time_and_percentiles_are_ends_of_buckets() {
        let flushes = Flushes::default();
        flushes.timed(Medium::Log, || ());
        assert_eq!(flushes.told(Medium::Log), FlushTimes::default(), "there is no clock");
        assert_eq!(flushes.told(Medium::Log).us_at(500), 0);
        let now = Arc::new(AtomicU64::new(5));
        let clock = now.clone();
        flushes.time_by(Box::new(move || clock.load(Relaxed)));
        let times = [(0, 0), (1000, 0), (1001, 1), (94_000, 7), (128_000, 7), (128_001, 8)];
        for (nanos, bucket) in times {
            let before = flushes.told(Medium::Ssd).counts[bucket];
            flushes.timed(Medium::Ssd, || now.fetch_add(nanos, Relaxed));
            assert_eq!(flushes.told(Medium::Ssd).counts[bucket], before + 1, "{nanos} ns");
        }
        let told = flushes.told(Medium::Ssd);
        assert_eq!((told.count(), told.nanos), (6, times.iter().map(|(nanos, _)| nanos).sum()));
        assert_eq!([0, 300, 500, 501, 990].map(|at| told.us_at(at)), [1, 1, 2, 128, 256]);
        flushes.timed(Medium::Ssd, || now.fetch_add(3_600_000_000_000, Relaxed));
        assert_eq!(flushes.told(Medium::Ssd).us_at(999), 1 << 22, "an hour has no bucket's end");
        assert_eq!(flushes.told(Medium::Log).count(), 0);
    }
}
