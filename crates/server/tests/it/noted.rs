//! Large and slow requests are noted with their times, their client and, if asked, their key.

use laneway_rig as rig;

use laneway_policy::{Design, Form};
use laneway_server::latency::noted::NotedRequest;
use laneway_server::latency::slow_log::SlowLog;
use laneway_server::latency::{Operation, row};
use rig::{Plan, Rig, STEP_NANOS, plans, value};
use std::time::Duration;

const LARGE: usize = 300_000;

fn noted(rig: &Rig) -> Vec<NotedRequest> {
    let mut all: Vec<_> =
        rig.shared.workers.iter().flat_map(|worker| worker.noted.read()).collect();
    all.sort_by_key(|request| request.times.ended_nanos);
    all
}

#[test]
fn large_requests_are_noted_in_every_design_and_small_ones_are_not() {
    for plan in plans() {
        let what = plan.what();
        let mut rig = Rig::new(&plan);
        let client = rig.net.connect();
        rig.set(&client, "small", b"value");
        rig.ask(&client, b"get small\r\nget none\r\nmn\r\n", b"MN\r\n");
        assert!(noted(&rig).is_empty(), "{what}");
        rig.set(&client, "big", &value(LARGE, 1));
        rig.ask(&client, b"get big\r\n", b"END\r\n");
        rig.turns(10);
        let all = noted(&rig);
        let told: Vec<_> = all.iter().map(|one| (one.times.row, one.times.bytes)).collect();
        let bytes = (LARGE + 3) as u64;
        let rows = [row(Operation::Set, true), row(Operation::Get, true)];
        assert_eq!(told, rows.map(|row| (row, bytes)), "{what}");
        for one in &all {
            let times = &one.times;
            assert!(times.wait_nanos + times.drain_nanos <= times.took_nanos, "{what}: {one:?}");
            assert_eq!((times.requests, one.key.len()), (1, 0), "{what}: no key unasked");
            let clients = rig.shared.watch(0).clients;
            assert!(clients.iter().any(|known| one.client.starts_with(&known.address)), "{what}");
        }
    }
}

#[test]
fn keys_of_large_requests_are_noted_where_they_are_asked_for_whatever_is_spoken() {
    let plan = Plan { log_keys: true, ..Plan::of(1, Form::TimeShare) };
    let mut rig = Rig::new(&plan);
    let client = rig.net.connect();
    rig.set(&client, "streamed", &value(LARGE, 1));
    rig.set(&client, "whole", &value(20_000, 2));
    rig.ask(&client, b"get none whole\r\n", b"END\r\n");
    let meta = rig.ask(&client, b"mg streamed v\r\nmn\r\n", b"MN\r\n");
    assert!(meta.len() > LARGE);
    let redis = rig.net.connect();
    rig.ask(&redis, b"*2\r\n$3\r\nGET\r\n$5\r\nwhole\r\n*1\r\n$4\r\nPING\r\n", b"+PONG\r\n");
    let head = format!("*3\r\n$3\r\nSET\r\n$5\r\nredis\r\n${LARGE}\r\n");
    let set = [head.as_bytes(), &value(LARGE, 3), b"\r\n"].concat();
    rig.ask(&redis, &set, b"+OK\r\n");
    rig.turns(10);
    let keys: Vec<_> = noted(&rig).into_iter().map(|one| one.key).collect();
    let all = ["streamed", "whole", "whole", "streamed", "whole", "redis"];
    assert_eq!(keys, all.map(|key| key.as_bytes().to_vec()));
}

#[test]
fn a_small_request_that_is_slow_is_noted_with_what_it_waited_for() {
    let slow = Some(Duration::from_nanos(50 * STEP_NANOS));
    let mut rig = Rig::new(&Plan { slow, log_keys: true, ..Plan::of(1, Form::TimeShare) });
    let client = rig.net.connect();
    rig.set(&client, "key", b"value");
    client.send(b"get key\r\n");
    rig.turns(4);
    assert!(noted(&rig).is_empty(), "it was quick");
    // Replies of a pipeline that fill the pipe, and a client that does not read.
    let asked = 20_000;
    let lines = b"get key\r\n".repeat(asked);
    let mut sent = 0;
    for _ in 0..2_000 {
        sent += client.send(&lines[sent..]);
        rig.turn();
    }
    rig.until(&client, Vec::new(), |got| {
        got.len() >= 1_000 * b"VALUE key 0 5\r\nvalue\r\nEND\r\n".len()
    });
    rig.turns(10);
    let all = noted(&rig);
    let slow = all.iter().find(|one| one.times.drain_nanos > 500 * STEP_NANOS);
    let slow = slow.unwrap_or_else(|| panic!("{all:?}"));
    assert_eq!(slow.times.row, row(Operation::Get, false));
    assert!(slow.times.requests > 1 && slow.key.is_empty(), "{slow:?}");
}

#[test]
fn stats_large_tells_the_newest_first_until_it_is_reset() {
    let plan = Plan { log_keys: true, ..Plan::of(2, Form::Roles) };
    let mut rig = Rig::new(&plan);
    let client = rig.net.connect();
    for number in 0..70 {
        rig.set(&client, &format!("big{number}"), &value(LARGE, number));
    }
    let stats = rig.ask(&client, b"stats large\r\n", b"END\r\n");
    let stats = String::from_utf8(stats).expect("stats are text");
    for line in [
        "STAT slow_us 100000.0\r\n",
        "STAT noted 70\r\n",
        "STAT requests 64\r\n",
        "STAT request:0:operation set\r\n",
        "STAT request:0:lane large\r\n",
        "STAT request:0:bytes 300005\r\n",
        "STAT request:0:key big69\r\n",
        "STAT request:63:key big6\r\n",
    ] {
        assert!(stats.contains(line), "{line}: {stats}");
    }
    rig.ask(&client, b"stats reset\r\n", b"RESET\r\n");
    let stats = rig.ask(&client, b"stats large\r\n", b"END\r\n");
    let stats = String::from_utf8(stats).expect("stats are text");
    assert!(stats.contains("STAT noted 70\r\n") && stats.contains("STAT requests 0\r\n"));
}

#[test]
fn stats_large_tells_of_a_slow_request_however_many_fast_ones_came_behind_it() {
    let slow = Some(Duration::from_nanos(200 * STEP_NANOS));
    let mut rig = Rig::new(&Plan { slow, log_keys: true, ..Plan::of(1, Form::TimeShare) });
    let client = rig.net.connect();
    rig.set(&client, "late", &value(LARGE, 1));
    // Its client takes nothing of the reply for longer than is slow.
    client.send(b"get late\r\n");
    rig.turns(300);
    rig.until(&client, Vec::new(), |got| got.ends_with(b"END\r\n"));
    let others = rig.net.connect();
    for number in 0..80 {
        rig.set(&others, &format!("big{number}"), &value(20_000, number));
    }
    let stats = rig.ask(&others, b"stats large\r\n", b"END\r\n");
    let stats = String::from_utf8(stats).expect("stats are text");
    assert!(stats.contains(":key late\r\n"), "{stats}");
    assert!(stats.contains(":key big79\r\n") && !stats.contains(":key big9\r\n"), "{stats}");
}

#[test]
fn where_keys_may_not_be_dumped_stats_large_tells_none() {
    let plan = Plan { log_keys: true, dump: false, ..Plan::of(1, Form::TimeShare) };
    let mut rig = Rig::new(&plan);
    let client = rig.net.connect();
    rig.set(&client, "secret", &value(LARGE, 1));
    let stats = rig.ask(&client, b"stats large\r\n", b"END\r\n");
    let stats = String::from_utf8(stats).expect("stats are text");
    assert!(stats.contains("request:0:bytes") && !stats.contains("secret"), "{stats}");
}

#[test]
fn the_log_reads_each_request_once_and_counts_what_nobody_remembers() {
    let mut rig = Rig::new(&Plan::design(Design::Hkh, 2));
    let clients: Vec<_> = (0..2).map(|_| rig.net.connect()).collect();
    let mut log = SlowLog::default();
    assert!(log.take(&rig.shared).requests.is_empty());
    clients.iter().for_each(|client| rig.set(client, "big", &value(LARGE, 1)));
    rig.turns(10);
    let fresh = log.take(&rig.shared);
    let mut workers: Vec<usize> = fresh.requests.iter().map(|(worker, _)| *worker).collect();
    workers.sort_unstable();
    assert_eq!((workers, fresh.lost), (vec![0, 1], 0));
    assert!(log.take(&rig.shared).requests.is_empty());
    let times = fresh.requests[0].1.times;
    let noted = &rig.shared.workers[0].noted;
    let note = |slow_nanos: u64| noted.note_owner(&times, slow_nanos, "tcp:10.0.0.1:1", b"");
    (0..1_100).for_each(|_| note(u64::MAX));
    let fresh = log.take(&rig.shared);
    assert_eq!((fresh.requests.len(), fresh.lost), (64, 1_100 - 64));
    note(u64::MAX); // left out: the second is full
    note(0); // not so of slow ones
    let fresh = log.take(&rig.shared);
    assert_eq!((fresh.requests.len(), fresh.lost), (1, 1));
    assert!(fresh.requests[0].1.is_slow);
    noted.reset();
    let fresh = log.take(&rig.shared);
    assert_eq!((fresh.requests.len(), fresh.lost), (0, 0), "a reset is no loss");
    note(u64::MAX);
    log.pass_over(&rig.shared);
    assert_eq!(log.take(&rig.shared).lost, 0);
}
