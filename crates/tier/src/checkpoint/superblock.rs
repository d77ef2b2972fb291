//! The root: two superblocks at the front of the SSD, written in turn, each naming the two newest
//! checkpoints (docs/disk-format.md, "Superblock").

use crate::log::segment::{Shape, header_bytes};
use crate::media::bytes::{Blocks, Put, Reader};
use crate::media::disk::{Barrier, Disk};
use crate::ssd::pointer::Pointer;
use crate::store::{Checkpoint, SUPER_BLOCKS};
use crate::types::{
    BLOCK_BYTES, Error, FORMAT_VERSION, FORMAT_VERSION_MAX, HAS_COMPRESSED, HAS_LONG_LOG, HAS_TREE,
    Position, Result, doing,
};
use crc32c::crc32c;

const MAGIC: u64 = 0x3152_5553_5941_4e4c; // "LNAYSUR1"
const CRC_AT: usize = 12;
/// What is told of an SSD that cannot be all of a store's.
const SHORT: &str = "it was made shorter, or is not this store's; nothing was written. Give --ssd \
                     the whole one";
/// Bytes of one superblock.
pub const SLOT_BYTES: usize = SUPER_BLOCKS as usize / 2 * BLOCK_BYTES;
/// No index is that large.
const CHECKPOINT_BYTES_MAX: u64 = 1 << 40;

/// What both superblocks say, and the newest one's part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Superblock {
    /// Drawn when the store was made.
    pub store_id: u64,
    /// Counts superblocks.
    pub generation: u64,
    /// Of the log.
    pub segment_bytes: u32,
    /// Of the log.
    pub segments: u32,
    /// Behind the log: how many segments' worth of the region hold the index; 0 for one in memory.
    pub tree_segments: u32,
    /// Of the SSD.
    pub blocks: u64,
    /// Of each segment before its records: as in a log of as many segments as it was made with, or
    /// of more.
    pub header_bytes: u32,
    /// Whether values may be compressed, which a program must know to read them.
    pub has_compressed: bool,
    /// The newest, and the one before.
    pub checkpoints: [Checkpoint; 2],
    /// As it was read: the other one is damaged, and may have been newer.
    pub is_alone: bool,
    /// As it was read: the other one has the sizes from before the store grew, or does not say
    /// that values may be compressed.
    pub is_half_grown: bool,
}

/// What the front of an SSD holds.
#[derive(Debug)]
pub enum Front {
    /// Nothing was ever written.
    Empty,
    /// A store of this id was being made when the power failed: nothing is in it.
    Begun(u64),
    /// A store.
    Store(Superblock),
}

/// Whether a program may have written this version: none has an index behind a log that has grown.
fn is_known(version: u32) -> bool {
    const NEVER: u32 = HAS_TREE | HAS_LONG_LOG;
    (FORMAT_VERSION..=FORMAT_VERSION_MAX).contains(&version)
        && (version - FORMAT_VERSION) & NEVER != NEVER
}

impl Superblock {
    /// Segments of the log, and blocks of the SSD.
    pub fn sizes(&self) -> (u32, u64) {
        (self.segments, self.blocks)
    }

    /// Bytes of all segments of the log.
    pub fn log_bytes(&self) -> u64 {
        u64::from(self.segments) * u64::from(self.segment_bytes)
    }

    /// What a program must know to use the store.
    fn version(&self) -> u32 {
        let has = |has: bool, feature: u32| if has { feature } else { 0 };
        FORMAT_VERSION
            + has(self.tree_segments != 0, HAS_TREE)
            + has(self.has_compressed, HAS_COMPRESSED)
            + has(self.is_log_long(), HAS_LONG_LOG)
    }

    /// Whether headers of the log list more than the first ones did.
    fn is_log_long(&self) -> bool {
        header_bytes(self.segments.into()) != u64::from(self.header_bytes)
    }

    /// How the log is cut.
    pub fn shape(&self) -> Result<Shape> {
        Shape::of_grown(self.segments, self.segment_bytes, self.header_bytes)
    }

    fn encode(&self) -> Option<Blocks> {
        let mut out = Vec::new();
        out.put_u64(MAGIC);
        out.put_u32(self.version());
        out.put_u32(0); // the crc
        out.put_u32(0); // the length
        out.put_u32(self.segment_bytes);
        out.put_u32(self.segments);
        out.put_u32(self.tree_segments);
        out.put_u64(self.store_id);
        out.put_u64(self.generation);
        out.put_u64(self.blocks);
        for checkpoint in &self.checkpoints {
            out.put_u64(checkpoint.position.generation);
            out.put_u32(checkpoint.position.offset);
            checkpoint.body.encode(&mut out);
        }
        if self.is_log_long() {
            out.put_u32(self.header_bytes);
        }
        let length = out.len();
        out[CRC_AT + 4..CRC_AT + 8].copy_from_slice(&(length as u32).to_le_bytes());
        let crc = crc32c(&out[CRC_AT + 4..]);
        out[CRC_AT..CRC_AT + 4].copy_from_slice(&crc.to_le_bytes());
        let mut blocks = Blocks::zeroed(length);
        blocks.as_mut()[..length].copy_from_slice(&out);
        (length <= SLOT_BYTES).then_some(blocks)
    }

    fn decode(bytes: &[u8]) -> Result<Option<Superblock>> {
        let mut reader = Reader::new(bytes);
        if reader.u64() != Some(MAGIC) {
            return Ok(None);
        }
        let (Some(version), Some(crc)) = (reader.u32(), reader.u32()) else { return Ok(None) };
        let length = reader.u32().unwrap_or(0) as usize;
        let whole = bytes.get(CRC_AT + 4..length).map(crc32c) == Some(crc);
        if !whole {
            return Ok(None);
        }
        if !is_known(version) {
            return Err(Error::Version { found: version });
        }
        let has = |feature: u32| (version - FORMAT_VERSION) & feature != 0;
        let mut parse = || {
            let (segment_bytes, segments) = (reader.u32()?, reader.u32()?);
            let tree_segments = reader.u32()?;
            let (store_id, generation, blocks) = (reader.u64()?, reader.u64()?, reader.u64()?);
            let mut checkpoint = || {
                let position = Position { generation: reader.u64()?, offset: reader.u32()? };
                let body = Pointer::decode(&mut reader, blocks, CHECKPOINT_BYTES_MAX)?;
                Some(Checkpoint { position, body })
            };
            let checkpoints = [checkpoint()?, checkpoint()?];
            let header_bytes = match has(HAS_LONG_LOG) {
                true => reader.u32()?,
                false => u32::try_from(header_bytes(segments.into())).ok()?,
            };
            Some(Superblock {
                store_id,
                generation,
                segment_bytes,
                segments,
                tree_segments,
                blocks,
                header_bytes,
                has_compressed: has(HAS_COMPRESSED),
                checkpoints,
                is_alone: false,
                is_half_grown: false,
            })
        };
        let parsed = parse().filter(|superblock| superblock.version() == version);
        // No crc covers the version, and what else is there hangs on it.
        let is_all = bytes.len() - reader.len() == length;
        Ok(parsed.filter(|_| is_all))
    }

    /// Writes it, durable when this returns.
    pub fn write(&self, ssd: &dyn Disk) -> Result<()> {
        let Some(bytes) = self.encode() else {
            return Err(Error::SsdFull { blocks: (SLOT_BYTES / BLOCK_BYTES) as u64 });
        };
        let at = self.generation % 2 * SLOT_BYTES as u64;
        doing("write a superblock", ssd.write_all(at, bytes.as_slice()))?;
        doing("sync a superblock", ssd.sync(Barrier::Superblock))
    }

    /// Makes the two of a new store, and what else it is made of between them.
    pub fn make(&mut self, ssd: &dyn Disk, rest: impl FnOnce() -> Result<()>) -> Result<()> {
        self.generation = 1;
        self.write(ssd)?;
        rest()?;
        self.generation = 2;
        self.write(ssd)
    }

    /// Refuses an SSD that has no room for anything else.
    pub fn check_bytes(bytes: u64) -> Result<()> {
        match 2 * SLOT_BYTES as u64 <= bytes {
            true => Ok(()),
            false => Err(Error::Setting(format!(
                "--ssd-size: {bytes} bytes: must be at least {}",
                4 * SLOT_BYTES
            ))),
        }
    }

    /// Reads the newer of the two that are whole; `problems` learns of one that is not.
    pub fn read(ssd: &dyn Disk, problems: &mut Vec<String>) -> Result<Front> {
        let there = ssd.bytes();
        if there < 2 * SLOT_BYTES as u64 {
            return Err(Error::Mismatch(format!(
                "the SSD has {there} bytes, and every store more: {SHORT}"
            )));
        }
        let mut blocks = Blocks::zeroed(SLOT_BYTES);
        let mut found: Vec<Superblock> = Vec::new();
        let mut damaged = Vec::new();
        let mut second_is_blank = false;
        // The superblock of generation 1, the first of a new store, is in the second slot.
        for slot in [0, 1] {
            let at = slot * SLOT_BYTES as u64;
            doing("read a superblock", ssd.read_all(at, blocks.as_mut()))?;
            match Superblock::decode(blocks.as_slice())? {
                Some(superblock) => found.push(superblock),
                None => damaged.push(slot),
            }
            second_is_blank =
                second_is_blank || (slot == 0 && blocks.as_slice().iter().all(|b| *b == 0));
        }
        found.sort_by_key(|superblock| superblock.generation);
        match found.pop() {
            // Made but for its second superblock: nothing was stored yet.
            Some(first) if first.generation == 1 && !damaged.is_empty() => {
                Ok(Front::Begun(first.store_id))
            }
            Some(mut newest) => {
                newest.is_alone = !damaged.is_empty();
                if let Some(before) = found.last() {
                    newest.is_half_grown = before.sizes() != newest.sizes()
                        || before.has_compressed != newest.has_compressed;
                    newest.has_compressed |= before.has_compressed; // no crc covers the version
                }
                if let Some(slot) = damaged.first() {
                    problems.push(format!("superblock {slot} is damaged; the other one is used"));
                }
                // Of a larger one it uses what it has until it grows (see `grow`).
                if there / (BLOCK_BYTES as u64) < newest.blocks {
                    let bytes = newest.blocks * BLOCK_BYTES as u64;
                    return Err(Error::Mismatch(format!(
                        "the SSD has {there} bytes, and the store {bytes}: {SHORT}. Where the end \
                         of a file is lost, truncate --size {bytes} makes it as long as it was, \
                         and laneway fsck then tells what was there"
                    )));
                }
                Ok(Front::Store(newest))
            }
            None if second_is_blank => Ok(Front::Empty),
            None => Err(Error::Corrupt(
                "neither superblock is whole: both are damaged, or this was never a store's, and \
                 nothing was written. Name the right --ssd, or load a backup into a new folder"
                    .into(),
            )),
        }
    }
}
