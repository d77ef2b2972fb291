//! The busiest worker's requests over the mean, where key hash alone shows its imbalance in the
//! same run; and how soon a key is found.

use crate::crowd::{Crowd, Request, get, hot_keys, number, plan, set, stats};
use crate::rig::peer::Peer;
use crate::rig::{Plan, Rig, value};
use laneway_load::random::Random;
use laneway_load::zipf::Zipf;
use laneway_policy::Access;
use laneway_policy::hot::{Detector, HotSettings};
use laneway_server::stats::Question;
use laneway_transport::memory_datagram::DatagramFaults;

const SLOT: usize = 2_000;
const KEYS: u64 = 20_000;
const CLIENTS: usize = 96;

/// One request in ten writes, so that there is something to read.
fn mixed(random: &mut Random, rank: u64) -> Request {
    let key = format!("key:{rank}");
    if random.chance(0.1) { set(&key, b"a value of some bytes") } else { get(&key) }
}

fn run(plan: &Plan, exponent: f64, slots: usize) -> Rig {
    let mut rig = Rig::new(plan);
    let zipf = Zipf::new(KEYS, exponent);
    let mut crowd = Crowd::new(&rig, CLIENTS, 7);
    let next = |random: &mut Random| {
        let rank = zipf.rank(random);
        mixed(random, rank)
    };
    crowd.ask(&mut rig, slots * SLOT, next, |_| {});
    rig
}

#[test]
fn the_workers_are_even_where_key_hash_alone_is_not() {
    for (workers, exponent) in [(4, 0.99), (4, 1.2), (8, 0.99), (8, 1.2)] {
        let rig = run(&plan(Access::Erew, workers, SLOT as u32), exponent, 60);
        let balance = stats(&rig, &Question::Balance);
        let what = format!("{workers} workers, Zipf {exponent}: {balance:?}");
        assert!(number(&balance, "slots") >= 55.0, "{what}");
        assert!(number(&balance, "max_ave_ratio_run") <= 1.05, "{what}");
        assert!(number(&balance, "max_ave_ratio_run_by_hash") >= 1.15, "{what}");
        let since_start = number(&balance, "max_ave_ratio_since_start");
        assert!(since_start <= 1.05, "{what}");
        assert!(number(&stats(&rig, &Question::HotKeys), "moved") > 100.0, "they move");
    }
}

/// What `stats balance` says of key hash is what happens without hot keys.
#[test]
fn key_hash_alone_is_as_uneven_as_the_statistics_say() {
    let with = plan(Access::Erew, 4, SLOT as u32);
    let without = Plan { hot: None, ..with.clone() };
    let told =
        number(&stats(&run(&with, 1.2, 12), &Question::Balance), "max_ave_ratio_run_by_hash");
    let balance = stats(&run(&without, 1.2, 12), &Question::Balance);
    let seen = number(&balance, "max_ave_ratio_since_start");
    assert!((told - seen).abs() < 0.02, "{told} and {seen}");
    assert_eq!(balance.get("max_ave_ratio_run"), None, "nobody counts slots");
    assert_eq!(stats(&run(&without, 1.2, 1), &Question::HotKeys)["hot"], "off");
}

#[test]
fn each_choice_of_the_rule_works_live() {
    let base = plan(Access::Erew, 4, SLOT as u32);
    let ours = base.hot.expect("it is on");
    let keysched = HotSettings { slot: ours.slot, ..HotSettings::keysched_2018(4, 32) };
    let counters = HotSettings { detector: Detector::SpaceSaving(64), ..ours };
    for (hot, found_per_slot, run_max) in [(keysched, 3.0, 1.15), (counters, 0.0, 1.08)] {
        let rig = run(&Plan { hot: Some(hot), ..base.clone() }, 1.2, 30);
        let balance = stats(&rig, &Question::Balance);
        let by_hash = number(&balance, "max_ave_ratio_run_by_hash");
        let run = number(&balance, "max_ave_ratio_run");
        assert!(run <= run_max && run < by_hash - 0.05, "{hot:?}: {balance:?}");
        let found = number(&stats(&rig, &Question::HotKeys), "found");
        assert!(found > 30.0 * found_per_slot, "{hot:?}: {found} were found");
    }
}

/// Keys that everybody begins to ask for at once are in the table two slots later, also while all
/// its places are taken by others.
#[test]
fn a_flash_crowd_is_found_within_two_slots() {
    let base = plan(Access::Erew, 8, SLOT as u32);
    let tight = HotSettings { keys_max: 4, ..base.hot.expect("it is on") };
    for (access, hot) in [
        (Access::Erew, base.hot),
        (Access::Erew, Some(tight)),
        (Access::Crew, plan(Access::Crew, 8, SLOT as u32).hot),
    ] {
        let mut rig = Rig::new(&Plan { access, hot, ..base.clone() });
        let mut crowd = Crowd::new(&rig, CLIENTS, 3);
        let old = Zipf::new(1000, 0.9);
        let before = |random: &mut Random| get(&format!("old:{}", old.rank(random)));
        crowd.ask(&mut rig, 5 * SLOT, before, |_| {});
        let reads = |random: &mut Random| match random.below(10) {
            0 | 1 => get("flash"),
            2 => get("flash2"),
            _ => get(&format!("old:{}", old.rank(random))),
        };
        crowd.ask(&mut rig, 2 * SLOT, reads, |_| {});
        let hot = hot_keys(&rig);
        assert!(hot.contains_key("flash") && hot.contains_key("flash2"), "{access}: {hot:?}");
        let share: f64 = hot["flash"]["share"].parse().expect("a number");
        assert!((0.1..0.3).contains(&share), "{access}: {hot:?}");
        // And when it is over they are forgotten as soon.
        let after = |random: &mut Random| get(&format!("old:{}", old.rank(random)));
        crowd.ask(&mut rig, 3 * SLOT, after, |_| {});
        assert!(!hot_keys(&rig).contains_key("flash"), "{access}");
    }
}

/// Under CREW whoever receives a read serves it, hot or not; writes go to the owner of the slot.
#[test]
fn under_crew_reads_stay_and_writes_go_to_the_owner() {
    let mut rig = Rig::new(&plan(Access::Crew, 4, 400));
    let mut crowd = Crowd::new(&rig, 32, 5);
    let hot = |random: &mut Random| {
        if random.chance(0.25) { set("hot", b"value") } else { get("hot") }
    };
    crowd.ask(&mut rig, 4_000, hot, |_| {});
    let key = &hot_keys(&rig)["hot"];
    let reads: f64 = key["reads"].parse().expect("a number");
    assert!((0.70..0.80).contains(&reads), "{key:?}");
    let balance = stats(&rig, &Question::Balance);
    // Within a slot nothing helps: a quarter of the load, and a quarter of the rest.
    assert!(number(&balance, "max_ave_ratio_slot") < 2.0, "{balance:?}");
    assert!(number(&balance, "max_ave_ratio_run") < 1.2, "{balance:?}");
    assert!(number(&balance, "max_ave_ratio_run_by_hash") > 1.6, "{balance:?}");
    let forwarded = |rig: &Rig| -> u64 {
        rig.shared.workers.iter().map(|worker| worker.lanes.forwarded.get()).sum()
    };
    let before = forwarded(&rig);
    crowd.ask(&mut rig, 500, |_| get("hot"), |reply| assert!(reply.ends_with(b"value\r\nEND\r\n")));
    assert_eq!(forwarded(&rig), before, "no read is handed over");
    let told = stats(&rig, &Question::HotKeys);
    let reads = (0..4).map(|worker| number(&told, &format!("worker:{worker}:reads")));
    assert!(reads.clone().all(|reads| reads > 500.0), "every worker reads it: {told:?}");
    assert_eq!(reads.sum::<f64>(), number(&told, "reads"));
    crowd.ask(&mut rig, 500, |_| set("hot", b"value"), |_| {});
    assert!(forwarded(&rig) > before + 300, "three of four writes are");
    let written = stats(&rig, &Question::HotKeys);
    let more = number(&written, "writes") - number(&told, "writes");
    assert!((400.0..=500.0).contains(&more), "{more}");
    assert_eq!(number(&written, "reads"), number(&told, "reads"));
}

/// Datagrams that a client sends to the key's owner by hash are handed on to that of the slot.
#[test]
fn datagrams_follow_the_hot_keys_too() {
    let base = plan(Access::Erew, 4, 400);
    let mut rig = Rig::new(&Plan { datagrams: Some(DatagramFaults::NONE), ..base });
    let placement = rig.shared.placement;
    let home = |key: &str| placement.owner(placement.hash(key.as_bytes())).index();
    let mut peer = Peer::new(&rig);
    let mut random = Random::new(9);
    let (mut id, mut answered) = (0_u16, 0);
    for _ in 0..400 {
        for _ in 0..16 {
            let key =
                if random.chance(0.5) { "hot".to_owned() } else { random.below(500).to_string() };
            id = id.wrapping_add(1);
            peer.send(home(&key), id, format!("get {key}\r\n").as_bytes());
        }
        answered += peer.all(&mut rig).iter().filter(|(_, reply)| reply == b"END\r\n").count();
    }
    assert_eq!(answered, 400 * 16);
    let key = &hot_keys(&rig)["hot"];
    assert!(key["moves"].parse::<u32>().expect("a number") > 5, "{key:?}");
    let balance = stats(&rig, &Question::Balance);
    assert!(number(&balance, "max_ave_ratio_run_by_hash") > 1.5, "{balance:?}");
    assert!(number(&balance, "max_ave_ratio_run") < 1.15, "{balance:?}");
}

/// A large value's request is looked up by one and served by another: it is counted once.
#[test]
fn a_datagram_that_asks_for_a_large_value_is_counted_once() {
    let base = plan(Access::Erew, 4, 100);
    let datagrams = Some(DatagramFaults::NONE);
    let mut rig = Rig::new(&Plan { datagrams, threshold_bytes: 1_000, ..base });
    let client = rig.net.connect();
    rig.set(&client, "large", &value(20_000, 1));
    let mut peer = Peer::new(&rig);
    let mut id = 0_u16;
    let mut ask = |rig: &mut Rig, count: usize| {
        for turn in 0..count {
            id += 1;
            let request: &[u8] = if turn % 2 == 0 { b"get large\r\n" } else { b"mg large v\r\n" };
            assert!(peer.ask(rig, usize::from(id) % 4, id, request).len() > 20_000);
        }
        number(&stats(rig, &Question::HotKeys), "reads")
    };
    let before = ask(&mut rig, 400);
    assert!(hot_keys(&rig).contains_key("large"));
    assert_eq!(ask(&mut rig, 200) - before, 200.0);
}

/// By the poster's rule all keys are forgotten at a slot's end, and most are found again: what is
/// told of them goes on.
#[test]
fn keys_that_come_back_each_slot_show_their_moves_and_rates() {
    let base = plan(Access::Erew, 4, 500);
    let slot = base.hot.expect("it is on").slot;
    let hot = Some(HotSettings { slot, ..HotSettings::keysched_2018(4, 16) });
    let mut rig = Rig::new(&Plan { hot, ..base });
    let mut crowd = Crowd::new(&rig, 32, 1);
    let next = |random: &mut Random| match random.below(4) {
        0 => get("hot"),
        _ => get(&format!("cold:{}", random.below(100_000))),
    };
    crowd.ask(&mut rig, 20_000, next, |_| {});
    let told = stats(&rig, &Question::HotKeys);
    assert!(number(&told, "moved") >= 10.0, "{told:?}");
    // In the middle of a slot.
    for _ in 0..10 {
        if hot_keys(&rig).is_empty() {
            crowd.ask(&mut rig, 100, next, |_| {});
        }
    }
    let key = &hot_keys(&rig)["hot"];
    assert!(number(key, "moves") >= 10.0, "{key:?}");
    // A quarter of all, but for the requests of each slot before it is found again.
    assert!((0.2..=0.25).contains(&number(key, "share")), "{key:?}");
}
