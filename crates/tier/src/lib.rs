//! The durable tier: a store with a write path for each size (SplitKV, HotStorage'20).
//!
//! Small items are appended to a log in persistent memory, or on a disk in its place; large ones go
//! straight to free blocks of the SSD, and only their header to the log. An ordered index in memory
//! says where everything is. Cold small items move to the SSD in sorted batches, so the log stays
//! small. An acknowledged write survives a crash at any instant; one that was not acknowledged is
//! there whole or not at all.
//!
//! The way in: [`Directory::open`] for files in a folder, or [`Tier::open`] on media of one's own;
//! then [`Tier::put`], [`Tier::get`], [`Tier::delete`], [`Tier::scan`]. Servers use
//! [`Tier::submit_put`] with [`Tier::commit`], and [`Tier::reads`].
//!
//! It knows no server, socket, protocol or clock. Threads: one that migrates and makes checkpoints
//! ([`Settings::background`]), those of [`Tier::reads`], one that reads ahead while a store is
//! opened, some that read while one is checked ([`fsck`]), and none besides. The rooms, bottom up:
//!
//! - `types`, `stats`, `report`: what the whole tier speaks of;
//! - `media`: the two media (`disk`, `pm`), how bytes are read from them, and the folder;
//! - `log` and `ssd`: how records, large values and sort tables lie, and which path a value takes;
//! - `index`: from keys to places, in memory or in persistent memory, and what is counted of them;
//! - `checkpoint`: the index as it is, on the SSD, and the root that names it;
//! - `store`: the parts of an open store, and which lock guards what;
//! - `reading`: one item, several, ranges, at once or later;
//! - `background`: migration, compaction, eviction, scrubbing, and the thread that does them;
//! - `recovery`: a start;
//! - `tier`: the store as it is used; `whole`: backups, dumps and repairs.
//!
//! docs/disk-format.md has every byte.

#![deny(unsafe_code)]

mod background;
mod checkpoint;
mod index;
mod log;
mod media;
mod reading;
mod recovery;
mod report;
mod ssd;
mod stats;
mod store;
mod tier;
mod types;
mod whole;

pub use background::clock::{Asks, Hears, Wanted};
pub use background::compaction::{Compaction, Standing};
pub use background::scrub;
pub use index::Counts;
pub use log::append::Ticket;
pub use log::attempt::{LargeDraft, LargeWhole, Tried};
pub use media::bytes::Blocks;
pub use media::directory::{Backend, Directory, DirectorySettings, FolderLock};
pub use media::flushes::{FLUSH_BUCKETS, FlushTimes, Nanos};
pub use media::priority::drop_priority;
pub use media::{disk, pm};
pub use reading::read::{Expired, LargeReader, Look};
pub use reading::reads::{Answer, Reads, Request, Wake};
pub use reading::scan::{Found, Shown};
pub use recovery::recover::{Media, Progress};
pub use report::{Report, Sizes};
pub use ssd::pointer::PIECE_BYTES;
pub use stats::{Dropped, Evicted, Stats, Usage};
pub use tier::Tier;
pub use types::{
    BLOCK_BYTES, Durability, Error, FORMAT_VERSION, IndexKind, Item, ItemMeta, KEY_BYTES_MAX,
    MigrateBy, Position, Result, Settings, VALUE_BYTES_MAX, WhenFull,
};
pub use whole::{backup, dump, fsck};
