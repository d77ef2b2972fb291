//! How long requests took, from when their last byte was found to have arrived to their last byte
//! handed to the kernel: per operation, small and large apart, and by what they spent it on
//! ([`Part`]). A [`PendingLatencies`] goes with the requests, a [`RecordedLatencies`] is what a
//! worker counts them in; those that were large or slow are [`noted`], too.

pub(crate) mod note;
pub mod slow_log;

pub mod book;
pub mod buckets;
pub mod histogram;
pub mod noted;

pub use book::{Latencies, Part, RecordedLatencies};

use crate::built::OBSERVES;
use noted::Times;

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

/// Whether a row is of the large lane.
pub const fn is_row_of_large(row: usize) -> bool {
    row % 2 == 1
}

/// A bit for each row of the large lane.
const ROWS_LARGE: u16 = {
    let (mut rows, mut bits) = (0, 0);
    while rows < ROWS {
        bits |= (is_row_of_large(rows) as u16) << rows;
        rows += 1;
    }
    bits
};

/// Requests of one turn whose replies have not all left: they share one arrival time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PendingLatencies {
    /// When they were found to have arrived.
    since_nanos: u64,
    /// How long they had waited when their first turn began.
    wait_nanos: u64,
    /// How long their replies could not leave.
    drain_nanos: u64,
    /// Their replies cannot leave since then; 0 if they can.
    blocked_nanos: u64,
    /// Their first turn has begun.
    begun: bool,
    /// What is large among them has had its first slice.
    sliced: bool,
    /// A request of a megabyte has more keys than 16 bits count.
    counts: [u32; ROWS],
    /// A bit for each row that has requests.
    used: u16,
    /// Key and value of the longest large item among them.
    bytes: u64,
}
const _: () = assert!(ROWS <= u16::BITS as usize);

impl PendingLatencies {
    /// One more request, whose last byte came at `now_nanos`.
    pub fn add(&mut self, row: usize, now_nanos: u64) {
        self.add_many(row, 1, now_nanos);
    }

    /// So many more requests, whose last byte came at `now_nanos`.
    pub fn add_many(&mut self, row: usize, requests: u16, now_nanos: u64) {
        if !OBSERVES {
            return; // so there is never one, and nothing below has anything to do
        }
        if self.used == 0 {
            self.since_nanos = now_nanos;
        }
        self.used |= 1 << row;
        self.counts[row] = self.counts[row].saturating_add(requests.into());
    }

    /// One of them is about a large item of so many bytes.
    pub fn is_about(&mut self, bytes: u64) {
        self.bytes = self.bytes.max(bytes);
    }

    /// Whether an operator may want to know of them: one is large, or they took `slow_nanos`.
    #[inline]
    pub fn is_notable(&self, now_nanos: u64, slow_nanos: u64) -> bool {
        self.used & ROWS_LARGE != 0 || now_nanos.saturating_sub(self.since_nanos) >= slow_nanos
    }

    /// What is to be noted of them, all answered at `now_nanos`, in that second of Unix time.
    /// `moved_bytes`: what came and left with them.
    pub fn times(&mut self, now_nanos: u64, unix_seconds: u32, moved_bytes: u64) -> Times {
        let large = self.used & ROWS_LARGE;
        let told = if large != 0 { large } else { self.used };
        Times {
            ended_nanos: now_nanos,
            unix_seconds,
            row: told.trailing_zeros() as usize,
            requests: self.counts.iter().map(|requests| u64::from(*requests)).sum(),
            bytes: if large != 0 { std::mem::take(&mut self.bytes) } else { moved_bytes },
            took_nanos: now_nanos.saturating_sub(self.since_nanos),
            wait_nanos: self.wait_nanos,
            drain_nanos: self.drain_nanos,
        }
    }

    /// Their turn began at `now_nanos`: until then they waited. Says nothing of later turns.
    pub fn begins(&mut self, now_nanos: u64) {
        if !self.is_empty() && !std::mem::replace(&mut self.begun, true) {
            self.waited_until(now_nanos);
        }
    }

    /// What is large among them has a slice: until the first one it waited.
    pub fn has_slice(&mut self, now_nanos: u64) {
        if !self.is_empty() && !std::mem::replace(&mut self.sliced, true) {
            self.waited_until(now_nanos);
        }
    }

    fn waited_until(&mut self, now_nanos: u64) {
        // Where replies could not leave since then, that is not told from waiting: it is draining.
        if self.drain_nanos + self.blocked_nanos == 0 {
            self.wait_nanos = now_nanos.saturating_sub(self.since_nanos);
        }
    }

    /// The client takes no more of their replies.
    pub fn blocks(&mut self, now: impl FnOnce() -> u64) {
        if !self.is_empty() && self.blocked_nanos == 0 {
            self.blocked_nanos = now().max(1);
        }
    }

    /// The client may take more of their replies.
    pub fn goes_on(&mut self, now: impl FnOnce() -> u64) {
        if OBSERVES && self.blocked_nanos != 0 {
            self.drain_nanos += now().saturating_sub(self.blocked_nanos);
            self.blocked_nanos = 0;
        }
    }

    /// All are recorded; the counts were taken.
    fn settled(&mut self) {
        self.used = 0;
        self.wait_nanos = 0;
        self.drain_nanos = 0;
        self.blocked_nanos = 0;
        (self.begun, self.sliced) = (false, false);
    }

    /// What another worker has done for the same connection, too.
    pub fn merge(&mut self, other: &PendingLatencies) {
        if other.is_empty() {
            return;
        }
        if self.is_empty() {
            (self.since_nanos, self.wait_nanos) = (other.since_nanos, other.wait_nanos);
        }
        self.used |= other.used;
        self.is_about(other.bytes);
        for (count, more) in self.counts.iter_mut().zip(other.counts) {
            *count = count.saturating_add(more);
        }
    }

    /// Whether any request waits to be recorded.
    #[inline]
    pub fn is_empty(&self) -> bool {
        !OBSERVES || self.used == 0
    }
}

#[cfg(test)]
mod tests;
