//! Remembers where walks over the keys of a data folder stand (`SCAN`). Walks go in the order of
//! the keys. No key fits into a cursor of 64 bits, so the server remembers the places of the last
//! walks.
//!
//! Of a walk its place is known and the one before, so that a request whose reply was lost can be
//! asked again. A cursor that is not known any more is told to be so: a walk never misses a part of
//! the keys unsaid. Cursors of a server that was started at another second are not known either.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Walks that are remembered; of more the one is forgotten that was asked about longest ago.
pub const WALKS_MAX: usize = 1024;

/// Bits of a cursor that count a walk's requests, and those above that count walks. Above them
/// stands the second in which the server was started. A cursor has no more bits than a number of
/// JavaScript's, by which some clients hold it.
const STEP_BITS: u32 = 10;
const NUMBER_BITS: u32 = 22;
const SECONDS_BITS: u32 = 21;
const _: () = assert!(STEP_BITS + NUMBER_BITS + SECONDS_BITS == f64::MANTISSA_DIGITS);
/// A walk's requests have numbers below this; behind the last of them it goes on as another walk.
/// If a cursor came again, who holds the old one would go on at a later place, and miss keys.
const STEPS: u16 = 1 << STEP_BITS;

/// The walks of one server.
#[derive(Debug, Default)]
pub struct Walks(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    walks: HashMap<u64, Walk>,
    begun: u64,
    /// Counts up with each use of any.
    uses: u64,
}

#[derive(Debug)]
struct Walk {
    /// The number of the last reply.
    step: u16,
    /// Where the walk goes on behind it.
    next: Box<[u8]>,
    /// The same of the reply before.
    before: Option<Box<[u8]>>,
    /// When it was used last.
    used: u64,
}

fn parts(cursor: u64) -> (u64, u16) {
    (cursor >> STEP_BITS, cursor as u16 % STEPS)
}

fn cursor(walk: u64, step: u16) -> u64 {
    (walk << STEP_BITS) | u64::from(step)
}

impl Walks {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The key that a cursor stands at: the first one for 0, and nothing if it is not known.
    pub fn place(&self, at: u64) -> Option<Box<[u8]>> {
        if at == 0 {
            return Some(Box::default());
        }
        let known = self.known();
        let (number, step) = parts(at);
        let walk = known.walks.get(&number)?;
        match () {
            () if step == walk.step => Some(walk.next.clone()),
            () if step + 1 == walk.step => walk.before.clone(),
            () => None,
        }
    }

    /// The cursor behind the reply to this one: the walk goes on at `next`. The server was started
    /// in this second.
    pub fn advance(&self, at: u64, next: Box<[u8]>, started_seconds: u32) -> u64 {
        let mut known = self.known();
        known.uses += 1;
        let used = known.uses;
        let (number, step) = parts(at);
        let walk = known.walks.get_mut(&number).filter(|_| at != 0);
        // One that was asked again, and came to another place, is a walk of its own from there. So
        // is one whose steps are at their end; what is known of it stays, for who asks again.
        let goes_on = |walk: &&mut Walk| match step == walk.step {
            true => step + 1 < STEPS,
            false => walk.next == next,
        };
        if let Some(walk) = walk.filter(goes_on) {
            walk.used = used;
            if step == walk.step {
                walk.before = Some(std::mem::replace(&mut walk.next, next));
                walk.step = step + 1;
            }
            return cursor(number, walk.step);
        }
        if known.walks.len() == WALKS_MAX {
            let oldest = known.walks.iter().min_by_key(|(_, walk)| walk.used);
            let oldest = oldest.map(|(number, _)| *number);
            oldest.and_then(|oldest| known.walks.remove(&oldest));
        }
        let seconds = u64::from(started_seconds) % (1 << SECONDS_BITS);
        let number = loop {
            known.begun += 1;
            let number = (seconds << NUMBER_BITS) | (known.begun % (1 << NUMBER_BITS));
            // Numbers come again, and a walk that goes on for so long keeps its own.
            if !known.walks.contains_key(&number) {
                break number;
            }
        };
        known.walks.insert(number, Walk { step: 1, next, before: None, used });
        cursor(number, 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn key(text: &str) -> Box<[u8]> {
        text.as_bytes().into()
    }

    #[test]
    fn a_cursor_and_the_one_before_it_are_known_and_no_others() {
        let walks = Walks::default();
        assert_eq!(walks.place(0), Some(key("")));
        let first = walks.advance(0, key("a"), 7);
        let second = walks.advance(first, key("b"), 7);
        let third = walks.advance(second, key("c"), 7);
        assert_eq!(walks.place(first), None);
        assert_eq!(walks.place(second), Some(key("b")));
        assert_eq!(walks.place(third), Some(key("c")));
        assert_eq!(walks.advance(second, key("c"), 7), third, "it was asked again");
        let other = walks.advance(second, key("d"), 7);
        assert_ne!(other, third, "that reply told more");
        assert_eq!((walks.place(other), walks.place(third)), (Some(key("d")), Some(key("c"))));
        assert_eq!((walks.place(third + 1), walks.place(1)), (None, None));
        let late = Walks::default().advance(0, key("x"), u32::MAX);
        assert_eq!(late as f64 as u64, late, "a client in JavaScript has it whole");
        assert_eq!(Walks::default().advance(u64::MAX, key("x"), 7), first, "it is none of a walk");
        let other = Walks::default().advance(0, key("x"), 8);
        assert_eq!(walks.place(other), None, "it is of another server");
    }

    #[test]
    fn numbers_go_round_and_a_walk_that_goes_on_keeps_its_own() {
        let walks = Walks::default();
        let first = walks.advance(0, key("a"), 7);
        walks.known().begun = 1 << NUMBER_BITS; // the next is 1 again
        let other = walks.advance(0, key("b"), 7);
        assert_eq!((walks.place(first), walks.place(other)), (Some(key("a")), Some(key("b"))));
    }

    #[test]
    fn no_cursor_of_a_long_walk_comes_again() {
        let walks = Walks::default();
        let (mut last, mut place) = (walks.advance(0, key("first"), 7), key("first"));
        let first = last;
        let mut told = HashSet::from([first]);
        for number in 0..3 * usize::from(STEPS) {
            let next = key(&number.to_string());
            let at = walks.advance(last, next.clone(), 7);
            assert!(told.insert(at), "the one behind step {number}");
            assert_eq!(walks.place(last), Some(place), "its reply may be lost, behind {number}");
            assert_eq!(walks.place(at), Some(next.clone()));
            (last, place) = (at, next);
        }
        assert_eq!(walks.place(first), None);
    }

    #[test]
    fn the_walk_used_longest_ago_is_forgotten() {
        let walks = Walks::default();
        let mut at = walks.advance(0, key("0"), 7);
        let lazy = walks.advance(0, key("lazy"), 7);
        for number in 0..2 * usize::from(STEPS) {
            let next = walks.advance(at, key(&number.to_string()), 7);
            assert_eq!(walks.place(next), Some(key(&number.to_string())));
            at = next;
            walks.advance(0, key("another"), 7);
        }
        assert!(walks.place(at).is_some() && walks.place(lazy).is_none());
        assert_eq!(walks.known().walks.len(), WALKS_MAX);
    }
}
