//! What a checkpoint fills when a store is opened: the index, and the count of the space that its
//! entries hold.

use crate::checkpoint::{Head, Visit};
use crate::index::{Builder, Counts, Entry, Home, Index, What};
use crate::recovery::ledger::Ledger;

/// A deletion that a checkpoint remembers: its key and sequence, and where its record was then.
pub type Deletion = (Box<[u8]>, u64, Home);

/// What came so far.
pub struct Filling {
    builder: Builder,
    ledger: Ledger,
    /// The highest that was appended before the checkpoint's position.
    sequence: u64,
    /// Entries by what they are.
    pub counts: Counts,
    /// Deletions among them that were appended before the checkpoint's position.
    pub deletions: Vec<Deletion>,
}

impl Visit for Filling {
    fn head(&mut self, head: &Head) {
        self.sequence = head.sequence;
        head.tables.iter().for_each(|table| self.ledger.table(*table));
    }

    fn entry(&mut self, key: &[u8], entry: Entry) {
        self.ledger.add(&entry);
        self.counts.add(&entry);
        // One from behind the position cannot have been forgotten. Where its record is damaged, it
        // is known from here alone, and what it deleted may be met behind the position, too.
        if entry.what == What::Tombstone && entry.sequence <= self.sequence {
            self.deletions.push((key.into(), entry.sequence, entry.home));
        }
        self.builder.push(key, entry);
    }
}

impl Filling {
    /// Of nothing yet.
    pub fn of(ledger: Ledger) -> Filling {
        let (builder, counts, deletions) = Default::default();
        Filling { builder, ledger, sequence: 0, counts, deletions }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::segment::Shape;
    use crate::recovery::census;

    #[test]
    fn only_deletions_from_before_the_position_may_have_been_forgotten_since() {
        let shape = Shape::of(6 * 8192, 8192).unwrap();
        let mut filling = Filling::of(census::ledger(shape, 100));
        filling.head(&Head { sequence: 5, ..Head::default() });
        let small = What::Small { value_bytes: 1 };
        let whats = [(b"a", 4, small), (b"b", 5, What::Tombstone), (b"c", 6, What::Tombstone)];
        for (key, sequence, what) in whats {
            let (home, record_bytes, expires_at_seconds) = (Home::log(4096), 64, 0);
            filling.entry(key, Entry { sequence, home, record_bytes, expires_at_seconds, what });
        }
        let sequences: Vec<u64> = filling.deletions.iter().map(|it| it.1).collect();
        assert_eq!(sequences, [5]);
    }
}
