//! Nanoseconds of CPU per operation of one thread, single operations back to back: an orientation,
//! not a benchmark. `cargo run --release -p laneway-store --example speed [items] [value bytes]
//! [operations]`

use laneway_store::{Config, Got, HugePages, Mode, Moment, Store};
use std::{hint::black_box, sync::Arc};

const NOW: Moment = Moment::from_seconds(1_000_000);

fn main() {
    let mut numbers = std::env::args().skip(1).map(|arg| arg.parse::<u64>().expect("a number"));
    let items = numbers.next().unwrap_or(100_000);
    let value_bytes = numbers.next().unwrap_or(100) as usize;
    let operations = numbers.next().unwrap_or(4_000_000);
    let config = Config {
        memory_bytes: (256 << 20) + items * (value_bytes as u64 + 100) * 2,
        mode: Mode::Cache,
        item_bytes_max: 8 << 20,
        huge_pages: HugePages::All,
        window: None,
        ..Config::default()
    };
    let store = Store::new(config).expect("memory");
    let value = vec![b'v'; value_bytes];
    let set = |i: u64| {
        let key = key(i);
        let hash = store.hash(&key);
        let mut draft = store.draft(&key, 0, Moment::NEVER, value.len()).expect("room");
        draft.write(&value).expect("room");
        black_box(store.enter(hash, &key, NOW).publish(draft, None));
    };
    report("set, new", items, set);
    let mut random = 88_172_645_463_325_252u64;
    let mut next = move || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random % items
    };
    report("set, again", operations / 4, |_| set(next()));
    report("hash", operations, |i| {
        black_box(store.hash(&key(i)));
    });
    gets(&store, items, operations, next);
    let stats = store.stats();
    println!(
        "items {} metadata/item {:.1} index/item {:.1} buckets {} overflow {} fill {:.2}",
        stats.items,
        stats.metadata_bytes as f64 / stats.items as f64,
        stats.index_bytes as f64 / stats.items as f64,
        stats.buckets,
        stats.buckets_overflow,
        stats.slots_filled as f64 / (7 * stats.buckets) as f64,
    );
}

fn key(i: u64) -> [u8; 16] {
    let mut key = *b"key-000000000000";
    let mut rest = i;
    for place in key[4..].iter_mut().rev() {
        *place = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    key
}

fn gets(store: &Arc<Store>, items: u64, operations: u64, mut next: impl FnMut() -> u64) {
    let mut out = Vec::new();
    report("get, hit", operations, |_| {
        let key = key(next());
        out.clear();
        let got = store.get(store.hash(&key), &key, NOW, &mut out, &mut |_, out| {
            out.extend_from_slice(b"VALUE ");
        });
        assert!(matches!(got, Got::Copied(_) | Got::Large(..)));
    });
    report("16 gets, hit, prefetched", operations / 16, |_| {
        let keys: [[u8; 16]; 16] = std::array::from_fn(|_| key(next()));
        let hashes = keys.map(|key| store.hash(&key));
        hashes.iter().for_each(|&hash| store.prefetch(hash));
        store.prefetch_items(&hashes);
        for (hash, key) in hashes.iter().zip(&keys) {
            out.clear();
            let got = store.get(*hash, key, NOW, &mut out, &mut |_, out| {
                out.extend_from_slice(b"VALUE ");
            });
            assert!(matches!(got, Got::Copied(_) | Got::Large(..)));
        }
    });
    report("get, miss", operations, |i| {
        let key = key(items + i);
        out.clear();
        let got = store.get(store.hash(&key), &key, NOW, &mut out, &mut |_, _| ());
        assert!(matches!(got, Got::Miss));
    });
}

fn report(what: &str, operations: u64, mut operation: impl FnMut(u64)) {
    let start = cpu_nanos();
    (0..operations).for_each(&mut operation);
    let took = cpu_nanos() - start;
    println!("{what:28} {:7.1} ns", took as f64 / operations as f64);
}

/// CPU time of this thread: other processes on the machine do not count.
fn cpu_nanos() -> u64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux's account");
    stat.split_whitespace().next().expect("a number").parse().expect("a number")
}
