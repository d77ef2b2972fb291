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
//! opened, and none besides. The parts, bottom up: `disk`, `pm` (media); `record`, `segment`,
//! `log`, `pointer`, `compress`, `space`, `tables` (how bytes lie); `value`, `key`, `entry`,
//! `ledger`, `tally`, `flushes`, `pace`, `compaction`, `bell`, `boundary` with `split` (what is
//! counted); `index`, in memory (`btree` of `leaf`s) or in persistent memory (`fair` on
//! `fastfair`); `offer`, `group`, `append`, `follow`, `large`, `fetch`, `read`, `scan`, `reads`,
//! `migrate` of what is `moving`, `compact`, `condense`, `evict` with `clock`, `backup`, `scrub`,
//! `checkpoint` and `outline` with `ahead`, `recover` with `filling`, `survey`, `tree`, `census`,
//! `make` and `grow` (what is done); `tier`, `attempt`, `directory`, `fsck`, `dump` (how it is
//! used).
//! docs/disk-format.md has every byte.

#![deny(unsafe_code)]

mod ahead;
mod append;
mod attempt;
mod background;
pub mod backup;
mod bell;
mod boundary;
mod btree;
mod bytes;
mod census;
mod checkpoint;
mod choose;
mod clock;
mod compact;
mod compaction;
mod compress;
mod condense;
mod directory;
pub mod disk;
pub mod dump;
mod entry;
mod evict;
mod fair;
mod fastfair;
mod fetch;
mod filling;
mod flushes;
mod follow;
pub mod fsck;
mod gather;
mod group;
mod grow;
mod head;
mod index;
mod key;
mod large;
mod leaf;
mod ledger;
mod log;
mod lost;
mod make;
mod migrate;
mod moving;
mod offer;
mod outline;
mod pace;
pub mod pm;
mod pointer;
mod priority;
mod read;
mod reads;
mod record;
mod recover;
mod report;
mod scan;
pub mod scrub;
mod segment;
mod space;
mod split;
mod stats;
mod store;
mod superblock;
mod survey;
mod tables;
mod tally;
mod tier;
mod tree;
mod types;
mod value;
mod walked;

pub use append::Ticket;
pub use attempt::{LargeDraft, LargeWhole, Tried};
pub use clock::{Asks, Hears, Wanted};
pub use compaction::{Compaction, Standing};
pub use directory::{Backend, Directory, DirectorySettings, FolderLock};
pub use flushes::{FLUSH_BUCKETS, FlushTimes, Nanos};
pub use index::Counts;
pub use pointer::PIECE_BYTES;
pub use priority::drop_priority;
pub use read::{Expired, LargeReader, Look};
pub use reads::{Answer, Reads, Request, Wake};
pub use recover::{Media, Progress};
pub use report::{Report, Sizes};
pub use scan::{Found, Shown};
pub use stats::{Dropped, Evicted, Stats, Usage};
pub use tier::Tier;
pub use types::{
    BLOCK_BYTES, Durability, Error, FORMAT_VERSION, IndexKind, Item, ItemMeta, KEY_BYTES_MAX,
    MigrateBy, Position, Result, Settings, VALUE_BYTES_MAX, WhenFull,
};
