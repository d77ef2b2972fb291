//! The alternative to the sketch: the keys asked for most often, by space-saving (Metwally,
//! Agrawal and El Abbadi, "Efficient computation of frequent and top-k elements in data streams",
//! 2005). As many counters as given; a key without one takes over the smallest, count included.
//!
//! Of N requests every key with more than N / counters has a counter, and a count is at most that
//! much too high ([`Counter::error_max`]). Finding a counter is a scan, so it suits tens of
//! counters, where the sketch costs the same whatever it is to find. Unit: requests.

use crate::hot::sketch::KeyHash;
use alloc::vec::Vec;

/// One key that is being counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counter {
    /// Which.
    pub key: KeyHash,
    /// Requests, at most `error_max` too many.
    pub count: u32,
    /// What it took over from the key whose counter this was.
    pub error_max: u32,
}

/// The counters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpaceSaving {
    counters: Vec<Counter>,
    counters_max: usize,
}

impl SpaceSaving {
    /// Room for so many keys, at least one.
    pub fn new(counters_max: usize) -> Self {
        assert!(counters_max > 0, "nothing can be counted without a counter");
        SpaceSaving { counters: Vec::with_capacity(counters_max), counters_max }
    }

    /// Count one request for `key`; how many of its requests are certain by now.
    pub fn count(&mut self, key: KeyHash) -> u32 {
        if let Some(counter) = self.counters.iter_mut().find(|counter| counter.key == key) {
            counter.count += 1;
            return counter.count - counter.error_max;
        }
        let fresh = Counter { key, count: 1, error_max: 0 };
        if self.counters.len() < self.counters_max {
            self.counters.push(fresh);
        } else if let Some(smallest) = self.counters.iter_mut().min_by_key(|c| c.count) {
            *smallest = Counter { key, count: smallest.count + 1, error_max: smallest.count };
        }
        1
    }

    /// The counters, in no order.
    pub fn counters(&self) -> &[Counter] {
        &self.counters
    }

    /// Begin a new slot.
    pub fn slot_ended(&mut self) {
        self.counters.clear();
    }
}
