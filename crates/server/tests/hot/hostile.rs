//! Bad weather for hot keys.

use crate::crowd::{Crowd, Request, get, hot_keys, number, plan, set, stats};
use crate::rig::{Plan, Rig, value};
use laneway_load::random::Random;
use laneway_policy::hot::HOT_REQUESTS_MIN;
use laneway_policy::hot::hasher::KeyHasher;
use laneway_policy::hot::sketch::WorkerSketch;
use laneway_policy::{Access, owner};
use laneway_server::stats::Question;
use std::collections::BTreeSet;

/// What a reader may be told of a key whose values tell in their flags what they are made of.
fn check(reply: &[u8]) {
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

/// What happens to the key while it is asked for.
fn changed(random: &mut Random, salt: u64) -> Request {
    let bytes = [10, 300_000, 2_000, 40_000, 1][salt as usize % 5];
    let bytes = match random.below(4) {
        0 => b"delete hot\r\n".to_vec(),
        1 => set_with(salt, bytes, 1), // until the clock goes on
        _ => set_with(salt, bytes, 0),
    };
    Request { bytes, end: b"\r\n" }
}

/// Deleted, expired, evicted, replaced by a large value and by a small one, while it moves and is
/// asked for.
#[test]
fn whatever_becomes_of_a_hot_key_its_readers_see_whole_values() {
    for (access, seed) in [(Access::Erew, 1), (Access::Crew, 2)] {
        let base = plan(access, 4, 100);
        let mut rig = Rig::new(&Plan { memory_bytes: 16 << 20, item_bytes_max: 1 << 20, ..base });
        let owner = rig.net.connect();
        let mut crowd = Crowd::new(&rig, 24, seed);
        let (mut hits, mut misses, mut evicted, mut salt) = (0, 0, 0, 0);
        for round in 0..60_u64 {
            if round % 6 == 5 {
                // So much else that all of what is there must go, this one too.
                rig.ask(&owner, &set_with(round, 300_000, 0), b"STORED\r\n");
                for number in 0..60 {
                    rig.set(&owner, &format!("else{number}"), &value(900_000, number));
                }
                evicted += usize::from(rig.ask(&owner, b"get hot\r\n", b"END\r\n") == b"END\r\n");
            }
            rig.clock.advance(500_000_000);
            let next = |random: &mut Random| {
                salt += 1;
                match random.below(20) {
                    0 => changed(random, salt),
                    1..13 => get("hot"),
                    _ => Request {
                        bytes: format!("mg cold{} v\r\n", random.below(3000)).into_bytes(),
                        end: b"\r\n",
                    },
                }
            };
            crowd.ask(&mut rig, 120, next, |reply| match reply {
                b"END\r\n" => misses += 1,
                b"EN\r\n" | b"STORED\r\n" | b"DELETED\r\n" | b"NOT_FOUND\r\n" => {}
                _ => {
                    check(reply);
                    hits += 1;
                }
            });
        }
        let what = format!("{access}: {hits} hits, {misses} misses, evicted {evicted} times");
        assert!(hits > 1_000 && misses > 100 && evicted > 0, "{what}");
        rig.turns(20);
        assert_eq!(rig.shared.store.stats().pinned_dead_bytes, 0);
        let told = stats(&rig, &Question::HotKeys);
        assert!(number(&told, "found") >= 1.0 && number(&told, "moved") > 20.0, "{told:?}");
    }
}

/// Keys that are one by the hash that says whose a key is, as everybody can make them: that hash is
/// public, and after each 8 bytes all it knows is in 64 bits.
struct OneOwnerHash {
    number: u64,
}

impl Iterator for OneOwnerHash {
    type Item = [u8; 16];

    fn next(&mut self) -> Option<[u8; 16]> {
        const MULTIPLIER: u64 = 0x243f_6a88_85a3_08d3;
        loop {
            let first = *format!("{:08x}", self.number as u32).as_bytes().first_chunk::<8>()?;
            self.number += 1;
            let state = owner::SEED ^ 16_u64.wrapping_mul(MULTIPLIER);
            let state = (state ^ u64::from_le_bytes(first)).wrapping_mul(MULTIPLIER);
            let second = (state ^ (state >> 32)) ^ 0x5eed;
            let key = [first, second.to_le_bytes()].concat();
            if key.iter().all(|byte| *byte > b' ' && *byte != 0x7f) {
                return key.try_into().ok();
            }
        }
    }
}

#[test]
fn a_million_keys_made_to_share_the_owners_hash_are_not_hot_together() {
    let hasher = KeyHasher::new(0x5eed);
    let mut sketch = WorkerSketch::new(0x5eed);
    let mut owners = BTreeSet::new();
    for (number, key) in (OneOwnerHash { number: 0 }).take(1_000_000).enumerate() {
        if number % 2_000 == 0 {
            sketch.slot_ended();
        }
        owners.insert(owner::hash(owner::SEED, &key));
        let count = sketch.count(hasher.hash(&key));
        assert!(u32::from(count) < HOT_REQUESTS_MIN, "{key:?} is called hot");
    }
    assert_eq!(owners.len(), 1, "they are what they are made to be");
}

#[test]
fn keys_made_to_share_the_owners_hash_leave_the_table_empty() {
    let mut rig = Rig::new(&plan(Access::Erew, 4, 400));
    let mut keys = OneOwnerHash { number: 0 };
    let mut crowd = Crowd::new(&rig, 32, 1);
    let next = |_: &mut Random| {
        let key = keys.next().expect("there are many");
        Request { bytes: [b"get ", &key[..], b"\r\n"].concat(), end: b"END\r\n" }
    };
    crowd.ask(&mut rig, 10_000, next, |_| {});
    let told = stats(&rig, &Question::HotKeys);
    assert_eq!((number(&told, "keys"), number(&told, "found")), (0.0, 0.0), "{told:?}");
    assert!(number(&told, "slots") > 20.0, "{told:?}");
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
