//! Compaction of a whole store: what is held comes close to what is current, nothing is lost
//! whenever it is interrupted, and a full SSD is an error.
//!
//! A failure of the exploration prints the seed; `TIER_COMPACT_SEED=n` runs only that one.

use crate::common::{Kind, Machine, SEGMENT_BYTES, settings, value};
use laneway_tier::disk::sim::{Faults, Random};
use laneway_tier::{BLOCK_BYTES, Error, ItemMeta, Settings, Standing, Tier, Usage};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

const KINDS: [Kind; 3] = [Kind::Pm, Kind::Wal, Kind::PmFair];
const SSD_BYTES: usize = 4 << 20;
const SUPER_BLOCKS: u64 = 32;

/// What each key holds: a version, and how long its value is.
type Model = BTreeMap<Vec<u8>, (u64, usize)>;

fn key(number: u64) -> Vec<u8> {
    format!("key-{number:05}").into_bytes()
}

/// Writes and deletes until log and sort tables are sparse.
fn history(tier: &Tier, random: &mut Random, model: &mut Model) {
    for version in 0..1500 {
        let key = key(random.below(300));
        if random.one_in(3) {
            tier.delete(&key).unwrap();
            model.remove(&key);
        } else {
            let bytes = if random.one_in(20) { 5000 } else { 20 + random.below(600) as usize };
            tier.put(&key, &value(version, bytes), ItemMeta::default()).unwrap();
            model.insert(key, (version, bytes));
        }
        tier.maintain().unwrap();
    }
}

fn check(tier: &Tier, model: &Model, what: &str) {
    for number in 0..300 {
        let key = key(number);
        let found = tier.get(&key).unwrap_or_else(|error| panic!("{what}: {error}"));
        let expected = model.get(&key).map(|(version, bytes)| value(*version, *bytes));
        assert!(found.map(|item| item.value) == expected, "{what}: {}", key.escape_ascii());
    }
    let (told, walked) = (tier.stats(), tier.stats_by_walk());
    assert_eq!((told.items, told.usage), (walked.items, walked.usage), "{what}");
}

#[test]
fn what_is_held_comes_close_to_what_is_current() {
    for kind in KINDS {
        let machine = Machine::sized(kind, &Faults::default(), SSD_BYTES);
        let (tier, _) = machine.open(settings()).unwrap();
        let mut model = Model::new();
        history(&tier, &mut Random::new(7), &mut model);
        let before = tier.stats().usage;
        let mut heard = Vec::new();
        tier.compact(&mut |done, all| heard.push((done, all))).unwrap();
        check(&tier, &model, &format!("{kind:?}"));
        assert!(heard.is_sorted_by_key(|(done, _)| *done), "{heard:?}");
        assert!(heard.iter().all(|(done, all)| done <= all), "{heard:?}");
        let usage = tier.stats().usage;
        let held = |usage: &Usage| usage.log_used_bytes + usage.ssd_used_bytes;
        assert!(held(&usage) < held(&before), "{kind:?}: {usage:?}");
        assert!(usage.log_used_bytes <= 4 * u64::from(SEGMENT_BYTES), "{kind:?}: {usage:?}");
        // What is no item's: superblocks, two checkpoints; of each value and table the last block.
        let live = usage.table_live_bytes + usage.large_live_bytes.unwrap();
        let block = BLOCK_BYTES as u64;
        let large = tier.stats().items.large;
        let fixed = (SUPER_BLOCKS + 2 * 12 + large + usage.tables + 8) * block;
        assert!(usage.ssd_used_bytes <= live * 10 / 8 + fixed, "{kind:?}: {usage:?}");
        // There is nothing left to do.
        let moved = tier.stats().moved_bytes;
        tier.compact(&mut |_, _| {}).unwrap();
        let again = tier.stats().moved_bytes - moved;
        assert!(again <= 4 * u64::from(SEGMENT_BYTES), "{kind:?}: {again} bytes moved again");
        drop(tier);
        let (tier, report) = machine.open(settings()).unwrap();
        assert!(report.problems.is_empty(), "{kind:?}: {report:?}");
        check(&tier, &model, &format!("{kind:?}, after a restart"));
    }
}

/// Does what is due until the compaction beside it has come to an end; before each turn `meanwhile`
/// is done. How it stands then.
fn run(tier: &Tier, mut meanwhile: impl FnMut()) -> Standing {
    let mut told = tier.stats().compaction;
    for _ in 0..100_000 {
        if told.standing != Standing::UnderWay {
            return told.standing;
        }
        meanwhile();
        let _ = tier.maintain();
        let now = tier.stats().compaction;
        assert!(told.done_bytes <= now.done_bytes && now.done_bytes <= now.all_bytes, "{now:?}");
        told = now;
    }
    panic!("it does not end: {told:?}");
}

#[test]
fn a_compaction_goes_on_beside_writes() {
    for kind in KINDS {
        let machine = Machine::sized(kind, &Faults::default(), SSD_BYTES);
        let (tier, _) = machine.open(settings()).unwrap();
        let mut model = Model::new();
        history(&tier, &mut Random::new(7), &mut model);
        let before = tier.stats().usage;
        assert!(tier.begin_compaction() && !tier.begin_compaction(), "one at a time");
        let mut version = 10_000;
        let standing = run(&tier, || {
            let key = key(version % 30);
            tier.put(&key, &value(version, 50), ItemMeta::default()).unwrap();
            model.insert(key, (version, 50));
            version += 1;
        });
        assert_eq!(standing, Standing::Done, "{kind:?}");
        let (usage, told) = (tier.stats().usage, tier.stats().compaction);
        let held = |usage: &Usage| usage.log_used_bytes + usage.ssd_used_bytes;
        assert!(held(&usage) < held(&before), "{kind:?}: {usage:?}, {before:?}");
        assert!(0 < told.done_bytes, "{kind:?}: {told:?}");
        check(&tier, &model, &format!("{kind:?}"));
        drop(tier);
        let (tier, report) = machine.open(settings()).unwrap();
        assert!(report.problems.is_empty(), "{kind:?}: {report:?}");
        check(&tier, &model, &format!("{kind:?}, after a restart"));
        assert_eq!(tier.stats().compaction.standing, Standing::None, "it ended with the store");
    }
}

#[test]
fn a_compaction_beside_others_is_no_faster_than_the_rate_and_can_be_given_up() {
    let machine = Machine::sized(Kind::Pm, &Faults::default(), SSD_BYTES);
    let (tier, _) = machine.open(settings()).unwrap();
    let now = Arc::new(AtomicU64::new(1));
    let clock = now.clone();
    tier.lend_clock(Box::new(move || clock.load(Relaxed)));
    let mut model = Model::new();
    history(&tier, &mut Random::new(7), &mut model);
    while tier.maintain().unwrap() {}
    tier.limit_migration(1);
    assert!(!tier.stop_compaction(), "there is none");
    let before = tier.stats();
    assert!(tier.begin_compaction());
    for _ in 0..100 {
        tier.maintain().unwrap();
    }
    let after = tier.stats();
    assert_eq!(after.compaction.standing, Standing::UnderWay, "the next turn is due in hours");
    let moved = after.moved_bytes - before.moved_bytes;
    assert!(0 < moved && moved <= 4 * u64::from(SEGMENT_BYTES), "{moved} bytes at once");
    now.store(u64::MAX, Relaxed);
    while tier.stats().compaction.done_bytes == after.compaction.done_bytes {
        assert!(tier.maintain().unwrap(), "it is due");
    }
    assert!(tier.stop_compaction() && !tier.stop_compaction());
    assert_eq!(run(&tier, || {}), Standing::Stopped);
    check(&tier, &model, "given up");
    tier.limit_migration(0);
    assert!(tier.begin_compaction(), "another");
    assert_eq!(run(&tier, || {}), Standing::Done);
    check(&tier, &model, "the second");
}

#[test]
fn a_compaction_that_makes_room_in_the_log_is_no_stall() {
    let machine = Machine::sized(Kind::Pm, &Faults::default(), SSD_BYTES);
    // Nothing leaves the log by itself.
    let settings = Settings { migrate_percent: 100, ..settings() };
    let (tier, _) = machine.open(settings).unwrap();
    let free_segments = || {
        let usage = tier.usage();
        (usage.log_bytes - usage.log_used_bytes) / u64::from(SEGMENT_BYTES)
    };
    // The next segment would be one of those that writes leave.
    let mut version = 0;
    while 3 < free_segments() {
        tier.put(&key(version % 100), &value(version, 300), ItemMeta::default()).unwrap();
        version += 1;
    }
    assert_eq!(tier.stats().stalls, 0);
    tier.compact(&mut |_, _| {}).unwrap();
    assert!(3 < free_segments());
    assert_eq!(tier.stats().stalls, 0, "nobody has waited for it");
}

/// Loses the power at an event of a compaction, twice at most, and looks at what is left.
fn explore(seed: u64) -> bool {
    let mut random = Random::new(seed);
    let kind = KINDS[random.below(3) as usize];
    let mut machine = Machine::sized(kind, &Faults::default(), SSD_BYTES);
    let (tier, _) = machine.open(settings()).unwrap();
    let mut model = Model::new();
    history(&tier, &mut random, &mut model);
    drop(tier);
    let mut was_cut = false;
    for cut in 0..2 {
        let what = format!(
            "TIER_COMPACT_SEED={seed} cargo test -p laneway-tier --test it condense: {kind:?}, \
             {cut}"
        );
        let (tier, _) = machine.open(settings()).unwrap();
        machine.power.restore(1 + random.below(80));
        was_cut |= tier.compact(&mut |_, _| {}).is_err();
        drop(tier);
        machine = machine.crashed(random.number(), &Faults::default(), u64::MAX);
        let (tier, report) = machine.open(settings()).unwrap_or_else(|why| panic!("{what}: {why}"));
        assert!(report.problems.is_empty(), "{what}: {:?}", report.problems);
        check(&tier, &model, &what);
    }
    // And then it comes to its end.
    let (tier, _) = machine.open(settings()).unwrap();
    tier.compact(&mut |_, _| {}).unwrap();
    check(&tier, &model, &format!("TIER_COMPACT_SEED={seed}: at the end"));
    was_cut
}

#[test]
fn nothing_is_lost_at_whatever_moment_the_power_fails() {
    let one = std::env::var("TIER_COMPACT_SEED").ok().and_then(|seed| seed.parse().ok());
    let seeds = one.map_or(0..100, |seed: u64| seed..seed + 1);
    let count = seeds.end - seeds.start;
    let cut = seeds.filter(|&seed| explore(seed)).count() as u64;
    assert!(one.is_some() || count / 2 < cut, "{cut} of {count} were interrupted");
}

#[test]
fn a_full_ssd_is_an_error_and_loses_nothing() {
    let machine = Machine::sized(Kind::Pm, &Faults::default(), 1 << 20);
    // Nothing leaves the log by itself.
    let settings = Settings { migrate_percent: 100, ..settings() };
    let (tier, _) = machine.open(settings).unwrap();
    let mut model = Model::new();
    for number in 0..60 {
        tier.put(&key(number), &value(number, 300), ItemMeta::default()).unwrap();
        model.insert(key(number), (number, 300));
    }
    let mut number = 100;
    while 0 < tier.stats().ssd_free_bytes {
        let bytes = (tier.stats().ssd_free_bytes as usize).min(8 * BLOCK_BYTES);
        tier.put(&key(number), &value(number, bytes), ItemMeta::default()).unwrap();
        model.insert(key(number), (number, bytes));
        number += 1;
    }
    assert!(number < 300);
    let full = tier.compact(&mut |_, _| {});
    assert!(matches!(full, Err(Error::SsdFull { .. })), "{full:?}");
    assert!(tier.begin_compaction());
    assert_eq!(run(&tier, || {}), Standing::Short);
    check(&tier, &model, "full");
    drop(tier);
    let (tier, report) = machine.open(settings).unwrap();
    assert!(report.problems.is_empty(), "{report:?}");
    check(&tier, &model, "full, after a restart");
    // With some room it does what it is asked.
    for number in 100..110 {
        tier.delete(&key(number)).unwrap();
        model.remove(&key(number));
    }
    tier.compact(&mut |_, _| {}).unwrap();
    check(&tier, &model, "with room");
}

/// Nothing can leave the log, and what can be merged needs a block.
#[test]
fn with_a_short_log_and_a_nearly_full_ssd_it_merges_what_it_can() {
    for beside in [false, true] {
        let machine = Machine::sized(Kind::Pm, &Faults::default(), 1 << 20);
        // Nothing leaves the log by itself.
        let settings = Settings { migrate_percent: 100, ..settings() };
        let (tier, _) = machine.open(settings).unwrap();
        let mut model = Model::new();
        let put = |model: &mut Model, number: u64, version: u64, bytes: usize| {
            tier.put(&key(number), &value(version, bytes), ItemMeta::default()).unwrap();
            model.insert(key(number), (version, bytes));
        };
        for number in 0..200 {
            put(&mut model, number, number, 300);
            while number % 25 == 24 && tier.migrate().unwrap() {}
        }
        while tier.migrate().unwrap() {}
        // A third of each sort table stays current.
        (0..200).filter(|n| n % 3 != 0).for_each(|number| put(&mut model, number, 1000, 20));
        let block = BLOCK_BYTES as u64;
        for number in 200.. {
            let spare = tier.stats().ssd_free_bytes - block;
            if spare == 0 {
                break;
            }
            put(&mut model, number, number, spare.min(8 * block) as usize);
        }
        let free_segments = || {
            let usage = tier.usage();
            (usage.log_bytes - usage.log_used_bytes) / u64::from(SEGMENT_BYTES)
        };
        for number in 250.. {
            if free_segments() <= 3 {
                break;
            }
            put(&mut model, number, number, 300);
        }
        let before = tier.stats();
        assert_eq!((before.ssd_free_bytes, free_segments()), (block, 3));
        if beside {
            assert!(tier.begin_compaction());
            assert_ne!(run(&tier, || {}), Standing::Failed);
        } else {
            let told = tier.compact(&mut |_, _| {});
            let is_short = matches!(told, Err(Error::SsdFull { .. } | Error::PmFull));
            assert!(told.is_ok() || is_short, "{told:?}");
        }
        let after = tier.stats();
        assert!(before.tables_freed + 2 < after.tables_freed, "{after:?}");
        check(&tier, &model, "short of room");
        assert!(tier.delete(&key(0)).unwrap(), "whoever makes room by deleting still can");
        model.remove(&key(0));
        drop(tier);
        let (tier, report) = machine.open(settings).unwrap();
        assert!(report.problems.is_empty(), "{report:?}");
        check(&tier, &model, "after a restart");
    }
}
