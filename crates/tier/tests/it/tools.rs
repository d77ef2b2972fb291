//! Check, repair, dump and load.

use crate::common::{self, Kind, Machine, settings, value};
use laneway_tier::disk::sim::Faults;
use laneway_tier::{BLOCK_BYTES, Directory, DirectorySettings, Error, ItemMeta, Tier, dump, fsck};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;

fn key(number: u64) -> Vec<u8> {
    format!("key-{number:05}").into_bytes()
}

fn filled() -> (Machine, Tier) {
    let machine = Machine::new(Kind::Pm, &Faults::default());
    let (tier, _) = machine.open(settings()).unwrap();
    for number in 0..200 {
        let bytes = if number % 7 == 0 { 3000 } else { 250 };
        let meta = ItemMeta { flags: number as u32, expires_at_seconds: 9, marks: 2, cas: number };
        tier.put(&key(number), &value(number, bytes), meta).unwrap();
        if number % 50 == 49 {
            tier.migrate().unwrap();
        }
    }
    (machine, tier)
}

/// A machine with the same content, a bit of some of whose values is flipped.
fn damaged(machine: &Machine, numbers: &[(u64, usize)]) -> Machine {
    let (mut log, mut ssd) = machine.images();
    for &(number, bytes) in numbers {
        // A small value follows its key in the record; a large one lies alone.
        let small = bytes < settings().split_bytes;
        let key = if small { key(number) } else { Vec::new() };
        let wanted = &[key, value(number, bytes)].concat()[..];
        let mut flipped = 0;
        for image in [&mut log, &mut ssd] {
            let found: Vec<usize> = image
                .windows(wanted.len())
                .enumerate()
                .filter(|(_, window)| *window == wanted)
                .map(|(at, _)| at)
                .collect();
            flipped += found.len();
            found.into_iter().for_each(|at| image[at + 29] ^= 8);
        }
        assert!(0 < flipped, "item {number} is on one of the media");
    }
    Machine::of(Kind::Pm, &Faults::default(), u64::MAX, log, ssd)
}

#[test]
fn a_sound_store_is_sound_and_checking_writes_nothing() {
    let (machine, tier) = filled();
    drop(tier);
    let before = machine.images();
    let findings = fsck::check(machine.media(), settings()).unwrap();
    assert!(findings.is_sound(), "{findings:?}");
    assert_eq!(findings.items, 200);
    assert!(machine.images() == before);
    let empty = Machine::new(Kind::Pm, &Faults::default());
    let none = fsck::check(empty.media(), settings()).err();
    assert!(matches!(none, Some(Error::Missing(_))), "{none:?}");
}

#[test]
fn a_repair_drops_what_the_check_names_and_only_that() {
    let (machine, tier) = filled();
    drop(tier);
    let lost = [(3, 250), (7, 3000), (150, 250), (197, 250)];
    let machine = damaged(&machine, &lost);
    let found = fsck::check(machine.media(), settings()).unwrap();
    let mut named: Vec<_> = found.lost.iter().map(|(key, _)| key.clone()).collect();
    named.sort();
    assert_eq!(named, lost.map(|(number, _)| key(number)));
    assert_eq!(found.items, 196);
    assert_eq!(fsck::repair(machine.media(), settings()).unwrap().lost, found.lost);
    let after = fsck::check(machine.media(), settings()).unwrap();
    assert!(after.is_sound(), "{after:?}");
    assert_eq!(after.items, 196);
    let (tier, _) = machine.open(settings()).unwrap();
    for number in 0..200 {
        let bytes = if number % 7 == 0 { 3000 } else { 250 };
        let expected = (!lost.contains(&(number, bytes))).then(|| value(number, bytes));
        assert_eq!(tier.get(&key(number)).unwrap().map(|item| item.value), expected);
    }
}

#[test]
fn the_newest_segment_is_read_although_its_header_is_damaged() {
    let (machine, tier) = filled();
    drop(tier);
    let (log, ssd) = machine.images();
    // The header with the highest generation.
    let magic = b"LNAYSEG1";
    let slots = log.chunks(common::SEGMENT_BYTES as usize).enumerate();
    let headers = slots.filter(|(_, slot)| slot.starts_with(magic));
    let generation = |slot: &[u8]| u64::from_le_bytes(slot[24..32].try_into().unwrap());
    let (newest, _) = headers.max_by_key(|(_, slot)| generation(slot)).expect("there are some");
    let mut log = log.clone();
    log[newest * common::SEGMENT_BYTES as usize + 24] ^= 1;
    let machine = Machine::of(Kind::Pm, &Faults::default(), u64::MAX, log, ssd);
    let found = fsck::check(machine.media(), settings()).unwrap();
    assert_eq!((found.items, found.report.problems.len()), (200, 1), "{found:?}");
}

#[test]
fn a_group_that_was_acknowledged_is_read_although_the_header_it_came_with_is_damaged() {
    for kind in [Kind::Pm, Kind::Wal] {
        let machine = Machine::new(kind, &Faults::default());
        // The first segment's was there before. It has a record, or the log would go on in it.
        let (tier, _) = machine.open(settings()).unwrap();
        tier.put(b"the only one", b"before", ItemMeta::default()).unwrap();
        drop(tier);
        let (tier, _) = machine.open(settings()).unwrap();
        tier.put(b"the only one", b"value", ItemMeta::default()).unwrap();
        drop(tier);
        let (mut log, ssd) = machine.images();
        let second = common::SEGMENT_BYTES as usize;
        assert!(log[second..].starts_with(b"LNAYSEG1"));
        log[second + 24] ^= 1;
        let machine = Machine::of(kind, &Faults::default(), u64::MAX, log, ssd);
        for _ in 0..2 {
            let (tier, report) = machine.open(settings()).unwrap();
            assert_eq!((report.items, &report.problems[..]), (1, &[][..]));
            assert_eq!(tier.get(b"the only one").unwrap().unwrap().value, b"value");
        }
    }
}

#[test]
fn a_damaged_sequence_does_not_outlive_what_is_written_next() {
    let machine = Machine::new(Kind::Pm, &Faults::default());
    let (tier, _) = machine.open(settings()).unwrap();
    for number in 0..3 {
        tier.put(&key(number), b"value", ItemMeta::default()).unwrap();
    }
    drop(tier);
    let (mut log, ssd) = machine.images();
    let at = log.windows(9).position(|bytes| bytes == &key(1)[..]).expect("it is in the log");
    log[at - 48 + 15] ^= 0x40; // the highest byte of its sequence
    let machine = Machine::of(Kind::Pm, &Faults::default(), u64::MAX, log, ssd);
    let (tier, report) = machine.open(settings()).unwrap();
    assert_eq!(report.problems.len(), 1, "{report:?}");
    assert!(matches!(tier.get(&key(1)), Err(Error::Lost { .. })));
    tier.put(&key(1), b"again", ItemMeta::default()).unwrap();
    assert_eq!(tier.get(&key(1)).unwrap().unwrap().value, b"again");
}

#[test]
fn a_dump_loads_into_a_store_of_another_shape() {
    let (_machine, tier) = filled();
    let mut bytes = Vec::new();
    let dumped = dump::dump(&tier, &mut bytes).unwrap();
    assert_eq!((dumped.items, dumped.lost.items), (200, 0));
    let other = Machine::of(
        Kind::Wal,
        &Faults::default(),
        u64::MAX,
        vec![0; 2 * common::PM_BYTES],
        vec![0; 2 * common::SSD_BYTES],
    );
    let (copy, _) = other.open(settings()).unwrap();
    assert_eq!(dump::load(&copy, &mut &bytes[..]).unwrap(), 200);
    let items = |tier: &Tier| {
        let found = tier.scan(b"", None, usize::MAX).into_iter();
        let told = found.map(|(key, item)| item.map(|item| (key, item.value, item.meta)).unwrap());
        told.collect::<Vec<_>>()
    };
    assert!(items(&tier) == items(&copy));
    // Cut off or damaged anywhere, it says so.
    for at in [8, 30, 60, bytes.len() / 2, bytes.len() - 1] {
        let cut = dump::load(&copy, &mut &bytes[..at]).unwrap_err();
        assert!(cut.to_string().contains("early"), "{at}: {cut}");
        let mut flipped = bytes.clone();
        flipped[at] ^= 1;
        assert!(dump::load(&copy, &mut &flipped[..]).is_err(), "{at}");
    }
    assert!(dump::load(&copy, &mut &b"anything"[..]).is_err());
    // Of another form, it says which.
    let mut other = bytes;
    other[7] = b'1';
    let error = dump::load(&copy, &mut &other[..]).expect_err("another form").to_string();
    assert!(error.contains("LNAYDMP1") && error.contains("reads LNAYDMP2"), "{error}");
}

#[test]
fn what_a_checkpoint_has_seen_durable_is_no_torn_tail() {
    for (last, kind) in [(9, Kind::Pm), (9, Kind::Wal), (8, Kind::Pm)] {
        let machine = Machine::new(kind, &Faults::default());
        let (tier, _) = machine.open(settings()).unwrap();
        // One group: no record says of another that it was durable.
        for number in 0..=last {
            tier.submit_put(&key(number), &value(number, 250), ItemMeta::default(), None).unwrap();
        }
        tier.close().unwrap();
        let (mut log, ssd) = machine.images();
        for number in [3, 9] {
            let at = log.windows(9).position(|bytes| bytes == &key(number)[..]);
            if let Some(at) = at {
                log[at + 100] ^= 1;
            }
        }
        let machine = Machine::of(kind, &Faults::default(), u64::MAX, log, ssd);
        let (tier, _) = machine.open(settings()).unwrap();
        // Slots are given back as soon as nothing in them is current.
        for turn in 0..60 {
            tier.put(b"other", &value(turn, 900), ItemMeta::default()).unwrap();
            while tier.maintain().unwrap() {}
        }
        while tier.migrate().unwrap() {}
        for number in 0..=last {
            match tier.get(&key(number)) {
                Err(Error::Lost { .. }) => assert!([3, 9].contains(&number), "{number} is lost"),
                item => assert_eq!(item.unwrap().unwrap().value, value(number, 250), "{number}"),
            }
        }
        tier.close().unwrap();
        let found = fsck::check(machine.media(), settings()).unwrap();
        assert_eq!(found.lost.len(), if last == 9 { 2 } else { 1 }, "{found:?}");
    }
}

/// More than all threads read at a time, in reads of many neighbours each.
#[test]
fn a_check_of_files_names_each_damaged_value_and_reads_the_rest() {
    const VALUE_BYTES: usize = 9 * BLOCK_BYTES + 100;
    const ITEMS: u64 = 1200;
    let name = format!("laneway-tier-check-{}", std::process::id());
    let path = std::env::temp_dir().join(name);
    let _ = fs::remove_dir_all(&path);
    let mut how = DirectorySettings::new(&path);
    (how.pm_bytes, how.ssd_bytes) = (32 << 20, 96 << 20);
    let (store, _) = Directory::open(&how, &mut |_, _| {}).unwrap();
    // No two begin alike.
    let tagged = |number: u64| {
        let rest = value(number, VALUE_BYTES - 8);
        [&number.to_be_bytes()[..], &rest].concat()
    };
    for number in 0..ITEMS {
        store.submit_put(&key(number), &tagged(number), ItemMeta::default(), None).unwrap();
    }
    store.commit().unwrap();
    store.close().unwrap();
    let check = || Directory::check(&how, &mut |_, _, _| {}).unwrap();
    let sound = check();
    assert!(sound.is_sound() && sound.items == ITEMS, "{sound:?}");
    let ssd = path.join("ssd");
    let image = fs::read(&ssd).unwrap();
    let file = File::options().write(true).open(&ssd).unwrap();
    let damaged = [0, 7, 600, 601, ITEMS - 1];
    for number in damaged {
        let front = &tagged(number)[..64];
        let block = image.chunks(BLOCK_BYTES).position(|block| block.starts_with(front)).unwrap();
        let at = block * BLOCK_BYTES + 100;
        file.write_all_at(&[image[at] ^ 8], at as u64).unwrap();
    }
    drop(file);
    let found = check();
    let names: Vec<Vec<u8>> = found.lost.iter().map(|(key, _)| key.clone()).collect();
    assert_eq!(names, damaged.map(key));
    assert_eq!((found.items, found.refused), (ITEMS - 5, 0));
    fs::remove_dir_all(&path).unwrap();
}
