//! What a store does while nothing crashes, and what it says when a medium misbehaves.

use crate::common::{Kind, Machine, PM_BYTES, SSD_BYTES, settings, value};
use laneway_tier::disk::sim::Faults;
use laneway_tier::{
    Answer, Backend, Directory, DirectorySettings, Durability, Error, ItemMeta, KEY_BYTES_MAX,
    MigrateBy, PIECE_BYTES, Request, Settings, Tier, WhenFull,
};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Barrier, Condvar, Mutex};

const KINDS: [Kind; 2] = [Kind::Pm, Kind::Wal];

fn meta(flags: u32) -> ItemMeta {
    let cas = u64::from(flags) << 33;
    ItemMeta { flags, expires_at_seconds: flags / 2, marks: flags as u16, cas }
}

fn machine(kind: Kind) -> Machine {
    Machine::new(kind, &Faults::default())
}

fn key(number: u64) -> Vec<u8> {
    format!("key-{number:05}").into_bytes()
}

fn put(tier: &Tier, number: u64, version: u64, bytes: usize) {
    tier.put(&key(number), &value(version, bytes), meta(version as u32)).unwrap();
}

fn holds(tier: &Tier, number: u64, version: u64, bytes: usize) {
    let item = tier.get(&key(number)).unwrap().expect("it was put");
    assert_eq!((item.value, item.meta), (value(version, bytes), meta(version as u32)));
}

fn scratch(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("laneway-tier-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&path);
    path
}

#[test]
fn items_of_every_size_are_read_as_written_and_survive_a_restart() {
    let sizes = [0, 1, 500, 1023, 1024, 4096, 4097, 9000, 100_000, PIECE_BYTES + 1];
    for kind in KINDS {
        let machine = machine(kind);
        let (tier, report) = machine.open(settings()).unwrap();
        assert!(report.is_new);
        for (number, &bytes) in sizes.iter().enumerate() {
            put(&tier, number as u64, 7, bytes);
            assert_eq!(tier.look(&key(number as u64)).unwrap().value_bytes, bytes as u64);
        }
        drop(tier);
        let (tier, report) = machine.open(settings()).unwrap();
        assert_eq!((report.items, &report.problems[..]), (sizes.len() as u64, &[][..]));
        for (number, &bytes) in sizes.iter().enumerate() {
            holds(&tier, number as u64, 7, bytes);
        }
    }
}

#[test]
fn a_deleted_key_stays_deleted_through_migration_checkpoints_and_restarts() {
    let machine = machine(Kind::Pm);
    let (mut tier, _) = machine.open(settings()).unwrap();
    put(&tier, 1, 1, 100);
    while tier.stats().items.small_on_ssd == 0 {
        put(&tier, 2, 1, 900);
        tier.migrate().unwrap();
    }
    assert!(tier.delete(&key(1)).unwrap());
    assert!(!tier.delete(&key(1)).unwrap());
    for _ in 0..3 {
        for round in 0..60 {
            put(&tier, 3, round, 900);
            tier.maintain().unwrap();
        }
        tier.checkpoint().unwrap();
        drop(tier);
        tier = machine.open(settings()).unwrap().0;
        assert_eq!(tier.get(&key(1)).unwrap(), None);
        holds(&tier, 2, 1, 900);
    }
    tier.checkpoint().unwrap();
    tier.checkpoint().unwrap();
    while tier.migrate().unwrap() && 0 < tier.stats().items.tombstones {
        put(&tier, 3, 1, 900);
    }
    assert_eq!(tier.stats().items.tombstones, 0, "checkpoints make tombstones superfluous");
}

#[test]
fn flush_all_empties_the_store_for_good() {
    let machine = machine(Kind::Pm);
    let (tier, _) = machine.open(settings()).unwrap();
    for number in 0..100 {
        put(&tier, number, number, 800);
        tier.maintain().unwrap();
    }
    tier.flush_all().unwrap();
    put(&tier, 5, 9, 10);
    drop(tier);
    let (tier, _) = machine.open(settings()).unwrap();
    assert_eq!(tier.scan(b"", None, 10).len(), 1);
    for round in 0..200 {
        put(&tier, 6, round, 800);
        tier.maintain().unwrap();
    }
    drop(tier);
    let (tier, _) = machine.open(settings()).unwrap();
    assert_eq!(tier.stats().items.items(), 2);
    assert_eq!(tier.stats().tables, 0, "sort tables without items are given back");
}

#[test]
fn a_scan_is_in_order_between_its_bounds_whatever_the_medium() {
    let machine = machine(Kind::Wal);
    let (tier, _) = machine.open(settings()).unwrap();
    for number in (0..300).rev() {
        put(&tier, number, number, if number % 10 == 0 { 2000 } else { 120 });
        if 150 < number && number % 30 == 0 {
            tier.migrate().unwrap();
        }
    }
    let counts = tier.stats().items;
    assert!(0 < counts.small_on_ssd && 0 < counts.small_in_log && 0 < counts.large, "{counts:?}");
    let found = tier.scan(&key(100), Some(&key(250)), 1000);
    assert_eq!(found.len(), 150);
    for ((found, item), number) in found.into_iter().zip(100..) {
        assert_eq!((found, item.unwrap().meta), (key(number), meta(number as u32)));
    }
    assert_eq!(tier.scan(&key(299), None, 1000).len(), 1);
    assert_eq!(tier.scan(b"", None, 7).len(), 7);
}

#[test]
fn a_set_thirty_times_the_log_lives_on_and_amplifies_writes_little() {
    let settings = Settings { split_bytes: 4096, checkpoint_bytes: 512 << 10, ..settings() };
    let media =
        Machine::of(Kind::Wal, &Faults::default(), u64::MAX, vec![0; PM_BYTES], vec![0; 16 << 20]);
    let (tier, _) = media.open(settings).unwrap();
    let (numbers, small, large) = (2500, 256, 4096);
    assert!(30 * PM_BYTES < numbers as usize / 2 * (small + large));
    for number in 0..numbers {
        let bytes = if number % 2 == 0 { small } else { large };
        // Groups of many, as many clients make them.
        tier.submit_put(&key(number), &value(number, bytes), meta(number as u32), None).unwrap();
        if number % 64 == 63 {
            tier.commit().unwrap();
        }
        tier.maintain().unwrap();
    }
    tier.commit().unwrap();
    for number in 0..numbers {
        holds(&tier, number, number, if number % 2 == 0 { small } else { large });
    }
    let stats = tier.stats();
    assert!(stats.write_amplification() < 1.5, "{}", stats.write_amplification());
}

#[test]
fn hot_items_stay_in_the_log_and_by_age_they_do_not() {
    let unsaid = Settings { migrate_by: None, ..settings() };
    let evicts = Settings { when_full: WhenFull::Evict, ..unsaid };
    assert_eq!(evicts.migrates_by(), MigrateBy::Hotness, "eviction asks for hits");
    for (migrate_by, stays) in
        [(Some(MigrateBy::Hotness), true), (Some(MigrateBy::Age), false), (None, false)]
    {
        let machine = machine(Kind::Pm);
        let (tier, _) = machine.open(Settings { migrate_by, ..settings() }).unwrap();
        put(&tier, 0, 0, 200);
        for number in 1..400 {
            put(&tier, number, number, 200);
            for _ in 0..4 {
                holds(&tier, 0, 0, 200);
            }
            tier.maintain().unwrap();
        }
        let look = tier.look(&key(0)).unwrap();
        assert_eq!(!look.waits, stays, "{migrate_by:?}");
    }
}

#[test]
fn sparse_sort_tables_are_merged() {
    let machine = machine(Kind::Pm);
    let (tier, _) = machine.open(settings()).unwrap();
    for round in 0..5 {
        for number in 0..500 {
            put(&tier, number, round, 300);
            while tier.maintain().unwrap() {}
        }
    }
    let stats = tier.stats();
    assert!(0 < stats.tables_freed, "{stats:?}");
    for number in 0..500 {
        holds(&tier, number, 4, 300);
    }
}

#[test]
fn one_path_rivals_are_a_setting_away() {
    let machine_ssd = machine(Kind::Pm);
    let (tier, _) = machine_ssd.open(Settings { split_bytes: 0, ..settings() }).unwrap();
    put(&tier, 1, 1, 10);
    assert_eq!(tier.stats().items.large, 1);
    let machine_log = machine(Kind::Pm);
    let (tier, _) = machine_log.open(Settings { split_bytes: usize::MAX, ..settings() }).unwrap();
    put(&tier, 1, 1, 5000);
    assert_eq!(tier.stats().items.small_in_log, 1);
    put(&tier, 2, 1, 50_000); // longer than a record can be
    assert_eq!(tier.stats().items.large, 1);
}

#[test]
fn keys_and_values_have_limits() {
    let (tier, _) = machine(Kind::Pm).open(settings()).unwrap();
    let long = vec![b'k'; KEY_BYTES_MAX + 1];
    for key in [&b""[..], &long] {
        assert!(matches!(tier.put(key, b"v", meta(0)), Err(Error::KeyBytes(_))));
        assert!(matches!(tier.delete(key), Err(Error::KeyBytes(_))));
    }
    assert!(matches!(tier.draft_large(b"k", (1 << 30) + 1), Err(Error::ValueBytes(_))));
    tier.put(&long[1..], b"v", meta(0)).unwrap();
}

#[test]
fn a_full_ssd_is_an_error_that_loses_nothing_and_goes_away_with_space() {
    let (tier, _) = machine(Kind::Pm).open(settings()).unwrap();
    let mut held = 0;
    let error = loop {
        match tier.put(&key(held), &value(held, 60_000), meta(held as u32)) {
            Ok(_) => held += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(error, Error::SsdFull { .. }), "{error}");
    assert!(error.to_string().contains("--when-full evict"));
    assert!(20 < held && held < (SSD_BYTES / 60_000) as u64 + 1);
    (0..held).for_each(|number| holds(&tier, number, number, 60_000));
    assert!(tier.delete(&key(0)).unwrap());
    put(&tier, 1000, 1, 60_000);
}

#[test]
fn a_full_log_is_an_error_that_loses_nothing_and_deletes_still_work() {
    let (tier, _) = machine(Kind::Pm).open(Settings { table_bytes: 4096, ..settings() }).unwrap();
    let mut held = 0;
    let error = loop {
        match tier.put(&key(held), &value(held, 900), meta(held as u32)) {
            Ok(_) => held += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(error, Error::PmFull | Error::SsdFull { .. }), "{error}");
    (0..held).for_each(|number| holds(&tier, number, number, 900));
    for number in 0..40 {
        assert!(tier.delete(&key(number)).unwrap());
    }
    (40..held).for_each(|number| holds(&tier, number, number, 900));
}

/// Puts values until the SSD is full; returns how many.
fn fill_ssd(tier: &Tier, first: u64, bytes: usize) -> u64 {
    for number in first.. {
        match tier.put(&key(number), &value(number, bytes), meta(number as u32)) {
            Ok(_) => {}
            Err(Error::SsdFull { .. }) => return number - first,
            Err(error) => panic!("{error}"),
        }
    }
    unreachable!("an SSD has an end")
}

#[test]
fn an_ssd_with_holes_of_one_block_takes_small_items_and_deletions() {
    let (tier, _) = machine(Kind::Pm).open(settings()).unwrap();
    let held = fill_ssd(&tier, 0, 4000);
    assert!(300 < held, "{held} values of a block each");
    for number in (0..held).step_by(2) {
        assert!(tier.delete(&key(number)).unwrap());
    }
    // They are more than the log, and no two free blocks lie together for a sort table of two.
    let small = 50_000..50_000 + 2 * PM_BYTES as u64 / 500;
    for number in small.clone() {
        put(&tier, number, number, 500);
    }
    small.for_each(|number| holds(&tier, number, number, 500));
    for number in (1..held).step_by(2) {
        holds(&tier, number, number, 4000);
        assert!(tier.delete(&key(number)).unwrap());
    }
}

#[test]
fn a_write_that_a_full_store_refuses_rewrites_little() {
    let (tier, _) = machine(Kind::Pm).open(settings()).unwrap();
    fill_ssd(&tier, 0, 4000);
    // Their records take two lines each, and half of the second is empty.
    let refused =
        (50_000..60_000).find(|number| tier.put(&key(*number), b"12345678", meta(0)).is_err());
    assert!(refused.is_some(), "the log has an end");
    let before = tier.stats().media_written_bytes;
    for number in 60_000..60_010 {
        let _ = (tier.put(&key(number), b"12345678", meta(0)), tier.maintain());
    }
    let written = tier.stats().media_written_bytes - before;
    assert!(written <= 20 * u64::from(settings().segment_bytes), "{written} bytes");
}

#[test]
fn sort_tables_of_which_nothing_is_current_make_room_for_values() {
    let (tier, _) = machine(Kind::Pm).open(settings()).unwrap();
    let mut first = 0;
    while tier.stats().items.small_on_ssd < 150 {
        put(&tier, first, first, 500);
        first += 1;
    }
    let tables = tier.stats().tables;
    (0..first).for_each(|number| assert!(tier.delete(&key(number)).unwrap()));
    let held = fill_ssd(&tier, first, 60_000);
    fill_ssd(&tier, first + held, 4000);
    assert!(tables > 8, "{tables} sort tables");
    assert_eq!(tier.stats().tables, 0, "what nobody can read took the room of values");
}

#[test]
fn a_failed_flush_stays_failed_until_the_store_is_opened_again() {
    let machine = machine(Kind::Wal);
    let (tier, _) = machine.open(settings()).unwrap();
    put(&tier, 1, 1, 100);
    machine.set_log_faults(Faults { sync_error_one_in: 1, ..Faults::default() });
    let first = tier.put(&key(1), b"never acknowledged", meta(0)).unwrap_err();
    assert!(matches!(first, Error::Io { .. }), "{first}");
    machine.set_log_faults(Faults::default());
    let later = tier.put(&key(2), b"refused", meta(0)).unwrap_err();
    assert!(matches!(later, Error::Poisoned(_)), "{later}");
    assert!(matches!(tier.delete(&key(1)), Err(Error::Poisoned(_))));
    assert!(matches!(tier.flush_all(), Err(Error::Poisoned(_))));
    assert!(tier.stats().poisoned);
    holds(&tier, 1, 1, 100); // reads go on
    drop(tier);
    let (tier, _) = machine.open(settings()).unwrap();
    put(&tier, 2, 2, 100);
}

#[test]
fn a_failed_write_of_a_large_value_fails_alone() {
    let machine = machine(Kind::Pm);
    let (tier, _) = machine.open(settings()).unwrap();
    put(&tier, 1, 1, 5000);
    machine.ssd.set_faults(Faults { write_error_one_in: 1, ..Faults::default() });
    // Longer than what waits for its group.
    assert!(matches!(tier.put(&key(1), &value(2, 70_000), meta(2)), Err(Error::Io { .. })));
    machine.ssd.set_faults(Faults { space_blocks: 1, ..Faults::default() });
    assert!(matches!(tier.put(&key(1), &value(2, 90_000), meta(2)), Err(Error::Io { .. })));
    machine.ssd.set_faults(Faults::default());
    holds(&tier, 1, 1, 5000);
    put(&tier, 1, 3, 5000);
    holds(&tier, 1, 3, 5000);
}

#[test]
fn a_read_error_is_told_and_is_not_taken_for_a_loss() {
    let machine = machine(Kind::Pm);
    let (tier, _) = machine.open(settings()).unwrap();
    put(&tier, 1, 1, 5000);
    machine.ssd.set_faults(Faults { read_error_one_in: 1, ..Faults::default() });
    assert!(matches!(tier.get(&key(1)), Err(Error::Io { .. })));
    machine.ssd.set_faults(Faults::default());
    holds(&tier, 1, 1, 5000);
}

fn find(image: &[u8], what: &[u8]) -> usize {
    image.windows(what.len()).position(|window| window == what).expect("it was written")
}

#[test]
fn a_flipped_bit_loses_one_item_by_name_and_the_rest_is_served() {
    let machine = machine(Kind::Pm);
    let (tier, _) = machine.open(settings()).unwrap();
    (0..9).for_each(|number| put(&tier, number, number, 200));
    put(&tier, 9, 9, 5000);
    put(&tier, 10, 10, 10);
    put(&tier, 11, 11, 10);
    drop(tier);
    let (mut log, mut ssd) = machine.images();
    let at = find(&log, &value(4, 200));
    log[at + 50] ^= 4;
    let at = find(&ssd, &value(9, 5000)[..200]);
    ssd[at + 70] ^= 1;
    let flipped = Machine::of(Kind::Pm, &Faults::default(), u64::MAX, log, ssd);
    let (tier, report) = flipped.open(settings()).unwrap();
    assert_eq!(report.problems.len(), 1, "{:?}", report.problems);
    assert!(report.problems[0].contains("key-00004"), "{:?}", report.problems);
    for number in 0..12 {
        match (number, tier.get(&key(number))) {
            (4 | 9, Err(Error::Lost { key: named, .. })) => assert_eq!(named, key(number)),
            (4 | 9, other) => panic!("{number}: {other:?}"),
            (10 | 11, _) => holds(&tier, number, number, 10),
            _ => holds(&tier, number, number, 200),
        }
    }
}

#[test]
fn a_damaged_checkpoint_is_replaced_by_the_one_before() {
    let machine = machine(Kind::Pm);
    let (tier, _) = machine.open(settings()).unwrap();
    for round in 0..40 {
        (0..10).for_each(|number| put(&tier, number, round, 200));
        tier.delete(&key(round % 10)).unwrap();
        put(&tier, round % 10, round, 200);
        tier.maintain().unwrap();
        tier.checkpoint().unwrap();
    }
    drop(tier);
    let (log, mut ssd) = machine.images();
    let newest = b"LCHKPNT1".iter().rev().copied().collect::<Vec<u8>>();
    let mut damaged = 0;
    // All checkpoints but one are damaged, in every way to choose that one.
    let places: Vec<usize> = ssd
        .windows(8)
        .enumerate()
        .filter(|(_, window)| *window == newest || *window == b"LCHKPNT1")
        .map(|(at, _)| at)
        .collect();
    assert!(2 <= places.len(), "two checkpoints are kept");
    for &kept in &places {
        let mut image = ssd.clone();
        places.iter().filter(|at| **at != kept).for_each(|at| image[at + 9] ^= 1);
        let other = Machine::of(Kind::Pm, &Faults::default(), u64::MAX, log.clone(), image);
        match other.open(settings()) {
            Ok((tier, report)) => {
                damaged += usize::from(!report.problems.is_empty());
                (0..10).for_each(|number| holds(&tier, number, 39, 200));
            }
            Err(error) => assert!(matches!(error, Error::Corrupt(_)), "{error}"),
        }
    }
    assert_eq!(damaged, 1, "the older of the two named ones was used once");
    places.iter().for_each(|at| ssd[at + 9] ^= 1);
    let none = Machine::of(Kind::Pm, &Faults::default(), u64::MAX, log, ssd);
    assert!(matches!(none.open(settings()), Err(Error::Corrupt(_))));
}

#[test]
fn media_that_do_not_belong_together_are_refused() {
    let machine = machine(Kind::Pm);
    let (tier, _) = machine.open(settings()).unwrap();
    put(&tier, 1, 1, 10);
    drop(tier);
    let (log, ssd) = machine.images();
    let of = |log: &[u8], ssd: &[u8]| {
        let faults = Faults::default();
        let machine = Machine::of(Kind::Pm, &faults, u64::MAX, log.to_vec(), ssd.to_vec());
        machine.open(settings()).err()
    };
    let blank = of(&log, &vec![0; SSD_BYTES]);
    assert!(matches!(blank, Some(Error::Mismatch(_))), "{blank:?}");
    let shorter = of(&log, &ssd[..SSD_BYTES / 2]);
    assert!(matches!(shorter, Some(Error::Mismatch(_))), "{shorter:?}");
    let fewer = of(&log[..PM_BYTES - (16 << 10)], &ssd);
    assert!(matches!(fewer, Some(Error::Mismatch(_))), "{fewer:?}");
    let tiny = of(&log[..16 << 10], &ssd);
    assert!(matches!(tiny, Some(Error::Setting(_))), "{tiny:?}");
}

#[test]
fn two_stores_in_one_folder_another_version_and_a_missing_ssd_are_refused() {
    let path = scratch("refused");
    let mut how = DirectorySettings::new(&path);
    (how.pm_bytes, how.ssd_bytes) = (32 << 20, 16 << 20);
    let (store, _) = Directory::open(&how, &mut |_, _| {}).unwrap();
    store.put(b"k", b"v", meta(0)).unwrap();
    let second = Directory::open(&how, &mut |_, _| {}).err();
    assert!(matches!(second, Some(Error::Locked(_))), "{second:?}");
    store.close().unwrap();
    // The version of both superblocks, and the crcs made good.
    let file = path.join("ssd");
    let mut bytes = std::fs::read(&file).unwrap();
    let whole = bytes.clone();
    for slot in [0, 16 * 4096] {
        bytes[slot + 8] = 77;
    }
    std::fs::write(&file, &bytes).unwrap();
    let other = Directory::open(&how, &mut |_, _| {}).err();
    assert!(matches!(other, Some(Error::Version { found: 77 })), "{other:?}");
    std::fs::remove_file(&file).unwrap();
    let missing = Directory::open(&how, &mut |_, _| {}).err();
    assert!(matches!(missing, Some(Error::Mismatch(_))), "{missing:?}");
    std::fs::write(&file, &whole).unwrap();
    let (store, _) = Directory::open(&how, &mut |_, _| {}).unwrap();
    assert_eq!(store.get(b"k").unwrap().unwrap().value, b"v");
    drop(store);
    std::fs::remove_dir_all(&path).unwrap();
}

#[test]
fn files_of_every_backend_keep_a_store_that_many_threads_write() {
    for backend in [Backend::Wal, Backend::UnsafeVolatile] {
        let path = scratch(&format!("threads-{backend:?}"));
        let mut how = DirectorySettings { backend, ..DirectorySettings::new(&path) };
        (how.pm_bytes, how.ssd_bytes) = (2 << 20, 64 << 20);
        how.settings.segment_bytes = 64 << 10;
        how.settings.checkpoint_bytes = 1 << 20;
        let (store, _) = Directory::open(&how, &mut |_, _| {}).unwrap();
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let store = &store;
                scope.spawn(move || {
                    for round in 0..400 {
                        let number = thread * 1000 + round % 60;
                        let bytes = if round % 9 == 0 { 6000 } else { 300 };
                        put(store, number, round, bytes);
                        holds(store, number, round, bytes);
                    }
                });
            }
        });
        let groups = store.stats();
        assert!(groups.groups <= groups.grouped_records, "{groups:?}");
        // Half of the runs end without a checkpoint.
        if backend == Backend::Wal {
            store.close().unwrap();
        } else {
            drop(store);
        }
        let (store, report) = Directory::open(&how, &mut |_, _| {}).unwrap();
        assert_eq!((report.items, &report.problems[..]), (240, &[][..]));
        for thread in 0..4 {
            for round in 340..400 {
                let bytes = if round % 9 == 0 { 6000 } else { 300 };
                holds(&store, thread * 1000 + round % 60, round, bytes);
            }
        }
        drop(store);
        std::fs::remove_dir_all(&path).unwrap();
    }
}

#[test]
fn a_write_is_read_and_durable_after_its_group() {
    let (tier, _) = machine(Kind::Pm).open(settings()).unwrap();
    let ticket = tier.submit_put(b"k", b"v", meta(1), Some(500)).unwrap();
    assert_eq!(ticket.sequence, 500);
    assert!(!tier.is_durable(ticket).unwrap());
    assert_eq!(tier.get(b"k").unwrap(), None, "what is not durable is not served");
    tier.commit().unwrap();
    assert!(tier.is_durable(ticket).unwrap());
    assert_eq!(tier.get(b"k").unwrap().unwrap().sequence, 500);
    // An older write that comes later does not count.
    let older = tier.submit_put(b"k", b"older", meta(1), Some(499)).unwrap();
    tier.wait(older).unwrap();
    assert_eq!(tier.get(b"k").unwrap().unwrap().value, b"v");
    assert_eq!(tier.put(b"k", b"newer", meta(1)).unwrap(), 501);
}

#[test]
fn at_an_interval_writes_are_read_at_once() {
    let settings = Settings { durability: Durability::Interval, ..settings() };
    let machine = machine(Kind::Pm);
    let (tier, _) = machine.open(settings).unwrap();
    let ticket = tier.submit_put(b"k", b"v", meta(1), None).unwrap();
    assert_eq!(tier.get(b"k").unwrap().unwrap().value, b"v");
    assert!(!tier.is_durable(ticket).unwrap());
    tier.commit().unwrap();
    assert!(tier.is_durable(ticket).unwrap());
}

#[test]
fn a_large_value_that_is_being_read_stays_whole_while_it_is_replaced() {
    let machine = machine(Kind::Pm);
    let (tier, _) = machine.open(settings()).unwrap();
    let bytes = PIECE_BYTES / 2 + 17;
    put(&tier, 1, 1, bytes);
    let reader = tier.open_large(&key(1)).unwrap().expect("a large item");
    assert_eq!((reader.value_bytes(), reader.pieces()), (bytes as u64, 1));
    for version in 2..9 {
        // The replaced value's blocks would be the first to be taken again.
        if tier.put(&key(1), &value(version, bytes / 8), meta(version as u32)).is_err() {
            panic!("there is room");
        }
    }
    assert_eq!(reader.piece(0).unwrap(), value(1, bytes));
    drop(reader);
    tier.checkpoint().unwrap();
    holds(&tier, 1, 8, bytes / 8);
    assert!(tier.open_large(b"none").unwrap().is_none());
}

#[test]
fn asynchronous_reads_complete_with_their_tokens() {
    let (tier, _) = machine(Kind::Pm).open(settings()).unwrap();
    (0..20).for_each(|number| put(&tier, number, number, 3000));
    let rung = Arc::new((Mutex::new(0), Condvar::new()));
    let ring = rung.clone();
    let wake: laneway_tier::Wake = Arc::new(move || {
        *ring.0.lock().unwrap() += 1;
        ring.1.notify_all();
    });
    let reads = tier.reads(3, &wake).unwrap();
    for number in 0..20 {
        reads.submit(number, Request::Item(key(number).into()));
    }
    let large = Arc::new(tier.open_large(&key(3)).unwrap().unwrap());
    reads.submit(100, Request::Piece(large, 0));
    reads.submit(101, Request::Item(key(999).into()));
    reads.submit(102, Request::Open(key(4).into()));
    drop(rung.1.wait_while(rung.0.lock().unwrap(), |count| *count < 23).unwrap());
    let mut answers = Vec::new();
    reads.complete(&mut answers);
    answers.sort_by_key(|(token, _)| *token);
    assert_eq!(answers.len(), 23);
    for (token, answer) in answers {
        match answer {
            Answer::Item(item) if token == 101 => assert_eq!(item.unwrap(), None),
            Answer::Item(item) => assert_eq!(item.unwrap().unwrap().value, value(token, 3000)),
            Answer::Piece(piece) => assert_eq!(piece.unwrap(), value(3, 3000)),
            Answer::Open(large) => assert_eq!(large.unwrap().unwrap().value_bytes(), 3000),
        }
    }
}

#[test]
fn an_unfinished_large_value_leaves_nothing_behind() {
    let (tier, _) = machine(Kind::Pm).open(settings()).unwrap();
    let free = tier.stats().ssd_free_bytes;
    let mut draft = tier.draft_large(b"k", 100_000).unwrap();
    draft.write(&[1; 60_000]).unwrap();
    assert!(tier.stats().ssd_free_bytes < free);
    drop(draft);
    assert_eq!(tier.stats().ssd_free_bytes, free);
    assert_eq!(tier.get(b"k").unwrap(), None);
}

#[test]
fn readers_always_find_what_migration_moves_under_them() {
    let (tier, _) = machine(Kind::Pm).open(settings()).unwrap();
    (0..50).for_each(|number| put(&tier, number, 1, 200));
    // It goes on until the reader has looked often enough, however the threads' turns fall.
    const ROUNDS: u64 = 600;
    const LOOKS: u64 = 20;
    let (start, looks) = (Barrier::new(2), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let mover = scope.spawn(|| {
            start.wait();
            for round in 0..100 * ROUNDS {
                if round >= ROUNDS && looks.load(Relaxed) >= LOOKS {
                    break;
                }
                put(&tier, 1000 + round % 20, round, 800);
                tier.maintain().unwrap();
            }
        });
        start.wait();
        while !mover.is_finished() {
            (0..50).for_each(|number| holds(&tier, number, 1, 200));
            looks.fetch_add(1, Relaxed);
        }
    });
    assert!(looks.load(Relaxed) >= LOOKS);
}
