//! The checkpoint of a store whose index is in persistent memory: all but the entries
//! (docs/disk-format.md, "Checkpoint of a store with a tree"). It has what they hold, so that a
//! start need not look at them, and which lines of the tree's memory are in use.
//!
//! And where the tree lies: in the last segments' worth of the region, which are no segments.

use crate::checkpoint::head::Head;
use crate::index::fair::FairIndex;
use crate::index::fastfair::{Bits, FairTree, Kept, Part};
use crate::log::segment::Shape;
use crate::media::bytes::{Put, Reader};
use crate::media::disk::Disk;
use crate::media::pm::Region;
use crate::recovery::ledger::{Ledger, put_words, words};
use crate::ssd::large::{LargeWriter, read_piece};
use crate::ssd::pointer::Pointer;
use crate::store::{Owner, Shared};
use crate::types::{Durability, Error, IndexKind, Position, Result, Settings};
use std::sync::Arc;

const MAGIC: u64 = 0x3145_4552_5454_4c4c; // "LLTTREE1"

/// What the tree's entries hold, and where the tree stands.
pub struct Outline {
    /// Of the tree's memory.
    pub kept: Kept,
    /// Of the SSD and the log.
    pub ledger: Ledger,
}

/// How many segments' worth of a region of this size a new store gives to its tree: half.
pub fn share_of(region_bytes: u64, segment_bytes: u32) -> Result<u32> {
    let share = region_bytes / u64::from(segment_bytes.max(1)) / 2;
    match FairTree::BYTES_MIN <= share * u64::from(segment_bytes) {
        true => u32::try_from(share).map_err(|_| Error::Setting("--pm-size: too much".into())),
        false => Err(Error::Setting(format!(
            "--pm-size: --pm-index fair takes half of it, and at least {} bytes",
            FairTree::BYTES_MIN
        ))),
    }
}

/// Whether a store's index is the one that is asked for, and can be where it is.
pub fn check(region: &dyn Region, settings: &Settings, tree_segments: u32) -> Result<()> {
    let is = if tree_segments == 0 { IndexKind::BTree } else { IndexKind::Fair };
    if let Some(asked) = settings.index.filter(|asked| *asked != is) {
        let (asked, is) = (asked.name(), is.name());
        return Err(Error::Mismatch(format!(
            "--pm-index {asked}: the store was made with {is}; leave the flag out, or move the \
             store by laneway dump and load"
        )));
    }
    if is == IndexKind::Fair && region.reads_wait() {
        return Err(Error::Setting(
            "--pm-index fair: the index is changed in place in persistent memory, word by word, \
             so it needs --pm-backend dax (or emu, for comparison)"
                .into(),
        ));
    }
    if is == IndexKind::Fair && settings.durability == Durability::Interval {
        return Err(Error::Setting(
            "--pm-index fair: holds what is durable only, so it needs --durability ack; on \
             persistent memory that costs a fence"
                .into(),
        ));
    }
    Ok(())
}

/// How much of a region is the log.
pub fn log_bytes(region_bytes: u64, segment_bytes: u32, tree_segments: u32) -> u64 {
    region_bytes.saturating_sub(u64::from(tree_segments) * u64::from(segment_bytes))
}

/// The part of a region that a tree lies in, behind a log of this shape; none of no segments.
pub fn part_of(region: &Arc<dyn Region>, shape: &Shape, tree_segments: u32) -> Option<Part> {
    let bytes = u64::from(tree_segments) * u64::from(shape.segment_bytes);
    let start = shape.start(shape.segments);
    (tree_segments != 0).then(|| Part::new(region.clone(), start, bytes))
}

impl Shared {
    /// What a checkpoint of this position has of the index, which holds the log up to there.
    pub fn outline(&self, fair: &FairIndex, position: Position) -> Result<Outline> {
        fair.settled(position)?;
        fair.fence()?;
        let (kept, ledger) = fair.snapshot();
        Ok(Outline { kept, ledger: ledger.expect("counted since the store was opened") })
    }

    /// Writes the checkpoint, durable with the next sync of the SSD.
    pub fn write_outline(&self, head: &Head, outline: &Outline) -> Result<Pointer> {
        let mut out = Vec::new();
        head.encode(&mut out);
        out.put_u64(MAGIC);
        outline.ledger.encode(&mut out);
        out.put_u64(outline.kept.next);
        put_words(&mut out, &outline.kept.bits.0);
        let mut writer = LargeWriter::new(self, out.len() as u64, Owner::Tier)?;
        writer.write(&out)?;
        writer.finish()
    }
}

/// Reads it, into a count that is empty.
pub fn read(ssd: &dyn Disk, body: &Pointer, ledger: Ledger) -> Result<(Head, Outline)> {
    let mut bytes = Vec::new();
    for index in 0..body.pieces() {
        let piece = read_piece(ssd, body, index)?;
        let damaged = || Error::Corrupt("checkpoint: a piece's crc is wrong".into());
        bytes.extend(piece.ok_or_else(damaged)?);
    }
    let mut reader = Reader::new(&bytes);
    let parse = || {
        let head = Head::decode(&mut reader)?;
        if reader.u64()? != MAGIC {
            return None;
        }
        let ledger = ledger.decode(&mut reader, &head.tables)?;
        let (next, bits) = (reader.u64()?, Bits(words(&mut reader)?));
        Some((head, Outline { kept: Kept { next, bits }, ledger }))
    };
    parse().ok_or_else(|| Error::Corrupt("checkpoint: makes no sense".into()))
}
