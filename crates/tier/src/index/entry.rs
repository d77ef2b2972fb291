//! What an index knows of a key, and how that lies in a checkpoint or a cell (docs/disk-format.md,
//! "Checkpoint").
//!
//! It knows no medium and no index.

use crate::media::bytes::{Put, Reader};
use crate::ssd::pointer::Pointer;
use crate::ssd::value::Large;
use crate::types::VALUE_BYTES_MAX;
use laneway_sync::planted::{Bug, is_planted};
use std::sync::Arc;

/// Where a record lies: a byte offset in the log's region or on the SSD.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Home(u64);

const SSD_BIT: u64 = 1 << 63;

impl Home {
    /// In the log.
    pub fn log(at: u64) -> Home {
        assert!(at < SSD_BIT, "no region is that large");
        Home(at)
    }

    /// In a sort table.
    pub fn ssd(at: u64) -> Home {
        assert!(at < SSD_BIT, "no disk is that large");
        Home(at | SSD_BIT)
    }

    /// Whether it is in a sort table.
    pub fn is_ssd(self) -> bool {
        self.0 & SSD_BIT != 0
    }

    /// The byte offset in its medium.
    pub fn at(self) -> u64 {
        self.0 & !SSD_BIT
    }

    /// As one number.
    pub fn raw(self) -> u64 {
        self.0
    }

    /// From `raw`.
    pub fn from_raw(raw: u64) -> Home {
        Home(raw)
    }
}

/// What an entry stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    /// The value is in the record.
    Small {
        /// Its length.
        value_bytes: u32,
    },
    /// The value is on the SSD.
    Large(Arc<Large>),
    /// The key was deleted.
    Tombstone,
    /// The key's newest record is damaged; an older one must not be served in its place.
    Lost,
}

/// What the index knows of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Of the record.
    pub sequence: u64,
    /// Where the record is.
    pub home: Home,
    /// The record's length without padding.
    pub record_bytes: u32,
    /// When the item expires, in the caller's seconds; 0 for never.
    pub expires_at_seconds: u32,
    /// What it says.
    pub what: What,
}

impl Entry {
    /// Of a key of which nothing else can be read.
    pub fn unreadable() -> Entry {
        let (home, what) = (Home::log(0), What::Lost);
        Entry { sequence: 0, home, record_bytes: 0, expires_at_seconds: 0, what }
    }

    /// Whether this is what is known of a key of which `other` was known.
    pub fn counts_before(&self, other: &Entry, tie: Tie) -> bool {
        if is_planted(Bug::OlderRecordCounts) {
            return self.sequence < other.sequence;
        }
        // Of an item that migration met when it had expired a copy may be found behind its
        // deletion, whose blocks are used again.
        let is_gone = other.what == What::Tombstone && self.is_item();
        let wins_tie = tie == Tie::Replace && !is_gone;
        other.sequence < self.sequence || (other.sequence == self.sequence && wins_tie)
    }

    /// Whether there is an item.
    pub fn is_item(&self) -> bool {
        matches!(self.what, What::Small { .. } | What::Large(_))
    }

    /// The value's length.
    pub fn value_bytes(&self) -> u64 {
        match &self.what {
            What::Small { value_bytes } => u64::from(*value_bytes),
            What::Large(large) => large.value_bytes(),
            What::Tombstone | What::Lost => 0,
        }
    }

    /// How much of it is stored.
    pub fn stored_bytes(&self) -> u64 {
        match &self.what {
            What::Large(large) => large.bytes,
            _ => self.value_bytes(),
        }
    }
}

/// How equal sequences are decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tie {
    /// What is there stays.
    Keep,
    /// The new place counts: the same record, found later in the log.
    Replace,
}

/// What became of an entry that was offered.
#[derive(Debug, PartialEq, Eq)]
pub enum Published {
    /// It is current; this was before.
    Current(Option<Entry>),
    /// A newer one is there.
    Stale,
    /// The index could not be changed, and says why: [`crate::index::fair::FairIndex::check`].
    Refused,
}

/// Entries by what they are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Small items in the log.
    pub small_in_log: u64,
    /// Small items in sort tables.
    pub small_on_ssd: u64,
    /// Large items.
    pub large: u64,
    /// Bytes that are stored of their values.
    pub large_bytes: u64,
    /// Deleted keys that must be remembered.
    pub tombstones: u64,
    /// Items known to be damaged.
    pub lost: u64,
}

impl Counts {
    /// All that can be read.
    pub fn items(&self) -> u64 {
        self.small_in_log + self.small_on_ssd + self.large
    }

    /// All of them.
    pub fn entries(&self) -> u64 {
        self.items() + self.tombstones + self.lost
    }
}

impl Counts {
    /// Of one.
    pub fn of(entry: &Entry) -> Counts {
        let mut counts = Counts::default();
        counts.add(entry);
        counts
    }

    /// Counts one more.
    pub fn add(&mut self, entry: &Entry) {
        match &entry.what {
            What::Small { .. } if entry.home.is_ssd() => self.small_on_ssd += 1,
            What::Small { .. } => self.small_in_log += 1,
            What::Large(_) => {
                self.large += 1;
                self.large_bytes += entry.stored_bytes();
            }
            What::Tombstone => self.tombstones += 1,
            What::Lost => self.lost += 1,
        }
    }
}

impl Entry {
    /// Appends it.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_u64(self.sequence);
        out.put_u64(self.home.raw());
        out.put_u32(self.record_bytes);
        out.put_u32(self.expires_at_seconds);
        match &self.what {
            What::Small { value_bytes } => {
                out.put_u8(1);
                out.put_u32(*value_bytes);
            }
            What::Large(pointer) => {
                out.put_u8(2);
                pointer.encode(out);
            }
            What::Tombstone => out.put_u8(3),
            What::Lost => out.put_u8(4),
        }
    }

    /// Reads one of a store whose SSD has so many blocks. A large value takes the place of `spare`
    /// ([`Large::in_place_of`]).
    pub fn decode(
        reader: &mut Reader<'_>,
        blocks: u64,
        spare: &mut Option<Arc<Large>>,
    ) -> Option<Entry> {
        let (sequence, home) = (reader.u64()?, Home::from_raw(reader.u64()?));
        let (record_bytes, expires_at_seconds) = (reader.u32()?, reader.u32()?);
        let what = match reader.u8()? {
            1 => What::Small { value_bytes: reader.u32()? },
            2 => {
                let pointer = Pointer::decode(reader, blocks, VALUE_BYTES_MAX as u64)?;
                What::Large(Large::from(pointer).in_place_of(spare.take()))
            }
            3 => What::Tombstone,
            _ => What::Lost,
        };
        Some(Entry { sequence, home, record_bytes, expires_at_seconds, what })
    }
}
