//! How long requests took, from their last byte in to their last byte handed to the kernel: per
//! operation, small and large apart. Histograms of nanoseconds with two significant digits, one
//! book per worker; the owner writes, `stats latency` merges.

use hdrhistogram::Histogram;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What kind of operation a latency belongs to. Meta commands count with their classic kin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Operation {
    /// `get gets gat gats mg`
    Get,
    /// `set add replace append prepend cas ms`
    Set,
    /// `delete md`
    Delete,
    /// `incr decr ma`
    Arith,
    /// `touch`
    Touch,
    /// Everything else.
    Other,
}

impl Operation {
    /// All, in the order of their numbers.
    pub const ALL: [Operation; 6] = [
        Operation::Get,
        Operation::Set,
        Operation::Delete,
        Operation::Arith,
        Operation::Touch,
        Operation::Other,
    ];

    /// As `stats latency` names it.
    pub const fn name(self) -> &'static str {
        ["get", "set", "delete", "arith", "touch", "other"][self as usize]
    }
}

/// Rows of a book: operation × (small, large).
pub const ROWS: usize = Operation::ALL.len() * 2;

/// The row of an operation on an item of the small or the large lane.
pub const fn row(operation: Operation, large: bool) -> usize {
    operation as usize * 2 + large as usize
}

/// Longest latency told apart, in nanoseconds: an hour.
const NANOS_MAX: u64 = 3_600_000_000_000;

/// Requests of one turn whose replies have not all left: they share one arrival time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    since_nanos: u64,
    counts: [u16; ROWS],
    /// A bit for each row that has requests.
    used: u16,
}
const _: () = assert!(ROWS <= u16::BITS as usize);

impl Tally {
    /// One more request, whose last byte came at `now_nanos`.
    pub fn add(&mut self, row: usize, now_nanos: u64) {
        self.add_many(row, 1, now_nanos);
    }

    /// So many more requests, whose last byte came at `now_nanos`.
    pub fn add_many(&mut self, row: usize, requests: u16, now_nanos: u64) {
        if self.used == 0 {
            self.since_nanos = now_nanos;
        }
        self.used |= 1 << row;
        self.counts[row] = self.counts[row].saturating_add(requests);
    }

    /// What another worker has done for the same connection, too.
    pub fn merge(&mut self, other: &Tally) {
        if other.used == 0 {
            return;
        }
        if self.used == 0 {
            self.since_nanos = other.since_nanos;
        }
        self.used |= other.used;
        for (count, more) in self.counts.iter_mut().zip(other.counts) {
            *count = count.saturating_add(more);
        }
    }

    /// Whether any request waits to be recorded.
    pub fn is_empty(&self) -> bool {
        self.used == 0
    }
}

/// One worker's histograms.
pub struct Book {
    rows: Mutex<Vec<Histogram<u32>>>,
}

impl Default for Book {
    fn default() -> Self {
        Book { rows: Mutex::new((0..ROWS).map(|_| histogram()).collect()) }
    }
}

fn histogram() -> Histogram<u32> {
    Histogram::new_with_bounds(1, NANOS_MAX, 2).expect("the bounds are constants, and legal")
}

impl Book {
    /// Record every request of `tally`, done at `now_nanos`, and empty it.
    pub fn settle(&self, tally: &mut Tally, now_nanos: u64) {
        let took = now_nanos.saturating_sub(tally.since_nanos).max(1);
        let mut rows = self.lock();
        let mut used = tally.used;
        while used != 0 {
            let row = used.trailing_zeros() as usize;
            used &= used - 1;
            let count = std::mem::take(&mut tally.counts[row]);
            rows[row].saturating_record_n(took, u32::from(count));
        }
        tally.used = 0;
    }

    /// Add what is here to `sum`.
    pub fn merge_into(&self, sum: &mut [Histogram<u64>]) {
        for (sum, row) in sum.iter_mut().zip(self.lock().iter()) {
            for step in row.iter_recorded() {
                sum.saturating_record_n(step.value_iterated_to(), step.count_at_value().into());
            }
        }
    }

    /// Forget everything (`stats reset`).
    pub fn reset(&self) {
        self.lock().iter_mut().for_each(Histogram::reset);
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Histogram<u32>>> {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Empty rows to merge books into.
pub fn empty_rows() -> Vec<Histogram<u64>> {
    let histogram = || {
        Histogram::new_with_bounds(1, NANOS_MAX, 2).expect("the bounds are constants, and legal")
    };
    (0..ROWS).map(|_| histogram()).collect()
}
