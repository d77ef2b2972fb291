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

/// What one of a million items takes beyond its key of 16 bytes and its value of 100: of resident
/// memory, and of metadata as the store counts it.
fn beyond(end: Moment) -> (f64, f64) {
    let store = Store::new(Config {
        memory_bytes: 1 << 30,
        mode: Mode::Cache,
        buckets_initial: 64,
        ..Config::default()
    })
    .expect("memory");
    let value = [b'v'; VALUE_BYTES];
    let put = |i: u64| {
        let key = format!("key{i:013}");
        let mut draft = store.draft(key.as_bytes(), 0, end, VALUE_BYTES).expect("room");
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
    assert!(overhead > 16.0, "less than the index alone, and some: {overhead}");
    (overhead, metadata)
}

/// Without an end an item has 12 bytes of header, fills a slot of 128, and has 12.8 bytes of index
/// and 2.1 of marks. With one it has 16, and its slot 136.
#[test]
fn a_million_items_take_at_most_28_bytes_of_metadata_each_and_32_with_an_end() {
    let (overhead, metadata) = beyond(Moment::NEVER);
    assert!(overhead <= 32.0, "resident overhead per item: {overhead}");
    assert!(metadata <= 28.0, "metadata per item: {metadata}");
    let (overhead, metadata) = beyond(NOW.plus_seconds(1000));
    assert!(overhead <= 40.0, "resident overhead per item with an end: {overhead}");
    assert!(metadata <= 32.0, "metadata per item with an end: {metadata}");
}
