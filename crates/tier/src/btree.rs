//! The ordered index: a B+-tree in memory from keys to places.
//!
//! Two levels: a tree of leaves by their first key, and leaves of up to [`LEAF_ENTRIES_MAX`] sorted
//! entries, each with a lock of its own. A reader shares the tree and its leaf; a writer takes its
//! leaf alone; only a split takes the tree alone.
//!
//! Knows no medium.

use crate::entry::{Entry, Home, Published, Tie, What};
use crate::key::Key;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering::Relaxed};
use std::sync::{RwLock, RwLockReadGuard};

/// A leaf with more entries is split.
pub const LEAF_ENTRIES_MAX: usize = 128;

struct Slot {
    key: Key,
    entry: Entry,
    /// Hits, saturating, halved each migration cycle. A hint: nothing hangs on its order.
    weight: AtomicU8,
    /// It was hit since the clock of eviction passed it. A hint as well.
    mark: AtomicBool,
}

impl Slot {
    fn new(key: Key, entry: Entry) -> Slot {
        Slot { key, entry, weight: AtomicU8::new(0), mark: AtomicBool::new(false) }
    }
}

/// An entry that is offered, and how a tie is decided.
pub type Offer = (Key, Entry, Tie);

type Leaf = RwLock<Vec<Slot>>;
type Tree = BTreeMap<Key, Leaf>;

/// The index.
pub struct BTree {
    tree: RwLock<Tree>,
}

/// Makes an index of entries that come in key order, without looking for the place of each.
#[derive(Default)]
pub struct Builder {
    tree: Tree,
    /// The leaf under way.
    slots: Vec<Slot>,
    /// What did not come in order.
    late: Vec<(Box<[u8]>, Entry)>,
}

impl Builder {
    /// Adds an entry.
    pub fn push(&mut self, key: &[u8], entry: Entry) {
        if self.slots.last().is_some_and(|last| key <= last.key.as_ref()) {
            return self.late.push((key.into(), entry));
        }
        // As full as a split leaves them where keys come in order.
        if self.slots.len() == LEAF_ENTRIES_MAX - 1 {
            self.end_leaf();
        }
        self.slots.push(Slot::new(key.into(), entry));
    }

    /// Whether all came in order.
    pub fn is_in_order(&self) -> bool {
        self.late.is_empty()
    }

    fn end_leaf(&mut self) {
        let slots = std::mem::replace(&mut self.slots, Vec::with_capacity(LEAF_ENTRIES_MAX));
        // The first leaf takes whatever comes before its first key, too.
        let first = slots.first().filter(|_| !self.tree.is_empty());
        self.tree.insert(first.map_or_else(Key::default, |slot| slot.key.clone()), slots.into());
    }

    /// The index.
    pub fn finish(mut self) -> BTree {
        self.end_leaf();
        let index = BTree { tree: RwLock::new(self.tree) };
        for (key, entry) in self.late {
            index.publish(&key, entry, Tie::Keep);
        }
        index
    }
}

impl Default for BTree {
    fn default() -> BTree {
        BTree { tree: RwLock::new(BTreeMap::from([(Key::default(), Leaf::default())])) }
    }
}

fn leaf_of<'a>(tree: &'a Tree, key: &[u8]) -> &'a Leaf {
    let below = (Bound::Unbounded, Bound::Included(key));
    let found = tree.range::<[u8], _>(below).next_back();
    found.expect("the first leaf's key is empty").1
}

fn find(slots: &[Slot], key: &[u8]) -> Result<usize, usize> {
    slots.binary_search_by(|slot| slot.key.as_ref().cmp(key))
}

/// The same where `key` is not before the slot at `from`, and likely near behind it.
fn find_from(slots: &[Slot], from: usize, key: &[u8]) -> Result<usize, usize> {
    let (mut low, mut step) = (from, 1);
    while slots.get(low + step).is_some_and(|slot| slot.key.as_ref() < key) {
        (low, step) = (low + step, 2 * step);
    }
    let high = (low + step + 1).min(slots.len());
    find(&slots[low..high], key).map(|index| low + index).map_err(|index| low + index)
}

/// Offers an entry to the slots of its leaf, where `found` is what a search for it gave; nothing if
/// it needs a slot and all are taken.
fn offer(
    slots: &mut Vec<Slot>,
    found: Result<usize, usize>,
    key: &[u8],
    entry: &Entry,
    tie: Tie,
) -> Option<Published> {
    match found {
        Ok(index) => {
            let slot = &mut slots[index];
            if !entry.counts_before(&slot.entry, tie) {
                return Some(Published::Stale);
            }
            let before = std::mem::replace(&mut slot.entry, entry.clone());
            Some(Published::Current(Some(before)))
        }
        Err(index) if slots.len() < LEAF_ENTRIES_MAX => {
            slots.insert(index, Slot::new(key.into(), entry.clone()));
            Some(Published::Current(None))
        }
        Err(_) => None,
    }
}

impl BTree {
    fn read(&self) -> RwLockReadGuard<'_, Tree> {
        self.tree.read().expect("nobody panics inside")
    }

    /// What is known of `key`.
    pub fn get(&self, key: &[u8]) -> Option<Entry> {
        let tree = self.read();
        let slots = leaf_of(&tree, key).read().expect("nobody panics inside");
        find(&slots, key).ok().map(|index| slots[index].entry.clone())
    }

    /// Whether the record of this sequence is what is known of `key`.
    pub fn is_current(&self, key: &[u8], sequence: u64) -> bool {
        let tree = self.read();
        let slots = leaf_of(&tree, key).read().expect("nobody panics inside");
        let entry = find(&slots, key).ok().map(|index| &slots[index].entry);
        entry.is_some_and(|entry| entry.sequence == sequence && entry.is_item())
    }

    /// As `get`, and counts a hit.
    pub fn hit(&self, key: &[u8]) -> Option<Entry> {
        let tree = self.read();
        let slots = leaf_of(&tree, key).read().expect("nobody panics inside");
        let slot = &slots[find(&slots, key).ok()?];
        let weight = slot.weight.load(Relaxed);
        // Two hits at once may count as one.
        slot.weight.store(weight.saturating_add(1), Relaxed);
        slot.mark.store(true, Relaxed);
        Some(slot.entry.clone())
    }

    /// Offers an entry; the higher sequence counts.
    pub fn publish(&self, key: &[u8], entry: Entry, tie: Tie) -> Published {
        loop {
            {
                let tree = self.read();
                let mut slots = leaf_of(&tree, key).write().expect("nobody panics inside");
                let found = find(&slots, key);
                if let Some(published) = offer(&mut slots, found, key, &entry, tie) {
                    return published;
                }
            }
            self.split(key);
        }
    }

    /// The same of many that come in the order of their keys: what leads to the place of one leads
    /// to that of the next. Calls `done` for each, in that order.
    pub fn publish_in_order(&self, offers: &[Offer], mut done: impl FnMut(Published)) {
        let mut left = offers;
        while let Some((first, ..)) = left.first() {
            let is_full = {
                let tree = self.read();
                let mut slots = leaf_of(&tree, first).write().expect("nobody panics inside");
                let behind = (Bound::Excluded(first.as_ref()), Bound::Unbounded);
                let end = tree.range::<[u8], _>(behind).next().map(|(end, _)| end);
                let mut from = 0;
                loop {
                    let here = left.first().filter(|(key, ..)| end.is_none_or(|end| key < end));
                    let Some((key, entry, tie)) = here else { break false };
                    let found = find_from(&slots, from, key);
                    from = found.unwrap_or_else(|index| index);
                    match offer(&mut slots, found, key, entry, *tie) {
                        Some(published) => done(published),
                        None => break true,
                    }
                    left = &left[1..];
                }
            };
            if is_full {
                self.split(&left[0].0);
            }
        }
    }

    fn split(&self, key: &[u8]) {
        let mut tree = self.tree.write().expect("nobody panics inside");
        let mut slots = leaf_of(&tree, key).write().expect("nobody panics inside");
        if slots.len() < LEAF_ENTRIES_MAX {
            return; // somebody else did it
        }
        // Keys that come in order leave full leaves behind.
        let in_order = slots.last().is_some_and(|last| last.key.as_ref() < key);
        let at = if in_order { slots.len() - 1 } else { slots.len() / 2 };
        let upper = slots.split_off(at);
        drop(slots);
        let first = upper[0].key.clone();
        tree.insert(first, RwLock::new(upper));
    }

    /// Points `key` at another place of the same record; false if it has changed.
    pub fn relocate(&self, key: &[u8], sequence: u64, from: Home, to: Home) -> bool {
        let tree = self.read();
        let mut slots = leaf_of(&tree, key).write().expect("nobody panics inside");
        let Ok(index) = find(&slots, key) else { return false };
        let entry = &mut slots[index].entry;
        let same = entry.sequence == sequence && entry.home == from;
        if same {
            entry.home = to;
        }
        same
    }

    /// Forgets `key` if it still is this record.
    pub fn remove(&self, key: &[u8], sequence: u64) -> Option<Entry> {
        let tree = self.read();
        let mut slots = leaf_of(&tree, key).write().expect("nobody panics inside");
        let index = find(&slots, key).ok()?;
        (slots[index].entry.sequence == sequence).then(|| slots.remove(index).entry)
    }

    /// Notes that this record of `key` cannot be read.
    pub fn mark_lost(&self, key: &[u8], sequence: u64) {
        let tree = self.read();
        let mut slots = leaf_of(&tree, key).write().expect("nobody panics inside");
        if let Ok(index) = find(&slots, key)
            && slots[index].entry.sequence == sequence
        {
            slots[index].entry.what = What::Lost;
        }
    }

    /// The hits counted for `key`, if this record is what is known of it.
    pub fn weigh(&self, key: &[u8], sequence: u64, home: Home) -> Option<u8> {
        let tree = self.read();
        let slots = leaf_of(&tree, key).read().expect("nobody panics inside");
        let slot = &slots[find(&slots, key).ok()?];
        let is_current = slot.entry.sequence == sequence && slot.entry.home == home;
        is_current.then(|| slot.weight.load(Relaxed)) // a hint
    }

    /// Up to `limit` items from `from` on and below `to`, in order.
    pub fn range(&self, from: &[u8], to: Option<&[u8]>, limit: usize) -> Vec<(Box<[u8]>, Entry)> {
        let mut found = Vec::with_capacity(limit.min(LEAF_ENTRIES_MAX));
        let tree = self.read();
        let below = (Bound::Unbounded, Bound::Included(from));
        let first = tree.range::<[u8], _>(below).next_back();
        let start = first.expect("the first leaf's key is empty").0;
        for leaf in tree.range::<[u8], _>((Bound::Included(start.as_ref()), Bound::Unbounded)) {
            let slots = leaf.1.read().expect("nobody panics inside");
            let begin = find(&slots, from).unwrap_or_else(|index| index);
            for slot in &slots[begin..] {
                let past = to.is_some_and(|to| to <= slot.key.as_ref());
                if past || found.len() == limit {
                    return found;
                }
                if slot.entry.is_item() {
                    found.push((slot.key.as_ref().into(), slot.entry.clone()));
                }
            }
        }
        found
    }

    /// Calls `visit` with every entry in order, tombstones too. What changes meanwhile may be seen
    /// before or after.
    pub fn walk(&self, mut visit: impl FnMut(&[u8], &Entry)) {
        self.leaves(|slots| slots.iter().for_each(|slot| visit(&slot.key, &slot.entry)));
    }

    /// Leaf by leaf: the tree is let go in between, or whoever must split a leaf, and holds the
    /// writer, would wait until all of them were seen.
    fn leaves(&self, mut visit: impl FnMut(&[Slot])) {
        let mut next = Some(Key::default());
        while let Some(first) = next {
            let tree = self.read();
            let mut leaves =
                tree.range::<[u8], _>((Bound::Included(first.as_ref()), Bound::Unbounded));
            if let Some((_, leaf)) = leaves.next() {
                visit(&leaf.read().expect("nobody panics inside"));
            }
            next = leaves.next().map(|(key, _)| key.clone());
        }
    }

    /// See [`crate::index::Index::look_through`]: a leaf.
    pub fn look_through(
        &self,
        from: &[u8],
        mut visit: impl FnMut(&[u8], &Entry, u8),
    ) -> Option<Box<[u8]>> {
        let tree = self.read();
        {
            let slots = leaf_of(&tree, from).read().expect("nobody panics inside");
            let begin = find(&slots, from).unwrap_or_else(|index| index);
            let behind = slots[begin..].iter();
            behind.for_each(|slot| visit(&slot.key, &slot.entry, slot.weight.load(Relaxed)));
        }
        let next = tree.range::<[u8], _>((Bound::Excluded(from), Bound::Unbounded)).next();
        next.map(|(first, _)| first.as_ref().into())
    }

    /// See [`crate::index::Index::take_mark`].
    pub fn take_mark(&self, key: &[u8]) -> bool {
        let tree = self.read();
        let slots = leaf_of(&tree, key).read().expect("nobody panics inside");
        find(&slots, key).is_ok_and(|index| slots[index].mark.swap(false, Relaxed))
    }

    /// Halves every weight and calls `visit` with each entry and its weight before.
    pub fn cool(&self, mut visit: impl FnMut(&Entry, u8)) {
        self.leaves(|slots| {
            for slot in slots {
                let weight = slot.weight.load(Relaxed); // a hint, as is the store
                slot.weight.store(weight / 2, Relaxed);
                visit(&slot.entry, weight);
            }
        });
    }

    /// Takes out every entry below `sequence`.
    pub fn flush(&self, sequence: u64) -> Vec<Entry> {
        let mut gone = Vec::new();
        let tree = self.read();
        for leaf in tree.values() {
            let mut slots = leaf.write().expect("nobody panics inside");
            let old = |slot: &mut Slot| slot.entry.sequence < sequence;
            gone.extend(slots.extract_if(.., old).map(|slot| slot.entry));
        }
        gone
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::sim::Random;

    fn entry(sequence: u64) -> Entry {
        let what = What::Small { value_bytes: sequence as u32 };
        Entry { sequence, home: Home::log(0), record_bytes: 0, expires_at_seconds: 0, what }
    }

    fn all(index: &BTree) -> Vec<(Vec<u8>, u64)> {
        let mut found = Vec::new();
        index.walk(|key, entry| found.push((key.to_vec(), entry.sequence)));
        found
    }

    #[test]
    fn an_index_that_is_built_is_the_one_that_is_published() {
        for count in [0, 1, 2, 127, 128, 129, 1000] {
            let (mut builder, published) = (Builder::default(), BTree::default());
            for number in 0..count {
                let key = format!("key-{number:05}");
                builder.push(key.as_bytes(), entry(number));
                published.publish(key.as_bytes(), entry(number), Tie::Keep);
            }
            let built = builder.finish();
            assert_eq!(all(&built), all(&published), "{count} entries");
            // Both ends and the middle take new ones.
            for key in ["a", "key-00064x", "z"] {
                let offered = built.publish(key.as_bytes(), entry(count), Tie::Keep);
                assert_eq!(offered, Published::Current(None));
                assert_eq!(built.get(key.as_bytes()), Some(entry(count)));
            }
        }
    }

    #[test]
    fn offers_in_order_come_to_the_same_as_each_by_itself() {
        let mut random = Random::new(2);
        for (filled, count) in [(0, 1), (0, 1000), (300, 200), (1000, 3000), (3000, 50)] {
            let (at_once, by_itself) = (BTree::default(), BTree::default());
            for number in 0..filled {
                let key = random.below(5000).to_be_bytes();
                at_once.publish(&key, entry(number), Tie::Keep);
                by_itself.publish(&key, entry(number), Tie::Keep);
            }
            let mut offers: Vec<Offer> = (0..count)
                .map(|_| {
                    let key = random.below(5000).to_be_bytes();
                    let tie = [Tie::Keep, Tie::Replace][random.below(2) as usize];
                    (key[..].into(), entry(random.below(2 * filled + 10)), tie)
                })
                .collect();
            offers.sort_by(|(one, ..), (other, ..)| one.cmp(other));
            let mut done = Vec::new();
            at_once.publish_in_order(&offers, |published| done.push(published));
            let expected =
                offers.iter().map(|(key, entry, tie)| by_itself.publish(key, entry.clone(), *tie));
            assert_eq!(done, expected.collect::<Vec<_>>(), "{filled} and {count}");
            assert_eq!(all(&at_once), all(&by_itself), "{filled} and {count}");
        }
    }

    #[test]
    fn entries_out_of_order_find_their_places_too() {
        let (mut builder, published) = (Builder::default(), BTree::default());
        let mut random = Random::new(1);
        for number in 0..2000 {
            let key = random.below(500).to_be_bytes();
            builder.push(&key, entry(number));
            published.publish(&key, entry(number), Tie::Keep);
        }
        assert_eq!(all(&builder.finish()), all(&published), "the newest of each");
    }
}
