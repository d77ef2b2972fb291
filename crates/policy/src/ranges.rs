//! Divides the large sizes among the large workers: contiguous ranges, one for each, that cost the
//! same (Minos §3.1 "Operating with a number of large cores different from one").
//!
//! A boundary inside a size class is placed as if the class's requests were spread evenly over it,
//! so a range's true cost may miss its share by what its two outermost classes cost (test
//! `ranges_cost_the_same_within_a_class`).
//!
//! It departs from the paper where one class costs more than a range's share: it may hold a single
//! size, and wherever the boundaries lay, one worker would have all of it and its neighbours none.
//! The ranges that such a class spans share it, and whoever hands a request over gives it to the
//! one with the shortest queue.
//!
//! It knows no worker: range 0 holds the smallest of the large sizes. Unit: bytes.

use crate::cost::CostModel;
use crate::histogram::{SizeClass, SmoothHistogram};
use crate::units::ItemBytes;
use alloc::vec::Vec;

/// Contiguous ranges over all sizes from the threshold up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SizeRanges {
    /// Where each range but the first begins, ascending.
    boundaries: Vec<ItemBytes>,
    /// Classes that several ranges share, ascending.
    shared: Vec<Shared>,
}

/// Sizes from `first` up to below `end`, of which the ranges `low..=high` have a part each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Shared {
    first: ItemBytes,
    end: ItemBytes,
    low: usize,
    high: usize,
}

/// A class may come out this much above a share that it is equal to.
const ROUNDING: f64 = 1e-9;

impl SizeRanges {
    /// `count` ranges of equal cost over the sizes from `threshold` up. If nothing large was seen
    /// the first range holds everything.
    pub fn equal_cost(
        sizes: &SmoothHistogram,
        cost: CostModel,
        threshold: ItemBytes,
        count: u16,
    ) -> SizeRanges {
        assert!(count > 0);
        let large =
            |class: SizeClass| cost.of_class(sizes, class) * (1.0 - class.share_below(threshold));
        let total: f64 = SizeClass::all().map(large).sum();
        let share = total / f64::from(count);
        let mut boundaries = Vec::with_capacity(usize::from(count) - 1);
        let mut shared = Vec::new();
        let mut below = 0.0;
        for class in SizeClass::all() {
            let here = large(class);
            let first = class.first().max(threshold);
            let low = boundaries.len();
            while here > 0.0
                && boundaries.len() + 1 < usize::from(count)
                && below + here >= share * (boundaries.len() + 1) as f64
            {
                let wanted = share * (boundaries.len() + 1) as f64 - below;
                let bytes = (class.end().0 - first.0) as f64 * (wanted / here).clamp(0.0, 1.0);
                boundaries.push(ItemBytes(first.0 + bytes as u64));
            }
            let high = boundaries.len();
            if high > low && here > share * (1.0 + ROUNDING) {
                shared.push(Shared { first, end: class.end(), low, high });
            }
            below += here;
        }
        // Rounding may leave the last boundary a hair above all sizes; so may an empty histogram.
        boundaries.resize(usize::from(count) - 1, ItemBytes(u64::MAX));
        SizeRanges { boundaries, shared }
    }

    /// How many ranges there are.
    pub fn count(&self) -> usize {
        self.boundaries.len() + 1
    }

    /// The range that holds a size, by the boundaries alone.
    pub fn range_of(&self, size: ItemBytes) -> usize {
        self.boundaries.partition_point(|&boundary| boundary <= size)
    }

    /// The ranges that have a part of a size, the first and the last: one and the same but where
    /// they share its class.
    pub fn ranges_of(&self, size: ItemBytes) -> (usize, usize) {
        match self.shared.iter().find(|shared| (shared.first..shared.end).contains(&size)) {
            Some(shared) => (shared.low, shared.high),
            None => (self.range_of(size), self.range_of(size)),
        }
    }

    /// Where each range but the first begins, ascending.
    pub fn boundaries(&self) -> &[ItemBytes] {
        &self.boundaries
    }
}
