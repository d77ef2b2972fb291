//! `minos`: size-aware sharding as published (Minos §3.1). Small and large requests are served by
//! disjoint workers; the threshold is the target percentile; each large worker has a size range of
//! equal cost and a queue of its own; every request runs to completion; nobody takes from others.
//!
//! It departs from the paper where that leaves a gap: until the first epoch has ended the threshold
//! is one slice; thin epochs move roles no further than they can tell ([`crate::evidence`]); the
//! cost is the setting's, and the paper's own is `--cost packets`. A single worker has nobody to
//! hand to and serves all.
//! With `--extra-large` there is one more large worker, and small requests are taken from others
//! one at a time: the variant that §6.1 "Latency of large requests" weighs.
//!
//! It knows no queue and no key. Units: bytes, workers, requests.

use crate::cores::{Form, Settled, large_workers_lanes, roles, small_workers};
use crate::design::{Access, Design};
use crate::designs::CorePolicy;
use crate::designs::learned::Learned;
use crate::plan::{CorePlan, EpochLoad, LargeLane, Steal};
use crate::ranges::SizeRanges;
use crate::settings::Settings;
use crate::threshold::{Clamp, ThresholdControl};

/// The design's state from epoch to epoch.
#[derive(Debug, Clone, PartialEq)]
pub struct Minos {
    settings: Settings,
    learned: Learned,
    large: Settled,
    epoch: u64,
}

impl Minos {
    /// Takes settings that [`Settings::check`] has passed.
    pub(super) fn new(settings: Settings) -> Self {
        let threshold =
            ThresholdControl::new(&settings, Clamp::NONE).starting_at(settings.slice_bytes);
        Minos {
            learned: Learned::new(threshold),
            large: Settled::new(0, settings.samples_min, settings.hysteresis_epochs),
            epoch: 0,
            settings,
        }
    }

    /// Take in one epoch's sizes.
    fn learn(&mut self, load: &EpochLoad) {
        let Some((low, high)) = self.learned.learn(load, &self.settings) else { return };
        let workers = self.settings.workers;
        let large = |small_share| workers - small_workers(small_share, workers);
        self.large.ask_within(large(high), large(low), load.sizes.total());
    }

    fn current(&self, load: &EpochLoad) -> CorePlan {
        let workers = self.settings.workers;
        let threshold = self.learned.threshold.current();
        let extra = self.settings.extra_large;
        let large = match self.large.current() {
            large if extra => large_workers_lanes(large, workers, true),
            large => large,
        };
        let alone = self.settings.form() == Form::TimeShare;
        let ranges = || {
            SizeRanges::equal_cost(&self.learned.sizes, self.settings.cost, threshold, large.max(1))
        };
        CorePlan {
            epoch: self.epoch,
            design: Design::Minos,
            form: self.settings.form(),
            threshold,
            roles: roles(workers, large),
            workers_small: workers - large,
            large_lane: if alone { LargeLane::None } else { LargeLane::Ranges(ranges()) },
            standby_raised: !alone && large == 0 && load.large_requests > 0,
            slice_bytes: None,
            large_unsent_bytes_max: None,
            steal: if extra { Steal::ONE_AT_A_TIME } else { Steal::NEVER },
            access: Access::Crcw,
        }
    }
}

impl CorePolicy for Minos {
    fn initial(&self) -> CorePlan {
        self.current(&EpochLoad::default())
    }

    fn plan(&mut self, load: &EpochLoad) -> CorePlan {
        self.epoch += 1;
        self.learn(load);
        self.current(load)
    }
}
