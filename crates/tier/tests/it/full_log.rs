//! What a store still does whose log and SSD are full.

use crate::common::{self, Kind, Machine, SSD_BYTES, newest_slot, value};
use laneway_tier::disk::Barrier;
use laneway_tier::disk::sim::Faults;
use laneway_tier::{BLOCK_BYTES, Durability, ItemMeta, Settings, Tier, Tried};

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

/// A store in which nothing more finds room, not even a deletion: the segments that puts may not
/// fill are full of deletions. And how many items it has.
fn full(machine: &Machine, settings: Settings) -> (Tier, u64) {
    let (tier, _) = machine.open(settings).unwrap();
    let held = fill_both(&tier);
    tier.commit().unwrap();
    drop(tier);
    let mut deleted = 0_u64;
    for _ in 0..8 {
        let (tier, _) = machine.open(settings).unwrap();
        let is_full = tier.pass_over(tier.sequence() + 1).is_err();
        // Of keys that were never there; what is in no group yet might be of them. Each takes one
        // line, and so leaves none over.
        while let Ok(Some(_)) = tier.submit_delete(&deleted.to_be_bytes(), None) {
            deleted += 1;
        }
        tier.commit().unwrap();
        drop(tier);
        if is_full {
            // A start goes on in the newest segment if that has room, and these have none.
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
fn a_put_that_a_full_log_refused_finds_room_once_items_have_expired() {
    for kind in KINDS {
        let (machine, settings) = (machine(kind), settings(Durability::Ack));
        let (tier, _) = machine.open(settings).unwrap();
        let held = fill_both(&tier);
        let put = || tier.put(&key(held), &value(held, 900), ItemMeta::default());
        // Nothing has changed since the one before.
        assert!(put().is_err() && put().is_err(), "{kind:?}");
        tier.tell_time(EXPIRES);
        put().unwrap_or_else(|error| panic!("{kind:?}: {error}"));
        assert_eq!(tier.get(&key(held)).unwrap().unwrap().value, value(held, 900), "{kind:?}");
    }
}

#[test]
fn a_deletion_is_taken_at_each_start_of_a_full_store() {
    for kind in KINDS {
        let (machine, settings) = (machine(kind), settings(Durability::Ack));
        let (tier, _) = machine.open(settings).unwrap();
        let held = fill_both(&tier);
        drop(tier);
        // The first begins a segment for it, and the others go on there.
        for start in 1..8 {
            let (tier, _) = machine.open(settings).unwrap();
            let deleted = tier.delete(&key(held - start));
            assert!(matches!(deleted, Ok(true)), "{kind:?}, start {start}: {deleted:?}");
            assert!(tier.look(&key(held - start)).is_none());
        }
    }
}

/// A state that a loss of power leaves in which the newest segment has its header, and what was
/// there `before` in the place of its first record.
fn torn_behind_header(machine: &Machine, before: &[u8], faults: &Faults) -> Machine {
    const SEEDS: u64 = 1 << 14;
    /// What a header takes that lists all segments but its own.
    const HEADER_BYTES: usize = 64 + 16 * 9;
    const LINE_BYTES: usize = 64;
    let now = machine.images().0;
    let start = newest_slot(&now, SEGMENT_BYTES) * SEGMENT_BYTES as usize;
    let records = start + BLOCK_BYTES;
    let (header, first) = (start..start + HEADER_BYTES, records..records + LINE_BYTES);
    assert!(now[first.clone()] != before[first.clone()], "nothing was written");
    let is_torn = |crashed: &Machine| {
        let log = crashed.images().0;
        log[header.clone()] == now[header.clone()] && log[first.clone()] == before[first.clone()]
    };
    let mut crashed = (0..SEEDS).map(|seed| machine.crashed(seed, faults, u64::MAX));
    crashed.find(is_torn).expect("one of so many states is that")
}

#[test]
fn no_segment_is_lost_to_starts_that_lose_their_power_in_the_first_group_of_one() {
    for kind in KINDS {
        let (filled, settings) = (machine(kind), settings(Durability::Ack));
        let (tier, _) = filled.open(settings).unwrap();
        let held = fill_both(&tier);
        drop(tier);
        let (log, ssd) = filled.images();
        let faults = Faults { ignored: [Barrier::Group].into(), ..Faults::default() };
        let mut machine = Machine::of(kind, &faults, u64::MAX, log, ssd);
        let mut began = None;
        for start in 1..6 {
            let (tier, report) = machine.open(settings).unwrap();
            assert_eq!(report.problems, [""; 0], "{kind:?}, start {start}");
            let before = machine.images().0;
            let deleted = tier.delete(&key(held - start));
            assert!(matches!(deleted, Ok(true)), "{kind:?}, start {start}: {deleted:?}");
            // The group is the first of this start, so that its power may as well fail within it.
            assert_eq!(tier.stats().groups, 1, "{kind:?}, start {start}");
            let generation = tier.durable().generation;
            assert_eq!(*began.get_or_insert(generation), generation, "{kind:?}, start {start}");
            drop(tier);
            machine = torn_behind_header(&machine, &before, &faults);
        }
        let (log, ssd) = machine.images();
        let machine = Machine::of(kind, &Faults::default(), u64::MAX, log, ssd);
        let (tier, report) = machine.open(settings).unwrap();
        assert_eq!((report.items, &report.problems[..]), (held, &[][..]), "{kind:?}");
        assert!(tier.delete(&key(held - 1)).unwrap(), "{kind:?}");
        drop(tier);
        let (tier, report) = machine.open(settings).unwrap();
        assert_eq!((report.items, &report.problems[..]), (held - 1, &[][..]), "{kind:?}");
        assert!(tier.look(&key(held - 1)).is_none(), "{kind:?}");
    }
}

/// Where the last three records, all of this length, are a group that was torn: the first is whole,
/// and so is the third, but of the second the first line is missing.
fn torn_in_its_midst(machine: &Machine, kind: Kind, end: u32, record_bytes: u32) -> Machine {
    let (mut log, ssd) = machine.images();
    let start = newest_slot(&log, SEGMENT_BYTES) * SEGMENT_BYTES as usize;
    let second = start + (end - 2 * record_bytes) as usize;
    log[second..][..64].fill(0);
    Machine::of(kind, &Faults::default(), u64::MAX, log, ssd)
}

#[test]
fn no_segment_is_lost_to_starts_behind_a_group_that_has_some_whole_records() {
    /// Of a deletion of a key of nine bytes.
    const RECORD_BYTES: u32 = 128;
    for kind in KINDS {
        let (mut machine, settings) = (machine(kind), settings(Durability::Ack));
        let (tier, _) = machine.open(settings).unwrap();
        let mut held = fill_both(&tier);
        drop(tier);
        let mut began = None;
        for start in 1..6 {
            let (tier, report) = machine.open(settings).unwrap();
            let told = (report.items, &report.problems[..]);
            assert_eq!(told, (held, &[][..]), "{kind:?}, start {start}");
            for gone in 1..=3 {
                let deleted = tier.submit_delete(&key(held - gone), None);
                assert!(matches!(deleted, Ok(Some(_))), "{kind:?}, start {start}: {deleted:?}");
            }
            tier.commit().unwrap();
            let end = tier.durable();
            assert_eq!(*began.get_or_insert(end.generation), end.generation, "{kind:?}");
            drop(tier);
            machine = torn_in_its_midst(&machine, kind, end.offset, RECORD_BYTES);
            held -= 1;
        }
        let (tier, report) = machine.open(settings).unwrap();
        assert_eq!((report.items, &report.problems[..]), (held, &[][..]), "{kind:?}");
        // It ends where the third record of the torn group began.
        assert!(tier.delete(&key(held - 1)).unwrap(), "{kind:?}");
        drop(tier);
        let (tier, report) = machine.open(settings).unwrap();
        assert_eq!((report.items, &report.problems[..]), (held - 1, &[][..]), "{kind:?}");
        assert!(tier.look(&key(held - 1)).is_none(), "{kind:?}");
        assert!(tier.look(&key(held - 2)).is_some(), "{kind:?}: that one was of the torn group");
    }
}

#[test]
fn where_groups_are_padded_no_start_goes_on_within_a_block() {
    for (kind, pads) in KINDS.into_iter().flat_map(|kind| [(kind, false), (kind, true)]) {
        let (machine, settings) = (machine(kind), settings(Durability::Ack));
        let (tier, _) = machine.open(settings).unwrap();
        let held = fill_both(&tier);
        drop(tier);
        let delete = |pads: bool, gone: u64| {
            let settings = Settings { pad_groups: pads, ..settings };
            let (tier, report) = machine.open(settings).unwrap();
            assert_eq!(report.problems, [""; 0], "{kind:?}");
            assert!(tier.delete(&key(held - gone)).unwrap(), "{kind:?}");
            tier.durable().generation
        };
        let first = delete(false, 1);
        assert_eq!(first == delete(pads, 2), !pads, "{kind:?}");
        // Behind a group that was padded any start may.
        let padded = delete(true, 3);
        assert_eq!(padded, delete(true, 4), "{kind:?}");
    }
}

#[test]
fn puts_leave_the_segment_that_a_deletion_began_to_the_deletions_behind_it() {
    for kind in KINDS {
        let (machine, settings) = (machine(kind), settings(Durability::Ack));
        let (tier, _) = machine.open(settings).unwrap();
        let held = fill_both(&tier);
        drop(tier);
        let (tier, _) = machine.open(settings).unwrap();
        // Each is of an item in another segment, so that no segment is worth emptying.
        for gone in 1..5 {
            let deleted = tier.delete(&key(held - 60 * gone));
            assert!(matches!(deleted, Ok(true)), "{kind:?}, deletion {gone}: {deleted:?}");
            let first = held + 2000 * gone;
            fill(&tier, first, 900);
            fill(&tier, first + 1000, 1);
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
