//! A number for something of which there is one at a time, and which all follow: a plan. It goes up
//! with each new one, and says whether those for whom something was put down are still those who
//! come for it.
//!
//! Who follows takes a new edition and looks at its queues; who puts something down looks at the
//! edition after. Each writes a word that the other reads, so both need a fence between the two (as
//! in Dekker's algorithm): the follower finds what was put down, or whoever put it there finds that
//! there is a new edition, and wakes all. What is published, the queues, and what wakes a follower
//! are the callers'.

use crate::canary::{Canary, sings};
use crate::prim::{
    AtomicU64,
    Ordering::{Acquire, Relaxed, Release, SeqCst},
    fence,
};

/// The number of what is in force.
#[derive(Debug)]
pub struct Edition(AtomicU64);

impl Default for Edition {
    fn default() -> Self {
        Edition::new()
    }
}

impl Edition {
    /// The first.
    pub fn new() -> Edition {
        Edition(AtomicU64::new(1))
    }

    /// Its number. Whoever reads what was published after this gets that one, or a newer one.
    #[inline]
    pub fn number(&self) -> u64 {
        self.0.load(Acquire) // (P) pairs with (Q)
    }

    /// A new one was published.
    pub fn publish(&self) {
        let order = if sings(Canary::EditionPublish) { Relaxed } else { Release };
        self.0.fetch_add(1, order); // (Q) pairs with (P): what is published came first
    }

    /// The number of the one in force, if it is not `seen`: the caller looks at its queues after.
    #[inline]
    pub fn newer_than(&self, seen: u64) -> Option<u64> {
        let number = self.number();
        if number == seen {
            return None;
        }
        if !sings(Canary::EditionFollower) {
            fence(SeqCst); // (U) pairs with (V): what was put down for `seen` before (V) is found
        }
        Some(number)
    }

    /// Called behind a push that is for those who follow `seen`: whether others may be meant since,
    /// who have looked already.
    #[inline]
    pub fn is_over(&self, seen: u64) -> bool {
        if !sings(Canary::EditionPoster) {
            fence(SeqCst); // (V) pairs with (U)
        }
        self.0.load(Relaxed) != seen
    }
}
