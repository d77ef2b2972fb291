//! A store as one stream of bytes, and back: for moving to another size or version.
//!
//! `LNAYDMP1`, then a record of kind Small for every item in key order, whatever its size (see
//! docs/disk-format.md, "Record"; not padded, stamps zero), then a Note whose body is the number of
//! items, 8 bytes. A stream without that end is known to be cut off.

use crate::record::{self, COMMIT_BYTES, HEADER_BYTES, Kind, Record, Stamp};
use crate::tier::Tier;
use crate::types::{Error, ItemMeta, KEY_BYTES_MAX, Result, VALUE_BYTES_MAX, doing};
use std::io::{self, Read, Write};

const MAGIC: &[u8; 8] = b"LNAYDMP1";
/// How many items are read at once.
const PAGE_ITEMS: usize = 64;
/// How many items are written in one group.
const GROUP_ITEMS: u64 = 256;

/// What was written.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Dumped {
    /// Items in the stream.
    pub items: u64,
    /// Items that could not be read, and why.
    pub lost: Vec<(Vec<u8>, String)>,
}

/// Writes every item to `out`. What is written meanwhile may be in it or not.
pub fn dump(tier: &Tier, out: &mut dyn Write) -> Result<Dumped> {
    let mut dumped = Dumped::default();
    doing("write the dump", out.write_all(MAGIC))?;
    let mut from: Vec<u8> = Vec::new();
    let mut bytes = Vec::new();
    loop {
        let page = tier.scan(&from, None, PAGE_ITEMS);
        let Some((last, _)) = page.last() else { break };
        from = [last, &[0][..]].concat();
        for (key, item) in page {
            match item {
                Ok(item) => {
                    let (sequence, meta) = (item.sequence, item.meta);
                    let kind = Kind::Small;
                    let record = Record { kind, sequence, meta, key: &key, body: &item.value };
                    bytes.clear();
                    record::encode(&mut bytes, &record, Stamp::default());
                    doing("write the dump", out.write_all(&bytes))?;
                    dumped.items += 1;
                }
                Err(Error::Lost { key, why }) => dumped.lost.push((key, why)),
                Err(error) => return Err(error),
            }
        }
    }
    let (meta, body) = (ItemMeta::default(), dumped.items.to_le_bytes());
    let end = Record { kind: Kind::Note, sequence: 0, meta, key: &[], body: &body };
    bytes.clear();
    record::encode(&mut bytes, &end, Stamp::default());
    doing("write the dump", out.write_all(&bytes))?;
    doing("write the dump", out.flush())?;
    Ok(dumped)
}

/// A stream whose front was looked at, so that a store need not be made for one that is none.
pub struct Stream<R>(R);

impl<R: Read> Stream<R> {
    /// Reads the front.
    pub fn open(mut input: R) -> Result<Stream<R>> {
        let mut magic = [0; 8];
        match input.read_exact(&mut magic) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {}
            read => doing("read the dump", read)?,
        }
        match magic == *MAGIC {
            true => Ok(Stream(input)),
            false => Err(Error::Dump("this is no dump of a store".into())),
        }
    }

    /// Puts every item into the store and returns how many; all are durable then. Items that are
    /// there already are replaced.
    pub fn load(&mut self, tier: &Tier) -> Result<u64> {
        let mut items = 0;
        let mut bytes = Vec::new();
        loop {
            next_record(&mut self.0, &mut bytes, items)?;
            let damaged = |_| Error::Dump(format!("the dump is damaged behind item {items}"));
            let (record, _) = record::decode(&bytes).map_err(damaged)?;
            if record.kind == Kind::Note {
                tier.commit()?;
                return match record.body == items.to_le_bytes() {
                    true => Ok(items),
                    false => Err(Error::Dump("items are missing in the dump".into())),
                };
            }
            tier.submit_put(record.key, record.body, record.meta, None)?;
            items += 1;
            if items.is_multiple_of(GROUP_ITEMS) {
                tier.commit()?;
            }
        }
    }
}

/// Both: for who has a store.
pub fn load(tier: &Tier, input: impl Read) -> Result<u64> {
    Stream::open(input)?.load(tier)
}

/// Reads one record, whole or damaged, into `bytes`.
fn next_record(input: &mut dyn Read, bytes: &mut Vec<u8>, items: u64) -> Result<()> {
    let early = |_| Error::Dump(format!("the dump ends early, behind item {items}"));
    bytes.clear();
    bytes.resize(HEADER_BYTES, 0);
    input.read_exact(bytes).map_err(early)?;
    let (key_bytes, body_bytes) = record::lengths(bytes)
        .filter(|(key, body)| *key <= KEY_BYTES_MAX && *body <= VALUE_BYTES_MAX)
        .ok_or_else(|| Error::Dump(format!("the dump is damaged behind item {items}")))?;
    bytes.resize(HEADER_BYTES + key_bytes + body_bytes + COMMIT_BYTES, 0);
    input.read_exact(&mut bytes[HEADER_BYTES..]).map_err(early)
}
