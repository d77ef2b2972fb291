//! A store on media that are larger than it grows: its log by segments behind the last, its SSD by
//! blocks behind the last.
//!
//! Nothing that is there moves, and what is new holds nothing. So all there is to write are the
//! superblocks, which say the sizes (docs/disk-format.md, "Growing"): one has the old or the new
//! ones, whole. Both say the new ones before anything of what is new is used, so that a damaged one
//! leaves one that knows of it.
//!
//! A store whose values are to be compressed, and whose superblocks do not say that they may be, is
//! told of it in the same way: a program that does not know of such values refuses it from then on.
//!
//! The store is opened as it is first: what is refused, or has lost its log, does not grow. Then it
//! is opened anew, so that whatever depends on a size follows.
//!
//! A log grows as long as half of a segment has room to list all of them ([`crate::log::segment`]).
//! One that grows beyond what a header's front lists has another version in its superblocks, since
//! programs from before would take the list's rest for records. One with an index in persistent
//! memory behind it does not grow; the SSD of such a store does, if the blocks it has fill the
//! words that checkpoints have them in.

use crate::checkpoint::superblock::{Front, Superblock};
use crate::log::segment::{self, Shape};
use crate::media::disk::Disk;
use crate::media::pm::Region;
use crate::recovery::recover::{Media, Progress, Purpose, recover};
use crate::recovery::survey::read_header;
use crate::report::{Report, Sizes};
use crate::ssd::space::{BITS, BLOCKS_MAX};
use crate::store::Shared;
use crate::types::{BLOCK_BYTES, Error, Result, Settings};
use std::ops::Range;

/// All there are.
const SUPERBLOCKS: u64 = 2;

/// Opens a store to be used, or makes one of this id, and has it take what its media have.
pub fn open(
    media: Media,
    settings: Settings,
    new_id: u64,
    progress: Progress<'_>,
) -> Result<(Shared, Report)> {
    let purpose = Purpose::Use { new_id };
    must_be_new(&*media.region, &*media.ssd)?;
    let (shared, mut report) = recover(media.clone(), settings, purpose, progress)?;
    report.sizes = sizes_of(&shared);
    // One that is only to be read, for want of room for its index, stays as it is, too.
    let is_refused = shared.writer().failed.is_some();
    let compresses = settings.compress_from.is_some();
    if report.log_is_new || is_refused || !grow(&*media.region, &*media.ssd, compresses)? {
        return Ok((shared, report));
    }
    drop(shared);
    let (shared, again) = recover(media, settings, purpose, progress)?;
    let (from, sizes) = (report.sizes, sizes_of(&shared));
    // What the first opening mended, such as a superblock, the second does not meet.
    let mut problems = report.problems;
    for problem in again.problems {
        if !problems.contains(&problem) {
            problems.push(problem);
        }
    }
    let grown_from = Some(from).filter(|from| *from != sizes);
    Ok((shared, Report { sizes, grown_from, problems, ..again }))
}

/// How large a store is.
pub fn sizes_of(shared: &Shared) -> Sizes {
    let segments = u64::from(shared.shape.segments) + u64::from(shared.tree_segments);
    let log = segments * u64::from(shared.shape.segment_bytes);
    Sizes { log, ssd: shared.space.blocks() * BLOCK_BYTES as u64 }
}

/// How many segments a log may have that has this superblock; as many as it has where it cannot
/// grow.
pub fn segments_most(superblock: &Superblock) -> Result<u32> {
    if superblock.tree_segments != 0 {
        return Ok(superblock.segments);
    }
    Ok(superblock.shape()?.segments_most().max(superblock.segments))
}

/// Whether the SSD of a store that has this superblock can grow.
pub fn may_ssd_grow(superblock: &Superblock) -> bool {
    superblock.tree_segments == 0 || superblock.blocks.is_multiple_of(BITS)
}

/// Segments of the log and blocks of the SSD that a store has once it has grown.
fn sizes_on(region: &dyn Region, ssd: &dyn Disk, superblock: &Superblock) -> Result<(u32, u64)> {
    let (segments, blocks) = superblock.sizes();
    let there = region.bytes() / u64::from(superblock.segment_bytes);
    let most = segments_most(superblock)?;
    let segments = u32::try_from(there).unwrap_or(u32::MAX).min(most).max(segments);
    let blocks = match may_ssd_grow(superblock) {
        true => blocks.max((ssd.bytes() / BLOCK_BYTES as u64).min(BLOCKS_MAX)),
        false => blocks,
    };
    Ok((segments, blocks))
}

/// Refuses a log that has segments of the store behind what the store knows as its log: it has
/// grown since the SSD was as it is.
fn must_be_new(region: &dyn Region, ssd: &dyn Disk) -> Result<()> {
    let Front::Store(superblock) = Superblock::read(ssd, &mut Vec::new())? else { return Ok(()) };
    let (segments, _) = sizes_on(region, ssd, &superblock)?;
    if segments == superblock.segments {
        return Ok(());
    }
    let shape = Shape::of_grown(segments, superblock.segment_bytes, superblock.header_bytes)?;
    match own_in(region, &shape, superblock.store_id, superblock.segments..segments)? {
        None => Ok(()),
        Some(slot) => Err(Error::Mismatch(format!(
            "the SSD is older than the log: it knows {} segments of it, and segment {slot} is in \
             use; nothing was written. Give --ssd the one that this log was written with; or, if \
             what is behind byte {} is left of another copy of the log on a device that was made \
             larger, write zeros over that",
            superblock.segments,
            superblock.log_bytes()
        ))),
    }
}

/// The first of these slots that has a header of the store.
fn own_in(
    region: &dyn Region,
    shape: &Shape,
    store_id: u64,
    slots: Range<u32>,
) -> Result<Option<u32>> {
    for slot in slots {
        if let segment::Front::Own(_) = read_header(region, shape, store_id, slot)? {
            return Ok(Some(slot));
        }
    }
    Ok(None)
}

/// Whether a log is that of the store with this superblock: nothing else is to be made longer.
pub fn is_own(region: &dyn Region, superblock: &Superblock) -> Result<bool> {
    if region.bytes() < superblock.log_bytes() {
        return Ok(false);
    }
    let shape = superblock.shape()?;
    Ok(own_in(region, &shape, superblock.store_id, 0..shape.segments)?.is_some())
}

/// Has both superblocks say what the media have, and that values may be compressed if they are to
/// be, durable when this returns; whether one did not.
fn grow(region: &dyn Region, ssd: &dyn Disk, compresses: bool) -> Result<bool> {
    let Front::Store(mut superblock) = Superblock::read(ssd, &mut Vec::new())? else {
        return Ok(false);
    };
    let sizes = sizes_on(region, ssd, &superblock)?;
    let has_compressed = superblock.has_compressed || compresses;
    let is_as_said = sizes == superblock.sizes() && has_compressed == superblock.has_compressed;
    if is_as_said && !superblock.is_half_grown {
        return Ok(false);
    }
    (superblock.segments, superblock.blocks) = sizes;
    superblock.has_compressed = has_compressed;
    for _ in 0..SUPERBLOCKS {
        superblock.generation += 1;
        superblock.write(ssd)?;
    }
    Ok(true)
}
