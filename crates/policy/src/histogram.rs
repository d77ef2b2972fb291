//! Counts requested sizes by class, smooths the counts over epochs, and finds percentiles in them
//! (Minos §3.1 "How to find the threshold").
//!
//! It departs from the paper: it has 10 classes, one per octave (§5); we have 8 per octave up to
//! the largest item, exact below 16 bytes, so that the end of the class that holds a percentile is
//! at most one eighth above it (test `cut_error_is_bounded`). A size above [`ITEM_BYTES_MAX`] (the
//! total of a long multiget) is counted in the last class.
//!
//! It knows no thread: a worker counts into its own array, as atomics if it likes, with the help of
//! [`SizeClass::of`]; whoever plans builds a histogram from the counts and merges. Sizes are bytes.

use crate::units::{ITEM_BYTES_MAX, ItemBytes};

/// Bits of a size below its highest one that tell classes of an octave apart.
const SUB_BITS: u32 = 3;

/// Classes in one octave.
pub const CLASSES_PER_OCTAVE: usize = 1 << SUB_BITS;

/// Number of classes.
pub const CLASS_COUNT: usize = class_index(ITEM_BYTES_MAX.0.next_power_of_two() - 1) + 1;

const _: () = assert!(CLASS_COUNT <= u8::MAX as usize);
const _: () = assert!(class_index(ITEM_BYTES_MAX.0) < CLASS_COUNT);
const _: () = assert!(class_index(7) == 7 && class_index(8) == 8 && class_index(16) == 16);

/// Sizes below 8 are their own class; above, the class is the exponent and the next three bits.
#[inline]
const fn class_index(size: u64) -> usize {
    if size < CLASSES_PER_OCTAVE as u64 {
        return size as usize;
    }
    let shift = size.ilog2() - SUB_BITS;
    shift as usize * CLASSES_PER_OCTAVE + (size >> shift) as usize
}

/// A contiguous range of sizes that are counted together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SizeClass(u8);

impl SizeClass {
    /// The class of a size. A handful of instructions: this is on every request's path.
    #[inline]
    pub const fn of(size: ItemBytes) -> SizeClass {
        let index = class_index(size.0);
        SizeClass(if index < CLASS_COUNT { index } else { CLASS_COUNT - 1 } as u8)
    }

    /// The class with this index.
    pub const fn from_index(index: usize) -> SizeClass {
        assert!(index < CLASS_COUNT);
        SizeClass(index as u8)
    }

    /// All classes, smallest sizes first.
    pub fn all() -> impl DoubleEndedIterator<Item = SizeClass> {
        (0..CLASS_COUNT).map(SizeClass::from_index)
    }

    /// Where the class stands in an array of `CLASS_COUNT` counts.
    #[inline]
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// Smallest size in the class.
    pub const fn first(self) -> ItemBytes {
        let index = self.index();
        if index < 2 * CLASSES_PER_OCTAVE {
            return ItemBytes(index as u64);
        }
        let shift = index / CLASSES_PER_OCTAVE - 1;
        ItemBytes(((index % CLASSES_PER_OCTAVE + CLASSES_PER_OCTAVE) as u64) << shift)
    }

    /// The first size above the class.
    pub const fn end(self) -> ItemBytes {
        ItemBytes(self.first().0 + self.width())
    }

    /// How many sizes the class holds.
    pub const fn width(self) -> u64 {
        match self.index() / CLASSES_PER_OCTAVE {
            0 => 1,
            octave => 1 << (octave - 1),
        }
    }

    /// The size that stands for the class where a cost is wanted: its middle.
    pub const fn middle(self) -> ItemBytes {
        ItemBytes(self.first().0 + self.width() / 2)
    }

    /// The part of the class's sizes that lies below `size`: 0 to 1, as if sizes were spread
    /// evenly over the class.
    pub fn share_below(self, size: ItemBytes) -> f64 {
        let below = size.0.saturating_sub(self.first().0).min(self.width());
        below as f64 / self.width() as f64
    }
}

/// Requests of one epoch, counted by size.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SizeHistogram {
    counts: [u64; CLASS_COUNT],
}

impl Default for SizeHistogram {
    fn default() -> Self {
        SizeHistogram { counts: [0; CLASS_COUNT] }
    }
}

impl SizeHistogram {
    /// An empty histogram.
    pub fn new() -> Self {
        Self::default()
    }

    /// The histogram whose class `i` has `count(i)`: for counts that live in atomics.
    pub fn from_fn(count: impl FnMut(usize) -> u64) -> Self {
        SizeHistogram { counts: core::array::from_fn(count) }
    }

    /// Count one request.
    #[inline]
    pub fn record(&mut self, size: ItemBytes) {
        self.counts[SizeClass::of(size).index()] += 1;
    }

    /// Count `requests` of one class.
    pub fn add(&mut self, class: SizeClass, requests: u64) {
        self.counts[class.index()] += requests;
    }

    /// Add what another worker counted.
    pub fn merge(&mut self, other: &SizeHistogram) {
        for (mine, theirs) in self.counts.iter_mut().zip(&other.counts) {
            *mine += theirs;
        }
    }

    /// Forget everything.
    pub fn reset(&mut self) {
        self.counts = [0; CLASS_COUNT];
    }

    /// Requests counted.
    pub fn total(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Requests counted in one class.
    pub fn count(&self, class: SizeClass) -> u64 {
        self.counts[class.index()]
    }

    /// The counts, by class.
    pub fn counts(&self) -> &[u64; CLASS_COUNT] {
        &self.counts
    }

    /// The class that holds the `percent`-th percentile by nearest rank; `None` when empty.
    ///
    /// If the exact percentile is `q`, the class found holds `q`, and its end is at most
    /// `q + max(1, q / 8)`.
    pub fn percentile(&self, percent: f64) -> Option<SizeClass> {
        percentile(self.counts.iter().map(|&count| count as f64), percent)
    }
}

/// Counts smoothed over epochs: the paper's `H_curr`.
#[derive(Debug, Clone, PartialEq)]
pub struct SmoothHistogram {
    weights: [f64; CLASS_COUNT],
}

impl Default for SmoothHistogram {
    fn default() -> Self {
        SmoothHistogram { weights: [0.0; CLASS_COUNT] }
    }
}

impl SmoothHistogram {
    /// Nothing seen yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Take in one epoch: `H_curr[i] = (1-α)·H_curr[i] + α·H[i]` (Minos §3.1).
    pub fn absorb(&mut self, epoch: &SizeHistogram, alpha: f64) {
        for (weight, &count) in self.weights.iter_mut().zip(&epoch.counts) {
            *weight = (1.0 - alpha) * *weight + alpha * count as f64;
        }
    }

    /// Add one epoch to what is there.
    pub fn pool(&mut self, epoch: &SizeHistogram) {
        for (weight, &count) in self.weights.iter_mut().zip(&epoch.counts) {
            *weight += count as f64;
        }
    }

    /// Take every weight times `factor`.
    pub fn scale(&mut self, factor: f64) {
        self.weights.iter_mut().for_each(|weight| *weight *= factor);
    }

    /// Requests, smoothed.
    pub fn total(&self) -> f64 {
        self.weights.iter().sum()
    }

    /// Requests of one class, smoothed.
    pub fn weight(&self, class: SizeClass) -> f64 {
        self.weights[class.index()]
    }

    /// As [`SizeHistogram::percentile`].
    pub fn percentile(&self, percent: f64) -> Option<SizeClass> {
        percentile(self.weights.iter().copied(), percent)
    }
}

/// Products and sums of counts are off by a few parts in 10^16 each; a rank is compared with this
/// much grace, or the 99.9th of 1000 equal steps might come out one class late.
const ROUNDING: f64 = 1e-9;

fn percentile(weights: impl Iterator<Item = f64> + Clone, percent: f64) -> Option<SizeClass> {
    let total: f64 = weights.clone().sum();
    if total <= 0.0 {
        return None;
    }
    let rank = total * percent / 100.0 * (1.0 - ROUNDING);
    let mut seen = 0.0;
    let mut last = None;
    for (index, weight) in weights.enumerate().filter(|(_, weight)| *weight > 0.0) {
        seen += weight;
        last = Some(SizeClass::from_index(index));
        if seen >= rank {
            break;
        }
    }
    last
}
