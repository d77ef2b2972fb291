//! What a million items really take: resident memory from the kernel's books, and metadata by the
//! store's own. A test binary of its own with one test, so that nothing else allocates meanwhile.

use laneway_store::{Config, Mode, Moment, Store};
use std::fs;

const ITEMS: u64 = 1_000_000;
const VALUE_BYTES: usize = 100;
const NOW: Moment = Moment::from_seconds(1_000_000);

fn resident_bytes() -> u64 {
    let rollup = fs::read_to_string("/proc/self/smaps_rollup").expect("Linux's own account");
    let line = rollup.lines().find(|line| line.starts_with("Rss:")).expect("a Rss line");
    let kib: u64 = line.split_whitespace().nth(1).expect("a number").parse().expect("a number");
    kib * 1024
}

#[test]
fn a_million_items_take_at_most_48_bytes_each_beyond_key_and_value() {
    let store = Store::new(Config {
        memory_bytes: 1 << 30,
        mode: Mode::Cache,
        buckets_initial: 64,
        ..Config::default()
    })
    .expect("memory");
    let value = [b'v'; VALUE_BYTES];
    let put = |i: u64| {
        let key = format!("key{i:09}");
        let mut draft =
            store.draft(key.as_bytes(), 0, NOW.plus_seconds(1000), VALUE_BYTES, NOW).expect("room");
        draft.write(&value).expect("room");
        store.enter(store.hash(key.as_bytes()), key.as_bytes(), NOW).publish(draft, None);
        key.len() as u64
    };
    let empty = resident_bytes();
    let payload: u64 = (0..ITEMS).map(|i| put(i) + VALUE_BYTES as u64).sum();
    let full = resident_bytes();
    let stats = store.stats();
    assert_eq!((stats.items, stats.evictions), (ITEMS, 0));
    let fill = stats.slots_filled as f64 / (7 * stats.buckets) as f64;
    assert!(fill >= 0.75, "the index is {fill:.2} full");

    let overhead = (full - empty).saturating_sub(payload) as f64 / ITEMS as f64;
    let metadata = stats.metadata_bytes as f64 / ITEMS as f64;
    println!(
        "resident overhead {overhead:.1} B, metadata {metadata:.1} B per item, fill {fill:.2}"
    );
    assert!(overhead > 16.0, "less than the headers alone: {overhead}");
    assert!(overhead <= 48.0, "resident overhead per item: {overhead}");
    assert!(metadata <= 32.0, "metadata per item: {metadata}");
}
