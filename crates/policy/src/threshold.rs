//! Picks the size that separates small items from large ones: the Nth percentile of requested
//! sizes, per epoch (Minos §3.1).
//!
//! The paper declares the class of the percentile to be the threshold; here the threshold is the
//! first size above that class, so that the smallest N percent are all small. It may exceed the
//! exact percentile by one eighth (see [`crate::histogram`]).
//!
//! It departs from the paper: a design may clamp the threshold, for with more than 100 − N percent
//! of large requests the percentile itself is large and nothing would be called so; and the
//! threshold stays where it is while fewer requests were seen than a percentile needs to mean
//! anything (of fewer than 100, the 99th percentile is merely the largest).
//!
//! It knows no plan and no epoch length. A size at or above the threshold is large. Unit: bytes.

use crate::histogram::SmoothHistogram;
use crate::settings::Settings;
use crate::units::{FRAME_BYTES, ITEM_BYTES_MAX, ItemBytes};

/// The bounds a design keeps its threshold within.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Clamp {
    /// Smallest threshold.
    pub min: ItemBytes,
    /// Largest threshold.
    pub max: ItemBytes,
}

impl Clamp {
    /// Any size: the percentile as it is.
    pub const NONE: Clamp = Clamp { min: ItemBytes(1), max: ITEM_BYTES_MAX };

    /// `[one frame, one slice]`: what fits a frame is never worth handing over, and what exceeds a
    /// slice is never run to completion before others.
    pub const fn frame_to_slice(slice: ItemBytes) -> Clamp {
        Clamp { min: FRAME_BYTES, max: slice }
    }

    /// The bound nearest to `size`, or `size` itself.
    pub fn apply(self, size: ItemBytes) -> ItemBytes {
        size.clamp(self.min, self.max)
    }
}

/// The threshold as it moves from epoch to epoch.
#[derive(Debug, Clone, PartialEq)]
pub struct ThresholdControl {
    current: ItemBytes,
    fixed: bool,
    percentile: f64,
    clamp: Clamp,
    samples_needed: f64,
}

impl ThresholdControl {
    /// A threshold that the settings fix (the clamp does not touch it: the operator knows), or one
    /// that starts at the clamp's upper bound, so that a large request is known as one at once.
    pub fn new(settings: &Settings, clamp: Clamp) -> Self {
        let beyond = 100.0 - settings.percentile;
        ThresholdControl {
            current: settings.threshold_fixed.unwrap_or(clamp.max),
            fixed: settings.threshold_fixed.is_some(),
            percentile: settings.percentile,
            clamp,
            samples_needed: (100.0 / beyond).min(settings.samples_min as f64),
        }
    }

    /// The same, with this threshold until the first epoch has ended, unless it is fixed.
    pub fn starting_at(self, threshold: ItemBytes) -> Self {
        let current = if self.fixed { self.current } else { threshold };
        ThresholdControl { current, ..self }
    }

    /// The threshold in force.
    pub fn current(&self) -> ItemBytes {
        self.current
    }

    /// The threshold after an epoch of `samples` requests that `sizes` has already absorbed.
    pub fn after_epoch(&mut self, sizes: &SmoothHistogram, samples: u64) -> ItemBytes {
        let evidence = sizes.total().max(samples as f64);
        if !self.fixed
            && evidence >= self.samples_needed
            && let Some(class) = sizes.percentile(self.percentile)
        {
            self.current = self.clamp.apply(class.end());
        }
        self.current
    }
}
