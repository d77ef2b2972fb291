//! A bucket's version: even at rest, odd while a writer is inside (MICA §4.3.2; Minos §4.2 calls it
//! an epoch).
//!
//! It departs from both: any thread may write, by moving the version from even to odd with one
//! compare-and-swap, where Minos takes a spinlock beside the version. The data guarded must be
//! atomic words, read and written relaxed; the fences here order them. 64 bits do not wrap.

use crate::canary::{Canary, sings};
use crate::prim::{
    AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
    Patience, fence,
};

/// Called before the first write into memory that another thread gave back: what was in it was
/// guarded by some other bucket's version. A reader that still looks at it and sees one of the new
/// words must then see that version changed, too.
#[inline]
pub fn before_reuse() {
    if !sings(Canary::SeqlockFenceReuse) {
        fence(Release); // (M) pairs with (B) of readers of what was there
    }
}

/// The version word. `repr(transparent)`: it is laid over the first 8 bytes of a bucket.
#[derive(Debug)]
#[repr(transparent)]
pub struct Version(AtomicU64);

impl Default for Version {
    fn default() -> Self {
        Version::new()
    }
}

impl Version {
    /// At rest, never written.
    #[cfg(not(loom))]
    pub const fn new() -> Self {
        Version(AtomicU64::new(0))
    }

    /// At rest, never written.
    #[cfg(loom)]
    pub fn new() -> Self {
        Version(AtomicU64::new(0))
    }

    /// Begin an optimistic read: the version to validate against later, or `None` while a writer is
    /// inside.
    #[inline]
    pub fn read_begin(&self) -> Option<u64> {
        let before = self.0.load(Acquire); // (A) pairs with (D): we see all of write `before`
        (before & 1 == 0).then_some(before)
    }

    /// Whether nothing changed since `read_begin` returned `before`. Words read in between are
    /// trustworthy only then.
    #[inline]
    pub fn validate(&self, before: u64) -> bool {
        if !sings(Canary::SeqlockFenceReader) {
            fence(Acquire); // (B) pairs with (C): who read a newer word reads a newer version
        }
        self.0.load(Relaxed) == before
    }

    /// One attempt to enter for writing: the version from before, to be handed to `leave`.
    #[inline]
    pub fn try_enter(&self) -> Option<u64> {
        let before = self.0.load(Relaxed); // only a guess, the exchange decides
        if before & 1 == 1 {
            return None;
        }
        // Acquire (A) pairs with (D): the last writer's words are ours to read.
        self.0.compare_exchange(before, before + 1, Acquire, Relaxed).ok()?;
        if !sings(Canary::SeqlockFenceWriter) {
            fence(Release); // (C) pairs with (B): no word of ours is seen before the odd version
        }
        Some(before)
    }

    /// Enter for writing. Tries 64 times, then yields to the scheduler between tries.
    #[inline]
    pub fn enter(&self) -> u64 {
        let mut patience = Patience::new();
        loop {
            if let Some(before) = self.try_enter() {
                return before;
            }
            patience.pause();
        }
    }

    /// Leave after writing. `before` is what entering returned.
    #[inline]
    pub fn leave(&self, before: u64) {
        self.0.store(before + 2, Release); // (D) pairs with (A)
    }

    /// Leave without having written a word: readers under way need not retry.
    #[inline]
    pub fn leave_unchanged(&self, before: u64) {
        self.0.store(before, Release); // (D) pairs with (A)
    }
}
