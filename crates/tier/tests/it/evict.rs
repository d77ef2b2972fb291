//! A store that is a cache: it never refuses what fits, what it drops is cold, and an item is gone
//! or as it was written last.

use crate::common::{Kind, Machine, PM_BYTES, settings, value};
use laneway_tier::disk::sim::{Faults, Random};
use laneway_tier::{
    Durability, Error, Evicted, IndexKind, ItemMeta, MigrateBy, Settings, Tier, Wanted, WhenFull,
};
use std::collections::BTreeMap;

const KINDS: [Kind; 3] = [Kind::Pm, Kind::PmFair, Kind::Wal];
const SSD_BYTES: usize = 1 << 20;
const EXPIRES: u32 = 100;

fn evicting(kind: Kind) -> Settings {
    let index = kind.is_fair().then_some(IndexKind::Fair);
    Settings { index, when_full: WhenFull::Evict, ..settings() }
}

fn machine(kind: Kind) -> Machine {
    // An index in persistent memory is bounded, too, and is to hold all keys of these tests.
    let pm_bytes = if kind.is_fair() { 12 * PM_BYTES } else { PM_BYTES };
    let (log, ssd) = (vec![0; pm_bytes], vec![0; SSD_BYTES]);
    Machine::of(kind, &Faults::default(), u64::MAX, log, ssd)
}

fn opened(kind: Kind) -> (Machine, Settings, Tier) {
    let (machine, settings) = (machine(kind), evicting(kind));
    let (tier, _) = machine.open(settings).unwrap();
    (machine, settings, tier)
}

fn key(number: u64) -> Vec<u8> {
    format!("key-{number:05}").into_bytes()
}

fn put(tier: &Tier, number: u64, version: u64, bytes: usize) {
    put_until(tier, number, version, bytes, 0);
}

fn put_until(tier: &Tier, number: u64, version: u64, bytes: usize, expires_at_seconds: u32) {
    let flags = version as u32;
    let meta = ItemMeta { flags, expires_at_seconds, ..ItemMeta::default() };
    let written = tier.put(&key(number), &value(version, bytes), meta);
    written.unwrap_or_else(|error| panic!("{bytes} bytes of key {number}: {error}"));
}

/// As the thread of a server's tier does.
fn maintain(tier: &Tier) {
    for _ in 0..100 {
        if !tier.maintain().unwrap() {
            return;
        }
    }
}

fn total(evicted: &Evicted) -> u64 {
    evicted.small.items + evicted.large.items
}

/// Every key holds its last version, or nothing; how many hold it.
fn check(tier: &Tier, last: &BTreeMap<u64, (u64, usize)>) -> usize {
    let mut held = 0;
    for (number, (version, bytes)) in last {
        if let Some(item) = tier.get(&key(*number)).unwrap() {
            assert_eq!(item.meta.flags, *version as u32, "key {number}");
            assert!(item.value == value(*version, *bytes), "key {number} has other bytes");
            held += 1;
        }
    }
    held
}

/// Sizes of values: what is below 1024 bytes is small.
const SIZES: [(&str, std::ops::Range<u64>); 4] =
    [("small", 100..1000), ("large", 1024..9000), ("blocks", 4000..4096), ("both", 0..3000)];

#[test]
fn a_working_set_of_four_times_the_ssd_is_written_for_ever() {
    for kind in KINDS {
        for (name, sizes) in SIZES {
            for (helped, age) in [(true, false), (false, false), (true, true)] {
                let mut random = Random::new(5);
                let (machine, mut settings) = (machine(kind), evicting(kind));
                settings.migrate_by = age.then_some(MigrateBy::Age);
                let (tier, _) = machine.open(settings).unwrap();
                let mean = (sizes.start + sizes.end) / 2;
                let keys = 4 * SSD_BYTES as u64 / mean;
                let (mut last, mut written) = (BTreeMap::new(), 0);
                let mut version = 0;
                while written < 6 * SSD_BYTES as u64 {
                    version += 1;
                    let number = random.below(keys);
                    let bytes = sizes.start + random.below(sizes.end - sizes.start);
                    put(&tier, number, version, bytes as usize);
                    last.insert(number, (version, bytes as usize));
                    written += bytes;
                    if helped && version.is_multiple_of(8) {
                        maintain(&tier);
                    }
                    if random.one_in(3) {
                        tier.get(&key(random.below(keys))).unwrap();
                    }
                }
                let (held, stats) = (check(&tier, &last), tier.stats());
                let told = format!("{kind:?}, {name}, {helped}: {held} of {}", last.len());
                assert!(0 < total(&stats.evicted), "{told}");
                // An SSD so small is for the most part checkpoints, and what is kept free.
                let of_use = held as u64 * mean;
                assert!(SSD_BYTES as u64 * 3 / 10 < of_use, "{told}: {of_use} bytes, {stats:?}");
                drop(tier);
                let (tier, report) = machine.open(settings).unwrap();
                assert_eq!(report.problems, [""; 0], "{told}");
                assert_eq!(check(&tier, &last), held, "{told}: as many as before");
            }
        }
    }
}

#[test]
fn where_maintenance_comes_often_no_writer_waits_for_eviction() {
    let (_machine, _, tier) = opened(Kind::Wal);
    for version in 0..2000 {
        put(&tier, version, version, 2000);
        maintain(&tier);
    }
    let stats = tier.stats();
    assert_eq!(stats.stalls, 0, "{stats:?}");
    assert!(1500 < stats.evicted.large.items, "{stats:?}");
    assert!(stats.evicted.large.bytes == stats.evicted.large.items * 2009, "{stats:?}");
}

#[test]
fn what_expired_goes_before_anything_else() {
    for (kind, bytes) in KINDS.into_iter().flat_map(|kind| [(kind, 900), (kind, 4000)]) {
        let (_machine, _, tier) = opened(kind);
        let mut number = 0;
        // About half of the SSD has expired when it is nearly full.
        while tier.stats().ssd_free_bytes > SSD_BYTES as u64 / 3 {
            let expires = if number % 2 == 0 { EXPIRES } else { 0 };
            put_until(&tier, number, number, bytes, expires);
            maintain(&tier);
            number += 1;
        }
        assert_eq!(total(&tier.stats().evicted), 0, "{kind:?}");
        tier.tell_time(EXPIRES);
        let dropped = |tier: &Tier| {
            let Evicted { small, large } = tier.evicted();
            (small.expired_first + large.expired_first, small.items + large.items)
        };
        while dropped(&tier) == (0, 0) {
            number += 1;
            put(&tier, number, number, bytes);
            tier.maintain().unwrap();
        }
        let ((first, others), stats) = (dropped(&tier), tier.stats());
        assert!(0 < first && others == 0, "{kind:?}, {bytes}: {stats:?}");
        // Where the log is long most of what expired is there.
        if !kind.is_fair() {
            maintain(&tier);
            assert_eq!(dropped(&tier).1, 0, "{kind:?}, {bytes}: that was enough");
        }
        let class = if bytes < 1024 { stats.evicted.small } else { stats.evicted.large };
        assert_eq!(class.expired_first, first);
    }
}

#[test]
fn what_is_read_between_two_rounds_of_the_clock_stays() {
    for (kind, bytes) in KINDS.into_iter().flat_map(|kind| [(kind, 900), (kind, 4000)]) {
        let (_machine, _, tier) = opened(kind);
        const HOT: u64 = 10;
        (0..HOT).for_each(|number| put(&tier, number, number, bytes));
        for number in HOT..3 * SSD_BYTES as u64 / bytes as u64 {
            put(&tier, number, number, bytes);
            maintain(&tier);
            if number.is_multiple_of(4) {
                (0..HOT).for_each(|hot| drop(tier.get(&key(hot)).unwrap()));
            }
        }
        let held = (0..HOT).filter(|hot| tier.get(&key(*hot)).unwrap().is_some()).count();
        assert!(8 <= held, "{kind:?}, {bytes}: {held} of {HOT} hot ones are left");
        assert!(100 < total(&tier.stats().evicted), "{kind:?}");
    }
}

#[test]
fn what_its_owner_wants_is_spared_and_some_of_it_always() {
    for bytes in [900, 4000] {
        let (_machine, _, tier) = opened(Kind::Wal);
        tier.ask_before_evicting(Box::new(|asked| match asked {
            b"key-00003" => Wanted::Always,
            asked if asked < &key(10)[..] => Wanted::Warm,
            _ => Wanted::No,
        }));
        for number in 0..3 * SSD_BYTES as u64 / bytes as u64 {
            put(&tier, number, number, bytes);
            maintain(&tier);
        }
        let held = (0..10).filter(|number| tier.get(&key(*number)).unwrap().is_some()).count();
        assert!(8 <= held, "{bytes}: {held} of ten");
        // Where nothing else is left, what is only warm goes, and the other still does not.
        tier.ask_before_evicting(Box::new(|asked| match asked {
            b"key-00003" => Wanted::Always,
            _ => Wanted::Warm,
        }));
        for number in 10_000..10_000 + 3 * SSD_BYTES as u64 / bytes as u64 {
            put(&tier, number, number, bytes);
            maintain(&tier);
        }
        assert!(tier.get(&key(3)).unwrap().is_some(), "{bytes}");
        let held = (0..10).filter(|number| tier.get(&key(*number)).unwrap().is_some()).count();
        assert!(held < 9, "{bytes}: {held} of ten");
    }
}

#[test]
fn an_evicted_key_stays_away_after_a_restart_and_so_does_a_deleted_one() {
    for kind in KINDS {
        let (machine, settings, tier) = opened(kind);
        // Two versions of each; the first is still in the log when the second is evicted.
        for version in [1, 2] {
            (0..30).for_each(|number| put(&tier, number, version, 4000));
        }
        let mut number = 100;
        while (0..30).any(|number| tier.look(&key(number)).is_some()) {
            put(&tier, number, 3, 4000);
            maintain(&tier);
            number += 1;
        }
        assert!(!tier.delete(&key(7)).unwrap(), "{kind:?}: it is not there");
        drop(tier);
        for _ in 0..3 {
            let (tier, report) = machine.open(settings).unwrap();
            assert_eq!(report.problems, [""; 0], "{kind:?}");
            for number in 0..30 {
                assert!(tier.get(&key(number)).unwrap().is_none(), "{kind:?}: key {number}");
            }
            tier.checkpoint().unwrap();
            while tier.stats().segments_freed < 2 {
                put(&tier, number, 4, 4000);
                tier.migrate().unwrap();
            }
        }
    }
}

#[test]
fn a_value_that_is_read_while_it_is_evicted_is_read_whole() {
    for kind in KINDS {
        let (_machine, _, tier) = opened(kind);
        let bytes = 100_000;
        put(&tier, 0, 1, bytes);
        let reader = tier.open_large(&key(0)).unwrap().unwrap();
        let mut number = 1;
        while tier.look(&key(0)).is_some() {
            put(&tier, number, 1, 4000);
            maintain(&tier);
            number += 1;
        }
        // Its blocks would be used again by now.
        (0..300).for_each(|more| put(&tier, number + more, 2, 4000));
        assert!(reader.piece(0).unwrap() == value(1, bytes), "{kind:?}");
        let held = tier.stats().ssd_free_bytes;
        drop(reader);
        assert!(held + bytes as u64 <= tier.stats().ssd_free_bytes, "{kind:?}: blocks come back");
    }
}

#[test]
fn sort_tables_that_cannot_be_read_stop_neither_eviction_nor_writers() {
    let (machine, _, tier) = opened(Kind::Wal);
    let mut random = Random::new(3);
    let mut write = |bytes: usize| {
        for _ in 0..bytes / 500 {
            put(&tier, random.below(4 * SSD_BYTES as u64 / 500), 1, 500);
        }
        maintain(&tier);
        total(&tier.evicted())
    };
    let before = write(3 * SSD_BYTES);
    assert!(0 < before, "it evicts");
    // One bad place, in a table that is there or will be.
    let blocks = (SSD_BYTES / 4096) as u64;
    let unreadable = [blocks / 2].into();
    machine.ssd.set_faults(Faults { unreadable, ..Faults::default() });
    assert!(before < write(3 * SSD_BYTES), "it goes on");
}

#[test]
fn a_tier_with_a_thread_evicts_by_itself_only_once_its_owner_can_say_what_stays() {
    let fill = |asks: bool, most: u64| {
        let settings = Settings { background: true, ..evicting(Kind::Wal) };
        let (tier, _) = machine(Kind::Wal).open(settings).unwrap();
        if asks {
            tier.ask_before_evicting(Box::new(|_| Wanted::No));
        }
        for number in 0..most {
            put(&tier, number, 0, 5000);
            maintain(&tier);
            if 0 < total(&tier.evicted()) {
                return number + 1;
            }
        }
        0
    };
    let needed = fill(true, SSD_BYTES as u64 / 5000);
    assert!(0 < needed, "an SSD that is nearly full makes room");
    assert_eq!(fill(false, needed), 0, "something went before anybody could be asked");
}

#[test]
fn threads_that_read_while_others_evict_see_whole_last_values() {
    let machine = machine(Kind::Wal);
    let settings = Settings { background: true, ..evicting(Kind::Wal) };
    let (tier, _) = machine.open(settings).unwrap();
    // With a thread of its own a tier evicts by itself from here on.
    tier.ask_before_evicting(Box::new(|_| Wanted::No));
    const KEYS: u64 = 600;
    let seen = std::sync::atomic::AtomicU64::new(0);
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let (tier, seen, done) = (&tier, &seen, &done);
            scope.spawn(move || {
                let mut random = Random::new(thread);
                while !done.load(std::sync::atomic::Ordering::Relaxed) {
                    let number = random.below(KEYS);
                    // A value is of its key: of another, or torn, it would not compare.
                    if let Some(item) = tier.get(&key(number)).unwrap() {
                        let whole = value(number, item.value.len());
                        assert!(item.value == whole, "key {number} has other bytes");
                        seen.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    }
                }
            });
        }
        let mut random = Random::new(9);
        for _ in 0..4000 {
            let number = random.below(KEYS);
            let bytes = 100 + random.below(6000) as usize;
            put(&tier, number, number, bytes);
        }
        done.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    assert!(0 < total(&tier.evicted()));
    assert!(0 < seen.load(std::sync::atomic::Ordering::Relaxed));
}

#[test]
fn what_can_never_fit_is_refused_and_nothing_is_dropped_for_it() {
    let (_machine, _, tier) = opened(Kind::Wal);
    (0..50).for_each(|number| put(&tier, number, 1, 4000));
    let told = tier.put(b"key", &value(1, SSD_BYTES), ItemMeta::default()).unwrap_err();
    assert!(matches!(told, Error::SsdFull { blocks: 256 }), "{told}");
    assert!(told.to_string().contains("no room for 256 blocks"), "{told}");
    assert_eq!(total(&tier.evicted()), 0);
    let last = (0..50).map(|number| (number, (1, 4000))).collect();
    assert_eq!(check(&tier, &last), 50);
}

#[test]
fn where_readers_hold_all_of_it_a_write_is_refused_and_goes_through_when_they_are_gone() {
    let (_machine, _, tier) = opened(Kind::Wal);
    let mut readers = Vec::new();
    let mut number = 0;
    let refused = loop {
        let meta = ItemMeta::default();
        match tier.put(&key(number), &value(number, 20_000), meta) {
            Ok(_) => readers.extend(tier.open_large(&key(number)).unwrap()),
            Err(error) => break error,
        }
        number += 1;
        assert!(number < 100, "more than the SSD takes");
    };
    assert!(matches!(refused, Error::SsdFull { .. }), "{refused}");
    for (held, reader) in readers.iter().enumerate() {
        assert!(reader.piece(0).unwrap() == value(held as u64, 20_000), "key {held}");
    }
    drop(readers);
    put(&tier, number, number, 20_000);
}

#[test]
fn a_store_that_refuses_does_so_and_drops_nothing() {
    for kind in KINDS {
        let machine = machine(kind);
        let settings = Settings { when_full: WhenFull::Refuse, ..evicting(kind) };
        let (tier, _) = machine.open(settings).unwrap();
        let mut last = BTreeMap::new();
        let told = loop {
            let number = last.len() as u64;
            match tier.put(
                &key(number),
                &value(1, 4000),
                ItemMeta { flags: 1, ..ItemMeta::default() },
            ) {
                Ok(_) => last.insert(number, (1, 4000)),
                Err(error) => break error,
            };
            maintain(&tier);
        };
        assert!(matches!(told, Error::SsdFull { blocks: 1 }), "{kind:?}: {told}");
        assert_eq!(check(&tier, &last), last.len(), "{kind:?}");
        assert_eq!(tier.evicted(), Evicted::default());
        drop(tier);
        // The same store goes on as a cache, and as a store again.
        let (tier, _) = machine.open(evicting(kind)).unwrap();
        for number in 1000..1300 {
            put(&tier, number, 2, 4000);
            last.insert(number, (2, 4000));
        }
        let held = check(&tier, &last);
        drop(tier);
        let (tier, report) = machine.open(settings).unwrap();
        assert_eq!(report.problems, [""; 0]);
        assert_eq!(check(&tier, &last), held, "{kind:?}");
    }
}

mod model {
    use super::*;
    use proptest::prelude::*;

    const KEYS: u64 = 60;

    #[derive(Debug, Clone)]
    enum Op {
        Put(u64, usize),
        Expiring(u64, usize),
        Delete(u64),
        Get(u64),
        Maintain,
        Migrate,
        Checkpoint,
        Time,
        Reopen,
        Crash(u64),
    }

    fn op() -> impl Strategy<Value = Op> {
        let bytes =
            prop_oneof![4 => 0..1000_usize, 4 => 1024..20_000_usize, 1 => 66_000..80_000_usize];
        prop_oneof![
            30 => (0..KEYS, bytes.clone()).prop_map(|(key, bytes)| Op::Put(key, bytes)),
            4 => (0..KEYS, bytes).prop_map(|(key, bytes)| Op::Expiring(key, bytes)),
            5 => (0..KEYS).prop_map(Op::Delete),
            10 => (0..KEYS).prop_map(Op::Get),
            10 => Just(Op::Maintain),
            2 => Just(Op::Migrate),
            1 => Just(Op::Checkpoint),
            1 => Just(Op::Time),
            1 => Just(Op::Reopen),
            1 => any::<u64>().prop_map(Op::Crash),
        ]
    }

    /// What a key may hold, if it holds anything: version and length.
    type Oracle = BTreeMap<u64, (u64, usize)>;

    fn run(kind: Kind, durability: Durability, ops: &[Op]) {
        let settings = Settings { durability, ..evicting(kind) };
        let mut machine = Machine::sized(kind, &Faults::default(), 512 << 10);
        let (mut tier, _) = machine.open(settings).unwrap();
        let (mut oracle, mut version, mut now) = (Oracle::new(), 0, 1);
        tier.tell_time(now);
        for op in ops {
            match *op {
                Op::Put(number, bytes) | Op::Expiring(number, bytes) => {
                    version += 1;
                    let ends = matches!(op, Op::Expiring(..));
                    put_until(&tier, number, version, bytes, if ends { now + 2 } else { 0 });
                    oracle.insert(number, (version, bytes));
                }
                Op::Delete(number) => {
                    let found = tier.delete(&key(number)).unwrap();
                    assert!(!found || oracle.contains_key(&number), "key {number} was deleted");
                    oracle.remove(&number);
                }
                Op::Get(number) => {
                    let item = tier.get(&key(number)).unwrap();
                    let held = item.map(|item| (u64::from(item.meta.flags), item.value));
                    let may = oracle.get(&number).map(|(at, bytes)| (*at, value(*at, *bytes)));
                    assert!(held.is_none() || held == may, "key {number}");
                    if held.is_none() {
                        oracle.remove(&number); // what is gone is gone
                    }
                }
                Op::Maintain => drop(tier.maintain().unwrap()),
                Op::Migrate => drop(tier.migrate().unwrap()),
                Op::Checkpoint => tier.checkpoint().unwrap(),
                Op::Time => {
                    now += 1;
                    tier.tell_time(now);
                }
                Op::Reopen | Op::Crash(_) => {
                    tier.commit().unwrap();
                    drop(tier);
                    if let Op::Crash(seed) = op {
                        machine = machine.crashed(*seed, &Faults::default(), u64::MAX);
                    }
                    let (again, report) = machine.open(settings).unwrap();
                    assert_eq!(report.problems, [""; 0]);
                    tier = again;
                    tier.tell_time(now);
                }
            }
        }
        check(&tier, &oracle);
        let all = tier.scan(b"", None, usize::MAX);
        assert!(all.len() <= oracle.len(), "more than was written");
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

        #[test]
        fn a_key_is_gone_or_as_it_was_written_last(
            kind in 0..KINDS.len(),
            soon in any::<bool>(),
            ops in prop::collection::vec(op(), 1..600),
        ) {
            let kind = KINDS[kind];
            let durability = match soon && !kind.is_fair() {
                true => Durability::Interval,
                false => Durability::Ack,
            };
            run(kind, durability, &ops);
        }
    }
}
