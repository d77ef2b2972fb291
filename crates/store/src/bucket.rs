//! A bucket: one cache line of an 8-byte version and 7 slots (MICA §4.3.1, Minos §4.2), and
//! half-line overflow buckets.
//!
//! A slot is 0 or a 16-bit tag above a 48-bit location. When 7 slots are not enough the last one
//! becomes a link ([`Medium::Link`], tag 0) to an overflow bucket: 4 slots, no version, the last of
//! which may again become a link. They are guarded by the version of the primary bucket their chain
//! starts at. It departs from the papers, whose overflow buckets are whole ones: with 6 items per
//! primary bucket these would cost 14.0 bytes per item, halves cost 12.9.
//!
//! A chain has at most [`CHAIN_MAX`] overflow buckets. A reader elsewhere (in the kernel) may stop
//! after two: it passes misses up, and they are looked up here again.

use crate::location::{Location, Medium};
use laneway_sync::{
    prim::{AtomicU64, Ordering::Relaxed},
    version::Version,
};

/// Slots of a primary bucket.
pub const SLOTS: usize = 7;

/// Slots of an overflow bucket.
pub const OVERFLOW_SLOTS: usize = 4;

/// Overflow buckets behind one primary at most. A primary bucket holds 12 items in the mean before
/// it is split; a chain of this length (97 items) has a probability below 1e-50. The bound is there
/// so that every walk has one.
pub const CHAIN_MAX: usize = 30;

/// The cache line.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Bucket {
    /// Guards the slots, those of the overflow chain, and the headers of the items they lead to.
    pub version: Version,
    /// The slots.
    pub slots: [AtomicU64; SLOTS],
}

/// Half a line.
#[derive(Debug)]
#[repr(C, align(32))]
pub struct Overflow {
    /// The slots.
    pub slots: [AtomicU64; OVERFLOW_SLOTS],
}

const _: () = assert!(size_of::<Bucket>() == 64 && size_of::<Overflow>() == 32);

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

/// The number of the overflow bucket that continues these slots. In a bucket being written it may
/// be anything.
#[inline]
pub fn link_of(slots: &[AtomicU64]) -> Option<u64> {
    let word = slots[slots.len() - 1].load(Relaxed);
    is_link(word).then(|| Location::of_slot(word).offset())
}
