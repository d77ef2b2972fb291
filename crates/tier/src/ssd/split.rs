//! Decides which of the two paths a value takes, for every caller. Where the boundary follows the
//! media ([`crate::ssd::boundary`]), it also passes on how long the media took.
//!
//! A record says itself whether its value is in it or on the SSD, so each value is found the way it
//! went, wherever the boundary was then and is now.

use crate::log::segment::Shape;
use crate::ssd::boundary::{Boundary, Mix, Took};
use crate::ssd::value::WAITING_VALUE_BYTES_MAX;
use crate::types::Settings;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard};

/// The boundary.
pub struct Split {
    /// Whoever sees an older one sends a value the other way, and it is found there. Relaxed.
    bytes: AtomicUsize,
    /// A statistic.
    moves: AtomicU64,
    /// Short values that found no room to wait, since somebody asked last: how many, their bytes,
    /// and how long it took to write them. Statistics; relaxed.
    spilled: [AtomicU64; 3],
    /// Where it moves. Taken by one thread at a time, but that migration may come by.
    boundary: Option<Mutex<Boundary>>,
}

impl Split {
    /// As the settings have it, in front of a log of this shape.
    ///
    /// It moves among values that wait for their group: what longer ones take straight to the SSD
    /// is not measured, since they are written as they arrive; and by way of the log each would be
    /// copied in one go, while whoever appends waits.
    pub fn new(settings: &Settings, shape: &Shape) -> Split {
        let bytes = settings.split_bytes;
        let most = shape.record_bytes_max().min(WAITING_VALUE_BYTES_MAX);
        let boundary =
            settings.split_adapts.then(|| Boundary::new(bytes, most, settings.table_bytes));
        let bytes = boundary.as_ref().map_or(bytes, Boundary::bytes);
        Split {
            bytes: AtomicUsize::new(bytes),
            moves: AtomicU64::new(0),
            spilled: Default::default(),
            boundary: boundary.map(Mutex::new),
        }
    }

    /// Values of this size and above go straight to the SSD.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Relaxed)
    }

    /// How often it moved.
    pub fn moves(&self) -> u64 {
        self.moves.load(Relaxed)
    }

    /// Whether it moves.
    pub fn adapts(&self) -> bool {
        self.boundary.is_some()
    }

    /// See [`Boundary::group_took`].
    pub fn group_took(&self, took: Took, mix: &Mix, fullness: f64) {
        let Some(mut boundary) = self.boundary() else { return };
        boundary.group_took(took, mix, fullness);
        // By who holds the lock, so that the last to move it is the last to say so.
        if self.bytes.swap(boundary.bytes(), Relaxed) != boundary.bytes() {
            self.moves.fetch_add(1, Relaxed);
        }
    }

    /// A short value found no room to wait, and was written by itself.
    pub fn spill_took(&self, bytes: u64, nanos: u64) {
        for (sum, more) in self.spilled.iter().zip([1, bytes, nanos]) {
            sum.fetch_add(more, Relaxed);
        }
    }

    /// What these took since this was asked last; their records are in some group about now.
    pub fn take_spilled(&self) -> Took {
        let [values, ssd_bytes, nanos] = self.spilled.each_ref().map(|sum| sum.swap(0, Relaxed));
        Took { log_bytes: 0, values, ssd_bytes, nanos }
    }

    /// See [`Boundary::table_took`].
    pub fn table_took(&self, bytes: u64, nanos: u64) {
        if let Some(mut boundary) = self.boundary() {
            boundary.table_took(bytes, nanos);
        }
    }

    /// See [`Boundary::migration_took`].
    pub fn migration_took(&self, freed_bytes: u64, tabled_bytes: u64, nanos: u64) {
        if let Some(mut boundary) = self.boundary() {
            boundary.migration_took(freed_bytes, tabled_bytes, nanos);
        }
    }

    /// See [`Boundary::compaction_took`].
    pub fn compaction_took(&self, reclaimed_bytes: u64, nanos: u64) {
        if let Some(mut boundary) = self.boundary() {
            boundary.compaction_took(reclaimed_bytes, nanos);
        }
    }

    fn boundary(&self) -> Option<MutexGuard<'_, Boundary>> {
        Some(self.boundary.as_ref()?.lock().expect("nobody panics inside"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_moves_no_further_than_to_what_waits_for_its_group_and_is_set_wherever_it_is_asked_for() {
        let shape = Shape::of(64 << 20, 4 << 20).unwrap();
        for (split_bytes, adapting) in [(4096, 4096), (1 << 20, 64 << 10), (usize::MAX, 64 << 10)] {
            let fixed = Settings { split_bytes, ..Settings::default() };
            assert_eq!(Split::new(&fixed, &shape).bytes(), split_bytes);
            let adapts = Settings { split_adapts: true, ..fixed };
            assert_eq!(Split::new(&adapts, &shape).bytes(), adapting);
        }
        // The log is the cheaper way for values of any length.
        let adapts = Settings { split_adapts: true, ..Settings::default() };
        let split = Split::new(&adapts, &shape);
        for bytes in [5000_u64, 20_000, 60_000, 200_000].into_iter().cycle().take(4000) {
            let mut mix = Mix::default();
            mix.count(bytes as usize);
            let is_small = (bytes as usize) < split.bytes();
            let log_bytes = if is_small { bytes } else { 128 };
            let (values, ssd_bytes) = if is_small { (0, 0) } else { (1, bytes) };
            let nanos = log_bytes + 1_000_000 * values;
            split.group_took(Took { log_bytes, values, ssd_bytes, nanos }, &mix, 0.0);
        }
        assert_eq!(split.bytes(), 64 << 10);
    }
}
