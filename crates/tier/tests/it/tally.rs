//! What the statistics count as it comes and goes is what a walk over everything finds, whatever
//! was done before; and telling it takes no walk.

use crate::common::{Kind, Machine, settings, value};
use laneway_tier::disk::sim::Faults;
use laneway_tier::{Durability, Error, ItemMeta, Tier, WhenFull};
use proptest::prelude::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

#[derive(Clone, Copy, Debug)]
enum Op {
    Put { key: u8, bytes: u16, expires: bool },
    Delete { key: u8 },
    FlushAll,
    Migrate,
    Maintain,
    Checkpoint,
    Restart,
    Crash { seed: u64 },
    Time,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        12 => (any::<u8>(), 0..3000u16, any::<bool>())
            .prop_map(|(key, bytes, expires)| Op::Put { key, bytes, expires }),
        3 => any::<u8>().prop_map(|key| Op::Delete { key }),
        1 => Just(Op::FlushAll),
        3 => Just(Op::Migrate),
        5 => Just(Op::Maintain),
        1 => Just(Op::Checkpoint),
        1 => Just(Op::Restart),
        1 => any::<u64>().prop_map(|seed| Op::Crash { seed }),
        1 => Just(Op::Time),
    ]
}

fn key(number: u8) -> Vec<u8> {
    format!("key-{number:03}").into_bytes()
}

/// A store that is full refuses; anything else is no answer to this.
fn or_full<T>(result: Result<T, Error>) {
    match result {
        Ok(_) | Err(Error::PmFull | Error::SsdFull { .. }) => {}
        Err(error) => panic!("{error}"),
    }
}

fn check(tier: &Tier, when: &str) {
    let (told, walked) = (tier.stats(), tier.stats_by_walk());
    assert_eq!((told.items, told.usage), (walked.items, walked.usage), "{when}");
    let free = told.usage.ssd_bytes - told.usage.ssd_used_bytes;
    assert_eq!(free, told.ssd_free_bytes);
    if told.usage.live_bytes() != Some(0) {
        assert!(1.0 <= told.usage.space_amplification().unwrap(), "{when}: {:?}", told.usage);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn counters_are_what_a_walk_finds_after_any_history(
        ops in proptest::collection::vec(op(), 1..250),
        kind in prop_oneof![Just(Kind::Pm), Just(Kind::Wal), Just(Kind::PmFair)],
        evicts in any::<bool>(),
        waits in any::<bool>(),
    ) {
        let mut settings = settings();
        if evicts {
            settings.when_full = WhenFull::Evict;
        }
        if !waits {
            settings.durability = Durability::Interval;
        }
        let mut machine = Machine::sized(kind, &Faults::default(), 1 << 20);
        let (mut tier, _) = machine.open(settings).unwrap();
        for (version, op) in ops.into_iter().enumerate() {
            match op {
                Op::Put { key: number, bytes, expires } => {
                    let expires_at_seconds = if expires { 1000 } else { 0 };
                    let meta = ItemMeta { expires_at_seconds, ..ItemMeta::default() };
                    let value = value(version as u64, bytes.into());
                    or_full(tier.put(&key(number), &value, meta));
                }
                Op::Delete { key: number } => or_full(tier.delete(&key(number))),
                Op::FlushAll => or_full(tier.flush_all()),
                Op::Migrate => or_full(tier.migrate()),
                Op::Maintain => or_full(tier.maintain()),
                Op::Checkpoint => or_full(tier.checkpoint()),
                Op::Time => tier.tell_time(2000),
                Op::Restart => {
                    tier.close().unwrap();
                    tier = machine.open(settings).unwrap().0;
                }
                Op::Crash { seed } => {
                    drop(tier);
                    machine = machine.crashed(seed, &Faults::default(), u64::MAX);
                    tier = machine.open(settings).unwrap().0;
                }
            }
            tier.commit().unwrap();
            check(&tier, &format!("{kind:?}, behind {version}: {op:?}"));
        }
    }
}

#[test]
fn flushes_are_timed_by_the_medium_that_they_make_durable() {
    let machine = Machine::new(Kind::Pm, &Faults::default());
    let (tier, _) = machine.open(settings()).unwrap();
    tier.put(b"before", b"there is no clock", ItemMeta::default()).unwrap();
    assert_eq!(tier.usage().log_flushes.count(), 0);
    // Each look at it takes 70 µs: so does each flush.
    let now = Arc::new(AtomicU64::new(0));
    tier.lend_clock(Box::new(move || now.fetch_add(70_000, Relaxed)));
    tier.put(b"small", b"goes to the log", ItemMeta::default()).unwrap();
    let usage = tier.usage();
    assert_eq!((usage.log_flushes.count(), usage.ssd_flushes.count()), (1, 0));
    tier.put(b"large", &value(1, 5000), ItemMeta::default()).unwrap();
    let usage = tier.usage();
    assert_eq!((usage.log_flushes.count(), usage.ssd_flushes.count()), (2, 1));
    assert_eq!((usage.log_flushes.us_at(500), usage.log_flushes.nanos), (128, 140_000));
}

#[test]
fn a_backlog_is_told_from_where_migration_begins_until_it_has_ended() {
    let machine = Machine::new(Kind::Pm, &Faults::default());
    let (tier, _) = machine.open(settings()).unwrap();
    let mut number = 0;
    while tier.usage().migration_backlog_bytes == 0 {
        let meta = ItemMeta::default();
        tier.put(&u32::to_be_bytes(number), &value(1, 900), meta).unwrap();
        number += 1;
    }
    let usage = tier.usage();
    assert!(usage.log_bytes * 6 <= usage.log_used_bytes * 10, "{usage:?}");
    while tier.maintain().unwrap() {}
    assert_eq!(tier.usage().migration_backlog_bytes, 0);
}
