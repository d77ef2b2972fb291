//! A store as one stream of bytes, and back: for moving to another size or version.
//!
//! `LNAYDMP1`, then a record of kind Small for every item in key order, whatever its size (see
//! docs/disk-format.md, "Record"; not padded, stamps zero), then a Note whose body is the number of
//! items, 8 bytes. A stream without that end is known to be cut off.

use crate::record::{self, COMMIT_BYTES, HEADER_BYTES, Kind, Record, Stamp};
use crate::tier::Tier;
use crate::types::{Error, ItemMeta, KEY_BYTES_MAX, Result, VALUE_BYTES_MAX, doing};
use std::io::{Read, Write};

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

/// Puts every item of a stream into the store and returns how many; all are durable then. Items
/// that are there already are replaced.
pub fn load(tier: &Tier, input: &mut dyn Read) -> Result<u64> {
    let mut magic = [0; 8];
    doing("read the dump", input.read_exact(&mut magic))?;
    if magic != *MAGIC {
        return Err(Error::Corrupt("this is no dump of a store".into()));
    }
    let mut items = 0;
    let mut bytes = Vec::new();
    loop {
        next_record(input, &mut bytes, items)?;
        let damaged = |_| Error::Corrupt(format!("the dump is damaged behind item {items}"));
        let (record, _) = record::decode(&bytes).map_err(damaged)?;
        if record.kind == Kind::Note {
            tier.commit()?;
            return match record.body == items.to_le_bytes() {
                true => Ok(items),
                false => Err(Error::Corrupt("items are missing in the dump".into())),
            };
        }
        tier.submit_put(record.key, record.body, record.meta, None)?;
        items += 1;
        if items.is_multiple_of(GROUP_ITEMS) {
            tier.commit()?;
        }
    }
}

/// Reads one record, whole or damaged, into `bytes`.
fn next_record(input: &mut dyn Read, bytes: &mut Vec<u8>, items: u64) -> Result<()> {
    let early = |_| Error::Corrupt(format!("the dump ends early, behind item {items}"));
    bytes.clear();
    bytes.resize(HEADER_BYTES, 0);
    input.read_exact(bytes).map_err(early)?;
    let (key_bytes, body_bytes) = record::lengths(bytes)
        .filter(|(key, body)| *key <= KEY_BYTES_MAX && *body <= VALUE_BYTES_MAX)
        .ok_or_else(|| Error::Corrupt(format!("the dump is damaged behind item {items}")))?;
    bytes.resize(HEADER_BYTES + key_bytes + body_bytes + COMMIT_BYTES, 0);
    input.read_exact(&mut bytes[HEADER_BYTES..]).map_err(early)
}
