//! Hunts: many threads on few keys, every value read checks itself. Bounded by operations, never by
//! time: a hunt goes on until its readers have met what it is about, however the threads' turns
//! fall.
//!
//! A value tells its key, its length and a checksum, so that bytes of another item, of two items,
//! or of memory that was reused are recognised. On failure the seed is printed.

use fastrand::Rng;
use laneway_store::{Config, Got, HugePages, KeyHash, Mode, Moment, Refused, Store};
use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
};

const NOW: Moment = Moment::from_seconds(1_000_000);

fn key_of(key: u64) -> Vec<u8> {
    format!("hunted:{key}").into_bytes()
}

/// `len` (at least 24) bytes: key, nonce, checksum over all, then a stream that follows from the
/// nonce.
fn value_of(key: u64, nonce: u64, len: usize) -> Vec<u8> {
    let mut value = Vec::with_capacity(len + 8);
    value.extend_from_slice(&key.to_le_bytes());
    value.extend_from_slice(&nonce.to_le_bytes());
    value.extend_from_slice(&[0; 8]);
    let mut random = Rng::with_seed(nonce);
    while value.len() < len {
        value.extend_from_slice(&random.u64(..).to_le_bytes());
    }
    value.truncate(len.max(24));
    let sum = checksum(&value);
    value[16..24].copy_from_slice(&sum.to_le_bytes());
    value
}

fn checksum(value: &[u8]) -> u64 {
    let step = |sum: u64, byte: &u8| (sum ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
    value[..16].iter().chain(&value[24..]).fold(value.len() as u64, step)
}

fn check(key: u64, value: &[u8], said: u32) {
    assert_eq!(value.len(), said as usize, "length of {key}");
    assert_eq!(value[..8], key.to_le_bytes(), "another key's value for {key}");
    assert_eq!(value[16..24], checksum(value).to_le_bytes(), "torn value for {key}");
}

#[derive(Clone, Copy)]
struct Hunt {
    seed: u64,
    keys: u64,
    memory_bytes: u64,
    mode: Mode,
    readers: u64,
    writers: u64,
    /// Of each writer, at least.
    operations: u64,
    /// What must have been seen before the writers leave: the readers read beside them.
    met: fn(&Store, &Seen) -> bool,
    /// The sizes of values, drawn from these ranges in turns.
    sizes: &'static [(u64, u64)],
    /// Move on to the next range of sizes after so many operations of a writer.
    shift_every: u64,
}

/// So many times its operations, and a writer leaves whatever was met.
const OPERATIONS_FACTOR_MAX: u64 = 100;

/// Ends the hunt for the other threads when the holder panics.
struct Alarm<'a>(&'a AtomicBool);

impl Drop for Alarm<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.store(true, Relaxed);
        }
    }
}

#[derive(Default)]
struct Seen {
    hits: AtomicU64,
    large: AtomicU64,
    refused: AtomicU64,
}

fn read_once(store: &Arc<Store>, random: &mut Rng, hunt: &Hunt, out: &mut Vec<u8>, seen: &Seen) {
    let key = random.u64(..hunt.keys);
    let name = key_of(key);
    let hash = store.hash(&name);
    out.clear();
    let got = store.get(hash, &name, NOW, out, &mut |meta, out| {
        out.extend_from_slice(&meta.value_bytes.to_le_bytes());
    });
    match got {
        Got::Miss => assert!(out.is_empty()),
        Got::Copied(meta) => {
            seen.hits.fetch_add(1, Relaxed);
            assert_eq!(out[..4], meta.value_bytes.to_le_bytes(), "the head of another try");
            check(key, &out[4..], meta.value_bytes);
        }
        Got::Large(meta, pinned) => {
            seen.large.fetch_add(1, Relaxed);
            pinned.copy_into(out);
            check(key, out, meta.value_bytes);
            // Once more, after others had their chance.
            std::thread::yield_now();
            out.clear();
            pinned.copy_into(out);
            check(key, out, meta.value_bytes);
        }
    }
}

/// A small item mostly has no room for such an end, and is written anew while others read it.
fn end_between_seconds(store: &Arc<Store>, hash: KeyHash, name: &[u8]) {
    let (end, mut value) = (Moment::new(NOW.seconds() + 100, 7), Vec::new());
    let Got::Copied(seen) = store.peek_value(hash, name, NOW, &mut value) else { return };
    let draft = store.draft_at_once(None, name, seen.flags, end, value.len());
    let Ok(Ok(draft)) = draft.map(|mut draft| draft.write(&value).map(|()| draft)) else { return };
    let mut entry = store.enter(hash, name, NOW);
    if entry.meta().is_some_and(|found| found.seq == seen.seq) {
        entry.rewrite(draft);
        assert_eq!(entry.meta().expect("it was just written").expires, end);
    }
}

fn write_once(store: &Arc<Store>, random: &mut Rng, hunt: &Hunt, turn: u64, seen: &Seen) {
    let key = random.u64(..hunt.keys);
    let name = key_of(key);
    let hash = store.hash(&name);
    match random.u64(..20) {
        0 | 1 => store.enter(hash, &name, NOW).unlink(),
        2 => {
            let mut entry = store.enter(hash, &name, NOW);
            let end = NOW.plus_seconds(100);
            if entry.has_room_for(end) {
                entry.set_expires(end); // another would be evicted
            }
            entry.set_stale(true);
            entry.renew_seq(None);
        }
        3 => {
            // Dies at once: the next who looks, or the sweep, takes it out.
            store.enter(hash, &name, NOW).set_expires(Moment::from_seconds(1));
            store.sweep(NOW, 50);
        }
        4 => end_between_seconds(store, hash, &name),
        choice => {
            let range = (turn / hunt.shift_every) as usize % hunt.sizes.len();
            let (low, high) = hunt.sizes[range];
            let value = value_of(key, random.u64(..), random.u64(low..high) as usize);
            let mut give_up = choice == 5;
            let draft = store.draft(&name, (choice % 3) as u32, Moment::NEVER, value.len());
            let written = draft.and_then(|mut draft| {
                let half = value.len() / 2;
                draft.write(&value[..half])?;
                if !give_up {
                    draft.write(&value[half..])?;
                    store.enter(hash, &name, NOW).publish(draft, None);
                }
                give_up = false;
                Ok(())
            });
            if let Err(refused) = written {
                assert_eq!(refused, Refused::OutOfMemory);
                seen.refused.fetch_add(1, Relaxed);
            }
        }
    }
}

fn run(hunt: Hunt) -> (Arc<Store>, Seen) {
    println!("hunt with seed {}", hunt.seed);
    let store = Store::new(Config {
        memory_bytes: hunt.memory_bytes,
        mode: hunt.mode,
        item_bytes_max: 1 << 20,
        hash_seed: (hunt.seed, 1),
        unpublished_bytes_max: 4 << 20,
        buckets_initial: 1,
        huge_pages: HugePages::None,
        window: None,
    })
    .expect("memory");
    let seen = Seen::default();
    let (writers_left, alarm) = (AtomicU64::new(hunt.writers), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for writer in 0..hunt.writers {
            let (store, seen, left, alarm) = (&store, &seen, &writers_left, &alarm);
            scope.spawn(move || {
                let _alarm = Alarm(alarm);
                let mut random = Rng::with_seed(hunt.seed.wrapping_mul(31) + writer + 1);
                for turn in 0..hunt.operations * OPERATIONS_FACTOR_MAX {
                    if turn >= hunt.operations && turn % 64 == 0 {
                        if (hunt.met)(store, seen) || alarm.load(Relaxed) {
                            break;
                        }
                        std::thread::yield_now();
                    }
                    write_once(store, &mut random, &hunt, turn, seen);
                }
                left.fetch_sub(1, Relaxed);
            });
        }
        for reader in 0..hunt.readers {
            let (store, seen, left, alarm) = (&store, &seen, &writers_left, &alarm);
            scope.spawn(move || {
                let _alarm = Alarm(alarm);
                let mut random = Rng::with_seed(hunt.seed.wrapping_mul(37) + reader + 1000);
                let mut out = Vec::new();
                while left.load(Relaxed) > 0 && !alarm.load(Relaxed) {
                    for _ in 0..64 {
                        read_once(store, &mut random, &hunt, &mut out, seen);
                    }
                    std::thread::yield_now();
                }
            });
        }
    });
    assert!((hunt.met)(&store, &seen), "{:?}", store.stats());
    (store, seen)
}

/// Delete everything; nothing may be left behind.
fn drain(store: &Arc<Store>, keys: u64) {
    for key in 0..keys {
        let name = key_of(key);
        store.enter(store.hash(&name), &name, NOW).unlink();
    }
    while !store.sweep(NOW, 10_000).is_over {} // pieces of what was evicted may remain
    let stats = store.stats();
    assert_eq!((stats.items, stats.bytes, stats.unpublished_bytes), (0, 0, 0), "{stats:?}");
    assert_eq!((stats.pinned_dead_bytes, stats.buckets_overflow), (0, 0), "{stats:?}");
    assert_eq!(store.slots_used(), 0, "{:?}", store.class_stats());
}

#[test]
fn overwrites_of_few_keys_are_never_torn() {
    let (store, seen) = run(Hunt {
        seed: 1,
        keys: 8,
        memory_bytes: 64 << 20,
        mode: Mode::Store,
        readers: 2,
        writers: 2,
        operations: 150_000,
        met: |_, seen| seen.hits.load(Relaxed) > 0,
        sizes: &[(24, 200), (24, 2000)],
        shift_every: 1000,
    });
    assert_eq!(seen.refused.load(Relaxed), 0, "{:?}", store.stats());
    drain(&store, 8);
}

#[test]
fn a_growing_index_loses_and_mixes_up_nothing() {
    let keys = 60_000;
    let (store, _) = run(Hunt {
        seed: 2,
        keys,
        memory_bytes: 256 << 20,
        mode: Mode::Store,
        readers: 2,
        writers: 3,
        operations: 80_000,
        met: |store, seen| seen.hits.load(Relaxed) > 0 && store.stats().buckets > 64,
        sizes: &[(24, 64)],
        shift_every: u64::MAX,
    });
    drain(&store, keys);
}

#[test]
fn large_items_are_whole_while_they_are_replaced_and_evicted() {
    let (store, _) = run(Hunt {
        seed: 3,
        keys: 60,
        memory_bytes: 8 << 20,
        mode: Mode::Cache,
        readers: 2,
        writers: 2,
        operations: 4_000,
        met: |store, seen| seen.large.load(Relaxed) > 0 && store.stats().evictions > 0,
        sizes: &[(16_000, 60_000), (100_000, 400_000), (24, 20_000)],
        shift_every: 150,
    });
    drain(&store, 60);
}

#[test]
fn evictions_and_moves_between_classes_never_serve_a_wrong_value() {
    let keys = 40_000;
    let (store, seen) = run(Hunt {
        seed: 4,
        keys,
        memory_bytes: 4 << 20,
        mode: Mode::Cache,
        readers: 2,
        writers: 2,
        operations: 120_000,
        met: |_, seen| seen.hits.load(Relaxed) > 0,
        sizes: &[(24, 120), (250, 350), (3000, 5000)],
        shift_every: 20_000,
    });
    let stats = store.stats();
    assert!(stats.evictions > 10_000, "{stats:?}");
    assert_eq!(seen.refused.load(Relaxed), 0, "{stats:?}");
    drain(&store, keys);
}

#[test]
fn a_full_store_refuses_and_keeps_what_it_has() {
    let keys = 20_000;
    let (store, _) = run(Hunt {
        seed: 5,
        keys,
        memory_bytes: 2 << 20,
        mode: Mode::Store,
        readers: 1,
        writers: 2,
        operations: 40_000,
        met: |_, seen| seen.refused.load(Relaxed) > 0,
        sizes: &[(24, 400)],
        shift_every: u64::MAX,
    });
    assert_eq!(store.stats().evictions, 0);
    drain(&store, keys);
}

#[test]
fn a_slot_reused_under_a_reader_is_noticed() {
    let (store, _) = run(Hunt {
        seed: 6,
        keys: 2,
        memory_bytes: 4 << 20,
        mode: Mode::Store,
        readers: 2,
        writers: 2,
        operations: 60_000,
        met: |store, seen| seen.hits.load(Relaxed) > 0 && store.stats().read_retries > 0,
        sizes: &[(12_000, 16_000)],
        shift_every: u64::MAX,
    });
    drain(&store, 2);
}

/// Clears it when the holder goes, also by a panic.
struct ClearAtEnd<'a>(&'a AtomicBool);

impl Drop for ClearAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(false, Relaxed);
    }
}

/// Items that nobody deletes are found by every look, and never an older one than before, while the
/// index splits buckets, and merges them again, under the readers and the overwriters.
#[test]
#[allow(clippy::too_many_lines, reason = "rows and steps of one test")]
fn what_stays_is_always_found_while_buckets_are_split_and_merged() {
    const STAY: u64 = 300;
    const ROUNDS: u64 = 12;
    const GROWTH: u64 = 12_000;
    /// Looks at everything that stays, at least, of both readers together.
    const LOOKS: u64 = 4;
    const CYCLES_MAX: u64 = 1_000;
    for round in 0..ROUNDS {
        let store = Store::new(Config {
            memory_bytes: 64 << 20,
            mode: Mode::Store,
            buckets_initial: 1,
            hash_seed: (round, 9),
            ..Config::default()
        })
        .expect("memory");
        let put = |key: u64, nonce: u64| {
            let name = key_of(key);
            let value = value_of(key, nonce, 40);
            let mut draft = store.draft(&name, 0, Moment::NEVER, value.len()).expect("room");
            draft.write(&value).expect("room");
            store.enter(store.hash(&name), &name, NOW).publish(draft, None);
        };
        (0..STAY).for_each(|key| put(key, 1));
        let (growing, looks) = (AtomicBool::new(true), AtomicU64::new(0));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let _end = ClearAtEnd(&growing);
                (STAY..STAY + GROWTH).for_each(|key| put(key, 1));
                let grown = store.stats().buckets;
                let delete = |key: u64| {
                    let name = key_of(key);
                    store.enter(store.hash(&name), &name, NOW).unlink();
                };
                (STAY..STAY + GROWTH).for_each(delete);
                for key in (STAY..STAY + GROWTH).chain(STAY..STAY + GROWTH) {
                    put(key, 1); // each insertion may merge
                    delete(key);
                }
                let shrunk = store.stats().buckets;
                assert!(shrunk < grown / 4, "round {round}: {grown} buckets became {shrunk}");
                (STAY..STAY + GROWTH).for_each(|key| put(key, 1));
                for _ in 0..CYCLES_MAX {
                    if looks.load(Relaxed) >= LOOKS {
                        break;
                    }
                    (STAY..STAY + GROWTH).for_each(delete);
                    (STAY..STAY + GROWTH).for_each(|key| put(key, 1));
                }
            });
            scope.spawn(|| {
                for nonce in 2.. {
                    (0..STAY).step_by(3).for_each(|key| put(key, nonce));
                    if !growing.load(Relaxed) {
                        break;
                    }
                }
            });
            for _ in 0..2 {
                scope.spawn(|| {
                    let mut last = [0; STAY as usize];
                    let mut out = Vec::new();
                    while growing.load(Relaxed) {
                        for key in 0..STAY {
                            let name = key_of(key);
                            out.clear();
                            let hash = store.hash(&name);
                            let got = store.get(hash, &name, NOW, &mut out, &mut |_, _| ());
                            let Got::Copied(meta) = got else {
                                panic!("round {round}: {key} missed")
                            };
                            check(key, &out, meta.value_bytes);
                            assert!(
                                meta.seq >= last[key as usize],
                                "round {round}: {key} went back"
                            );
                            last[key as usize] = meta.seq;
                            assert!(
                                store.size_class(hash, &name).is_some(),
                                "round {round}: {key}"
                            );
                        }
                        looks.fetch_add(1, Relaxed);
                    }
                });
            }
        });
        assert!(looks.load(Relaxed) >= LOOKS, "round {round}");
        assert_eq!(store.stats().items, STAY + GROWTH, "round {round}");
        drain(&store, STAY + GROWTH);
    }
}
