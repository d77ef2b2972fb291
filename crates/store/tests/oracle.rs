//! The store against a map: rows that state a fact, and random operations.

mod foreign;
mod model;

use laneway_store::layout::{CHAIN_MAX, OVERFLOW_SLOTS, PARTITIONS, SLOTS, bucket_of};
use laneway_store::{Config, Got, Mode, Moment, Store};
use model::{Op, check_store};
use proptest::prelude::*;

fn set(key: u8, bytes: u32) -> Op {
    Op::Set { key, bytes, flags: 0, ttl: 0, seq: None }
}

#[test]
fn small_and_large_items_are_read_back_at_every_boundary() {
    let sizes = [0, 1, 7, 8, 9, 100, 1000, 16_300, 16_384, 16_385, 32_700, 32_768, 40_000, 65_536];
    for mode in [Mode::Cache, Mode::Store] {
        for memory in [4 << 20, 40 << 20, 64 << 20] {
            let mut ops = Vec::new();
            for (i, &bytes) in sizes.iter().enumerate() {
                ops.push(set(i as u8, bytes));
                ops.push(Op::Set {
                    key: 100 + i as u8,
                    bytes,
                    flags: 77,
                    ttl: 9_000,
                    seq: Some(5),
                });
                ops.push(Op::Get { key: i as u8 });
            }
            ops.extend((0..120).map(|key| Op::Get { key }));
            check_store(mode, memory, &ops);
        }
    }
}

#[test]
fn a_pinned_item_survives_its_replacement_deletion_and_flush() {
    let mut ops = vec![set(1, 300_000), Op::Pin { key: 1 }, set(1, 200_000), Op::Pin { key: 1 }];
    ops.extend([Op::Delete { key: 1 }, set(1, 100_000), Op::Pin { key: 1 }, Op::FlushAll]);
    ops.extend([Op::Sweep { slots: 9999 }, set(2, 300_000), Op::Unpin, set(3, 300_000)]);
    ops.extend([Op::Unpin, set(4, 300_000), Op::Unpin]);
    check_store(Mode::Cache, 8 << 20, &ops);
    check_store(Mode::Store, 8 << 20, &ops);
}

#[test]
fn a_hundred_flushes_revive_nothing() {
    let mut ops = Vec::new();
    for round in 0..200u32 {
        ops.push(Op::Set { key: round as u8, bytes: 10, flags: 0, ttl: 0, seq: Some(1 << 60) });
        ops.push(Op::FlushAll);
    }
    ops.extend((0..=255).map(|key| Op::Get { key }));
    check_store(Mode::Store, 4 << 20, &ops);
}

/// Keys that all lead to one bucket, as who knew the seed would choose them: the chain has an end,
/// from which on each key that comes pushes one of them out, and nobody else's.
#[test]
fn keys_of_one_bucket_push_each_other_out_and_nobody_else() {
    let config = Config::default();
    let buckets = config.buckets_initial / PARTITIONS as u64;
    let store = Store::new(config).expect("memory");
    let now = Moment::from_seconds(1_000_000);
    let put = |key: &str| {
        let key = key.as_bytes();
        let mut draft = store.draft(key, 0, Moment::NEVER, key.len()).expect("room");
        draft.write(key).expect("a slot of its own");
        store.enter(store.hash(key), key, now).publish(draft, None);
    };
    let is_there = |key: &str| {
        let (mut out, key) = (Vec::new(), key.as_bytes());
        match store.get(store.hash(key), key, now, &mut out, &mut |_, _| ()) {
            Got::Miss => false,
            Got::Copied(_) => {
                assert_eq!(out, key);
                true
            }
            Got::Large(..) => panic!("a large item"),
        }
    };
    let is_aimed = |key: &String| {
        let hash = store.hash(key.as_bytes());
        hash.partition() == 0 && bucket_of(hash, buckets) == 0
    };
    let fit = SLOTS - 1 + CHAIN_MAX * (OVERFLOW_SLOTS - 1) + 1;
    let aimed = (0..).map(|number| format!("aimed{number}")).filter(is_aimed);
    let aimed: Vec<String> = aimed.take(2 * fit).collect();
    let others = (0..500).map(|number| format!("other{number}"));
    let others: Vec<String> = others.filter(|key| !is_aimed(key)).collect();
    others.iter().for_each(|key| put(key));
    for (before, key) in aimed.iter().enumerate() {
        put(key);
        assert!(is_there(key), "number {before}");
        let stayed = aimed.iter().filter(|key| is_there(key)).count();
        assert_eq!(stayed, fit.min(before + 1), "number {before}");
    }
    assert!(others.iter().all(|key| is_there(key)));
    let stats = store.stats();
    assert_eq!((stats.evictions, stats.buckets_overflow), (fit as u64, CHAIN_MAX as u64));
}

fn op() -> impl Strategy<Value = Op> {
    let key = 0..40u8;
    let bytes = prop_oneof![6 => 0..400u32, 2 => 400..20_000u32, 1 => 15_000..400_000u32];
    let seq = prop_oneof![4 => Just(None), 1 => (1..9u64).prop_map(Some)];
    let flags = prop_oneof![Just(0u32), any::<u32>()];
    // Of the ends some have milliseconds, some lie at a full second.
    let ttl = prop_oneof![3 => (0..120u32).prop_map(|quarters| 250 * quarters), 2 => 0..30_000u32];
    prop_oneof![
        8 => key.clone().prop_map(|key| Op::Get { key }),
        2 => key.clone().prop_map(|key| Op::Peek { key }),
        8 => (key.clone(), bytes.clone(), flags, ttl.clone(), seq.clone())
            .prop_map(|(key, bytes, flags, ttl, seq)| Op::Set { key, bytes, flags, ttl, seq }),
        2 => (key.clone(), bytes, 0..400_000u32)
            .prop_map(|(key, bytes, written)| Op::Abandon { key, bytes, written }),
        2 => key.clone().prop_map(|key| Op::Delete { key }),
        2 => (key.clone(), ttl).prop_map(|(key, ttl)| Op::Touch { key, ttl }),
        1 => (key.clone(), any::<bool>(), any::<bool>())
            .prop_map(|(key, stale, token_sent)| Op::Stale { key, stale, token_sent }),
        1 => (key.clone(), seq).prop_map(|(key, explicit)| Op::RenewSeq { key, explicit }),
        2 => key.prop_map(|key| Op::Pin { key }),
        1 => Just(Op::Unpin),
        1 => Just(Op::FlushAll),
        1 => (1..2000u16).prop_map(|slots| Op::Sweep { slots }),
        2 => (0..20_u32).prop_map(|quarters| Op::Advance { millis: 250 * quarters }),
        1 => (0..2_000_u32).prop_map(|millis| Op::Advance { millis }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn any_operations_agree_with_a_map_in_cache_mode(ops in prop::collection::vec(op(), 1..300)) {
        check_store(Mode::Cache, 2 << 20, &ops);
    }

    #[test]
    fn any_operations_agree_with_a_map_behind_a_window(ops in prop::collection::vec(op(), 1..300)) {
        for (mode, memory_bytes) in [(Mode::Cache, 3 << 20), (Mode::Store, 5 << 20)] {
            let (_foreign, window) = foreign::Foreign::new(model::HASH_SEED, 64, 1 << 20);
            model::check_store_behind(Some(window), mode, memory_bytes, &ops);
        }
    }

    #[test]
    fn any_operations_agree_with_a_map_in_store_mode(ops in prop::collection::vec(op(), 1..300)) {
        check_store(Mode::Store, 4 << 20, &ops);
    }
}
