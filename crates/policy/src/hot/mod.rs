//! Hot keys: found as they come, and given to the worker with least to do (KeySched, the SIGCOMM
//! 2018 poster "Timeslot-based Hot Key Scheduling for Load Balancing in Key-Value Store").
//!
//! [`HotKeys`] is all of it for one place that sees every request; a server has its parts: a sketch
//! for each worker ([`sketch`]), one [`scheduler`], and a table of [`routes`] that it publishes.
//!
//! A key that is asked for more often than the threshold within a timeslot is hot. From then on
//! until the slot ends it belongs to the worker that was least loaded when it was found; a cold
//! key belongs to the worker its hash names. Three departures, each a setting, so that
//! [`HotSettings::keysched_2018`] is the poster's rule and [`HotSettings::lanes`] ours:
//!
//! - "least loaded" counts the present slot too ([`loads`]);
//! - keys that were hot in the last slot are hot from the first request of the next, placed
//!   heaviest first, each with the load it brought last time promised to its worker;
//! - reads of a hot key need no owner under concurrent-read access and may go to anyone
//!   ([`Reads::Spread`]). As long as a key has one owner, no rule can bring the busiest worker of
//!   a slot below the hottest key's share × workers of the mean.
//!
//! Ownership is routing, never safety: the bucket's own protocol keeps a key that two workers
//! write at once in order. It knows no clock, thread or packet. Unit: requests.

pub mod hasher;
pub mod loads;
pub mod mapping;
pub mod routes;
pub mod scheduler;
pub mod settings;
pub mod sketch;
pub mod space_saving;

pub use settings::{Detector, HotSettings, HotThreshold, Reads, Slot};
pub use settings::{
    HOT_KEYS_MAX, HOT_REQUESTS_MIN, HOT_SHARE_DIVISOR, HOT_THRESHOLD_MAX, LOCAL_MIN,
};

use crate::units::WorkerId;
use loads::CoreLoads;
use mapping::HotKey;
use scheduler::{Found, Scheduler};
use sketch::{KeyHash, Sketch};
use space_saving::SpaceSaving;

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

/// Seed of the one sketch where whoever asks is no adversary.
const SKETCH_SEED: u64 = 0x9e37_79b9_7f4a_7c15;

/// Counting and scheduling in one, for a single place that sees every request in order, such as a
/// network card or a simulator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HotKeys {
    settings: HotSettings,
    counts: Counts,
    scheduler: Scheduler,
    requests: u32,
}

impl HotKeys {
    /// Nothing is hot yet.
    pub fn new(settings: HotSettings) -> Self {
        HotKeys {
            settings,
            counts: match settings.detector {
                Detector::Sketch => Counts::Sketch(Sketch::new(SKETCH_SEED)),
                Detector::SpaceSaving(counters) => Counts::SpaceSaving(SpaceSaving::new(counters)),
            },
            scheduler: Scheduler::new(settings),
            requests: 0,
        }
    }

    /// One request; where it goes. Whoever serves it is to be told by [`HotKeys::charge`].
    #[inline]
    pub fn route(&mut self, key: KeyHash, access: Access) -> HotRoute {
        self.requests = self.requests.saturating_add(1);
        let spread = self.settings.reads == Reads::Spread && access == Access::Read;
        let route = |owner| if spread { HotRoute::Anyone } else { HotRoute::Owner(owner) };
        if let Some(owner) = self.scheduler.request(key, !spread) {
            return route(owner);
        }
        let count = match &mut self.counts {
            Counts::Sketch(sketch) => u32::from(sketch.count(key)),
            Counts::SpaceSaving(list) => list.count(key),
        };
        if count < self.scheduler.threshold() {
            return HotRoute::Home;
        }
        let owned = if spread { 0 } else { count };
        let found = Found { key, requests: count, owned, is_estimate: false };
        self.scheduler.found(found).map_or(HotRoute::Home, route)
    }

    /// `worker` was given so much to do.
    #[inline]
    pub fn charge(&mut self, worker: WorkerId, load: u32) {
        self.scheduler.charge(worker, load);
    }

    /// The slot is over ([`Slot::is_over`]): the next begins.
    pub fn slot_ended(&mut self) {
        self.scheduler.slot_ended(self.requests);
        self.requests = 0;
        match &mut self.counts {
            Counts::Sketch(sketch) => sketch.slot_ended(),
            Counts::SpaceSaving(list) => list.slot_ended(),
        }
    }

    /// The hot keys of this slot.
    pub fn hot(&self) -> &[HotKey] {
        self.scheduler.hot()
    }

    /// Keys found hot since the beginning, carried ones not counted again.
    pub fn found(&self) -> u64 {
        self.scheduler.found_count()
    }

    /// Requests in this slot from which on a key is hot.
    pub fn threshold(&self) -> u32 {
        self.scheduler.threshold()
    }

    /// What each worker was given in this slot so far.
    pub fn loads(&self) -> &CoreLoads {
        self.scheduler.loads()
    }
}
