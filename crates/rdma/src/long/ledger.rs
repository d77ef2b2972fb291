//! Allocates places in one piece of memory to holders, for a limited time. A side that writes into
//! the memory of the other, or lets it read, asks here for a place first.
//!
//! A holder gets the first gap that fits, in whole cache lines. It has one place, and a new place
//! ends its old one. A place whose time is up is free again: its holder finds out by asking
//! ([`Ledger::holds`]), and whoever reads too late by the seal. Times are nanoseconds, sizes bytes.

use crate::layout::LINE_BYTES;

/// Places of one ledger at most.
pub const PLACES_MAX: usize = 256;

#[derive(Debug, Clone, Copy)]
struct Held {
    from: usize,
    bytes: usize,
    holder: u16,
    number: u64,
    until_nanos: u64,
}

/// A place that was given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// New each time, from 1.
    pub number: u64,
    /// Where it begins.
    pub offset: usize,
}

/// The memory, as its one executor knows it.
#[derive(Debug)]
pub struct Ledger {
    bytes: usize,
    /// By where they begin.
    held: Vec<Held>,
    numbers: u64,
    expired: u64,
}

impl Ledger {
    /// Of memory of so many bytes, all free.
    pub fn new(bytes: usize) -> Ledger {
        Ledger { bytes, held: Vec::new(), numbers: 0, expired: 0 }
    }

    /// How much memory there is.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// A place of `bytes` for `holder`, for so long. `None`: there is no room.
    pub fn take(
        &mut self,
        holder: u16,
        bytes: usize,
        now_nanos: u64,
        keep_nanos: u64,
    ) -> Option<Place> {
        self.give_back(holder);
        self.expire(now_nanos);
        let length = bytes.max(1);
        let bytes = length.checked_next_multiple_of(LINE_BYTES)?;
        if self.held.len() >= PLACES_MAX {
            return None;
        }
        let (mut from, mut at) = (0, 0);
        while let Some(held) = self.held.get(at)
            && held.from - from < bytes
        {
            (from, at) = (held.from + held.bytes, at + 1);
        }
        // The memory need not end where a line does.
        if self.bytes.saturating_sub(from) < length {
            return None;
        }
        self.numbers += 1;
        let until_nanos = now_nanos.saturating_add(keep_nanos);
        self.held.insert(at, Held { from, bytes, holder, number: self.numbers, until_nanos });
        Some(Place { number: self.numbers, offset: from })
    }

    /// Places whose time is up are free.
    pub fn expire(&mut self, now_nanos: u64) {
        let before = self.held.len();
        self.held.retain(|held| held.until_nanos > now_nanos);
        self.expired += (before - self.held.len()) as u64;
    }

    /// Whether place `number` is still its holder's.
    pub fn holds(&self, number: u64) -> bool {
        self.held.iter().any(|held| held.number == number)
    }

    /// Its time begins anew. False: it was up.
    pub fn renew(&mut self, number: u64, now_nanos: u64, keep_nanos: u64) -> bool {
        let held = self.held.iter_mut().find(|held| held.number == number);
        if let Some(held) = held {
            held.until_nanos = now_nanos.saturating_add(keep_nanos);
            return true;
        }
        false
    }

    /// What `holder` had is free.
    pub fn give_back(&mut self, holder: u16) {
        self.held.retain(|held| held.holder != holder);
    }

    /// Place `number` is free.
    pub fn give_back_number(&mut self, number: u64) {
        self.held.retain(|held| held.number != number);
    }

    /// How many places ended by their time.
    pub fn expired(&self) -> u64 {
        self.expired
    }
}

#[cfg(test)]
mod tests {
    use super::super::twin::Draws;
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn what_is_held_is_given_to_nobody_else_and_all_of_it_comes_back() {
        let mut ledger = Ledger::new(1024);
        let first = ledger.take(1, 1000, 0, 10).expect("all is free");
        assert_eq!(first, Place { number: 1, offset: 0 });
        assert_eq!(ledger.take(2, 1, 9, 10), None);
        assert!(ledger.holds(1) && ledger.renew(1, 9, 10));
        assert_eq!((ledger.take(2, 1, 18, 10), ledger.expired()), (None, 0));
        let late = ledger.take(2, 1, 19, 10).expect("its time is up");
        assert_eq!((late, ledger.expired()), (Place { number: 2, offset: 0 }, 1));
        assert!(!ledger.holds(1) && !ledger.renew(1, 19, 10));
        assert_eq!(ledger.take(2, 1024, 20, 10).map(|place| place.offset), Some(0), "its own");
        ledger.give_back(2);
        assert_eq!(ledger.take(3, 1025, 20, 10), None);
        assert_eq!(ledger.take(3, usize::MAX, 20, 10), None);
        assert!(ledger.take(3, 0, 20, 10).is_some_and(|place| place.offset == 0));
        ledger.give_back_number(4);
        assert!(ledger.take(4, 1024, 20, 10).is_some());
    }

    #[test]
    fn memory_that_ends_within_a_line_is_given_to_its_last_byte() {
        let mut ledger = Ledger::new(LINE_BYTES + 8);
        assert_eq!(ledger.take(1, LINE_BYTES + 9, 0, 10), None);
        assert!(ledger.take(1, LINE_BYTES + 8, 0, 10).is_some_and(|place| place.offset == 0));
        assert_eq!(ledger.take(2, 1, 0, 10), None);
    }

    /// Thousands of random steps beside a map from line to number: no line has two holders.
    #[test]
    fn places_never_overlap_whatever_happens() {
        for seed in 1..=20u64 {
            let mut draws = Draws::new(seed);
            let mut draw = |most: u64| draws.below(most);
            let mut ledger = Ledger::new(64 * LINE_BYTES);
            let mut model: BTreeMap<u64, (u16, usize, usize, u64)> = BTreeMap::new();
            for now in 0..2_000 {
                let holder = draw(24) as u16;
                match draw(8) {
                    0 => {
                        ledger.give_back(holder);
                        model.retain(|_, held| held.0 != holder);
                    }
                    _ => {
                        let (bytes, keep) = (draw(9 * LINE_BYTES as u64) as usize, draw(40));
                        model.retain(|_, held| held.0 != holder && held.3 > now);
                        let given = ledger.take(holder, bytes, now, keep);
                        let Some(Place { number, offset }) = given else { continue };
                        let (from, end) = (offset, offset + bytes.max(1));
                        assert!(end <= ledger.bytes(), "seed {seed}");
                        let apart =
                            |held: &(u16, usize, usize, u64)| held.2 <= from || end <= held.1;
                        assert!(model.values().all(apart), "seed {seed} at {now}");
                        model.insert(number, (holder, from, end, now + keep));
                    }
                }
                assert!(model.keys().all(|number| ledger.holds(*number)), "seed {seed}");
            }
        }
    }
}
