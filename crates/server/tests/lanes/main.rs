//! The lanes, told apart by what they promise: a small request never waits behind a large one, and
//! no reply is lost, doubled, changed or out of order, whatever roles do. Every fact holds in both
//! forms, at 1, 2 and 6 workers; what is true of any server holds in every design.

mod roles;
mod urgent;

use laneway_rig as rig;

use laneway_policy::{BATCH_BESIDE_LARGE, Design, Form, Role};
use laneway_server::shared::Phase;
use laneway_server::worker::Progress;
use laneway_transport::memory::Client;
use rig::resp::{Speech, bulk, words};
use rig::{Plan, Rig, hit, plans, plans_of_lanes, tail, value};

const LARGE: usize = 4 << 20;

/// Large enough where nobody counts turns.
const MEDIUM: usize = 1 << 20;

/// The designs that promise anything to small requests.
fn plans_of_lanes_and_minos() -> Vec<Plan> {
    let mut plans = plans_of_lanes();
    plans.extend([2, 6].map(|workers| Plan::design(Design::Minos, workers)));
    plans
}

/// The reply of one key's `get`, END included.
fn reply(key: &str, value: &[u8]) -> Vec<u8> {
    [&hit(key, value)[..], b"END\r\n"].concat()
}

#[test]
fn small_requests_are_answered_while_a_large_reply_is_on_its_way() {
    for plan in plans_of_lanes_and_minos() {
        let what = plan.what();
        let mut rig = Rig::new(&plan);
        let (slow, quick) = (rig.net.connect(), rig.net.connect());
        let big = value(LARGE, 1);
        rig.set(&slow, "big", &big);
        rig.set(&quick, "small", b"s");
        slow.send(b"get big\r\n");
        let mut got = Vec::new();
        let mut answered = 0;
        while got.len() < LARGE / 2 {
            quick.send(b"get small\r\n");
            rig.turns(4);
            let small = quick.receive(usize::MAX);
            assert_eq!(small, reply("small", b"s"), "{what}");
            answered += 1;
            got.extend(slow.receive(usize::MAX));
        }
        assert!(answered > 10, "only {answered} small replies, {what}");
        let got = rig.until(&slow, got, |got| got.ends_with(b"END\r\n"));
        assert!(got == reply("big", &big), "{what}: {}", tail(&got));
    }
}

#[test]
fn small_requests_are_answered_while_a_large_value_arrives() {
    for plan in plans_of_lanes_and_minos() {
        let what = plan.what();
        let mut rig = Rig::new(&plan);
        let (slow, quick) = (rig.net.connect(), rig.net.connect());
        rig.set(&quick, "small", b"s");
        let big = value(LARGE, 2);
        slow.send(format!("set big 0 0 {LARGE}\r\n").as_bytes());
        let mut sent = 0;
        while sent < LARGE {
            sent += slow.send(&big[sent..]);
            quick.send(b"get small\r\n");
            rig.turns(4);
            assert_eq!(quick.receive(usize::MAX), reply("small", b"s"), "{what}");
        }
        assert_eq!(rig.ask(&slow, b"\r\n", b"\r\n"), b"STORED\r\n");
        let got = rig.ask(&quick, b"get big\r\n", b"END\r\n");
        assert!(got == reply("big", &big), "{what}: {}", tail(&got));
    }
}

#[test]
fn a_client_that_does_not_read_costs_nobody_else_a_turn() {
    for plan in plans_of_lanes_and_minos() {
        let what = plan.what();
        let mut rig = Rig::new(&plan);
        let (stuck, other) = (rig.net.connect(), rig.net.connect());
        let big = value(LARGE, 3);
        rig.set(&stuck, "big", &big);
        stuck.send(b"get big\r\n"); // and never reads
        rig.turns(50);
        let slices = |rig: &Rig| -> u64 {
            rig.shared.workers.iter().map(|worker| worker.lanes.slices.get()).sum()
        };
        let before = slices(&rig);
        let got = rig.ask(&other, b"get big\r\n", b"END\r\n");
        assert!(got == reply("big", &big), "{what}");
        let needed = LARGE as u64 / (32 * 1024) + 64;
        assert!(slices(&rig) - before <= 3 * needed, "the stuck client went on taking turns");
        let all = rig.until(&stuck, Vec::new(), |got| got.ends_with(b"END\r\n"));
        assert!(all == reply("big", &big), "and when it reads at last, all is there");
    }
}

/// Where workers share a CPU their threads let each other run when a step says so: after each slice
/// of a large transfer, and at no other time.
#[test]
fn a_step_says_whether_it_moved_a_slice() {
    let mut rig = Rig::new(&Plan::of(1, Form::TimeShare));
    let (reader, other) = (rig.net.connect(), rig.net.connect());
    let big = value(MEDIUM, 7);
    rig.set(&reader, "big", &big);
    rig.set(&other, "small", b"s");
    reader.send(b"get big\r\n");
    let (mut got, mut sliced, mut busy) = (Vec::new(), 0, 0);
    while !got.ends_with(b"END\r\n") {
        let slices = |rig: &Rig| rig.shared.workers[0].lanes.slices.get();
        let before = slices(&rig);
        let progress = rig.workers[0].step().expect("memory transports do not fail");
        let moved = slices(&rig) > before;
        assert_eq!(progress == Progress::Sliced, moved, "{progress:?} after {sliced} slices");
        sliced += u32::from(moved);
        got.extend(reader.receive(usize::MAX));
    }
    assert!(got == reply("big", &big) && sliced > 10, "{sliced} slices: {}", tail(&got));
    other.send(b"get small\r\n");
    while other.receive(usize::MAX).is_empty() {
        busy += 1;
        let progress = rig.workers[0].step().expect("memory transports do not fail");
        assert_ne!(progress, Progress::Sliced, "nothing large is left");
        assert!(busy < 100, "a small reply is not so slow");
    }
}

/// A backlog of small requests, as after a gap, does not shut a large transfer out: it moves a
/// slice for every few of them.
#[test]
fn a_backlog_of_small_requests_leaves_the_large_lane_its_share() {
    for speech in Speech::BOTH {
        let mut rig = Rig::new(&Plan::of(1, Form::TimeShare));
        let reader = rig.net.connect();
        let big = value(LARGE, 6);
        speech.set(&mut rig, &reader, "big", &big);
        speech.set(&mut rig, &reader, "small", b"s");
        let crowd: Vec<_> = (0..4 * BATCH_BESIDE_LARGE).map(|_| rig.net.connect()).collect();
        rig.turns(8);
        let slices = |rig: &Rig| rig.shared.workers[0].lanes.slices.get();
        reader.send(&speech.get("big"));
        rig.turn();
        let mut got = reader.receive(usize::MAX);
        for client in &crowd {
            client.send(&speech.get("small"));
        }
        let before = slices(&rig);
        let mut answered = 0;
        while answered < crowd.len() {
            rig.turn();
            got.extend(reader.receive(usize::MAX)); // or there would be no room for the next slice
            let now = crowd.iter().filter(|one| !one.receive(usize::MAX).is_empty()).count();
            assert!(now as u32 <= BATCH_BESIDE_LARGE, "{now} before one slice, {speech:?}");
            answered += now;
        }
        let moved = slices(&rig) - before;
        assert!(moved >= 4, "{moved} slices, {speech:?}");
        let large = speech.hit("big", &big);
        let got = rig.until(&reader, got, |got| got.len() >= large.len());
        assert!(got == large, "{speech:?}: {}", tail(&got));
    }
}

#[test]
fn large_requests_go_to_large_workers_and_connections_come_home() {
    let mut rig = Rig::new(&Plan::of(6, Form::Roles));
    let client = rig.net.connect();
    let big = value(LARGE, 4);
    rig.set(&client, "big", &big);
    rig.set(&client, "small", b"s");
    for _ in 0..3 {
        assert!(rig.ask(&client, b"get big\r\n", b"END\r\n") == reply("big", &big));
        assert_eq!(rig.ask(&client, b"get small\r\n", b"END\r\n"), reply("small", b"s"));
    }
    rig.turns(8);
    let plan = rig.shared.plan.get();
    for (number, worker) in rig.shared.workers.iter().enumerate() {
        let role = plan.roles[number];
        let large = worker.lanes.requests_large.get();
        assert_eq!(large > 0, role == Role::Large && large == 4, "worker {number} is {role:?}");
        assert!(role != Role::Large || worker.lanes.requests_small.get() == 0);
    }
    let sum = |count: fn(&laneway_server::shared::LaneCounts) -> u64| -> u64 {
        rig.shared.workers.iter().map(|worker| count(&worker.lanes)).sum()
    };
    assert_eq!(sum(|lanes| lanes.moved_to_large.get()), 4, "one SET and three GETs");
    assert_eq!(sum(|lanes| lanes.moved_home.get()), 4);
}

#[test]
fn hkh_serves_large_requests_where_they_arrive() {
    let plan = Plan { design: Design::Hkh, ..Plan::of(6, Form::TimeShare) };
    let mut rig = Rig::new(&plan);
    let client = rig.net.connect();
    let big = value(LARGE, 5);
    rig.set(&client, "big", &big);
    assert!(rig.ask(&client, b"get big\r\n", b"END\r\n") == reply("big", &big));
    for worker in &rig.shared.workers {
        assert_eq!(worker.lanes.slices.get(), 0);
        assert_eq!(worker.lanes.moved_to_large.get(), 0);
    }
}

/// All designs, each with both protocols.
fn plans_and_speech() -> impl Iterator<Item = (Plan, Speech)> {
    plans().into_iter().flat_map(|plan| Speech::BOTH.map(|speech| (plan.clone(), speech)))
}

#[test]
fn a_large_value_in_the_middle_of_a_multiget_keeps_the_order() {
    for (plan, speech) in plans_and_speech() {
        let mut rig = Rig::new(&plan);
        let client = rig.net.connect();
        let big = value(MEDIUM, 6);
        speech.set(&mut rig, &client, "a", b"1");
        speech.set(&mut rig, &client, "big", &big);
        speech.set(&mut rig, &client, "z", b"26");
        let (a, z) = (&b"1"[..], &b"26"[..]);
        let (asked, told) = match speech {
            Speech::Text => (
                b"get a big nothing z big \r\n".to_vec(),
                [hit("a", a), hit("big", &big), hit("z", z), hit("big", &big), b"END\r\n".to_vec()],
            ),
            Speech::Resp => (
                words("MGET a big nothing z big"),
                [
                    [&b"*5\r\n"[..], &bulk(a)].concat(),
                    bulk(&big),
                    [b"$-1\r\n", &bulk(z)[..]].concat(),
                    bulk(&big),
                    Vec::new(),
                ],
            ),
        };
        let (ping, pong) = speech.ping();
        let wanted = [&told.concat()[..], pong].concat();
        let got = rig.ask(&client, &[asked, ping].concat(), pong);
        assert!(got == wanted, "{} {speech:?}: {}", plan.what(), tail(&got));
    }
}

/// By RESP it is half of one: a bulk string has no more.
#[test]
fn a_declared_gigabyte_that_never_comes_reserves_nothing() {
    for (plan, speech) in plans_and_speech() {
        let what = format!("{} {speech:?}", plan.what());
        let plan = Plan { item_bytes_max: 1 << 30, ..plan };
        let mut rig = Rig::new(&plan);
        let client = rig.net.connect();
        client.send(match speech {
            Speech::Text => &b"set k 0 0 1000000000\r\nfirst bytes"[..],
            Speech::Resp => b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$500000000\r\nfirst bytes",
        });
        rig.turns(50);
        let held = rig.shared.store.stats().unpublished_bytes;
        assert!(held <= 512 << 10, "{held} bytes are held, {what}");
        client.reset();
        rig.turns(50);
        assert_eq!(rig.shared.store.stats().unpublished_bytes, 0, "{what}");
    }
}

#[test]
fn a_client_that_vanishes_in_a_large_reply_frees_what_it_pinned() {
    for (plan, speech) in plans_and_speech() {
        let what = format!("{} {speech:?}", plan.what());
        let mut rig = Rig::new(&plan);
        let (client, other) = (rig.net.connect(), rig.net.connect());
        speech.set(&mut rig, &client, "big", &value(MEDIUM, 7));
        client.send(&speech.get("big"));
        rig.turns(20);
        speech.set(&mut rig, &other, "big", b"replaced");
        assert!(rig.shared.store.stats().pinned_dead_bytes > 0, "{what}");
        client.reset();
        rig.turns(20);
        assert_eq!(rig.shared.store.stats().pinned_dead_bytes, 0, "{what}");
        assert_eq!(rig.shared.connections.open.load(std::sync::atomic::Ordering::Relaxed), 1);
    }
}

#[test]
fn more_connections_than_allowed_are_told_and_closed() {
    for (speech, listener, words) in [
        (Speech::Text, 0, &b"ERROR Too many open connections\r\n"[..]),
        // At a port of its own: elsewhere nobody knows yet what the client speaks.
        (Speech::Resp, 2, b"-ERR max number of clients reached\r\n"),
    ] {
        let plan = Plan { connections_max: 2, ..Plan::of(2, Form::TimeShare) };
        let mut rig = Rig::new(&plan);
        assert!(rig.shared.resp_from.set(2).is_ok());
        let clients: Vec<Client> = (0..3).map(|_| rig.net.connect_at(listener)).collect();
        rig.turns(5);
        assert_eq!(clients[2].receive(100), words);
        assert!(clients[2].ended());
        let (ping, pong) = speech.ping();
        assert_eq!(rig.ask(&clients[0], &ping, b"\r\n"), pong);
        clients[1].finish();
        rig.turns(5);
        let late = rig.net.connect_at(listener);
        assert_eq!(rig.ask(&late, &ping, b"\r\n"), pong);
    }
}

#[test]
fn a_stopping_server_finishes_what_is_under_way() {
    for (plan, speech) in plans_and_speech() {
        let what = format!("{} {speech:?}", plan.what());
        let mut rig = Rig::new(&plan);
        let (idle, busy) = (rig.net.connect(), rig.net.connect());
        let big = value(MEDIUM, 8);
        speech.set(&mut rig, &busy, "big", &big);
        speech.set(&mut rig, &idle, "small", b"s");
        busy.send(&speech.get("big"));
        rig.turns(6);
        rig.shared.enter_phase(Phase::Draining);
        rig.turns(3);
        assert!(idle.ended(), "{what}");
        let mut got = Vec::new();
        for _ in 0..10_000 {
            got.extend(busy.receive(usize::MAX));
            rig.turn();
            if busy.ended() {
                break;
            }
        }
        got.extend(busy.receive(usize::MAX));
        assert!(got == speech.hit("big", &big), "{what}: {}", tail(&got));
    }
}
