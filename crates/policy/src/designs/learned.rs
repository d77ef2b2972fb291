//! Learns the sizes that are asked for, epoch by epoch. The designs that shard by size share it: it
//! knows how sizes are spread, where large begins, and which share of the cost small requests have
//! (Minos §3.1).

use crate::evidence::Evidence;
use crate::histogram::SmoothHistogram;
use crate::plan::EpochLoad;
use crate::settings::Settings;
use crate::threshold::ThresholdControl;

/// What was learned so far.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Learned {
    pub(super) sizes: SmoothHistogram,
    /// With those that the kernel answered.
    sizes_all: SmoothHistogram,
    pub(super) threshold: ThresholdControl,
    evidence: Evidence,
}

impl Learned {
    pub(super) fn new(threshold: ThresholdControl) -> Learned {
        Learned {
            sizes: SmoothHistogram::new(),
            sizes_all: SmoothHistogram::new(),
            threshold,
            evidence: Evidence::default(),
        }
    }

    /// Takes in one epoch's sizes. Returns the lowest and the highest share of the cost that small
    /// requests may have; an epoch without requests teaches nothing.
    pub(super) fn learn(&mut self, load: &EpochLoad, settings: &Settings) -> Option<(f64, f64)> {
        let samples = load.sizes.total();
        if samples == 0 {
            return None;
        }
        self.sizes.absorb(&load.sizes, settings.alpha);
        let mut all = load.sizes.clone();
        all.merge(&load.sizes_kernel);
        self.sizes_all.absorb(&all, settings.alpha);
        let threshold = self.threshold.after_epoch(&self.sizes_all, all.total());
        if samples < settings.samples_min {
            return Some(self.evidence.after_epoch(&load.sizes, settings.cost, threshold));
        }
        self.evidence.forget();
        let share = settings.cost.small_share(&self.sizes, threshold);
        Some((share, share))
    }
}
