//! Bad weather for hot keys.

use crate::crowd::{Crowd, Request, get, hot_keys, number, plan, set, stats};
use crate::rig::{Plan, Rig, value};
use laneway_load::random::Random;
use laneway_policy::Access;
use laneway_server::stats::Question;

/// What a reader may be told of a key whose values tell in their flags what they are made of.
fn check(reply: &[u8]) {
    if reply == b"END\r\n" {
        return;
    }
    let line_end = reply.iter().position(|byte| *byte == b'\n').expect("a line") + 1;
    let line = String::from_utf8_lossy(&reply[..line_end]);
    let words: Vec<&str> = line.split_ascii_whitespace().collect();
    let ["VALUE", "hot", flags, bytes] = words[..] else { panic!("{line}") };
    let bytes: usize = bytes.parse().expect("a number");
    let wanted = value(bytes, flags.parse().expect("a number"));
    assert!(reply[line_end..] == [&wanted[..], b"\r\nEND\r\n"].concat(), "{line}: not its value");
}

fn set_with(salt: u64, bytes: usize, seconds: u32) -> Vec<u8> {
    let head = format!("set hot {salt} {seconds} {bytes}\r\n");
    [head.as_bytes(), &value(bytes, salt), b"\r\n"].concat()
}

/// Deleted, expired, evicted, replaced by a large value and by a small one, while it moves.
#[test]
fn whatever_becomes_of_a_hot_key_its_readers_see_whole_values() {
    for (access, seed) in [(Access::Erew, 1), (Access::Crew, 2)] {
        let base = plan(access, 4, 100);
        let mut rig = Rig::new(&Plan { memory_bytes: 16 << 20, item_bytes_max: 1 << 20, ..base });
        let owner = rig.net.connect();
        let mut crowd = Crowd::new(&rig, 24, seed);
        let mut seen = (0, 0);
        for round in 0..60_u64 {
            let bytes = [10, 300_000, 2_000, 40_000, 1][round as usize % 5];
            match round % 6 {
                0..=2 => drop(rig.ask(&owner, &set_with(round, bytes, 0), b"STORED\r\n")),
                3 => drop(rig.ask(&owner, b"delete hot\r\n", b"\r\n")),
                4 => {
                    rig.ask(&owner, &set_with(round, bytes, 1), b"STORED\r\n");
                    rig.clock.advance(1_500_000_000);
                }
                _ => {
                    // So much else that cold items must go, and so may this one.
                    for number in 0..24 {
                        rig.set(&owner, &format!("else{number}"), &value(900_000, number));
                    }
                }
            }
            let next = |random: &mut Random| {
                if random.chance(0.6) { get("hot") } else { get(&random.below(3000).to_string()) }
            };
            crowd.ask(&mut rig, 120, next, |reply| {
                check(reply);
                if reply.len() > 5 { seen.0 += 1 } else { seen.1 += 1 }
            });
        }
        assert!(seen.0 > 1_000 && seen.1 > 1_000, "{seen:?}");
        rig.turns(20);
        assert_eq!(rig.shared.store.stats().pinned_dead_bytes, 0);
        assert!(number(&stats(&rig, &Question::HotKeys), "found") >= 1.0);
    }
}

/// However many ask for a large hot value, there is one of it.
#[test]
fn a_large_hot_value_is_pinned_and_not_copied() {
    for access in [Access::Erew, Access::Crew] {
        let mut rig = Rig::new(&plan(access, 4, 50));
        let owner = rig.net.connect();
        let big = value(1 << 20, 1);
        rig.set(&owner, "hot", &big);
        let mut crowd = Crowd::new(&rig, 16, 1);
        crowd.ask(&mut rig, 200, |_| get("hot"), |_| {});
        assert!(hot_keys(&rig).contains_key("hot"));
        // Twenty that do not read on.
        let slow: Vec<_> = (0..20).map(|_| rig.net.connect()).collect();
        for client in &slow {
            client.send(b"get hot\r\n");
        }
        rig.turns(50);
        let before = rig.shared.store.stats();
        rig.set(&owner, "hot", b"now it is small");
        rig.turns(10);
        let after = rig.shared.store.stats();
        assert!(before.pinned_dead_bytes == 0, "{access}");
        let dead = after.pinned_dead_bytes;
        assert!((1 << 20..2 << 20).contains(&dead), "{access}: {dead} bytes for twenty readers");
        for client in slow {
            let got = rig.until(&client, Vec::new(), |got| got.ends_with(b"END\r\n"));
            assert!(got == [&crate::rig::hit("hot", &big)[..], b"END\r\n"].concat());
        }
        assert_eq!(rig.shared.store.stats().pinned_dead_bytes, 0, "{access}");
    }
}

#[test]
fn all_load_on_one_key_goes_round() {
    for writes in [0.0, 1.0] {
        let mut rig = Rig::new(&plan(Access::Erew, 4, 200));
        let mut crowd = Crowd::new(&rig, 64, 1);
        let next = |random: &mut Random| {
            if random.chance(writes) { set("one", b"x") } else { get("one") }
        };
        crowd.ask(&mut rig, 12_000, next, |_| {});
        let balance = stats(&rig, &Question::Balance);
        assert!(number(&balance, "max_ave_ratio_run_by_hash") > 3.9, "{balance:?}");
        assert!(number(&balance, "max_ave_ratio_run") < 1.15, "{balance:?}");
        assert!((hot_keys(&rig)["one"]["moves"].parse::<u32>().expect("a number")) > 20);
    }
}

#[test]
fn ten_thousand_equally_warm_keys_are_not_hot() {
    for access in [Access::Erew, Access::Crew] {
        let mut rig = Rig::new(&plan(access, 4, 2_000));
        let mut crowd = Crowd::new(&rig, 64, 1);
        let next = |random: &mut Random| get(&format!("warm:{}", random.below(10_000)));
        crowd.ask(&mut rig, 30_000, next, |_| {});
        let told = stats(&rig, &Question::HotKeys);
        assert_eq!(number(&told, "keys"), 0.0, "{access}: {told:?}");
        assert!(number(&told, "found") <= 2.0, "{access}: {told:?}");
    }
}

/// A threshold that every key crosses, and room for few: the table never overflows, and everybody
/// is served.
#[test]
fn a_threshold_that_every_key_crosses_does_no_harm() {
    let base = plan(Access::Erew, 4, 300);
    for carry_over in [true, false] {
        let hot = laneway_policy::hot::HotSettings {
            threshold: laneway_policy::hot::HotThreshold::Requests(1),
            keys_max: 3,
            carry_over,
            ..base.hot.expect("it is on")
        };
        let mut rig = Rig::new(&Plan { hot: Some(hot), ..base.clone() });
        let mut crowd = Crowd::new(&rig, 32, 1);
        let next = |random: &mut Random| get(&format!("k:{}", random.below(2_000)));
        let mut misses = 0;
        crowd.ask(&mut rig, 6_000, next, |reply| misses += usize::from(reply == b"END\r\n"));
        assert_eq!(misses, 6_000);
        let told = stats(&rig, &Question::HotKeys);
        assert!(number(&told, "keys") <= 3.0 && number(&told, "found") > 10.0, "{told:?}");
    }
}

/// Clients vanish in the middle, and pipelines wait behind a key that moves.
#[test]
fn pipelines_of_a_moving_key_stay_in_order_and_the_vanished_leave_nothing() {
    let mut rig = Rig::new(&plan(Access::Erew, 4, 60));
    let mut crowd = Crowd::new(&rig, 16, 1);
    let noise = |random: &mut Random| Request {
        bytes: format!("get hot{}\r\n", random.below(3)).into_bytes(),
        end: b"END\r\n",
    };
    for round in 0..60 {
        let (pipe, gone) = (rig.net.connect(), rig.net.connect());
        let counts = (0..20).map(|_| "incr hot0 1\r\nget hot1\r\nmn\r\n".to_owned());
        let request = format!("set hot0 0 0 1\r\n0\r\n{}", counts.collect::<String>());
        let back = rig.send(&pipe, request.as_bytes());
        gone.send(&b"get hot0 hot1 hot2\r\nset hot1 0 0 1\r\nx\r\n".repeat(4));
        crowd.ask(&mut rig, 60, noise, |_| {});
        gone.reset();
        let got = rig.until(&pipe, back, |got| {
            got.len() >= 4 && got.ends_with(b"MN\r\n") && {
                got.windows(4).filter(|window| window == b"MN\r\n").count() == 20
            }
        });
        let text = String::from_utf8_lossy(&got).into_owned();
        let mut numbers = text.lines().filter_map(|line| line.parse::<u32>().ok());
        assert!(numbers.by_ref().take(20).eq(1..=20), "round {round}: {text}");
        pipe.reset();
    }
    rig.turns(50);
    let open = rig.shared.connections.open.load(std::sync::atomic::Ordering::Relaxed);
    assert_eq!(open, 16, "only the crowd is left");
    assert!(hot_keys(&rig).contains_key("hot0"));
}
