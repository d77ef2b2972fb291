//! Recovery gathers here what it finds behind the checkpoint, and puts it into the index in the
//! order of keys.
//!
//! A log is in no order of keys: to put its records into an index of millions one by one means to
//! wait for memory several times for each. In order, what one finds the next needs, too.

use crate::index::{Entry, Index, Offer, Published, Tie};
use crate::recovery::ledger::Ledger;
use crate::ssd::tables::Table;

/// So many lie here before it is looked which of them are of one key; some 20 MB.
const MANY: usize = 1 << 18;

/// What was found.
pub struct Gathered {
    entries: Vec<Offer>,
    /// Sort tables that some of them are in.
    tables: Vec<Table>,
    /// How many were added.
    count: u64,
    /// How many entries are many.
    many: usize,
}

impl Default for Gathered {
    fn default() -> Gathered {
        Gathered { entries: Vec::new(), tables: Vec::new(), count: 0, many: MANY }
    }
}

impl Gathered {
    /// Adds a sort table that entries may be in.
    pub fn table(&mut self, table: Table) {
        self.tables.push(table);
    }

    /// Adds an entry.
    pub fn push(&mut self, key: &[u8], entry: Entry, tie: Tie) {
        self.entries.push((key.into(), entry, tie));
        self.count += 1;
        if self.many <= self.entries.len() {
            self.condense();
            // At most some three times what the index takes for as many keys, until the start is
            // over; and each is sorted a few times only.
            self.many = self.many.max(2 * self.entries.len());
        }
    }

    /// How many entries were added.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// In the order of keys, and of each key what counts.
    fn condense(&mut self) {
        self.entries.sort_by(|(one, ..), (other, ..)| one.cmp(other));
        self.entries.dedup_by(|later, kept| {
            let is_same = later.0 == kept.0;
            if is_same && later.1.counts_before(&kept.1, later.2) {
                std::mem::swap(later, kept);
            }
            is_same
        });
    }

    /// Offers all of them to the index, and counts in `ledger` what that changed. They stay here.
    ///
    /// All at once: a value may lie where another's blocks were, and a sort table where one was
    /// whose records went elsewhere, and the log need not tell of the one before the other. So all
    /// that goes is counted before all that comes.
    pub fn offer_to(&mut self, index: &Index, ledger: &mut Ledger) {
        self.condense();
        let mut came = Vec::new();
        let mut entries = self.entries.iter();
        index.publish_in_order(&self.entries, |published| {
            let (_, entry, _) = entries.next().expect("called once for each");
            if let Published::Current(before) = published {
                before.iter().for_each(|before| ledger.remove(before));
                came.push(entry);
            }
        });
        self.tables.iter().for_each(|table| ledger.table(*table));
        came.into_iter().for_each(|entry| ledger.add(entry));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::{Home, What};
    use crate::log::segment::Shape;
    use crate::media::disk::sim::Random;
    use crate::recovery::census;
    use crate::ssd::pointer::{Extent, Pointer};
    use smallvec::smallvec;
    use std::collections::BTreeMap;
    use std::sync::Arc;

    const BLOCKS: u64 = 60;
    const IN_CHECKPOINT: usize = 150;

    /// Records as a log has them: blocks of a value that was replaced are used again, and now and
    /// then a record is there twice, or again when it is long out of date.
    fn log(seed: u64) -> Vec<(Vec<u8>, Entry, Tie)> {
        let mut random = Random::new(seed);
        let (mut free, mut held): (Vec<u32>, BTreeMap<Vec<u8>, u32>) =
            ((40..60).collect(), [].into());
        let mut log = Vec::new();
        for sequence in 1..400 {
            let key = format!("key-{:02}", random.below(15)).into_bytes();
            free.extend(held.remove(&key));
            let start = free.swap_remove(random.below(free.len() as u64) as usize);
            let extents = smallvec![Extent { start, blocks: 1 }];
            let crcs = smallvec![1];
            let large = Pointer { bytes: 4096, extents, crcs, original_bytes: 0 };
            let what = match random.below(4) {
                0 => What::Tombstone,
                1 => What::Small { value_bytes: 9 },
                _ => What::Large(Arc::new(large.into())),
            };
            match what {
                What::Large(_) => drop(held.insert(key.clone(), start)),
                _ => free.push(start),
            }
            let home = Home::log(sequence * 1000);
            let entry = Entry { sequence, home, record_bytes: 100, expires_at_seconds: 0, what };
            log.push((key.clone(), entry.clone(), Tie::Replace));
            if random.below(8) == 0 {
                let home = Home::log(sequence * 1000 + 500);
                let tie = [Tie::Keep, Tie::Replace][random.below(2) as usize];
                log.push((key, Entry { home, ..entry }, tie));
            }
            if random.below(8) == 0 {
                log.push(log[random.below(log.len() as u64) as usize].clone());
            }
        }
        log
    }

    #[test]
    fn in_order_comes_to_the_same_as_one_by_one() {
        let shape = Shape::of(8 * 64 * 1024, 64 * 1024).unwrap();
        for (seed, many) in (1..20).flat_map(|seed| [1, 7, 64, 100_000].map(|n| (seed, n))) {
            let (one_by_one, index) = (Index::default(), Index::default());
            let mut ledgers = [census::ledger(shape, BLOCKS), census::ledger(shape, BLOCKS)];
            let mut gathered = Gathered { many, ..Gathered::default() };
            for (at, (key, entry, tie)) in log(seed).into_iter().enumerate() {
                let published = one_by_one.publish(&key, entry.clone(), tie);
                if let Published::Current(before) = published {
                    before.iter().for_each(|before| ledgers[0].remove(before));
                    ledgers[0].add(&entry);
                }
                gathered.push(&key, entry, tie);
                if at == IN_CHECKPOINT {
                    // What is there already, and goes when the rest comes.
                    gathered.offer_to(&index, &mut ledgers[1]);
                    gathered = Gathered { many, ..Gathered::default() };
                }
            }
            gathered.offer_to(&index, &mut ledgers[1]);
            let all = |index: &Index| {
                let mut all = Vec::new();
                index.walk(|key, entry| all.push((key.to_vec(), entry.clone())));
                all
            };
            let told = format!("seed {seed}, {many} are many");
            assert_eq!(all(&index), all(&one_by_one), "{told}");
            let [expected, counted] = ledgers;
            assert!(counted.is_even(), "{told}");
            assert_eq!(counted.items, expected.items, "{told}");
            assert_eq!(counted.segments, expected.segments, "{told}");
            assert_eq!(counted.claims.words(), expected.claims.words(), "{told}");
        }
    }

    #[test]
    fn a_table_where_one_was_whose_records_went_elsewhere_is_counted() {
        let shape = Shape::of(8 * 64 * 1024, 64 * 1024).unwrap();
        let table = |id, start| {
            let (extent, home) = (Extent { start, blocks: 2 }, Home::log(64 * 1024));
            Table { id, extent, bytes: 8192, sequence: 1, home, live: 0, is_damaged: false }
        };
        let [was, there, elsewhere] = [table(1, 40), table(2, 41), table(3, 44)];
        let entry = |sequence, table: &Table| {
            let (home, what) = (Home::ssd(table.start()), What::Small { value_bytes: 9 });
            Entry { sequence, home, record_bytes: 100, expires_at_seconds: 0, what }
        };
        let (index, mut ledger) = (Index::default(), census::ledger(shape, BLOCKS));
        ledger.table(was);
        ledger.add(&entry(1, &was));
        index.publish(b"b", entry(1, &was), Tie::Keep);
        // By its key it comes before what it needs to be gone.
        let mut gathered = Gathered::default();
        gathered.table(there);
        gathered.push(b"a", entry(2, &there), Tie::Replace);
        gathered.table(elsewhere);
        gathered.push(b"b", entry(1, &elsewhere), Tie::Replace);
        gathered.offer_to(&index, &mut ledger);
        assert!(ledger.is_even());
        let live: Vec<(u64, u64)> =
            ledger.tables.iter().map(|table| (table.id, table.live)).collect();
        assert_eq!(live, [(2, 100), (3, 100)]);
    }
}
