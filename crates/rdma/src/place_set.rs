//! A set of clients by their places, a bit for each: those that a worker looks at, or waits for.
//! One worker adds and takes out; whoever lets a client in adds, too. So a set that has few of very
//! many clients is walked in steps of 64 places.
//!
//! The bits order nothing: who adds a client has published it elsewhere
//! ([`laneway_sync::edition`]), or rings.

use laneway_sync::prim::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// Bits of a word.
const BITS: usize = 64;
/// Words of two cache lines, which one CPU fetches together: no two sets share them.
const LINE_WORDS: usize = 16;

#[derive(Debug, Default)]
#[repr(align(128))]
struct Line([AtomicU64; LINE_WORDS]);

/// See the module's page.
#[derive(Debug)]
pub struct PlaceSet {
    lines: Vec<Line>,
    /// Words that have places.
    words: usize,
    places: usize,
}

impl PlaceSet {
    /// Of so many places, with nobody in it.
    pub fn new(places: usize) -> PlaceSet {
        let words = places.div_ceil(BITS).max(1);
        let lines = (0..words.div_ceil(LINE_WORDS)).map(|_| Line::default()).collect();
        PlaceSet { lines, words, places }
    }

    fn word(&self, number: usize) -> &AtomicU64 {
        &self.lines[number / LINE_WORDS].0[number % LINE_WORDS]
    }

    fn bit(&self, place: usize) -> (&AtomicU64, u64) {
        assert!(place < self.places, "place {place} of {}", self.places);
        (self.word(place / BITS), 1 << (place % BITS))
    }

    /// Add a place.
    pub fn add(&self, place: usize) {
        let (word, bit) = self.bit(place);
        if word.load(Relaxed) & bit == 0 {
            word.fetch_or(bit, Relaxed);
        }
    }

    /// Add all.
    pub fn add_all(&self) {
        (0..self.places).for_each(|place| self.add(place));
    }

    /// Take a place out.
    pub fn remove(&self, place: usize) {
        let (word, bit) = self.bit(place);
        word.fetch_and(!bit, Relaxed);
    }

    /// Whether a place is in it.
    pub fn has(&self, place: usize) -> bool {
        let (word, bit) = self.bit(place);
        word.load(Relaxed) & bit != 0
    }

    /// Those that are in it, in turn, from place `first` on and around.
    pub fn walk(&self, first: usize) -> impl Iterator<Item = usize> {
        let (begin, behind) = (first / BITS % self.words, u64::MAX << (first % BITS));
        // The first word is walked in two parts: what is behind its place, and last what is before.
        (0..=self.words).flat_map(move |step| {
            let number = (begin + step) % self.words;
            let part = match step {
                0 => behind,
                step if step == self.words => !behind,
                _ => u64::MAX,
            };
            places_of(number, self.word(number).load(Relaxed) & part)
        })
    }
}

/// The places of a word.
fn places_of(number: usize, mut word: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let bit = (word != 0).then(|| word.trailing_zeros() as usize)?;
        word &= word - 1;
        Some(number * BITS + bit)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_walked_in_turn_from_any_on_and_each_once() {
        let set = PlaceSet::new(200);
        let there = [0, 5, 63, 64, 127, 128, 199];
        there.iter().for_each(|place| set.add(*place));
        for first in 0..200 {
            let (before, behind): (Vec<usize>, Vec<usize>) =
                there.iter().partition(|place| **place < first);
            assert_eq!(set.walk(first).collect::<Vec<_>>(), [behind, before].concat(), "{first}");
        }
        set.remove(64);
        assert!(!set.has(64) && set.has(63) && set.walk(0).count() == 6);
        set.add_all();
        assert_eq!(set.walk(150).count(), 200);
    }

    #[test]
    fn a_set_of_no_places_is_empty_and_one_of_very_many_is_not_mixed_up() {
        assert_eq!(PlaceSet::new(0).walk(0).count(), 0);
        let set = PlaceSet::new(4096);
        set.add(4095);
        set.add(1024);
        assert_eq!(set.walk(2000).collect::<Vec<_>>(), [4095, 1024]);
    }
}
