//! A new store on media that hold none.
//!
//! The log's first segment is begun with it, so that a log says from the first moment whose it is:
//! one without a header of the store is not the store's (see `recover`).

use crate::checkpoint::outline::{log_bytes, part_of, share_of};
use crate::checkpoint::superblock::Superblock;
use crate::log::segment::{Front, Header, Shape};
use crate::media::disk::{Barrier, Disk};
use crate::media::pm::Region;
use crate::recovery::tree::Tree;
use crate::ssd::space::BLOCKS_MAX;
use crate::types::{BLOCK_BYTES, Error, IndexKind, Result, Settings, doing};
use std::sync::Arc;

/// How the log of a new store is cut, and how many segments' worth of index are behind it.
pub fn new_shape(region_bytes: u64, settings: &Settings) -> Result<(Shape, u32)> {
    let segment_bytes = settings.segment_bytes;
    let tree_segments = match settings.index {
        None | Some(IndexKind::BTree) => 0,
        Some(IndexKind::Fair) => share_of(region_bytes, segment_bytes)?,
    };
    let bytes = log_bytes(region_bytes, segment_bytes, tree_segments);
    Ok((Shape::of(bytes, segment_bytes)?, tree_segments))
}

/// Makes an empty store of this id whose log has this shape, in front of so many segments' worth of
/// index, whose values may be compressed or not. `begun` is the id of one that was being made here
/// when the power failed.
pub fn make(
    region: &Arc<dyn Region>,
    ssd: &dyn Disk,
    shape: &Shape,
    tree_segments: u32,
    has_compressed: bool,
    (store_id, begun): (u64, Option<u64>),
) -> Result<Superblock> {
    must_be_blank(&**region, shape, begun)?;
    let blocks = (ssd.bytes() / BLOCK_BYTES as u64).min(BLOCKS_MAX);
    let mut superblock = Superblock {
        store_id,
        generation: 0,
        segment_bytes: shape.segment_bytes,
        segments: shape.segments,
        tree_segments,
        blocks,
        header_bytes: shape.header_bytes,
        has_compressed,
        checkpoints: Default::default(),
        is_alone: false,
        is_half_grown: false,
    };
    if begun.is_some() {
        // Who finds no whole superblock, as the next one may leave it, must find a blank log.
        write(&**region, &vec![0; shape.header_bytes as usize])?;
    }
    if let Some(part) = part_of(region, shape, tree_segments) {
        Tree::make(&part, store_id)?;
    }
    superblock.make(ssd, || {
        let (flush_sequence, superblock, listed) = (0, 0, Vec::new());
        let header = Header { store_id, generation: 1, flush_sequence, superblock, listed };
        write(&**region, &header.encode(shape))
    })?;
    Ok(superblock)
}

/// Writes the front of the first slot, durable when this returns.
fn write(region: &dyn Region, bytes: &[u8]) -> Result<()> {
    doing("make the log", region.write(0, bytes))?;
    doing("make the log", region.flush(0, bytes.len() as u64))?;
    doing("make the log", region.fence(Barrier::Recovery))
}

/// Refuses a log that holds anything where a start looks first: in the block in which the header of
/// a slot begins, or in the one behind the header. Of the first slot the whole header counts, as
/// other programs have there what says whose a device is; all headers of a log of 64 GiB are 4 GiB.
/// The header of a store that was `begun` counts as nothing, if no record is behind it: the first
/// one is written when both superblocks are durable, so with one it is the second superblock that
/// was damaged.
pub fn must_be_blank(region: &dyn Region, shape: &Shape, begun: Option<u64>) -> Result<()> {
    let mut header = vec![0; shape.header_bytes as usize];
    let mut behind = vec![0; BLOCK_BYTES];
    let is_blank = |bytes: &[u8]| bytes.iter().all(|byte| *byte == 0);
    for slot in 0..shape.segments {
        let start = shape.start(slot);
        doing("read the log", region.read(start, &mut header))?;
        let records = start + u64::from(shape.header_bytes);
        doing("read the log", region.read(records, &mut behind))?;
        let is_ours = match begun {
            // Its header, whole or torn.
            Some(id) if slot == 0 => !matches!(Header::decode(&header, shape, id)?, Front::Foreign),
            _ => false,
        };
        if is_ours && !is_blank(&behind) {
            return Err(Error::Mismatch(
                "the log holds records, and the superblock at the front of the SSD is damaged; \
                 nothing was written. Give --ssd the right one, or copy both before you try \
                 anything else; to begin anew, remove both"
                    .into(),
            ));
        }
        let is_all_blank = is_blank(&header) && is_blank(&behind);
        if !is_ours && !is_all_blank {
            return Err(Error::Mismatch(
                "the log holds records and the SSD no store: is --ssd the right one? To begin \
                 anew, remove both, or write zeros over a device"
                    .into(),
            ));
        }
        header.truncate(BLOCK_BYTES);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::media::disk::sim::{Faults, Power, SimDisk};
    use crate::media::pm::sim::SimRegion;

    /// A disk of 64 TiB, of which there is the front.
    struct Vast(SimDisk);

    impl Disk for Vast {
        fn bytes(&self) -> u64 {
            64 << 40
        }

        fn read_some(&self, at: u64, into: &mut [u8]) -> std::io::Result<usize> {
            self.0.read_some(at, into)
        }

        fn write_some(&self, at: u64, from: &[u8]) -> std::io::Result<usize> {
            self.0.write_some(at, from)
        }

        fn sync(&self, why: Barrier) -> std::io::Result<()> {
            self.0.sync(why)
        }
    }

    #[test]
    fn a_store_has_no_more_blocks_than_it_can_name() {
        const SEGMENT_BYTES: u32 = 16 << 10;
        let power = Power::new(u64::MAX);
        let bytes = 8 * SEGMENT_BYTES as usize;
        let region: Arc<dyn Region> =
            Arc::new(SimRegion::new(bytes, power.clone(), Faults::default()));
        let ssd = Vast(SimDisk::new(1 << 20, power, 1, Faults::default()));
        let shape = Shape::of(region.bytes(), SEGMENT_BYTES).unwrap();
        let made = make(&region, &ssd, &shape, 0, false, (7, None)).unwrap();
        assert_eq!(made.blocks, u64::from(u32::MAX));
    }

    #[test]
    fn of_a_log_with_long_headers_whatever_a_start_looks_at_first_has_to_be_blank() {
        const SEGMENTS: u32 = 300;
        const SEGMENT_BYTES: u32 = 16 << 10;
        const BLOCK: u64 = BLOCK_BYTES as u64;
        let blank = || {
            let bytes = (SEGMENTS * SEGMENT_BYTES) as usize;
            SimRegion::new(bytes, Power::new(u64::MAX), Faults::default())
        };
        let region = blank();
        let shape = Shape::of(region.bytes(), SEGMENT_BYTES).unwrap();
        let header_bytes = u64::from(shape.header_bytes);
        assert_eq!(header_bytes, 2 * BLOCK);
        must_be_blank(&region, &shape, None).unwrap();
        let others = u64::from(SEGMENTS) - 1;
        assert_eq!(region.read_bytes(), header_bytes + BLOCK + others * 2 * BLOCK);
        // What other programs have may lie behind the first block, too.
        let mut refused = vec![shape.start(0) + BLOCK];
        for slot in [0, 1, SEGMENTS - 1] {
            let (start, records) = (shape.start(slot), shape.start(slot) + header_bytes);
            refused.extend([start, start + BLOCK - 1, records, records + BLOCK - 1]);
        }
        for at in refused {
            let region = blank();
            region.write(at, &[7]).unwrap();
            let checked = must_be_blank(&region, &shape, None);
            assert!(matches!(checked, Err(Error::Mismatch(_))), "byte {at}: {checked:?}");
        }
    }
}
