//! A store whose index is in persistent memory: what a start reads, what is refused, and that a
//! check writes nothing.

use crate::common::{Kind, Machine, settings, value};
use laneway_tier::disk::sim::{Faults, Random};
use laneway_tier::{Durability, Error, IndexKind, ItemMeta, Report, Settings, Tier, fsck};
use std::collections::BTreeMap;

const KEYS: u64 = 2000;
/// Written again between the last checkpoint and the loss of power.
const AGAIN: u64 = 60;

fn large_machine(kind: Kind) -> Machine {
    let faults = Faults::default();
    Machine::of(kind, &faults, u64::MAX, vec![0; 4 << 20], vec![0; 16 << 20])
}

fn settings_with(index: IndexKind) -> Settings {
    Settings {
        index: Some(index),
        segment_bytes: 64 << 10,
        table_bytes: 64 << 10,
        checkpoint_bytes: 1 << 20,
        ..settings()
    }
}

fn key(number: u64) -> Vec<u8> {
    format!("a-key-of-some-length-{number:06}").into_bytes()
}

fn put(tier: &Tier, number: u64, version: u64) {
    let bytes = if number.is_multiple_of(50) { 3000 } else { 100 };
    let value = value(version + number, bytes);
    tier.put(&key(number), &value, ItemMeta::default()).unwrap();
    if number.is_multiple_of(16) {
        while tier.maintain().unwrap() {}
    }
}

fn is_all_there(tier: &Tier, versions: impl Fn(u64) -> u64) {
    for number in 0..KEYS {
        let item = tier.get(&key(number)).unwrap().expect("it was acknowledged");
        assert_eq!(item.value, value(versions(number) + number, item.value.len()), "{number}");
    }
    assert_eq!(tier.scan(b"", None, usize::MAX).len() as u64, KEYS);
}

/// Starts after a clean end, and after a loss of power with writes behind the last checkpoint.
fn starts(index: IndexKind) -> (Report, Report) {
    let kind = if index == IndexKind::Fair { Kind::PmFair } else { Kind::Pm };
    let settings = settings_with(index);
    let machine = large_machine(kind);
    let (tier, _) = machine.open(settings).unwrap();
    (0..KEYS).for_each(|number| put(&tier, number, 0));
    tier.close().unwrap();
    let (tier, clean) = machine.open(settings).unwrap();
    assert_eq!((tier.stats().index, clean.items), (index, KEYS));
    is_all_there(&tier, |_| 0);
    let mut random = Random::new(1);
    let again: Vec<u64> = (0..AGAIN).map(|_| random.below(KEYS)).collect();
    for number in &again {
        tier.put(&key(*number), &value(1000 + number, 100), ItemMeta::default()).unwrap();
    }
    drop(tier);
    let crashed = machine.crashed(7, &Faults::default(), u64::MAX);
    let (tier, dirty) = crashed.open(Settings { index: None, ..settings }).unwrap();
    assert_eq!((tier.stats().index, dirty.items), (index, KEYS));
    assert_eq!((clean.problems.len(), dirty.problems.len()), (0, 0));
    is_all_there(&tier, |number| if again.contains(&number) { 1000 } else { 0 });
    (clean, dirty)
}

#[test]
fn a_start_reads_no_entry_of_an_index_in_persistent_memory() {
    let (btree_clean, btree_dirty) = starts(IndexKind::BTree);
    let (fair_clean, fair_dirty) = starts(IndexKind::Fair);
    println!(
        "{KEYS} items, entries read at a start: btree {} after a clean end, {} after a loss of \
         power {AGAIN} writes behind the checkpoint; fair {} and {}. Bytes of checkpoint: {} and \
         {}",
        btree_clean.entries_read,
        btree_dirty.entries_read,
        fair_clean.entries_read,
        fair_dirty.entries_read,
        btree_clean.checkpoint_bytes,
        fair_clean.checkpoint_bytes,
    );
    assert!(KEYS <= btree_clean.entries_read && KEYS <= btree_dirty.entries_read);
    assert_eq!(fair_clean.entries_read, 0);
    // What came and what went for each write, and the last group once more from the log.
    assert!(fair_dirty.entries_read <= 2 * AGAIN + 2, "{}", fair_dirty.entries_read);
}

fn refused(kind: Kind, settings: Settings) -> String {
    let machine = large_machine(kind);
    match machine.open(settings) {
        Err(error @ (Error::Setting(_) | Error::Mismatch(_))) => error.to_string(),
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("it opened"),
    }
}

#[test]
fn what_cannot_work_is_refused_and_says_why() {
    let fair = settings_with(IndexKind::Fair);
    assert!(refused(Kind::Wal, fair).contains("--pm-backend dax"));
    let interval = Settings { durability: Durability::Interval, ..fair };
    assert!(refused(Kind::PmFair, interval).contains("--durability ack"));
    let tiny = Settings { segment_bytes: 512 << 10, ..fair };
    assert!(refused(Kind::PmFair, tiny).contains("--pm-size"));
    for (made, asked) in [(IndexKind::Fair, IndexKind::BTree), (IndexKind::BTree, IndexKind::Fair)]
    {
        let machine = large_machine(Kind::PmFair);
        let (tier, _) = machine.open(settings_with(made)).unwrap();
        tier.put(b"key", b"value", ItemMeta::default()).unwrap();
        tier.close().unwrap();
        let text = machine.open(settings_with(asked)).err().expect("another index").to_string();
        assert!(text.contains(made.name()) && text.contains("--pm-index"), "{text}");
        let asked_nothing = Settings { index: None, ..settings_with(made) };
        let (tier, _) = machine.open(asked_nothing).unwrap();
        assert_eq!(tier.get(b"key").unwrap().unwrap().value, b"value");
    }
}

#[test]
fn a_check_writes_nothing_and_reads_all() {
    let settings = settings_with(IndexKind::Fair);
    let machine = large_machine(Kind::PmFair);
    let (tier, _) = machine.open(settings).unwrap();
    (0..KEYS).for_each(|number| put(&tier, number, 0));
    drop(tier); // without a checkpoint of the last writes
    let before = machine.images();
    let findings = fsck::check(machine.media(), settings).unwrap();
    assert!(findings.is_sound(), "{findings:?}");
    assert_eq!((findings.items, findings.report.entries_read >= KEYS), (KEYS, true));
    assert!(machine.images() == before, "a check wrote");
    // A node that leads nowhere is found.
    let (mut log, ssd) = before;
    let half = log.len() / 2;
    let node = (half..log.len()).step_by(64).filter(|at| log[at + 4..at + 8] == *b"EDON").nth(3);
    let sibling = node.expect("thousands of keys have many nodes") + 8;
    log[sibling..sibling + 8].copy_from_slice(&u64::MAX.to_le_bytes());
    let damaged = Machine::of(Kind::PmFair, &Faults::default(), u64::MAX, log, ssd);
    let findings = fsck::check(damaged.media(), settings).unwrap();
    assert!(findings.report.problems.iter().any(|p| p.contains("index")), "{findings:?}");
}

#[test]
fn an_index_without_room_refuses_items_and_keeps_those_it_has() {
    let settings = Settings { index: Some(IndexKind::Fair), ..settings() };
    let machine = Machine::new(Kind::PmFair, &Faults::default());
    let (tier, _) = machine.open(settings).unwrap();
    let mut held = 0;
    let full = loop {
        match tier.put(&key(held), b"", ItemMeta::default()) {
            Ok(_) => held += 1,
            Err(error) => break error,
        }
        while tier.maintain().unwrap() {}
    };
    assert!(matches!(full, Error::PmFull) && 500 < held, "{full} behind {held} items");
    assert!(tier.delete(&key(0)).unwrap(), "what gives room is not refused");
    let there = |tier: &Tier| tier.scan(b"", None, usize::MAX).len() as u64;
    assert_eq!(there(&tier), held - 1);
    drop(tier);
    let (tier, report) = machine.crashed(1, &Faults::default(), u64::MAX).open(settings).unwrap();
    assert_eq!((there(&tier), report.problems.len()), (held - 1, 0));
}

/// Every acknowledged write of a full store is found, whatever came and went in its tree.
fn grinds(seed: u64) -> (u64, u64) {
    const LIVES: u64 = 6;
    let settings = Settings { index: Some(IndexKind::Fair), ..settings() };
    let faults = Faults::default();
    let mut random = Random::new(seed);
    let mut machine = Machine::new(Kind::PmFair, &faults);
    let mut oracle: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
    let (mut refused, mut written) = (0, 0);
    for life in 0..LIVES {
        let (tier, report) = machine.open(settings).unwrap();
        assert!(report.problems.is_empty(), "seed {seed}, life {life}: {:?}", report.problems);
        assert_eq!(tier.scan(b"", None, usize::MAX).len(), oracle.len(), "seed {seed}");
        for (key, value) in &oracle {
            let found = tier.get(key).unwrap();
            assert!(found.is_some_and(|item| item.value == *value), "seed {seed}, life {life}");
        }
        for _ in 0..1500 {
            // Most writes are of a key that is there, once it is full.
            let among = if random.one_in(4) { 4000 } else { 300 };
            let number = random.below(among);
            let width = [8, 30, 90, 400][(number % 4) as usize];
            let key = format!("{:0width$}", number * 7919 % 4001).into_bytes();
            if random.one_in(12) {
                let was = oracle.remove(&key).is_some();
                assert_eq!(tier.delete(&key).unwrap(), was, "seed {seed}, life {life}");
            } else {
                let bytes = if random.one_in(20) { 1500 } else { random.below(60) as usize };
                let value = value(random.number(), bytes);
                match tier.put(&key, &value, ItemMeta::default()) {
                    Ok(_) => drop(oracle.insert(key, value)),
                    Err(Error::PmFull) => {
                        refused += 1;
                        // Some make room, so that others come and go in what is left.
                        let some = oracle.keys().nth(random.below(oracle.len() as u64) as usize);
                        if let Some(key) = some.cloned() {
                            assert!(tier.delete(&key).unwrap(), "seed {seed}, life {life}");
                            oracle.remove(&key);
                        }
                    }
                    Err(error) => panic!("seed {seed}, life {life}: {error}"),
                }
                written += 1;
            }
            while tier.maintain().unwrap() {}
        }
        drop(tier);
        machine = machine.crashed(random.number(), &faults, u64::MAX);
    }
    (written, refused)
}

#[test]
fn a_tree_that_is_full_for_long_loses_nothing_and_always_opens() {
    let mut all_refused = 0;
    for seed in 0..4 {
        let (written, refused) = grinds(seed);
        println!("seed {seed}: {written} writes, {refused} refused");
        all_refused += refused;
    }
    assert!(100 < all_refused, "the tree was never full: {all_refused}");
}

#[test]
fn an_entry_that_cannot_be_read_is_lost_not_missing_and_a_repair_says_what_to_do() {
    let settings = settings_with(IndexKind::Fair);
    let machine = large_machine(Kind::PmFair);
    let (tier, _) = machine.open(settings).unwrap();
    (0..100).for_each(|number| put(&tier, number, 0));
    tier.close().unwrap();
    let (mut log, ssd) = machine.images();
    let name = key(7);
    let bytes = ((10 + name.len() + 29) as u32).to_le_bytes();
    let is_cell = |at: &usize| log[*at..at + 4] == bytes && log[at + 10..].starts_with(&name);
    let cells: Vec<usize> = (log.len() / 2..log.len() - 64).step_by(64).filter(is_cell).collect();
    assert!(!cells.is_empty());
    cells.into_iter().for_each(|at| log[at + 10 + name.len()] ^= 1);
    let damaged = Machine::of(Kind::PmFair, &Faults::default(), u64::MAX, log, ssd);
    let findings = fsck::check(damaged.media(), settings).unwrap();
    assert_eq!(findings.lost.len(), 1, "{findings:?}");
    assert!(findings.report.problems.iter().any(|what| what.contains("index")), "{findings:?}");
    let (tier, _) = damaged.open(settings).unwrap();
    assert!(matches!(tier.get(&name), Err(Error::Lost { .. })));
    assert_eq!(tier.scan(b"", None, usize::MAX).len(), 99, "all others are there");
    drop(tier);
    let refused = fsck::repair(damaged.media(), settings).unwrap_err().to_string();
    assert!(refused.contains("dump"), "{refused}");
}
