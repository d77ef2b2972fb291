//! The ordered index: a B+-tree in memory from keys to places.
//!
//! Two levels: a tree of leaves by where their keys begin, and packed leaves
//! ([`crate::index::leaf`]), each with a lock of its own. A reader shares the tree and its leaf; a
//! writer takes its leaf alone; only who splits a leaf or joins two takes the tree alone.
//!
//! What it takes of memory is counted as it changes: a leaf's allocations as they are, its place in
//! the tree at the most that it can be.
//!
//! It knows no medium.

use crate::index::entry::{Entry, Home, Published, Tie, What};
use crate::index::key::Key;
use crate::index::leaf::{Found, Leaf, Packed, allocated, item_bytes_max};
use crate::ssd::value::Large;
use crate::types::ItemMeta;
use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// What is found is shown from a list that has room for so many at once.
const FOUND_AT_ONCE: usize = 128;

/// An entry that is offered, and how a tie is decided.
pub type Offer = (Key, Entry, Tie);

type Locked = RwLock<Leaf>;
type Tree = BTreeMap<Key, Locked>;

/// What a leaf's place in the tree takes at most: a node of the standard library's tree is 5 of 11
/// full at least, and there is one above for every 6, which has 12 pointers besides.
const PLACE_BYTES: usize = {
    let node = 11 * size_of::<(Key, Locked)>() + 16;
    allocated(node) / 5 + allocated(node + 12 * size_of::<usize>()) / (5 * 6)
};

/// However keys come and go, an item takes no more than this and its key, but for a value in
/// several extents or pieces, and where keys are so long that leaves have fewer entries.
pub const ITEM_BYTES_MAX: usize = 64;
const _: () = assert!(item_bytes_max(PLACE_BYTES) <= ITEM_BYTES_MAX);

const UNPOISONED: &str = "nobody panics inside";

/// The index.
pub struct BTree {
    tree: RwLock<Tree>,
    waiting: Waiting,
    bytes: Bytes,
}

/// How much memory it takes. A statistic: nothing hangs on its order.
#[derive(Default)]
struct Bytes(AtomicU64);

impl Bytes {
    fn add(&self, bytes: usize) {
        self.0.fetch_add(bytes as u64, Relaxed);
    }

    fn take(&self, bytes: usize) {
        self.0.fetch_sub(bytes as u64, Relaxed);
    }

    /// What took so much before does so now.
    fn became(&self, before: usize, now: usize) {
        if before != now {
            self.0.fetch_add((now as u64).wrapping_sub(before as u64), Relaxed);
        }
    }
}

/// Values whose bytes wait in memory for their group, though the index has them: by their first
/// blocks, which are nobody else's while the index has them. Few, as all that waits is bounded;
/// none where nothing is shown before it is durable.
#[derive(Default)]
struct Waiting {
    /// How many there are. Whoever finds an entry took the lock of its leaf behind who published
    /// it, who had counted it before.
    count: AtomicUsize,
    values: RwLock<HashMap<u32, Arc<Large>>>,
}

impl Waiting {
    fn came(&self, entry: &Entry) {
        if let What::Large(large) = &entry.what
            && let Some(first) = large.extents.first()
            && large.is_waiting()
        {
            let mut values = self.values.write().expect(UNPOISONED);
            values.insert(first.start, large.clone());
            self.count.store(values.len(), Relaxed);
        }
    }

    fn went(&self, large: &Large) {
        if self.count.load(Relaxed) != 0
            && let Some(first) = large.extents.first()
        {
            let mut values = self.values.write().expect(UNPOISONED);
            values.remove(&first.start);
            self.count.store(values.len(), Relaxed);
        }
    }

    /// The entry with the value itself, where that waits.
    #[inline]
    fn with_value(&self, entry: Entry) -> Entry {
        if let What::Large(large) = &entry.what
            && self.count.load(Relaxed) != 0
            && let Some(first) = large.extents.first()
            && let Some(value) = self.values.read().expect(UNPOISONED).get(&first.start)
        {
            return Entry { what: What::Large(value.clone()), ..entry };
        }
        entry
    }
}

/// The shortest key that comes before nothing from `first` on and behind all up to `last`.
fn between(last: &[u8], first: &[u8]) -> Key {
    let common = last.iter().zip(first).take_while(|(one, other)| one == other).count();
    first[..first.len().min(common + 1)].into()
}

/// What a leaf that begins with `first` takes beside what it allocates.
fn place_bytes(first: &Key) -> usize {
    PLACE_BYTES + allocated(first.elsewhere_bytes())
}

/// Makes an index of entries that come in key order, without looking for the place of each.
#[derive(Default)]
pub struct Builder {
    tree: Tree,
    /// The leaf under way, in room that is used again, and where its keys begin: the first leaf has
    /// whatever comes before its first key, too.
    leaf: Leaf,
    first: Key,
    bytes: usize,
    /// What did not come in order.
    late: Vec<(Box<[u8]>, Entry)>,
}

impl Builder {
    /// Adds an entry.
    pub fn push(&mut self, key: &[u8], entry: &Entry) {
        let packed = Packed::of(entry);
        if let Some(last) = self.leaf.last_key() {
            if key <= last {
                return self.late.push((key.into(), entry.clone()));
            }
            if !self.leaf.has_room_in_order(key, &packed) {
                let first = between(last, key);
                self.end_leaf();
                self.first = first;
            }
        }
        self.leaf.insert(self.leaf.len(), key, &packed);
    }

    /// Whether all came in order.
    pub fn is_in_order(&self) -> bool {
        self.late.is_empty()
    }

    fn end_leaf(&mut self) {
        let (leaf, first) = (self.leaf.take(), std::mem::take(&mut self.first));
        self.bytes += leaf.allocated_bytes() + place_bytes(&first);
        self.tree.insert(first, leaf.into());
    }

    /// The index.
    pub fn finish(mut self) -> BTree {
        self.end_leaf();
        let bytes = Bytes(AtomicU64::new(self.bytes as u64));
        let index = BTree { tree: RwLock::new(self.tree), waiting: Waiting::default(), bytes };
        for (key, entry) in self.late {
            index.publish(&key, entry, Tie::Keep);
        }
        index
    }
}

impl Default for BTree {
    fn default() -> BTree {
        Builder::default().finish()
    }
}

fn leaf_of<'a>(tree: &'a Tree, key: &[u8]) -> &'a Locked {
    let found = match Key::short(key) {
        // As numbers: a search makes a dozen comparisons.
        Some(key) => tree.range::<Key, _>((Bound::Unbounded, Bound::Included(&key))).next_back(),
        None => tree.range::<[u8], _>((Bound::Unbounded, Bound::Included(key))).next_back(),
    };
    found.expect("the first leaf's key is empty").1
}

/// See [`BTree::first_behind`].
fn next_of<'a>(tree: &'a Tree, key: &[u8]) -> Option<&'a Key> {
    let behind = (Bound::Excluded(key), Bound::Unbounded);
    tree.range::<[u8], _>(behind).next().map(|(first, _)| first)
}

fn shared(leaf: &Locked) -> RwLockReadGuard<'_, Leaf> {
    leaf.read().expect(UNPOISONED)
}

fn alone(leaf: &Locked) -> RwLockWriteGuard<'_, Leaf> {
    leaf.write().expect(UNPOISONED)
}

impl BTree {
    fn read(&self) -> RwLockReadGuard<'_, Tree> {
        self.tree.read().expect(UNPOISONED)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Tree> {
        self.tree.write().expect(UNPOISONED)
    }

    /// Where the leaf behind that of `key` begins.
    fn first_behind(&self, key: &[u8]) -> Option<Key> {
        next_of(&self.read(), key).cloned()
    }

    /// How much memory it takes, all counted, but for values that wait for their group.
    pub fn bytes(&self) -> u64 {
        self.bytes.0.load(Relaxed)
    }

    fn entry(&self, leaf: &Leaf, index: usize) -> Entry {
        self.waiting.with_value(leaf.entry(index))
    }

    /// What is known of `key`.
    pub fn get(&self, key: &[u8]) -> Option<Entry> {
        let tree = self.read();
        let leaf = shared(leaf_of(&tree, key));
        leaf.find(key).ok().map(|index| self.entry(&leaf, index))
    }

    /// Whether the record of this sequence is what is known of `key`.
    pub fn is_current(&self, key: &[u8], sequence: u64) -> bool {
        let tree = self.read();
        let leaf = shared(leaf_of(&tree, key));
        let found = leaf.find(key);
        found.is_ok_and(|index| leaf.sequence(index) == sequence && leaf.is_item(index))
    }

    /// As `get`, and counts a hit.
    pub fn hit(&self, key: &[u8]) -> Option<Entry> {
        let tree = self.read();
        let leaf = shared(leaf_of(&tree, key));
        let index = leaf.find(key).ok()?;
        leaf.hit(index);
        Some(self.entry(&leaf, index))
    }

    /// Changes the leaf of `key`, and counts what that makes of its memory.
    fn change<T>(&self, tree: &Tree, key: &[u8], change: impl FnOnce(&mut Leaf) -> T) -> T {
        let mut leaf = alone(leaf_of(tree, key));
        let before = leaf.allocated_bytes();
        let result = change(&mut leaf);
        self.bytes.became(before, leaf.allocated_bytes());
        result
    }

    /// The same if it has this record of `key`.
    fn change_if<T>(
        &self,
        key: &[u8],
        sequence: u64,
        change: impl FnOnce(&mut Leaf, usize) -> T,
    ) -> Option<T> {
        self.change(&self.read(), key, |leaf| {
            let found = leaf.find(key).ok().filter(|index| leaf.sequence(*index) == sequence);
            found.map(|index| change(leaf, index))
        })
    }

    /// Offers an entry to its leaf, where `found` is what a search for it gave; nothing if it needs
    /// room that the leaf has not got.
    fn offer(
        &self,
        leaf: &mut Leaf,
        found: Found,
        (key, entry, tie): (&[u8], &Entry, Tie),
        packed: &Packed,
    ) -> Option<Published> {
        let before = found.ok().map(|index| self.entry(leaf, index));
        if before.as_ref().is_some_and(|before| !entry.counts_before(before, tie)) {
            return Some(Published::Stale);
        }
        if !leaf.has_room(found, key, packed) {
            return None;
        }
        match found {
            Ok(index) => leaf.replace(index, packed),
            Err(index) => leaf.insert(index, key, packed),
        }
        self.waiting.came(entry);
        Some(Published::Current(before))
    }

    /// Offers an entry; the higher sequence counts.
    pub fn publish(&self, key: &[u8], entry: Entry, tie: Tie) -> Published {
        let packed = Packed::of(&entry);
        loop {
            let published = self.change(&self.read(), key, |leaf| {
                let found = leaf.find(key);
                self.offer(leaf, found, (key, &entry, tie), &packed)
            });
            if let Some(published) = published {
                return published;
            }
            self.split(key, &packed);
        }
    }

    /// The same of many that come in the order of their keys: what leads to the place of one leads
    /// to that of the next. Calls `done` for each, in that order.
    pub fn publish_in_order(&self, offers: &[Offer], mut done: impl FnMut(Published)) {
        let mut at = 0;
        while let Some((first, ..)) = offers.get(at) {
            let full = {
                let tree = self.read();
                let end = next_of(&tree, first);
                self.change(&tree, first, |leaf| {
                    let mut from = 0;
                    loop {
                        let here = offers.get(at);
                        let here = here.filter(|(key, ..)| end.is_none_or(|end| key < end));
                        let (key, entry, tie) = here?;
                        let packed = Packed::of(entry);
                        let found = leaf.find_from(from, key);
                        from = found.unwrap_or_else(|index| index);
                        match self.offer(leaf, found, (key, entry, *tie), &packed) {
                            Some(published) => done(published),
                            None => return Some((key, packed)),
                        }
                        at += 1;
                    }
                })
            };
            if let Some((key, packed)) = full {
                self.split(key, &packed);
            }
        }
    }

    /// Splits the leaf of `key`, which has no room for it.
    fn split(&self, key: &[u8], packed: &Packed) {
        let mut tree = self.write();
        let split = self.change(&tree, key, |leaf| {
            if leaf.has_room(leaf.find(key), key, packed) {
                return None; // somebody else did it
            }
            // Keys that come in order leave full leaves behind.
            let in_order = leaf.last_key().is_some_and(|last| last < key);
            let at = if in_order { leaf.len() - 1 } else { leaf.len() / 2 };
            let upper = leaf.split_off(at);
            let last = leaf.last_key().expect("a leaf with one entry has room for another");
            Some((between(last, upper.key(0)), upper))
        });
        if let Some((first, upper)) = split {
            self.bytes.add(upper.allocated_bytes() + place_bytes(&first));
            tree.insert(first, upper.into());
        }
    }

    /// Joins the leaf of `key` with that before it, and with that behind it, where both together
    /// are not too full.
    fn join(&self, key: &[u8]) {
        let mut tree = self.write();
        let behind = next_of(&tree, key).cloned();
        let own = tree.range::<[u8], _>((Bound::Unbounded, Bound::Included(key))).next_back();
        let own = own.map(|(first, _)| first.clone());
        own.iter().chain(&behind).for_each(|first| self.join_with_before(&mut tree, first));
    }

    /// The same of the leaf that begins with `first` and the one before it, if there are both.
    fn join_with_before(&self, tree: &mut Tree, first: &Key) {
        let before = (Bound::Unbounded, Bound::Excluded(first.as_ref()));
        let lower = tree.range::<[u8], _>(before).next_back().map(|(_, lower)| lower);
        let Some((lower, upper)) = lower.zip(tree.get(first)) else { return };
        if !shared(lower).is_to_have(&shared(upper)) {
            return;
        }
        let upper = tree.remove(first).expect("it was there").into_inner().expect(UNPOISONED);
        self.bytes.take(upper.allocated_bytes() + place_bytes(first));
        self.change(tree, first, |lower| lower.join(upper));
    }

    /// Points `key` at another place of the same record; false if it has changed.
    pub fn relocate(&self, key: &[u8], sequence: u64, from: Home, to: Home) -> bool {
        let relocated = self.change_if(key, sequence, |leaf, index| {
            let same = leaf.home(index) == from;
            if same {
                leaf.relocate(index, to);
            }
            same
        });
        relocated.unwrap_or(false)
    }

    /// Forgets `key` if it still is this record.
    pub fn remove(&self, key: &[u8], sequence: u64) -> Option<Entry> {
        let (removed, may_join) = self.change_if(key, sequence, |leaf, index| {
            let entry = self.entry(leaf, index);
            leaf.remove(index);
            (entry, leaf.may_be_joined())
        })?;
        if may_join {
            self.join(key);
        }
        Some(removed)
    }

    /// Notes that this record of `key` cannot be read.
    pub fn mark_lost(&self, key: &[u8], sequence: u64) {
        self.change_if(key, sequence, |leaf, index| {
            let entry = Entry { what: What::Lost, ..leaf.entry(index) };
            leaf.replace(index, &Packed::of(&entry));
        });
    }

    /// What is kept with the large item of this sequence, as its record says.
    pub fn know(&self, key: &[u8], sequence: u64, meta: ItemMeta) {
        self.change_if(key, sequence, |leaf, index| {
            let entry = leaf.entry(index);
            if let What::Large(large) = &entry.what
                && large.meta().is_none()
            {
                large.know(meta);
                let packed = Packed::of(&entry);
                // A hint as well: a leaf that is full of keys has no room for it.
                if leaf.has_room(Ok(index), key, &packed) {
                    leaf.replace(index, &packed);
                }
            }
        });
    }

    /// The bytes of a value wait no more.
    pub fn written(&self, large: &Large) {
        self.waiting.went(large);
    }

    /// The hits counted for `key`, if this record is what is known of it.
    pub fn weigh(&self, key: &[u8], sequence: u64, home: Home) -> Option<u8> {
        let tree = self.read();
        let leaf = shared(leaf_of(&tree, key));
        let index = leaf.find(key).ok()?;
        let is_current = leaf.sequence(index) == sequence && leaf.home(index) == home;
        is_current.then(|| leaf.weight(index)) // a hint
    }

    /// Up to `limit` items from `from` on and below `to`, in order.
    pub fn range(&self, from: &[u8], to: Option<&[u8]>, limit: usize) -> Vec<(Box<[u8]>, Entry)> {
        let mut found = Vec::with_capacity(limit.min(FOUND_AT_ONCE));
        let tree = self.read();
        let below = (Bound::Unbounded, Bound::Included(from));
        let first = tree.range::<[u8], _>(below).next_back();
        let start = first.expect("the first leaf's key is empty").0;
        for (_, leaf) in tree.range::<[u8], _>((Bound::Included(start.as_ref()), Bound::Unbounded))
        {
            let leaf = shared(leaf);
            for index in leaf.find(from).unwrap_or_else(|index| index)..leaf.len() {
                let key = leaf.key(index);
                if to.is_some_and(|to| to <= key) || found.len() == limit {
                    return found;
                }
                if leaf.is_item(index) {
                    found.push((key.into(), self.entry(&leaf, index)));
                }
            }
        }
        found
    }

    /// Calls `visit` with every entry in order, tombstones too. What changes meanwhile may be seen
    /// before or after.
    pub fn walk(&self, mut visit: impl FnMut(&[u8], &Entry)) {
        let mut spare = None;
        self.leaves(|leaf, index| self.show(leaf, index, &mut spare, &mut visit));
    }

    /// Shows one entry. A large value lies where the one before lay.
    fn show(
        &self,
        leaf: &Leaf,
        index: usize,
        spare: &mut Option<Arc<Large>>,
        visit: impl FnOnce(&[u8], &Entry),
    ) {
        let (key, entry) = leaf.both(index, spare);
        let entry = self.waiting.with_value(entry);
        visit(key, &entry);
        if let What::Large(large) = entry.what {
            *spare = Some(large);
        }
    }

    /// Calls `visit` with every place in order. The tree is let go between two leaves, or whoever
    /// must split a leaf, and holds the writer, would wait until all of them were seen.
    fn leaves(&self, mut visit: impl FnMut(&Leaf, usize)) {
        let mut next = Some(Box::default());
        while let Some(from) = next {
            next = self.leaf_from(&from, &mut visit);
        }
    }

    /// The same of one leaf, from `from` on. Says where to go on, by key, since leaves may be split
    /// and joined meanwhile.
    fn leaf_from(&self, from: &[u8], mut visit: impl FnMut(&Leaf, usize)) -> Option<Box<[u8]>> {
        let tree = self.read();
        {
            let leaf = shared(leaf_of(&tree, from));
            let begin = leaf.find(from).unwrap_or_else(|index| index);
            (begin..leaf.len()).for_each(|index| visit(&leaf, index));
        }
        next_of(&tree, from).map(|first| first.as_ref().into())
    }

    /// See [`crate::index::Index::look_through`]: a leaf.
    pub fn look_through(
        &self,
        from: &[u8],
        mut visit: impl FnMut(&[u8], &Entry, u8),
    ) -> Option<Box<[u8]>> {
        let mut spare = None;
        self.leaf_from(from, |leaf, index| {
            let weight = leaf.weight(index);
            self.show(leaf, index, &mut spare, |key, entry| visit(key, entry, weight));
        })
    }

    /// See [`crate::index::Index::take_mark`].
    pub fn take_mark(&self, key: &[u8]) -> bool {
        let tree = self.read();
        let leaf = shared(leaf_of(&tree, key));
        leaf.find(key).is_ok_and(|index| leaf.take_mark(index))
    }

    /// Halves every weight and calls `visit` with each entry and its weight before.
    pub fn cool(&self, mut visit: impl FnMut(&Entry, u8)) {
        self.leaves(|leaf, index| visit(&self.entry(leaf, index), leaf.cool(index)));
    }

    /// Takes out every entry below `sequence`.
    pub fn flush(&self, sequence: u64) -> Vec<Entry> {
        let mut gone = Vec::new();
        {
            let tree = self.read();
            for first in tree.keys() {
                self.change(&tree, first, |leaf| {
                    leaf.retain(|leaf, index| {
                        let stays = sequence <= leaf.sequence(index);
                        gone.extend((!stays).then(|| self.entry(leaf, index)));
                        stays
                    });
                });
            }
        }
        // One after the other: others come in between.
        let mut first = Key::default();
        while let Some(next) = self.first_behind(&first) {
            self.join_with_before(&mut self.write(), &next);
            first = next;
        }
        gone
    }
}

#[cfg(test)]
mod tests;
