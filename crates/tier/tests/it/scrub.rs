//! A pass over all that a store has in use: by a check, in the order of the media, and beside
//! whoever writes.

use crate::common::{Kind, Machine, SEGMENT_BYTES, settings};
use laneway_tier::disk::sim::{Faults, Random, SimDisk};
use laneway_tier::disk::{Barrier, Disk};
use laneway_tier::pm::wal::WalRegion;
use laneway_tier::scrub::{Bounds, Damaged, Scrub, Step};
use laneway_tier::{BLOCK_BYTES, Error, ItemMeta, Media, PIECE_BYTES, Tier, fsck};
use std::collections::BTreeSet;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

const SSD_BYTES: usize = 8 << 20;
const LOG_BYTES: usize = 40 * SEGMENT_BYTES as usize;
/// A value of more than a piece, in many extents.
const LONG_BYTES: usize = PIECE_BYTES + 150_001;

/// A disk that notes what is read of it.
struct Noted {
    disk: Arc<SimDisk>,
    reads: Mutex<Vec<(u64, u64)>>,
}

impl Noted {
    fn of(disk: &Arc<SimDisk>) -> Arc<Noted> {
        Arc::new(Noted { disk: disk.clone(), reads: Mutex::default() })
    }

    fn take(&self) -> Vec<(u64, u64)> {
        std::mem::take(&mut self.reads.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Disk for Noted {
    fn bytes(&self) -> u64 {
        self.disk.bytes()
    }

    fn read_some(&self, at: u64, into: &mut [u8]) -> io::Result<usize> {
        let mut reads = self.reads.lock().unwrap_or_else(PoisonError::into_inner);
        reads.push((at, at + into.len() as u64));
        self.disk.read_some(at, into)
    }

    fn write_some(&self, at: u64, from: &[u8]) -> io::Result<usize> {
        self.disk.write_some(at, from)
    }

    fn sync(&self, why: Barrier) -> io::Result<()> {
        self.disk.sync(why)
    }
}

fn machine() -> Machine {
    let (log, ssd) = (vec![0; LOG_BYTES], vec![0; SSD_BYTES]);
    Machine::of(Kind::Wal, &Faults::default(), u64::MAX, log, ssd)
}

/// Bytes that lie nowhere else.
fn value(version: u64, bytes: usize) -> Vec<u8> {
    let mut random = Random::new(version);
    let words = (0..bytes.div_ceil(8)).flat_map(|_| random.number().to_le_bytes());
    words.take(bytes).collect()
}

fn key(number: u64) -> Vec<u8> {
    format!("key-{number:05}").into_bytes()
}

/// Small items in the log and in sort tables, values of some blocks with gaps between them, and a
/// long one in those gaps. The numbers of the items, and how long each is.
fn fill(tier: &Tier) -> Vec<(u64, usize)> {
    let put = |number, bytes| tier.put(&key(number), &value(number, bytes), ItemMeta::default());
    let maintain = || while tier.maintain().unwrap() {};
    let mut items = Vec::new();
    // In an order that is neither that of the keys nor of the places.
    let mut numbers: Vec<u64> = (0..600).collect();
    let mut random = Random::new(1);
    for at in (1..numbers.len()).rev() {
        numbers.swap(at, random.below(at as u64 + 1) as usize);
    }
    for number in numbers {
        put(number, 200).unwrap();
        items.push((number, 200));
        maintain();
    }
    while tier.migrate().unwrap() {}
    let mut large = 1000;
    while put(large, 4 * BLOCK_BYTES - 5).is_ok() {
        large += 1;
        maintain();
    }
    for number in 1000..large {
        match number % 2 {
            0 => drop(tier.delete(&key(number)).unwrap()),
            _ => items.push((number, 4 * BLOCK_BYTES - 5)),
        }
    }
    tier.checkpoint().unwrap();
    put(5000, LONG_BYTES).unwrap();
    items.push((5000, LONG_BYTES));
    put(5001, 100).unwrap();
    items.push((5001, 100));
    // It vouches for what is before it: damage there is no torn tail.
    tier.checkpoint().unwrap();
    put(5002, 100).unwrap();
    items.push((5002, 100));
    items
}

/// Flips a bit of each place at which these bytes lie. How many there were.
fn flip(images: &mut [Vec<u8>; 2], bytes: &[u8]) -> usize {
    let mut flipped = 0;
    for image in images {
        let found = image.windows(bytes.len()).enumerate().filter(|(_, window)| *window == bytes);
        let found: Vec<usize> = found.map(|(at, _)| at).collect();
        flipped += found.len();
        found.into_iter().for_each(|at| image[at + bytes.len() / 2] ^= 4);
    }
    flipped
}

/// A machine with what this one holds, a bit of these bytes flipped.
fn damaged(machine: &Machine, wanted: &[Vec<u8>]) -> Machine {
    let mut images: [Vec<u8>; 2] = machine.images().into();
    for bytes in wanted {
        assert!(0 < flip(&mut images, bytes), "it lies somewhere");
    }
    let [log, ssd] = images;
    Machine::of(Kind::Wal, &Faults::default(), u64::MAX, log, ssd)
}

#[test]
fn a_check_reads_each_medium_from_its_front_to_its_end_and_nothing_twice() {
    let machine = machine();
    let (tier, _) = machine.open(settings()).unwrap();
    let items = fill(&tier);
    let free_bytes = tier.stats().ssd_free_bytes;
    assert!(10 < tier.stats().tables, "many items are in sort tables");
    drop(tier);
    let (log, ssd) = (Noted::of(&machine.log_disk()), Noted::of(&machine.ssd));
    let region = Arc::new(WalRegion::new(log.clone()));
    let media = Media { region, ssd: ssd.clone() };
    let mut told = Vec::new();
    let findings = fsck::check_telling(media, settings(), &mut |stage, done, total| {
        if (stage, total) == (fsck::Stage::Reading, 0) {
            // What a start reads.
            log.take();
            ssd.take();
        }
        told.push((stage, done, total));
    })
    .unwrap();
    assert!(findings.is_sound(), "{findings:?}");
    assert_eq!(findings.items, items.len() as u64);
    let ssd_bytes = SSD_BYTES as u64 - free_bytes;
    for (reads, in_use) in [(log.take(), LOG_BYTES as u64), (ssd.take(), ssd_bytes)] {
        // Two reads may share the block in which the one's last record ends.
        let block = BLOCK_BYTES as u64;
        let goes_back = reads.windows(2).find(|two| two[1].0 + block < two[0].1);
        assert_eq!(goes_back, None, "{reads:?}");
        let bytes: u64 = reads.iter().map(|(from, to)| to - from).sum();
        let most = in_use + in_use / 4 + reads.len() as u64 * block;
        assert!(bytes <= most, "{bytes} are read, and {in_use} are in use");
        assert!(reads.len() < items.len() / 2, "{} reads", reads.len());
    }
    // It tells how far it is, up to all of it.
    let (stage, done, total) = *told.last().unwrap();
    assert_eq!((stage, done), (fsck::Stage::Reading, total));
    assert!(1 << 20 < total && told.is_sorted_by_key(|(stage, done, _)| (*stage as u8, *done)));
}

#[test]
fn damage_of_each_kind_is_found_and_named_and_the_rest_is_read() {
    let machine = machine();
    let (tier, _) = machine.open(settings()).unwrap();
    let items = fill(&tier);
    drop(tier);
    let value_of = |number| {
        let (_, bytes) = items.iter().find(|(item, _)| *item == number).unwrap();
        value(number, *bytes)
    };
    let small = |number| [key(number), value_of(number)].concat();
    // The second piece of the long one, in an extent that is not its first.
    let late = value_of(5000)[PIECE_BYTES + 22 * BLOCK_BYTES + 100..][..64].to_vec();
    let wanted = [small(3), small(599), small(5001), value_of(1001), late];
    let damaged = damaged(&machine, &wanted);
    let before = damaged.images();
    let found = fsck::check(damaged.media(), settings()).unwrap();
    let numbers = [3, 599, 1001, 5000, 5001];
    let names: Vec<Vec<u8>> = found.lost.iter().map(|(key, _)| key.clone()).collect();
    assert_eq!(names, numbers.map(key));
    assert_eq!(found.items, (items.len() - numbers.len()) as u64);
    assert!(found.lost[3].1.contains("piece 1 of 2"), "{:?}", found.lost);
    assert!(damaged.images() == before, "a check writes nothing");
    assert_eq!(fsck::repair(damaged.media(), settings()).unwrap().lost, found.lost);
    let after = fsck::check(damaged.media(), settings()).unwrap();
    assert!(after.is_sound() && after.items == found.items, "{after:?}");
}

#[test]
fn a_block_that_a_device_does_not_give_costs_what_is_in_it_and_a_repair_drops_nothing() {
    let machine = machine();
    let (tier, _) = machine.open(settings()).unwrap();
    let items = fill(&tier);
    drop(tier);
    let (_, ssd) = machine.images();
    let value = value(1001, 4 * BLOCK_BYTES - 5);
    let block = ssd.chunks(BLOCK_BYTES).position(|block| value.starts_with(block)).unwrap() as u64;
    let unreadable = BTreeSet::from([block + 2]);
    machine.ssd.set_faults(Faults { unreadable, ..Faults::default() });
    let found = fsck::check(machine.media(), settings()).unwrap();
    assert_eq!((found.lost.len(), found.refused), (1, 1), "{found:?}");
    assert_eq!((&found.lost[0].0, found.items), (&key(1001), items.len() as u64 - 1));
    let refused = fsck::repair(machine.media(), settings()).unwrap_err();
    assert!(matches!(refused, Error::Unavailable(_)), "{refused}");
    assert!(refused.to_string().contains("nothing was dropped"), "{refused}");
    machine.ssd.set_faults(Faults::default());
    assert!(fsck::check(machine.media(), settings()).unwrap().is_sound());
}

#[test]
fn a_block_of_many_items_that_a_device_does_not_give_is_not_asked_for_again_and_again() {
    let machine = machine();
    let (tier, _) = machine.open(settings()).unwrap();
    let items = fill(&tier);
    drop(tier);
    let (_, image) = machine.images();
    let record = [key(17), value(17, 200)].concat();
    let at = image.windows(record.len()).position(|bytes| bytes == record).expect("in a table");
    let block = (at / BLOCK_BYTES) as u64;
    let unreadable = BTreeSet::from([block]);
    machine.ssd.set_faults(Faults { unreadable, ..Faults::default() });
    let ssd = Noted::of(&machine.ssd);
    let media = Media { ssd: ssd.clone(), ..machine.media() };
    let found = fsck::check(media, settings()).unwrap();
    assert!(10 < found.refused && found.refused == found.lost.len() as u64, "{found:?}");
    assert_eq!(found.items + found.refused, items.len() as u64);
    assert!(found.lost.iter().any(|(it, _)| *it == key(17)), "{found:?}");
    let place = block * BLOCK_BYTES as u64;
    let asked = ssd.take().into_iter().filter(|(from, to)| (*from..*to).contains(&place));
    // With its neighbours, for the record that ends in it, and for the first that begins there.
    assert!(asked.count() <= 3, "it is asked for each item in it");
}

/// Records that lie far apart, so that all between them would be read with them.
#[test]
fn what_lies_between_counts_as_what_is_read() {
    let machine = machine();
    let (tier, _) = machine.open(settings()).unwrap();
    // Of each round one stays: there is some 10 KiB of what was replaced between those.
    for round in 0..30 {
        tier.put(&key(round), &value(round, 100), ItemMeta::default()).unwrap();
        for other in 0..10 {
            tier.put(b"other", &value(1000 * round + other, 900), ItemMeta::default()).unwrap();
        }
    }
    let most = 24 << 10;
    let mut scrub = tier.scrub(Bounds { step_bytes: most, ..Bounds::BESIDE });
    let (mut steps, mut all) = (0, 0);
    loop {
        match scrub.step(&mut |damaged| panic!("{damaged:?}")) {
            Step::Walked => {}
            Step::Read { bytes, cost } => {
                assert!(bytes <= most + 2 * BLOCK_BYTES as u64, "{bytes} in one step");
                assert!(bytes <= cost + 2 * BLOCK_BYTES as u64, "{bytes} and not {cost}");
                (steps, all) = (steps + 1, all + bytes);
            }
            Step::Over => break,
        }
    }
    assert!(5 < steps && 100 << 10 < all, "{all} bytes in {steps} steps");
}

/// Also of a store that has not made a checkpoint yet, whose older superblock is its first: a start
/// with that alone would take it for one whose making did not end.
#[test]
fn a_superblock_that_rots_while_a_store_is_used_is_told() {
    for (has_checkpoint, slot) in [(false, 0), (false, 1), (true, 0), (true, 1)] {
        let machine = machine();
        let (tier, _) = machine.open(settings()).unwrap();
        tier.put(&key(1), &value(1, 100), ItemMeta::default()).unwrap();
        if has_checkpoint {
            tier.checkpoint().unwrap();
        }
        let at = slot * 16 * BLOCK_BYTES as u64 + 40;
        let damaged = || {
            let (_, found) = pass(&tier, Bounds::BESIDE, || {});
            found.iter().map(|damaged| (damaged.key.is_some(), damaged.why.clone())).collect()
        };
        let before: Vec<(bool, String)> = damaged();
        assert_eq!(before, []);
        machine.ssd.flip_bit(at, 0);
        let found: Vec<(bool, String)> = damaged();
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(!found[0].0 && found[0].1.contains("superblock"), "{found:?}");
        machine.ssd.flip_bit(at, 0);
        assert_eq!(damaged(), before);
    }
}

#[test]
fn the_checkpoint_before_the_newest_is_looked_at() {
    let machine = machine();
    let (tier, _) = machine.open(settings()).unwrap();
    fill(&tier);
    drop(tier);
    let (log, mut ssd) = machine.images();
    let magic = b"LCHKPNT1";
    let fronts: Vec<usize> =
        (0..SSD_BYTES).step_by(BLOCK_BYTES).filter(|at| ssd[*at..].starts_with(magic)).collect();
    assert!(2 <= fronts.len(), "two are named, and older ones may lie there");
    // The position is behind the magic, and the highest is the newest.
    let position = |at: usize| {
        let number = |at: usize| u64::from_le_bytes(ssd[at..at + 8].try_into().unwrap());
        (number(at + 8), number(at + 16) as u32)
    };
    let mut by_age = fronts.clone();
    by_age.sort_by_key(|at| std::cmp::Reverse(position(*at)));
    ssd[by_age[1] + 100] ^= 1;
    let machine = Machine::of(Kind::Wal, &Faults::default(), u64::MAX, log, ssd);
    let found = fsck::check(machine.media(), settings()).unwrap();
    let problems = ["checkpoint 1 (0 is the newest): it is damaged (crc)"];
    assert_eq!(
        (&found.report.problems[..], found.lost.len()),
        (&problems.map(String::from)[..], 0)
    );
    fsck::repair(machine.media(), settings()).unwrap();
    assert!(fsck::check(machine.media(), settings()).unwrap().is_sound());
}

/// A pass in small steps, with something done between them.
fn pass(tier: &Tier, bounds: Bounds, mut between: impl FnMut()) -> (Scrub, Vec<Damaged>) {
    let (mut scrub, mut found) = (tier.scrub(bounds), Vec::new());
    while scrub.step(&mut |damaged| found.push(damaged)) != Step::Over {
        between();
    }
    (scrub, found)
}

#[test]
fn a_pass_beside_writes_migration_and_deletions_takes_nothing_for_damage() {
    for places in [1, 7, 50, 10_000] {
        let machine = machine();
        let (tier, _) = machine.open(settings()).unwrap();
        for number in 0..200 {
            let bytes = if number % 5 == 0 { 9000 } else { 250 };
            tier.put(&key(number), &value(number, bytes), ItemMeta::default()).unwrap();
        }
        let mut random = Random::new(places as u64);
        let bounds = Bounds { step_bytes: 1, places, share: u64::MAX };
        let (mut steps, mut version) = (0, 1000);
        let (scrub, found) = pass(&tier, bounds, || {
            steps += 1;
            version += 1;
            let number = random.below(200);
            let bytes = [100, 5000, 40_000][random.below(3) as usize];
            match random.below(4) {
                0 => drop(tier.delete(&key(number)).unwrap()),
                1 => drop(tier.migrate().unwrap()),
                _ => {
                    tier.put(&key(number), &value(version, bytes), ItemMeta::default()).unwrap();
                }
            }
            while tier.maintain().unwrap() {}
        });
        assert_eq!(found, [], "windows of {places}");
        assert!(200 < steps && scrub.far().items == 200, "{steps} steps, {:?}", scrub.far());
    }
}

#[test]
fn a_whole_pass_finds_what_was_damaged_before_it_and_tells_it_once() {
    let machine = machine();
    let (tier, _) = machine.open(settings()).unwrap();
    let items = fill(&tier);
    drop(tier);
    let long = value(5000, LONG_BYTES);
    let in_piece = |from: usize| long[from + 2 * BLOCK_BYTES + 100..][..64].to_vec();
    let small = [key(17), value(17, 200)].concat();
    let wanted = [small, in_piece(0), in_piece(PIECE_BYTES)];
    let damaged = damaged(&machine, &wanted);
    let (tier, report) = damaged.open(settings()).unwrap();
    for bounds in [Bounds::ALONE, Bounds::BESIDE, Bounds { step_bytes: 1, places: 3, share: 900 }] {
        let (scrub, found) = pass(&tier, bounds, || {});
        let mut keys: Vec<Vec<u8>> =
            found.iter().filter_map(|damaged| Some(damaged.key.as_ref()?.to_vec())).collect();
        keys.sort();
        assert_eq!(keys, [key(17), key(5000)], "{found:?}, {:?}", report.problems);
        assert_eq!((scrub.far().items, scrub.far().damaged), (items.len() as u64, 2));
        for damaged in found {
            assert!(!damaged.is_refused && !damaged.why.contains("key-"), "{damaged:?}");
        }
    }
    for number in [17, 5000] {
        assert!(matches!(tier.get(&key(number)), Err(Error::Lost { .. })));
    }
}
