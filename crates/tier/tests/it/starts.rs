//! Starts on media that have lost something: what can be read of what was acknowledged is there,
//! and what cannot is told.

use crate::common::{Kind, Machine, SEGMENT_BYTES, newest_slot, settings, value};
use laneway_tier::disk::sim::Faults;
use laneway_tier::{Error, ItemMeta, Tier};
use std::collections::BTreeSet;

const BLOCK: usize = laneway_tier::BLOCK_BYTES;

fn put(tier: &Tier, key: &str, version: u64, bytes: usize) {
    tier.put(key.as_bytes(), &value(version, bytes), ItemMeta::default()).unwrap();
}

/// Nobody vouches for the last group; whether it was acknowledged no start can tell.
#[test]
fn a_value_of_the_last_group_that_cannot_be_read_is_told_and_hides_nothing_behind_it() {
    for kind in [Kind::Pm, Kind::Wal] {
        let machine = Machine::new(kind, &Faults::default());
        let (tier, _) = machine.open(settings()).unwrap();
        put(&tier, "large", 1, 5000);
        put(&tier, "other", 1, 100);
        tier.submit_put(b"large", &value(2, 5000), ItemMeta::default(), None).unwrap();
        tier.submit_put(b"behind", &value(3, 5000), ItemMeta::default(), None).unwrap();
        tier.commit().unwrap();
        drop(tier);
        let (log, ssd) = machine.images();
        let wanted = value(2, 5000);
        let at = ssd.windows(wanted.len()).position(|bytes| bytes == wanted).unwrap();
        let unreadable = [(at / BLOCK) as u64].into();
        let machine = Machine::of(kind, &Faults::default(), u64::MAX, log, ssd);
        machine.ssd.set_faults(Faults { unreadable, ..Faults::default() });
        let (tier, report) = machine.open(settings()).unwrap();
        assert_eq!(report.problems.len(), 1);
        assert!(report.problems[0].starts_with("key large: "), "{:?}", report.problems);
        assert_eq!(tier.get(b"behind").unwrap().unwrap().value, value(3, 5000));
        assert!(matches!(tier.get(b"large"), Err(Error::Io { .. })), "not its older value");
        put(&tier, "later", 4, 5000);
        machine.ssd.set_faults(Faults::default());
        assert_eq!(tier.get(b"large").unwrap().unwrap().value, value(2, 5000));
    }
}

fn newest(log: &[u8]) -> usize {
    newest_slot(log, SEGMENT_BYTES)
}

/// Its header and its first records read as zeros, as those of a slot that was never used do.
#[test]
fn a_newest_segment_that_has_lost_its_front_is_told_and_the_rest_of_it_is_served() {
    const FRONT: usize = 2 * BLOCK;
    let machine = Machine::new(Kind::Wal, &Faults::default());
    let (tier, _) = machine.open(settings()).unwrap();
    let mut looked_at = BTreeSet::new();
    for number in 0..400 {
        put(&tier, &format!("key-{}", number % 60), number, 900);
        tier.maintain().unwrap();
        // Where nothing else was written there is nothing to be seen of it.
        let (mut log, ssd) = machine.images();
        let slot = newest(&log);
        let behind = (FRONT + BLOCK) as u32;
        if tier.durable().offset < behind || !looked_at.insert((slot, number / 40)) {
            continue;
        }
        log[slot * SEGMENT_BYTES as usize..][..FRONT].fill(0);
        let machine = Machine::of(Kind::Wal, &Faults::default(), u64::MAX, log, ssd);
        let (tier, report) = machine.open(settings()).unwrap();
        assert!(
            report.problems.iter().any(|what| what.ends_with("the newest, has no whole header")),
            "after write {number}, slot {slot}: {:?}",
            report.problems
        );
        let is_there = |written: &u64| {
            let item = tier.get(format!("key-{}", written % 60).as_bytes());
            item.is_ok_and(|item| item.is_some_and(|item| item.value == value(*written, 900)))
        };
        let written = (number + 1).saturating_sub(60)..number + 1;
        let lost = written.filter(|written| !is_there(written)).count();
        assert!(lost <= FRONT.div_ceil(900), "after write {number}, slot {slot}: {lost} are lost");
    }
    let slots: BTreeSet<usize> = looked_at.iter().map(|(slot, _)| *slot).collect();
    assert!(5 <= slots.len(), "in slots {slots:?} only");
}

/// Lets the power fail in the first group of a segment: its header (what was there before it is
/// again) and its first record are lost, records behind them are not.
fn torn_in_front(machine: &Machine, slot: usize, before: &[u8]) -> Machine {
    let (mut log, ssd) = machine.images();
    let start = slot * SEGMENT_BYTES as usize;
    log[start..][..BLOCK].copy_from_slice(&before[start..][..BLOCK]);
    log[start + BLOCK..][..64].fill(0);
    Machine::of(Kind::Pm, &Faults::default(), u64::MAX, log, ssd)
}

#[test]
fn what_a_torn_first_group_left_behind_never_counts_as_of_the_segments_next_life() {
    const KEY: &str = "key-99";
    let machine = Machine::new(Kind::Pm, &Faults::default());
    let (tier, _) = machine.open(settings()).unwrap();
    let mut fronts = BTreeSet::new();
    let mut version = 0;
    // Records of one length, so that those of the next life end where others of this one begin.
    let mut submit = |key: &str| {
        version += 1;
        let value = value(version, 900);
        tier.submit_put(key.as_bytes(), &value, ItemMeta::default(), None).unwrap();
        value
    };
    for number in 0..400 {
        let before = machine.images().0;
        let acknowledged = submit(&format!("key-{:02}", number % 60));
        let slot = newest(&machine.images().0);
        let is_new = number == 0 || slot != newest(&before);
        if is_new {
            (0..5).for_each(|_| drop(submit(KEY)));
            let machine = torn_in_front(&machine, slot, &before);
            let (tier, report) = machine.open(settings()).unwrap();
            assert_eq!(report.problems, [""; 0], "write {number}: nothing is damaged");
            let meta = ItemMeta::default();
            tier.put(KEY.as_bytes(), &acknowledged, meta).unwrap();
            drop(tier);
            let (tier, report) = machine.open(settings()).unwrap();
            assert_eq!(report.problems, [""; 0], "write {number}: nothing is damaged");
            let found = tier.get(KEY.as_bytes()).unwrap().unwrap().value;
            assert!(found == acknowledged, "write {number}: not what was acknowledged last");
            let start = slot * SEGMENT_BYTES as usize;
            fronts.insert(before[start..][..BLOCK].iter().any(|&byte| byte != 0));
        }
        tier.commit().unwrap();
        tier.maintain().unwrap();
    }
    assert_eq!(fronts.len(), 2, "in slots that were never used and in others");
}

#[test]
fn what_a_start_cut_off_stays_so_when_the_header_behind_it_is_damaged() {
    for kind in [Kind::Pm, Kind::Wal] {
        let machine = Machine::new(kind, &Faults::default());
        let (tier, _) = machine.open(settings()).unwrap();
        put(&tier, "key", 1, 100);
        // The power fails when the records are durable and the value is not.
        tier.submit_put(b"large", &value(2, 5000), ItemMeta::default(), None).unwrap();
        for version in 3..9 {
            tier.submit_put(b"key", &value(version, 100), ItemMeta::default(), None).unwrap();
        }
        let ssd = machine.images().1;
        tier.commit().unwrap();
        drop(tier);
        let log = machine.images().0;
        let machine = Machine::of(kind, &Faults::default(), u64::MAX, log, ssd);
        let (tier, report) = machine.open(settings()).unwrap();
        assert_eq!(report.problems, [""; 0]);
        assert_eq!(tier.get(b"key").unwrap().unwrap().value, value(1, 100));
        put(&tier, "key", 10, 100);
        put(&tier, "other", 11, 100);
        drop(tier);
        let (mut log, ssd) = machine.images();
        let start = newest(&log) * SEGMENT_BYTES as usize;
        log[start..][..BLOCK].fill(0);
        let machine = Machine::of(kind, &Faults::default(), u64::MAX, log, ssd);
        let (tier, report) = machine.open(settings()).unwrap();
        assert_eq!(report.problems.len(), 1, "{:?}", report.problems);
        let found = tier.get(b"key").unwrap().unwrap().value;
        assert!(found == value(10, 100), "{kind:?}: not what was acknowledged last");
        assert_eq!(tier.get(b"large").unwrap(), None);
    }
}

#[test]
fn a_value_that_cannot_be_read_is_told_when_a_torn_segment_follows_it() {
    let machine = Machine::new(Kind::Pm, &Faults::default());
    let (tier, _) = machine.open(settings()).unwrap();
    put(&tier, "large", 1, 5000);
    drop(tier);
    let (tier, _) = machine.open(settings()).unwrap();
    let before = machine.images().0;
    for version in 2..5 {
        tier.submit_put(b"next", &value(version, 900), ItemMeta::default(), None).unwrap();
    }
    let slot = newest(&machine.images().0);
    let torn = torn_in_front(&machine, slot, &before);
    let ssd = torn.images().1;
    let wanted = value(1, 5000);
    let at = ssd.windows(wanted.len()).position(|bytes| bytes == wanted).unwrap();
    torn.ssd.set_faults(Faults { unreadable: [(at / BLOCK) as u64].into(), ..Faults::default() });
    let (tier, report) = torn.open(settings()).unwrap();
    assert_eq!(report.problems.len(), 1, "{:?}", report.problems);
    assert!(report.problems[0].starts_with("key large: "), "{:?}", report.problems);
    assert!(matches!(tier.get(b"large"), Err(Error::Io { .. })));
    assert_eq!(tier.get(b"next").unwrap(), None);
}
