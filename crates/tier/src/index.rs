//! The ordered index: from keys to places. In memory ([`crate::btree`]), or in persistent memory
//! ([`crate::fair`]), where a start finds it as it was.
//!
//! The authority on what is current: of two records of one key the one with the higher sequence
//! counts. Entries of deleted keys stay as tombstones until a checkpoint covers them
//! ([`crate::migrate`]).

use crate::btree::BTree;
use crate::fair::FairIndex;
use crate::types::{IndexKind, ItemMeta};
use crate::value::Large;

pub use crate::btree::{Builder, Offer};
pub use crate::entry::{Counts, Entry, Home, Published, Tie, What};

/// The index.
pub enum Index {
    /// In memory; filled from a checkpoint.
    Memory(BTree),
    /// In persistent memory.
    Fair(Box<FairIndex>),
}

impl Default for Index {
    fn default() -> Index {
        Index::Memory(BTree::default())
    }
}

macro_rules! either {
    ($index:expr, $inner:ident => $does:expr) => {
        match $index {
            Index::Memory($inner) => $does,
            Index::Fair($inner) => $does,
        }
    };
}

impl Index {
    /// The one in persistent memory, if it is that.
    pub fn fair(&self) -> Option<&FairIndex> {
        match self {
            Index::Memory(_) => None,
            Index::Fair(fair) => Some(fair),
        }
    }

    /// Which it is.
    pub fn kind(&self) -> IndexKind {
        match self {
            Index::Memory(_) => IndexKind::BTree,
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
            Index::Memory(tree) => tree.is_current(key, sequence),
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
        either!(self, index => index.publish(key, entry, tie))
    }

    /// The same of many that come in the order of their keys; calls `done` for each.
    pub fn publish_in_order(&self, offers: &[Offer], mut done: impl FnMut(Published)) {
        match self {
            Index::Memory(tree) => tree.publish_in_order(offers, done),
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

    /// Forgets `key` if it still is this record.
    pub fn remove(&self, key: &[u8], sequence: u64) -> Option<Entry> {
        either!(self, index => index.remove(key, sequence))
    }

    /// Notes that this record of `key` cannot be read.
    pub fn mark_lost(&self, key: &[u8], sequence: u64) {
        either!(self, index => index.mark_lost(key, sequence));
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
        either!(self, index => index.flush(sequence))
    }

    /// How many items there are, and the bytes of their values: small, large.
    pub fn count(&self) -> Counts {
        let mut counts = Counts::default();
        self.walk(|_, entry| counts.add(entry));
        counts
    }
}
