//! Counts what is in use when a store is opened: blocks of the SSD, bytes of segments and sort
//! tables, and the items.
//!
//! Counted entry by entry while the index is filled, when each entry is at hand: to walk millions
//! of them once more, all over memory, took longer than all the rest of a start. Where something
//! does not come out even (blocks that two values claim, an entry whose record is in no container)
//! the whole index is walked after all, and only that tells what is wrong.

use crate::index::{Index, What};
use crate::log::Slot;
use crate::log::segment::Shape;
use crate::recovery::ledger::Ledger;
use crate::ssd::pointer::Extent;
use crate::ssd::space::{Claims, Space};
use crate::ssd::tables::{DROPPED_RECORD_BYTES, Dropped, NAMED_RECORD_BYTES, Table, Tables};
use crate::store::{Accounts, Checkpoint, SUPER_BLOCKS};
use std::collections::BTreeMap;

/// The containers as they are in the end.
pub struct Containers<'a> {
    /// The log's slots.
    pub slots: &'a [Slot],
    /// The sort tables.
    pub tables: &'a BTreeMap<u64, Table>,
    /// Those that are gone.
    pub dropped: &'a BTreeMap<u64, Dropped>,
    /// The highest number of a table.
    pub last_table_id: u64,
    /// The checkpoints, whose blocks are in use too.
    pub checkpoints: &'a [Checkpoint],
}

/// What was found.
pub struct Counted {
    /// Free blocks.
    pub space: Space,
    /// Live bytes.
    pub accounts: Accounts,
    /// Items that can be read.
    pub items: u64,
    /// What is wrong, in words.
    pub problems: Vec<String>,
}

/// Of nothing yet, on an SSD of so many blocks.
pub fn ledger(shape: Shape, blocks: u64) -> Ledger {
    Ledger::new(shape, SUPER_BLOCKS, blocks)
}

/// The end of counting; where the index is in persistent memory, also what goes on counting. Marks
/// as lost in `index` what is.
pub fn finish(
    ledger: Ledger,
    index: &Index,
    containers: &Containers<'_>,
) -> (Counted, Option<Ledger>) {
    let (shape, blocks, is_even) = (ledger.shape, ledger.blocks, ledger.is_even());
    let kept = index.fair().map(|_| ledger.clone());
    if let Some(counted) = is_even.then(|| close(ledger, containers)).flatten() {
        #[cfg(debug_assertions)]
        if index.count().lost == 0 {
            counted.compare(&walk(index, shape, blocks, containers));
        }
        return (counted, kept);
    }
    let counted = walk(index, shape, blocks, containers);
    (counted, kept.map(|_| recount(index, shape, blocks, containers)))
}

fn recount(index: &Index, shape: Shape, blocks: u64, containers: &Containers<'_>) -> Ledger {
    let mut count = ledger(shape, blocks);
    containers.tables.values().for_each(|table| count.table(*table));
    index.walk(|_, entry| count.add(entry));
    count
}

/// What was counted, if all of it is in a container that there is.
fn close(ledger: Ledger, containers: &Containers<'_>) -> Option<Counted> {
    let in_use = |slot: usize| containers.slots.get(slot).is_some_and(|s| *s != Slot::Free);
    let stray = |(slot, live): (usize, &u64)| *live != 0 && !in_use(slot);
    if ledger.segments.iter().enumerate().any(stray) {
        return None;
    }
    let there = |table: &Table| containers.tables.get(&table.id);
    if ledger.tables.iter().any(|table| table.live != 0 && there(table).is_none()) {
        return None;
    }
    let mut claims = ledger.claims;
    let (mut accounts, problems) = prepare(ledger.shape, &mut claims, containers);
    if !problems.is_empty() {
        return None;
    }
    for (live, counted) in accounts.segments.iter_mut().zip(&ledger.segments) {
        *live += counted;
    }
    for table in ledger.tables.iter().filter(|table| table.live != 0) {
        accounts.tables.at(table.start())?.live = table.live;
    }
    let (space, items) = (claims.into_space(), ledger.items);
    Some(Counted { space, accounts, items, problems })
}

impl Counted {
    /// Both ways of counting come to the same.
    #[cfg(debug_assertions)]
    fn compare(&self, walked: &Counted) {
        let of = |counted: &Counted| {
            let Accounts { segments, tables } = &counted.accounts;
            let tables: Vec<Table> = tables.iter().copied().collect();
            (segments.clone(), tables, counted.items, counted.problems.clone())
        };
        assert_eq!(of(self), of(walked), "counted on the way, and walked");
        assert!(self.space.is_same(&walked.space), "blocks counted on the way, and walked");
    }
}

/// Takes the blocks of the tier's own, and counts its own records.
fn prepare(
    shape: Shape,
    claims: &mut Claims,
    containers: &Containers<'_>,
) -> (Accounts, Vec<String>) {
    let mut accounts =
        Accounts { segments: vec![0; shape.segments as usize], tables: Tables::default() };
    let mut problems = Vec::new();
    for checkpoint in containers.checkpoints {
        if !claims.claim(&checkpoint.body.extents) {
            problems.push("the blocks of a checkpoint are used twice".to_string());
        }
    }
    for table in containers.tables.values() {
        let extent: Extent = table.extent;
        if !claims.claim(&[extent]) {
            problems.push(format!("the blocks of sort table {} are used twice", table.id));
        }
        accounts.tables.add(Table { live: 0, ..*table });
    }
    // Records of the tier's own that must stay.
    let named = containers.tables.values().map(|table| (table.home, NAMED_RECORD_BYTES));
    let dropped = containers.dropped.values().map(|drop| (drop.home, DROPPED_RECORD_BYTES));
    for (home, bytes) in named.chain(dropped) {
        if let Some(live) = accounts.segments.get_mut(shape.slot_of(home.at()) as usize) {
            *live += u64::from(bytes);
        }
    }
    accounts.tables.dropped.clone_from(containers.dropped);
    accounts.tables.last_id = containers.last_table_id;
    (accounts, problems)
}

/// Counts by the whole index, and says what is wrong with it.
fn walk(index: &Index, shape: Shape, blocks: u64, containers: &Containers<'_>) -> Counted {
    let mut claims = Claims::new(SUPER_BLOCKS, blocks);
    let (mut accounts, mut problems) = prepare(shape, &mut claims, containers);
    let mut lost: Vec<(Box<[u8]>, u64, &str)> = Vec::new();
    let mut forgotten: Vec<(Box<[u8]>, u64)> = Vec::new();
    index.walk(|key, entry| {
        let bytes = u64::from(entry.record_bytes);
        let at = entry.home.at();
        let live = match entry.home.is_ssd() {
            true => accounts.tables.at(at).map(|table| &mut table.live),
            false => {
                let slot = shape.slot_of(at) as usize;
                let used = containers.slots.get(slot).is_some_and(|slot| *slot != Slot::Free);
                accounts.segments.get_mut(slot).filter(|_| used)
            }
        };
        match live {
            Some(live) => *live += bytes,
            // It was forgotten, because nothing needed it any more.
            None if entry.what == What::Tombstone => {
                forgotten.push((key.into(), entry.sequence));
            }
            None => lost.push((key.into(), entry.sequence, "its record is in no container")),
        }
        if let What::Large(pointer) = &entry.what
            && !claims.claim(&pointer.extents)
        {
            lost.push((key.into(), entry.sequence, "its blocks are used twice"));
        }
    });
    for (key, sequence) in forgotten {
        index.remove(&key, sequence);
    }
    for (key, sequence, why) in lost {
        problems.push(format!("key {}: {why}", key.escape_ascii()));
        index.mark_lost(&key, sequence);
    }
    let items = index.count().items();
    Counted { space: claims.into_space(), accounts, items, problems }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::{Entry, Home, Tie};
    use crate::ssd::pointer::Pointer;
    use smallvec::smallvec;
    use std::sync::Arc;

    const BLOCKS: u64 = 200;

    fn shape() -> Shape {
        Shape::of(8 * 64 * 1024, 64 * 1024).unwrap()
    }

    fn entry(sequence: u64, home: Home, what: What) -> Entry {
        Entry { sequence, home, record_bytes: 100, expires_at_seconds: 0, what }
    }

    fn small() -> What {
        What::Small { value_bytes: 7 }
    }

    fn large(start: u32) -> What {
        let extents = smallvec![Extent { start, blocks: 2 }];
        let crcs = smallvec![1];
        let pointer = Pointer { bytes: 8192, extents, crcs, original_bytes: 0 };
        What::Large(Arc::new(pointer.into()))
    }

    fn table(id: u64, start: u32) -> Table {
        let extent = Extent { start, blocks: 4 };
        let home = Home::log(64 * 1024);
        Table { id, extent, bytes: 16384, sequence: 1, home, live: 0, is_damaged: false }
    }

    /// Counts these entries, of which the first of each key is replaced by the next.
    fn counted(
        tables: &[Table],
        kept: &[Table],
        entries: &[(&str, Entry)],
    ) -> (Counted, Index, bool) {
        let (mut count, index) = (ledger(shape(), BLOCKS), Index::default());
        tables.iter().for_each(|table| count.table(*table));
        for (key, entry) in entries {
            let published = index.publish(key.as_bytes(), entry.clone(), Tie::Replace);
            if let crate::index::Published::Current(before) = published {
                before.iter().for_each(|before| count.remove(before));
                count.add(entry);
            }
        }
        let slots: Vec<Slot> = (0..8u64)
            .map(|slot| match slot < 4 {
                true => Slot::Sealed { generation: slot + 1, end: 64 * 1024 },
                false => Slot::Free,
            })
            .collect();
        let tables = kept.iter().map(|table| (table.id, *table)).collect();
        let containers = Containers {
            slots: &slots,
            tables: &tables,
            dropped: &BTreeMap::new(),
            last_table_id: 9,
            checkpoints: &[],
        };
        let even = count.is_even();
        (finish(count, &index, &containers).0, index, even)
    }

    #[test]
    fn what_comes_and_goes_is_counted_once() {
        let one = table(1, 100);
        let (counted, _, even) = counted(
            &[one],
            &[one],
            &[
                ("a", entry(1, Home::log(5), small())),
                ("b", entry(2, Home::ssd(one.start() + 64), small())),
                ("c", entry(3, Home::log(70_000), large(50))),
                ("a", entry(4, Home::log(70_100), large(60))),
                ("c", entry(5, Home::log(70_200), What::Tombstone)),
                ("d", entry(6, Home::log(70_300), large(50))), // c's blocks, which are free
            ],
        );
        assert!(even && counted.problems.is_empty());
        assert_eq!(counted.items, 3);
        assert_eq!(counted.accounts.segments[0], 0, "nothing is left of a's first record");
        assert_eq!(counted.accounts.segments[1], 300 + u64::from(NAMED_RECORD_BYTES));
        let live: Vec<u64> = counted.accounts.tables.iter().map(|table| table.live).collect();
        assert_eq!(live, [100]);
        assert_eq!(counted.space.free_blocks(), BLOCKS - u64::from(SUPER_BLOCKS) - 4 - 2 - 2);
    }

    #[test]
    fn what_is_wrong_is_told_and_lost() {
        let one = table(1, 100);
        let twice =
            [("a", entry(1, Home::log(5), large(50))), ("b", entry(2, Home::log(6), large(51)))];
        let (found, index, even) = counted(&[], &[], &twice);
        assert!(!even);
        assert_eq!(found.problems, ["key b: its blocks are used twice"]);
        assert_eq!(index.get(b"b").unwrap().what, What::Lost);
        for stray in [Home::log(7 * 64 * 1024), Home::ssd(one.start())] {
            // The table was known to the checkpoint, and is no more.
            let (found, index, _) = counted(&[one], &[], &[("a", entry(1, stray, small()))]);
            assert_eq!(found.problems, ["key a: its record is in no container"]);
            assert_eq!((found.items, index.get(b"a").unwrap().what), (0, What::Lost));
        }
        let forgotten = entry(1, Home::log(7 * 64 * 1024), What::Tombstone);
        let (found, index, _) = counted(&[], &[], &[("a", forgotten)]);
        assert!(found.problems.is_empty() && index.get(b"a").is_none());
    }

    #[test]
    fn what_two_hold_for_a_while_is_told_at_the_end() {
        // As a checkpoint that is taken while b goes where a was, and a to other blocks.
        let moved = [
            ("a", entry(1, Home::log(5), large(50))),
            ("b", entry(3, Home::log(6), large(51))),
            ("a", entry(2, Home::log(7), large(60))),
        ];
        let (found, _, even) = counted(&[], &[], &moved);
        assert!(even && found.problems.is_empty() && found.items == 2);
        assert_eq!(found.space.free_blocks(), BLOCKS - u64::from(SUPER_BLOCKS) - 4);
        let (_, _, even) = counted(&[], &[], &moved[..2]);
        assert!(!even);
    }

    #[test]
    fn a_table_where_another_lay_that_has_entries_is_left_to_the_walk() {
        let (one, two) = (table(1, 100), table(2, 102));
        let inside = [("a", entry(1, Home::ssd(two.start()), small()))];
        let (found, _, even) = counted(&[one, two], &[two], &inside);
        assert!(even && found.problems.is_empty() && found.items == 1, "nothing was in it");
        let mut count = ledger(shape(), BLOCKS);
        count.table(one);
        count.add(&inside[0].1);
        count.table(two);
        assert!(!count.is_even());
    }
}
