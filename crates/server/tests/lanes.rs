//! The lanes, told apart by what they promise: a small request never waits behind a large one, and
//! no reply is lost, doubled, changed or out of order, whatever roles do. Every fact holds in both
//! forms, at 1, 2 and 6 workers; what is true of any server holds in every design.

use laneway_vopr::rig;

use laneway_policy::{BATCH_BESIDE_LARGE, Design, Form, Role};
use laneway_server::shared::{LaneCounts, Phase};
use laneway_server::worker::Progress;
use laneway_transport::memory::{Client, Faults};
use rig::{Plan, Rig, hit, plans, plans_of_lanes, plans_of_rivals, tail, value};
use std::collections::BTreeMap;

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
    let mut rig = Rig::new(&Plan::of(1, Form::TimeShare));
    let reader = rig.net.connect();
    let big = value(LARGE, 6);
    rig.set(&reader, "big", &big);
    rig.set(&reader, "small", b"s");
    let crowd: Vec<_> = (0..4 * BATCH_BESIDE_LARGE).map(|_| rig.net.connect()).collect();
    rig.turns(8);
    let slices = |rig: &Rig| rig.shared.workers[0].lanes.slices.get();
    reader.send(b"get big\r\n");
    rig.turn();
    let mut got = reader.receive(usize::MAX);
    for client in &crowd {
        client.send(b"get small\r\n");
    }
    let before = slices(&rig);
    let mut answered = 0;
    while answered < crowd.len() {
        rig.turn();
        got.extend(reader.receive(usize::MAX)); // or there would be no room for the next slice
        let now = crowd.iter().filter(|one| !one.receive(usize::MAX).is_empty()).count();
        assert!(now as u32 <= BATCH_BESIDE_LARGE, "{now} small requests before one slice");
        answered += now;
    }
    assert!(slices(&rig) - before >= 4, "{} slices", slices(&rig) - before);
    let got = rig.until(&reader, got, |got| got.ends_with(b"END\r\n"));
    assert!(got == reply("big", &big));
}

/// A crowd of clients that pipeline, and one of them with a large value in the middle of its
/// pipeline: between two slices of it few small requests are served, or those behind it would wait
/// for the whole crowd again and again.
#[test]
fn what_is_pipelined_behind_a_large_value_does_not_wait_for_a_crowd() {
    const DEPTH: usize = 16;
    let mut rig = Rig::new(&Plan::of(1, Form::TimeShare));
    let reader = rig.net.connect();
    let big = value(MEDIUM, 8);
    rig.set(&reader, "big", &big);
    rig.set(&reader, "small", b"s");
    let crowd: Vec<_> = (0..32).map(|_| rig.net.connect()).collect();
    rig.turns(8);
    let one = reply("small", b"s");
    let pipeline = b"get small\r\n".repeat(DEPTH);
    let ask_again = |served: &mut usize| {
        for client in &crowd {
            let bytes = client.receive(usize::MAX).len();
            if *served == 0 || bytes > 0 {
                client.send(&pipeline[..pipeline.len().min(11 * (bytes / one.len()).max(1))]);
            }
            *served += bytes / one.len();
        }
    };
    // How deep a pipeline is, is learned from the last turns.
    let mut served = 0;
    for client in &crowd {
        client.send(&pipeline);
        served = 1;
    }
    for _ in 0..64 {
        rig.turn();
        ask_again(&mut served);
    }
    let lanes = |rig: &Rig| {
        let lanes = &rig.shared.workers[0].lanes;
        (lanes.slices.get(), lanes.slices_urgent.get())
    };
    let (slices, urgent) = lanes(&rig);
    reader.send(b"get big\r\nget small\r\n");
    let (mut got, mut beside) = (Vec::new(), 1);
    while !got.ends_with(&one) {
        rig.turn();
        got.extend(reader.receive(usize::MAX));
        ask_again(&mut beside);
        assert!(beside < 100_000, "it does not end");
    }
    assert!(got == [reply("big", &big), one.clone()].concat(), "{}", tail(&got));
    let (slices, urgent) = (lanes(&rig).0 - slices, lanes(&rig).1 - urgent);
    assert!(slices >= 32 && urgent == slices, "{urgent} of {slices} slices were urgent");
    // A turn of one connection for each slice; and all of the crowd before the first and behind the
    // last one.
    let most = (slices as usize + 2 * crowd.len()) * DEPTH;
    assert!(beside <= most, "{beside} small requests beside {slices} slices, at most {most}");
}

/// A large value that arrives in the middle of a pipeline is urgent to its last slice, wherever it
/// is served; one whose client sends nothing else is not.
#[test]
fn a_value_that_arrives_is_urgent_where_its_client_pipelines() {
    for plan in [Plan::of(1, Form::TimeShare), Plan::of(6, Form::Roles)] {
        for pipelines in [true, false] {
            let mut rig = Rig::new(&plan);
            let client = rig.net.connect();
            rig.set(&client, "small", b"s");
            let small: &[u8] = if pipelines { b"get small\r\n" } else { b"" };
            let head = format!("set big 0 0 {MEDIUM}\r\n");
            let sent = [small, head.as_bytes(), &value(MEDIUM, 10), b"\r\n", small].concat();
            let (mut at, mut got) = (0, Vec::new());
            while at < sent.len() {
                at += client.send(&sent[at..]);
                rig.turn();
                got.extend(client.receive(usize::MAX));
            }
            let end: &[u8] = if pipelines { b"END\r\n" } else { b"STORED\r\n" };
            let stored = |got: &[u8]| got.windows(6).any(|word| word == b"STORED");
            rig.until(&client, got, |got| stored(got) && got.ends_with(end));
            let sum = |count: fn(&LaneCounts) -> u64| -> u64 {
                rig.shared.workers.iter().map(|worker| count(&worker.lanes)).sum()
            };
            let (all, urgent) =
                (sum(|lanes| lanes.slices.get()), sum(|lanes| lanes.slices_urgent.get()));
            let wanted = if pipelines { all } else { 0 };
            assert!(all > 8 && urgent == wanted, "{}: {urgent} of {all}", plan.what());
        }
    }
}

/// Who asks for large values alone is not urgent, and has his slices beside those who are.
#[test]
fn replies_in_front_of_a_large_one_wait_for_none_of_its_slices() {
    for large in ["get big\r\n", "mg big v\r\n", "get small big\r\n"] {
        let mut rig = Rig::new(&Plan::of(1, Form::TimeShare));
        let (other, mixed) = (rig.net.connect(), rig.net.connect());
        rig.set(&other, "big", &value(LARGE, 1));
        rig.set(&mixed, "small", b"s");
        other.send(b"get big\r\n");
        rig.turns(2);
        assert!(!other.receive(usize::MAX).is_empty(), "it has begun");
        // The other one has its run first, all of 4 MiB: its is the slice of this turn.
        mixed.send(format!("get small\r\nmg small v\r\n{large}").as_bytes());
        rig.turn();
        let mut wanted = [&reply("small", b"s")[..], b"VA 1\r\ns\r\n"].concat();
        if large.starts_with("get small") {
            wanted.extend_from_slice(&hit("small", b"s"));
        }
        let got = mixed.receive(usize::MAX);
        assert_eq!(tail(&got), tail(&wanted), "{large}");
        assert!(!other.receive(usize::MAX).is_empty(), "a slice was moved, and that was not it");
    }
}

#[test]
fn a_plain_transfer_has_its_share_beside_urgent_ones() {
    let mut rig = Rig::new(&Plan::of(1, Form::TimeShare));
    let (plain, urgent) = (rig.net.connect(), rig.net.connect());
    let big = value(LARGE, 9);
    rig.set(&plain, "big", &big);
    rig.set(&plain, "small", b"s");
    rig.turns(4);
    plain.send(b"get big\r\n");
    urgent.send(b"get big\r\nget small\r\n");
    let (mut of_plain, mut of_urgent) = (Vec::new(), Vec::new());
    while !of_urgent.ends_with(&reply("small", b"s")) {
        rig.turn();
        of_plain.extend(plain.receive(usize::MAX));
        of_urgent.extend(urgent.receive(usize::MAX));
    }
    assert!(of_urgent == [reply("big", &big), reply("small", b"s")].concat());
    let share = of_plain.len() as f64 / of_urgent.len() as f64;
    assert!((0.2..0.6).contains(&share), "the plain one had {share:.2} of the urgent one's");
    let all = rig.until(&plain, of_plain, |got| got.ends_with(b"END\r\n"));
    assert!(all == reply("big", &big));
}

/// Slices, and urgent ones among them, until 64 clients with a small request each are answered
/// while `bulk` others ask for large values by `request`.
fn slices_beside_a_bulk(bulk: usize, request: &str) -> (u64, u64) {
    let mut rig = Rig::new(&Plan::of(1, Form::TimeShare));
    let bulk: Vec<_> = (0..bulk).map(|_| rig.net.connect()).collect();
    rig.set(&bulk[0], "big", &value(LARGE, 11));
    rig.set(&bulk[0], "small", b"s");
    let small: Vec<_> = (0..64).map(|_| rig.net.connect()).collect();
    rig.turns(16);
    let turn = |rig: &mut Rig| {
        rig.turn();
        bulk.iter().for_each(|client| drop(client.receive(usize::MAX)));
    };
    for client in &bulk {
        client.send(request.as_bytes());
    }
    (0..40).for_each(|_| turn(&mut rig));
    let lanes = |rig: &Rig| {
        let lanes = &rig.shared.workers[0].lanes;
        (lanes.slices.get(), lanes.slices_urgent.get())
    };
    let before = lanes(&rig);
    for client in &small {
        client.send(b"get small\r\n");
    }
    let mut left: Vec<_> = small.iter().collect();
    while !left.is_empty() {
        turn(&mut rig);
        left.retain(|client| client.receive(usize::MAX).is_empty());
    }
    let after = lanes(&rig);
    (after.0 - before.0, after.1 - before.1)
}

/// The keys that are left of a multiget are no request behind it; and what lies behind a large GET
/// may be large as well, so it takes half of the small lane's share at most.
#[test]
fn a_bulk_of_large_values_leaves_small_clients_half_of_their_share() {
    for bulk in [1, 8] {
        let (slices, urgent) = slices_beside_a_bulk(bulk, "get big\r\n");
        assert!(slices >= 8 && urgent == 0, "{bulk} bulk clients: {urgent} of {slices}");
        let multiget = slices_beside_a_bulk(bulk, "get big big big big\r\n");
        assert_eq!(multiget, (slices, 0), "{bulk} clients with a multiget are as with a GET");
        let (pipelined, urgent) = slices_beside_a_bulk(bulk, &"get big\r\n".repeat(4));
        assert!(pipelined <= 2 * slices, "{bulk} bulk clients: {pipelined}, {slices} of plain");
        assert_eq!(urgent, pipelined, "{bulk} bulk clients");
        let (_, urgent) = slices_beside_a_bulk(bulk, "get big small\r\nget small\r\n");
        assert!(urgent > 0, "a request behind a multiget waits for it");
    }
}

/// Room to write is no request: a transfer that waited for its client stays plain.
#[test]
fn a_reply_that_waited_for_its_client_is_not_urgent() {
    for plan in [Plan::of(1, Form::TimeShare), Plan::of(6, Form::Roles)] {
        let mut rig = Rig::new(&plan);
        let client = rig.net.connect();
        let big = value(MEDIUM, 13);
        rig.set(&client, "big", &big);
        client.send(b"get big\r\n");
        let mut got = Vec::new();
        while !got.ends_with(b"END\r\n") {
            rig.turns(8); // its pipe is full by then
            got.extend(client.receive(usize::MAX));
        }
        assert!(got == reply("big", &big), "{}", tail(&got));
        let sum = |count: fn(&LaneCounts) -> u64| -> u64 {
            rig.shared.workers.iter().map(|worker| count(&worker.lanes)).sum()
        };
        let waited = sum(|lanes| lanes.slices.get()) > 32;
        let urgent = sum(|lanes| lanes.slices_urgent.get());
        assert!(waited && urgent == 0, "{}: {urgent} were urgent", plan.what());
    }
}

/// What a client moved before does not shorten the run of its next transfer: values up to the
/// length of a run are served first come, first served.
#[test]
fn a_transfer_begins_with_a_whole_run() {
    let mut rig = Rig::new(&Plan::of(1, Form::TimeShare));
    let (first, second) = (rig.net.connect(), rig.net.connect());
    rig.set(&first, "other", &value(LARGE / 2, 14));
    rig.set(&first, "big", &value(LARGE, 14));
    first.send(b"get big\r\n");
    rig.turn();
    second.send(b"get big\r\n");
    let (mut got, mut beside) = (first.receive(usize::MAX), 0);
    while !got.ends_with(b"END\r\n") {
        assert_eq!(beside, 0, "after {} bytes of the first one", got.len());
        rig.turn();
        got.extend(first.receive(usize::MAX));
        beside += second.receive(usize::MAX).len();
    }
}

/// A transfer that becomes urgent comes behind those who are.
#[test]
fn who_becomes_urgent_overtakes_nobody_urgent() {
    const SLICE: usize = 32 * 1024;
    let mut rig = Rig::new(&Plan::of(1, Form::TimeShare));
    let (late, urgent) = (rig.net.connect(), rig.net.connect());
    rig.set(&late, "big", &value(LARGE, 12));
    rig.set(&late, "small", b"s");
    rig.turns(8);
    late.send(b"get big\r\n");
    rig.turn();
    urgent.send(b"get big\r\nget small\r\n");
    let (mut of_late, mut of_urgent) = (late.receive(usize::MAX).len(), 0);
    while of_urgent < SLICE {
        rig.turn();
        of_late += late.receive(usize::MAX).len();
        of_urgent += urgent.receive(usize::MAX).len();
    }
    assert!(of_late < LARGE / 4, "{of_late} bytes have left already");
    late.send(b"get small\r\n");
    let before = of_late;
    // As long as the run of the urgent one takes.
    while of_urgent < 28 * SLICE {
        rig.turn();
        of_late += late.receive(usize::MAX).len();
        of_urgent += urgent.receive(usize::MAX).len();
        assert!(of_late - before <= 3 * SLICE, "{of_late} - {before} beside {of_urgent}");
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

#[test]
fn a_large_value_in_the_middle_of_a_multiget_keeps_the_order() {
    for plan in plans() {
        let what = plan.what();
        let mut rig = Rig::new(&plan);
        let client = rig.net.connect();
        let big = value(MEDIUM, 6);
        rig.set(&client, "a", b"1");
        rig.set(&client, "big", &big);
        rig.set(&client, "z", b"26");
        let wanted = [
            &hit("a", b"1")[..],
            &hit("big", &big),
            &hit("z", b"26"),
            &hit("big", &big),
            b"END\r\nMN\r\n",
        ];
        let got = rig.ask(&client, b"get a big nothing z big \r\nmn\r\n", b"MN\r\n");
        assert!(got == wanted.concat(), "{what}: {}", tail(&got));
    }
}

#[test]
fn a_declared_gigabyte_that_never_comes_reserves_nothing() {
    for plan in plans() {
        let what = plan.what();
        let plan = Plan { item_bytes_max: 1 << 30, ..plan };
        let mut rig = Rig::new(&plan);
        let client = rig.net.connect();
        client.send(b"set k 0 0 1000000000\r\nfirst bytes");
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
    for plan in plans() {
        let what = plan.what();
        let mut rig = Rig::new(&plan);
        let (client, other) = (rig.net.connect(), rig.net.connect());
        rig.set(&client, "big", &value(MEDIUM, 7));
        client.send(b"get big\r\n");
        rig.turns(20);
        rig.set(&other, "big", b"replaced");
        assert!(rig.shared.store.stats().pinned_dead_bytes > 0, "{what}");
        client.reset();
        rig.turns(20);
        assert_eq!(rig.shared.store.stats().pinned_dead_bytes, 0, "{what}");
        assert_eq!(rig.shared.connections.open.load(std::sync::atomic::Ordering::Relaxed), 1);
    }
}

#[test]
fn more_connections_than_allowed_are_told_and_closed() {
    let plan = Plan { connections_max: 2, ..Plan::of(2, Form::TimeShare) };
    let mut rig = Rig::new(&plan);
    let clients: Vec<Client> = (0..3).map(|_| rig.net.connect()).collect();
    rig.turns(5);
    assert_eq!(clients[2].receive(100), b"ERROR Too many open connections\r\n");
    assert!(clients[2].ended());
    assert_eq!(rig.ask(&clients[0], b"mn\r\n", b"\r\n"), b"MN\r\n");
    clients[1].finish();
    rig.turns(5);
    let late = rig.net.connect();
    assert_eq!(rig.ask(&late, b"mn\r\n", b"\r\n"), b"MN\r\n");
}

#[test]
fn a_stopping_server_finishes_what_is_under_way() {
    for plan in plans() {
        let what = plan.what();
        let mut rig = Rig::new(&plan);
        let (idle, busy) = (rig.net.connect(), rig.net.connect());
        let big = value(MEDIUM, 8);
        rig.set(&busy, "big", &big);
        rig.set(&idle, "small", b"s");
        busy.send(b"get big\r\n");
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
        assert!(got == reply("big", &big), "{what}: {}", tail(&got));
    }
}

/// A client that pipelines what it likes and knows every answer.
struct Scripted {
    client: Client,
    number: usize,
    stored: BTreeMap<String, Vec<u8>>,
    unsent: Vec<u8>,
    expected: Vec<u8>,
    received: Vec<u8>,
}

struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % sides
    }
}

impl Scripted {
    /// One more request of its own keys, and the reply that it must bring.
    fn request(&mut self, dice: &mut Dice) {
        let key = format!("c{}k{}", self.number, dice.roll(8));
        match dice.roll(10) {
            0..=2 => {
                let len = [10, 900, 20_000, 60_000, 300_000][dice.roll(5)];
                let value = value(len, dice.0);
                self.unsent.extend(format!("set {key} 0 0 {len}\r\n").as_bytes());
                self.unsent.extend_from_slice(&value);
                self.unsent.extend_from_slice(b"\r\n");
                self.expected.extend_from_slice(b"STORED\r\n");
                self.stored.insert(key, value);
            }
            3 => {
                self.unsent.extend(format!("delete {key}\r\n").as_bytes());
                let reply: &[u8] = if self.stored.remove(&key).is_some() {
                    b"DELETED\r\n"
                } else {
                    b"NOT_FOUND\r\n"
                };
                self.expected.extend_from_slice(reply);
            }
            4 => {
                self.unsent.extend_from_slice(b"nonsense\r\n");
                self.expected.extend_from_slice(b"ERROR\r\n");
            }
            _ => {
                let other = format!("c{}k{}", self.number, dice.roll(8));
                self.unsent.extend(format!("get {key} {other}\r\n").as_bytes());
                for key in [&key, &other] {
                    if let Some(value) = self.stored.get(key.as_str()) {
                        self.expected.extend(hit(key, value));
                    }
                }
                self.expected.extend_from_slice(b"END\r\n");
            }
        }
    }

    fn exchange(&mut self) {
        let sent = self.client.send(&self.unsent);
        self.unsent.drain(..sent);
        self.received.extend(self.client.receive(usize::MAX));
        assert!(!self.client.ended(), "client {} was closed", self.number);
    }

    fn is_answered(&self) -> bool {
        self.unsent.is_empty() && self.received.len() >= self.expected.len()
    }
}

/// Pipelining clients under roles that change at random; returns what everybody received.
fn changing_roles(plan: &Plan, seed: u64) -> Vec<Vec<u8>> {
    let has_roles = plan.form == Form::Roles && plan.design != Design::Sho;
    let faults = Faults { seed, short: 60, refuse: 60, reset: 0, pipe_bytes: 16_000 };
    let mut rig = Rig::new(&Plan { faults, ..plan.clone() });
    let mut dice = Dice(seed | 1);
    let scripted = |number| Scripted {
        client: rig.net.connect(),
        number,
        stored: BTreeMap::new(),
        unsent: Vec::new(),
        expected: Vec::new(),
        received: Vec::new(),
    };
    let mut clients: Vec<Scripted> = (0..8).map(scripted).collect();
    for round in 0..600 {
        for client in &mut clients {
            if client.unsent.len() < 40_000 && dice.roll(2) == 0 {
                client.request(&mut dice);
            }
            client.exchange();
        }
        if has_roles && round % 16 == 0 {
            rig.publish_large(plan.workers - 1 - dice.roll(plan.workers - 1));
        }
        let turns = 1 + dice.roll(3);
        rig.turns(turns);
    }
    for _ in 0..200_000 {
        clients.iter_mut().for_each(Scripted::exchange);
        if clients.iter().all(Scripted::is_answered) {
            break;
        }
        rig.turn();
    }
    for client in &clients {
        let same = client.received.iter().zip(&client.expected).take_while(|(a, b)| a == b).count();
        assert!(
            client.received == client.expected,
            "client {} differs after {same} bytes of {} (received {}): {:?} instead of {:?}; again \
             with: cargo test -p laneway-server --test lanes roles_change -- {} \
             seed {seed}",
            client.number,
            client.expected.len(),
            client.received.len(),
            tail(&client.received[..client.received.len().min(same + 60)]),
            tail(&client.expected[..client.expected.len().min(same + 60)]),
            plan.what(),
        );
    }
    let count = |count: fn(&LaneCounts) -> u64| -> u64 {
        rig.shared.workers.iter().map(|worker| count(&worker.lanes)).sum()
    };
    if has_roles || plan.design == Design::Sho {
        let moved = count(|lanes| lanes.moved_to_large.get() + lanes.handed_over.get());
        assert!(moved >= 10, "only {moved} requests moved: the run shows nothing");
    }
    if plan.design == Design::HkhWs {
        assert!(count(|lanes| lanes.stolen.get()) > 0, "nothing was stolen, {}", plan.what());
    }
    assert_eq!(
        count(|lanes| lanes.handed_over.get() + lanes.stolen.get()),
        count(|lanes| lanes.jobs_of_others.get()),
        "{}",
        plan.what()
    );
    clients.into_iter().map(|client| client.received).collect()
}

#[test]
fn roles_change_under_load_without_losing_doubling_or_reordering_a_reply() {
    for plan in plans_of_lanes() {
        for seed in [3, 8841, 77_777] {
            changing_roles(&plan, seed);
        }
    }
    for (number, plan) in plans_of_rivals().iter().enumerate() {
        changing_roles(plan, 4004 + number as u64);
    }
}

#[test]
fn the_same_seed_gives_the_same_run() {
    for plan in [Plan::of(6, Form::Roles), Plan::design(Design::HkhWs, 6)] {
        let first = changing_roles(&plan, 42);
        assert!(first == changing_roles(&plan, 42));
        assert!(first != changing_roles(&plan, 43));
    }
}
