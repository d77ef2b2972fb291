//! Segments of the log: their header, and how to read one that may be torn or damaged
//! (docs/disk-format.md, "Segment").
//!
//! The region is cut into slots of one size. A slot's life as a segment begins with a header that
//! lists every other segment in use and where it ends; so the newest header vouches for the whole
//! log, and a segment that is missing, or shorter than it was, is known as such.
//!
//! Records begin at one offset in all slots, behind a header as long as that of the store's first
//! log. Where the log has grown and a header lists more than that takes, the rest of the list is at
//! the end of the slot, and the records end before that.

use crate::log::record::{self, Flaw, Kind, Record};
use crate::media::bytes::{Put, Reader};
use crate::types::{BLOCK_BYTES, Error, FORMAT_VERSION, LINE_BYTES, Result};
use crc32c::crc32c;
use laneway_sync::planted::{Bug, is_planted};

const MAGIC: u64 = 0x3147_4553_5941_4e4c; // "LNAYSEG1"
const FIXED_BYTES: usize = 64;
const LISTED_BYTES: usize = 16;
const CRC_AT: usize = 12;
/// Where a header says how many it lists.
const COUNT_AT: usize = 48;
/// Fewer segments leave nothing to migrate from.
pub const SEGMENTS_MIN: u32 = 6;

/// How a region is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Bytes of a slot.
    pub segment_bytes: u32,
    /// How many slots.
    pub segments: u32,
    /// Bytes of a slot before its first record.
    pub header_bytes: u32,
    /// Bytes at the end of a slot for what its header lists beyond these.
    pub overflow_bytes: u32,
}

impl Shape {
    /// Cuts `region_bytes`.
    pub fn of(region_bytes: u64, segment_bytes: u32) -> Result<Shape> {
        if segment_bytes == 0 || !(segment_bytes as usize).is_multiple_of(BLOCK_BYTES) {
            return Err(Error::Setting(format!(
                "a segment of {segment_bytes} bytes: must be a multiple of {BLOCK_BYTES}"
            )));
        }
        let segments = region_bytes / u64::from(segment_bytes);
        let header = header_bytes(segments);
        let is_long = u64::from(segment_bytes) < 2 * header;
        let most = u64::from(listed_most(segment_bytes));
        if is_long && u64::from(SEGMENTS_MIN) <= most {
            return Err(Error::Setting(format!(
                "--pm-size: {region_bytes} bytes: a log has at most {}, as many segments as half \
                 of one has room to list",
                most * u64::from(segment_bytes)
            )));
        }
        if segments < u64::from(SEGMENTS_MIN) || is_long {
            return Err(Error::Setting(format!(
                "--pm-size: {region_bytes} bytes in segments of {segment_bytes}: at least \
                 {SEGMENTS_MIN} segments are needed, and each at least {} bytes",
                2 * header
            )));
        }
        let segments = u32::try_from(segments)
            .map_err(|_| Error::Setting("--pm-size: too many segments".into()))?;
        Ok(Shape { segment_bytes, segments, header_bytes: header as u32, overflow_bytes: 0 })
    }

    /// Of a log that was made with headers of this length, and may have grown since.
    pub fn of_grown(segments: u32, segment_bytes: u32, header_bytes: u32) -> Result<Shape> {
        let region_bytes = u64::from(segments) * u64::from(segment_bytes);
        let shape = Shape::of(region_bytes, segment_bytes)?;
        let is_one = (header_bytes as usize).is_multiple_of(BLOCK_BYTES) && 0 < header_bytes;
        match shape.header_bytes.checked_sub(header_bytes).filter(|_| is_one) {
            Some(overflow_bytes) => Ok(Shape { header_bytes, overflow_bytes, ..shape }),
            None => Err(Error::Corrupt(format!(
                "superblock: {segments} segments with headers of {header_bytes} bytes"
            ))),
        }
    }

    /// How many segments the log may have: as many as half of a slot has room to list.
    pub fn segments_most(&self) -> u32 {
        listed_most(self.segment_bytes)
    }

    /// Where the records of a slot end at the latest.
    pub fn records_end(&self) -> u32 {
        self.segment_bytes - self.overflow_bytes
    }

    /// Where a slot begins in the region.
    pub fn start(&self, slot: u32) -> u64 {
        u64::from(slot) * u64::from(self.segment_bytes)
    }

    /// The slot that holds a byte of the region.
    pub fn slot_of(&self, at: u64) -> u32 {
        (at / u64::from(self.segment_bytes)) as u32
    }

    /// The longest record, without padding.
    pub fn record_bytes_max(&self) -> usize {
        // Two fit a segment, so that none is mostly padding; one of a log that has grown, where
        // those from before must still find room.
        (self.segment_bytes - self.header_bytes) as usize / 2 - LINE_BYTES
    }
}

/// How many segments half of one has room to list.
fn listed_most(segment_bytes: u32) -> u32 {
    let half = segment_bytes / 2;
    let list_bytes = half - half % BLOCK_BYTES as u32;
    list_bytes.saturating_sub(FIXED_BYTES as u32) / LISTED_BYTES as u32
}

/// Bytes of a header in a log of so many segments.
pub fn header_bytes(segments: u64) -> u64 {
    (FIXED_BYTES as u64 + LISTED_BYTES as u64 * segments).next_multiple_of(BLOCK_BYTES as u64)
}

/// Another segment that a header vouches for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Listed {
    /// Its slot.
    pub slot: u32,
    /// Where its records end.
    pub end: u32,
    /// Its generation.
    pub generation: u64,
}

/// The front of a segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// Whose it is.
    pub store_id: u64,
    /// Counts the lives of all slots.
    pub generation: u64,
    /// Everything with a lower sequence was flushed.
    pub flush_sequence: u64,
    /// The number of a superblock that was durable when this one began; 0 if it does not say.
    pub superblock: u64,
    /// The other segments in use when this one began.
    pub listed: Vec<Listed>,
}

/// What lies at the front of a slot.
#[derive(Debug)]
pub enum Front {
    /// No whole header.
    None,
    /// A whole header of another store.
    Foreign,
    /// A whole header of the store that was asked for.
    Own(Header),
}

/// A number that only records of this life of a segment carry. The store's id is random, so no
/// client can put one into a value.
pub fn life_of(store_id: u64, generation: u64) -> u32 {
    let mut bytes = store_id.to_le_bytes().to_vec();
    bytes.put_u64(generation);
    crc32c(&bytes)
}

impl Header {
    /// As it lies at the front of a slot, as long as the shape says, and behind that what lies at
    /// its end, if it lists so much.
    pub fn encode(&self, shape: &Shape) -> Vec<u8> {
        let front = shape.header_bytes as usize;
        let mut out = Vec::with_capacity(front);
        out.put_u64(MAGIC);
        out.put_u32(FORMAT_VERSION);
        out.put_u32(0); // the crc
        out.put_u64(self.store_id);
        out.put_u64(self.generation);
        out.put_u64(self.flush_sequence);
        out.put_u32(shape.segment_bytes);
        out.put_u32(shape.segments);
        out.put_u32(self.listed.len() as u32);
        out.put_u64(self.superblock);
        out.resize(FIXED_BYTES, 0);
        for listed in &self.listed {
            out.put_u32(listed.slot);
            out.put_u32(listed.end);
            out.put_u64(listed.generation);
        }
        let crc = crc_of(&out);
        out[CRC_AT..CRC_AT + 4].copy_from_slice(&crc.to_le_bytes());
        out.resize(out.len().next_multiple_of(BLOCK_BYTES).max(front), 0);
        let most = front + shape.overflow_bytes as usize;
        assert!(out.len() <= most, "a log has no more segments than its headers list");
        out
    }

    /// How much of a header with this front lies at the end of its slot: as many blocks as what it
    /// lists takes, however long the log was or is. So one that is rebuilt once the log has grown
    /// again covers none of the records that were appended before.
    pub fn rest_bytes(front: &[u8], shape: &Shape) -> usize {
        let mut reader = Reader::new(front);
        if reader.u64() != Some(MAGIC) {
            return 0;
        }
        let mut reader = Reader::new(front.get(COUNT_AT..).unwrap_or_default());
        let count = reader.u32().filter(|count| *count < shape.segments);
        let bytes = count.map_or(0, |count| header_bytes(count.into()));
        bytes.saturating_sub(shape.header_bytes.into()) as usize
    }

    /// Whether what a header with this front lists goes on behind that.
    pub fn goes_on(front: &[u8]) -> bool {
        if Reader::new(front).u64() != Some(MAGIC) {
            return false;
        }
        let count = Reader::new(front.get(COUNT_AT..).unwrap_or_default()).u32();
        let list_bytes = u64::from(count.unwrap_or(0)) * LISTED_BYTES as u64;
        (front.len() as u64) < FIXED_BYTES as u64 + list_bytes
    }

    /// What a header of `store_id` says by its front, but for what it lists; none where it says
    /// anything that a header of this store does not. No crc was checked.
    pub fn claimed(front: &[u8], shape: &Shape, store_id: u64) -> Option<Header> {
        let mut reader = Reader::new(front);
        let (magic, version, _crc) = (reader.u64()?, reader.u32()?, reader.u32()?);
        let (id, generation) = (reader.u64()?, reader.u64()?);
        let flush_sequence = reader.u64()?;
        let (segment_bytes, segments, count) = (reader.u32()?, reader.u32()?, reader.u32()?);
        let superblock = reader.u64()?;
        let is_own = magic == MAGIC && version == FORMAT_VERSION && id == store_id;
        let fits = segment_bytes == shape.segment_bytes
            && segments <= shape.segments
            && count < segments
            && u64::from(shape.header_bytes) <= header_bytes(segments.into());
        let listed = Vec::new();
        (is_own && fits).then_some(Header {
            store_id,
            generation,
            flush_sequence,
            superblock,
            listed,
        })
    }

    /// Reads the header of `store_id`, of its front and the rest of it behind that.
    pub fn decode(bytes: &[u8], shape: &Shape, store_id: u64) -> Result<Front> {
        let mut reader = Reader::new(bytes);
        if reader.u64() != Some(MAGIC) {
            return Ok(Front::None);
        }
        let (version, crc) = (reader.u32(), reader.u32());
        let parsed = (|| {
            let (id, generation) = (reader.u64()?, reader.u64()?);
            let flush_sequence = reader.u64()?;
            let (segment_bytes, segments) = (reader.u32()?, reader.u32()?);
            let count = reader.u32()? as usize;
            let used = FIXED_BYTES.checked_add(count.checked_mul(LISTED_BYTES)?)?;
            let whole = bytes.get(..used)?;
            let superblock = reader.u64()?;
            reader.take(FIXED_BYTES - 8 - 8 - 8 * 3 - 12 - 8)?;
            let mut listed = Vec::new();
            for _ in 0..count {
                let (slot, end) = (reader.u32()?, reader.u32()?);
                listed.push(Listed { slot, end, generation: reader.u64()? });
            }
            let header = Header { store_id: id, generation, flush_sequence, superblock, listed };
            (Some(crc_of(whole)) == crc).then_some((header, segment_bytes, segments))
        })();
        let Some((header, segment_bytes, segments)) = parsed else { return Ok(Front::None) };
        if version != Some(FORMAT_VERSION) {
            return Err(Error::Version { found: version.unwrap_or(0) });
        }
        if header.store_id != store_id {
            return Ok(Front::Foreign);
        }
        // The log may have grown since (see `grow`); records begin where they began.
        let is_as_long = u64::from(shape.header_bytes) <= header_bytes(segments.into());
        let fits = segments <= shape.segments && is_as_long;
        if segments < shape.segments && is_planted(Bug::GrownLogForgets) {
            return Ok(Front::None);
        }
        if segment_bytes != shape.segment_bytes || !fits {
            return Err(Error::Mismatch(format!(
                "the log has {segments} segments of {segment_bytes} bytes, and {} of {} were \
                 asked for",
                shape.segments, shape.segment_bytes
            )));
        }
        let sane = |l: &Listed| {
            l.slot < shape.segments
                && (shape.header_bytes..=shape.segment_bytes).contains(&l.end)
                && l.generation < header.generation
        };
        match header.listed.iter().all(sane) {
            true => Ok(Front::Own(header)),
            false => Ok(Front::None),
        }
    }
}

fn crc_of(bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c(&bytes[..CRC_AT]), &bytes[CRC_AT + 4..])
}

/// What a scan meets.
#[derive(Debug)]
pub enum Met<'a> {
    /// A whole record.
    Record {
        /// Its offset in the segment.
        offset: u32,
        /// Its content.
        record: Record<'a>,
        /// The segment was durable up to here when it was appended.
        durable_to: u32,
    },
    /// A record that was durable and is damaged.
    Damaged {
        /// Its offset in the segment.
        offset: u32,
        /// What it claims to be, if the next record begins where it claims to end.
        claim: Option<(Kind, u64, &'a [u8])>,
    },
}

/// What a scan is about.
#[derive(Debug, Clone, Copy)]
pub struct Scan {
    /// [`life_of`] the segment.
    pub life: u32,
    /// Where to begin.
    pub from: u32,
    /// Where the records end, if a newer header says so.
    pub sealed_end: Option<u32>,
    /// The segment was durable up to here, whatever its records say.
    pub vouched: u32,
}

impl Scan {
    /// Calls `meet` for all records of a segment in order; returns where they end.
    pub fn run<'a>(&self, segment: &'a [u8], mut meet: impl FnMut(Met<'a>)) -> u32 {
        let limit = self.sealed_end.map_or(segment.len(), |end| segment.len().min(end as usize));
        let segment = &segment[..limit];
        let mut at = self.from as usize;
        while at < limit {
            if let Ok((record, bytes, durable_to)) = self.whole(segment, at) {
                meet(Met::Record { offset: at as u32, record, durable_to });
                at += bytes;
                continue;
            }
            let next = self.next_whole(segment, at);
            let vouched = self.vouched as usize;
            if self.sealed_end.is_none() && vouched <= at && !self.was_durable(segment, at) {
                break; // the tail, torn or not
            }
            let end = if self.sealed_end.is_some() { limit } else { limit.min(vouched) };
            let next = next.unwrap_or(end);
            let claim = match record::decode(&segment[at..]) {
                Err(Flaw::Damaged { bytes }) if at + bytes.next_multiple_of(LINE_BYTES) == next => {
                    record::claim(&segment[at..])
                }
                _ => None,
            };
            meet(Met::Damaged { offset: at as u32, claim });
            at = next;
        }
        at.min(limit) as u32
    }

    /// The record at an offset, its length with padding, and its `durable_to`.
    fn whole<'a>(
        &self,
        segment: &'a [u8],
        at: usize,
    ) -> std::result::Result<(Record<'a>, usize, u32), Flaw> {
        let (record, stamp) = record::decode(&segment[at..])?;
        let bytes = record.bytes().next_multiple_of(LINE_BYTES);
        match stamp.life == self.life {
            true => Ok((record, bytes, stamp.durable_to)),
            false => Err(Flaw::Nothing),
        }
    }

    /// Where the next whole record of this life behind `at` begins.
    pub fn next_whole(&self, segment: &[u8], at: usize) -> Option<usize> {
        let later = (at + LINE_BYTES..segment.len()).step_by(LINE_BYTES);
        later.into_iter().find(|&at| self.whole(segment, at).is_ok())
    }

    /// Whether a later record says that the segment was durable beyond `at`.
    fn was_durable(&self, segment: &[u8], at: usize) -> bool {
        let mut later = (at + LINE_BYTES..segment.len()).step_by(LINE_BYTES);
        later.any(|later| {
            record::decode(&segment[later..])
                .is_ok_and(|(_, stamp)| stamp.life == self.life && at < stamp.durable_to as usize)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn in_the_longest_log_a_header_lists_all_others_and_the_longest_record_finds_room() {
        let segment_bytes: u32 = 4 << 20;
        let first = Shape::of(64 * u64::from(segment_bytes), segment_bytes).unwrap();
        let segments = first.segments_most();
        let shape = Shape::of_grown(segments, segment_bytes, first.header_bytes).unwrap();
        assert!(Shape::of_grown(segments + 1, segment_bytes, first.header_bytes).is_err());
        assert_eq!(shape.record_bytes_max(), first.record_bytes_max());
        assert!(first.record_bytes_max() < (shape.records_end() - shape.header_bytes) as usize);
        for count in [0, 251, 252, 253, segments - 1] {
            let listed = |slot| Listed { slot, end: segment_bytes, generation: 1 };
            let listed: Vec<Listed> = (0..count).map(listed).collect();
            let (store_id, generation, flush_sequence, superblock) = (7, 2, 3, 4);
            let header = Header { store_id, generation, flush_sequence, superblock, listed };
            let bytes = header.encode(&shape);
            let (front, rest) = bytes.split_at(first.header_bytes as usize);
            assert_eq!(rest.len(), Header::rest_bytes(front, &shape), "{count}");
            assert_eq!(rest.is_empty(), count <= 252, "{count}");
            assert!(rest.len() as u32 <= shape.overflow_bytes, "{count}");
            let read = Header::decode(&bytes, &shape, store_id).unwrap();
            assert!(matches!(read, Front::Own(read) if read == header), "{count}");
        }
    }

    #[test]
    fn a_log_of_more_segments_than_a_header_lists_is_refused_with_the_most_that_there_may_be() {
        let segment_bytes: u32 = 4 << 20;
        let some = Shape::of(64 * u64::from(segment_bytes), segment_bytes).unwrap();
        let bytes = u64::from(some.segments_most()) * u64::from(segment_bytes);
        let most = Shape::of(bytes, segment_bytes).unwrap();
        assert_eq!(most.segments, some.segments_most());
        let told = Shape::of(1 << 40, segment_bytes).unwrap_err().to_string();
        assert!(told.contains(&format!("at most {bytes}")), "{told}");
    }
}
