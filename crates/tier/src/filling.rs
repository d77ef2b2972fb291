//! What a checkpoint fills when a store is opened: the index, and the count of the space that its
//! entries hold.

use crate::checkpoint::{Head, Visit};
use crate::index::{Builder, Counts, Entry, Home, Index, What};
use crate::ledger::Ledger;

/// A deletion that a checkpoint remembers: its key and sequence, and where its record was then.
pub type Deletion = (Box<[u8]>, u64, Home);

/// What came so far.
pub struct Filling {
    builder: Builder,
    ledger: Ledger,
    /// Entries by what they are.
    pub counts: Counts,
    /// Deletions among them.
    pub deletions: Vec<Deletion>,
}

impl Visit for Filling {
    fn head(&mut self, head: &Head) {
        head.tables.iter().for_each(|table| self.ledger.table(*table));
    }

    fn entry(&mut self, key: &[u8], entry: Entry) {
        self.ledger.add(&entry);
        self.counts.add(&entry);
        if entry.what == What::Tombstone {
            self.deletions.push((key.into(), entry.sequence, entry.home));
        }
        self.builder.push(key, entry);
    }
}

impl Filling {
    /// Of nothing yet.
    pub fn of(ledger: Ledger) -> Filling {
        let (builder, counts, deletions) = Default::default();
        Filling { builder, ledger, counts, deletions }
    }

    /// All came.
    pub fn finish(mut self) -> (Index, Ledger) {
        if !self.builder.is_in_order() {
            // A key that comes twice was counted twice.
            self.ledger.give_up();
        }
        (Index::built(self.builder, self.counts), self.ledger)
    }
}
