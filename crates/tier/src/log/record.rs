//! One record as it lies in the log and in sort tables (docs/disk-format.md, "Record").
//!
//! A record is whole when its crc and its commit word agree with its bytes. It carries a number
//! drawn from the life of its segment, so that what an earlier life left behind is no record, nor
//! is what a client writes into a value; and the offset up to which the segment was durable when it
//! was appended, so that a damaged record before that offset is known as corruption and not taken
//! for a torn tail.

use crate::media::bytes::{Put, Reader};
use crate::types::{ItemMeta, KEY_BYTES_MAX, LINE_BYTES};
use crc32c::{crc32c, crc32c_append};
use laneway_sync::meter;
use laneway_sync::planted::{Bug, is_planted};

/// Bytes before the key.
pub const HEADER_BYTES: usize = 48;
/// Bytes after the body.
pub const COMMIT_BYTES: usize = 8;
const MAGIC: u16 = 0x574c; // "LW"
const RECORD_VERSION: u8 = 2;
const SEQUENCE_AT: usize = 8;
const CRC_AT: usize = 16;
/// Mixed into the commit word, so that zeros commit nothing.
const COMMIT_SALT: u64 = 0x7a6f_6e65_6c61_6e65;

/// What a record says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// The body is the item's value.
    Small = 1,
    /// The body says where on the SSD the value is ([`crate::ssd::pointer`]).
    Large = 2,
    /// The key is gone.
    Delete = 3,
    /// Everything with a lower sequence is gone.
    FlushAll = 4,
    /// The key is the number of a sort table, the body says where it is.
    Table = 5,
    /// The sort table of this number is gone.
    TableDrop = 6,
    /// The segment of this generation is not needed any more; its slot may be used again.
    SegmentFree = 7,
    /// Nothing; it vouches for what is before it.
    Note = 8,
}

impl Kind {
    /// The kind of this number.
    pub fn of(number: u8) -> Option<Kind> {
        Some(match number {
            1 => Kind::Small,
            2 => Kind::Large,
            3 => Kind::Delete,
            4 => Kind::FlushAll,
            5 => Kind::Table,
            6 => Kind::TableDrop,
            7 => Kind::SegmentFree,
            8 => Kind::Note,
            _ => return None,
        })
    }

    /// Whether the key is a user's.
    pub fn is_of_item(self) -> bool {
        matches!(self, Kind::Small | Kind::Large | Kind::Delete)
    }
}

/// A record's content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record<'a> {
    /// What it says.
    pub kind: Kind,
    /// Of two records of one key the higher counts.
    pub sequence: u64,
    /// Kept with the item.
    pub meta: ItemMeta,
    /// The key.
    pub key: &'a [u8],
    /// What the kind needs.
    pub body: &'a [u8],
}

/// Where a record was appended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stamp {
    /// Which life of which segment, or which sort table, of which store:
    /// [`crate::log::segment::life_of`], [`crate::ssd::tables::life_of_table`].
    pub life: u32,
    /// The segment was durable up to this offset; 0 in a sort table.
    pub durable_to: u32,
}

/// Why bytes are no record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flaw {
    /// Nothing that looks like one.
    Nothing,
    /// It would be longer than what is there.
    Short {
        /// Its length, as far as it can be believed.
        bytes: usize,
    },
    /// Its crc or commit word is wrong.
    Damaged {
        /// Its length, as far as it can be believed.
        bytes: usize,
    },
}

impl Record<'_> {
    /// Its length without padding.
    pub fn bytes(&self) -> usize {
        bytes_of(self.key.len(), self.body.len())
    }
}

/// The length of a record without padding.
pub const fn bytes_of(key_bytes: usize, body_bytes: usize) -> usize {
    HEADER_BYTES + key_bytes + body_bytes + COMMIT_BYTES
}

/// Appends a record.
pub fn encode(out: &mut Vec<u8>, record: &Record<'_>, stamp: Stamp) {
    let (header, commit) = frame(record, stamp);
    for part in [&header[..], record.key, record.body, &commit[..]] {
        out.extend_from_slice(part);
    }
    meter::logged(record.bytes());
}

/// What stands before a record's key and behind its body.
pub fn frame(record: &Record<'_>, stamp: Stamp) -> ([u8; HEADER_BYTES], [u8; COMMIT_BYTES]) {
    let mut header = [0u8; HEADER_BYTES];
    let mut out = &mut header[..];
    out.put_u16(MAGIC);
    out.put_u8(RECORD_VERSION);
    out.put_u8(record.kind as u8);
    out.put_u32(record.body.len() as u32);
    out.put_u64(record.sequence);
    out.put_u32(0); // the crc
    out.put_u16(record.key.len() as u16);
    out.put_u16(record.meta.marks);
    out.put_u32(record.meta.flags);
    out.put_u32(record.meta.expires_at_seconds);
    out.put_u32(stamp.life);
    out.put_u32(stamp.durable_to);
    out.put_u64(record.meta.cas);
    // Of the parts, where they lie.
    let crc = crc32c_append(crc32c_append(crc_of(&header), record.key), record.body);
    header[CRC_AT..CRC_AT + 4].copy_from_slice(&crc.to_le_bytes());
    (header, commit_word(record.sequence, crc, stamp).to_le_bytes())
}

/// The crc over all but the crc itself, of a header and what is behind it.
fn crc_of(bytes: &[u8]) -> u32 {
    crc32c_append(crc32c(&bytes[..CRC_AT]), &bytes[CRC_AT + 4..])
}

fn commit_word(sequence: u64, crc: u32, stamp: Stamp) -> u64 {
    sequence.rotate_left(17) ^ (u64::from(crc) << 32 | u64::from(stamp.life)) ^ COMMIT_SALT
}

/// Reads the record at the front of `bytes`, which may hold anything.
pub fn decode(bytes: &[u8]) -> Result<(Record<'_>, Stamp), Flaw> {
    let mut reader = Reader::new(bytes);
    let head = header(&mut reader).ok_or(Flaw::Nothing)?;
    let total = bytes_of(head.key_bytes, head.body_bytes);
    let kind = Kind::of(head.kind).ok_or(Flaw::Damaged { bytes: total })?;
    let short = Flaw::Short { bytes: total };
    let key = reader.take(head.key_bytes).ok_or(short)?;
    let body = reader.take(head.body_bytes).ok_or(short)?;
    let commit = reader.u64().ok_or(short)?;
    let crc = crc_of(&bytes[..total - COMMIT_BYTES]);
    let crc = if is_planted(Bug::ChecksumIgnored) { head.crc } else { crc };
    if crc != head.crc || commit != commit_word(head.sequence, crc, head.stamp) {
        return Err(Flaw::Damaged { bytes: total });
    }
    Ok((Record { kind, sequence: head.sequence, meta: head.meta, key, body }, head.stamp))
}

/// What a damaged record claims to be: its kind, sequence and key. Nothing vouches for it.
pub fn claim(bytes: &[u8]) -> Option<(Kind, u64, &[u8])> {
    let mut reader = Reader::new(bytes);
    let head = header(&mut reader)?;
    Some((Kind::of(head.kind)?, head.sequence, reader.take(head.key_bytes)?))
}

/// The lengths of key and body that a record claims. Nothing vouches for them.
pub fn lengths(bytes: &[u8]) -> Option<(usize, usize)> {
    header(&mut Reader::new(bytes)).map(|head| (head.key_bytes, head.body_bytes))
}

/// The life that a record claims, whole or not.
pub fn life(bytes: &[u8]) -> Option<u32> {
    header(&mut Reader::new(bytes)).map(|head| head.stamp.life)
}

/// Whether a record of this life filled `bytes` up to padding, although its front may be damaged:
/// the commit word is there that its sequence and crc ask for. No client can have written that, for
/// none knows a life.
pub fn ended_with(bytes: &[u8], life: u32) -> bool {
    let mut reader = Reader::new(bytes.get(SEQUENCE_AT..).unwrap_or_default());
    let (Some(sequence), Some(crc)) = (reader.u64(), reader.u32()) else { return false };
    let commit = commit_word(sequence, crc, Stamp { life, durable_to: 0 }).to_le_bytes();
    let end = &bytes[bytes.len().saturating_sub(LINE_BYTES + COMMIT_BYTES)..];
    end.windows(COMMIT_BYTES).any(|word| word == commit)
}

struct Header {
    kind: u8,
    body_bytes: usize,
    sequence: u64,
    crc: u32,
    key_bytes: usize,
    meta: ItemMeta,
    stamp: Stamp,
}

fn header(reader: &mut Reader<'_>) -> Option<Header> {
    if reader.len() < HEADER_BYTES || reader.u16()? != MAGIC || reader.u8()? != RECORD_VERSION {
        return None;
    }
    let kind = reader.u8()?;
    let body_bytes = reader.u32()? as usize;
    let sequence = reader.u64()?;
    let crc = reader.u32()?;
    let key_bytes = usize::from(reader.u16()?);
    let (marks, flags, expires_at_seconds) = (reader.u16()?, reader.u32()?, reader.u32()?);
    let stamp = Stamp { life: reader.u32()?, durable_to: reader.u32()? };
    let meta = ItemMeta { flags, expires_at_seconds, marks, cas: reader.u64()? };
    let believable = key_bytes <= KEY_BYTES_MAX;
    believable.then_some(Header { kind, body_bytes, sequence, crc, key_bytes, meta, stamp })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> (Vec<u8>, Record<'static>, Stamp) {
        let meta = ItemMeta { flags: 7, expires_at_seconds: 99, marks: 3, cas: 1 << 50 };
        let record =
            Record { kind: Kind::Small, sequence: 1 << 40, meta, key: b"key", body: b"a value" };
        let stamp = Stamp { life: 3, durable_to: 4096 };
        let mut bytes = Vec::new();
        encode(&mut bytes, &record, stamp);
        (bytes, record, stamp)
    }

    #[test]
    fn a_record_reads_back_as_it_was() {
        let (bytes, record, stamp) = sample();
        assert_eq!(bytes.len(), record.bytes());
        assert_eq!(decode(&bytes), Ok((record, stamp)));
    }

    #[test]
    fn any_flipped_bit_is_noticed() {
        let (bytes, ..) = sample();
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(decode(&flipped).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn a_record_with_a_damaged_front_is_known_by_its_end() {
        let (mut bytes, record, stamp) = sample();
        bytes.resize(record.bytes().next_multiple_of(LINE_BYTES), 0);
        for at in 0..HEADER_BYTES {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x80;
            let is_known = ended_with(&damaged, stamp.life) || life(&damaged) == Some(stamp.life);
            assert!(is_known, "byte {at}");
            assert!(!ended_with(&damaged, stamp.life + 1), "byte {at}");
        }
        for length in 0..record.bytes() {
            assert!(!ended_with(&bytes[..length], stamp.life), "length {length}");
        }
    }

    #[test]
    fn any_record_cut_off_is_noticed() {
        let (bytes, ..) = sample();
        for length in 0..bytes.len() {
            assert!(decode(&bytes[..length]).is_err(), "length {length}");
        }
        assert_eq!(decode(&[0; 64]), Err(Flaw::Nothing));
    }
}
