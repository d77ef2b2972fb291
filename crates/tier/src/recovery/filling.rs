//! What a checkpoint fills when a store is opened: the index, and the count of the space that its
//! entries hold.

use crate::checkpoint::{Head, Visit};
use crate::index::{Builder, Counts, Entry, Home, Index, What};
use crate::recovery::ledger::Ledger;
use crate::ssd::tables::{Table, Tables};

/// A deletion that a checkpoint remembers: its key and sequence, and where its record was then.
pub type Deletion = (Box<[u8]>, u64, Home);

/// Bytes of current records in sort tables, while no table comes or goes. One is looked for for
/// each of millions of records, and found sooner in a list than in a tree.
#[derive(Default)]
struct Lives {
    /// Where the tables begin, in order.
    starts: Vec<u64>,
    /// Where each ends, and what is current in it.
    ends: Vec<(u64, u64)>,
}

impl Lives {
    fn of(tables: &Tables) -> Lives {
        let end = |table: &Table| (table.start() + u64::from(table.bytes), 0);
        let starts = tables.iter().map(Table::start).collect();
        Lives { starts, ends: tables.iter().map(end).collect() }
    }

    /// Of the table that holds this place.
    fn at(&mut self, home: Home) -> Option<&mut u64> {
        if !home.is_ssd() {
            return None;
        }
        let at = home.at();
        let table = self.starts.partition_point(|start| *start <= at).checked_sub(1)?;
        let (end, live) = &mut self.ends[table];
        (at < *end).then_some(live)
    }

    /// Adds them to what the tables have.
    fn add_to(&self, tables: &mut Tables) {
        for (start, (_, live)) in self.starts.iter().zip(&self.ends) {
            if let Some(table) = tables.at(*start).filter(|_| *live != 0) {
                table.live += live;
            }
        }
    }
}

/// What came so far.
pub struct Filling {
    builder: Builder,
    ledger: Ledger,
    lives: Lives,
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
        self.lives = Lives::of(&self.ledger.tables);
    }

    fn entry(&mut self, key: &[u8], entry: &Entry) {
        match self.lives.at(entry.home) {
            Some(live) => {
                *live += u64::from(entry.record_bytes);
                self.ledger.add_but_record(entry);
            }
            None => self.ledger.add(entry),
        }
        self.counts.add(entry);
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
        let (builder, lives, counts, deletions) = Default::default();
        Filling { builder, ledger, lives, sequence: 0, counts, deletions }
    }

    /// All came.
    pub fn finish(mut self) -> (Index, Ledger) {
        self.lives.add_to(&mut self.ledger.tables);
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
    use crate::ssd::pointer::Extent;
    use crate::types::BLOCK_BYTES;

    #[test]
    fn only_deletions_from_before_the_position_may_have_been_forgotten_since() {
        let shape = Shape::of(6 * 8192, 8192).unwrap();
        let mut filling = Filling::of(census::ledger(shape, 100));
        filling.head(&Head { sequence: 5, ..Head::default() });
        let small = What::Small { value_bytes: 1 };
        let whats = [(b"a", 4, small), (b"b", 5, What::Tombstone), (b"c", 6, What::Tombstone)];
        for (key, sequence, what) in whats {
            let (home, record_bytes, expires_at_seconds) = (Home::log(4096), 64, 0);
            filling.entry(key, &Entry { sequence, home, record_bytes, expires_at_seconds, what });
        }
        let sequences: Vec<u64> = filling.deletions.iter().map(|it| it.1).collect();
        assert_eq!(sequences, [5]);
    }

    #[test]
    fn records_are_counted_in_sort_tables_as_a_ledger_by_itself_counts_them() {
        let shape = Shape::of(6 * 8192, 8192).unwrap();
        let table = |id, start| {
            let (extent, home) = (Extent { start, blocks: 2 }, Home::log(4096));
            Table { id, extent, bytes: 8000, sequence: 1, home, live: 0, is_damaged: false }
        };
        let tables = vec![table(1, 40), table(2, 42), table(3, 60)];
        let at = |block: u64, offset: u64| Home::ssd(block * BLOCK_BYTES as u64 + offset);
        let places = [at(40, 0), at(40, 7999), at(42, 0), at(60, 8), at(60, 800), Home::log(4096)];
        // Before all tables, behind the records of one, and behind all.
        for stray in [None, Some(at(39, 0)), Some(at(40, 8000)), Some(at(70, 0))] {
            let (mut ledger, empty) = (census::ledger(shape, 100), census::ledger(shape, 100));
            tables.iter().for_each(|table| ledger.table(*table));
            let mut filling = Filling::of(empty);
            filling.head(&Head { tables: tables.clone(), ..Head::default() });
            for (number, home) in places.into_iter().chain(stray).enumerate() {
                let (record_bytes, expires_at_seconds) = (100 + number as u32, 0);
                let what = What::Small { value_bytes: 1 };
                let entry = Entry { sequence: 1, home, record_bytes, expires_at_seconds, what };
                ledger.add(&entry);
                filling.entry(format!("key-{number}").as_bytes(), &entry);
            }
            let (_, filled) = filling.finish();
            let told = |ledger: &Ledger| {
                let lives: Vec<u64> = ledger.tables.iter().map(|table| table.live).collect();
                (lives, ledger.segments.clone(), ledger.items, ledger.is_even())
            };
            assert_eq!(told(&filled), told(&ledger), "{stray:?}");
            assert_eq!(filled.is_even(), stray.is_none(), "{stray:?}");
        }
    }
}
