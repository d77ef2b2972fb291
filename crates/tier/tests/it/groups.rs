//! Large values that wait in memory for their group, and reading several items at once.

use crate::common::{self, Kind, Machine, PM_BYTES, SSD_BYTES, settings, value};
use laneway_tier::disk::sim::{Faults, SimDisk};
use laneway_tier::disk::{Barrier, Disk};
use laneway_tier::{Durability, Error, ItemMeta, Media, Settings, Tier};
use std::io;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, Weak};

const KINDS: [Kind; 3] = [Kind::Pm, Kind::Wal, Kind::WalBeside];

fn at_interval() -> Settings {
    Settings { durability: Durability::Interval, ..settings() }
}

fn machine(kind: Kind) -> Machine {
    Machine::new(kind, &Faults::default())
}

fn key(number: u64) -> Vec<u8> {
    format!("key-{number:05}").into_bytes()
}

fn meta(flags: u64) -> ItemMeta {
    let cas = flags << 33;
    ItemMeta { flags: flags as u32, expires_at_seconds: 7, marks: flags as u16, cas }
}

fn put(tier: &Tier, number: u64, version: u64, bytes: usize) {
    tier.put(&key(number), &value(version, bytes), meta(version)).unwrap();
}

fn holds(tier: &Tier, number: u64, version: u64, bytes: usize) {
    let item = tier.get(&key(number)).unwrap().expect("it was put");
    assert_eq!((item.value, item.meta), (value(version, bytes), meta(version)));
}

/// A disk that counts its reads, and does something once in the midst of a write.
struct Watched {
    disk: Arc<SimDisk>,
    reads: AtomicU64,
    meanwhile: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl Watched {
    fn new(disk: Arc<SimDisk>) -> Arc<Watched> {
        Arc::new(Watched { disk, reads: AtomicU64::new(0), meanwhile: Mutex::new(None) })
    }

    fn reads_of(&self, work: impl FnOnce()) -> u64 {
        let before = self.reads.load(Relaxed);
        work();
        self.reads.load(Relaxed) - before
    }
}

impl Disk for Watched {
    fn bytes(&self) -> u64 {
        self.disk.bytes()
    }

    fn read_some(&self, at: u64, into: &mut [u8]) -> io::Result<usize> {
        self.reads.fetch_add(1, Relaxed);
        self.disk.read_some(at, into)
    }

    fn write_some(&self, at: u64, from: &[u8]) -> io::Result<usize> {
        let meanwhile = self.meanwhile.lock().unwrap().take();
        if let Some(meanwhile) = meanwhile {
            meanwhile();
        }
        self.disk.write_some(at, from)
    }

    fn sync(&self, why: Barrier) -> io::Result<()> {
        self.disk.sync(why)
    }
}

fn open_watched(machine: &Machine, settings: Settings) -> (Arc<Tier>, Arc<Watched>) {
    let watched = Watched::new(machine.ssd.clone());
    let media = Media { ssd: watched.clone(), ..machine.media() };
    let (tier, report) = Tier::open(media, settings, 1, &mut |_, _| {}).unwrap();
    assert_eq!(report.problems, [""; 0]);
    (Arc::new(tier), watched)
}

#[test]
fn a_value_that_waits_is_read_replaced_deleted_and_scanned_as_any_other() {
    for kind in KINDS {
        let (tier, watched) = open_watched(&machine(kind), at_interval());
        let reads = watched.reads_of(|| {
            for number in 0..20 {
                put(&tier, number, number, 5000);
            }
            put(&tier, 3, 33, 6000);
            assert!(tier.delete(&key(4)).unwrap());
            holds(&tier, 3, 33, 6000);
            assert_eq!(tier.get(&key(4)).unwrap(), None);
            let scanned = tier.scan(b"", None, 100);
            assert_eq!(scanned.len(), 19);
            assert!(scanned.iter().all(|(_, item)| item.is_ok()));
            let reader = tier.open_large(&key(5)).unwrap().unwrap();
            assert_eq!((reader.piece(0).unwrap(), reader.meta()), (value(5, 5000), meta(5)));
        });
        assert_eq!(reads, 0, "all of it is in memory");
        let stats = tier.stats();
        assert_eq!(stats.waiting_bytes, 21 * 2 * 4096, "what was replaced is written, too");
        tier.commit().unwrap();
        let stats = tier.stats();
        assert_eq!((stats.waiting_bytes, stats.waiting_bytes_most), (0, 21 * 2 * 4096));
        holds(&tier, 3, 33, 6000);
        holds(&tier, 19, 19, 5000);
        assert_eq!(tier.scan(b"", None, 100).len(), 19);
    }
}

#[test]
fn blocks_that_one_of_many_small_writes_replaced_are_free_behind_their_group() {
    for kind in KINDS {
        let (tier, _) = machine(kind).open(at_interval()).unwrap();
        let free = || tier.stats().ssd_free_bytes;
        let before = free();
        put(&tier, 1, 1, 5000);
        tier.commit().unwrap();
        assert_eq!(before - free(), 2 * 4096);
        // The others have nothing left to do, and wait as one.
        (0..3).for_each(|number| put(&tier, number, 2, 10));
        for number in 3..6 {
            tier.commit().unwrap();
            put(&tier, number, 2, 10); // a later group vouches for that
        }
        tier.commit().unwrap();
        assert_eq!(free(), before);
        (0..6).for_each(|number| holds(&tier, number, 2, 10));
    }
}

#[test]
fn blocks_of_what_was_deleted_in_no_group_yet_are_free_for_a_value_that_needs_them() {
    for kind in KINDS {
        let (tier, _) = machine(kind).open(at_interval()).unwrap();
        let is_refused =
            |number: &u64| tier.put(&key(*number), &value(*number, 3000), meta(*number)).is_err();
        let held = (0..).find(is_refused).expect("an SSD has an end");
        tier.commit().unwrap();
        assert!(tier.delete(&key(0)).unwrap(), "{kind:?}");
        put(&tier, held, held, 3000);
        holds(&tier, held, held, 3000);
    }
}

#[test]
fn a_commit_is_urgent_once_a_megabyte_of_the_log_is_in_no_group() {
    const SEGMENT_BYTES: u32 = 2 << 20;
    let settings = Settings { segment_bytes: SEGMENT_BYTES, ..at_interval() };
    for kind in KINDS {
        let (log, ssd) = (vec![0; 10 * SEGMENT_BYTES as usize], vec![0; 16 << 20]);
        let machine = Machine::of(kind, &Faults::default(), u64::MAX, log, ssd);
        let (tier, _) = machine.open(settings).unwrap();
        let puts = (0..2000).take_while(|&number| {
            put(&tier, number, number, 900);
            !tier.is_commit_urgent()
        });
        let puts = puts.count();
        assert!((1000..1200).contains(&puts), "{puts} records of about a kilobyte");
        tier.commit().unwrap();
        assert!(!tier.is_commit_urgent());
    }
}

#[test]
fn memory_for_what_waits_is_bounded_and_what_finds_no_room_is_written_at_once() {
    const BOUND: u64 = 8 << 20;
    const BYTES: usize = 60_000;
    // Segments that hold all records: a new one would begin with what was before it made durable.
    let settings = Settings { segment_bytes: 64 << 10, ..at_interval() };
    for kind in KINDS {
        let (log, ssd) = (vec![0; 4 * PM_BYTES], vec![0; 16 << 20]);
        let machine = Machine::of(kind, &Faults::default(), u64::MAX, log, ssd);
        let (tier, _) = machine.open(settings).unwrap();
        let numbers = BOUND / BYTES as u64 + 50;
        for number in 0..numbers {
            put(&tier, number, number, BYTES);
            assert!(tier.stats().waiting_bytes <= BOUND);
        }
        let room = (BYTES as u64).next_multiple_of(4096);
        assert_eq!(tier.stats().waiting_bytes_most, BOUND - BOUND % room);
        (0..numbers).for_each(|number| holds(&tier, number, number, BYTES));
        tier.commit().unwrap();
        assert_eq!(tier.stats().waiting_bytes, 0);
        drop(tier);
        let crashed = machine.crashed(1, &Faults::default(), u64::MAX);
        let (tier, report) = crashed.open(settings).unwrap();
        assert_eq!((report.items, &report.problems[..]), (numbers, &[][..]));
        (0..numbers).for_each(|number| holds(&tier, number, number, BYTES));
    }
}

#[test]
fn a_group_whose_values_cannot_be_written_or_synced_refuses_what_comes_later_and_reads_go_on() {
    let faults = [
        Faults { write_error_one_in: 1, ..Faults::default() },
        Faults { sync_error_one_in: 1, ..Faults::default() },
        Faults { space_blocks: 1, ..Faults::default() },
    ];
    for (kind, fault) in KINDS.into_iter().flat_map(|kind| faults.iter().map(move |f| (kind, f))) {
        let machine = machine(kind);
        let (tier, _) = machine.open(settings()).unwrap();
        put(&tier, 1, 1, 5000);
        machine.ssd.set_faults(fault.clone());
        let first = tier.put(&key(1), &value(2, 5000), meta(2)).unwrap_err();
        assert!(matches!(first, Error::Io { .. }), "{first}");
        machine.ssd.set_faults(Faults::default());
        let later = tier.put(&key(2), b"refused", meta(0)).unwrap_err();
        assert!(matches!(later, Error::Poisoned(_)), "{later}");
        assert!(tier.stats().poisoned);
        holds(&tier, 1, 1, 5000);
        drop(tier);
        // What was not acknowledged is there whole or not at all.
        let (tier, report) = machine.open(settings()).unwrap();
        assert_eq!(report.problems, [""; 0]);
        let item = tier.get(&key(1)).unwrap().unwrap();
        assert!([value(1, 5000), value(2, 5000)].contains(&item.value));
        put(&tier, 1, 3, 5000);
        holds(&tier, 1, 3, 5000);
    }
}

#[test]
fn at_an_interval_a_group_that_failed_is_still_read_from_memory() {
    let machine = machine(Kind::Wal);
    let (tier, _) = machine.open(at_interval()).unwrap();
    put(&tier, 1, 1, 5000);
    machine.ssd.set_faults(Faults { write_error_one_in: 1, ..Faults::default() });
    assert!(matches!(tier.commit(), Err(Error::Io { .. })));
    holds(&tier, 1, 1, 5000);
    assert!(matches!(tier.put(&key(1), b"later", meta(0)), Err(Error::Poisoned(_))));
    assert!(matches!(tier.commit(), Err(Error::Poisoned(_))));
    holds(&tier, 1, 1, 5000);
}

#[test]
fn closing_writes_what_waits() {
    for kind in KINDS {
        let machine = machine(kind);
        let (tier, _) = machine.open(at_interval()).unwrap();
        (0..10).for_each(|number| put(&tier, number, number, 4000));
        tier.close().unwrap();
        let crashed = machine.crashed(3, &Faults::default(), u64::MAX);
        let (tier, report) = crashed.open(settings()).unwrap();
        assert_eq!((report.items, &report.problems[..]), (10, &[][..]));
        (0..10).for_each(|number| holds(&tier, number, number, 4000));
    }
}

#[test]
fn a_record_whose_value_waited_migrates_and_leads_to_it() {
    for kind in KINDS {
        let machine = machine(kind);
        let (tier, _) = machine.open(at_interval()).unwrap();
        (0..10).for_each(|number| put(&tier, number, number, 4000));
        let mut others = 100..500;
        while tier.stats().migrated_records + tier.stats().kept_records < 30 {
            // Segments fill, and what is in the first ones moves.
            put(&tier, others.next().expect("it migrates"), 1, 900);
            tier.maintain().unwrap();
        }
        (0..10).for_each(|number| holds(&tier, number, number, 4000));
        tier.commit().unwrap();
        drop(tier);
        let crashed = machine.crashed(5, &Faults::default(), u64::MAX);
        let (tier, _) = crashed.open(settings()).unwrap();
        (0..10).for_each(|number| holds(&tier, number, number, 4000));
    }
}

#[test]
fn what_many_threads_were_told_is_durable_is() {
    const THREADS: u64 = 8;
    const ROUNDS: u64 = 40;
    for kind in KINDS {
        let machine = machine(kind);
        let (tier, _) = machine.open(settings()).unwrap();
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let tier = &tier;
                scope.spawn(move || {
                    for round in 0..ROUNDS {
                        let bytes = [200, 1500, 5000][(thread + round) as usize % 3];
                        put(tier, thread, round, bytes);
                        if round % 8 == 0 {
                            tier.maintain().unwrap();
                        }
                    }
                });
            }
        });
        let stats = tier.stats();
        assert!(stats.groups <= stats.grouped_records, "{stats:?}");
        drop(tier);
        for seed in 0..4 {
            let crashed = machine.crashed(seed, &Faults::default(), u64::MAX);
            let (tier, report) = crashed.open(settings()).unwrap();
            assert_eq!((report.items, &report.problems[..]), (THREADS, &[][..]));
            for thread in 0..THREADS {
                let bytes = [200, 1500, 5000][(thread + ROUNDS - 1) as usize % 3];
                holds(&tier, thread, ROUNDS - 1, bytes);
            }
        }
    }
}

#[test]
fn many_threads_hear_of_a_group_that_failed() {
    let machine = machine(Kind::Wal);
    let (tier, _) = machine.open(settings()).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let tier = &tier;
            scope.spawn(move || {
                // Every one of them ends: nobody sleeps behind a group that never comes.
                while tier.put(&key(thread), &value(1, 2000), meta(1)).is_ok() {}
            });
        }
        machine.set_log_faults(Faults { sync_error_one_in: 20, ..Faults::default() });
    });
    assert!(tier.stats().poisoned);
}

#[test]
fn a_large_value_is_one_read_and_one_more_only_after_a_restart_from_a_checkpoint() {
    let machine = machine(Kind::Pm);
    let (tier, watched) = open_watched(&machine, settings());
    put(&tier, 1, 1, 5000);
    put(&tier, 2, 2, 200);
    assert_eq!(watched.reads_of(|| holds(&tier, 1, 1, 5000)), 1);
    assert_eq!(watched.reads_of(|| assert!(tier.open_large(&key(1)).unwrap().is_some())), 0);
    while tier.stats().items.small_on_ssd == 0 {
        put(&tier, 3, 3, 900);
        tier.migrate().unwrap();
    }
    tier.checkpoint().unwrap();
    drop((tier, watched));
    let (tier, watched) = open_watched(&machine, settings());
    let first = watched.reads_of(|| holds(&tier, 1, 1, 5000));
    let then = watched.reads_of(|| holds(&tier, 1, 1, 5000));
    // Its record went to a sort table, or stayed in the log, which is memory here.
    assert!((1..=2).contains(&first) && then == 1, "{first} reads, then {then}");
}

#[test]
fn a_scan_reads_what_lies_together_in_one_read() {
    let machine = machine(Kind::Pm);
    let (tier, watched) = open_watched(&machine, at_interval());
    (0..30).for_each(|number| put(&tier, number, number, 4096));
    tier.commit().unwrap();
    let reads = watched.reads_of(|| {
        let scanned = tier.scan(b"", None, 30);
        for (number, (name, item)) in (0..).zip(scanned) {
            assert_eq!((name, item.unwrap().value), (key(number), value(number, 4096)));
        }
    });
    assert!(reads <= 2, "{reads} reads of 30 neighbours");
}

#[test]
fn a_list_of_keys_is_read_as_each_of_them_is() {
    for kind in KINDS {
        let machine = machine(kind);
        let (mut tier, _) = machine.open(settings()).unwrap();
        for number in 0..200 {
            put(&tier, number, number, if number % 3 == 0 { 3000 } else { 150 });
            tier.maintain().unwrap();
        }
        for _ in 0..2 {
            let numbers = [5, 3, 999, 3, 0, 199, 150, 42, 77];
            let names: Vec<Vec<u8>> = numbers.iter().map(|&number| key(number)).collect();
            let names: Vec<&[u8]> = names.iter().map(Vec::as_slice).collect();
            let read = tier.get_many(&names);
            for (name, item) in names.iter().zip(read) {
                assert_eq!(item.unwrap(), tier.get(name).unwrap());
            }
            let range = tier.range(&key(10), Some(&key(20)), 100);
            assert_eq!(range.len(), 10);
            for found in &range {
                assert_eq!(Some(found.look()), tier.look(found.key()));
            }
            tier.checkpoint().unwrap();
            drop(tier);
            tier = machine.open(settings()).unwrap().0;
        }
        assert!(tier.get_many(&[]).is_empty());
    }
}

#[test]
fn of_several_items_each_fails_by_itself() {
    let machine = machine(Kind::Pm);
    let (tier, _) = machine.open(settings()).unwrap();
    (0..6).for_each(|number| put(&tier, number, number, 3000));
    put(&tier, 6, 6, 100);
    machine.ssd.set_faults(Faults { read_error_one_in: 1, ..Faults::default() });
    let failed = tier.scan(b"", None, 10);
    assert_eq!(failed.len(), 7);
    assert!(failed[..6].iter().all(|(_, item)| matches!(item, Err(Error::Io { .. }))));
    assert_eq!(failed[6].1.as_ref().unwrap().value, value(6, 100));
    machine.ssd.set_faults(Faults::default());
    drop(tier);
    let (log, mut ssd) = machine.images();
    let wanted = value(2, 3000);
    let at = ssd.windows(wanted.len()).position(|window| window == wanted).unwrap();
    ssd[at + 100] ^= 1;
    let flipped = Machine::of(Kind::Pm, &Faults::default(), u64::MAX, log, ssd);
    let (tier, _) = flipped.open(settings()).unwrap();
    let names: Vec<Vec<u8>> = (0..7).map(key).collect();
    let read = tier.get_many(&names.iter().map(Vec::as_slice).collect::<Vec<_>>());
    for (number, item) in read.into_iter().enumerate() {
        match number {
            2 => assert!(matches!(item, Err(Error::Lost { key: name, .. }) if name == names[2])),
            6 => assert_eq!(item.unwrap().unwrap().value, value(6, 100)),
            _ => assert_eq!(item.unwrap().unwrap().value, value(number as u64, 3000)),
        }
    }
}

/// What a range found is shown as it was or, where that is not there any more, as it is now; what
/// is to be done meanwhile is done once, however much is read.
#[test]
fn what_a_range_found_is_read_as_it_is_now_if_it_has_changed() {
    for kind in KINDS {
        let machine = machine(kind);
        let (tier, _) = machine.open(settings()).unwrap();
        for number in 0..30 {
            put(&tier, number, number, if number % 2 == 0 { 3000 } else { 150 });
        }
        let found = tier.range(b"", None, 100);
        assert_eq!(found.len(), 30);
        for number in [4, 6] {
            put(&tier, number, 100 + number, 3000);
        }
        put(&tier, 8, 108, 90); // its large value's blocks are free, and used again by
        put(&tier, 50, 50, 3000);
        assert!(tier.delete(&key(10)).unwrap());
        for some in [&[][..], &[12], &[10], &[4, 11], &(0..30).collect::<Vec<usize>>()] {
            let wanted: Vec<_> = some.iter().map(|&number| &found[number]).collect();
            let (mut begun, mut read) = (0, Vec::new());
            tier.read_found(
                &wanted,
                || begun += 1,
                |nth, shown| {
                    read.push((
                        some[nth],
                        shown.unwrap().map(|shown| (shown.value.to_vec(), shown.meta)),
                    ));
                },
            );
            read.sort_unstable_by_key(|&(number, _)| number);
            assert_eq!(begun, 1);
            let now = |&number: &usize| {
                let version = match number as u64 {
                    changed @ (4 | 6 | 8) => 100 + changed,
                    same => same,
                };
                let bytes = match number {
                    8 => 90,
                    even if even % 2 == 0 => 3000,
                    _ => 150,
                };
                (number, (number != 10).then(|| (value(version, bytes), meta(version))))
            };
            assert_eq!(read, some.iter().map(now).collect::<Vec<_>>());
        }
        // A list of keys is what they hold now in any case.
        let names: Vec<Vec<u8>> = (0..30).map(key).collect();
        let read = tier.get_many(&names.iter().map(Vec::as_slice).collect::<Vec<_>>());
        for (name, item) in names.iter().zip(read) {
            assert_eq!(item.unwrap(), tier.get(name).unwrap());
        }
    }
}

/// After a restart from a checkpoint what is kept with a large value is only in its record, in the
/// log or behind the value in a sort table: both are read in one round, and no value is read twice.
#[test]
fn a_scan_reads_large_values_and_their_headers_in_one_round() {
    for (kind, is_moved) in KINDS.into_iter().flat_map(|kind| [(kind, false), (kind, true)]) {
        let machine = machine(kind);
        let (tier, _) = machine.open(settings()).unwrap();
        (0..30).for_each(|number| put(&tier, number, number, 4096));
        let mut rounds = 0;
        while is_moved && tier.stats().items.small_on_ssd < 10 {
            put(&tier, 40 + rounds % 20, rounds, 900);
            tier.migrate().unwrap();
            rounds += 1;
        }
        tier.checkpoint().unwrap();
        drop(tier);
        let (tier, watched) = open_watched(&machine, settings());
        let reads = watched.reads_of(|| {
            let scanned = tier.scan(b"", Some(&key(30)), 30);
            assert_eq!(scanned.len(), 30);
            for (number, (_, item)) in (0..).zip(scanned) {
                let item = item.unwrap();
                assert_eq!((item.value, item.meta), (value(number, 4096), meta(number)));
            }
        });
        assert!(reads <= 4, "{reads} reads of 30 neighbours, their records moved: {is_moved}");
    }
}

/// At an interval the index shows what is not durable yet. A checkpoint that was taken while such a
/// write came must not lead to it when its record was lost with the power.
#[test]
fn a_checkpoint_holds_nothing_that_the_log_may_lose() {
    const NUMBERS: u64 = 1500;
    let long = |number: u64| [key(number), vec![b'k'; 1000]].concat();
    for kind in KINDS {
        let log = vec![0; 40 * common::SEGMENT_BYTES as usize];
        let machine = Machine::of(kind, &Faults::default(), u64::MAX, log, vec![0; 6 * SSD_BYTES]);
        let settings = Settings { segment_bytes: 64 << 10, ..at_interval() };
        let (tier, watched) = open_watched(&machine, settings);
        for number in 0..NUMBERS {
            tier.put(&long(number), b"old", meta(1)).unwrap();
            tier.maintain().unwrap();
        }
        tier.commit().unwrap();
        let last = long(NUMBERS - 1);
        let came = Arc::new(AtomicU64::new(0));
        let (writer, name, note): (Weak<Tier>, _, _) =
            (Arc::downgrade(&tier), last.clone(), came.clone());
        // Entries take more than a megabyte, so that some are written before the last is visited.
        *watched.meanwhile.lock().unwrap() = Some(Box::new(move || {
            let tier = writer.upgrade().unwrap();
            tier.submit_put(&name, &value(2, 3000), meta(2), None).unwrap();
            note.store(1, Relaxed);
        }));
        tier.checkpoint().unwrap();
        assert_eq!(came.load(Relaxed), 1);
        drop(tier);
        for seed in 0..20 {
            let crashed = machine.crashed(seed, &Faults::default(), u64::MAX);
            let (tier, report) = crashed.open(settings).unwrap();
            assert_eq!(report.problems, [""; 0]);
            let found = tier.get(&last).unwrap().unwrap().value;
            assert!(found == b"old" || found == value(2, 3000), "neither the one nor the other");
        }
    }
}
