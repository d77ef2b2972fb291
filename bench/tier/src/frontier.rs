//! Which items are there: numbers are given out in order, writes of them end in any, and only those
//! below the frontier may be asked for. Where a store shows a write only after a commit, the
//! frontier moves with the commits.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

/// The frontier.
pub struct Frontier {
    next: AtomicU32,
    readable: AtomicU32,
    written: Mutex<Written>,
}

struct Written {
    /// All below are written.
    below: u32,
    /// Written beyond that.
    beyond: BTreeSet<u32>,
}

impl Frontier {
    /// The first `records` are there.
    pub fn new(records: u32) -> Frontier {
        let written = Mutex::new(Written { below: records, beyond: BTreeSet::new() });
        Frontier { next: AtomicU32::new(records), readable: AtomicU32::new(records), written }
    }

    /// A number that nobody has.
    pub fn take(&self) -> u32 {
        self.next.fetch_add(1, Ordering::Relaxed) // a count; the item is published by the store
    }

    /// Its item is written. Returns below which all are.
    pub fn wrote(&self, number: u32) -> u32 {
        let mut written = self.written.lock().expect("nobody panics inside");
        written.beyond.insert(number);
        let mut below = written.below;
        while written.beyond.remove(&below) {
            below += 1;
        }
        written.below = below;
        below
    }

    /// Below which all are written.
    pub fn written(&self) -> u32 {
        self.written.lock().expect("nobody panics inside").below
    }

    /// All below `number` can be read.
    pub fn show(&self, number: u32) {
        self.readable.fetch_max(number, Ordering::Release); // (A) pairs with (B): what was written
    }

    /// Below which all can be read.
    pub fn readable(&self) -> u32 {
        self.readable.load(Ordering::Acquire) // (B) pairs with (A)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_out_of_order_waits_for_what_is_before_it() {
        let frontier = Frontier::new(10);
        assert_eq!([frontier.take(), frontier.take(), frontier.take()], [10, 11, 12]);
        assert_eq!((frontier.wrote(12), frontier.wrote(11)), (10, 10));
        assert_eq!((frontier.wrote(10), frontier.written()), (13, 13));
        assert_eq!(frontier.readable(), 10);
        frontier.show(13);
        frontier.show(11);
        assert_eq!(frontier.readable(), 13);
    }
}
