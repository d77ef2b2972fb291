//! Counts what each worker has done: there is one [`Counters`] per worker, and readers sum them.
//!
//! A counter has one writer, the worker that owns the set; so counting is a load and a store, never
//! a locked instruction. Readers sum racily: each counter is exact, a set of them is a moment's
//! smear. `stats reset` writes no counter, since that would be a second writer: a [`StatsRegistry`]
//! keeps the sums of that moment and subtracts them from then on.
//!
//! It knows no protocol. Units are in the names; everything else is a count of requests.

use crate::built::OBSERVES;
use std::mem::offset_of;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

/// One number that decisions hang on (plans, limits, whether a worker makes turns), so that every
/// build has it. It is written by one worker and read by any.
#[derive(Debug, Default)]
pub struct Count(AtomicU64);

impl Count {
    /// Count `n` more. Only the worker that owns the set calls this.
    pub fn add_owner(&self, n: u64) {
        // Relaxed, with no partner: a count orders nothing, and its only writer is this thread, so
        // nothing can come between the load and the store.
        self.0.store(self.0.load(Relaxed).wrapping_add(n), Relaxed);
    }

    /// Overwrite the count, by one that is kept elsewhere. Only the worker that owns the set calls
    /// this.
    pub fn set_owner(&self, value: u64) {
        self.0.store(value, Relaxed); // no partner: see `add_owner`
    }

    /// The count so far.
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed) // no partner: see `add_owner`
    }
}

/// One count that only operators read: a build that records nothing does not add to it. It is
/// written by one worker and read by any.
#[derive(Debug, Default)]
pub struct Counter(Count);

impl Counter {
    /// Count `n` more. Only the worker that owns the set calls this.
    pub fn add_owner(&self, n: u64) {
        if OBSERVES {
            self.0.add_owner(n);
        }
    }

    /// Count one more. Only the worker that owns the set calls this.
    pub fn bump_owner(&self) {
        self.add_owner(1);
    }

    /// Overwrite the count, by one that is kept elsewhere. Only the worker that owns the set calls
    /// this.
    pub fn set_owner(&self, value: u64) {
        self.0.set_owner(value);
    }

    /// The count so far.
    pub fn get(&self) -> u64 {
        self.0.get()
    }
}

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// One worker's counters. Aligned so that no two workers write one cache line.
        #[derive(Debug, Default)]
        #[repr(align(128))]
        pub struct Counters {
            $($(#[$doc])* pub $name: Counter,)*
        }

        impl Counters {
            /// Count what was counted in others, too. Only the worker that owns the set calls this.
            pub fn take_over(&self, others: &Counters) {
                $(self.$name.add_owner(others.$name.get());)*
            }
        }

        /// The counters of several workers, summed.
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
        pub struct Totals {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl Totals {
            /// Add one worker's counters.
            pub fn add(&mut self, counters: &Counters) {
                $(self.$name = self.$name.wrapping_add(counters.$name.get());)*
            }

            /// Add what others counted.
            pub fn add_totals(&mut self, others: &Totals) {
                $(self.$name = self.$name.wrapping_add(others.$name);)*
            }

            /// What was counted since `baseline`.
            pub fn since(&self, baseline: &Totals) -> Totals {
                Totals { $($name: self.$name.wrapping_sub(baseline.$name),)* }
            }
        }
    };
}

// The first are those that every `get` counts; they share a cache line.
counters! {
    /// Keys asked for by `get`, `gets`, `mg`.
    cmd_get,
    /// Keys found by `get`, `gets`, `mg`.
    get_hits,
    /// Keys not found by `get`, `gets`, `mg`.
    get_misses,
    /// Meta commands.
    cmd_meta,
    /// Bytes received.
    bytes_read,
    /// Bytes sent.
    bytes_written,
    /// Values sent to be stored, whatever came of them.
    cmd_set,
    /// `flush_all`, refused ones included.
    cmd_flush,
    /// Keys touched by `touch`, `gat`, `gats`, `mg` with `T`.
    cmd_touch,
    /// Deletes of a key that was not there, or whose CAS id differed.
    delete_misses,
    /// Deletes.
    delete_hits,
    /// `incr` of a key that was not there.
    incr_misses,
    /// `incr` of a number.
    incr_hits,
    /// `decr` of a key that was not there.
    decr_misses,
    /// `decr` of a number.
    decr_hits,
    /// `cas` of a key that was not there.
    cas_misses,
    /// `cas` that stored.
    cas_hits,
    /// `cas` refused because the CAS id differed.
    cas_badval,
    /// Touches that found their key.
    touch_hits,
    /// Touches that did not.
    touch_misses,
    /// Values refused for their size.
    store_too_large,
    /// Values refused for want of memory.
    store_no_memory,
    /// Turns of a connection cut short to let others in.
    conn_yields,
    /// Of the keys found by reads, those of items in the large lane.
    get_hits_large,
    /// Requests that the protocol does not have, or that break its rules.
    malformed,
    /// Users with passwords that clients sent.
    auth_cmds,
    /// Of these, wrong ones.
    auth_errors,
    /// Of these, those nobody looked at: too many wrong ones had come from their address.
    auth_limited,
    /// Requests that should have had a user and a password, in a form that is none.
    auth_malformed,
    /// Requests that were refused because nobody had said who he is.
    auth_missing,
    /// Requests that change something, refused at a read-only port.
    refused_read_only,
    /// Requests of RESP that are about no key, and `WATCH`, but for those that were refused or wait
    /// for `EXEC`.
    resp_keyless,
    /// Times that a connection waited because its client was over its limit.
    client_holds,
    /// How long they waited, in all.
    client_held_nanos,
    /// Times that a connection waited because its listener was over its limit.
    listener_holds,
    /// How long they waited, in all.
    listener_held_nanos,
}

const LINE_BYTES: usize = 64;
const _: () = assert!(offset_of!(Counters, cmd_get) < LINE_BYTES);
const _: () = assert!(offset_of!(Counters, get_hits) < LINE_BYTES);
const _: () = assert!(offset_of!(Counters, get_misses) < LINE_BYTES);
const _: () = assert!(offset_of!(Counters, cmd_meta) < LINE_BYTES);
const _: () = assert!(offset_of!(Counters, bytes_read) < LINE_BYTES);
const _: () = assert!(offset_of!(Counters, bytes_written) < LINE_BYTES);

/// The counters of all workers, and what they showed at the last `stats reset`.
#[derive(Debug)]
pub struct StatsRegistry {
    workers: Vec<Counters>,
    baseline: Mutex<Totals>,
}

impl StatsRegistry {
    /// A board for `workers` workers.
    pub fn new(workers: usize) -> Self {
        let workers = (0..workers).map(|_| Counters::default()).collect();
        StatsRegistry { workers, baseline: Mutex::default() }
    }

    /// The counters of one worker, for that worker to write.
    pub fn worker(&self, index: usize) -> &Counters {
        &self.workers[index]
    }

    /// What all workers counted since the last reset.
    pub fn totals(&self) -> Totals {
        let sum = self.sum();
        sum.since(&self.baseline.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// What all workers counted since the start, whatever was reset.
    pub fn since_start(&self) -> Totals {
        self.sum()
    }

    /// `stats reset`: count from here.
    pub fn reset(&self) {
        *self.baseline.lock().unwrap_or_else(PoisonError::into_inner) = self.sum();
    }

    fn sum(&self) -> Totals {
        let mut totals = Totals::default();
        self.workers.iter().for_each(|counters| totals.add(counters));
        totals
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_board_sums_its_workers_and_counts_from_the_reset() {
        let board = StatsRegistry::new(3);
        board.worker(0).cmd_get.add_owner(5);
        board.worker(2).cmd_get.bump_owner();
        board.worker(1).bytes_read.add_owner(40);
        assert_eq!((board.totals().cmd_get, board.totals().bytes_read), (6, 40));
        board.reset();
        assert_eq!(board.totals(), Totals::default());
        board.worker(2).cmd_get.bump_owner();
        assert_eq!(board.totals().cmd_get, 1);
    }
}
