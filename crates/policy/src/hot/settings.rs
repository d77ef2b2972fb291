//! What hot-key scheduling can be told, each choice by itself: so that the poster's rule is one
//! setting ([`HotSettings::keysched_2018`]) and ours another ([`HotSettings::lanes`]).
//!
//! It knows no command line. What fits together is checked with the policies' other settings.

use crate::hot::loads::Rank;
use crate::hot::routes::ROUTES_MAX;
use crate::units::Nanos;

/// Hot keys at a time (KeySched §2 "at most 32 hot keys scheduled").
pub const HOT_KEYS_MAX: usize = 32;

/// The least number of requests in a slot that [`HotThreshold::ShareOfSlot`] calls hot.
pub const HOT_REQUESTS_MIN: u32 = 16;

/// A key is hot above this part of one worker's even share of the slot: a sixteenth. With an eighth
/// what is left of four workers' keys under Zipf 0.99 loads the busiest by up to 1.13 of the mean,
/// however the hot ones are placed.
pub const HOT_SHARE_DIVISOR: u32 = 16;

/// A hot key stays hot while it has this part of the threshold: half. One that is asked for just as
/// often as the threshold says would come and go, and be at home half of the time.
pub const HOT_KEEP_DIVISOR: u32 = 2;

/// The least number of requests at one worker that make a key whose requests are spread worth
/// counting everywhere.
pub const LOCAL_MIN: u32 = 4;

/// When a timeslot is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slot {
    /// Not before so much time has passed.
    pub nanos: Nanos,
    /// And not before it has held so many requests: with thin traffic a millisecond says nothing.
    pub requests: u32,
}

impl Slot {
    /// A millisecond (KeySched §2), of 2 000 requests at least.
    pub const DEFAULT: Slot = Slot { nanos: Nanos(1_000_000), requests: 2_000 };

    /// Whether a slot that began `since_start` ago and held `requests` is over.
    pub const fn is_over(&self, since_start: Nanos, requests: u32) -> bool {
        since_start.0 >= self.nanos.0 && requests >= self.requests
    }
}

/// Most requests that a threshold can ask for: what the workers read it from has 16 bits, and the
/// sketch counts no further.
pub const HOT_THRESHOLD_MAX: u32 = u16::MAX as u32;

/// From how many requests in a slot on a key is hot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HotThreshold {
    /// A number (the poster: 256 down to 32).
    Requests(u32),
    /// Above 1/(16 × workers) of the last slot's requests, and at least 16.
    ShareOfSlot,
}

/// How often-asked keys are found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Detector {
    /// A count-min sketch.
    Sketch,
    /// Space-saving with so many counters.
    SpaceSaving(usize),
}

/// Who serves the reads of a hot key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reads {
    /// Its owner, as its writes.
    ByOwner,
    /// Whoever receives them.
    Spread,
}

/// All that hot-key scheduling can be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HotSettings {
    /// Workers that keys can belong to.
    pub workers: u16,
    /// When a slot is over.
    pub slot: Slot,
    /// What makes a key hot.
    pub threshold: HotThreshold,
    /// How it is found.
    pub detector: Detector,
    /// What "least loaded" means.
    pub rank: Rank,
    /// Whether keys hot in the last slot are hot from the start of the next.
    pub carry_over: bool,
    /// Who serves reads.
    pub reads: Reads,
    /// Hot keys at a time.
    pub keys_max: usize,
    /// Whether the heaviest hot key has a worker to which no other hot key goes, and stays there
    /// ([`scheduler`](crate::hot::scheduler)).
    pub alone: bool,
}

/// Most counters of [`Detector::SpaceSaving`]: each request looks through them.
pub const COUNTERS_MAX: usize = 4096;

impl HotSettings {
    /// The poster's rule. One thing in it is ours: a slot lasts until it has held 2 000 requests,
    /// where the poster ends it after a millisecond whatever it held. On its machines that is
    /// 15 000; a server that is asked a hundredth of that would find nothing hot above 32. With
    /// `slot.requests` 1 it is the poster's slot.
    pub const fn keysched_2018(workers: u16, threshold: u32) -> HotSettings {
        HotSettings {
            workers,
            slot: Slot::DEFAULT,
            threshold: HotThreshold::Requests(threshold),
            detector: Detector::Sketch,
            rank: Rank::PastSlots,
            carry_over: false,
            reads: Reads::ByOwner,
            keys_max: HOT_KEYS_MAX,
            alone: false,
        }
    }

    /// Our own, for exclusive access: every key has one owner at a time. With more workers than 32
    /// there are as many hot keys: what evens a worker out in a slot is a key that it was given.
    pub const fn lanes_exclusive(workers: u16) -> HotSettings {
        let workers_even =
            if workers as usize > ROUTES_MAX { ROUTES_MAX } else { workers as usize };
        HotSettings {
            keys_max: if workers_even > HOT_KEYS_MAX { workers_even } else { HOT_KEYS_MAX },
            threshold: HotThreshold::ShareOfSlot,
            rank: Rank::SumAndThisSlot,
            carry_over: true,
            ..HotSettings::keysched_2018(workers, HOT_REQUESTS_MIN)
        }
    }

    /// Our own, for concurrent reads.
    pub const fn lanes(workers: u16) -> HotSettings {
        HotSettings { reads: Reads::Spread, ..HotSettings::lanes_exclusive(workers) }
    }

    /// What `--hot` calls it: by the choices that tell the rules apart.
    pub const fn rule(&self) -> &'static str {
        match (self.rank, self.carry_over, self.alone) {
            (Rank::PastSlots, false, false) => "keysched-2018",
            (Rank::SumAndThisSlot, true, false) => "default",
            _ => "mixed",
        }
    }
}
