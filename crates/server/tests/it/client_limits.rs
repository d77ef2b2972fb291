//! The clients of one address have what its limits say, to the request; nobody else notices.

use laneway_rig as rig;

use laneway_policy::{Form, SLICE_BYTES};
use laneway_server::access::client_limits::Limited;
use laneway_server::shared::Phase;
use laneway_transport::memory::Client;
use rig::durable::{Kept, Machine, SEGMENT_BYTES, settings};
use rig::{Plan, Rig, STEP_NANOS, hit, plans, value};
use std::sync::atomic::Ordering::Relaxed;

const SECOND: u64 = 1_000_000_000;
/// Turns of a millisecond.
pub const MILLI: usize = 1_000_000 / STEP_NANOS as usize;
pub const NOISY: &str = "tcp:10.0.0.1:5000";
pub const QUIET: &str = "tcp:10.0.0.2:5000";

/// How many replies each of eight connections of one client has after 80 rounds, fewest first. Each
/// has sent 500 requests.
fn answered_to_eight(rig: &mut Rig, round: impl Fn(&mut Rig)) -> [usize; 8] {
    let noisy: Vec<Client> = (0..8).map(|_| rig.net.connect_from(NOISY)).collect();
    for client in &noisy {
        client.send(&b"mn\r\n".repeat(500));
    }
    let mut answered = [0; 8];
    for _ in 0..80 {
        round(rig);
        for (sum, client) in answered.iter_mut().zip(&noisy) {
            *sum += count(client, b"MN\r\n");
        }
    }
    answered.sort_unstable(); // the burst was one client's
    answered
}

pub fn rig_with(plan: &Plan, limited: Limited, per_second: u64) -> Rig {
    let mut rig = Rig::new(plan);
    rig.shared.answer_client_limit(limited, per_second);
    rig.turn();
    rig
}

pub fn one_worker() -> Plan {
    Plan::of(1, Form::TimeShare)
}

/// How often these words stand in what a client has received now.
pub fn count(client: &Client, words: &[u8]) -> usize {
    let got = client.receive(usize::MAX);
    let is_whole = got.chunks(words.len()).all(|reply| reply == words);
    assert!(is_whole, "{}", rig::tail(&got));
    got.len() / words.len()
}

/// A request of the quiet client is answered within so few turns.
fn assert_undisturbed(rig: &mut Rig, quiet: &Client) {
    let before = rig.steps;
    assert_eq!(rig.ask(quiet, b"mn\r\n", b"MN\r\n"), b"MN\r\n");
    let turns = rig.steps - before;
    assert!(turns <= 4, "it took {turns} turns");
}

#[test]
fn a_flood_has_its_burst_and_its_rate_and_another_client_does_not_notice() {
    for (workers, connections) in [(1, 1), (1, 8), (2, 1), (2, 40)] {
        let plan = Plan::of(workers, Form::TimeShare);
        let mut rig = rig_with(&plan, Limited::Requests, 1_000);
        let noisy: Vec<Client> = (0..connections).map(|_| rig.net.connect_from(NOISY)).collect();
        let quiet = rig.net.connect_from(QUIET);
        assert_undisturbed(&mut rig, &quiet);
        for client in &noisy {
            let all = b"mn\r\n".repeat(1_000);
            assert_eq!(client.send(&all), all.len());
        }
        let mut answered = 0;
        for milli in 0..200 {
            rig.turns(MILLI);
            answered += noisy.iter().map(|client| count(client, b"MN\r\n")).sum::<usize>();
            if milli % 10 == 0 {
                assert_undisturbed(&mut rig, &quiet);
            }
        }
        // 101 at once, one each millisecond, and those of the turns in which the quiet one asked.
        assert!((299..=306).contains(&answered), "{answered} by {connections}, {workers} workers");
        let sums = rig.shared.watch(0).clients;
        let told = |address: &str| {
            sums.iter().find(|client| client.address == address).expect("it has come").sums
        };
        let (noisy, quiet) = (told("10.0.0.1"), told("10.0.0.2"));
        assert!(noisy.holds > 100 && noisy.held_nanos > SECOND / 10, "{noisy:?}");
        assert_eq!((quiet.holds, quiet.held_nanos), (0, 0));
    }
}

#[test]
fn who_stands_in_line_has_his_turn_before_who_comes_later() {
    let mut rig = rig_with(&one_worker(), Limited::Requests, 1_000);
    let answered = answered_to_eight(&mut rig, |rig| rig.turns(MILLI));
    assert!(answered[6] - answered[0] <= 2, "{answered:?}");
    assert!(answered[0] >= 9, "{answered:?}");
}

#[test]
fn who_is_let_go_and_finds_nothing_keeps_his_place() {
    let mut rig = rig_with(&one_worker(), Limited::Requests, 1_000);
    // Half a request is owed, so that whenever the worker looks there is something for four.
    let before = rig.net.connect_from(NOISY);
    assert_eq!(rig.ask(&before, b"mn\r\n", b"MN\r\n"), b"MN\r\n");
    rig.turns(MILLI / 2);
    let answered = answered_to_eight(&mut rig, |rig| {
        // The worker comes late, and four of the eight are let go. The first one takes all that
        // there is: were the others sent to the end of the line, they would be too late each time.
        rig.turns(10);
        rig.clock.advance(3_900_000);
    });
    assert!(answered[6] - answered[0] <= 8, "{answered:?}");
    assert!(answered[0] >= 32, "{answered:?}");
}

#[test]
fn workers_take_turns_where_connections_of_one_client_wait_at_several() {
    let mut rig = rig_with(&Plan::of(2, Form::TimeShare), Limited::Requests, 1_000);
    let noisy = [NOISY, NOISY].map(|peer| rig.net.connect_from(peer));
    rig.turns(4);
    let homes = [0, 1].map(|number| rig.place(number).connections.load(Relaxed));
    assert_eq!(homes, [1, 1]);
    for client in &noisy {
        client.send(&b"mn\r\n".repeat(500));
    }
    rig.turns(120 * MILLI);
    let answered = noisy.each_ref().map(|client| count(client, b"MN\r\n"));
    let [fewer, more] = [answered[0].min(answered[1]), answered[0].max(answered[1])];
    assert!((216..=224).contains(&(fewer + more)), "{answered:?}");
    assert!(fewer >= 50, "{answered:?}"); // the burst was the other one's
}

#[test]
fn it_holds_in_every_design() {
    for plan in plans() {
        let what = plan.what();
        let mut rig = rig_with(&plan, Limited::Requests, 1_000);
        let noisy = rig.net.connect_from(NOISY);
        rig.send(&noisy, &b"get none\r\n".repeat(300));
        let mut answered = 0;
        for _ in 0..30 {
            rig.turns(MILLI);
            answered += count(&noisy, b"END\r\n");
        }
        // What is executed elsewhere is counted when its reply has come: a turn's worth more.
        assert!((100..=101 + 30 + 128).contains(&answered), "{answered}, {what}");
        rig.turns(220 * MILLI);
        assert_eq!(answered + count(&noisy, b"END\r\n"), 300, "{what}");
    }
}

#[test]
fn large_values_have_their_bytes_and_small_requests_of_the_same_client_are_served_beside_them() {
    const LARGE: usize = 1 << 20;
    for reads in [true, false] {
        let mut rig = Rig::new(&one_worker());
        let [noisy, beside] = [NOISY, "tcp:10.0.0.1:5001"].map(|peer| rig.net.connect_from(peer));
        let big = value(LARGE, 1);
        rig.set(&noisy, "big", &big);
        rig.set(&beside, "small", b"x");
        rig.shared.answer_client_limit(Limited::Bytes, 10_000_000);
        rig.turn();
        let one = match reads {
            true => b"get big\r\n".to_vec(),
            false => [format!("set big 0 0 {LARGE}\r\n").as_bytes(), &big, b"\r\n"].concat(),
        };
        let all = one.repeat(4);
        let (mut sent, mut got) = (0, 0);
        let mut small = 0;
        for milli in 0..100 {
            for _ in 0..MILLI {
                sent += noisy.send(&all[sent..]);
                rig.turn();
                got += noisy.receive(usize::MAX).len();
            }
            if milli % 5 == 0 {
                let before = rig.steps;
                let reply = rig.ask(&beside, b"get small\r\n", b"END\r\n");
                assert_eq!(reply, b"VALUE small 0 1\r\nx\r\nEND\r\n");
                let turns = rig.steps - before;
                assert!(turns <= 8, "a small request took {turns} turns, {reads}");
                small += 1;
            }
        }
        assert_eq!(small, 20);
        // Half of the burst, and a tenth of a second; what lies in the pipe was not read yet.
        let moved = if reads { got } else { sent };
        assert!((1_300_000..1_620_000).contains(&moved), "{moved} bytes, {reads}");
        for _ in 0..400 * MILLI {
            sent += noisy.send(&all[sent..]);
            rig.turn();
            got += noisy.receive(usize::MAX).len();
        }
        let whole =
            if reads { 4 * (LARGE + b"VALUE big 0 1048576\r\n\r\nEND\r\n".len()) } else { 32 };
        assert_eq!((sent, got), (all.len(), whole), "all of it comes");
    }
}

#[test]
fn as_many_are_let_go_as_there_are_bytes_for() {
    // Beyond the limit by large values, which go slice by slice, and by pipelines of small ones.
    for (value_bytes, many) in [(1 << 20, 1), (1_000, 500)] {
        let mut rig = Rig::new(&one_worker());
        let noisy: Vec<Client> = (0..20).map(|_| rig.net.connect_from(NOISY)).collect();
        rig.set(&noisy[0], "k", &value(value_bytes, 1));
        rig.shared.answer_client_limit(Limited::Bytes, 2_000_000);
        rig.turn();
        noisy.iter().for_each(|client| assert!(client.send(&b"get k\r\n".repeat(many)) > 0));
        let mut got = 0;
        for _ in 0..200 * MILLI {
            rig.turn();
            got += noisy.iter().map(|client| client.receive(usize::MAX).len()).sum::<usize>();
        }
        assert!(got > 300_000, "{got} bytes");
        let clients = rig.shared.watch(0).clients;
        let noisy = clients.iter().find(|client| client.address == "10.0.0.1");
        let holds = noisy.expect("it has come").sums.holds;
        // A wait for each turn beyond the burst, some 16 or 32 KB each, and not one for each of 20.
        assert!((8..=100).contains(&holds), "{holds}, {value_bytes}");
    }
}

#[test]
fn what_a_limit_leaves_of_a_slice_is_not_told_as_the_slice_of_everybody() {
    let mut rig = Rig::new(&one_worker());
    let noisy = rig.net.connect_from(NOISY);
    rig.set(&noisy, "big", &value(1 << 20, 1));
    rig.shared.answer_client_limit(Limited::Bytes, 100_000);
    rig.turn();
    assert_eq!(noisy.send(b"get big\r\n"), 9);
    let mut got = 0;
    for _ in 0..200 * MILLI {
        rig.turn();
        got += noisy.receive(usize::MAX).len();
    }
    assert!((4_096..40_000).contains(&got), "{got} bytes, some at a time");
    let operator = rig.net.connect_from(QUIET);
    let told = rig.ask(&operator, b"stats lanes\r\n", b"END\r\n");
    let told = String::from_utf8(told).expect("stats are text");
    let most = format!("STAT worker:0:slice_bytes_send {}\r\n", SLICE_BYTES.0);
    assert!(told.contains(&most), "{told}");
}

#[test]
fn small_requests_alone_have_their_bytes_too() {
    let mut rig = Rig::new(&one_worker());
    let noisy = rig.net.connect_from(NOISY);
    rig.set(&noisy, "k", &value(1_000, 1));
    let reply = rig.ask(&noisy, b"get k\r\n", b"END\r\n").len();
    rig.shared.answer_client_limit(Limited::Bytes, 1_000_000);
    rig.turn();
    rig.send(&noisy, &b"get k\r\n".repeat(2_000));
    let mut got = 0;
    for _ in 0..300 * MILLI {
        rig.turn();
        got += noisy.receive(usize::MAX).len();
    }
    let with_requests = got + got / reply * b"get k\r\n".len();
    // The burst is 100 kB; a turn sends 32 KiB, all of which is owed then, and reads 14 kB.
    assert!((380_000..480_000).contains(&with_requests), "{with_requests} bytes");
}

#[test]
fn who_changes_limits_without_a_pause_does_so_once_in_a_turn() {
    let mut rig = Rig::new(&one_worker());
    let client = rig.net.connect();
    rig.turns(4);
    client.send(&b"client_rate 0\r\n".repeat(20));
    rig.turn();
    let done = count(&client, b"OK\r\n");
    assert!((1..=2).contains(&done), "{done}: once told of, and once behind the others");
    rig.turns(20);
    assert_eq!(done + count(&client, b"OK\r\n"), 20);
}

#[test]
fn a_limit_that_is_changed_or_removed_wakes_whoever_waits() {
    for workers in [1, 2] {
        let plan = Plan::of(workers, Form::TimeShare);
        for (line, at_once) in [(&b"client_rate 0\r\n"[..], 600), (b"client_rate 2000\r\n", 201)] {
            let mut rig = rig_with(&plan, Limited::Requests, 1);
            let noisy: Vec<Client> = (0..6).map(|_| rig.net.connect_from(NOISY)).collect();
            noisy.iter().for_each(|client| assert_eq!(client.send(&b"mn\r\n".repeat(100)), 400));
            rig.turns(10 * MILLI);
            let sum = |all: &[Client]| -> usize {
                all.iter().map(|client| count(client, b"MN\r\n")).sum()
            };
            let before = sum(&noisy);
            assert!((1..=workers).contains(&before), "{before} of one a second");
            let operator = rig.net.connect_from(QUIET);
            assert_eq!(rig.ask(&operator, line, b"\r\n"), b"OK\r\n");
            rig.turns(60);
            let woken = before + sum(&noisy);
            let wanted = if at_once == 600 { 600..=600 } else { at_once..=at_once + 8 };
            assert!(wanted.contains(&woken), "{woken}, {workers} workers");
            let settings = rig.ask(&operator, b"stats settings\r\n", b"END\r\n");
            let settings = String::from_utf8(settings).expect("stats are text");
            let rate = if at_once == 600 { 0 } else { 2_000 };
            assert!(settings.contains(&format!("STAT client_rate {rate}\r\n")), "{settings}");
            let stats = rig.ask(&operator, b"stats\r\n", b"END\r\n");
            let stats = String::from_utf8(stats).expect("stats are text");
            let held = stats.lines().find_map(|line| line.strip_prefix("STAT client_throttled "));
            assert!(held.is_some_and(|held| held != "0"), "{stats}");
        }
    }
}

#[test]
fn who_asks_without_a_pause_holds_nobody_up_once_there_is_no_limit() {
    let mut rig = rig_with(&one_worker(), Limited::Requests, 1);
    let all: Vec<Client> = (0..40).map(|_| rig.net.connect_from(NOISY)).collect();
    let (busy, others) = all.split_at(4);
    let flood = b"mn\r\n".repeat(16_384); // as much as a pipe holds
    busy.iter().for_each(|client| assert!(client.send(&flood) > 0));
    rig.turns(4); // they stand in front, but for the one that was served
    others.iter().for_each(|client| assert_eq!(client.send(b"mn\r\n"), 4));
    rig.turns(10);
    rig.shared.answer_client_limit(Limited::Requests, 0);
    let mut answered = 0;
    for _ in 0..200 {
        for client in busy {
            client.send(&flood);
            client.receive(usize::MAX);
        }
        rig.turn();
        answered += others.iter().map(|client| count(client, b"MN\r\n")).sum::<usize>();
    }
    assert_eq!(answered, others.len());
}

#[test]
fn who_vanishes_while_he_waits_is_closed_with_his_turn_and_takes_nobody_elses() {
    let mut rig = rig_with(&one_worker(), Limited::Requests, 1);
    let all: Vec<Client> = (0..40).map(|_| rig.net.connect_from(NOISY)).collect();
    all.iter().for_each(|client| assert_eq!(client.send(b"mn\r\n"), 4));
    rig.turns(20);
    assert_eq!(rig.shared.watch(0).connections.open, 40);
    let (last, gone) = all.split_last().expect("there are some");
    for (number, client) in gone.iter().enumerate() {
        if number.is_multiple_of(2) { client.reset() } else { client.finish() }
    }
    // Those who have said that they send no more have sent a request before. It is served.
    for _ in 0..45 {
        rig.clock.advance(SECOND);
        rig.turns(20);
    }
    let open = rig.shared.watch(0).connections.open;
    assert_eq!(open, 1, "all but the last are gone");
    assert_eq!(last.receive(usize::MAX), b"MN\r\n");
    for client in gone.iter().skip(1).step_by(2) {
        assert_eq!((client.receive(usize::MAX), client.ended()), (b"MN\r\n".to_vec(), true));
    }
}

#[test]
fn a_server_that_stops_lets_everybody_finish_who_waits() {
    let mut rig = rig_with(&one_worker(), Limited::Requests, 1);
    let all: Vec<Client> = (0..5).map(|_| rig.net.connect_from(NOISY)).collect();
    all.iter().for_each(|client| assert_eq!(client.send(&b"mn\r\n".repeat(100)), 400));
    rig.turns(20);
    rig.shared.enter_phase(Phase::Draining);
    rig.turns(40);
    assert!(rig.shared.is_drained(), "nobody is left waiting");
    // The first one's requests had been received; nothing of the others' had, and nobody waits
    // for those who may send no more.
    assert_eq!(count(&all[0], b"MN\r\n"), 100);
    assert!(all.iter().all(Client::ended));
}

#[test]
fn the_wait_for_a_limit_is_no_part_of_a_requests_latency() {
    let mut rig = rig_with(&one_worker(), Limited::Requests, 1_000);
    let noisy = rig.net.connect_from(NOISY);
    // All of it is received at once, and two thirds are served when there is something again.
    let all = b"get none\r\n".repeat(300);
    assert_eq!(noisy.send(&all), all.len());
    rig.turns(220 * MILLI);
    assert_eq!(count(&noisy, b"END\r\n"), 300);
    let operator = rig.net.connect_from(QUIET);
    let told = rig.ask(&operator, b"stats latency\r\n", b"END\r\n");
    let told = String::from_utf8(told).expect("stats are text");
    assert!(told.contains("STAT get:small:count 300\r\n"), "{told}");
    let most = told.lines().find_map(|line| line.strip_prefix("STAT get:small:latency_us_max "));
    let most: f64 = most.and_then(|most| most.parse().ok()).expect("it is told");
    assert!(most < 20_000.0, "{most} us, of which 200 000 are the limit's: {told}");
}

#[test]
fn replies_to_what_was_asked_before_do_not_wait_for_the_limit() {
    let machine = Machine::new(16 * SEGMENT_BYTES as usize, 8 << 20);
    let tier = machine.open(settings()).expect("the media are sound");
    let kept = Kept::of(&tier);
    let plan = Plan { kept: Some(kept.clone()), ..one_worker() };
    let mut rig = rig_with(&plan, Limited::Requests, 1);
    let [asks, beside] = [NOISY, "tcp:10.0.0.1:5001"].map(|peer| rig.net.connect_from(peer));
    kept.gate.commits_wait.store(true, Relaxed);
    asks.send(b"set k 0 0 1\r\nx\r\n");
    rig.turns(40);
    assert!(asks.receive(usize::MAX).is_empty(), "it is not durable");
    assert_eq!(rig.ask(&beside, b"mn\r\n", b"MN\r\n"), b"MN\r\n"); // the one of this second
    asks.send(b"get k\r\n");
    rig.turns(40);
    kept.gate.commits_wait.store(false, Relaxed);
    rig.turns(40);
    assert_eq!(asks.receive(usize::MAX), b"STORED\r\n");
    rig.turns(40);
    assert!(asks.receive(usize::MAX).is_empty(), "two are owed");
    rig.clock.advance(2 * SECOND);
    rig.turns(40);
    assert_eq!(asks.receive(usize::MAX), b"VALUE k 0 1\r\nx\r\nEND\r\n");
}

#[test]
fn replies_that_the_wire_does_not_take_at_once_do_not_wait_for_the_limit_either() {
    let machine = Machine::new(16 * SEGMENT_BYTES as usize, 8 << 20);
    let tier = machine.open(settings()).expect("the media are sound");
    let kept = Kept::of(&tier);
    let plan = Plan { kept: Some(kept.clone()), ..one_worker() };
    let mut rig = Rig::new(&plan);
    let [asks, beside] = [NOISY, "tcp:10.0.0.1:5001"].map(|peer| rig.net.connect_from(peer));
    let long = value(12_000, 1);
    rig.set(&beside, "v", &long);
    rig.shared.answer_client_limit(Limited::Requests, 1);
    rig.turn();
    kept.gate.commits_wait.store(true, Relaxed);
    asks.send(&[&b"set k 0 0 1\r\nx\r\n"[..], &b"get v\r\n".repeat(12)].concat());
    rig.turns(40);
    assert!(asks.receive(usize::MAX).is_empty(), "it is not durable");
    assert_eq!(rig.ask(&beside, b"mn\r\n", b"MN\r\n"), b"MN\r\n"); // the one of this second
    asks.send(b"get k\r\n");
    rig.turns(40);
    kept.gate.commits_wait.store(false, Relaxed);
    rig.turns(60); // twice as much as the pipe holds
    let mut got = Vec::new();
    for _ in 0..60 {
        got.extend(asks.receive(usize::MAX));
        rig.turn();
    }
    let replies =
        [b"STORED\r\n".to_vec(), [hit("v", &long), b"END\r\n".to_vec()].concat().repeat(12)];
    assert!(got == replies.concat(), "{} bytes: {}", got.len(), rig::tail(&got));
}

#[test]
fn who_waits_is_not_idle() {
    let plan = Plan { idle_timeout: std::time::Duration::from_secs(2), ..one_worker() };
    let mut rig = rig_with(&plan, Limited::Requests, 1);
    let all: Vec<Client> = (0..10).map(|_| rig.net.connect_from(NOISY)).collect();
    all.iter().for_each(|client| assert_eq!(client.send(b"mn\r\n"), 4));
    let mut answered = 0;
    for _ in 0..12 {
        rig.turns(20);
        answered += all.iter().map(|client| count(client, b"MN\r\n")).sum::<usize>();
        rig.clock.advance(SECOND);
    }
    assert_eq!(answered, 10, "each in its turn, the last after nine seconds");
}

#[test]
fn clients_of_a_unix_socket_are_not_limited() {
    let mut rig = rig_with(&one_worker(), Limited::Requests, 1);
    let local = rig.net.connect_from("unix");
    local.send(&b"mn\r\n".repeat(500));
    rig.turns(40);
    assert_eq!(count(&local, b"MN\r\n"), 500);
}

#[test]
fn who_says_who_he_is_waits_for_no_limit_and_is_not_late() {
    let plan = Plan { users: Some("u:p\n"), ..one_worker() };
    let mut rig = rig_with(&plan, Limited::Requests, 1);
    let login = b"set k 0 0 3\r\nu p\r\n";
    let [noisy, other] = [NOISY, "tcp:10.0.0.1:5001"].map(|peer| rig.net.connect_from(peer));
    assert_eq!(rig.ask(&noisy, login, b"\r\n"), b"STORED\r\n");
    // Half a minute's worth.
    let keys = [&b"get"[..], &b" k".repeat(30), b"\r\n"].concat();
    assert_eq!(rig.ask(&noisy, &keys, b"END\r\n"), b"END\r\n");
    let before = rig.steps;
    assert_eq!(rig.ask(&other, login, b"\r\n"), b"STORED\r\n");
    assert!(rig.steps - before <= 4, "it took {} turns", rig.steps - before);
    other.send(b"mn\r\n");
    rig.turns(100 * MILLI);
    assert_eq!(count(&other, b"MN\r\n"), 0, "what it asks then waits");
}
