//! A hook on publish and unlink: how a log, a lane in the kernel or an ordered index learns what
//! the store holds.
//!
//! It is called inside the item's bucket, so events of one key arrive in order. So it must be short
//! and must not call the store. Changes in place (expiry, stale mark, a renewed sequence) are told
//! as `published` again, with the same location.

use crate::{
    location::Location,
    moment::Moment,
    types::{ItemMeta, KeyHash},
};

/// Why an item went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unlinked {
    /// Another item of the same key took its place.
    Replaced,
    /// It was deleted.
    Deleted,
    /// Its time was up, or it was flushed.
    Expired,
    /// Memory was needed.
    Evicted,
    /// Only its place changed: `published` with the new place follows at once.
    Moved,
}

/// One listener.
pub trait Hook: Send + Sync {
    /// The key's item is now this one.
    fn published(&self, hash: KeyHash, key: &[u8], location: Location, meta: &ItemMeta);
    /// The item with sequence `seq` is no longer linked.
    fn unlinked(&self, hash: KeyHash, key: &[u8], location: Location, seq: u64, why: Unlinked);
}

/// Who is told of items that were evicted, at times. Called inside the item's bucket, as a [`Hook`]
/// is.
pub trait Evictions: Send + Sync {
    /// What time it is, if it wants to be told now.
    fn wants(&self) -> Option<Moment>;
    /// The item of this key was evicted; `class`: the number of its size class.
    fn evicted(&self, key: &[u8], meta: &ItemMeta, class: u32);
}
