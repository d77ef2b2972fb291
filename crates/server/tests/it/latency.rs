//! Where a request's time goes, as the books tell it: waiting, service, draining.

use laneway_rig as rig;

use laneway_policy::Form;
use laneway_server::latency::{Latencies, Operation, Part, ROWS, row};
use laneway_wire::binary::Opcode;
use rig::durable::{Kept, Machine, SEGMENT_BYTES, settings};
use rig::{Plan, Rig, STEP_NANOS, binary, resp, value};

/// Time passes by so much each time that a worker asks for it.
const ASK_NANOS: u64 = 1_000;
const LARGE: usize = 1 << 20;

/// What all workers' books tell of such requests in this lane.
fn latencies(rig: &Rig, operation: Operation, large: bool) -> Latencies {
    let mut rows = vec![Latencies::default(); ROWS];
    rig.shared.workers.iter().for_each(|worker| worker.book.read_into(&mut rows));
    rows.swap_remove(row(operation, large))
}

fn gets(rig: &Rig, large: bool) -> Latencies {
    latencies(rig, Operation::Get, large)
}

fn nanos(latencies: &Latencies, part: Part) -> u64 {
    latencies.parts[part as usize].sum_nanos()
}

#[test]
fn who_is_served_behind_others_of_the_same_burst_has_waited() {
    let mut rig = Rig::new(&Plan::of(1, Form::TimeShare));
    let clients: Vec<_> = (0..4).map(|_| rig.net.connect()).collect();
    clients.iter().for_each(|client| rig.set(client, "key", b"value"));
    rig.clock.run(ASK_NANOS);
    clients.iter().for_each(|client| assert_eq!(client.send(b"get key\r\n"), 9));
    rig.turns(4);
    let told = gets(&rig, false);
    assert_eq!(told.whole.count(), 4);
    let waits = &told.parts[Part::Wait as usize];
    assert_eq!(waits.below([256, ASK_NANOS]), [1, 1], "the first one has not waited");
    assert_eq!(waits.sum_nanos(), (2 + 4 + 6) * ASK_NANOS, "one turn of each before it");
    assert_eq!(nanos(&told, Part::Drain), 0);
    assert_eq!(nanos(&told, Part::Service), 4 * ASK_NANOS);
}

#[test]
fn what_a_pipeline_asks_beyond_its_turn_has_waited_since_it_came() {
    let mut rig = Rig::new(&Plan::of(1, Form::TimeShare));
    let client = rig.net.connect();
    rig.set(&client, "key", b"v");
    let requests = 300;
    client.send("get key\r\nmn\r\n".repeat(requests / 2).as_bytes());
    rig.turns(8);
    let told = gets(&rig, false);
    assert_eq!(told.whole.count(), requests as u64 / 2);
    let waits = &told.parts[Part::Wait as usize];
    let at_once = waits.below([STEP_NANOS])[0];
    assert!(0 < at_once && at_once < waits.count(), "{at_once} were in the first turn");
}

#[test]
fn a_reader_that_stops_reading_is_told_apart_from_a_server_that_is_slow() {
    for form in [Form::TimeShare, Form::Roles] {
        let mut rig = Rig::new(&Plan::of(2, form));
        let client = rig.net.connect();
        rig.set(&client, "big", &value(LARGE, 1));
        client.send(b"get big\r\n");
        rig.turns(1_000); // it takes nothing
        let stalled = 1_000 * STEP_NANOS;
        let reply = rig.until(&client, Vec::new(), |got| got.ends_with(b"END\r\n"));
        assert!(reply.len() > LARGE);
        rig.turns(2);
        let told = gets(&rig, true);
        assert_eq!(told.whole.count(), 1, "{form:?}");
        let (drain, all) = (nanos(&told, Part::Drain), told.whole.sum_nanos());
        assert!(drain > stalled - 100 * STEP_NANOS && drain <= all, "{form:?}: {drain} of {all}");
        assert!(all - drain < stalled / 2, "{form:?}: {drain} of {all}");
    }
}

#[test]
fn a_large_request_that_waits_for_a_large_worker_has_waited() {
    // One worker takes large requests, two at a time: of eight that come at once, most wait.
    let mut rig = Rig::new(&Plan::of(2, Form::Roles));
    let clients: Vec<_> = (0..8).map(|_| rig.net.connect()).collect();
    rig.set(&clients[0], "big", &value(LARGE, 1));
    clients.iter().for_each(|client| assert_eq!(client.send(b"get big\r\n"), 9));
    let mut got = vec![0; clients.len()];
    for _ in 0..100_000 {
        rig.turn();
        for (client, got) in clients.iter().zip(&mut got) {
            *got += client.receive(usize::MAX).len();
        }
    }
    assert!(got.iter().all(|bytes| *bytes > LARGE), "{got:?}");
    let told = gets(&rig, true);
    assert_eq!(told.whole.count(), 8);
    let (wait, all) = (nanos(&told, Part::Wait), told.whole.sum_nanos());
    assert!(wait > all / 4, "{wait} of {all}");
}

/// Who executes it, a worker or the durable executor, makes no difference.
#[test]
fn a_read_that_gives_another_end_is_a_get_and_a_hit_is_of_its_item_s_lane() {
    let machine = Machine::new(16 * SEGMENT_BYTES as usize, 8 << 20);
    let tier = machine.open(settings()).expect("a new folder");
    for kept in [None, Some(Kept::of(&tier))] {
        let what = if kept.is_some() { "durably" } else { "in memory" };
        let mut rig = Rig::new(&Plan { kept, ..Plan::of(1, Form::TimeShare) });
        let (client, other) = (rig.net.connect(), rig.net.connect());
        rig.set(&client, "small", b"s");
        rig.set(&client, "big", &value(300_000, 1));
        for (request, end) in [
            ("get small\r\n", &b"END\r\n"[..]),
            ("get big\r\n", b"END\r\n"),
            ("gat 60 small\r\n", b"END\r\n"),
            ("gat 60 big\r\n", b"END\r\n"),
            ("mg big v T60\r\nmn\r\n", b"MN\r\n"),
        ] {
            rig.ask(&client, request.as_bytes(), end);
        }
        let end = 60_u32.to_be_bytes();
        rig.say_binary(&other, &binary::request(Opcode::GetAndTouch, &end, b"small", b""));
        rig.turns(2);
        let told = [false, true].map(|large| gets(&rig, large).whole.count());
        assert_eq!(told, [3, 3], "{what}");
        let totals = rig.shared.board.totals();
        let told = (totals.get_hits, totals.get_hits_large, totals.touch_hits);
        assert_eq!(told, (2, 1, 4), "{what}");
        assert_eq!(rig.shared.watch(0).small_hits, 1, "{what}");
    }
}

/// It asks for a length, whoever executes it.
#[test]
fn a_setrange_of_nothing_is_no_store() {
    let machine = Machine::new(16 * SEGMENT_BYTES as usize, 8 << 20);
    let tier = machine.open(settings()).expect("a new folder");
    for kept in [None, Some(Kept::of(&tier))] {
        let what = if kept.is_some() { "durably" } else { "in memory" };
        let mut rig = Rig::new(&Plan { kept, ..Plan::of(1, Form::TimeShare) });
        let client = rig.net.connect();
        rig.say_resp(&client, "SET k abc");
        for (value, stored) in [("", 0), ("x", 1)] {
            let request = resp::request(&[b"SETRANGE", b"k", b"1", value.as_bytes()]);
            rig.turns(2);
            let mut before = [Operation::Set, Operation::Other]
                .map(|operation| latencies(&rig, operation, false).whole.count());
            let got = rig.ask_resp(&client, &request, 1);
            assert_eq!(String::from_utf8_lossy(&got), ":3\r\n", "{value:?}, {what}");
            rig.turns(2);
            before[0] += stored;
            before[1] += 1 - stored;
            let after = [Operation::Set, Operation::Other]
                .map(|operation| latencies(&rig, operation, false).whole.count());
            assert_eq!(after, before, "{value:?}, {what}");
            let [watch, multi, exec] = ["WATCH w", "MULTI", "EXEC"].map(resp::words);
            rig.ask_resp(&client, &[watch, multi, request, exec].concat(), 4);
            rig.turns(2);
            let sets = latencies(&rig, Operation::Set, false).whole.count();
            assert_eq!(sets, after[0] + stored, "{value:?} in a transaction, {what}");
        }
    }
}

/// Memory has none of it, so the durable executor answers.
#[test]
fn a_large_item_that_is_read_from_the_folder_is_a_hit_of_the_large_lane() {
    let machine = Machine::new(16 * SEGMENT_BYTES as usize, 8 << 20);
    let start = || {
        let kept = Some(Kept::of(&machine.open(settings()).expect("it is sound")));
        Rig::new(&Plan { kept, ..Plan::of(1, Form::TimeShare) })
    };
    let mut rig = start();
    let client = rig.net.connect();
    rig.set(&client, "small", b"s");
    rig.set(&client, "big", &value(300_000, 1));
    drop((client, rig));
    let mut rig = start();
    let client = rig.net.connect();
    rig.ask(&client, b"get small\r\n", b"END\r\n");
    rig.ask(&client, b"get big\r\n", b"END\r\n");
    let totals = rig.shared.board.totals();
    assert_eq!((totals.get_hits, totals.get_hits_large), (2, 1));
    assert_eq!(rig.shared.watch(0).small_hits, 1);
}

#[test]
fn hits_of_the_small_lane_never_fall_wherever_a_reading_comes_in_between() {
    let mut rig = Rig::new(&Plan::of(1, Form::TimeShare));
    let client = rig.net.connect();
    rig.set(&client, "key", b"value");
    rig.ask(&client, b"get key\r\nget key\r\nmn\r\n", b"MN\r\n");
    let told = || rig.shared.watch(0).small_hits;
    let counters = rig.shared.board.worker(0);
    assert_eq!(told(), 2);
    // A large hit whose lane is read, and whose hit was read too early.
    counters.get_hits_large.bump_owner();
    assert_eq!(told(), 2);
    counters.get_hits.bump_owner();
    assert_eq!(told(), 2);
    counters.get_hits.bump_owner();
    assert_eq!(told(), 3);
    counters.get_hits_large.bump_owner();
    assert_eq!(told(), 3, "until a small hit makes up for it");
}
