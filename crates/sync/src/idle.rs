//! Whether nothing is left to do: several workers hand things to each other through queues, each
//! says when it has nothing in hand, and somebody else asks whether that was so of all at once.
//!
//! Each worker says that it may have something in hand before it takes from a queue. Who asks finds
//! all idle, then all queues empty, then all idle still: a queue that was emptied in between has a
//! taker who had said so.

use crate::canary::{Canary, sings};
use crate::prim::{
    AtomicU32,
    Ordering::{Acquire, Relaxed, Release, SeqCst},
    fence,
};

/// Whether a worker has said that it has nothing in hand. It has not, at first.
#[derive(Debug)]
pub struct Idle(AtomicU32);

impl Default for Idle {
    fn default() -> Self {
        Idle::new()
    }
}

impl Idle {
    /// It has said nothing yet.
    pub fn new() -> Idle {
        Idle(AtomicU32::new(0))
    }

    /// What comes now may be taken, so something may be in hand from now on.
    #[inline]
    pub fn take_on(&self) {
        self.0.store(0, Relaxed);
        if !sings(Canary::IdleTaker) {
            fence(SeqCst); // (F) pairs with (E): said before anything is taken from now on
        }
    }

    /// Whether something is in hand. What was given away lies in its queue.
    #[inline]
    pub fn tell(&self, idle: bool) {
        let order = if sings(Canary::IdleTell) { Relaxed } else { Release };
        self.0.store(u32::from(idle), order); // (D) pairs with (A)
    }

    /// What it said last.
    #[inline]
    pub fn is(&self) -> bool {
        self.0.load(Acquire) != 0 // (A) pairs with (D): who is idle has given away what it had
    }
}

/// Whether nothing is in hand and nothing lies between two: `idle` says whether every worker
/// [is](Idle::is) idle, `is_nothing_between` whether every queue is empty.
pub fn is_nothing_left(idle: impl Fn() -> bool, is_nothing_between: impl Fn() -> bool) -> bool {
    // Who gave something away had done so before (D), so it lies in a queue, or its taker has said,
    // before it took it, that it is not idle.
    if !idle() || !is_nothing_between() {
        return false;
    }
    if !sings(Canary::IdleAsker) {
        fence(SeqCst); // (E) pairs with (F): a queue that was emptied has a taker who said so
    }
    idle()
}
