//! How many changes are under way that nobody may see yet: a count that one thread at a time
//! changes, and all read. Those who change it have a lock among them, so nothing comes between a
//! load and a store, and neither is a locked instruction.
//!
//! Who has acquired what such a change released finds the count raised, or all that was done before
//! it was lowered: by then the change is there to stay, or was taken back. What is changed, and the
//! lock, are the callers'.

use crate::canary::{Canary, sings};
use crate::prim::{
    AtomicU32,
    Ordering::{Acquire, Relaxed, Release},
};

/// The count.
#[derive(Debug)]
pub struct Cover(AtomicU32);

impl Default for Cover {
    fn default() -> Self {
        Cover::new()
    }
}

impl Cover {
    /// Over nothing.
    pub fn new() -> Cover {
        Cover(AtomicU32::new(0))
    }

    /// One more change is about to begin.
    #[inline]
    pub fn raise_owner(&self) {
        // (V) pairs with (W): the change is released after this, and who looks has acquired it.
        self.0.store(self.0.load(Relaxed) + 1, Relaxed);
    }

    /// One is there to stay, or was taken back.
    #[inline]
    pub fn lower_owner(&self) {
        let order = if sings(Canary::CoverLower) { Relaxed } else { Release };
        self.0.store(self.0.load(Relaxed) - 1, order); // (K) pairs with (L)
    }

    /// Whether any is under way. Seen late, it costs a detour.
    #[inline]
    pub fn hides(&self) -> bool {
        let order = if sings(Canary::CoverLook) { Relaxed } else { Acquire };
        self.0.load(order) != 0 // (L) pairs with (K), (W) with (V)
    }
}
