//! The end of the log that a start has recovered, and how it is made durable before anything is
//! answered: no later start may find another end.

use crate::log::Log;
use crate::log::segment::Shape;
use crate::media::disk::Barrier;
use crate::media::pm::Region;
use crate::store::RESERVE_DELETE;
use crate::types::{BLOCK_BYTES, LINE_BYTES, Position, Result, doing};

/// The end of a log.
pub struct Ending {
    /// The slot of the newest segment, and where its records end.
    newest: Option<(u32, u32)>,
    /// The log goes on in that segment.
    goes_on: bool,
}

impl Ending {
    /// The end of this log, up to which it was found to be whole. It goes on in its newest segment,
    /// or begins a fresh one. `known` are the positions that checkpoints and the index in
    /// persistent memory know: what is appended has to be behind them.
    pub fn of(
        log: &mut Log,
        shape: &Shape,
        known: impl IntoIterator<Item = Position>,
        pads: bool,
    ) -> Ending {
        let newest = log.newest_sealed();
        let goes_on = newest.is_some_and(|(_, end)| {
            may_go_on(log, shape, end, pads) && known.into_iter().all(|known| known <= end)
        });
        if goes_on {
            log.go_on();
        }
        Ending { newest: newest.map(|(slot, end)| (slot, end.offset)), goes_on }
    }

    /// Makes durable that the newest segment ends where it was found to end. No other segment of
    /// the log can still be in a cache.
    pub fn make_durable(&self, region: &dyn Region, shape: &Shape) -> Result<()> {
        if let Some((slot, end)) = self.newest.filter(|(_, end)| *end < shape.records_end()) {
            let at = shape.start(slot) + u64::from(end);
            match self.goes_on {
                true => wipe(region, at, shape.records_end() - end)?,
                // The log may have been cut since a value is not there. Then the record of that
                // value is whole, and readers that do not look at values would go on behind it.
                // They would mix old records with new ones of the same numbers.
                false => Log::cut(region, at)?,
            }
        }
        flush_newest(region, *shape, self.newest.map(|(slot, _)| slot))
    }
}

/// Whether the log may go on in its newest segment, whose records end there.
///
/// It does where that segment has no whole record: its first group was torn, or never written. It
/// also does where no deletion could begin another segment. Were it left behind, each loss of power
/// in a group would cost a full log a free segment, and in the end it would have none.
///
/// Elsewhere a fresh segment has a header that vouches for all in front of it, and nothing has to
/// be wiped.
fn may_go_on(log: &Log, shape: &Shape, end: Position, pads: bool) -> bool {
    // Behind a lost log generations have gone on, and records of the old ones would not count.
    let is_last = log.tail() == Position { generation: end.generation + 1, offset: 0 };
    let is_empty = end.offset == shape.header_bytes;
    let is_short = log.free_slots() <= RESERVE_DELETE && end.offset < shape.records_end();
    // Where groups are padded, no block with anything acknowledged is written again.
    let shares_none = (end.offset as usize).is_multiple_of(BLOCK_BYTES);
    is_last && (is_empty || (is_short && (shares_none || !pads)))
}

/// Wipes out what a torn group left behind the end, in the segment in which the log goes on.
///
/// Those records have the same life as the ones to come, so neither life nor crc tells them apart.
/// If a new record ended where an old one begins, that would be taken for the next. If a new one
/// were torn, an old one behind it would make damage of a torn tail. So nothing of them is left:
/// all of the segment behind the end is zeros, and durable, before anything is appended or
/// answered. From then on it is as a segment in a slot that was never used, with these records in
/// front: what lies behind a record was appended behind it.
///
/// If the power fails within this, nothing was answered. The next start finds the same end, or one
/// further on, where zeros were all that a record of the torn group lacked. That was submitted.
///
/// What is in front is durable too, values first, and the new records say so (offset 36). So they
/// vouch for it, as the header of a fresh segment would.
fn wipe(region: &dyn Region, at: u64, bytes: u32) -> Result<()> {
    let mut there = vec![0; bytes as usize];
    doing("read the end of the log", region.read(at, &mut there))?;
    if there.iter().any(|byte| *byte != 0) {
        there.fill(0);
        doing("wipe the end of the log", region.write(at, &there))?;
    }
    // A log on a disk keeps the block in memory that was written last: the first append, which
    // begins within this one, must not wait for the disk.
    match at.is_multiple_of(BLOCK_BYTES as u64) {
        true => Ok(()),
        false => doing("wipe the end of the log", region.write(at, &[0; LINE_BYTES])),
    }
}

/// Makes durable what the newest segment holds.
pub fn flush_newest(region: &dyn Region, shape: Shape, slot: Option<u32>) -> Result<()> {
    if let Some(slot) = slot {
        let (start, bytes) = (shape.start(slot), u64::from(shape.segment_bytes));
        doing("flush what was recovered", region.flush(start, bytes))?;
    }
    doing("fence what was recovered", region.fence(Barrier::Recovery))
}
