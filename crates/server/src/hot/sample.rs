//! The keys asked for most, where no design looks after hot keys: about one request in [`EVERY`] is
//! looked at, and its key counted by space-saving (Metwally, Agrawal and El Abbadi, 2005), with the
//! key's own bytes, since they are to be told. Counts are halved now and then, so that what is told
//! is of late.
//!
//! A worker counts in samples of its own. It only tries their lock: while somebody reads them it
//! leaves a sample out. Knows no size: who tells of a key looks at its item. Units are samples.

use crate::built::OBSERVES;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// Requests to a sample, in the mean.
pub const EVERY: u32 = 512;
/// Keys that a worker counts at a time.
const KEYS: usize = 64;
/// After so many samples all counts are halved: some 260 thousand requests of a worker.
const HALVED_AFTER: u32 = 512;

/// One key.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Count {
    /// Samples that read it.
    pub reads: u64,
    /// Samples that wrote it.
    pub writes: u64,
    /// So many of them may be another key's.
    pub error_max: u64,
}

impl Count {
    /// All samples of it.
    pub fn all(&self) -> u64 {
        self.reads + self.writes
    }

    /// Samples that are certainly of it.
    pub fn certain(&self) -> u64 {
        self.all().saturating_sub(self.error_max) // a sum of several workers' counts
    }

    fn halve(&mut self) {
        (self.reads, self.writes) = (self.reads / 2, self.writes / 2);
        // Each half is rounded down: all of them may be fewer than half of all.
        self.error_max = (self.error_max / 2).min(self.all());
    }
}

/// One worker's samples.
#[derive(Debug, Default)]
pub struct Samples(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    keys: Vec<(Vec<u8>, Count)>,
    seen: u64,
    until_halved: u32,
}

impl Samples {
    /// One sample; none, while somebody reads.
    pub fn note(&self, key: &[u8], writes: bool) {
        if let Ok(mut state) = self.0.try_lock() {
            state.note(key, writes);
        }
    }

    /// Forget everything (`stats reset`).
    pub fn reset(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = State::default();
    }

    /// Add what is here; returns how many samples that was of.
    pub fn read_into(&self, sum: &mut BTreeMap<Vec<u8>, Count>) -> u64 {
        let state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for (key, count) in &state.keys {
            let all = sum.entry(key.clone()).or_default();
            all.reads += count.reads;
            all.writes += count.writes;
            all.error_max += count.error_max;
        }
        state.seen
    }
}

impl State {
    fn note(&mut self, key: &[u8], writes: bool) {
        self.seen += 1;
        let at = self.keys.iter().position(|(known, _)| known == key);
        let at = at.unwrap_or_else(|| self.take(key));
        let count = &mut self.keys[at].1;
        match writes {
            true => count.writes += 1,
            false => count.reads += 1,
        }
        self.until_halved += 1;
        if self.until_halved == HALVED_AFTER {
            self.until_halved = 0;
            self.seen /= 2;
            self.keys.iter_mut().for_each(|(_, count)| count.halve());
            self.keys.retain(|(_, count)| count.all() > 0);
        }
    }

    /// A place for a key that has none: a free one, or that of the key counted least.
    fn take(&mut self, key: &[u8]) -> usize {
        if self.keys.len() < KEYS {
            self.keys.push((key.to_vec(), Count::default()));
            return self.keys.len() - 1;
        }
        let least = self.keys.iter().enumerate().min_by_key(|(_, (_, count))| count.all());
        let at = least.map_or(0, |(at, _)| at);
        let (known, count) = &mut self.keys[at];
        known.clear();
        known.extend_from_slice(key);
        count.error_max = count.all();
        at
    }
}

/// When a worker takes its next sample: after a drawn number of requests, so that no pattern of
/// requests hides from it.
#[derive(Debug)]
pub struct Dice {
    left: u32,
    state: u32,
}

impl Dice {
    /// Of this worker; the same worker draws the same.
    pub fn new(worker: usize) -> Dice {
        Dice { left: EVERY, state: 0x9e37_79b9 ^ worker as u32 }
    }

    /// One request more: whether it is the one.
    #[inline(always)]
    pub fn falls(&mut self) -> bool {
        if !OBSERVES {
            return false;
        }
        self.left -= 1;
        self.left == 0 && self.throw()
    }

    #[cold]
    fn throw(&mut self) -> bool {
        // Numerical Recipes' generator; its upper bits are the better ones.
        self.state = self.state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        self.left = 1 + (self.state >> 16) % (2 * EVERY - 1);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_drawn_once_in_512_requests_in_the_mean() {
        let mut dice = Dice::new(3);
        let fell = (0..5_120_000).filter(|_| dice.falls()).count();
        assert!((9_700..10_300).contains(&fell), "{fell}");
    }

    #[test]
    fn a_key_that_is_a_tenth_of_the_samples_is_told_among_thousands_of_others() {
        let samples = Samples::default();
        for number in 0..20_000_u32 {
            match number % 10 {
                0 => samples.note(b"hot", number % 40 == 0),
                _ => samples.note(format!("cold{}", number % 7_919).as_bytes(), false),
            }
        }
        let mut all = BTreeMap::new();
        let seen = samples.read_into(&mut all);
        let hottest = all.iter().max_by_key(|(_, count)| count.all()).expect("there are some");
        let (key, count) = hottest;
        assert_eq!(key, b"hot");
        let share = count.all() as f64 / seen as f64;
        assert!((0.09..0.13).contains(&share), "{share}");
        let writes = count.writes as f64 / count.all() as f64;
        assert!((0.2..0.3).contains(&writes), "{writes}");
        assert!(all.len() <= KEYS);
        samples.reset();
        assert_eq!(samples.read_into(&mut BTreeMap::new()), 0);
    }

    #[test]
    fn what_was_hot_and_is_no_more_goes() {
        let samples = Samples::default();
        (0..5_000).for_each(|_| samples.note(b"once", false));
        (0..60_000).for_each(|_| samples.note(b"now", false));
        let mut all = BTreeMap::new();
        samples.read_into(&mut all);
        assert!(all.get(&b"once"[..]).is_none_or(|count| count.all() < 2), "{all:?}");
    }

    #[test]
    fn a_count_that_is_halved_is_never_below_its_error() {
        for (reads, writes) in (0..40).flat_map(|reads| (0..40).map(move |writes| (reads, writes)))
        {
            for error_max in 0..=reads + writes {
                let mut count = Count { reads, writes, error_max };
                for _ in 0..4 {
                    count.halve();
                    assert!(count.error_max <= count.all(), "{reads} {writes} {error_max}");
                }
            }
        }
    }

    #[test]
    fn while_somebody_reads_a_sample_is_left_out() {
        let samples = Samples::default();
        let reading = samples.0.lock();
        samples.note(b"key", false);
        drop(reading);
        assert_eq!(samples.read_into(&mut BTreeMap::new()), 0);
    }
}
