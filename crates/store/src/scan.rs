//! Walking over all keys, a bucket at a time, with a cursor that needs no memory here.
//!
//! A cursor is a point in the space of hashes: a partition, and in it the bits that choose the
//! bucket in reverse order, lowest first. Linear hashing gives each bucket the keys whose hashes
//! end in the same bits; in that order these are neighbours, and a bucket that is split, or merged,
//! is one stretch that becomes two, or two that become one. So whatever the index does between two
//! steps, a key that is there from the first step to the last is told exactly once. (Redis walks
//! its tables in this order, too.)

use crate::{
    bucket::SLOTS,
    hash::{BUCKET_BITS, PARTITIONS},
    location::Location,
    meter,
    moment::Moment,
    record,
    store::Store,
    types::KeyHash,
};
use laneway_sync::prim::Patience;

/// The points of one partition.
const POINTS: u64 = 1 << BUCKET_BITS;

/// The point of a hash in its partition.
fn point_of(hash: KeyHash) -> u64 {
    hash.bucket().reverse_bits() >> (u64::BITS - BUCKET_BITS)
}

/// The bucket that a point lies in, of so many, and where the points of the next one begin.
fn bucket_at(point: u64, buckets: u64) -> (u64, u64) {
    let level = buckets.ilog2();
    let hash = point.reverse_bits() >> (u64::BITS - BUCKET_BITS);
    let low = hash & ((1 << level) - 1);
    let is_split = low + (1 << level) < buckets;
    let (bits, bucket) = match is_split {
        true => (level + 1, hash & ((2 << level) - 1)),
        false => (level, low),
    };
    let shift = BUCKET_BITS - bits;
    (bucket, ((point >> shift) + 1) << shift)
}

impl Store {
    /// The first cursor behind all of this store.
    pub const SCAN_END: u64 = PARTITIONS as u64 * POINTS;

    /// A cursor that this number leads to: to begin anywhere.
    pub fn scan_from(&self, number: u64) -> u64 {
        self.hash(&number.to_le_bytes()).0 % Store::SCAN_END
    }

    /// Tells the living keys of one bucket from `cursor` on; 0 is the first one. Returns the cursor
    /// of the next, at most [`Store::SCAN_END`].
    pub fn scan(&self, cursor: u64, now: Moment, mut tell: impl FnMut(&[u8])) -> u64 {
        let (partition, point) = ((cursor / POINTS) as usize, cursor % POINTS);
        if partition >= PARTITIONS {
            return Store::SCAN_END;
        }
        let (mut words, mut keys, mut ends) = (Vec::with_capacity(SLOTS), Vec::new(), Vec::new());
        let mut patience = Patience::new();
        loop {
            words.clear();
            keys.clear();
            ends.clear();
            let buckets = self.index.buckets_of(partition);
            let (bucket, next) = bucket_at(point, buckets);
            let place = crate::index::place(partition, bucket);
            let version = &self.index.bucket(place).version;
            if let Some(before) = version.read_begin() {
                self.index.collect(place, &mut words);
                for word in &words {
                    let location = Location::of_slot(*word);
                    let from = keys.len();
                    if self.living_key(location, now, &mut keys).is_none()
                        || point_of(self.hash(&keys[from..])) < point
                    {
                        keys.truncate(from);
                        continue;
                    }
                    ends.push(keys.len());
                }
                if version.validate(before) && self.index.buckets_of(partition) == buckets {
                    meter::items(ends.len());
                    let mut from = 0;
                    for end in ends {
                        tell(&keys[from..end]);
                        from = end;
                    }
                    return partition as u64 * POINTS + next;
                }
            }
            patience.pause();
        }
    }

    /// The key of the record at a location, if it is alive. Not validated.
    fn living_key(&self, location: Location, now: Moment, out: &mut Vec<u8>) -> Option<()> {
        let offset = self.record_offset(location)?;
        let header = record::read(&self.memory.items, offset)?;
        if self.is_dead(&header, now) {
            return None;
        }
        self.key_at(offset, &header, out)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::types::Config;
    use std::collections::BTreeMap;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

    const NOW: Moment = Moment::from_seconds(1);

    fn store() -> Arc<Store> {
        Store::new(Config { memory_bytes: 64 << 20, ..Config::default() }).expect("a small store")
    }

    fn put(store: &Arc<Store>, key: &str) {
        let mut draft = store.draft(key.as_bytes(), 0, Moment::NEVER, 1).expect("there is room");
        draft.write(b"v").expect("there is room");
        store.enter(store.hash(key.as_bytes()), key.as_bytes(), NOW).publish(draft, None);
    }

    fn drop_key(store: &Store, key: &str) {
        store.enter(store.hash(key.as_bytes()), key.as_bytes(), NOW).unlink();
    }

    #[test]
    fn points_of_a_bucket_are_neighbours_at_every_size() {
        for buckets in [1, 2, 3, 5, 7, 8, 100, 1023, 1024, 1025] {
            let (mut point, mut seen) = (0, Vec::new());
            while point < POINTS {
                let (bucket, next) = bucket_at(point, buckets);
                assert!(next > point, "it goes on");
                for within in [point, (point + next) / 2, next - 1] {
                    let hash = within.reverse_bits() >> (u64::BITS - BUCKET_BITS);
                    let hash = KeyHash(hash << 16);
                    assert_eq!(crate::index::bucket_of(hash, buckets), bucket, "{buckets}");
                    assert_eq!(bucket_at(within, buckets), (bucket, next));
                }
                seen.push(bucket);
                point = next;
            }
            seen.sort_unstable();
            assert_eq!(seen, (0..buckets).collect::<Vec<_>>());
        }
    }

    /// Keys that stay are told once, whatever comes and goes meanwhile, and however the index grows
    /// and shrinks.
    #[test]
    fn what_is_there_all_the_time_is_told_exactly_once() {
        for seed in 0..8 {
            let store = store();
            let stays: Vec<String> = (0..300).map(|number| format!("stays{number}")).collect();
            let others: Vec<String> = (0..20_000).map(|number| format!("other{number}")).collect();
            stays.iter().for_each(|key| put(&store, key));
            if seed % 2 == 0 {
                others.iter().for_each(|key| put(&store, key));
            }
            let (mut cursor, mut told, mut step) = (0, BTreeMap::new(), 0);
            while cursor < Store::SCAN_END {
                let before = cursor;
                cursor = store.scan(cursor, NOW, |key| *told.entry(key.to_vec()).or_insert(0) += 1);
                assert!(cursor > before);
                step += 1;
                // From full to empty, or the other way, in the first part of the walk.
                for number in 0..40 {
                    let Some(key) = others.get(40 * step + number) else { break };
                    match seed % 2 {
                        0 => drop_key(&store, key),
                        _ => put(&store, key),
                    }
                }
            }
            for key in &stays {
                assert_eq!(told.get(key.as_bytes()), Some(&1), "{key}, seed {seed}");
            }
            assert!(told.values().all(|times| *times == 1), "seed {seed}");
        }
    }

    #[test]
    fn what_is_over_is_not_told_and_any_cursor_is_taken() {
        let store = store();
        put(&store, "k");
        let mut draft = store.draft(b"over", 0, Moment::from_seconds(5), 1).expect("there is room");
        draft.write(b"v").expect("there is room");
        store.enter(store.hash(b"over"), b"over", NOW).publish(draft, None);
        let all = |now| {
            let (mut cursor, mut told) = (0, Vec::new());
            while cursor < Store::SCAN_END {
                cursor = store.scan(cursor, now, |key| told.push(key.to_vec()));
            }
            told.sort();
            told
        };
        assert_eq!(all(Moment::new(4, 999)), [&b"k"[..], b"over"]);
        assert_eq!(all(Moment::from_seconds(5)), [b"k"]);
        for cursor in [Store::SCAN_END - 1, Store::SCAN_END, u64::MAX, store.scan_from(7)] {
            assert!(store.scan(cursor, NOW, |_| {}) <= Store::SCAN_END);
        }
    }

    #[test]
    fn a_walk_beside_writers_tells_what_they_leave_alone() {
        let (store, stop) = (store(), AtomicBool::new(false));
        let stays: Vec<String> = (0..500).map(|number| format!("stays{number}")).collect();
        stays.iter().for_each(|key| put(&store, key));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for number in 0.. {
                    if stop.load(Relaxed) {
                        break;
                    }
                    put(&store, &format!("other{}", number % 3_000));
                    drop_key(&store, &format!("other{}", (number + 1_500) % 3_000));
                }
            });
            for _ in 0..3 {
                let (mut cursor, mut told) = (0, BTreeMap::new());
                while cursor < Store::SCAN_END {
                    cursor =
                        store.scan(cursor, NOW, |key| *told.entry(key.to_vec()).or_insert(0) += 1);
                }
                for key in &stays {
                    assert_eq!(told.get(key.as_bytes()), Some(&1), "{key}");
                }
            }
            stop.store(true, Relaxed);
        });
    }
}
