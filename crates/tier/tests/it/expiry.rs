//! What has expired when migration meets it: it is dropped and not copied, and no older value of
//! its key comes back.

use crate::common::{self, Kind, Machine, settings, value};
use laneway_tier::disk::sim::Faults;
use laneway_tier::{IndexKind, ItemMeta, Settings, Tier};

const ITEMS: u64 = 60;
const EXPIRES: u32 = 100;

fn key(number: u64) -> Vec<u8> {
    format!("key-{number:05}").into_bytes()
}

fn put(tier: &Tier, number: u64, bytes: usize, expires_at_seconds: u32) {
    let meta = ItemMeta { expires_at_seconds, ..ItemMeta::default() };
    tier.put(&key(number), &value(number, bytes), meta).unwrap();
}

fn opened(kind: Kind) -> (Machine, Settings, Tier) {
    let machine = Machine::new(kind, &Faults::default());
    let index = kind.is_fair().then_some(IndexKind::Fair);
    let settings = Settings { index, ..settings() };
    let (tier, _) = machine.open(settings).unwrap();
    (machine, settings, tier)
}

const KINDS: [Kind; 3] = [Kind::Pm, Kind::PmFair, Kind::Wal];

#[test]
fn a_log_full_of_what_expired_makes_room_without_copying_any_of_it() {
    for kind in KINDS {
        let (machine, settings, tier) = opened(kind);
        (0..ITEMS).for_each(|number| put(&tier, number, 900, EXPIRES));
        let before = tier.stats();
        tier.tell_time(EXPIRES);
        while before.log_used_bytes <= tier.stats().log_used_bytes + 2 * 16384 {
            assert!(tier.migrate().unwrap(), "{kind:?}");
        }
        let stats = tier.stats();
        assert_eq!((stats.migrated_records, stats.kept_records), (0, 0), "{kind:?}");
        assert_eq!(stats.ssd_free_bytes, before.ssd_free_bytes, "{kind:?}: nothing was written");
        assert_eq!(stats.items.items() + stats.expired_records, ITEMS, "{kind:?}");
        assert!(
            tier.get(&key(0)).unwrap().is_none() && tier.get(&key(ITEMS - 1)).unwrap().is_some()
        );
        drop(tier);
        let (tier, report) = machine.open(settings).unwrap();
        assert_eq!((report.items, &report.problems[..]), (stats.items.items(), &[][..]));
        assert!(tier.get(&key(0)).unwrap().is_none(), "{kind:?}");
    }
}

#[test]
fn sort_tables_and_large_values_that_expired_give_their_blocks_back() {
    for kind in KINDS {
        let (_machine, _, tier) = opened(kind);
        let expires = |number: u64| if number.is_multiple_of(2) { EXPIRES } else { 0 };
        (0..ITEMS).for_each(|number| put(&tier, number, 900, expires(number)));
        (ITEMS..ITEMS + 5).for_each(|number| put(&tier, number, 5000, EXPIRES));
        while tier.stats().items.small_on_ssd < ITEMS {
            put(&tier, ITEMS + 9, 900, 0);
            tier.migrate().unwrap();
        }
        // So that all tables are worth compacting.
        let others = (0..ITEMS).filter(|number| expires(*number) == 0);
        others.for_each(|number| assert!(tier.delete(&key(number)).unwrap()));
        tier.checkpoint().unwrap();
        let before = tier.stats();
        tier.tell_time(EXPIRES);
        while tier.maintain().unwrap() {}
        let stats = tier.stats();
        assert_eq!(stats.tables_freed, before.tables, "{kind:?}: {stats:?}");
        assert_eq!(stats.items.small_on_ssd, 0, "{kind:?}: {stats:?}");
        while 0 < tier.stats().items.large {
            put(&tier, ITEMS + 9, 900, 0);
            tier.migrate().unwrap();
        }
        let stats = tier.stats();
        assert_eq!(stats.expired_records, ITEMS / 2 + 5, "{kind:?}: {stats:?}");
        assert!(before.ssd_free_bytes < stats.ssd_free_bytes, "{kind:?}: {stats:?}");
    }
}

#[test]
fn an_older_value_does_not_come_back_when_its_successor_has_expired() {
    for kind in KINDS {
        let (machine, settings, tier) = opened(kind);
        (0..ITEMS / 4).for_each(|number| put(&tier, number, 700, 0));
        (0..ITEMS / 4).for_each(|number| put(&tier, number, 700, EXPIRES));
        (ITEMS..ITEMS + 20).for_each(|number| put(&tier, number, 700, 0));
        tier.tell_time(EXPIRES);
        let mut tier = tier;
        for _ in 0..8 {
            // A start leaves an empty segment behind, which is freed first.
            while tier.migrate().unwrap() {}
            drop(tier);
            let (again, report) = machine.open(settings).unwrap();
            tier = again;
            tier.tell_time(EXPIRES);
            assert_eq!(report.problems, [""; 0], "{kind:?}");
            for number in 0..ITEMS / 4 {
                let item = tier.get(&key(number)).unwrap();
                assert!(
                    item.is_none_or(|item| item.meta.expires_at_seconds == EXPIRES),
                    "{kind:?}"
                );
            }
            tier.checkpoint().unwrap();
        }
        assert_eq!(tier.stats().items.items(), 20, "{kind:?}: all that expired is gone");
    }
}

#[test]
fn compaction_leaves_a_log_that_is_nearly_full_what_migration_needs() {
    const MANY: u64 = 900;
    const RESERVE: u64 = 3;
    let segment_bytes = u64::from(common::SEGMENT_BYTES);
    for kind in KINDS {
        let (machine, settings, tier) = opened(kind);
        drop(tier);
        // The log is left alone until it is full.
        let settings = Settings { migrate_percent: 100, ..settings };
        let (tier, _) = machine.open(settings).unwrap();
        let expires = |number: u64| if number.is_multiple_of(3) { 0 } else { EXPIRES };
        (0..MANY).for_each(|number| put(&tier, number, 250, expires(number)));
        while 2 * segment_bytes < tier.stats().log_used_bytes {
            assert!(tier.migrate().unwrap(), "{kind:?}");
        }
        (0..MANY).step_by(3).for_each(|number| {
            assert!(tier.delete(&key(number)).unwrap());
        });
        let free = || {
            let stats = tier.stats();
            (stats.log_bytes - stats.log_used_bytes) / segment_bytes
        };
        let mut number = MANY;
        while RESERVE + 1 < free() {
            put(&tier, number, 900, 0);
            number += 1;
        }
        let before = tier.stats();
        tier.tell_time(EXPIRES);
        while tier.maintain().unwrap() {
            // Deletions leave the reserve; notes about tables that went may use one of it.
            assert!(RESERVE - 1 <= free(), "{kind:?}: {}", free());
        }
        let stats = tier.stats();
        assert!(before.tables_freed < stats.tables_freed, "{kind:?}: {stats:?}");
        assert!(0 < stats.expired_records, "{kind:?}: some still found room");
        // An item that found no room was moved, and is dropped at a time when there is room.
        assert!(stats.expired_records < MANY * 2 / 3, "{kind:?}: {stats:?}");
        while 2 * RESERVE > free() {
            assert!(tier.migrate().unwrap(), "{kind:?}");
        }
        put(&tier, number, 900, 0);
        tier.checkpoint().unwrap();
        drop(tier);
        let (tier, report) = machine.open(settings).unwrap();
        assert_eq!(report.problems, [""; 0], "{kind:?}");
        for number in MANY..=number {
            assert_eq!(tier.get(&key(number)).unwrap().unwrap().value, value(number, 900));
        }
    }
}
