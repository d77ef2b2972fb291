//! A copy of the store as it was at one instant, made while it is written to.
//!
//! [`Backup::step`] writes some of it at a time as a stream ([`crate::whole::dump`] reads it), so
//! whoever calls it decides how fast it goes. The copy has every write that was acknowledged before
//! [`crate::Tier::backup`] was called, and none that was submitted after that returned; of those
//! under way meanwhile it has what comes first in the order of the log ([`cut`] says how).
//!
//! It knows no file and no clock.

pub mod cut;
pub mod file;
mod hold;

use self::cut::{Held, Next};
use crate::index::{Entry, What};
use crate::log::record::{self, Kind, Record, Stamp};
use crate::media::fetch::Wanted;
use crate::reading::read::verified;
use crate::reading::scan::place_of;
use crate::ssd::compress::value_of_owned;
use crate::ssd::large::read_value_piece;
use crate::ssd::pointer::PIECE_BYTES;
use crate::ssd::value::Large;
use crate::store::Shared;
use crate::types::{Error, ItemMeta, Result, doing};
use crc32c::{crc32c, crc32c_append};
use std::io::Write;
use std::sync::Arc;

pub use self::cut::Bounds;

/// What was being done ([`Error::Io`]) when it was not the store that refused, but what the copy is
/// written to.
pub const WRITING: &str = "write the copy";

/// What a stream begins with.
pub const MAGIC: &[u8; 8] = b"LNAYDMP2";

/// How far a backup is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// There is more to be copied.
    More,
    /// The stream is whole.
    Over,
}

/// Items that could not be read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Lost {
    /// How many there are.
    pub items: u64,
    /// The first of them, and why: there may be millions.
    pub named: Vec<(Vec<u8>, String)>,
}

impl Lost {
    /// So many are named.
    pub const NAMED_MAX: usize = 1000;

    fn note(&mut self, key: &[u8], why: &Error) {
        self.items += 1;
        if self.named.len() < Lost::NAMED_MAX {
            self.named.push((key.to_vec(), why.to_string()));
        }
    }

    /// How many are not named.
    pub fn unnamed(&self) -> u64 {
        self.items - self.named.len() as u64
    }
}

/// A backup under way. Dropped, it is given up.
pub struct Backup {
    shared: Arc<Shared>,
    sequence: u64,
    crc: u32,
    bytes: u64,
    items: u64,
    lost: Lost,
    /// What was encoded and not written.
    out: Vec<u8>,
    /// The long value that is being copied, and its next piece.
    long: Option<(Vec<cut::Place>, Arc<Held>, usize)>,
}

/// What is read of an item.
#[derive(Default)]
struct Parts {
    record: Option<Vec<u8>>,
    value: Option<Vec<u8>>,
}

enum Part {
    Record(usize),
    Value(usize),
}

impl Backup {
    /// Of what the store holds now.
    pub(crate) fn begin(shared: &Arc<Shared>, bounds: Bounds) -> Result<Backup> {
        let sequence = shared.begin_cut(bounds)?;
        Ok(Backup {
            shared: shared.clone(),
            sequence,
            crc: 0,
            bytes: 0,
            items: 0,
            lost: Lost::default(),
            out: MAGIC.to_vec(),
            long: None,
        })
    }

    /// Items in the stream so far.
    pub fn items(&self) -> u64 {
        self.items
    }

    /// Bytes of the stream so far.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Items that could not be read so far.
    pub fn lost(&self) -> &Lost {
        &self.lost
    }

    /// Fails if it was given up, by a writer who found no room for what it holds; that is let go of
    /// then.
    pub fn check(&self) -> Result<()> {
        self.shared.check_cut()
    }

    /// Copies some more: a quarter of a mebibyte, or a piece of a longer value. After an error the
    /// stream is worth nothing.
    pub fn step(&mut self, out: &mut dyn Write) -> Result<Step> {
        let step = match self.long.take() {
            Some((places, held, piece)) => {
                self.shared.check_cut()?;
                self.copy_piece(places, held, piece);
                Step::More
            }
            None => match self.shared.next_of_cut()? {
                Next::Copy(batch) => {
                    self.copy(batch);
                    Step::More
                }
                Next::Walked => Step::More,
                Next::Over => {
                    self.end();
                    Step::Over
                }
            },
        };
        doing(WRITING, out.write_all(&self.out))?;
        self.crc = crc32c_append(self.crc, &self.out);
        self.bytes += self.out.len() as u64;
        self.out.clear();
        if step == Step::Over {
            doing(WRITING, out.flush())?;
        }
        Ok(step)
    }

    fn copy(&mut self, batch: Vec<(cut::Place, Arc<Held>)>) {
        let (places, held): (Vec<_>, Vec<_>) = batch.into_iter().unzip();
        if let [one] = &held[..]
            && matches!(one.entry.what, What::Large(_))
            && (PIECE_BYTES as u64) < one.entry.value_bytes()
        {
            return self.begin_long(places, held[0].clone());
        }
        let parts = self.read(&held);
        for (held, parts) in held.iter().zip(parts) {
            match self.item_of(held, parts) {
                Ok((value, meta)) => self.put_item(&held.key, held.entry.sequence, meta, &value),
                Err(error) => self.lost.note(&held.key, &error),
            }
        }
        self.shared.copied(places.into_iter());
    }

    /// Reads what can be read in one round of the devices.
    fn read(&self, held: &[Arc<Held>]) -> Vec<Parts> {
        let mut parts: Vec<Parts> = held.iter().map(|_| Parts::default()).collect();
        let mut wanted = Vec::with_capacity(held.len());
        for (number, held) in held.iter().enumerate() {
            let Entry { home, record_bytes, what, .. } = &held.entry;
            let mut needs_record = held.saved().is_none();
            if let What::Large(large) = what {
                needs_record &= large.meta().is_none();
                if let (None, Some(home)) = (large.bytes_waiting(), place_of(large)) {
                    let bytes = large.bytes as usize;
                    wanted.push(Wanted { home, bytes, what: Part::Value(number) });
                }
            }
            // A log that is no disk's is read by itself.
            if needs_record && (home.is_ssd() || self.shared.region.disk().is_some()) {
                let bytes = *record_bytes as usize;
                wanted.push(Wanted { home: *home, bytes, what: Part::Record(number) });
            }
        }
        self.shared.fetch(
            wanted,
            || {},
            |part, bytes| match *part {
                Part::Record(number) => parts[number].record = Some(bytes.to_vec()),
                Part::Value(number) => parts[number].value = Some(bytes.to_vec()),
            },
        );
        parts
    }

    /// An item, of what was read of it, or else read by itself.
    fn item_of(&self, held: &Held, parts: Parts) -> Result<(Vec<u8>, ItemMeta)> {
        let What::Large(large) = &held.entry.what else {
            let record = self.record_of(held, parts.record)?;
            let record = verified(&record, &held.key, held.entry.sequence);
            let record = record.ok_or_else(|| damaged(held))?;
            return Ok((record.body.to_vec(), record.meta));
        };
        let meta = self.meta_of(held, large, parts.record)?;
        if let Some(value) = large.value_waiting() {
            return Ok((value, meta));
        }
        let stored = parts.value.filter(|stored| large.crcs[..] == [crc32c(stored)]);
        if let Some(value) = stored.and_then(|stored| value_of_owned(large, stored)) {
            return Ok((value, meta));
        }
        let mut value = Vec::with_capacity(large.value_bytes() as usize);
        for index in 0..large.pieces() {
            let piece = read_value_piece(&*self.shared.ssd, large, index)?;
            value.extend_from_slice(&piece.ok_or_else(|| damaged(held))?);
        }
        Ok((value, meta))
    }

    /// The bytes of an item's record: what was read if it is that, what lies there, or what was
    /// saved before something else did.
    fn record_of(&self, held: &Held, read: Option<Vec<u8>>) -> Result<Vec<u8>> {
        let Entry { home, record_bytes, sequence, .. } = held.entry;
        // What says that an item was evicted has the item's key and sequence, and is none.
        let is_it = |bytes: &Vec<u8>| {
            let record = verified(bytes, &held.key, sequence);
            record.is_some_and(|record| record.kind != Kind::Delete)
        };
        if let Some(bytes) = read.filter(is_it) {
            return Ok(bytes);
        }
        let there = match held.saved() {
            None => self.shared.read_record(home, record_bytes as usize),
            Some(saved) => return Ok(saved.to_vec()),
        };
        if let Ok(bytes) = &there
            && is_it(bytes)
        {
            return there;
        }
        if let Some(saved) = self.shared.saved_by_now(held) {
            return Ok(saved);
        }
        // Where the device did not give it when it was to be saved, its copy may be read.
        if let Some(now) = self.shared.index.get(&held.key)
            && now.sequence == sequence
            && now.home != home
            && let Ok(bytes) = self.shared.read_record(now.home, now.record_bytes as usize)
            && is_it(&bytes)
        {
            return Ok(bytes);
        }
        there.and_then(|_| Err(damaged(held)))
    }

    /// What is kept with a large item.
    fn meta_of(&self, held: &Held, large: &Large, read: Option<Vec<u8>>) -> Result<ItemMeta> {
        if let Some(meta) = large.meta() {
            return Ok(meta);
        }
        let record = self.record_of(held, read)?;
        let record = verified(&record, &held.key, held.entry.sequence);
        let meta = record.ok_or_else(|| damaged(held))?.meta;
        large.know(meta);
        self.shared.index.know(&held.key, held.entry.sequence, meta);
        Ok(meta)
    }

    fn put_item(&mut self, key: &[u8], sequence: u64, meta: ItemMeta, value: &[u8]) {
        self.items += 1;
        if value.len() <= PIECE_BYTES {
            return self.put(Kind::Small, key, sequence, meta, value);
        }
        self.put(Kind::Large, key, sequence, meta, &(value.len() as u64).to_le_bytes());
        for (number, piece) in value.chunks(PIECE_BYTES).enumerate() {
            self.put(Kind::Note, &[], number as u64, ItemMeta::default(), piece);
        }
    }

    fn put(&mut self, kind: Kind, key: &[u8], sequence: u64, meta: ItemMeta, body: &[u8]) {
        let record = Record { kind, sequence, meta, key, body };
        record::encode(&mut self.out, &record, Stamp::default());
    }

    fn begin_long(&mut self, places: Vec<cut::Place>, held: Arc<Held>) {
        let What::Large(large) = &held.entry.what else { return };
        match self.meta_of(&held, large, None) {
            Ok(meta) => {
                let (sequence, body) = (held.entry.sequence, large.value_bytes().to_le_bytes());
                self.put(Kind::Large, &held.key, sequence, meta, &body);
                self.long = Some((places, held, 0));
            }
            Err(error) => {
                self.lost.note(&held.key, &error);
                self.shared.copied(places.into_iter());
            }
        }
    }

    /// The next piece of a long value. One that cannot be read ends the item, which then is none.
    fn copy_piece(&mut self, places: Vec<cut::Place>, held: Arc<Held>, number: usize) {
        let What::Large(large) = &held.entry.what else { return };
        let read = read_value_piece(&*self.shared.ssd, large, number);
        match read.and_then(|piece| piece.ok_or_else(|| damaged(&held))) {
            Ok(piece) => {
                self.put(Kind::Note, &[], number as u64, ItemMeta::default(), &piece);
                if number + 1 < large.pieces() {
                    self.long = Some((places, held, number + 1));
                    return;
                }
                self.items += 1;
            }
            Err(error) => {
                self.put(Kind::Delete, &held.key, 0, ItemMeta::default(), &[]);
                self.lost.note(&held.key, &error);
            }
        }
        self.shared.copied(places.into_iter());
    }

    /// What the stream ends with: it vouches for all before.
    fn end(&mut self) {
        let crc = crc32c_append(self.crc, &self.out);
        let bytes = self.bytes + self.out.len() as u64;
        let mut body = self.items.to_le_bytes().to_vec();
        body.extend_from_slice(&bytes.to_le_bytes());
        body.extend_from_slice(&crc.to_le_bytes());
        self.put(Kind::Note, &[], self.sequence, ItemMeta::default(), &body);
    }
}

impl Drop for Backup {
    fn drop(&mut self) {
        self.shared.end_cut();
    }
}

fn damaged(held: &Held) -> Error {
    let why = "what is left of it on log and SSD is damaged (crc)".into();
    Error::Lost { key: held.key.to_vec(), why }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_items_that_are_lost_all_are_counted_and_the_first_are_named() {
        let mut lost = Lost::default();
        (0..3000_u32).for_each(|n| lost.note(&n.to_le_bytes(), &Error::PmFull));
        assert_eq!((lost.items, lost.named.len(), lost.unnamed()), (3000, 1000, 2000));
        assert_eq!(lost.named[7].0, 7_u32.to_le_bytes());
    }
}
