//! The lanes hold for the binary protocol: a small request never waits behind a large one, large
//! values come and go whole, and connections move and come home.

use laneway_policy::{Design, Form, Role};
use laneway_rig::binary::{get, noop, replies, request, set};
use laneway_rig::{self as rig, Plan, Rig, value};
use laneway_server::latency::Operation;
use laneway_server::shared::LaneCounts;
use laneway_transport::memory::Faults;
use laneway_wire::binary::{HEADER_BYTES, Opcode};

const LARGE: usize = 4 << 20;

fn plans_of_lanes_and_minos() -> Vec<Plan> {
    let mut plans = rig::plans_of_lanes();
    plans.extend([2, 6].map(|workers| Plan::design(Design::Minos, workers)));
    plans
}

fn sum(rig: &Rig, count: fn(&LaneCounts) -> u64) -> u64 {
    rig.shared.workers.iter().map(|worker| count(&worker.lanes)).sum()
}

/// Bytes of a reply to [`get`] with a value of one byte.
const SMALL_REPLY_BYTES: usize = HEADER_BYTES + 4 + 1;

#[test]
fn small_requests_are_answered_while_large_values_leave_and_arrive() {
    for plan in plans_of_lanes_and_minos() {
        let what = plan.what();
        let mut rig = Rig::new(&plan);
        let (reader, writer, quick) = (rig.net.connect(), rig.net.connect(), rig.net.connect());
        let (old, new) = (value(LARGE, 1), value(LARGE, 2));
        assert_eq!(rig.say_binary(&reader, &set(b"old", &old)).status, 0);
        assert_eq!(rig.say_binary(&quick, &set(b"small", b"s")).status, 0);
        reader.send(&get(b"old"));
        let arriving = set(b"new", &new);
        let (mut sent, mut got, mut rounds) = (0, Vec::new(), 0);
        while sent < arriving.len() || got.len() < LARGE {
            sent += writer.send(&arriving[sent..]);
            quick.send(&get(b"small"));
            rig.turns(4);
            let small = quick.receive(usize::MAX);
            assert_eq!(small.len(), SMALL_REPLY_BYTES, "round {rounds}, {what}");
            got.extend(reader.receive(usize::MAX));
            rounds += 1;
        }
        assert!(rounds > 20, "only {rounds} rounds, {what}");
        let got = rig.until(&reader, got, |got| replies(got).1 > 0);
        assert!(replies(&got).0[0].value == old, "{what}");
        let stored = rig.until(&writer, Vec::new(), |got| replies(got).1 > 0);
        assert_eq!(replies(&stored).0[0].status, 0, "{what}");
        assert!(rig.say_binary(&quick, &get(b"new")).value == new, "{what}");
    }
}

#[test]
fn large_requests_go_to_large_workers_and_connections_come_home() {
    let mut rig = Rig::new(&Plan::of(6, Form::Roles));
    let client = rig.net.connect();
    let big = value(LARGE, 4);
    rig.say_binary(&client, &set(b"big", &big));
    rig.say_binary(&client, &set(b"small", b"s"));
    for _ in 0..3 {
        assert!(rig.say_binary(&client, &get(b"big")).value == big);
        assert_eq!(rig.say_binary(&client, &get(b"small")).value, b"s");
    }
    rig.turns(8);
    let plan = rig.shared.plan.get();
    for (number, worker) in rig.shared.workers.iter().enumerate() {
        let role = plan.roles[number];
        let large = worker.lanes.requests_large.get();
        assert_eq!(large > 0, role == Role::Large && large == 4, "worker {number} is {role:?}");
        assert!(role != Role::Large || worker.lanes.requests_small.get() == 0);
    }
    assert_eq!(sum(&rig, |lanes| lanes.moved_to_large.get()), 4, "one SET and three GETs");
    assert_eq!(sum(&rig, |lanes| lanes.moved_home.get()), 4);
    let mut books = Vec::new();
    for large in [false, true] {
        for operation in [Operation::Get, Operation::Set] {
            let mut rows = vec![Default::default(); laneway_server::latency::ROWS];
            rig.shared.workers.iter().for_each(|worker| worker.book.read_whole_into(&mut rows));
            books.push(rows[laneway_server::latency::row(operation, large)].count());
        }
    }
    assert_eq!(books, [3, 1, 3, 1], "small GETs and SETs, large ones");
}

/// A large value in the middle of a pipeline: what stands behind it is answered behind it, and its
/// last byte may be cut off from the rest.
#[test]
fn a_large_value_in_a_pipeline_is_stored_wherever_it_is_cut() {
    for (number, plan) in rig::plans().into_iter().enumerate() {
        let what = plan.what();
        let faults = Faults { seed: 7, short: 60, refuse: 40, reset: 0, pipe_bytes: 65536 };
        let plan = Plan { faults: if number % 2 == 0 { Faults::NONE } else { faults }, ..plan };
        for length in [16_384, 17_000, 70_000, 300_000] {
            let mut rig = Rig::new(&plan);
            let client = rig.net.connect();
            let big = value(length, 3);
            let first = [noop(), set(b"big", &big)].concat();
            for cut in [first.len() - 1, first.len(), first.len() - length, 30] {
                let mut got = rig.send(&client, &first[..cut]);
                rig.turns(6);
                got.extend(client.receive(usize::MAX));
                let behind = [&first[cut..], &get(b"big"), &noop()].concat();
                got.extend(rig.send(&client, &behind));
                let got = rig.until(&client, got, |got| replies(got).0.len() == 4);
                let told = replies(&got).0;
                let statuses: Vec<u16> = told.iter().map(|told| told.status).collect();
                assert_eq!(statuses, [0; 4], "{what} {length} {cut}");
                assert!(told[2].value == big, "{what} {length} {cut}");
            }
            // The last byte alone, and nothing behind it: the answer comes all the same.
            let (most, last) = first.split_at(first.len() - 1);
            let mut got = rig.send(&client, most);
            rig.turns(20);
            got.extend(client.receive(usize::MAX));
            assert_eq!(replies(&got).0.len(), 1, "{what}: the NOOP's");
            got.extend(rig.send(&client, last));
            rig.until(&client, got, |got| replies(got).0.len() == 2);
            assert_eq!(rig.shared.store.stats().unpublished_bytes, 0, "{what}");
        }
    }
}

#[test]
fn bytes_are_joined_to_a_large_value_slice_by_slice() {
    for plan in rig::plans_of_lanes() {
        let what = plan.what();
        let mut rig = Rig::new(&plan);
        let (client, quick) = (rig.net.connect(), rig.net.connect());
        let big = value(LARGE, 5);
        rig.say_binary(&client, &set(b"big", &big));
        rig.say_binary(&quick, &set(b"small", b"s"));
        let prepend = request(Opcode::Prepend, b"", b"big", b"x");
        let both = [prepend, request(Opcode::Append, b"", b"big", &big)].concat();
        let (mut sent, mut got) = (0, Vec::new());
        while replies(&got).0.len() < 2 {
            sent += client.send(&both[sent..]);
            quick.send(&get(b"small"));
            rig.turns(4);
            assert_eq!(quick.receive(usize::MAX).len(), SMALL_REPLY_BYTES, "{what}");
            got.extend(client.receive(usize::MAX));
        }
        assert!(replies(&got).0.iter().all(|told| told.status == 0 && told.cas != 0), "{what}");
        let wanted = [b"x", &big[..], &big[..]].concat();
        assert!(rig.say_binary(&quick, &get(b"big")).value == wanted, "{what}");
    }
}

#[test]
fn a_client_that_does_not_read_costs_nobody_else_a_turn() {
    for plan in rig::plans_of_lanes() {
        let what = plan.what();
        let mut rig = Rig::new(&plan);
        let (stuck, other) = (rig.net.connect(), rig.net.connect());
        let big = value(LARGE, 3);
        rig.say_binary(&stuck, &set(b"big", &big));
        stuck.send(&get(b"big")); // and never reads
        rig.turns(50);
        let before = sum(&rig, |lanes| lanes.slices.get());
        assert!(rig.say_binary(&other, &get(b"big")).value == big, "{what}");
        let needed = LARGE as u64 / (32 * 1024) + 64;
        let taken = sum(&rig, |lanes| lanes.slices.get()) - before;
        assert!(taken <= 3 * needed, "the stuck client went on taking turns: {taken}, {what}");
        let all = rig.until(&stuck, Vec::new(), |got| replies(got).1 > 0);
        assert!(replies(&all).0[0].value == big, "and when it reads at last, all is there");
    }
}
