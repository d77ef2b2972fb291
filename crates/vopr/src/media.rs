//! What a store lies on in a run: how its disks fail, and disks that are not its own.

use crate::rig::durable::{Machine, SEGMENT_BYTES};
use laneway_tier::Settings;
use laneway_tier::disk::sim::{Faults, Random};

/// Bytes of the log.
pub const LOG_BYTES: usize = 24 * SEGMENT_BYTES as usize;

/// How often disks fail, drawn; writes and flushes only where they may.
pub fn faults(random: &mut Random, writes_fail: bool) -> Faults {
    let mut one_in = |often: u64| match random.one_in(2) {
        true if often > 0 => often + random.below(often),
        _ => 0,
    };
    let writes = if writes_fail { 1500 } else { 0 };
    Faults {
        short_write_one_in: one_in(20),
        read_error_one_in: one_in(300),
        write_error_one_in: one_in(writes),
        sync_error_one_in: one_in(writes),
        ..Faults::default()
    }
}

/// A store that is offered with a log or an SSD that is blank, or another store's, must be refused,
/// and nothing may be written. `which` of the four it is.
pub fn offer_wrong(machine: &Machine, settings: Settings, which: u64) -> Result<(), String> {
    let (log, ssd) = (machine.log.image(), machine.ssd.image());
    let other = Machine::new(LOG_BYTES, ssd.len());
    let foreign = other.open_as(settings, 8);
    drop(foreign.map_err(|error| format!("a new store cannot be made: {error}"))?);
    let (what, log, ssd) = match which {
        0 => ("a blank log", vec![0; log.len()], ssd),
        1 => ("another store's log", other.log.image(), ssd),
        2 => ("a blank SSD", log, vec![0; ssd.len()]),
        _ => ("another store's SSD", log, other.ssd.image()),
    };
    let wrong = Machine::of(u64::MAX, log.clone(), ssd.clone());
    if wrong.open(settings).is_ok() {
        return Err(format!("the store opens with {what}"));
    }
    match wrong.log.image() == log && wrong.ssd.image() == ssd {
        true => Ok(()),
        false => Err(format!("the store is refused with {what}, and something was written")),
    }
}
