//! Reads items.
//!
//! A reader takes no lock of the media: it looks the place up, reads, and verifies that what it
//! read is the record it wanted. If migration moved the record meanwhile, it looks again; what does
//! not verify although nothing moved is lost, and said to be.

use crate::index::{Entry, Home, What};
use crate::log::record::{self, Record};
use crate::media::bytes::Blocks;
use crate::ssd::large::read_value_piece;
use crate::ssd::value::Large;
use crate::store::Shared;
use crate::types::{BLOCK_BYTES, Error, Item, ItemMeta, Result, doing, is_over};
use std::sync::Arc;

/// How often a place may change under a reader. Each time somebody migrated exactly this item.
const TRIES: usize = 64;

/// What a key holds, without its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Look {
    /// The value's length.
    pub value_bytes: u64,
    /// Of the item.
    pub sequence: u64,
    /// When it expires, in the caller's seconds; 0 for never.
    pub expires_at_seconds: u32,
    /// Whether reading it may wait for a device.
    pub waits: bool,
    /// Whether the value lies on the SSD by itself, or will when its group is written: it went
    /// there by the boundary that there was then.
    pub is_large: bool,
}

/// Items that have expired.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Expired {
    /// Their keys.
    pub keys: Vec<Box<[u8]>>,
    /// Where to go on; `None` at the end.
    pub next: Option<Vec<u8>>,
}

impl Shared {
    /// Of the next `looks` items from `from` on, those that have expired.
    pub fn expired(&self, from: &[u8], looks: usize, now_seconds: u32) -> Expired {
        let page = self.index.range(from, None, looks);
        let next = page.last().filter(|_| page.len() == looks);
        let next = next.map(|(last, _)| [last, &[0][..]].concat());
        let over =
            page.into_iter().filter(|(_, entry)| is_over(entry.expires_at_seconds, now_seconds));
        Expired { keys: over.map(|(key, _)| key).collect(), next }
    }

    /// Shows the items of a bounded piece of the index, from `from` on, in key order. Says where to
    /// go on; nowhere at the end.
    pub fn look_along(&self, from: &[u8], mut visit: impl FnMut(&[u8], Look)) -> Option<Box<[u8]>> {
        self.index.look_through(from, |key, entry, _| {
            if entry.is_item() {
                visit(key, self.look_of(entry));
            }
        })
    }

    /// What `key` holds, from the index alone.
    pub fn look(&self, key: &[u8]) -> Option<Look> {
        let entry = self.index.get(key).filter(|entry| entry.what != What::Tombstone)?;
        Some(self.look_of(&entry))
    }

    /// What an entry says.
    pub fn look_of(&self, entry: &Entry) -> Look {
        let is_large = matches!(entry.what, What::Large(_));
        let waits = is_large || entry.home.is_ssd() || self.region.reads_wait();
        let (sequence, expires_at_seconds) = (entry.sequence, entry.expires_at_seconds);
        Look { value_bytes: entry.value_bytes(), sequence, expires_at_seconds, waits, is_large }
    }

    /// Reads an item.
    pub fn get(&self, key: &[u8]) -> Result<Option<Item>> {
        let mut entry = match self.index.hit(key) {
            Some(entry) => entry,
            None => return Ok(None),
        };
        for _ in 0..TRIES {
            if let Some(item) = self.read_entry(key, &entry)? {
                return Ok(Some(item));
            }
            match self.index.get(key) {
                None => return Ok(None),
                Some(now) if now.what == What::Tombstone => return Ok(None),
                Some(now) if now == entry => return Err(lost(key, &entry)),
                Some(now) => entry = now,
            }
        }
        Err(lost(key, &entry))
    }

    /// Reads the item an entry stands for; `None` if what is there is not it.
    pub fn read_entry(&self, key: &[u8], entry: &Entry) -> Result<Option<Item>> {
        let sequence = entry.sequence;
        match &entry.what {
            What::Tombstone | What::Lost => Ok(None),
            What::Small { .. } => {
                let bytes = self.read_record(entry.home, entry.record_bytes as usize)?;
                Ok(verified(&bytes, key, sequence).map(|record| Item {
                    value: record.body.to_vec(),
                    meta: record.meta,
                    sequence,
                }))
            }
            What::Large(large) => {
                if let Some((value, meta)) = large.value_waiting().zip(large.meta()) {
                    return Ok(Some(Item { value, meta, sequence }));
                }
                let Some(held) = self.pin(key, entry, large)? else { return Ok(None) };
                let mut value = Vec::with_capacity(large.value_bytes() as usize);
                for index in 0..large.pieces() {
                    match read_value_piece(&*self.ssd, large, index)? {
                        Some(piece) => value.extend_from_slice(&piece),
                        None => return Ok(None),
                    }
                }
                Ok(Some(Item { value, meta: held.meta, sequence }))
            }
        }
    }

    /// Reads bytes that may be a record.
    pub fn read_record(&self, home: Home, bytes: usize) -> Result<Vec<u8>> {
        if !home.is_ssd() {
            let mut record = vec![0; bytes];
            doing("read from the log", self.region.read(home.at(), &mut record))?;
            return Ok(record);
        }
        let skip = (home.at() % BLOCK_BYTES as u64) as usize;
        let mut blocks = Blocks::zeroed(skip + bytes);
        let start = home.at() - skip as u64;
        doing("read from a sort table", self.ssd.read_all(start, blocks.as_mut()))?;
        Ok(blocks.as_slice()[skip..skip + bytes].to_vec())
    }

    /// Keeps a large value from being overwritten while it is read; `None` if it has changed. What
    /// is kept with it is read from its record if it is not known.
    fn pin(&self, key: &[u8], entry: &Entry, large: &Large) -> Result<Option<Held<'_>>> {
        let Some(mut held) = self.hold(key, entry, large) else { return Ok(None) };
        if let Some(meta) = large.meta() {
            held.meta = meta;
            return Ok(Some(held));
        }
        let bytes = self.read_record(entry.home, entry.record_bytes as usize)?;
        let Some(record) = verified(&bytes, key, entry.sequence) else { return Ok(None) };
        large.know(record.meta);
        self.index.know(key, entry.sequence, record.meta);
        held.meta = record.meta;
        Ok(Some(held))
    }

    /// Keeps a large value's blocks from being used again; `None` if the key has changed before.
    pub fn hold(&self, key: &[u8], entry: &Entry, large: &Large) -> Option<Held<'_>> {
        let first = large.extents.first().map(|extent| extent.start);
        if let Some(first) = first {
            self.space.pin(first);
        }
        let held = Held { shared: self, first, meta: ItemMeta::default() };
        self.index.is_current(key, entry.sequence).then_some(held)
    }

    /// Opens a large value for reading piece by piece; `None` if the key holds no large value.
    pub fn open_large(self: &Arc<Self>, key: &[u8]) -> Result<Option<LargeReader>> {
        for _ in 0..TRIES {
            let Some(entry) = self.index.hit(key) else { return Ok(None) };
            let What::Large(large) = &entry.what else { return Ok(None) };
            if let Some(held) = self.pin(key, &entry, large)? {
                let (first, meta) = (held.first, held.meta);
                std::mem::forget(held); // the pin goes on in the reader
                return Ok(Some(LargeReader {
                    shared: self.clone(),
                    key: key.into(),
                    large: large.clone(),
                    first,
                    meta,
                    sequence: entry.sequence,
                }));
            }
            if self.index.get(key).as_ref() == Some(&entry) {
                return Err(lost(key, &entry));
            }
        }
        Err(Error::Lost { key: key.into(), why: "it keeps changing".into() })
    }
}

/// The record that these bytes are, if it is the one that is meant.
pub fn verified<'a>(bytes: &'a [u8], key: &[u8], sequence: u64) -> Option<Record<'a>> {
    let (record, _) = record::decode(bytes).ok()?;
    (record.key == key && record.sequence == sequence).then_some(record)
}

fn lost(key: &[u8], entry: &Entry) -> Error {
    let medium = match (&entry.what, entry.home.is_ssd()) {
        (What::Large(_), _) => "its value on the SSD",
        (_, true) => "its record in a sort table",
        (_, false) => "its record in the log",
    };
    Error::Lost { key: key.into(), why: format!("{medium} is damaged (crc)") }
}

/// A pin for the time of one read.
pub struct Held<'a> {
    shared: &'a Shared,
    first: Option<u32>,
    meta: ItemMeta,
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        if let Some(first) = self.first {
            self.shared.space.unpin(first);
        }
    }
}

/// A large value that is being read. Its blocks stay while this lives, whatever becomes of the key.
pub struct LargeReader {
    shared: Arc<Shared>,
    key: Box<[u8]>,
    large: Arc<Large>,
    first: Option<u32>,
    meta: ItemMeta,
    sequence: u64,
}

impl LargeReader {
    /// The value's length.
    pub fn value_bytes(&self) -> u64 {
        self.large.value_bytes()
    }

    /// What was kept with the item.
    pub fn meta(&self) -> ItemMeta {
        self.meta
    }

    /// Of the item.
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// How many pieces of [`crate::PIECE_BYTES`] there are.
    pub fn pieces(&self) -> usize {
        self.large.pieces()
    }

    /// Reads and verifies one piece.
    pub fn piece(&self, index: usize) -> Result<Vec<u8>> {
        if let Some(value) = self.large.value_waiting() {
            return Ok(value); // what waits is shorter than a piece
        }
        read_value_piece(&*self.shared.ssd, &self.large, index)?.ok_or_else(|| Error::Lost {
            key: self.key.to_vec(),
            why: format!("piece {index} of its value on the SSD is damaged (crc)"),
        })
    }
}

impl Drop for LargeReader {
    fn drop(&mut self) {
        if let Some(first) = self.first {
            self.shared.space.unpin(first);
        }
    }
}
