//! The ordered index: from keys to places. In memory ([`crate::index::btree`]), or in persistent
//! memory ([`crate::index::fair`]), where a start finds it as it was.
//!
//! The authority on what is current: of two records of one key the one with the higher sequence
//! counts. Entries of deleted keys stay as tombstones until a checkpoint covers them
//! ([`crate::background::migrate`]).
pub(crate) mod btree;
pub(crate) mod entry;
pub(crate) mod fair;
pub(crate) mod fastfair;
pub(crate) mod follow;
pub(crate) mod key;
pub(crate) mod leaf;
pub(crate) mod offer;
pub(crate) mod tally;
pub(crate) mod walked;

use crate::index::btree::BTree;
use crate::index::fair::FairIndex;
use crate::index::tally::Entries;
use crate::ssd::value::Large;
use crate::types::{IndexKind, ItemMeta};

pub use crate::index::btree::{Builder, Offer};
pub use crate::index::entry::{Counts, Entry, Home, Published, Tie, What};

/// The index.
pub enum Index {
    /// In memory; filled from a checkpoint.
    Memory(BTree, Entries),
    /// In persistent memory. Its entries are not counted: a start looks at none of them.
    Fair(Box<FairIndex>),
}

impl Default for Index {
    fn default() -> Index {
        Index::Memory(BTree::default(), Entries::default())
    }
}

/// What was offered is in the index, or not.
fn count(entries: &Entries, offered: &Counts, published: &Published) {
    if let Published::Current(before) = published
        && before.as_ref().map(Counts::of).as_ref() != Some(offered)
    {
        entries.came(offered);
        before.iter().for_each(|before| entries.went(before));
    }
}

macro_rules! either {
    ($index:expr, $inner:ident => $does:expr) => {
        match $index {
            Index::Memory($inner, _) => $does,
            Index::Fair($inner) => $does,
        }
    };
}

impl Index {
    /// The one in memory that was built of entries, with the count of these.
    pub fn built(builder: Builder, counts: Counts) -> Index {
        let is_in_order = builder.is_in_order();
        let tree = builder.finish();
        let mut walked = Counts::default();
        if !is_in_order {
            // A key that came twice was counted twice.
            tree.walk(|_, entry| walked.add(entry));
        }
        Index::Memory(tree, Entries::of(if is_in_order { counts } else { walked }))
    }

    /// The one in persistent memory, if it is that.
    pub fn fair(&self) -> Option<&FairIndex> {
        match self {
            Index::Memory(..) => None,
            Index::Fair(fair) => Some(fair),
        }
    }

    /// Which it is.
    pub fn kind(&self) -> IndexKind {
        match self {
            Index::Memory(..) => IndexKind::BTree,
            Index::Fair(_) => IndexKind::Fair,
        }
    }

    /// What is known of `key`.
    pub fn get(&self, key: &[u8]) -> Option<Entry> {
        either!(self, index => index.get(key))
    }

    /// Whether the item of this sequence is what is known of `key`.
    pub fn is_current(&self, key: &[u8], sequence: u64) -> bool {
        match self {
            Index::Memory(tree, _) => tree.is_current(key, sequence),
            Index::Fair(fair) => {
                fair.get(key).is_some_and(|now| now.sequence == sequence && now.is_item())
            }
        }
    }

    /// As `get`, and counts a hit.
    pub fn hit(&self, key: &[u8]) -> Option<Entry> {
        either!(self, index => index.hit(key))
    }

    /// Offers an entry; the higher sequence counts.
    pub fn publish(&self, key: &[u8], entry: Entry, tie: Tie) -> Published {
        match self {
            Index::Memory(tree, entries) => {
                let offered = Counts::of(&entry);
                let published = tree.publish(key, entry, tie);
                count(entries, &offered, &published);
                published
            }
            Index::Fair(fair) => fair.publish(key, entry, tie),
        }
    }

    /// The same of many that come in the order of their keys; calls `done` for each.
    pub fn publish_in_order(&self, offers: &[Offer], mut done: impl FnMut(Published)) {
        match self {
            Index::Memory(tree, entries) => {
                let mut left = offers.iter();
                tree.publish_in_order(offers, |published| {
                    if let Some((_, entry, _)) = left.next() {
                        count(entries, &Counts::of(entry), &published);
                    }
                    done(published);
                });
            }
            Index::Fair(fair) => {
                offers.iter().for_each(|(key, entry, tie)| {
                    done(fair.publish(key, entry.clone(), *tie));
                });
            }
        }
    }

    /// Points `key` at another place of the same record; false if it has changed.
    pub fn relocate(&self, key: &[u8], sequence: u64, from: Home, to: Home) -> bool {
        either!(self, index => index.relocate(key, sequence, from, to))
    }

    /// That was the record of a small item: it counts where it is now.
    pub fn small_moved(&self, from: Home, to: Home) {
        if let Index::Memory(_, entries) = self {
            entries.small_moved(from, to);
        }
    }

    /// Forgets `key` if it still is this record.
    pub fn remove(&self, key: &[u8], sequence: u64) -> Option<Entry> {
        let gone = either!(self, index => index.remove(key, sequence));
        if let Index::Memory(_, entries) = self {
            gone.iter().for_each(|gone| entries.went(gone));
        }
        gone
    }

    /// Notes that this record of `key` cannot be read. While the store is opened only: nobody else
    /// changes it meanwhile.
    pub fn mark_lost(&self, key: &[u8], sequence: u64) {
        let before = self.get(key);
        either!(self, index => index.mark_lost(key, sequence));
        if let (Index::Memory(_, entries), Some(before)) = (self, before) {
            entries.went(&before);
            self.get(key).iter().for_each(|lost| entries.came(&Counts::of(lost)));
        }
    }

    /// What is kept with the large item of this sequence, as its record says.
    pub fn know(&self, key: &[u8], sequence: u64, meta: ItemMeta) {
        either!(self, index => index.know(key, sequence, meta));
    }

    /// The bytes of this value were written: it waits in memory no more.
    pub fn written(&self, value: &Large) {
        either!(self, index => index.written(value));
    }

    /// How much memory it takes.
    pub fn bytes(&self) -> u64 {
        either!(self, index => index.bytes())
    }

    /// The hits counted for `key`, if this record is what is known of it.
    pub fn weigh(&self, key: &[u8], sequence: u64, home: Home) -> Option<u8> {
        either!(self, index => index.weigh(key, sequence, home))
    }

    /// Up to `limit` items from `from` on and below `to`, in order.
    pub fn range(&self, from: &[u8], to: Option<&[u8]>, limit: usize) -> Vec<(Box<[u8]>, Entry)> {
        either!(self, index => index.range(from, to, limit))
    }

    /// Calls `visit` with every entry in order, tombstones too. What changes meanwhile may be seen
    /// before or after.
    pub fn walk(&self, visit: impl FnMut(&[u8], &Entry)) {
        either!(self, index => index.walk(visit));
    }

    /// Calls `visit` with some entries from `from` on in order, each with its weight. Says where to
    /// go on; nowhere at the end.
    pub fn look_through(
        &self,
        from: &[u8],
        visit: impl FnMut(&[u8], &Entry, u8),
    ) -> Option<Box<[u8]>> {
        either!(self, index => index.look_through(from, visit))
    }

    /// Whether `key` was hit since this was asked last.
    pub fn take_mark(&self, key: &[u8]) -> bool {
        either!(self, index => index.take_mark(key))
    }

    /// Halves every weight and calls `visit` with each entry and its weight before.
    pub fn cool(&self, visit: impl FnMut(&Entry, u8)) {
        either!(self, index => index.cool(visit));
    }

    /// Takes out every entry below `sequence`.
    pub fn flush(&self, sequence: u64) -> Vec<Entry> {
        let gone = either!(self, index => index.flush(sequence));
        if let Index::Memory(_, entries) = self {
            gone.iter().for_each(|gone| entries.went(gone));
        }
        gone
    }

    /// How many entries there are; without a walk where they are in memory.
    pub fn count(&self) -> Counts {
        self.counted().unwrap_or_else(|| self.count_by_walk())
    }

    /// The same; nothing where that takes a walk.
    pub fn counted(&self) -> Option<Counts> {
        match self {
            Index::Memory(_, entries) => Some(entries.counts()),
            Index::Fair(_) => None,
        }
    }

    /// The same, by a walk over all of them.
    pub fn count_by_walk(&self) -> Counts {
        let mut counts = Counts::default();
        self.walk(|_, entry| counts.add(entry));
        counts
    }
}
