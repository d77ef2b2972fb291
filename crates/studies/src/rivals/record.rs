//! The layout of memory that clients READ, and the places where a key may stand: both ends must
//! agree on it. Numbers are little-endian; checksums are SipHash-1-3 under a key of zero.
//!
//! **A bucket** of Pilaf's, 32 bytes with one item (HERD §5.1.1): where its extent begins in units
//! of 8 bytes (4), length of key (2) and value (2), a tag of the key (4), a version (4), the
//! extent's checksum (8), the checksum of all these (8). The extent is key and value.
//!
//! **A slot** of FaRM-KV's: the checksum of the rest (8), version (4), length of key (2) and value
//! (2), key, value. Out of line: in place of the value, behind the header, where its extent begins
//! (4), four zeroes, and the checksum of the value (8); the extent is the value.
//!
//! A length of key of 0 is an empty place. Versions count how often a place was written, so that
//! the same bytes twice are the same all the time between.
//!
//! It departs from Pilaf, whose bucket has no tag and whose checksums are CRC64; from FaRM, whose
//! objects have a version in every cache line: a card reads lines in their order, and memory that
//! threads share has none to rely on.

use super::message::{KEY_BYTES_MAX, VALUE_BYTES_MAX};
use siphasher::sip::SipHasher13;
use std::hash::Hasher as _;

/// Bytes of a bucket.
pub const BUCKET_BYTES: usize = 32;
/// Places of a key in Pilaf's index: 3-1 cuckoo hashing.
pub const PLACES: usize = 3;
/// Slots of FaRM-KV's neighbourhood, as HERD takes them from its authors.
pub const NEIGHBOURHOOD: usize = 6;
/// Before the key of a slot whose value is in it.
pub const SLOT_HEADER_BYTES: usize = 16;
/// The same where it is not.
pub const FAR_HEADER_BYTES: usize = 32;
/// What extents are measured in.
pub const UNIT_BYTES: usize = 8;

/// Where the functions of a key begin: which is which.
const CHECKSUM: u64 = 0;
const HOME: u64 = 1;
const TAG: u64 = 1 + PLACES as u64;

fn hash(function: u64, pieces: &[&[u8]]) -> u64 {
    let mut hasher = SipHasher13::new_with_keys(function, 0);
    pieces.iter().for_each(|piece| hasher.write(piece));
    hasher.finish()
}

/// The high bits of a hash, as a number below `count`.
fn scale(hash: u64, count: usize) -> usize {
    ((u128::from(hash) * count as u128) >> 64) as usize
}

/// What tells torn bytes from whole ones.
pub fn checksum(pieces: &[&[u8]]) -> u64 {
    hash(CHECKSUM, pieces)
}

/// Place number `place` of a key among `buckets`.
pub fn place(key: &[u8], place: usize, buckets: usize) -> usize {
    assert!(place < PLACES, "a key has {PLACES} places");
    scale(hash(HOME + place as u64, &[key]), buckets)
}

/// The slot where a key's neighbourhood begins, of `homes`; and of so many queues its own.
pub fn home(key: &[u8], homes: usize) -> usize {
    place(key, 0, homes)
}

/// Tells most keys of one bucket apart.
pub fn tag(key: &[u8]) -> u32 {
    hash(TAG, &[key]) as u32
}

/// Lengths that an item can have.
fn are_possible(key_bytes: usize, value_bytes: usize) -> bool {
    key_bytes <= KEY_BYTES_MAX && value_bytes <= VALUE_BYTES_MAX
}

/// Numbers of a record, one behind the other.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn next<const N: usize>(&mut self) -> [u8; N] {
        let (first, rest) = self.0.split_first_chunk().expect("records have their length");
        self.0 = rest;
        *first
    }

    fn u16(&mut self) -> usize {
        u16::from_le_bytes(self.next()).into()
    }

    fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.next())
    }

    fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.next())
    }
}

/// What a reader thinks of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seen<T> {
    /// Nothing is there.
    Empty,
    /// It is whole.
    Whole(T),
    /// It was being written, or is nonsense.
    Torn,
}

/// A bucket with an item.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Bucket {
    /// Where the extent begins, in units.
    pub unit: u32,
    /// Length of the key; 0 is an empty bucket.
    pub key_bytes: usize,
    /// Of the value.
    pub value_bytes: usize,
    /// See [`tag`].
    pub tag: u32,
    /// How often the bucket was written.
    pub version: u32,
    /// Of the extent.
    pub extent_checksum: u64,
}

impl Bucket {
    /// As it stands in memory.
    pub fn to_bytes(self) -> [u8; BUCKET_BYTES] {
        let mut out = [0; BUCKET_BYTES];
        out[..4].copy_from_slice(&self.unit.to_le_bytes());
        out[4..6].copy_from_slice(&(self.key_bytes as u16).to_le_bytes());
        out[6..8].copy_from_slice(&(self.value_bytes as u16).to_le_bytes());
        out[8..12].copy_from_slice(&self.tag.to_le_bytes());
        out[12..16].copy_from_slice(&self.version.to_le_bytes());
        out[16..24].copy_from_slice(&self.extent_checksum.to_le_bytes());
        let sum = checksum(&[&out[..24]]);
        out[24..].copy_from_slice(&sum.to_le_bytes());
        out
    }

    /// From memory; whether its checksum is right is not asked if `trust`.
    pub fn parse(bytes: &[u8; BUCKET_BYTES], trust: bool) -> Seen<Bucket> {
        let mut fields = Fields(bytes);
        let bucket = Bucket {
            unit: fields.u32(),
            key_bytes: fields.u16(),
            value_bytes: fields.u16(),
            tag: fields.u32(),
            version: fields.u32(),
            extent_checksum: fields.u64(),
        };
        let is_right = trust || fields.u64() == checksum(&[&bytes[..24]]);
        match is_right && are_possible(bucket.key_bytes, bucket.value_bytes) {
            false => Seen::Torn,
            true if bucket.key_bytes == 0 => Seen::Empty,
            true => Seen::Whole(bucket),
        }
    }

    /// Where the extent is.
    pub fn address(&self) -> u64 {
        u64::from(self.unit) * UNIT_BYTES as u64
    }

    /// How long it is.
    pub fn extent_bytes(&self) -> usize {
        self.key_bytes + self.value_bytes
    }
}

/// How FaRM-KV's slots are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slots {
    /// Keys begin their neighbourhoods in one of so many; behind the last are
    /// [`NEIGHBOURHOOD`] - 1 more slots.
    pub homes: usize,
    /// Longest key.
    pub key_bytes_max: usize,
    /// Longest value that stands in its slot; `None`: values stand elsewhere.
    pub value_bytes_max: Option<usize>,
}

/// Where a slot says its value is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Value<'a> {
    /// Here.
    Here(&'a [u8]),
    /// In an extent.
    There {
        /// Where that begins, in units.
        unit: u32,
        /// How long it is.
        bytes: usize,
        /// Its checksum.
        checksum: u64,
    },
}

/// A slot with an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slot<'a> {
    /// The key; none is an empty slot.
    pub key: &'a [u8],
    /// Its value.
    pub value: Value<'a>,
    /// How often the slot was written.
    pub version: u32,
}

impl Slots {
    /// How many slots there are.
    pub const fn count(&self) -> usize {
        self.homes + NEIGHBOURHOOD - 1
    }

    /// Bytes of each.
    pub const fn slot_bytes(&self) -> usize {
        let bytes = match self.value_bytes_max {
            Some(value_bytes_max) => SLOT_HEADER_BYTES + self.key_bytes_max + value_bytes_max,
            None => FAR_HEADER_BYTES + self.key_bytes_max,
        };
        bytes.next_multiple_of(UNIT_BYTES)
    }

    /// Append a slot as it stands in memory, no longer than what is in it.
    pub fn write(&self, slot: &Slot<'_>, out: &mut Vec<u8>) {
        let start = out.len();
        let value_bytes = match slot.value {
            Value::Here(value) => value.len(),
            Value::There { bytes, .. } => bytes,
        };
        out.extend_from_slice(&[0; 8]);
        out.extend_from_slice(&slot.version.to_le_bytes());
        out.extend_from_slice(&(slot.key.len() as u16).to_le_bytes());
        out.extend_from_slice(&(value_bytes as u16).to_le_bytes());
        match slot.value {
            Value::Here(value) => {
                out.extend_from_slice(slot.key);
                out.extend_from_slice(value);
            }
            Value::There { unit, checksum, .. } => {
                out.extend_from_slice(&unit.to_le_bytes());
                out.extend_from_slice(&[0; 4]);
                out.extend_from_slice(&checksum.to_le_bytes());
                out.extend_from_slice(slot.key);
            }
        }
        assert!(out.len() - start <= self.slot_bytes(), "the server's limits");
        let sum = checksum(&[&out[start + 8..]]);
        out[start..start + 8].copy_from_slice(&sum.to_le_bytes());
    }

    /// From the memory of one slot; whether its checksum is right is not asked if `trust`.
    pub fn parse<'a>(&self, bytes: &'a [u8], trust: bool) -> Seen<Slot<'a>> {
        let mut fields = Fields(bytes);
        let sum = fields.u64();
        let version = fields.u32();
        let (key_bytes, value_bytes) = (fields.u16(), fields.u16());
        let far = match self.value_bytes_max {
            Some(_) => None,
            None => Some((fields.u32(), fields.u32(), fields.u64())),
        };
        let rest = fields.0;
        let here_bytes = if far.is_some() { 0 } else { value_bytes };
        let used = key_bytes + here_bytes;
        if !are_possible(key_bytes, value_bytes) || used > rest.len() {
            return Seen::Torn;
        }
        let header_bytes = bytes.len() - rest.len();
        if !trust && sum != checksum(&[&bytes[8..header_bytes + used]]) {
            return Seen::Torn;
        }
        let (key, value) = rest[..used].split_at(key_bytes);
        let value = match far {
            None => Value::Here(value),
            Some((unit, _, checksum)) => Value::There { unit, bytes: value_bytes, checksum },
        };
        if key.is_empty() { Seen::Empty } else { Seen::Whole(Slot { key, value, version }) }
    }
}

/// What a client knows of the memory that it READs. The index begins at its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// Pilaf's: so many buckets.
    Cuckoo {
        /// Of [`BUCKET_BYTES`] each.
        buckets: usize,
    },
    /// FaRM-KV's.
    Hopscotch(Slots),
}

impl Shape {
    /// Bytes of the index; extents are behind it.
    pub const fn index_bytes(&self) -> usize {
        match self {
            Shape::Cuckoo { buckets } => buckets.saturating_mul(BUCKET_BYTES),
            Shape::Hopscotch(slots) => slots.count().saturating_mul(slots.slot_bytes()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUCKET: Bucket = Bucket {
        unit: 0xfedc_ba98,
        key_bytes: 16,
        value_bytes: 1000,
        tag: 0x0123_4567,
        version: 99,
        extent_checksum: 0x1122_3344_5566_7788,
    };
    const NEAR: Slots = Slots { homes: 10, key_bytes_max: 16, value_bytes_max: Some(33) };
    const FAR: Slots = Slots { homes: 10, key_bytes_max: 16, value_bytes_max: None };

    #[test]
    fn a_bucket_comes_back_and_any_byte_changed_is_noticed() {
        let bytes = BUCKET.to_bytes();
        assert_eq!(Bucket::parse(&bytes, false), Seen::Whole(BUCKET));
        assert_eq!(BUCKET.address(), 8 * 0xfedc_ba98);
        for at in 0..BUCKET_BYTES {
            let mut torn = bytes;
            torn[at] ^= 0x20;
            assert_eq!(Bucket::parse(&torn, false), Seen::Torn, "byte {at}");
        }
        let empty = Bucket { version: 4, ..Bucket::default() };
        assert_eq!(Bucket::parse(&empty.to_bytes(), false), Seen::Empty);
        let nonsense = Bucket { value_bytes: VALUE_BYTES_MAX + 1, ..BUCKET };
        assert_eq!(Bucket::parse(&nonsense.to_bytes(), false), Seen::Torn);
    }

    #[test]
    fn a_slot_comes_back_and_any_byte_changed_is_noticed() {
        let there = Value::There { unit: 77, bytes: 1024, checksum: u64::MAX - 5 };
        let nowhere = Value::There { unit: 0, bytes: 0, checksum: 0 };
        for (slots, value, none) in
            [(NEAR, Value::Here(b"the value"), Value::Here(b"")), (FAR, there, nowhere)]
        {
            for key in [&b"k"[..], b"sixteen bytes ok"] {
                let slot = Slot { key, value, version: 3 };
                let mut bytes = Vec::new();
                slots.write(&slot, &mut bytes);
                let used = bytes.len();
                bytes.resize(slots.slot_bytes(), 0xaa);
                assert_eq!(slots.parse(&bytes, false), Seen::Whole(slot));
                for at in 0..used {
                    let mut torn = bytes.clone();
                    torn[at] ^= 0x20;
                    assert_eq!(slots.parse(&torn, false), Seen::Torn, "byte {at}");
                }
            }
            let mut bytes = Vec::new();
            slots.write(&Slot { key: b"", value: none, version: 1 }, &mut bytes);
            bytes.resize(slots.slot_bytes(), 0);
            assert_eq!(slots.parse(&bytes, false), Seen::Empty);
        }
    }

    #[test]
    fn lengths_beyond_a_slot_are_torn_even_for_who_trusts() {
        for slots in [NEAR, FAR] {
            let mut bytes = vec![0; slots.slot_bytes()];
            bytes[12..14].copy_from_slice(&200_u16.to_le_bytes());
            assert_eq!(slots.parse(&bytes, true), Seen::Torn);
            bytes[12..14].copy_from_slice(&u16::MAX.to_le_bytes());
            assert_eq!(slots.parse(&bytes, true), Seen::Torn);
        }
    }

    #[test]
    fn places_are_within_the_index_and_spread_over_it() {
        let mut met = [[0; 8]; PLACES];
        for number in 0..8000_u32 {
            for (which, met) in met.iter_mut().enumerate() {
                met[place(&number.to_le_bytes(), which, 8)] += 1;
            }
        }
        assert!(met.iter().flatten().all(|&count| (800..1200).contains(&count)), "{met:?}");
        assert_eq!((place(b"any", 2, 1), home(b"any", 1)), (0, 0));
    }
}
