//! Hot keys: found as they come, and given to the worker with least to do (KeySched, the SIGCOMM
//! 2018 poster "Timeslot-based Hot Key Scheduling for Load Balancing in Key-Value Store").
//!
//! A key that is asked for more often than the threshold within a timeslot is hot. From then on
//! until the slot ends it belongs to the worker that was least loaded when it was found; a cold
//! key belongs to the worker its hash names. Three departures, each a setting, so that
//! [`HotSettings::keysched_2018`] is the poster to the letter and [`HotSettings::lanes`] ours:
//!
//! - "least loaded" counts the present slot ([`loads`]);
//! - keys that were hot in the last slot are hot from the first request of the next, placed
//!   heaviest first, each with the load it brought last time promised to its worker;
//! - reads of a hot key need no owner under concurrent-read access and may go to anyone
//!   ([`Reads::Spread`]). As long as a key has one owner, no rule can bring the busiest worker of
//!   a slot below the hottest key's share × workers of the mean.
//!
//! Ownership is routing, never safety: the bucket's own protocol keeps a key that two workers
//! write at once in order. Knows no clock, thread or packet. Unit: requests.

pub mod loads;
pub mod mapping;
pub mod sketch;
pub mod space_saving;

use crate::units::{Nanos, WorkerId};
use alloc::vec::Vec;
use loads::{CoreLoads, Rank};
use mapping::{HotKey, Mapping};
use sketch::{KeyHash, Sketch};
use space_saving::SpaceSaving;

/// Length of a timeslot (KeySched §2: 1 ms).
pub const SLOT: Nanos = Nanos(1_000_000);

/// A slot lasts until it has held so many requests: with thin traffic a millisecond says nothing.
pub const SLOT_REQUESTS_MIN: u32 = 2_000;

/// Hot keys at a time (KeySched §2 "at most 32 hot keys scheduled").
pub const HOT_KEYS_MAX: usize = 32;

/// The least number of requests in a slot that [`HotThreshold::ShareOfSlot`] calls hot.
pub const HOT_REQUESTS_MIN: u32 = 16;

/// A key is hot above this part of one worker's even share of the slot: an eighth.
pub const HOT_SHARE_DIVISOR: u32 = 8;

/// Whether a slot that began `since_start` ago and held `requests` is over.
pub const fn slot_is_over(since_start: Nanos, requests: u32) -> bool {
    since_start.0 >= SLOT.0 && requests >= SLOT_REQUESTS_MIN
}

/// From how many requests in a slot on a key is hot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HotThreshold {
    /// A number (the poster: 256 down to 32).
    Requests(u32),
    /// Above 1/(8 × workers) of the last slot's requests, and at least 16.
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
}

impl HotSettings {
    /// The poster, to the letter.
    pub const fn keysched_2018(workers: u16, threshold: u32) -> HotSettings {
        HotSettings {
            workers,
            threshold: HotThreshold::Requests(threshold),
            detector: Detector::Sketch,
            rank: Rank::PastSlots,
            carry_over: false,
            reads: Reads::ByOwner,
            keys_max: HOT_KEYS_MAX,
        }
    }

    /// Our own, for exclusive access: every key has one owner at a time.
    pub const fn lanes_exclusive(workers: u16) -> HotSettings {
        HotSettings {
            threshold: HotThreshold::ShareOfSlot,
            rank: Rank::MeanAndThisSlot,
            carry_over: true,
            ..HotSettings::keysched_2018(workers, HOT_REQUESTS_MIN)
        }
    }

    /// Our own, for concurrent reads.
    pub const fn lanes(workers: u16) -> HotSettings {
        HotSettings { reads: Reads::Spread, ..HotSettings::lanes_exclusive(workers) }
    }
}

/// What is asked of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Access {
    /// It is read.
    Read,
    /// It is written.
    Write,
}

/// Where a request goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum HotRoute {
    /// The key is cold: to the worker its hash names, or by whatever rule holds for cold keys.
    Home,
    /// The key is hot: to its owner of this slot.
    Owner(WorkerId),
    /// The key is hot and this is a read: to anyone.
    Anyone,
}

/// How often a key was asked for, by either means.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Counts {
    Sketch(Sketch),
    SpaceSaving(SpaceSaving),
}

/// The scheduler: one for all workers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HotKeys {
    settings: HotSettings,
    counts: Counts,
    mapping: Mapping,
    loads: CoreLoads,
    requests: u32,
    threshold: u32,
    found: u64,
}

impl HotKeys {
    /// Nothing is hot yet.
    pub fn new(settings: HotSettings) -> Self {
        HotKeys {
            settings,
            counts: match settings.detector {
                Detector::Sketch => Counts::Sketch(Sketch::new()),
                Detector::SpaceSaving(counters) => Counts::SpaceSaving(SpaceSaving::new(counters)),
            },
            mapping: Mapping::new(settings.keys_max),
            loads: CoreLoads::new(settings.workers),
            requests: 0,
            threshold: threshold(&settings, SLOT_REQUESTS_MIN),
            found: 0,
        }
    }

    /// One request; where it goes. Whoever serves it is to be told by [`HotKeys::charge`].
    #[inline]
    pub fn route(&mut self, key: KeyHash, access: Access) -> HotRoute {
        self.requests = self.requests.saturating_add(1);
        let spread = self.settings.reads == Reads::Spread && access == Access::Read;
        if let Some(hot) = self.mapping.get_mut(key) {
            hot.requests += 1;
            let owner = hot.owner;
            if spread {
                return HotRoute::Anyone;
            }
            hot.owned += 1;
            if hot.owned <= hot.expected {
                self.loads.keep(owner, 1);
            }
            return HotRoute::Owner(owner);
        }
        let count = match &mut self.counts {
            Counts::Sketch(sketch) => u32::from(sketch.count(key)),
            Counts::SpaceSaving(list) => list.count(key),
        };
        if count < self.threshold || !self.mapping.has_room() {
            return HotRoute::Home;
        }
        self.found += 1;
        let owner = self.loads.least(self.settings.rank);
        let owned = u32::from(!spread);
        self.mapping.insert(HotKey { key, owner, requests: count, owned, expected: 0 });
        if spread { HotRoute::Anyone } else { HotRoute::Owner(owner) }
    }

    /// `worker` was given so much to do.
    #[inline]
    pub fn charge(&mut self, worker: WorkerId, load: u32) {
        self.loads.charge(worker, load);
    }

    /// The slot is over ([`slot_is_over`]): the next begins.
    pub fn slot_ended(&mut self) {
        self.threshold = threshold(&self.settings, self.requests);
        self.requests = 0;
        self.loads.slot_ended();
        match &mut self.counts {
            Counts::Sketch(sketch) => sketch.slot_ended(),
            Counts::SpaceSaving(list) => list.slot_ended(),
        }
        let mut carried: Vec<HotKey> = Vec::new();
        if self.settings.carry_over {
            carried.extend(self.mapping.keys().iter().filter(|k| k.requests >= self.threshold));
            carried.sort_by_key(|hot| core::cmp::Reverse((hot.owned, hot.key)));
        }
        self.mapping.clear();
        for hot in carried {
            let owner = self.loads.least(self.settings.rank);
            self.loads.promise(owner, hot.owned);
            self.mapping.insert(HotKey {
                owner,
                requests: 0,
                owned: 0,
                expected: hot.owned,
                ..hot
            });
        }
    }

    /// The hot keys of this slot.
    pub fn hot(&self) -> &[HotKey] {
        self.mapping.keys()
    }

    /// Keys found hot since the beginning, carried ones not counted again.
    pub fn found(&self) -> u64 {
        self.found
    }

    /// Requests in this slot from which on a key is hot.
    pub fn threshold(&self) -> u32 {
        self.threshold
    }

    /// What each worker was given in this slot so far.
    pub fn loads(&self) -> &CoreLoads {
        &self.loads
    }
}

fn threshold(settings: &HotSettings, slot_requests: u32) -> u32 {
    match settings.threshold {
        HotThreshold::Requests(requests) => requests,
        HotThreshold::ShareOfSlot => {
            let share = slot_requests / (HOT_SHARE_DIVISOR * u32::from(settings.workers));
            (share + 1).max(HOT_REQUESTS_MIN)
        }
    }
}
