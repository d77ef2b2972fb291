//! Whoever writes, or makes room, comes before a backup: what it holds is given back when there is
//! no room without, and it costs those who make room few reads.

use crate::common::{Counting, Kind, Machine, PM_BYTES, settings, value};
use laneway_tier::backup::{Backup, Bounds, Step};
use laneway_tier::disk::sim::Faults;
use laneway_tier::dump::Stream;
use laneway_tier::pm::wal::WalRegion;
use laneway_tier::{BLOCK_BYTES, ItemMeta, Media, Settings, Standing, Tier};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

const ONE_BY_ONE: Bounds = Bounds { items_at_once: 1, ..Bounds::NONE };

fn machine(ssd_bytes: usize) -> Machine {
    let (log, ssd) = (vec![0; PM_BYTES], vec![0; ssd_bytes]);
    Machine::of(Kind::Wal, &Faults::default(), u64::MAX, log, ssd)
}

fn put(tier: &Tier, key: &str, value: &[u8]) {
    tier.put(key.as_bytes(), value, ItemMeta::default()).unwrap();
}

/// Why a backup was given up; fails if it was not.
fn given_up(backup: &mut Backup, stream: &mut Vec<u8>) -> String {
    loop {
        match backup.step(stream) {
            Ok(Step::More) => {}
            Ok(Step::Over) => panic!("it was not given up"),
            Err(error) => return error.to_string(),
        }
    }
}

/// Values of one block until none is free.
fn fill(tier: &Tier) {
    let mut number = 0;
    while 0 < tier.stats().ssd_free_bytes {
        put(tier, &format!("fills-{number}"), &value(number, 3000));
        number += 1;
    }
}

#[test]
fn a_value_that_is_being_copied_and_replaced_is_not_kept_from_a_writer() {
    let machine = machine(5 << 20);
    let (tier, _) = machine.open(settings()).unwrap();
    put(&tier, "long", &value(1, 5 << 19));
    let (mut backup, mut stream) = (tier.backup(Bounds::NONE).unwrap(), Vec::new());
    for _ in 0..2 {
        assert_eq!(backup.step(&mut stream).unwrap(), Step::More, "a piece of it");
    }
    assert!(tier.delete(b"long").unwrap());
    (0..2).for_each(|_| put(&tier, "vouches", b"small"));
    put(&tier, "as long", &value(2, 5 << 19));
    let told = given_up(&mut backup, &mut stream);
    assert!(told.contains("no room left"), "{told}");
    assert_eq!(tier.get(b"as long").unwrap().unwrap().value, value(2, 5 << 19));
}

#[test]
fn a_full_ssd_without_anything_replaced_ends_no_backup() {
    let machine = machine(2 << 20);
    let (tier, _) = machine.open(settings()).unwrap();
    fill(&tier);
    let items = tier.stats().items.items();
    let (mut backup, mut stream) = (tier.backup(Bounds::NONE).unwrap(), Vec::new());
    assert_eq!(backup.step(&mut stream).unwrap(), Step::More);
    assert!(tier.put(b"no room", &value(1, 3000), ItemMeta::default()).is_err());
    while backup.step(&mut stream).unwrap() == Step::More {}
    assert_eq!(Stream::open(&stream[..]).unwrap().verify().unwrap(), items);
}

#[test]
fn a_checkpoint_comes_before_a_backup() {
    let machine = machine(2 << 20);
    let (tier, _) = machine.open(settings()).unwrap();
    (0..100).for_each(|n| put(&tier, &format!("key-{n}"), &value(n, 9000)));
    let (mut backup, mut stream) = (tier.backup(ONE_BY_ONE).unwrap(), Vec::new());
    (0..100).for_each(|n| assert!(tier.delete(format!("key-{n}").as_bytes()).unwrap()));
    fill(&tier);
    assert_eq!(backup.step(&mut stream).unwrap(), Step::More);
    tier.checkpoint().unwrap();
    let told = given_up(&mut backup, &mut stream);
    assert!(told.contains("no room left"), "{told}");
    assert_eq!(tier.stats().checkpoints_refused, 0);
}

#[test]
fn a_compaction_that_was_asked_for_waits_for_a_backup_whose_room_it_would_need() {
    let machine = machine(2 << 20);
    // Nothing but what is asked for is ever due.
    let checkpoint_bytes = u64::MAX / 4;
    let settings = Settings { migrate_percent: 100, checkpoint_bytes, ..settings() };
    let (tier, _) = machine.open(settings).unwrap();
    (0..100).for_each(|n| put(&tier, &format!("key-{n}"), &value(n, 9000)));
    let (mut backup, mut stream) = (tier.backup(ONE_BY_ONE).unwrap(), Vec::new());
    (0..100).for_each(|n| assert!(tier.delete(format!("key-{n}").as_bytes()).unwrap()));
    fill(&tier);
    assert!(tier.begin_compaction());
    assert!(!tier.maintain().unwrap(), "it waits");
    while backup.step(&mut stream).unwrap() == Step::More {}
    assert_eq!(Stream::open(&stream[..]).unwrap().verify().unwrap(), 100);
    drop(backup);
    assert_eq!(
        (tier.stats().compaction.standing, tier.stats().checkpoints),
        (Standing::UnderWay, 0)
    );
    while tier.maintain().unwrap() {}
    assert_ne!(tier.stats().compaction.standing, Standing::UnderWay, "it has gone on");
    assert!(0 < tier.stats().checkpoints);
}

#[test]
fn room_among_sort_tables_comes_before_a_backup() {
    let machine = machine(2 << 20);
    // Nothing but merging is ever due.
    let checkpoint_bytes = u64::MAX / 4;
    let settings = Settings { migrate_percent: 100, checkpoint_bytes, ..settings() };
    let (tier, _) = machine.open(settings).unwrap();
    let small = |n: u64| format!("small-{n:03}");
    (0..120).for_each(|n| put(&tier, &small(n), &value(n, 400)));
    (0..3).for_each(|_| assert!(tier.migrate().unwrap()));
    (0..100).for_each(|n| put(&tier, &format!("key-{n}"), &value(n, 9000)));
    let (mut backup, mut stream) = (tier.backup(ONE_BY_ONE).unwrap(), Vec::new());
    (0..100).for_each(|n| assert!(tier.delete(format!("key-{n}").as_bytes()).unwrap()));
    // A third is left of each table.
    let gone = (0..120).filter(|n| n % 3 != 0);
    gone.for_each(|n| assert!(tier.delete(small(n).as_bytes()).unwrap()));
    fill(&tier);
    assert_eq!(backup.step(&mut stream).unwrap(), Step::More);
    let tables = tier.stats().tables;
    assert!(tier.maintain().unwrap());
    assert!(tier.stats().tables < tables, "they were merged");
    let told = given_up(&mut backup, &mut stream);
    assert!(told.contains("no room left"), "{told}");
    for n in (0..120).step_by(3) {
        assert_eq!(tier.get(small(n).as_bytes()).unwrap().unwrap().value, value(n, 400));
    }
}

#[test]
fn records_of_a_segment_are_saved_by_reads_of_neighbours() {
    const KEYS: u64 = 60;
    let machine = machine(2 << 20);
    let reads = Arc::new(AtomicU64::new(0));
    let log = Counting(machine.log_disk(), reads.clone());
    let media = Media { region: Arc::new(WalRegion::new(Arc::new(log))), ssd: machine.ssd.clone() };
    let (tier, _) = Tier::open(media, settings(), 5, &mut |_, _| {}).unwrap();
    let key = |n: u64| format!("key-{n:03}");
    (0..KEYS).for_each(|n| put(&tier, &key(n), &value(n, 150)));
    let mut stream = Vec::new();
    let mut backup = tier.backup(ONE_BY_ONE).unwrap();
    // All of it is held; then the segment that has it is emptied.
    (0..KEYS).for_each(|n| put(&tier, &key(n), &value(n + 500, 150)));
    let blocks = u64::from(settings().segment_bytes) / BLOCK_BYTES as u64;
    (0..100).for_each(|n| put(&tier, &format!("on-{n}"), &value(n, 900)));
    let before = reads.load(Relaxed);
    let mut emptied = 0;
    while emptied < 2 && tier.migrate().unwrap() {
        emptied += 1;
    }
    let done = reads.load(Relaxed) - before;
    assert_eq!(emptied, 2);
    assert!(done <= emptied * (blocks + 4), "{done} reads for {emptied} segments");
    while backup.step(&mut stream).unwrap() == Step::More {}
    assert_eq!(backup.lost().items, 0);
    assert_eq!(Stream::open(&stream[..]).unwrap().verify().unwrap(), KEYS);
}
