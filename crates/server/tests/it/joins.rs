//! `append` and `prepend` to a large item: copied slice by slice, with small requests in between.

use laneway_rig as rig;

use laneway_policy::{Design, Form};
use laneway_store::meter;
use laneway_transport::memory_datagram::DatagramFaults;
use rig::peer::{Peer, count, set};
use rig::{FORMS, Plan, Rig, hit, resp, value};
use std::time::Duration;

const LARGE: usize = 4_000_000;
/// Turns that copying it takes, a slice of 32 KiB each.
const SLICES: usize = LARGE / (32 << 10);

fn reply(key: &str, value: &[u8]) -> Vec<u8> {
    [&hit(key, value)[..], b"END\r\n"].concat()
}

fn plans() -> Vec<Plan> {
    let mut plans = rig::plans_of_lanes();
    plans.push(Plan::design(Design::Minos, 3));
    plans
}

/// What is joined, by which command, to `old`.
fn joins(old: &[u8]) -> Vec<(&'static str, Vec<u8>, Vec<u8>)> {
    let mut all = Vec::new();
    for bytes in [5, 100_000] {
        let new = value(bytes, 9);
        all.push(("append", new.clone(), [old, &new].concat()));
        all.push(("prepend", new.clone(), [&new[..], old].concat()));
    }
    all
}

fn request(verb: &str, bytes: &[u8]) -> Vec<u8> {
    let mut request = format!("{verb} k 0 0 {}\r\n", bytes.len()).into_bytes();
    request.extend_from_slice(bytes);
    request.extend_from_slice(b"\r\n");
    request
}

#[test]
fn small_requests_are_answered_while_something_is_joined_to_a_large_item() {
    for plan in plans() {
        let what = plan.what();
        let old = value(LARGE, 1);
        for (verb, new, joined) in joins(&old) {
            let mut rig = Rig::new(&plan);
            let (writer, other) = (rig.net.connect(), rig.net.connect());
            rig.set(&writer, "k", &old);
            rig.set(&other, "s", b"small");
            let mut got = rig.send(&writer, &request(verb, &new));
            let mut answered = 0;
            while !got.ends_with(b"\r\n") {
                assert_eq!(rig.ask(&other, b"get s\r\n", b"END\r\n"), reply("s", b"small"));
                got.extend(writer.receive(usize::MAX));
                answered += 1;
                assert!(answered < 10_000, "{what}");
            }
            assert_eq!(got, b"STORED\r\n", "{verb}, {what}");
            // A job of minos is executed at once, by a worker that serves nothing small.
            let is_job = plan.design == Design::Minos && new.len() as u64 >= plan.threshold_bytes;
            assert!(is_job || answered > 20, "{answered} in between: {verb}, {what}");
            let got = rig.ask(&other, b"get k\r\n", b"END\r\n");
            assert!(got == reply("k", &joined), "{verb} of {} bytes, {what}", new.len());
            assert_eq!(rig.ask(&writer, b"mn\r\n", b"\r\n"), b"MN\r\n", "{what}");
        }
    }
}

#[test]
fn what_is_pipelined_behind_a_join_comes_behind_it() {
    for plan in plans() {
        let what = plan.what();
        let mut rig = Rig::new(&plan);
        let client = rig.net.connect();
        rig.set(&client, "k", &value(LARGE, 1));
        let line = [&request("append", b"1")[..], b"mn\r\n", &request("append", b"2"), b"mn\r\n"];
        let got = rig.ask(&client, &line.concat(), b"MN\r\nSTORED\r\nMN\r\n");
        assert_eq!(got, b"STORED\r\nMN\r\nSTORED\r\nMN\r\n", "{what}");
        let got = rig.ask(&client, b"get k\r\n", b"END\r\n");
        assert!(got == reply("k", &[&value(LARGE, 1)[..], b"12"].concat()), "{what}");
    }
}

#[test]
fn over_datagrams_too_and_each_turn_copies_one_slice() {
    for (workers, form) in FORMS {
        let plan = Plan { datagrams: Some(DatagramFaults::NONE), ..Plan::of(workers, form) };
        let old = value(LARGE, 1);
        for (verb, new, joined) in joins(&old) {
            let what = format!("{verb} of {} bytes, {workers} workers, {form}", new.len());
            let mut rig = Rig::new(&plan);
            let mut peer = Peer::new(&rig);
            let client = rig.net.connect();
            rig.set(&client, "k", &old);
            peer.send(0, 1, &request(verb, &new));
            rig.turns(SLICES / 2);
            peer.receive();
            assert_eq!(peer.got, [], "{what}: it was quick");
            assert_eq!(peer.ask(&mut rig, 0, 2, b"get k2\r\n"), b"END\r\n");
            assert_eq!(peer.until(&mut rig, 1), b"STORED\r\n", "{what}");
            let got = rig.ask(&client, b"get k\r\n", b"END\r\n");
            assert!(got == reply("k", &joined), "{what}");
        }
    }
}

/// A datagram holds more than the smallest of what is large.
#[test]
fn a_large_append_in_one_datagram_is_joined_slice_by_slice_too() {
    for (workers, form) in FORMS {
        let plan = Plan { threshold_bytes: 256, ..Plan::of(workers, form) }.with_datagrams();
        let (old, new) = (value(LARGE, 1), value(1_000, 9));
        let mut rig = Rig::new(&plan);
        let mut peer = Peer::new(&rig);
        let client = rig.net.connect();
        rig.set(&client, "k", &old);
        peer.send(0, 1, &request("append", &new));
        rig.turns(SLICES / 2);
        peer.receive();
        assert_eq!(peer.got, [], "{workers} workers, {form}: it was quick");
        assert_eq!(peer.until(&mut rig, 1), b"STORED\r\n", "{workers} workers, {form}");
        let got = rig.ask(&client, b"get k\r\n", b"END\r\n");
        assert!(got == reply("k", &[&old[..], &new].concat()), "{workers} workers, {form}");
    }
}

#[test]
fn a_large_append_in_one_datagram_finds_the_item_of_another_domain() {
    let plan = Plan { domains: 2, threshold_bytes: 256, ..Plan::of(4, Form::TimeShare) };
    let mut rig = Rig::new(&plan.with_datagrams());
    let mut peer = Peer::new(&rig);
    let client = rig.net.connect();
    let new = value(1_000, 9);
    rig.set(&client, "k", b"old");
    // One of these queues is of the domain that has the key, and the other is not.
    for (queue, id) in [(0, 1), (2, 2)] {
        let told = peer.ask(&mut rig, queue, id, &request("append", &new));
        assert_eq!(String::from_utf8_lossy(&told), "STORED\r\n", "queue {queue}");
    }
    let got = rig.ask(&client, b"get k\r\n", b"END\r\n");
    assert!(got == reply("k", &[&b"old"[..], &new, &new].concat()));
}

/// However long that takes.
/// Nobody makes an item longer piece by piece than at once.
#[test]
fn a_joined_value_is_as_long_as_one_that_is_set_at_most() {
    const FITS: usize = (64 << 10) - 60; // with 59 bytes and the key
    let mut rig = Rig::new(&Plan { item_bytes_max: 64 << 10, ..Plan::of(2, Form::TimeShare) });
    let (client, redis) = (rig.net.connect(), rig.net.connect());
    let refused = b"SERVER_ERROR object too large for cache\r\n";
    assert_eq!(rig.ask(&client, &set("k", &value(FITS + 1, 1)), b"\r\n"), refused);
    rig.set(&client, "k", &value(FITS - 1, 1));
    for told in ["STORED\r\n", "NOT_STORED\r\n"] {
        let got = rig.ask(&client, &request("append", b"x"), b"STORED\r\n");
        assert_eq!(String::from_utf8_lossy(&got), told);
    }
    let error = rig.say_resp(&redis, "APPEND k x");
    assert!(error.starts_with('-'), "{error}");
    let longest = [&value(FITS - 1, 1)[..], b"x"].concat();
    assert!(rig.ask(&client, b"get k\r\n", b"END\r\n") == reply("k", &longest));
}

#[test]
fn who_waits_for_a_join_is_not_idle() {
    let idle_timeout = Duration::from_secs(5);
    let mut rig = Rig::new(&Plan { idle_timeout, ..Plan::of(1, Form::TimeShare) });
    let client = rig.net.connect();
    rig.set(&client, "k", &value(LARGE, 1));
    let mut got = rig.send(&client, &request("append", b"tail"));
    rig.turns(SLICES / 3);
    rig.clock.advance(60_000_000_000);
    got = rig.until(&client, got, |got| got.ends_with(b"\r\n"));
    assert_eq!(got, b"STORED\r\n");
    // And is behind it.
    rig.clock.advance(60_000_000_000);
    rig.turns(100);
    assert!(client.ended());
}

/// No worker copies it in one step.
#[test]
fn an_append_makes_a_large_item_slice_by_slice() {
    const BYTES_PER_TURN: u64 = 1 << 20;
    let new = value(LARGE, 1);
    let append = resp::request(&[b"APPEND", b"k", &new]);
    let meta = [format!("ms k {LARGE} MA N0\r\n").as_bytes(), &new, b"\r\n"].concat();
    for plan in rig::plans_of_lanes() {
        let what = plan.what();
        for (request, told) in [(&append, &b":4000000\r\n"[..]), (&meta, b"HD\r\n")] {
            let mut rig = Rig::new(&plan);
            let (writer, reader) = (rig.net.connect(), rig.net.connect());
            let (mut sent, mut got) = (0, Vec::new());
            for _ in 0..20_000 {
                sent += writer.send(&request[sent..]);
                meter::take();
                rig.turn();
                let work = meter::take();
                assert!(work.bytes <= BYTES_PER_TURN, "{work:?}, {what}");
                got.extend(writer.receive(usize::MAX));
                if got.len() >= told.len() {
                    break;
                }
            }
            assert_eq!(got, told, "{what}");
            let got = rig.ask(&reader, b"get k\r\n", b"END\r\n");
            assert!(got == reply("k", &new), "{what}");
        }
    }
}

/// No worker copies a whole item in one step, however many come at once.
#[test]
fn what_is_more_than_may_be_joined_at_a_time_is_thrown_away_and_may_be_asked_again() {
    const COUNT: u16 = 120;
    const MOST: u64 = 64;
    // In one datagram, and in several, which go into an item of their own first.
    for bytes in [1, 3000] {
        let plan = Plan { threshold_bytes: 256, ..Plan::of(1, Form::TimeShare) };
        let mut rig = Rig::new(&plan.with_datagrams());
        let mut peer = Peer::new(&rig);
        let client = rig.net.connect();
        let (old, new) = (value(200_000, 1), value(bytes, 9));
        for number in 0..COUNT {
            rig.set(&client, &format!("k{number}"), &old);
        }
        let append = |number: u16| {
            let head = format!("append k{number} 0 0 {bytes}\r\n");
            [head.as_bytes(), &new, b"\r\n"].concat()
        };
        (0..COUNT).for_each(|number| peer.send(0, 1 + number, &append(number)));
        rig.turns(COUNT as usize * 40);
        peer.receive();
        let joined = std::mem::take(&mut peer.got).into_iter().map(|(id, _)| id);
        let joined: Vec<u16> = joined.collect();
        let dropped = count(&rig, "requests_queue_full");
        assert_eq!(joined.len() as u64 + dropped, u64::from(COUNT), "{bytes} bytes");
        assert!(dropped > 0 && joined.len() as u64 >= MOST, "{bytes} bytes: {dropped}");
        for number in 0..COUNT {
            if !joined.contains(&(1 + number)) {
                let id = 1 + COUNT + number;
                assert_eq!(peer.ask(&mut rig, 0, id, &append(number)), b"STORED\r\n");
            }
            let got = rig.ask(&client, format!("get k{number}\r\n").as_bytes(), b"END\r\n");
            let whole = reply(&format!("k{number}"), &[&old[..], &new].concat());
            assert!(got == whole, "{bytes} bytes, k{number}");
        }
    }
}

#[test]
fn an_item_that_changes_under_a_join_is_joined_anew() {
    for (workers, form) in FORMS {
        let plan = Plan { datagrams: Some(DatagramFaults::NONE), ..Plan::of(workers, form) };
        let mut rig = Rig::new(&plan);
        let mut peer = Peer::new(&rig);
        let client = rig.net.connect();
        rig.set(&client, "k", &value(LARGE, 1));
        peer.send(0, 1, &request("append", b"tail"));
        rig.turns(SLICES / 3);
        let other = value(20_000, 2);
        assert_eq!(peer.ask(&mut rig, 0, 2, &set("k", &other)), b"STORED\r\n");
        assert_eq!(peer.until(&mut rig, 1), b"STORED\r\n");
        let got = rig.ask(&client, b"get k\r\n", b"END\r\n");
        assert!(got == reply("k", &[&other[..], b"tail"].concat()), "{workers} workers, {form}");
    }
}
