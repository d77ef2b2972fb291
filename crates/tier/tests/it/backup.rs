//! A backup of a store that is written to: it is what the store held at one instant.

use crate::common::{Kind, Machine, PM_BYTES, settings, value};
use laneway_tier::backup::{Backup, Bounds, Step};
use laneway_tier::disk::sim::{Faults, Random};
use laneway_tier::dump::{Stream, load};
use laneway_tier::{Durability, Error, IndexKind, ItemMeta, Settings, Tier, WhenFull, fsck};
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

const KINDS: [Kind; 3] = [Kind::Pm, Kind::PmFair, Kind::Wal];
const KEYS: u64 = 120;

/// Everything that a store holds: values, and what is kept with them.
type Items = BTreeMap<Vec<u8>, (Vec<u8>, ItemMeta)>;

fn machine(kind: Kind, ssd_bytes: usize) -> Machine {
    let pm_bytes = if kind.is_fair() { 6 * PM_BYTES } else { PM_BYTES };
    Machine::of(kind, &Faults::default(), u64::MAX, vec![0; pm_bytes], vec![0; ssd_bytes])
}

fn settings_of(kind: Kind, durability: Durability) -> Settings {
    let index = kind.is_fair().then_some(IndexKind::Fair);
    Settings { index, durability, ..settings() }
}

fn items(tier: &Tier) -> Items {
    let found = tier.scan(b"", None, usize::MAX).into_iter();
    found.map(|(key, item)| (key, item.map(|item| (item.value, item.meta)).unwrap())).collect()
}

fn key(number: u64) -> Vec<u8> {
    format!("key-{number:05}").into_bytes()
}

/// One change of somebody.
fn change(tier: &Tier, random: &mut Random, version: u64) {
    let key = key(random.below(KEYS));
    match random.below(20) {
        0..3 => assert!(tier.delete(&key).is_ok()),
        3 if random.one_in(12) => assert!(tier.flush_all().is_ok()),
        3..5 => assert!(tier.migrate().is_ok()),
        5..8 => assert!(tier.maintain().is_ok()),
        8 => assert!(tier.get(&key).is_ok()),
        9 => tier.tell_time(version as u32 / 40),
        number => {
            let bytes = match number {
                10 | 11 => 1024 + random.below(9000),
                _ => random.below(900),
            };
            let (flags, cas, marks) = (version as u32, version, (version % 7) as u16);
            let expires_at_seconds = if random.one_in(4) { version as u32 / 30 + 1 } else { 0 };
            let meta = ItemMeta { flags, expires_at_seconds, marks, cas };
            tier.put(&key, &value(version, bytes as usize), meta).unwrap();
        }
    }
}

fn put(tier: &Tier, key: &[u8], value: &[u8]) {
    tier.put(key, value, ItemMeta::default()).unwrap();
}

fn begin(tier: &Tier) -> Backup {
    tier.backup(Bounds { items_at_once: 7, ..Bounds::NONE }).unwrap()
}

/// What a stream holds, read into a new store.
fn restored(stream: &[u8]) -> Items {
    let machine = machine(Kind::Wal, 16 << 20);
    let (tier, _) = machine.open(settings()).unwrap();
    let verified = Stream::open(stream).unwrap().verify().unwrap();
    assert_eq!(load(&tier, stream).unwrap(), verified);
    items(&tier)
}

#[test]
fn a_copy_is_the_store_at_the_instant_it_was_begun() {
    for (kind, seed) in KINDS.into_iter().flat_map(|kind| (0..12).map(move |seed| (kind, seed))) {
        let waits = kind.is_fair() || seed % 2 == 0;
        let durability = if waits { Durability::Ack } else { Durability::Interval };
        let told = format!("{kind:?}, {durability:?}, seed {seed}");
        let mut random = Random::new(seed);
        let machine = machine(kind, 2 << 20);
        let compress_from = (seed % 3 == 1).then_some(1);
        let settings = Settings { compress_from, ..settings_of(kind, durability) };
        let (tier, _) = machine.open(settings).unwrap();
        let mut version = 0;
        for _ in 0..2 {
            for _ in 0..300 + random.below(600) {
                version += 1;
                change(&tier, &mut random, version);
            }
            let expected = items(&tier);
            let (mut backup, mut stream) = (begin(&tier), Vec::new());
            let changes = random.below(60);
            loop {
                for _ in 0..random.below(changes + 1) {
                    version += 1;
                    change(&tier, &mut random, version);
                }
                if backup.step(&mut stream).unwrap() == Step::Over {
                    break;
                }
            }
            assert_eq!(backup.lost().items, 0, "{told}");
            assert_eq!(backup.items(), expected.len() as u64, "{told}");
            assert_eq!(backup.bytes(), stream.len() as u64, "{told}");
            drop(backup);
            assert!(restored(&stream) == expected, "{told}: the copy is another state");
        }
        // Nothing that was held is lost to the store.
        let now = items(&tier);
        tier.close().unwrap();
        let (tier, report) = machine.open(settings_of(kind, durability)).unwrap();
        assert_eq!(report.problems, [""; 0], "{told}");
        assert!(items(&tier) == now, "{told}");
    }
}

/// Ends those who write until then, also where a test fails.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

#[test]
fn what_was_acknowledged_before_is_in_it_and_nothing_that_was_begun_afterwards() {
    const WRITERS: u64 = 3;
    const ROUNDS: u64 = 12;
    let machine = machine(Kind::Wal, 8 << 20);
    let background = Settings { background: true, ..settings() };
    let (tier, _) = machine.open(background).unwrap();
    let acknowledged: [AtomicU64; WRITERS as usize] = Default::default();
    let begun: [AtomicU64; WRITERS as usize] = Default::default();
    let is_over = AtomicBool::new(false);
    // Each writes one number to all of its keys, one after the other, and then the next.
    let keys = |writer: u64| (0..40).map(move |at| format!("{at:02}-{writer}").into_bytes());
    let number_of = |bytes: &[u8]| u64::from_le_bytes(bytes[..8].try_into().unwrap());
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let (tier, begun, acknowledged, is_over) = (&tier, &begun, &acknowledged, &is_over);
            scope.spawn(move || {
                let mut number = 0;
                while !is_over.load(SeqCst) {
                    number += 1;
                    begun[writer as usize].store(number, SeqCst);
                    for (at, key) in keys(writer).enumerate() {
                        let mut bytes = value(number, if at % 5 == 0 { 1500 } else { 200 });
                        bytes[..8].copy_from_slice(&number.to_le_bytes());
                        tier.put(&key, &bytes, ItemMeta::default()).unwrap();
                    }
                    acknowledged[writer as usize].store(number, SeqCst);
                }
            });
        }
        let _ends = Ends(&is_over);
        for _ in 0..ROUNDS {
            while acknowledged.iter().any(|number| number.load(SeqCst) == 0) {
                std::thread::yield_now();
            }
            let before = acknowledged.each_ref().map(|number| number.load(SeqCst));
            let (mut backup, mut stream) = (begin(&tier), Vec::new());
            let after = begun.each_ref().map(|number| number.load(SeqCst));
            while backup.step(&mut stream).unwrap() == Step::More {}
            let copy = restored(&stream);
            for writer in 0..WRITERS {
                let mut last = u64::MAX;
                for key in keys(writer) {
                    let number = number_of(&copy[&key].0);
                    let (low, high) = (before[writer as usize], after[writer as usize]);
                    assert!((low..=high).contains(&number), "{number}, not {low} to {high}");
                    // Nobody sees a write without what was acknowledged before it was begun.
                    assert!(number <= last && (last == u64::MAX || last - number <= 1));
                    last = number;
                }
            }
        }
    });
}

#[test]
fn a_value_of_several_pieces_is_copied_piece_by_piece() {
    let machine = machine(Kind::Wal, 16 << 20);
    let (tier, _) = machine.open(settings()).unwrap();
    let long = value(3, (2 << 20) + 77);
    let meta = ItemMeta { flags: 4, expires_at_seconds: 5, marks: 6, cas: 7 };
    tier.put(b"long", &long, meta).unwrap();
    tier.put(b"empty", b"", ItemMeta::default()).unwrap();
    let expected = items(&tier);
    let (mut backup, mut stream) = (begin(&tier), Vec::new());
    let mut steps = 0;
    while backup.step(&mut stream).unwrap() == Step::More {
        steps += 1;
        if steps == 2 {
            // Its blocks stay as long as they are needed.
            tier.put(b"long", b"short now", ItemMeta::default()).unwrap();
            (0..40).for_each(|n| put(&tier, b"other", &value(n, 300_000)));
        }
    }
    assert!(5 <= steps, "{steps}");
    drop(backup);
    assert!(restored(&stream) == expected);
    // A damaged piece is told, and the item is not in the copy; the others are.
    tier.put(b"long", &long, meta).unwrap();
    tier.delete(b"other").unwrap();
    tier.close().unwrap();
    let (log, mut ssd) = machine.images();
    let blocks = ssd.chunks_mut(4096).filter(|block| *block == &long[1 << 20..][..4096]);
    assert!(0 < blocks.map(|block| block[9] ^= 1).count());
    let machine = Machine::of(Kind::Wal, &Faults::default(), u64::MAX, log, ssd);
    let (tier, _) = machine.open(settings()).unwrap();
    let (mut backup, mut stream) = (begin(&tier), Vec::new());
    while backup.step(&mut stream).unwrap() == Step::More {}
    let named = &backup.lost().named;
    assert_eq!(named.iter().map(|(key, _)| &key[..]).collect::<Vec<_>>(), [b"long"]);
    assert_eq!(restored(&stream).into_keys().collect::<Vec<_>>(), [b"empty"]);
}

#[test]
fn there_is_one_at_a_time_and_one_that_is_dropped_holds_nothing() {
    let machine = machine(Kind::Wal, 2 << 20);
    let (tier, _) = machine.open(settings()).unwrap();
    (0..90).for_each(|n| put(&tier, &key(n), &value(n, 5000)));
    let first = begin(&tier);
    let told = tier.backup(tier.backup_bounds()).err().unwrap().to_string();
    assert!(told.contains("another backup is under way"), "{told}");
    let free = tier.stats().ssd_free_bytes;
    (0..40).for_each(|n| assert!(tier.delete(&key(n)).unwrap()));
    tier.put(b"vouches", b"", ItemMeta::default()).unwrap();
    tier.put(b"vouches", b"", ItemMeta::default()).unwrap();
    assert_eq!(tier.stats().ssd_free_bytes, free, "it holds them");
    drop(first);
    assert!(free + 35 * 8192 <= tier.stats().ssd_free_bytes);
    let mut stream = Vec::new();
    let mut second = begin(&tier);
    while second.step(&mut stream).unwrap() == Step::More {}
    assert_eq!(second.items(), 51);
}

#[test]
fn at_its_bounds_a_backup_is_given_up_and_nobody_else_notices() {
    let bounds = [
        (Bounds { memory_bytes: 9000, ..Bounds::NONE }, "of memory"),
        (Bounds { blocks: 20, ..Bounds::NONE }, "blocks of the SSD"),
        (Bounds::NONE, "no room left"),
    ];
    for (bounds, why) in bounds {
        let machine = machine(Kind::Wal, 2 << 20);
        let (tier, _) = machine.open(settings()).unwrap();
        let put = |n: u64, version| {
            tier.put(&key(n), &value(version, 9000), ItemMeta::default()).unwrap();
        };
        (0..100).for_each(|n| put(n, n));
        let (mut backup, mut stream) = (tier.backup(bounds).unwrap(), Vec::new());
        for round in 1..8 {
            (0..100).for_each(|n| put(n, round * 1000 + n));
        }
        let told = loop {
            match backup.step(&mut stream) {
                Ok(Step::More) => {}
                Ok(Step::Over) => panic!("{why}: it was not given up"),
                Err(error) => break error.to_string(),
            }
        };
        assert!(told.contains("given up") && told.contains(why), "{told}");
        drop(backup);
        assert!(Stream::open(&stream[..]).and_then(|mut stream| stream.verify()).is_err());
        let now = items(&tier);
        assert!((0..100).all(|n| now[&key(n)].0 == value(7000 + n, 9000)));
    }
}

#[test]
fn a_cache_is_copied_while_items_are_evicted() {
    for seed in 0..6 {
        let mut random = Random::new(seed);
        let machine = machine(Kind::Wal, 2 << 20);
        let evicting = Settings { when_full: WhenFull::Evict, ..settings() };
        let (tier, _) = machine.open(evicting).unwrap();
        let mut write = |version: u64| {
            let bytes = 100 + random.below(6000) as usize;
            let key = key(random.below(800));
            tier.put(&key, &value(version, bytes), ItemMeta::default()).unwrap();
            tier.maintain().unwrap();
        };
        (0..900).for_each(&mut write);
        let before = tier.evicted();
        assert!(0 < before.small.items + before.large.items);
        let expected = items(&tier);
        let (mut backup, mut stream) = (begin(&tier), Vec::new());
        let mut version = 1000;
        while backup.step(&mut stream).unwrap() == Step::More {
            (version..version + 3).for_each(&mut write);
            version += 3;
        }
        assert_ne!(tier.evicted(), before, "seed {seed}");
        assert!(restored(&stream) == expected, "seed {seed}");
    }
}

/// A deletion that takes an evicted item's place has the item's key and sequence. Where the item's
/// own record cannot be read, and nobody has saved it, that is what the index leads to.
#[test]
fn what_says_that_an_item_was_evicted_is_not_copied_in_its_place() {
    const BYTES: usize = 900;
    for kind in [Kind::Pm, Kind::Wal] {
        let machine = machine(kind, 1 << 20);
        let settings =
            Settings { when_full: WhenFull::Evict, ..settings_of(kind, Durability::Ack) };
        let (tier, _) = machine.open(settings).unwrap();
        let mut version = 0;
        // Sort tables give up items several times before what is left of them is merged, which
        // saves what a backup needs of them: not every eviction comes to the case.
        let is_met = (0..100).any(|_| {
            let (mut backup, mut stream) = (begin(&tier), Vec::new());
            let before = tier.evicted();
            while tier.evicted() == before {
                put(&tier, &key(version), &value(version, BYTES));
                tier.maintain().unwrap();
                version += 1;
            }
            let unreadable = (0..machine.ssd.image().len() as u64 / 4096).collect();
            machine.ssd.set_faults(Faults { unreadable, ..Faults::default() });
            let mut step = backup.step(&mut stream);
            while let Ok(Step::More) = step {
                step = backup.step(&mut stream);
            }
            machine.ssd.set_faults(Faults::default());
            if step.is_err() {
                return false; // eviction found no room beside it
            }
            let copied = restored(&stream);
            assert_eq!(copied.len() as u64, backup.items(), "{kind:?}");
            assert!(copied.values().all(|(value, _)| value.len() == BYTES), "{kind:?}");
            backup.lost().named.iter().any(|(key, _)| tier.look(key).is_none())
        });
        assert!(is_met, "{kind:?}: no item was evicted that the backup had to read");
    }
}

/// Takes so many bytes, and no more.
struct Full(Vec<u8>, usize);

impl Write for Full {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.1 < self.0.len() + bytes.len() {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_target_without_room_ends_the_backup_and_not_the_store() {
    let machine = machine(Kind::Wal, 2 << 20);
    let (tier, _) = machine.open(settings()).unwrap();
    (0..100).for_each(|n| put(&tier, &key(n), &value(n, 3000)));
    let expected = items(&tier);
    for room in [0, 7, 8, 40_000, 290_000] {
        let (mut backup, mut full) = (begin(&tier), Full(Vec::new(), room));
        let told = loop {
            match backup.step(&mut full) {
                Ok(step) => assert_eq!(step, Step::More, "{room}"),
                Err(error) => break error,
            }
        };
        assert!(matches!(told, Error::Io { .. }), "{room}: {told}");
        drop(backup);
        tier.put(&key(3), &value(3, 3000), ItemMeta::default()).unwrap();
    }
    assert!(items(&tier) == expected);
}

#[test]
fn a_stream_that_is_damaged_anywhere_is_refused_before_anything_is_loaded() {
    let machine = machine(Kind::Wal, 8 << 20);
    let (tier, _) = machine.open(settings()).unwrap();
    (0..20).for_each(|n| put(&tier, &key(n), &value(n, 100)));
    tier.put(b"long", &value(1, (1 << 20) + 5), ItemMeta::default()).unwrap();
    let (mut backup, mut stream) = (begin(&tier), Vec::new());
    while backup.step(&mut stream).unwrap() == Step::More {}
    let verify = |bytes: &[u8]| Stream::open(bytes).and_then(|mut stream| stream.verify());
    assert_eq!(verify(&stream).unwrap(), 21);
    let mut random = Random::new(1);
    for _ in 0..400 {
        let mut damaged = stream.clone();
        let at = random.below(stream.len() as u64) as usize;
        match random.below(3) {
            0 => damaged[at] ^= 1 << random.below(8),
            1 => damaged.truncate(at),
            _ => drop(damaged.drain(at..(at + 300).min(stream.len()))),
        }
        assert!(verify(&damaged).is_err(), "at {at}");
    }
    // Nothing may follow, not even what would be a stream by itself.
    for more in [&[0][..], &stream[..], &vec![0; 4096]] {
        let told = verify(&[&stream[..], more].concat()).unwrap_err().to_string();
        assert!(told.contains("behind its end"), "{told}");
    }
    // Records that are whole, and of which one is missing or comes twice.
    let record = 56 + 9 + 100;
    let begins = 8 + 3 * record;
    assert!(stream[begins..].starts_with(b"LW"));
    let one = stream[begins..begins + record].to_vec();
    let mut missing = stream.clone();
    missing.drain(begins..begins + record);
    let mut twice = stream.clone();
    twice.splice(begins..begins, one.iter().copied());
    let mut exchanged = missing.clone();
    exchanged.splice(begins + record..begins + record, one);
    for (stream, what) in [(missing, "missing"), (twice, "twice"), (exchanged, "exchanged")] {
        let told = verify(&stream).unwrap_err().to_string();
        assert!(told.contains("missing or new"), "{what}: {told}");
    }
}

#[test]
fn a_loss_of_power_meanwhile_leaves_a_store_as_without_a_backup() {
    for seed in 0..40 {
        let mut random = Random::new(seed);
        let machine = machine(Kind::Wal, 2 << 20);
        let (tier, _) = machine.open(settings()).unwrap();
        let mut last = BTreeMap::new();
        let mut put = |tier: &Tier, random: &mut Random, version: u64| {
            let (n, bytes) = (random.below(60), random.below(4000) as usize);
            let written = tier.put(&key(n), &value(version, bytes), ItemMeta::default());
            if written.is_ok() {
                let _ = tier.maintain();
                last.insert(n, vec![(version, bytes)]);
            } else {
                last.entry(n).or_insert_with(Vec::new).push((version, bytes));
            }
        };
        (0..150).for_each(|version| put(&tier, &mut random, version));
        let (mut backup, mut stream) = (begin(&tier), Vec::new());
        machine.power.restore(1 + random.below(200));
        for version in 1000..1120 {
            put(&tier, &mut random, version);
            let _ = backup.step(&mut stream); // reads fail without power
        }
        drop((backup, tier));
        let crashed = machine.crashed(seed, &Faults::default(), u64::MAX);
        let found = fsck::check(crashed.media(), settings()).unwrap();
        assert!(found.is_sound(), "seed {seed}: {found:?}");
        let (tier, _) = crashed.open(settings()).unwrap();
        for (n, versions) in &last {
            let item = tier.get(&key(*n)).unwrap().map(|item| item.value);
            let is_one = |(version, bytes): &(u64, usize)| item == Some(value(*version, *bytes));
            let never_written = item.is_none() && versions.iter().all(|(v, _)| 1000 <= *v);
            assert!(never_written || versions.iter().any(is_one), "seed {seed}: key {n}");
        }
    }
}
