//! What `stats` tells of hot keys.

use crate::crowd::{Crowd, get, hot_keys, number, plan, set, stats};
use crate::rig::{Plan, Rig, binary};
use laneway_load::random::Random;
use laneway_policy::{Access, Design};
use laneway_server::stats::Question;

#[test]
fn a_hot_key_is_told_with_its_rate_share_size_mix_and_place() {
    let mut rig = Rig::new(&plan(Access::Erew, 4, 500));
    let client = rig.net.connect();
    rig.set(&client, "hot", &[b'x'; 97]);
    let mut crowd = Crowd::new(&rig, 16, 1);
    let next = |random: &mut Random| match random.below(10) {
        0 => set("hot", &[b'x'; 97]),
        1..5 => get("hot"),
        _ => get(&format!("cold:{}", random.below(100_000))),
    };
    crowd.ask(&mut rig, 50_000, next, |_| {});
    let keys = hot_keys(&rig);
    assert_eq!(keys.len(), 1, "{keys:?}");
    let key = &keys["hot"];
    let of = |name: &str| number(key, name);
    assert!((0.48..0.52).contains(&of("share")), "{key:?}");
    assert!((0.77..0.83).contains(&of("reads")), "{key:?}");
    assert_eq!(of("bytes"), 100.0);
    let placement = rig.shared.placement;
    assert_eq!(of("home"), f64::from(placement.owner(placement.hash(b"hot")).0));
    assert!(of("worker") < 4.0 && of("moves") > 20.0, "{key:?}");
    // The rig's clock says how long it all took.
    let all_per_second = 50_000.0 / (rig.steps as f64 * 1e-9 * crate::rig::STEP_NANOS as f64);
    let ratio = of("requests_per_second") / (0.5 * all_per_second);
    assert!((0.9..1.1).contains(&ratio), "{ratio}: {key:?}");
    let head = stats(&rig, &Question::HotKeys);
    assert_eq!((head["hot"].as_str(), head["slot_requests"].as_str()), ("default", "500"));
    assert!(number(&head, "slots") > 80.0 && number(&head, "found") >= 1.0, "{head:?}");
    // Nobody asks any more: the rate falls, though no slot ends.
    rig.clock.advance(100_000_000_000);
    let rate = number(&hot_keys(&rig)["hot"], "requests_per_second");
    assert!(rate < of("requests_per_second") / 10.0, "{rate}");
}

#[test]
fn a_deleted_hot_key_has_no_size_and_a_binary_one_is_told_in_hex() {
    let mut rig = Rig::new(&plan(Access::Erew, 2, 100));
    let mut crowd = Crowd::new(&rig, 8, 1);
    // "a b", which no text command can name.
    let next = |random: &mut Random| {
        if random.chance(0.5) {
            return get("gone");
        }
        crate::crowd::Request { bytes: b"mg YSBi b v\r\n".to_vec(), end: b"\r\n" }
    };
    crowd.ask(&mut rig, 1_000, next, |_| {});
    assert_eq!(hot_keys(&rig)["gone"].get("bytes"), None);
    let told = stats(&rig, &Question::HotKeys);
    assert!(told.values().any(|value| value == "612062"), "{told:?}");
}

/// Whose the key is changes nothing for them.
#[test]
fn requests_that_no_owner_executes_make_no_key_hot_and_fill_slots_all_the_same() {
    let mut rig = Rig::new(&plan(Access::Erew, 2, 100));
    let (client, other) = (rig.net.connect(), rig.net.connect());
    for _ in 0..1_000 {
        rig.say_resp(&client, "GET k");
        rig.say_resp(&client, "SET k v");
        rig.say_binary(&other, &binary::get(b"k"));
        rig.say_binary(&other, &binary::set(b"k", b"v"));
    }
    assert!(hot_keys(&rig).is_empty());
    assert!(number(&stats(&rig, &Question::Balance), "slots") >= 20.0);
    let mut crowd = Crowd::new(&rig, 8, 1);
    crowd.ask(&mut rig, 1_000, |_| get("k"), |_| {});
    assert!(hot_keys(&rig).contains_key("k"));
}

#[test]
fn stats_reset_begins_the_balance_anew() {
    let mut rig = Rig::new(&plan(Access::Erew, 2, 100));
    let mut crowd = Crowd::new(&rig, 8, 1);
    crowd.ask(&mut rig, 1_000, |_| get("k"), |_| {});
    assert!(number(&stats(&rig, &Question::Balance), "slots") >= 5.0);
    stats(&rig, &Question::Reset);
    let after = stats(&rig, &Question::Balance);
    assert_eq!((number(&after, "slots"), number(&after, "worker:0:requests_run")), (0.0, 0.0));
    assert!(number(&after, "worker:0:requests_since_start") > 0.0);
}

#[test]
fn without_hot_keys_the_balance_is_told_since_the_start() {
    let mut rig = Rig::new(&Plan::design(Design::Lanes, 2));
    let client = rig.net.connect();
    let sampled =
        b"STAT hot off\r\nSTAT sampled_every 512\r\nSTAT samples 0\r\nSTAT keys 0\r\nEND\r\n";
    assert_eq!(rig.ask(&client, b"stats hotkeys\r\n", b"END\r\n"), sampled);
    let told = rig.ask(&client, b"stats balance\r\n", b"END\r\n");
    let told = String::from_utf8(told).expect("text");
    let wanted = "STAT max_ave_ratio_since_start 2.0000\r\n";
    assert!(told.starts_with(wanted), "one connection, one worker: {told}");
}
