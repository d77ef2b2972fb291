//! What a store is not opened with, and what it does not take: the error says what to change, and
//! what was there stays as it was.

use crate::common::{Counting, Kind, Machine, SEGMENT_BYTES, settings, value};
use laneway_tier::disk::sim::Faults;
use laneway_tier::{
    Error, IndexKind, ItemMeta, KEY_BYTES_MAX, Media, MigrateBy, Settings, Tier, fsck,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Where the superblocks lie.
const SUPERBLOCKS: [usize; 2] = [0, 16 * 4096];

#[test]
fn settings_that_no_store_can_have_are_refused_before_a_byte_is_written() {
    let rows = [
        (Settings { table_bytes: 0, ..settings() }, "table_bytes"),
        (Settings { migrate_percent: 101, ..settings() }, "migrate_percent at most 100"),
        (Settings { segment_bytes: SEGMENT_BYTES + 1, ..settings() }, "must be a multiple of"),
        (Settings { segment_bytes: 0, ..settings() }, "must be a multiple of"),
        (Settings { segment_bytes: 4 * SEGMENT_BYTES, ..settings() }, "--pm-size"),
        (Settings { index: Some(IndexKind::Fair), ..settings() }, "--pm-size"),
    ];
    for (settings, told) in rows {
        let machine = Machine::new(Kind::Pm, &Faults::default());
        let before = machine.images();
        let error = machine.open(settings).err().expect(told);
        assert!(matches!(error, Error::Setting(_)), "{error:?}");
        assert!(error.to_string().contains(told), "{error}");
        assert!(machine.images() == before, "{told}: something was written");
    }
}

#[test]
fn a_store_whose_superblocks_are_both_damaged_is_refused_and_stays_as_it_is() {
    let machine = Machine::new(Kind::Pm, &Faults::default());
    let (tier, _) = machine.open(settings()).unwrap();
    tier.put(b"k", &value(1, 100), ItemMeta::default()).unwrap();
    tier.checkpoint().unwrap();
    drop(tier);
    let (log, whole) = machine.images();
    for broken in [&SUPERBLOCKS[..1], &SUPERBLOCKS[1..], &SUPERBLOCKS] {
        let mut ssd = whole.clone();
        broken.iter().for_each(|at| ssd[at + 20] ^= 1);
        let machine = Machine::of(Kind::Pm, &Faults::default(), u64::MAX, log.clone(), ssd);
        let before = machine.images();
        if let [one] = broken {
            let (tier, report) = machine.open(settings()).unwrap();
            let told = format!("superblock {} is damaged", usize::from(*one != SUPERBLOCKS[0]));
            let problems = &report.problems;
            assert!(problems.iter().any(|what| what.contains(&told)), "{problems:?}");
            assert_eq!(tier.get(b"k").unwrap().unwrap().value, value(1, 100));
            continue;
        }
        let error = machine.open(settings()).err().expect("neither can be read");
        let told = error.to_string();
        assert!(told.starts_with("damaged: neither superblock is whole"), "{told}");
        let checked = fsck::check(machine.media(), settings()).expect_err("as a check says");
        assert_eq!(checked.to_string(), error.to_string());
        assert!(machine.images() == before, "something was written");
    }
}

#[test]
fn an_ssd_that_was_made_shorter_is_refused_and_has_lost_nothing_once_it_is_whole_again() {
    const ITEMS: u64 = 40;
    let bytes = |number: u64| if number.is_multiple_of(2) { 300 } else { 40_000 };
    for kind in [Kind::Pm, Kind::PmFair, Kind::Wal] {
        let machine = Machine::new(kind, &Faults::default());
        let of = |log, ssd| Machine::of(kind, &Faults::default(), u64::MAX, log, ssd);
        let index = kind.is_fair().then_some(IndexKind::Fair);
        let settings = Settings { index, ..settings() };
        let (tier, _) = machine.open(settings).unwrap();
        for number in 0..ITEMS {
            let value = value(number, bytes(number));
            tier.put(&number.to_be_bytes(), &value, ItemMeta::default()).unwrap();
        }
        drop(tier);
        let (log, whole) = machine.images();
        let both = 2 * SUPERBLOCKS[1];
        for length in [4096, both - 4096, both, whole.len() / 2, whole.len() - 4096] {
            let shorter = of(log.clone(), whole[..length].to_vec());
            let error = shorter.open(settings).err().expect("a part of it is not there");
            assert!(matches!(error, Error::Mismatch(_)), "{error:?}");
            let told = error.to_string();
            assert!(told.contains(&format!("the SSD has {length} bytes, and ")), "{told}");
            assert!(told.contains("it was made shorter, or is not this store's"), "{told}");
            // Only what is read tells how long it was.
            let way_out = format!("truncate --size {}", whole.len());
            assert_eq!(told.contains(&way_out), both <= length, "{told}");
            let checked = fsck::check(shorter.media(), settings).expect_err("as a check says");
            assert_eq!(checked.to_string(), told);
            let (log_left, mut ssd) = shorter.images();
            assert!(log_left == log && ssd == whole[..length], "something was written");
            ssd.extend_from_slice(&whole[length..]);
            let (tier, report) = of(log_left, ssd).open(settings).unwrap();
            assert_eq!(report.problems, [""; 0], "{kind:?}");
            for number in 0..ITEMS {
                let item = tier.get(&number.to_be_bytes()).unwrap().expect("it was stored");
                assert!(item.value == value(number, bytes(number)), "{kind:?}: item {number}");
            }
        }
    }
}

#[test]
fn a_key_that_is_empty_or_too_long_is_refused_with_the_limit() {
    let machine = Machine::new(Kind::Pm, &Faults::default());
    let (tier, _) = machine.open(settings()).unwrap();
    let longest = vec![b'k'; KEY_BYTES_MAX];
    tier.put(&longest, b"v", ItemMeta::default()).unwrap();
    for key in [vec![], [&longest[..], b"k"].concat()] {
        let error = tier.put(&key, b"v", ItemMeta::default()).expect_err("no such key");
        let told = format!("a key of {} bytes: must be from 1 to {KEY_BYTES_MAX}", key.len());
        assert_eq!(error.to_string(), told);
    }
    assert_eq!(tier.get(&longest).unwrap().unwrap().value, b"v");
}

#[test]
fn a_full_store_names_the_flag_that_makes_it_larger_and_keeps_what_it_took() {
    for bytes in [200, 5000] {
        let machine = Machine::new(Kind::Pm, &Faults::default());
        let (tier, _) = machine.open(settings()).unwrap();
        let key = |number: u64| number.to_be_bytes();
        let take = |number: u64| {
            let put = tier.put(&key(number), &value(number, bytes), ItemMeta::default());
            put.and_then(|_| tier.maintain()).err()
        };
        let refused = (0..100_000).find_map(|number| Some((number, take(number)?)));
        let (number, error) = refused.expect("two megabytes are full some time");
        assert!(matches!(error, Error::PmFull | Error::SsdFull { .. }), "{error:?}");
        // The log is a file with most servers.
        assert!(!error.to_string().contains("persistent memory"), "{error}");
        assert!(error.to_string().ends_with("or with a larger --pm-size or --ssd-size"), "{error}");
        for earlier in 0..number {
            let item = tier.get(&key(earlier)).unwrap().expect("it was taken");
            assert!(item.value == value(earlier, bytes), "item {earlier} of {bytes} bytes");
        }
    }
}

#[test]
fn a_full_store_reads_sparse_sort_tables_again_once_there_may_be_room_to_merge_them() {
    const SMALL: u64 = 60;
    let machine = Machine::new(Kind::Pm, &Faults::default());
    let reads = Arc::new(AtomicU64::new(0));
    let ssd = Arc::new(Counting(machine.ssd.clone(), reads.clone()));
    let settings = Settings {
        migrate_by: Some(MigrateBy::Age),
        migrate_percent: 100,
        checkpoint_bytes: 1 << 40,
        ..settings()
    };
    let media = Media { ssd, ..machine.media() };
    let (tier, _) = Tier::open(media, settings, 1, &mut |_, _| {}).unwrap();
    let put = |number: u64, bytes: usize| {
        tier.put(&number.to_be_bytes(), &value(number, bytes), ItemMeta::default())
    };
    for number in 0..SMALL {
        put(number, 900).unwrap();
    }
    while tier.migrate().unwrap() {}
    assert!(1 < tier.stats().tables);
    assert!((SMALL..).any(|number| put(number, 4000).is_err()));
    for number in (0..SMALL).step_by(2) {
        assert!(tier.delete(&number.to_be_bytes()).unwrap());
    }
    let tried = || {
        let before = reads.load(Relaxed);
        let maintained = tier.maintain();
        (maintained.is_err(), reads.load(Relaxed) != before)
    };
    assert_eq!([tried(), tried(), tried()], [(true, true), (false, false), (false, false)]);
    // A value that is deleted makes room.
    for number in SMALL..SMALL + 20 {
        assert!(tier.delete(&number.to_be_bytes()).unwrap());
    }
    while tier.maintain().unwrap() {}
    assert!(0 < tier.stats().tables_freed);
}

/// Where every second of many values was deleted, no two free blocks lie together.
#[test]
fn the_log_is_emptied_into_holes_of_a_block() {
    let machine = Machine::sized(Kind::Pm, &Faults::default(), 1 << 20);
    // A sixteenth of a table is two blocks.
    let settings = Settings { table_bytes: 128 << 10, ..settings() };
    let (tier, _) = machine.open(settings).unwrap();
    let key = |number: u64| format!("key-{number:05}").into_bytes();
    let put = |number: u64, bytes: usize| {
        tier.put(&key(number), &value(number, bytes), ItemMeta::default()).map(drop)
    };
    let mut large = 0;
    while put(large, 4000).is_ok() {
        large += 1;
    }
    for number in (0..large).step_by(2) {
        assert!(tier.delete(&key(number)).unwrap());
    }
    let small = 1000..1500;
    for number in small.clone() {
        put(number, 300).unwrap();
    }
    assert!(10 < tier.stats().tables, "{:?}", tier.stats());
    for number in (0..large).chain(small) {
        let bytes = if number < large { 4000 } else { 300 };
        let is_there = large <= number || number % 2 == 1;
        let found = tier.get(&key(number)).unwrap().map(|item| item.value);
        assert!(found == is_there.then(|| value(number, bytes)), "{number}");
    }
}
