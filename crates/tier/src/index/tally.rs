//! Counts what the store holds, as items come and go. A report of it takes no lock, and walks
//! neither the index nor the log nor sort tables.
//!
//! Statistics only: nothing hangs on the order of these atomics, which are all relaxed. Who reads
//! while something moves may see it at both places or at neither.

use crate::index::entry::{Counts, Entry, Home};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A number that goes up and down.
#[derive(Debug, Default)]
pub struct Amount(AtomicU64);

impl Amount {
    /// More.
    pub fn add(&self, count: u64) {
        self.0.fetch_add(count, Relaxed);
    }

    /// Less. What goes may be counted before what came: it is below 0 then, for a moment.
    pub fn take(&self, count: u64) {
        self.0.fetch_sub(count, Relaxed);
    }

    /// This.
    pub fn set(&self, count: u64) {
        self.0.store(count, Relaxed);
    }

    /// The number; 0 where it is below.
    pub fn get(&self) -> u64 {
        (self.0.load(Relaxed) as i64).max(0) as u64
    }
}

/// Entries of an index.
#[derive(Debug, Default)]
pub struct Entries {
    small_in_log: Amount,
    small_on_ssd: Amount,
    large: Amount,
    large_bytes: Amount,
    tombstones: Amount,
    lost: Amount,
}

/// Bytes of log and sort tables, beside those of the index.
#[derive(Debug, Default)]
pub struct Tally {
    /// Bytes of current records in the log.
    pub log_live_bytes: Amount,
    /// The same in sort tables.
    pub table_live_bytes: Amount,
    /// Sort tables.
    pub tables: Amount,
    /// Segments of the log that are free.
    pub free_segments: Amount,
}

impl Entries {
    /// Of an index that was filled.
    pub fn of(counts: Counts) -> Entries {
        let entries = Entries::default();
        entries.change(&counts, Amount::add);
        entries
    }

    fn change(&self, counts: &Counts, change: fn(&Amount, u64)) {
        let each = [
            (&self.small_in_log, counts.small_in_log),
            (&self.small_on_ssd, counts.small_on_ssd),
            (&self.large, counts.large),
            (&self.large_bytes, counts.large_bytes),
            (&self.tombstones, counts.tombstones),
            (&self.lost, counts.lost),
        ];
        each.into_iter().filter(|(_, count)| *count != 0).for_each(|(to, by)| change(to, by));
    }

    /// These are there now.
    pub fn came(&self, counts: &Counts) {
        self.change(counts, Amount::add);
    }

    /// This one is there no more.
    pub fn went(&self, entry: &Entry) {
        self.change(&Counts::of(entry), Amount::take);
    }

    /// The record of a small item is elsewhere now.
    pub fn small_moved(&self, from: Home, to: Home) {
        if from.is_ssd() == to.is_ssd() {
            return;
        }
        let (less, more) = match to.is_ssd() {
            true => (&self.small_in_log, &self.small_on_ssd),
            false => (&self.small_on_ssd, &self.small_in_log),
        };
        more.add(1);
        less.take(1);
    }

    /// How many there are.
    pub fn counts(&self) -> Counts {
        Counts {
            small_in_log: self.small_in_log.get(),
            small_on_ssd: self.small_on_ssd.get(),
            large: self.large.get(),
            large_bytes: self.large_bytes.get(),
            tombstones: self.tombstones.get(),
            lost: self.lost.get(),
        }
    }
}
