//! The index alone, one thread: lookups one by one, and sixteen at a time with their lines asked
//! for together; beside them a map of `hashbrown` behind `parking_lot`'s `RwLock`, with the same
//! hash of the same keys. A lookup finds the item and compares its key; nothing is copied.
//!
//! `cargo run --release -p laneway-store --example index [mebibytes of keys and values] [lookups]`
//! prints one line of JSON: nanoseconds of CPU per lookup, and what one batched costs of each
//! other. The three take turns, so that a machine's drift is shared. hashbrown has no way to ask
//! for a line ahead; what it can be given is all hashes first and one lock for all sixteen,
//! `map_batched`.

use hashbrown::HashTable;
use laneway_store::{Config, HugePages, KeyHash, Mode, Moment, Store};
use parking_lot::RwLock;
use std::hint::black_box;
use std::sync::Arc;

const NOW: Moment = Moment::from_seconds(1_000_000);
const VALUE_BYTES: usize = 112;
const BATCH: usize = 16;
/// Turns of the ways; what is printed is the median.
const TURNS: usize = 5;

type Key = [u8; 16];
type Map = RwLock<HashTable<(Key, [u8; VALUE_BYTES])>>;

fn main() {
    let mut numbers = std::env::args().skip(1).map(|arg| arg.parse::<u64>().expect("a number"));
    let mebibytes = numbers.next().unwrap_or(4_096);
    let lookups = numbers.next().unwrap_or(8_000_000);
    let items = (mebibytes << 20) / (size_of::<Key>() + VALUE_BYTES) as u64;
    let store = filled_store(items);
    let map = filled_map(&store, items);
    let mut ways = [const { Vec::new() }; 4];
    for _ in 0..TURNS {
        let found = [
            unbatched(&store, items, lookups),
            batched(&store, items, lookups),
            map_unbatched(&store, &map, items, lookups),
            map_batched(&store, &map, items, lookups),
        ];
        ways.iter_mut().zip(found).for_each(|(way, ns)| way.push(ns));
    }
    let [unbatched, batched, map, map_batched] = ways.map(|mut way| {
        way.sort_by(f64::total_cmp);
        way[TURNS / 2]
    });
    println!(
        "{{\"items\":{items},\"unbatched_ns\":{unbatched:.2},\"batched_ns\":{batched:.2},\
         \"map_ns\":{map:.2},\"map_batched_ns\":{map_batched:.2},\
         \"batched_of_unbatched\":{:.4},\"batched_of_map\":{:.4},\
         \"batched_of_map_batched\":{:.4}}}",
        batched / unbatched,
        batched / map,
        batched / map_batched
    );
}

fn key(number: u64) -> Key {
    let mut key = *b"key-000000000000";
    let mut rest = number;
    for place in key[4..].iter_mut().rev() {
        *place = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    key
}

fn filled_store(items: u64) -> Arc<Store> {
    let config = Config {
        memory_bytes: (256 << 20) + items * 256,
        mode: Mode::Store,
        huge_pages: HugePages::All,
        ..Config::default()
    };
    let store = Store::new(config).expect("memory");
    let value = [b'v'; VALUE_BYTES];
    for number in 0..items {
        let key = key(number);
        let mut draft = store.draft(&key, 0, Moment::NEVER, VALUE_BYTES).expect("room");
        draft.write(&value).expect("room");
        black_box(store.enter(store.hash(&key), &key, NOW).publish(draft, None));
    }
    store
}

fn filled_map(store: &Store, items: u64) -> Map {
    let mut table = HashTable::with_capacity(items as usize);
    for number in 0..items {
        let key = key(number);
        let of_entry = |(key, _): &(Key, [u8; VALUE_BYTES])| store.hash(key).0;
        table.insert_unique(store.hash(&key).0, (key, [b'v'; VALUE_BYTES]), of_entry);
    }
    RwLock::new(table)
}

/// Keys in an order that no cache foresees, the same for every way.
fn random(items: u64) -> impl FnMut() -> Key {
    let mut word = 88_172_645_463_325_252_u64;
    move || {
        word ^= word << 13;
        word ^= word >> 7;
        word ^= word << 17;
        key(word % items)
    }
}

fn unbatched(store: &Store, items: u64, lookups: u64) -> f64 {
    let mut next = random(items);
    per_lookup(lookups, || {
        for _ in 0..BATCH {
            let key = next();
            assert!(black_box(store.peek(store.hash(&key), &key, NOW)).is_some());
        }
    })
}

fn batched(store: &Store, items: u64, lookups: u64) -> f64 {
    let mut next = random(items);
    per_lookup(lookups, || {
        let keys: [Key; BATCH] = std::array::from_fn(|_| next());
        let hashes: [KeyHash; BATCH] = std::array::from_fn(|at| store.hash(&keys[at]));
        hashes.iter().for_each(|&hash| store.prefetch(hash));
        store.prefetch_items(&hashes);
        for (&hash, key) in hashes.iter().zip(&keys) {
            assert!(black_box(store.peek(hash, key, NOW)).is_some());
        }
    })
}

fn map_unbatched(store: &Store, map: &Map, items: u64, lookups: u64) -> f64 {
    let mut next = random(items);
    per_lookup(lookups, || {
        for _ in 0..BATCH {
            let key = next();
            let hash = store.hash(&key).0;
            assert!(black_box(map.read().find(hash, |(own, _)| *own == key)).is_some());
        }
    })
}

fn map_batched(store: &Store, map: &Map, items: u64, lookups: u64) -> f64 {
    let mut next = random(items);
    per_lookup(lookups, || {
        let keys: [Key; BATCH] = std::array::from_fn(|_| next());
        let hashes: [u64; BATCH] = std::array::from_fn(|at| store.hash(&keys[at]).0);
        let table = map.read();
        for (&hash, key) in hashes.iter().zip(&keys) {
            assert!(black_box(table.find(hash, |(own, _)| own == key)).is_some());
        }
    })
}

fn per_lookup(lookups: u64, mut batch: impl FnMut()) -> f64 {
    let start = cpu_nanos();
    (0..lookups / BATCH as u64).for_each(|_| batch());
    (cpu_nanos() - start) as f64 / lookups as f64
}

/// CPU time of this thread: other processes on the machine do not count.
fn cpu_nanos() -> u64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux's account");
    stat.split_whitespace().next().expect("a number").parse().expect("a number")
}
