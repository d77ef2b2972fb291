//! What was sent, kept for a while in case it is asked for again: the frames of a large reply, or
//! the answer to a request that its client repeats.
//!
//! Bounded by number, bytes and age; the oldest goes first, and nothing is ever refused room. Time
//! is nanoseconds; age is since the entry was put in, so that asking again does not keep it.
//! No call pays for many: what is too old goes [`EXPIRED_PER_CALL`] at a time, and is not told
//! meanwhile.

use alloc::collections::BTreeMap;

/// Entries that one call lets go because they are too old.
pub const EXPIRED_PER_CALL: usize = 256;

/// How much is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Entries.
    pub entries_max: usize,
    /// Bytes of all entries, as their owner counts them.
    pub bytes_max: usize,
    /// How long an entry is kept.
    pub age_nanos_max: u64,
}

struct Entry<V> {
    value: V,
    bytes: usize,
    born_nanos: u64,
    serial: u64,
}

/// Values of type `V` under keys of type `K`.
pub struct Retained<K, V> {
    bounds: Bounds,
    entries: BTreeMap<K, Entry<V>>,
    /// By serial number, so oldest first: the key of every entry.
    order: BTreeMap<u64, K>,
    serial: u64,
    bytes: usize,
}

impl<K: Ord + Copy, V> Retained<K, V> {
    /// Empty.
    pub fn new(bounds: Bounds) -> Retained<K, V> {
        let (entries, order) = (BTreeMap::new(), BTreeMap::new());
        Retained { bounds, entries, order, serial: 0, bytes: 0 }
    }

    /// Keeps `value`, which counts as `bytes`, in place of what `key` had, and lets the oldest go
    /// where a bound is passed. A value beyond all room is dropped at once.
    pub fn keep(&mut self, key: K, value: V, bytes: usize, now_nanos: u64) {
        self.forget(&key);
        self.serial += 1;
        let entry = Entry { value, bytes, born_nanos: now_nanos, serial: self.serial };
        self.entries.insert(key, entry);
        self.order.insert(self.serial, key);
        self.bytes += bytes;
        while self.entries.len() > self.bounds.entries_max || self.bytes > self.bounds.bytes_max {
            self.drop_oldest();
        }
        self.expire(now_nanos);
    }

    /// What `key` has, unless it is too old.
    pub fn get(&self, key: &K, now_nanos: u64) -> Option<&V> {
        let entry = self.entries.get(key)?;
        let age_nanos = now_nanos.saturating_sub(entry.born_nanos);
        (age_nanos <= self.bounds.age_nanos_max).then_some(&entry.value)
    }

    /// Lets go of what `key` has.
    pub fn forget(&mut self, key: &K) -> Option<V> {
        let entry = self.entries.remove(key)?;
        self.order.remove(&entry.serial);
        self.bytes -= entry.bytes;
        Some(entry.value)
    }

    /// Lets go of what is too old, of at most [`EXPIRED_PER_CALL`]. Costs nothing when nothing is.
    pub fn expire(&mut self, now_nanos: u64) {
        for _ in 0..EXPIRED_PER_CALL {
            let Some((_, key)) = self.order.first_key_value() else { return };
            if self.get(key, now_nanos).is_some() {
                return;
            }
            self.drop_oldest();
        }
    }

    /// Entries kept.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether nothing is kept.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Bytes of what is kept.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    fn drop_oldest(&mut self) {
        if let Some((_, key)) = self.order.pop_first() {
            self.forget(&key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: Bounds = Bounds { entries_max: 3, bytes_max: 100, age_nanos_max: 10 };

    #[test]
    fn the_oldest_goes_when_there_are_too_many() {
        let mut kept = Retained::new(BOUNDS);
        for key in 0..5u16 {
            kept.keep(key, key, 1, 0);
        }
        let left: alloc::vec::Vec<u16> = (0..5).filter(|key| kept.get(key, 0).is_some()).collect();
        assert_eq!((left, kept.len(), kept.bytes()), (alloc::vec![2, 3, 4], 3, 3));
    }

    #[test]
    fn the_oldest_goes_when_it_is_too_much() {
        let mut kept = Retained::new(BOUNDS);
        kept.keep(1, (), 60, 0);
        kept.keep(2, (), 60, 0);
        assert!(kept.get(&1, 0).is_none() && kept.get(&2, 0).is_some());
        kept.keep(3, (), 101, 0);
        assert!(kept.is_empty() && kept.bytes() == 0);
    }

    #[test]
    fn age_is_from_the_beginning() {
        let mut kept = Retained::new(BOUNDS);
        kept.keep(1, "a", 1, 0);
        kept.keep(2, "b", 1, 5);
        assert_eq!((kept.get(&1, 10), kept.get(&1, 11)), (Some(&"a"), None));
        kept.expire(11);
        assert_eq!((kept.len(), kept.get(&2, 15)), (1, Some(&"b")));
    }

    #[test]
    fn what_is_replaced_or_forgotten_takes_nothing_with_it() {
        let mut kept = Retained::new(BOUNDS);
        kept.keep(1, "old", 50, 0);
        kept.keep(2, "b", 10, 4);
        kept.keep(1, "new", 20, 8);
        kept.expire(12);
        assert_eq!((kept.get(&1, 12), kept.get(&2, 12)), (Some(&"new"), Some(&"b")));
        assert_eq!((kept.forget(&2), kept.forget(&2), kept.bytes()), (Some("b"), None, 20));
        for round in 0..1000 {
            kept.keep(7, "again", 1, 8 + round / 1000);
            kept.forget(&7);
        }
        assert_eq!(kept.order.len(), kept.len(), "what is forgotten leaves no place behind");
        assert_eq!(kept.get(&1, 8), Some(&"new"));
    }

    #[test]
    fn no_call_pays_for_all_that_is_too_old() {
        let many = 10 * EXPIRED_PER_CALL;
        let mut kept = Retained::new(Bounds { entries_max: many, ..BOUNDS });
        for key in 0..many {
            kept.keep(key, (), 0, 0);
        }
        kept.expire(11);
        assert_eq!(kept.len(), many - EXPIRED_PER_CALL);
        assert_eq!(kept.get(&(many - 1), 11), None, "it is here, and not told");
        kept.keep(many, (), 0, 11);
        assert_eq!(kept.len(), many + 1 - 2 * EXPIRED_PER_CALL);
        (0..10).for_each(|_| kept.expire(11));
        assert_eq!((kept.len(), kept.get(&many, 11)), (1, Some(&())));
    }
}
