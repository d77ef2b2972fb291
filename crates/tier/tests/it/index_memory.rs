//! What the index takes of memory for each item: 64 bytes and the key at most, wherever the item
//! lies, and nothing for what is gone.

use crate::common::{Kind, Machine, settings, value};
use laneway_tier::disk::sim::Faults;
use laneway_tier::{Counts, Durability, IndexKind, ItemMeta, Settings, Tier};

const SEGMENT_BYTES: u32 = 128 << 10;
const LOG_BYTES: usize = 24 * SEGMENT_BYTES as usize;
const SSD_BYTES: usize = 32 << 20;
const SMALL: u64 = 8000;
const LARGE: u64 = 3000;
/// From here on a value is large.
const SPLIT_BYTES: usize = 1024;
const KEY_BYTES: u64 = 30;
/// An item takes this much at most, and its key.
const BOUND: u64 = 64;

fn machine() -> Machine {
    let (log, ssd) = (vec![0; LOG_BYTES], vec![0; SSD_BYTES]);
    Machine::of(Kind::Pm, &Faults::default(), u64::MAX, log, ssd)
}

fn settings_with(durability: Durability) -> Settings {
    let checkpoint_bytes = LOG_BYTES as u64;
    let (segment_bytes, split_bytes) = (SEGMENT_BYTES, SPLIT_BYTES);
    Settings { durability, segment_bytes, split_bytes, checkpoint_bytes, ..settings() }
}

/// In no order.
fn key(number: u64) -> Vec<u8> {
    let hash = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    format!("user:{hash:020}:{number:04x}").into_bytes()[..KEY_BYTES as usize].to_vec()
}

fn put(tier: &Tier, number: u64, bytes: usize) {
    let meta = ItemMeta { flags: 7, cas: number, ..ItemMeta::default() };
    tier.submit_put(&key(number), &value(number, bytes), meta, None).unwrap();
    if number % 64 == 63 {
        tier.commit().unwrap();
        while tier.maintain().unwrap() {}
    }
}

fn check(tier: &Tier, when: &str) -> Counts {
    let stats = tier.stats();
    let entries = stats.items.items() + stats.items.tombstones;
    let each = stats.index_bytes as f64 / entries as f64;
    println!("{when}: {each:.1} bytes for each of {:?}", stats.items);
    assert!(each <= (BOUND + KEY_BYTES) as f64, "{when}: {each:.1} bytes, {stats:?}");
    assert_eq!(stats.index_bytes, tier.index_bytes());
    stats.items
}

#[test]
fn an_item_takes_64_bytes_and_its_key_in_log_and_sort_tables_and_on_the_ssd() {
    for durability in [Durability::Ack, Durability::Interval] {
        let machine = machine();
        let (tier, _) = machine.open(settings_with(durability)).unwrap();
        let empty = tier.index_bytes();
        (0..SMALL).for_each(|number| put(&tier, number, 300));
        let counts = check(&tier, "small ones");
        assert!(1000 < counts.small_in_log.min(counts.small_on_ssd), "{counts:?}");
        for number in SMALL..SMALL + LARGE {
            put(&tier, number, SPLIT_BYTES + (number % 5000) as usize);
        }
        tier.commit().unwrap();
        assert_eq!(check(&tier, "large ones as well").large, LARGE);
        tier.checkpoint().unwrap();
        drop(tier);
        let (tier, _) = machine.open(settings_with(durability)).unwrap();
        check(&tier, "after a start");
        for number in SMALL..SMALL + LARGE {
            let item = tier.get(&key(number)).unwrap().unwrap();
            assert_eq!((item.meta.flags, item.meta.cas), (7, number));
        }
        check(&tier, "when all were read");
        let before = tier.index_bytes();
        for number in 0..SMALL + LARGE {
            assert!(tier.submit_delete(&key(number), None).unwrap().is_some());
        }
        tier.commit().unwrap();
        assert_eq!(check(&tier, "deleted").items(), 0);
        assert!(tier.index_bytes() < before);
        // Deletions are remembered until two checkpoints have them, and their segments go.
        tier.checkpoint().unwrap();
        tier.checkpoint().unwrap();
        for _ in 0..200 {
            (0..10).for_each(|_| put(&tier, 63, 900));
            tier.migrate().unwrap();
            if tier.stats().items.tombstones == 0 {
                break;
            }
        }
        let items = tier.stats().items;
        assert_eq!((items.items(), items.tombstones), (1, 0));
        assert!(tier.index_bytes() < empty + 2048, "{} bytes", tier.index_bytes());
    }
}

#[test]
fn a_flush_gives_the_memory_back() {
    let (tier, _) = machine().open(settings_with(Durability::Ack)).unwrap();
    let empty = tier.index_bytes();
    (0..SMALL).for_each(|number| put(&tier, number, 100));
    tier.commit().unwrap();
    assert!(SMALL * KEY_BYTES < tier.index_bytes());
    tier.flush_all().unwrap();
    assert_eq!(tier.index_bytes(), empty);
}

#[test]
fn an_index_in_persistent_memory_takes_as_much_memory_however_many_items_there_are() {
    let (log, ssd) = (vec![0; 2 * LOG_BYTES], vec![0; SSD_BYTES]);
    let machine = Machine::of(Kind::PmFair, &Faults::default(), u64::MAX, log, ssd);
    let index = Some(IndexKind::Fair);
    let settings = Settings { index, ..settings_with(Durability::Ack) };
    let (tier, _) = machine.open(settings).unwrap();
    let empty = tier.index_bytes();
    (0..1000).for_each(|number| put(&tier, number, 100));
    assert_eq!(tier.index_bytes(), empty);
}
