//! The in-memory store: a partitioned index of cache-line buckets, items in one pool of chunks,
//! optimistic readers, and writers that enter a bucket by its version (MICA §4, Minos §4.2).
//!
//! The way in: [`Store::hash`] a key, [`Store::get`] it; or [`Store::draft`] an item, write its
//! value, then [`Store::enter`] the key's bucket, look at what is there, and [`Entry::publish`] or
//! [`Entry::unlink`]. Values are built outside the bucket; inside, locations move. Large items are
//! [`Pinned`] while they are read.
//!
//! It knows no protocol, connection, worker or clock: the time comes with every call. The parts,
//! from the bottom up: `moment`, `region`, `geometry`, `mark`, `location`, `record` (how bytes
//! lie); `pool`, `class`, `memory` (slots); `bucket`, `index` (where items are); `large` (items in
//! pieces); `store` (all of it as one value); `unlink`, `reclaim`, `evict`, `sweep` (how items go);
//! `window`, `promote` (memory that a lane in the kernel looks at, and who lies in it); `read`,
//! `many`, `draft`, `entry`, `entries` (how they are used); `stats`. Beside it all `heap`: the
//! allocator's memory, which holds no item; and `meter`: how much work was done, for tests.
#![allow(unsafe_code, reason = "items are read where they lie, and beside who writes them")]

mod bucket;
pub mod budget;
mod charge;
mod class;
mod counts;
mod cursor;
mod draft;
mod entries;
mod entry;
mod evict;
mod geometry;
mod hand;
mod hash;
pub mod heap;
mod hook;
mod index;
mod large;
mod list;
mod location;
mod many;
mod mark;
mod memory;
pub mod meter;
mod moment;
mod pool;
mod promote;
mod read;
mod reclaim;
mod record;
mod region;
mod remains;
mod scan;
mod stats;
#[cfg(test)]
mod steps_tests;
mod store;
mod sweep;
mod types;
mod unlink;
mod window;

/// How bytes lie, for whoever else reads the memory or writes it by the same rules: the lane in the
/// kernel.
pub mod layout {
    pub use crate::bucket::{
        Bucket, CHAIN_MAX, OVERFLOW_SLOTS, Overflow, SLOTS, is_link, link_word,
    };
    pub use crate::hash::{Hasher, PARTITIONS};
    pub use crate::index::{bucket_of, place};
    pub use crate::location::{size_class, tag_of_slot};
    pub use crate::record::{FLUSH_GENERATIONS, Form, Header, VALUE_BYTES_INLINE};
}

pub use charge::{Charge, Gathered};
pub use draft::Draft;
pub use entries::Entries;
pub use entry::Entry;
pub use geometry::{BLOCK_BYTES, SMALL_RECORD_BYTES_MAX};
pub use hand::Hand;
pub use hook::{Evictions, Hook, Unlinked};
pub use list::{ListBudget, Listing};
pub use location::{Location, Medium};
pub use many::{FoundItem, GROUP, Group, Sought};
pub use mark::IDLE_SECONDS_MAX;
pub use moment::Moment;
pub use read::{Got, Pinned};
pub use record::{HEADER_BARE_BYTES, HEADER_BYTES, HEADER_EXT_BYTES};
pub use store::Store;
pub use sweep::Swept;
pub use types::{
    ClassStats, Config, HugePages, ItemMeta, KEY_BYTES_MAX, KeyHash, Mode, Refused, Stats,
};
pub use window::{Onlooker, SharedArray, WINDOW_RECORD_BYTES_MAX, WINDOW_TAIL_BYTES, Window};
