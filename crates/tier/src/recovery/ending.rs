//! Where the log that a start has found ends, and what makes sure of that before anything is
//! answered.

use crate::log::Log;
use crate::log::segment::Shape;
use crate::media::disk::Barrier;
use crate::media::pm::Region;
use crate::types::{Result, doing};

/// The end of a log.
pub struct Ending {
    /// The slot of the newest segment, and where its records end.
    newest: Option<(u32, u32)>,
    /// The log goes on there.
    goes_on: bool,
}

impl Ending {
    /// Of this log; it goes on in its newest segment, which then has no record, or in a fresh one.
    pub fn of(log: &mut Log, goes_on: bool) -> Ending {
        let newest = log.newest_sealed();
        if goes_on {
            log.go_on();
        }
        Ending { newest, goes_on }
    }

    /// Ends the newest segment where it was found to end. In the log only that segment can be in a
    /// cache.
    pub fn make_durable(&self, region: &dyn Region, shape: &Shape) -> Result<()> {
        if let Some((slot, end)) = self.newest.filter(|(_, end)| *end < shape.records_end()) {
            let at = shape.start(slot) + u64::from(end);
            match self.goes_on {
                true => wipe(region, at, shape.records_end() - end)?,
                // Where it was cut for a value that is not there, the record that points at it is
                // whole: to who reads the log without values, and what is numbered anew from now on
                // would be mixed with what is behind it.
                false => Log::cut(region, at)?,
            }
        }
        flush_newest(region, *shape, self.newest.map(|(slot, _)| slot))
    }
}

/// Leaves nothing of a torn first group: it is of the same life as the records to come, and would
/// count as one of them that lies behind a torn one.
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
