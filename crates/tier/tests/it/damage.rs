//! Damage at rest is told, also where what would have told of it is damaged too.

use crate::common::{Counting, Kind, Machine, PM_BYTES, settings, value};
use laneway_tier::disk::sim::Faults;
use laneway_tier::{BLOCK_BYTES, ItemMeta, Media, Settings, Tier, fsck};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A superblock of 65 536 bytes, and where its number is.
const SUPERBLOCK_BYTES: usize = 65_536;
const NUMBER_AT: usize = 40;

fn place_of(ssd: &[u8], value: &[u8]) -> usize {
    let mut blocks = ssd.chunks(BLOCK_BYTES).position(|block| block.starts_with(&value[..64]));
    blocks.take().expect("the value is on the SSD") * BLOCK_BYTES
}

#[test]
fn a_log_that_is_cut_where_only_a_damaged_superblock_vouched_for_it_is_told() {
    for kind in [Kind::Pm, Kind::Wal] {
        let machine = Machine::new(kind, &Faults::default());
        let (tier, _) = machine.open(settings()).unwrap();
        let large = value(1, 3000);
        tier.put(b"large", &large, ItemMeta::default()).unwrap();
        tier.checkpoint().unwrap();
        drop(tier);
        let (log, ssd) = machine.images();
        let number = |slot: usize| ssd[slot * SUPERBLOCK_BYTES + NUMBER_AT];
        let newest = if number(0) < number(1) { 1 } else { 0 };
        for (superblock, value) in [(false, true), (true, false), (true, true)] {
            let mut ssd = ssd.clone();
            let at = place_of(&ssd, &large);
            ssd[at + 5] ^= u8::from(value);
            ssd[newest * SUPERBLOCK_BYTES + NUMBER_AT] ^= u8::from(superblock);
            let damaged = Machine::of(kind, &Faults::default(), u64::MAX, log.clone(), ssd);
            let (tier, report) = damaged.open(settings()).unwrap();
            let tells_of_log = report.problems.iter().any(|problem| problem.contains("is cut"));
            assert_eq!(tells_of_log, superblock && value, "{report:?}");
            match tier.get(b"large") {
                Ok(None) => assert!(tells_of_log),
                Ok(Some(item)) => assert!(!value && item.value == large),
                Err(error) => assert!(value, "{error}"),
            }
        }
    }
}

/// Damages the records of sort tables, all or those of one key.
fn damage_records(ssd: &mut [u8], key: Option<u64>) {
    for at in (2 * SUPERBLOCK_BYTES..ssd.len() - 64).step_by(8) {
        let is_of_key = key.is_none_or(|key| ssd[at + 48..at + 56] == key.to_be_bytes());
        if ssd[at..].starts_with(&[0x4c, 0x57]) && is_of_key {
            ssd[at + 60] ^= 0x81;
        }
    }
}

#[test]
fn a_damaged_sort_table_is_read_once_and_freed_once_nothing_of_it_is_current() {
    let machine = Machine::new(Kind::Pm, &Faults::default());
    let (tier, _) = machine.open(settings()).unwrap();
    for number in 0..200u64 {
        tier.put(&number.to_be_bytes(), &value(number, 200), ItemMeta::default()).unwrap();
    }
    while tier.migrate().unwrap() {}
    tier.checkpoint().unwrap();
    let tables = tier.stats().tables;
    assert!(tables > 0, "some were migrated");
    drop(tier);
    let (log, mut ssd) = machine.images();
    damage_records(&mut ssd, Some(3));
    let damaged = Machine::of(Kind::Pm, &Faults::default(), u64::MAX, log, ssd);
    let reads = Arc::new(AtomicU64::new(0));
    let ssd = Arc::new(Counting(damaged.ssd.clone(), reads.clone()));
    let media = Media { ssd, ..damaged.media() };
    let (tier, _) = Tier::open(media, settings(), 5, &mut |_, _| {}).unwrap();
    assert!(tier.get(&3u64.to_be_bytes()).is_err(), "its table has it, and it is damaged");
    for number in (0..200u64).filter(|number| *number != 3 && *number != 4) {
        tier.delete(&number.to_be_bytes()).unwrap();
    }
    while tier.maintain().unwrap() {}
    assert!(tier.get(&4u64.to_be_bytes()).unwrap().is_some(), "what can be read is served");
    let before = reads.load(Relaxed);
    assert!(!tier.maintain().unwrap());
    assert_eq!(reads.load(Relaxed), before, "the table is read again, and in vain");
    tier.delete(&3u64.to_be_bytes()).unwrap();
    tier.delete(&4u64.to_be_bytes()).unwrap();
    while tier.maintain().unwrap() {}
    assert_eq!(tier.stats().tables, 0, "its room is lost");
}

#[test]
fn a_checkpoint_for_which_there_is_no_room_is_not_tried_again_until_there_may_be_some() {
    let settings = Settings { checkpoint_bytes: 4096, ..settings() };
    let (tier, _) = Machine::new(Kind::Pm, &Faults::default()).open(settings).unwrap();
    let mut number = 0u64;
    for bytes in [60_000, 8000, 4096] {
        while tier.put(&number.to_be_bytes(), &value(number, bytes), ItemMeta::default()).is_ok() {
            number += 1;
        }
    }
    let _ = tier.maintain();
    let refused = tier.stats().checkpoints_refused;
    assert!(refused > 0, "there is no room for one");
    for _ in 0..3 {
        assert!(!tier.maintain().unwrap());
    }
    assert_eq!(tier.stats().checkpoints_refused, refused);
    tier.delete(&0u64.to_be_bytes()).unwrap();
    // Its blocks are free once another group vouches for that of the deletion.
    (0..2u64).for_each(|n| drop(tier.put(&n.to_le_bytes(), b"small", ItemMeta::default())));
    while tier.maintain().unwrap() {}
    assert!(tier.stats().checkpoints > 0, "there is room again: {:?}", tier.stats());
}

#[test]
fn a_repair_of_more_items_than_the_log_has_room_for_deletions_comes_to_an_end() {
    const KEYS: u64 = 1700;
    let machine = Machine::new(Kind::Pm, &Faults::default());
    let (tier, _) = machine.open(settings()).unwrap();
    for number in 0..KEYS {
        tier.put(&number.to_be_bytes(), &value(number, 200), ItemMeta::default()).unwrap();
    }
    while tier.maintain().unwrap() {}
    let free = PM_BYTES - tier.stats().log_used_bytes as usize;
    tier.close().unwrap();
    let (log, mut ssd) = machine.images();
    damage_records(&mut ssd, None);
    let damaged = Machine::of(Kind::Pm, &Faults::default(), u64::MAX, log, ssd);
    let found = fsck::repair(damaged.media(), settings()).unwrap();
    let deletions = 64 * found.lost.len();
    assert!(free < deletions, "{} are lost, whose deletions fit", found.lost.len());
    let after = fsck::check(damaged.media(), settings()).unwrap();
    assert!(after.is_sound(), "{:?}", after.report);
    assert_eq!(after.items + found.lost.len() as u64, KEYS);
}
