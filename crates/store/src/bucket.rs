//! A bucket: one cache line of an 8-byte version and 7 slots (MICA §4.3.1, Minos §4.2).
//!
//! A slot is 0 or a 16-bit tag above a 48-bit location. When 7 slots are not enough the last one becomes a link
//! ([`Medium::Link`], tag 0) to an overflow bucket; overflow buckets are guarded by the version of the primary bucket
//! their chain starts at, and their own version word stays unused. A chain has at most [`CHAIN_MAX`] overflow buckets. A
//! reader elsewhere (in the kernel) may stop after two, as a miss there asks again here.

use crate::location::{Location, Medium};
use laneway_sync::{
    prim::{AtomicU64, Ordering::Relaxed},
    version::Version,
};

/// Slots of a bucket.
pub const SLOTS: usize = 7;

/// Overflow buckets behind one primary at most. With a load kept below 12 items per primary bucket, a chain of this
/// length (nearly 100 items) has a probability below 1e-50: the bound is there so that every walk has one.
pub const CHAIN_MAX: usize = 15;

/// The cache line.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Bucket {
    /// Guards the slots, those of the overflow chain, and the headers of the items they lead to.
    pub version: Version,
    /// The slots.
    pub slots: [AtomicU64; SLOTS],
}

const _: () = assert!(size_of::<Bucket>() == 64);

impl Bucket {
    /// The word in slot `i`.
    #[inline]
    pub fn slot(&self, i: usize) -> u64 {
        self.slots[i].load(Relaxed)
    }

    /// Replace the word in slot `i`. The caller is inside the chain's version.
    #[inline]
    pub fn set_slot(&self, i: usize, word: u64) {
        self.slots[i].store(word, Relaxed);
    }

    /// The number of the overflow bucket that continues this one.
    #[inline]
    pub fn link(&self) -> Option<u64> {
        let word = self.slot(SLOTS - 1);
        is_link(word).then(|| Location::of_slot(word).offset())
    }
}

/// Whether a slot's word is a link to an overflow bucket.
#[inline]
pub fn is_link(word: u64) -> bool {
    Location::of_slot(word).medium() == Medium::Link
}

/// The word of a link.
#[inline]
pub fn link_word(number: u64) -> u64 {
    Location::new(Medium::Link, 0, number).with_tag(0)
}
