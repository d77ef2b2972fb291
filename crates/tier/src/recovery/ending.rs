//! The end of the log that a start has recovered, and how it is made durable before anything is
//! answered: no later start may find another end.

use crate::log::Log;
use crate::log::segment::Shape;
use crate::media::disk::Barrier;
use crate::media::pm::Region;
use crate::types::{Result, doing};

/// The end of a log.
pub struct Ending {
    /// The slot of the newest segment, and where its records end.
    newest: Option<(u32, u32)>,
    /// The log goes on in that segment.
    goes_on: bool,
}

impl Ending {
    /// The end of this log. `goes_on`: it goes on in its newest segment, which has no record; else
    /// it begins a fresh one.
    pub fn of(log: &mut Log, goes_on: bool) -> Ending {
        let newest = log.newest_sealed();
        if goes_on {
            log.go_on();
        }
        Ending { newest, goes_on }
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

/// Wipes out a torn first group. Its records have the same life as those to come. If one of those
/// were torn later, an old record behind it would be taken for a newer one.
fn wipe(region: &dyn Region, at: u64, bytes: u32) -> Result<()> {
    let mut there = vec![0; bytes as usize];
    doing("read the end of the log", region.read(at, &mut there))?;
    if there.iter().all(|byte| *byte == 0) {
        return Ok(());
    }
    there.fill(0);
    doing("wipe the end of the log", region.write(at, &there))
}

/// Makes durable what the newest segment holds.
pub fn flush_newest(region: &dyn Region, shape: Shape, slot: Option<u32>) -> Result<()> {
    if let Some(slot) = slot {
        let (start, bytes) = (shape.start(slot), u64::from(shape.segment_bytes));
        doing("flush what was recovered", region.flush(start, bytes))?;
    }
    doing("fence what was recovered", region.fence(Barrier::Recovery))
}
