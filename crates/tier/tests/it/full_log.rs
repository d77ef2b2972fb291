//! What a store still does whose log and SSD are full.

use crate::common::{self, Kind, Machine, SSD_BYTES, value};
use laneway_tier::disk::sim::Faults;
use laneway_tier::{Durability, ItemMeta, Settings, Tier, Tried};

const KINDS: [Kind; 2] = [Kind::Pm, Kind::Wal];
/// So long that what is current of a full one is more than migration appends again.
const SEGMENT_BYTES: u32 = 64 << 10;
/// When all items but the first end.
const EXPIRES: u32 = 100;
/// As many sequences as a start of the server leaves out.
const PASSED_OVER: u64 = 1 << 30;

fn key(number: u64) -> Vec<u8> {
    format!("key-{number:05}").into_bytes()
}

fn machine(kind: Kind) -> Machine {
    let log = vec![0; 10 * SEGMENT_BYTES as usize];
    Machine::of(kind, &Faults::default(), u64::MAX, log, vec![0; SSD_BYTES])
}

fn settings(durability: Durability) -> Settings {
    Settings { segment_bytes: SEGMENT_BYTES, durability, ..common::settings() }
}

/// Puts values until there is no room for one, from this number on; says how many found some.
fn fill(tier: &Tier, first: u64, bytes: usize) -> u64 {
    let meta = ItemMeta { expires_at_seconds: EXPIRES, ..ItemMeta::default() };
    let is_refused = |number: &u64| tier.put(&key(*number), &value(*number, bytes), meta).is_err();
    (first..).find(is_refused).expect("a store has an end") - first
}

/// Fills SSD and log; how many items there are.
fn fill_both(tier: &Tier) -> u64 {
    tier.put(&key(0), &value(0, 900), ItemMeta::default()).unwrap();
    let large = fill(tier, 1, 4000);
    assert!(300 < large, "{large} values of a block each");
    1 + large + fill(tier, 1 + large, 900)
}

/// A store in which nothing more finds room, not even a deletion: what it passes over begins the
/// segments that puts may not begin, and they fill these. And how many items it has.
fn full(machine: &Machine, settings: Settings) -> (Tier, u64) {
    let (tier, _) = machine.open(settings).unwrap();
    let mut held = fill_both(&tier);
    tier.commit().unwrap();
    drop(tier);
    for _ in 0..8 {
        let (tier, _) = machine.open(settings).unwrap();
        let is_full = tier.pass_over(tier.sequence() + 1).is_err();
        held += fill(&tier, held, 900);
        tier.commit().unwrap();
        drop(tier);
        if is_full {
            // A start goes on in no segment of before, whatever room that has.
            return (machine.open(settings).unwrap().0, held);
        }
    }
    panic!("the log is never full");
}

#[test]
fn what_a_start_passes_over_is_durable_before_any_write_though_the_log_was_full_then() {
    for kind in KINDS {
        let (machine, settings) = (machine(kind), settings(Durability::Interval));
        let (tier, held) = full(&machine, settings);
        let passed = tier.sequence() + PASSED_OVER;
        tier.pass_over_first(passed).unwrap();
        assert!(tier.sequence() < passed, "{kind:?}: it has no room");
        // Somebody else makes some.
        tier.tell_time(EXPIRES);
        let emptied = (0..8).filter(|_| tier.migrate().is_ok_and(|emptied| emptied));
        assert!(0 < emptied.count(), "{kind:?}");
        let (sequence, meta) = (passed + 64, ItemMeta::default());
        let (new, value) = (key(held), value(held, 100));
        let tried = tier.try_put(&new, &value, meta, sequence).unwrap();
        assert!(matches!(tried, Tried::Waits(())), "{kind:?}: {tried:?}");
        let tried = tier.try_delete(&key(0), sequence).unwrap();
        assert!(matches!(tried, Tried::Waits(())), "{kind:?}: {tried:?}");
        tier.submit_put(&new, &value, meta, Some(sequence)).unwrap();
        assert_eq!(tier.get(&new).unwrap().unwrap().value, value, "{kind:?}: clients see it");
        let tried = tier.try_put(&new, &value, meta, sequence + 64).unwrap();
        assert!(matches!(tried, Tried::Done(_)), "{kind:?}: {tried:?}");
        // Nothing of it was made durable, and the next start must not give its number out again.
        for seed in 0..8 {
            let crashed = machine.crashed(seed, &Faults::default(), u64::MAX);
            let (tier, _) = crashed.open(settings).unwrap();
            assert!(passed <= tier.sequence(), "{kind:?}: {passed}, {}", tier.sequence());
        }
    }
}

#[test]
fn a_deletion_is_taken_at_each_start_of_a_full_store() {
    for kind in KINDS {
        let (machine, settings) = (machine(kind), settings(Durability::Ack));
        let (tier, _) = machine.open(settings).unwrap();
        let held = fill_both(&tier);
        drop(tier);
        // Each begins a segment for it, and migration empties the one of the start before.
        for start in 1..8 {
            let (tier, _) = machine.open(settings).unwrap();
            let deleted = tier.delete(&key(held - start));
            assert!(matches!(deleted, Ok(true)), "{kind:?}, start {start}: {deleted:?}");
            assert!(tier.look(&key(held - start)).is_none());
        }
    }
}

#[test]
fn everything_is_deleted_where_one_deletion_finds_no_room_and_then_there_is_some() {
    for (kind, owes) in KINDS.into_iter().flat_map(|kind| [(kind, false), (kind, true)]) {
        let (machine, settings) = (machine(kind), settings(Durability::Ack));
        let (tier, held) = full(&machine, settings);
        let passed = tier.sequence() + PASSED_OVER;
        if owes {
            tier.pass_over_first(passed).unwrap();
        }
        assert!(tier.delete(&key(0)).is_err(), "{kind:?}: there is room");
        let flushed = tier.flush_all();
        assert!(flushed.is_ok(), "{kind:?}, owes: {owes}: {flushed:?}");
        // A start has both segments again, whatever becomes of the first that it begins.
        let usage = tier.usage();
        let free = usage.log_bytes - usage.log_used_bytes;
        assert!(2 * u64::from(SEGMENT_BYTES) <= free, "{kind:?}, owes: {owes}: {free} bytes");
        assert!((0..held).all(|number| tier.get(&key(number)).unwrap().is_none()), "{kind:?}");
        // The power fails here, or later on.
        let (crashed, _) = machine.crashed(1, &Faults::default(), u64::MAX).open(settings).unwrap();
        for tier in [&tier, &crashed] {
            assert_eq!(owes, passed <= tier.sequence(), "{kind:?}");
            for number in 0..200 {
                tier.put(&key(number), &value(number, 900), ItemMeta::default()).unwrap();
            }
        }
        drop(tier);
        let (tier, report) = machine.open(settings).unwrap();
        assert_eq!((report.items, &report.problems[..]), (200, &[][..]), "{kind:?}");
        (0..200).for_each(|number| {
            assert_eq!(tier.get(&key(number)).unwrap().unwrap().value, value(number, 900));
        });
    }
}
