//! Decides which of the two paths a value takes, for every caller. Where the boundary follows the
//! media ([`crate::boundary`]), it also passes on how long the media took.
//!
//! A record says itself whether its value is in it or on the SSD, so each value is found the way it
//! went, wherever the boundary was then and is now.

use crate::boundary::{Boundary, Mix, Took};
use crate::segment::Shape;
use crate::types::Settings;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard};

/// The boundary.
pub struct Split {
    /// Whoever sees an older one sends a value the other way, and it is found there. Relaxed.
    bytes: AtomicUsize,
    /// A statistic.
    moves: AtomicU64,
    /// Where it moves. Taken by one thread at a time, but that migration may come by.
    boundary: Option<Mutex<Boundary>>,
}

impl Split {
    /// As the settings have it, in front of a log of this shape.
    pub fn new(settings: &Settings, shape: &Shape) -> Split {
        let (bytes, most) = (settings.split_bytes, shape.record_bytes_max());
        let boundary =
            settings.split_adapts.then(|| Boundary::new(bytes, most, settings.table_bytes));
        let bytes = boundary.as_ref().map_or(bytes, Boundary::bytes);
        Split {
            bytes: AtomicUsize::new(bytes),
            moves: AtomicU64::new(0),
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
