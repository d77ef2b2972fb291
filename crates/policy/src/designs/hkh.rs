//! `hkh`: key-hash sharding (MICA; Minos §5 "HKH"). A request is served by the worker that
//! receives it, to completion, whatever its size: the rival that shows what lanes are worth.
//!
//! It departs from the paper: the threshold is computed all the same, as `lanes` does it, so that
//! the statistics of both call the same requests large. Routes nothing by it. The access mode is a
//! setting (MICA §4.1); where a client sent a request to another than the key's owner, it is handed
//! to the owner, which the paper leaves to the network card.

use crate::cores::{Form, Role};
use crate::designs::{CorePolicy, Design};
use crate::histogram::SmoothHistogram;
use crate::plan::{CorePlan, EpochLoad, LargeLane, Steal};
use crate::settings::Settings;
use crate::threshold::{Clamp, ThresholdControl};
use alloc::vec;

/// The design's state from epoch to epoch.
#[derive(Debug, Clone, PartialEq)]
pub struct Hkh {
    settings: Settings,
    sizes: SmoothHistogram,
    threshold: ThresholdControl,
    epoch: u64,
}

impl Hkh {
    /// Takes settings that [`Settings::check`] has passed.
    pub(super) fn new(settings: Settings) -> Self {
        let threshold =
            ThresholdControl::new(&settings, Clamp::frame_to_slice(settings.slice_bytes));
        Hkh { settings, sizes: SmoothHistogram::new(), threshold, epoch: 0 }
    }

    fn current(&self) -> CorePlan {
        CorePlan {
            epoch: self.epoch,
            design: Design::Hkh,
            form: Form::TimeShare,
            threshold: self.threshold.current(),
            roles: vec![Role::Both; usize::from(self.settings.workers)],
            workers_small: self.settings.workers,
            large_lane: LargeLane::None,
            standby_raised: false,
            slice_bytes: None,
            large_unsent_bytes_max: None,
            steal: Steal::NEVER,
            access: self.settings.access,
        }
    }
}

impl CorePolicy for Hkh {
    fn initial(&self) -> CorePlan {
        self.current()
    }

    fn plan(&mut self, load: &EpochLoad) -> CorePlan {
        self.epoch += 1;
        let samples = load.sizes.total();
        if samples > 0 {
            self.sizes.absorb(&load.sizes, self.settings.alpha);
            self.threshold.after_epoch(&self.sizes, samples);
        }
        self.current()
    }
}
