//! Flags about hot keys: a rule, and each of its choices by itself.

use crate::flags::{self, Flags};
use laneway_policy::hot::loads::Rank;
use laneway_policy::hot::{Detector, HotSettings, HotThreshold, Reads, Slot};
use laneway_policy::{Access, Nanos};
use std::hash::{BuildHasher, RandomState};

/// The threshold that `--hot keysched-2018` has by itself: the one with the best balance.
const KEYSCHED_THRESHOLD: u32 = 32;

/// A draw from the standard library's own random keys, that nobody outside can guess.
pub fn seed() -> u64 {
    RandomState::new().hash_one(0)
}

/// The settings, if hot keys are to be looked after.
pub fn settings(
    flags: &Flags,
    access: Access,
    workers: u16,
) -> Result<Option<HotSettings>, String> {
    let exclusive = HotSettings::lanes_exclusive(workers);
    let rule = match flags.hot.as_deref() {
        None | Some("off") => return without(flags).map(|()| None),
        Some("default") => exclusive,
        Some("keysched-2018") => HotSettings::keysched_2018(workers, KEYSCHED_THRESHOLD),
        Some(other) => {
            return Err(format!(
                "--hot {other}: must be off, default or keysched-2018; leave the flag out for off"
            ));
        }
    };
    Ok(Some(HotSettings {
        slot: slot(flags)?,
        threshold: threshold(flags, rule.threshold)?,
        detector: flags.hot_counters.map_or(rule.detector, Detector::SpaceSaving),
        rank: match flags.hot_rank.as_deref() {
            None => rule.rank,
            Some("past") => Rank::PastSlots,
            Some("mean") => Rank::MeanAndThisSlot,
            Some("sum") => Rank::SumAndThisSlot,
            Some(other) => return Err(refuse("--hot-rank", other, "past, mean or sum")),
        },
        carry_over: match flags.hot_carry.as_deref() {
            None => rule.carry_over,
            Some("yes") => true,
            Some("no") => false,
            Some(other) => return Err(refuse("--hot-carry", other, "yes or no")),
        },
        // Who may read is not a question of hot keys alone.
        reads: if access.is_owners(false) { Reads::ByOwner } else { Reads::Spread },
        keys_max: flags.hot_keys.unwrap_or(rule.keys_max),
        alone: flags.hot_alone,
        ..rule
    }))
}

fn slot(flags: &Flags) -> Result<Slot, String> {
    let Slot { nanos, requests } = Slot::DEFAULT;
    let nanos = match flags.slot_microseconds {
        None => nanos,
        Some(micros) => Nanos(micros.checked_mul(1_000).ok_or_else(|| {
            format!("--slot-us {micros}: longer than any run; leave the flag out for 1000")
        })?),
    };
    Ok(Slot { nanos, requests: flags.slot_requests.unwrap_or(requests) })
}

fn threshold(flags: &Flags, by_rule: HotThreshold) -> Result<HotThreshold, String> {
    match flags.hot_threshold.as_deref() {
        None => Ok(by_rule),
        Some("load") => Ok(HotThreshold::ShareOfSlot),
        Some(text) => match text.parse() {
            Ok(requests) => Ok(HotThreshold::Requests(requests)),
            Err(_) => {
                Err(refuse("--hot-threshold", text, "a number of requests in a slot, or load"))
            }
        },
    }
}

fn refuse(flag: &str, value: &str, must: &str) -> String {
    format!("{flag} {value}: must be {must}; leave the flag out to have what --hot says")
}

/// Where hot keys are not looked after, what would be said about them is a mistake.
fn without(flags: &Flags) -> Result<(), String> {
    let about = "slot-requests slot-us hot-threshold hot-keys hot-counters hot-rank hot-carry \
        hot-alone";
    let why = "hot keys are not looked after; leave it out, or add --hot default";
    flags::refuse(flags, about, why)
}
