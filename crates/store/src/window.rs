//! The window: memory through which somebody outside this process looks at the store, by the
//! bucket's own protocol: a lane in the kernel (Hippos §3).
//!
//! It is the beginning of the three regions that hold buckets, overflow buckets and records: shared
//! arrays, laid over their first bytes. So an offset means the same on both sides, every item's
//! bytes exist once, and readers and writers in here do not know whether they are in the window.
//! What lies behind its end the onlooker does not find, and leaves to us. Which items lie in it is
//! decided in `promote`.
//!
//! We are the only writer. The onlooker keeps hit marks of its own, which `mark`s take over when
//! somebody looks at them. Unit: bytes.

use std::{fmt, os::fd::OwnedFd, sync::Arc};

/// Records up to this size may lie in the window.
pub const WINDOW_RECORD_BYTES_MAX: usize = 1728;

/// No record begins in so many last bytes of a chunk in the window: whoever reads a record there
/// without belief reads so far at most, and stays in the chunk.
pub const WINDOW_TAIL_BYTES: usize = 2048;
const _: () = assert!(WINDOW_RECORD_BYTES_MAX < WINDOW_TAIL_BYTES);

/// An array that can be mapped, and its length.
#[derive(Debug, Clone)]
pub struct SharedArray {
    /// What to map.
    pub file: Arc<OwnedFd>,
    /// Length; up to the end of its last page it can be mapped.
    pub bytes: usize,
}

/// The arrays, all zero, and whoever looks at them.
#[derive(Debug, Clone)]
pub struct Window {
    /// Primary buckets, by their places.
    pub buckets: SharedArray,
    /// Overflow buckets, by their numbers.
    pub overflows: SharedArray,
    /// Records.
    pub items: SharedArray,
    /// Whoever looks.
    pub onlooker: Arc<dyn Onlooker>,
}

/// Whoever looks at the store through the window. Called from inside buckets: short, and never back
/// into the store.
pub trait Onlooker: Send + Sync + fmt::Debug {
    /// A partition has so many primary buckets from now on.
    fn set_buckets(&self, partition: usize, buckets: u64);
    /// Records of other flush generations (modulo [`crate::layout::FLUSH_GENERATIONS`]) are dead.
    fn set_flush(&self, generation: u32);
    /// Hits that were marked at the record at `offset` since it was asked last.
    fn take_hits(&self, offset: usize) -> u8;
}
