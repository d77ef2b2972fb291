//! A new store on media that hold none.

use crate::disk::Disk;
use crate::outline::part_of;
use crate::pm::Region;
use crate::segment::Shape;
use crate::superblock::Superblock;
use crate::tree::Tree;
use crate::types::{BLOCK_BYTES, Error, Result, doing};
use std::sync::Arc;

/// Makes an empty store of this id whose log has this shape, in front of so many segments' worth of
/// index.
pub fn make(
    region: &Arc<dyn Region>,
    ssd: &dyn Disk,
    shape: &Shape,
    tree_segments: u32,
    store_id: u64,
) -> Result<Superblock> {
    let mut magic = [0; 8];
    for slot in 0..shape.segments {
        doing("read the log", region.read(shape.start(slot), &mut magic))?;
        if magic != [0; 8] {
            return Err(Error::Mismatch(
                "the log holds records and the SSD no store: is --ssd the right one? To begin \
                 anew, remove both"
                    .into(),
            ));
        }
    }
    let blocks = ssd.bytes() / BLOCK_BYTES as u64;
    let mut superblock = Superblock {
        store_id,
        generation: 0,
        segment_bytes: shape.segment_bytes,
        segments: shape.segments,
        tree_segments,
        blocks,
        checkpoints: Default::default(),
    };
    if let Some(part) = part_of(region, shape, tree_segments) {
        Tree::make(&part, store_id)?;
    }
    superblock.make(ssd)?;
    Ok(superblock)
}
