//! A store as one stream of bytes, and back: for backups, and for moving to another size or
//! version. [`crate::whole::backup`] writes it.
//!
//! `LNAYDMP2`, then a record for every item (see docs/disk-format.md, "Record"; not padded, stamps
//! zero): of kind Small with the value, or where that is longer than a piece of kind Large with its
//! length, and a Note for each piece behind it. A Delete in the place of a piece takes the item
//! back. At last a Note with the number of items, the bytes before it and their crc. A stream
//! without that end is known to be cut off.
//! The last digit is the form's number; another form is refused.

use crate::log::attempt::LargeDraft;
use crate::log::record::{self, COMMIT_BYTES, HEADER_BYTES, Kind, Record};
use crate::media::bytes::Reader;
use crate::ssd::pointer::PIECE_BYTES;
use crate::tier::Tier;
use crate::types::{
    Error, ItemMeta, KEY_BYTES_MAX, Result, SEQUENCE_MAX, SEQUENCES_LOST_MAX, VALUE_BYTES_MAX,
    doing,
};
use crate::whole::backup::{Bounds, Lost, MAGIC, Step};
use crc32c::crc32c_append;
use std::io::{self, Read, Write};

/// What was being done ([`Error::Io`]) when it was not the store that refused, but what the stream
/// is read from.
pub const READING: &str = "read the dump";
/// How a stream of any form begins: all but the number.
const MAGIC_FRONT_BYTES: usize = 7;
/// How many items are written in one group.
const GROUP_ITEMS: u64 = 256;
/// A CAS id below this may be one that the store's server has given. Above it was chosen by a
/// client, who may choose the highest number that there is: behind that one no write could be
/// numbered.
const CAS_GIVEN_MAX: u64 = 1 << 62;

/// What was written.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Dumped {
    /// Items in the stream.
    pub items: u64,
    /// Items that could not be read.
    pub lost: Lost,
}

/// Writes every item to `out`, as the store is now. What is written meanwhile is not in it.
pub fn dump(tier: &Tier, out: &mut dyn Write) -> Result<Dumped> {
    let mut backup = tier.backup(Bounds::NONE)?;
    while backup.step(out)? == Step::More {}
    Ok(Dumped { items: backup.items(), lost: backup.lost().clone() })
}

/// A stream whose front was looked at, so that a store need not be made for one that is none.
pub struct Stream<R> {
    input: R,
    crc: u32,
    bytes: u64,
    items: u64,
    /// The highest sequence so far, and the highest CAS id that a server may have given.
    highest: u64,
}

/// What comes next in a stream.
enum Met<'a> {
    /// An item with its value.
    Whole(Record<'a>),
    /// An item whose value comes in pieces, and its length.
    Long(Record<'a>, u64),
    /// The end, which vouches for all before.
    End,
}

impl<R: Read> Stream<R> {
    /// Reads the front.
    pub fn open(mut input: R) -> Result<Stream<R>> {
        let mut magic = [0; 8];
        match input.read_exact(&mut magic) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {}
            read => doing(READING, read)?,
        }
        if magic != *MAGIC {
            return Err(Error::Dump(match magic.starts_with(&MAGIC[..MAGIC_FRONT_BYTES]) {
                true => format!(
                    "this is a dump of another form ({}, and this program reads {}), and nothing \
                     was loaded. Load it by the version of Laneway that made it, and dump it \
                     anew by this one, from the folder that comes of it",
                    magic.escape_ascii(),
                    MAGIC.escape_ascii()
                ),
                false => "this is no dump of a store".into(),
            }));
        }
        let crc = crc32c_append(0, &magic);
        Ok(Stream { input, crc, bytes: magic.len() as u64, items: 0, highest: 0 })
    }

    /// Puts every item into the store and returns how many; all are durable then. Items that are
    /// there already are replaced.
    pub fn load(&mut self, tier: &Tier) -> Result<u64> {
        let mut bytes = Vec::new();
        loop {
            match self.next(&mut bytes)? {
                Met::Whole(record) => {
                    tier.submit_put(record.key, record.body, record.meta, None)?;
                }
                Met::Long(record, value_bytes) => {
                    let (key, meta) = (record.key.to_vec(), record.meta);
                    self.load_long(tier, &key, meta, value_bytes)?;
                }
                Met::End => {
                    tier.pass_over(self.given_out())?;
                    tier.commit()?;
                    return Ok(self.items);
                }
            }
            if self.items.is_multiple_of(GROUP_ITEMS) {
                tier.commit()?;
            }
        }
    }

    /// Reads all of it, without a store, and says how many items there are. Whoever does so first
    /// loads nothing of a stream that is damaged.
    pub fn verify(&mut self) -> Result<u64> {
        let mut bytes = Vec::new();
        loop {
            match self.next(&mut bytes)? {
                Met::Whole(_) => {}
                Met::Long(record, value_bytes) => {
                    let key = record.key.to_vec();
                    self.pieces(&key, value_bytes, |_| Ok(()))?;
                }
                Met::End => return Ok(self.items),
            }
        }
    }

    /// Sequences and CAS ids up to this one may have been given out by the store that was copied,
    /// as far as the stream was read.
    pub fn given_out(&self) -> u64 {
        self.highest + SEQUENCES_LOST_MAX
    }

    fn load_long(&mut self, tier: &Tier, key: &[u8], meta: ItemMeta, bytes: u64) -> Result<()> {
        let mut draft: LargeDraft = tier.draft_large(key, bytes)?;
        if self.pieces(key, bytes, |piece| draft.write(piece))? {
            draft.finish(meta, None)?;
        }
        Ok(())
    }

    /// Shows the pieces of a value; false if it was taken back.
    fn pieces(
        &mut self,
        key: &[u8],
        value_bytes: u64,
        mut show: impl FnMut(&[u8]) -> Result<()>,
    ) -> Result<bool> {
        let mut bytes = Vec::new();
        let (mut number, mut left) = (0, value_bytes);
        while 0 < left {
            let record = self.record(&mut bytes)?;
            let due = left.min(PIECE_BYTES as u64);
            match record.kind {
                Kind::Note if record.sequence == number && record.body.len() as u64 == due => {
                    show(record.body)?;
                }
                Kind::Delete if record.key == key => return Ok(false),
                _ => return Err(self.damaged()),
            }
            (number, left) = (number + 1, left - due);
        }
        self.items += 1;
        Ok(true)
    }

    /// What comes next.
    fn next<'b>(&mut self, bytes: &'b mut Vec<u8>) -> Result<Met<'b>> {
        let (crc, before) = (self.crc, self.bytes);
        let record = self.record(bytes)?;
        match record.kind {
            Kind::Note => {
                let mut reader = Reader::new(record.body);
                let items = reader.u64().filter(|items| *items == self.items);
                let all = items.and(reader.u64()).filter(|bytes| *bytes == before);
                let is_it = all.and(reader.u32()) == Some(crc) && reader.len() == 0;
                if is_it { self.end() } else { Err(missing()) }
            }
            Kind::Large => {
                let mut reader = Reader::new(record.body);
                let value_bytes = reader.u64().filter(|_| reader.len() == 0);
                let value_bytes = value_bytes.filter(|bytes| *bytes <= VALUE_BYTES_MAX as u64);
                let value_bytes = value_bytes.filter(|bytes| *bytes > PIECE_BYTES as u64);
                value_bytes.map(|bytes| Met::Long(record, bytes)).ok_or_else(|| self.damaged())
            }
            Kind::Small => {
                self.items += 1;
                Ok(Met::Whole(record))
            }
            _ => Err(self.damaged()),
        }
    }

    /// Nothing is behind the end.
    fn end(&mut self) -> Result<Met<'static>> {
        match self.input.read_exact(&mut [0]) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(Met::End),
            Err(source) => Err(Error::Io { what: READING, source }),
            Ok(()) => Err(Error::Dump("the dump is damaged: bytes come behind its end".into())),
        }
    }

    /// Reads one record into `bytes`.
    fn record<'b>(&mut self, bytes: &'b mut Vec<u8>) -> Result<Record<'b>> {
        let items = self.items;
        let early = |source: io::Error| match source.kind() {
            io::ErrorKind::UnexpectedEof => {
                Error::Dump(format!("the dump ends early, behind item {items}"))
            }
            _ => Error::Io { what: READING, source },
        };
        bytes.clear();
        bytes.resize(HEADER_BYTES, 0);
        self.input.read_exact(bytes).map_err(early)?;
        let (key_bytes, body_bytes) = record::lengths(bytes)
            .filter(|(key, body)| *key <= KEY_BYTES_MAX && *body <= PIECE_BYTES)
            .ok_or_else(|| self.damaged())?;
        bytes.resize(HEADER_BYTES + key_bytes + body_bytes + COMMIT_BYTES, 0);
        self.input.read_exact(&mut bytes[HEADER_BYTES..]).map_err(early)?;
        self.crc = crc32c_append(self.crc, bytes);
        self.bytes += bytes.len() as u64;
        let (record, _) = record::decode(bytes).map_err(|_| self.damaged())?;
        if SEQUENCE_MAX - SEQUENCES_LOST_MAX < record.sequence {
            return Err(self.damaged()); // no store gives out so many
        }
        self.highest = self.highest.max(record.sequence);
        if record.meta.cas < CAS_GIVEN_MAX {
            self.highest = self.highest.max(record.meta.cas);
        }
        Ok(record)
    }

    fn damaged(&self) -> Error {
        Error::Dump(format!("the dump is damaged behind item {}", self.items))
    }
}

fn missing() -> Error {
    Error::Dump("the dump is whole in its parts, and some of them are missing or new".into())
}

/// Both: for who has a store.
pub fn load(tier: &Tier, input: impl Read) -> Result<u64> {
    Stream::open(input)?.load(tier)
}
