//! Which CAS ids a start leaves out, so that none comes again.
//!
//! All that were given are below the tier's sequence as it is found, but for those of writes that
//! clients saw and that a crash has lost, within an interval. How many these are the start does not
//! know, so it leaves many out. (Of those that were lost with a log the tier passes over its own
//! part.)

use laneway_sync::planted::{Bug, is_planted};
use laneway_tier::Tier;
use std::time::Duration;

/// CAS ids that a start leaves out above all that it knows: 16 million writes of one partition of
/// the index, whose ids are 64 apart.
const LOST_MAX: u64 = 1 << 30;

/// The last id that this start leaves out; with an `interval` the store is told of it. For a store
/// that was just opened, before anybody writes.
///
/// At an interval clients see ids before anything that has them is durable. If none ever were, the
/// next start would find the same number as this one, and give the same ids to other values. (Where
/// a reply waits until its change is durable, whoever sees an id can rely on its record.)
pub fn leave_out(tier: &Tier, interval: Option<Duration>) -> u64 {
    // What this start knows of the last one's settings is nothing, so it always leaves some out.
    let last = tier.sequence() + LOST_MAX;
    // Where writes are refused no id is given.
    if interval.is_some()
        && !is_planted(Bug::LeftOutUnkept)
        && tier.refuses_writes().is_none()
        && let Err(error) = tier.pass_over_first(last)
    {
        log::warn!(
            "it cannot be kept which CAS ids are left out: {error}; ids that clients see, and that \
             a crash loses before any write is durable, may be given out again"
        );
    }
    last
}
