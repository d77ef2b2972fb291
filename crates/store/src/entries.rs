//! The buckets of several keys, entered at once: what is changed in them changes in one moment.
//!
//! All buckets are entered before anything is changed, and none is left before everything is
//! (two-phase locking). They are entered in the order of their places, as who splits or merges a
//! bucket enters two, so nobody waits in a circle. A reader that has met the change of one key sees
//! those of the others, too, or waits for them: each bucket's version is odd before the first of
//! the buckets is left by a release.
//!
//! It departs from MICA and Minos (§4.2), where whoever writes holds one bucket. The order of
//! stores (of several NUMA domains) is the caller's to keep.

use crate::{
    draft::Draft,
    entry::Entry,
    index::{Entered, Index},
    moment::Moment,
    store::Store,
    types::{ItemMeta, KeyHash},
};
use std::ops::Deref;

/// Buckets entered for writing, looking at several keys. Drop leaves all of them.
#[derive(Debug)]
pub struct Entries<'s, 'k> {
    store: &'s Store,
    keys: Vec<Held<'s, 'k>>,
    /// Empty once they were left.
    buckets: Vec<Entered>,
    /// A flush comes before all of the changes or behind them.
    flush: u32,
}

/// One key.
#[derive(Debug)]
struct Held<'s, 'k> {
    key: &'k [u8],
    entry: Entry<'s>,
    /// Which of the buckets is its.
    bucket: usize,
}

impl Index {
    /// Enter the primary buckets of some hashes, each once, in the order of their places: so does
    /// who splits or merges two, and nobody waits in a circle.
    fn enter_all(&self, hashes: &[KeyHash]) -> Vec<Entered> {
        let primaries = || {
            let mut places: Vec<usize> = hashes.iter().map(|&hash| self.primary(hash)).collect();
            places.sort_unstable();
            places.dedup();
            places
        };
        loop {
            let buckets = primaries();
            let enter = |&bucket: &usize| {
                let before = self.bucket(bucket).version.enter();
                Entered { bucket, before }
            };
            let entered: Vec<Entered> = buckets.iter().map(enter).collect();
            // Those that were entered are not split or merged any more.
            if primaries() == buckets {
                return entered;
            }
            for Entered { bucket, before } in entered {
                self.bucket(bucket).version.leave_unchanged(before);
            }
        }
    }
}

impl Store {
    /// Enter the buckets of all these keys, of which none comes twice. A thread that holds them
    /// calls nothing else of the store, and enters no other store's but in one order that all
    /// threads keep.
    pub fn enter_all<'k>(&self, keys: &[(KeyHash, &'k [u8])], now: Moment) -> Entries<'_, 'k> {
        let hashes: Vec<KeyHash> = keys.iter().map(|(hash, _)| *hash).collect();
        let buckets = self.index.enter_all(&hashes);
        let hold = |&(hash, key): &(KeyHash, &'k [u8])| {
            let primary = self.index.primary(hash);
            let bucket = buckets.binary_search_by_key(&primary, |entered| entered.bucket);
            let bucket = bucket.expect("it was entered");
            let entry = Entry::inside(self, (hash, key), now, buckets[bucket]).sharing();
            Held { key, entry, bucket }
        };
        let keys = keys.iter().map(hold).collect();
        Entries { store: self, keys, buckets, flush: self.flush_now() }
    }
}

impl<'s> Entries<'s, '_> {
    /// The entry of the key of this number, which knows where its item stands now.
    fn at(&mut self, number: usize) -> &mut Entry<'s> {
        let Held { key, entry, .. } = &mut self.keys[number];
        entry.find(key);
        entry
    }

    /// The live item of the key of this number, if there is one.
    pub fn meta(&mut self, number: usize) -> Option<ItemMeta> {
        self.at(number).meta()
    }

    /// Delete the item of the key of this number, if there is one.
    pub fn unlink(&mut self, number: usize) {
        self.at(number).unlink();
    }

    /// Make the draft the item of the key of this number, whose draft it must be.
    pub fn publish<S: Deref<Target = Store>>(&mut self, number: usize, draft: Draft<S>) -> u64 {
        let flush = self.flush;
        self.at(number).publish_in(draft, None, flush)
    }

    /// Leave all buckets. What was unlinked is freed, and the index grows, when this is dropped:
    /// that enters buckets anew, so who holds several stores' leaves all of them before.
    pub fn leave(&mut self) {
        let mut changed = vec![false; self.buckets.len()];
        if !changed.is_empty() {
            self.keys.iter().for_each(|held| changed[held.bucket] |= held.entry.has_changed());
        }
        for (entered, changed) in self.buckets.drain(..).zip(changed) {
            let version = &self.store.index.bucket(entered.bucket).version;
            match changed {
                true => version.leave(entered.before),
                false => version.leave_unchanged(entered.before),
            }
        }
    }
}

impl Drop for Entries<'_, '_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // As for an entry: a bucket may be half written.
            std::process::abort();
        }
        self.leave();
        self.keys.iter_mut().for_each(|held| held.entry.settle());
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::{read::Got, types::Config};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

    const NOW: Moment = Moment::from_seconds(1);

    fn small() -> Arc<Store> {
        let config = Config { buckets_initial: 1, ..Config::default() };
        Store::new(config).expect("a small store")
    }

    fn draft<'s>(store: &'s Store, key: &[u8], value: &[u8]) -> Draft<&'s Store> {
        let draft = store.draft_at_once(None, key, 0, Moment::NEVER, value.len());
        let mut draft = draft.expect("there is room");
        draft.write(value).expect("there is room");
        draft
    }

    fn value(store: &Arc<Store>, key: &[u8]) -> Option<Vec<u8>> {
        let mut value = Vec::new();
        match store.peek_value(store.hash(key), key, NOW, &mut value) {
            Got::Copied(_) => Some(value),
            _ => None,
        }
    }

    fn hashed<'k>(store: &Store, keys: &'k [Vec<u8>]) -> Vec<(KeyHash, &'k [u8])> {
        keys.iter().map(|key| (store.hash(key), key.as_slice())).collect()
    }

    /// In one bucket of each partition there are chains, which items lengthen and shorten while
    /// other keys of the same bucket are held.
    #[test]
    fn keys_of_one_bucket_are_changed_beside_each_other() {
        let store = small();
        let keys: Vec<Vec<u8>> = (0..600).map(|key| format!("k{key}").into_bytes()).collect();
        let hashed = hashed(&store, &keys);
        let drafts: Vec<_> = keys.iter().map(|key| draft(&store, key, key)).collect();
        let mut entries = store.enter_all(&hashed, NOW);
        assert!((0..keys.len()).all(|number| entries.meta(number).is_none()));
        for (number, draft) in drafts.into_iter().enumerate() {
            entries.publish(number, draft);
        }
        drop(entries);
        assert!(keys.iter().all(|key| value(&store, key).as_ref() == Some(key)));

        let again: Vec<_> = keys.iter().map(|key| draft(&store, key, b"again")).collect();
        let mut entries = store.enter_all(&hashed, NOW);
        for (number, draft) in again.into_iter().enumerate() {
            match number % 3 {
                0 => entries.unlink(number),
                1 => drop(entries.publish(number, draft)),
                _ => {}
            }
        }
        for number in 0..keys.len() {
            assert_eq!(entries.meta(number).is_some(), number % 3 != 0, "{number}");
        }
        drop(entries);
        for (number, key) in keys.iter().enumerate() {
            let wanted = [None, Some(b"again".to_vec()), Some(key.clone())];
            assert_eq!(value(&store, key), wanted[number % 3], "{number}");
        }
        assert_eq!(store.stats().items, 400);
    }

    #[test]
    fn who_changes_nothing_lets_readers_be() {
        let store = small();
        store.enter(store.hash(b"a"), b"a", NOW).publish(draft(&store, b"a", b"1"), None);
        let keys = [b"a".to_vec(), b"b".to_vec()];
        let version = |key: &[u8]| {
            let bucket = store.index.primary(store.hash(key));
            store.index.bucket(bucket).version.read_begin()
        };
        let before = (version(b"a"), version(b"b"));
        let mut entries = store.enter_all(&hashed(&store, &keys), NOW);
        assert!(entries.meta(0).is_some() && entries.meta(1).is_none());
        assert_eq!((version(b"a"), version(b"b")), (None, None), "they are being written");
        drop(entries);
        assert_eq!((version(b"a"), version(b"b")), before);
    }

    /// Two keys always have the same number, which only grows: who reads one and then the other
    /// never meets a smaller number, whichever is first, while buckets split and merge around them.
    #[test]
    fn a_change_of_two_keys_is_seen_whole() {
        const CHANGES: u64 = 20_000;
        let store = small();
        let is_over = AtomicBool::new(false);
        let keys = [b"left".to_vec(), b"right".to_vec()];
        let number = |key: &[u8]| {
            let value = value(&store, key);
            value.map_or(0, |value| u64::from_le_bytes(value.try_into().expect("8 bytes")))
        };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for number in 1..=CHANGES {
                    let bytes = number.to_le_bytes();
                    let drafts = keys.each_ref().map(|key| draft(&store, key, &bytes));
                    let mut entries = store.enter_all(&hashed(&store, &keys), NOW);
                    for (at, draft) in drafts.into_iter().enumerate() {
                        entries.publish(at, draft);
                    }
                }
                is_over.store(true, Relaxed);
            });
            scope.spawn(|| {
                let mut round = 0_u64;
                while !is_over.load(Relaxed) {
                    let key = format!("other{}", round % 3000).into_bytes();
                    let mut entry = store.enter(store.hash(&key), &key, NOW);
                    match round / 3000 % 2 {
                        0 => {
                            drop(entry);
                            let draft = draft(&store, &key, b"v");
                            store.enter(store.hash(&key), &key, NOW).publish(draft, None);
                        }
                        _ => entry.unlink(),
                    }
                    round += 1;
                }
            });
            for order in [[0, 1], [1, 0]] {
                let (keys, number, is_over) = (&keys, &number, &is_over);
                scope.spawn(move || {
                    while !is_over.load(Relaxed) {
                        let [first, second] = order.map(|at| number(&keys[at]));
                        assert!(first <= second, "{first}, and then {second}");
                    }
                });
            }
        });
        assert_eq!((number(b"left"), number(b"right")), (CHANGES, CHANGES));
    }
}
