//! Requests that follow each other on a connection where items are kept durably: they go on while
//! writes before them are on their way, and have the effects of being executed in order.

use laneway_rig as rig;

use laneway_policy::{Design, Form};
use laneway_server::latency::{Latencies, Operation, ROWS, row};
use laneway_tier::disk::sim::{Faults, Random};
use laneway_tier::{Durability, Settings};
use laneway_transport::memory::Client;
use rig::durable::{Kept, Machine, SEGMENT_BYTES, settings};
use rig::{Plan, Rig, hit, value};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

const LOG_BYTES: usize = 16 * SEGMENT_BYTES as usize;
const SSD_BYTES: usize = 8 << 20;

fn started(machine: &Machine, plan: Plan, interval: Option<Duration>) -> (Rig, Kept) {
    let durability = if interval.is_some() { Durability::Interval } else { Durability::Ack };
    let tier = machine.open(Settings { durability, ..settings() }).expect("the media are sound");
    let kept = Kept { interval, ..Kept::of(&tier) };
    let helps = plan.workers != 1; // then workers step the durable executor, as a server's do
    let rig = Rig::new(&Plan { kept: Some(kept.clone()), ..plan });
    if helps {
        rig.let_help();
    }
    (rig, kept)
}

fn plans() -> Vec<Plan> {
    vec![
        Plan::of(1, Form::TimeShare),
        Plan::of(3, Form::Roles),
        // Values of the small lane end early, so that connections move and values leave in slices.
        Plan { threshold_bytes: 600, ..Plan::of(3, Form::Roles) },
        Plan { threshold_bytes: 600, ..Plan::of(2, Form::TimeShare) },
        Plan::design(Design::Minos, 3),
        Plan::design(Design::HkhWs, 2),
    ]
}

fn set(key: &str, value: &[u8]) -> Vec<u8> {
    [format!("set {key} 0 0 {}\r\n", value.len()).as_bytes(), value, b"\r\n"].concat()
}

fn requests_of_executor(rig: &Rig) -> u64 {
    rig.shared.durable.get().expect("kept").counts.requests.load(Relaxed)
}

/// A request about a few keys, drawn.
fn request(random: &mut Random) -> Vec<u8> {
    let key = format!("k{}", random.below(5));
    let other = format!("k{}", random.below(5));
    let number = format!("n{}", random.below(2));
    let bytes = match random.below(12) {
        0 => 2000 + random.below(12_000),
        1 => 16_000 + random.below(30_000),
        _ => random.below(300),
    };
    let value = value(bytes as usize, random.number());
    let store = |verb: &str, tail: &str| {
        let head = format!("{verb} {key} 5 0 {}{tail}\r\n", value.len());
        [head.as_bytes(), &value, b"\r\n"].concat()
    };
    let meta = |flags: &str| {
        let head = format!("ms {key} {} {flags}\r\n", value.len());
        [head.as_bytes(), &value, b"\r\n"].concat()
    };
    match random.below(27) {
        0..4 => store("set", ""),
        4 => store("set", " noreply"),
        5 => store("add", ""),
        6 => store("replace", ""),
        7 => [format!("append {key} 0 0 2\r\n").as_bytes(), b"!!\r\n"].concat(),
        8..11 => format!("get {key}\r\n").into_bytes(),
        11 => format!("get {key} {number} {other} none\r\n").into_bytes(),
        12 => format!("gat 100 {key}\r\n").into_bytes(),
        13 => format!("mg {key} v f k\r\n").into_bytes(),
        14 => format!("mg {key} v q O7\r\n").into_bytes(),
        15 => meta("q"),
        16 => meta("MA I"),
        17 => meta("ME k"),
        18 => format!("delete {key}\r\n").into_bytes(),
        19 => format!("md {key} q\r\n").into_bytes(),
        20 => format!("touch {key} 0\r\n").into_bytes(),
        21 => format!("incr {number} 3\r\n").into_bytes(),
        22 => format!("ma {number} N0 J5 v\r\n").into_bytes(),
        23 => b"mn\r\n".to_vec(),
        24 => match random.below(4) {
            0 => b"flush_all\r\n".to_vec(),
            1 => b"version\r\n".to_vec(),
            2 => b"verbosity 0\r\n".to_vec(),
            _ => b"wrong\r\n".to_vec(),
        },
        25 => format!("set {key} 0 0 3\r\nabcde\r\n").into_bytes(), // its value has no end
        _ => set(&number, b"1"),
    }
}

/// What is answered to `bytes`, sent in drawn pieces, `behind` them a request that tells the end.
fn answer(rig: &mut Rig, client: &Client, bytes: &[u8], random: &mut Random) -> Vec<u8> {
    const END: &[u8] = b"\r\nmn\r\nms end 0 Oend\r\n\r\n";
    let mut got = Vec::new();
    let mut rest = bytes;
    while !rest.is_empty() {
        let piece = [40, 3000, 100_000][random.below(3) as usize];
        let most = 1 + random.below(piece) as usize;
        let (now, later) = rest.split_at(most.min(rest.len()));
        got.extend(rig.send(client, now));
        rig.turns(random.below(6) as usize);
        rest = later;
    }
    got.extend(rig.send(client, END));
    rig.until(client, got, |got| got.ends_with(b"MN\r\nHD Oend\r\n"))
}

/// A server without a folder executes one request after the other: it says what is right.
#[test]
fn a_pipeline_is_answered_as_by_a_server_that_executes_its_requests_one_by_one() {
    let plans = plans();
    for seed in 0..60 {
        let mut random = Random::new(seed);
        let plan = plans[random.below(plans.len() as u64) as usize].clone();
        let interval = random.one_in(3).then_some(Duration::from_millis(5));
        let machine = Machine::new(LOG_BYTES, SSD_BYTES);
        let mut alone = Rig::new(&Plan::of(1, Form::TimeShare));
        let (mut rig, _kept) = started(&machine, plan, interval);
        let (here, there) = (rig.net.connect(), alone.net.connect());
        for round in 0..8 {
            let count = 1 + random.below(200);
            let bytes: Vec<u8> = (0..count).flat_map(|_| request(&mut random)).collect();
            let wanted = answer(&mut alone, &there, &bytes, &mut random);
            let got = answer(&mut rig, &here, &bytes, &mut random);
            let at = got.iter().zip(&wanted).position(|(got, wanted)| got != wanted);
            let near = |bytes: &[u8]| {
                let at = at.unwrap_or(bytes.len().min(wanted.len())).min(bytes.len());
                bytes[at.saturating_sub(30)..bytes.len().min(at + 60)].escape_ascii().to_string()
            };
            assert!(
                got == wanted,
                "seed {seed}, round {round}, at {at:?}: {}, not {}",
                near(&got),
                near(&wanted)
            );
            if random.one_in(2) {
                while !rig.shared.store.flush_all() {} // memory forgets, the folder does not
            }
        }
    }
}

#[test]
fn writes_of_one_connection_share_their_groups_and_none_is_told_before_its_own() {
    for plan in plans() {
        let machine = Machine::new(LOG_BYTES, SSD_BYTES);
        let (mut rig, kept) = started(&machine, plan, None);
        let client = rig.net.connect();
        rig.set(&client, "first", b"x");
        let before = kept.tier.stats().groups;
        kept.gate.commits_wait.store(true, Relaxed);
        let mut bytes = Vec::new();
        for number in 0..200 {
            bytes.extend(set(&format!("k{number}"), b"some value"));
        }
        bytes.extend_from_slice(b"get first\r\nget k7\r\n");
        assert_eq!(rig.send(&client, &bytes), b"");
        rig.turns(400);
        assert_eq!(client.receive(usize::MAX), b"", "nothing is durable yet");
        assert!(200 <= requests_of_executor(&rig), "they do not wait for each other");
        kept.gate.commits_wait.store(false, Relaxed);
        let got = rig.until(&client, Vec::new(), |got| got.ends_with(b"value\r\nEND\r\n"));
        let hits = [&hit("first", b"x")[..], b"END\r\n", &hit("k7", b"some value"), b"END\r\n"];
        assert!(got == [b"STORED\r\n".repeat(200), hits.concat()].concat(), "{}", rig::tail(&got));
        let groups = kept.tier.stats().groups - before;
        assert!(groups <= 4, "{groups} groups for 200 writes");
    }
}

#[test]
fn a_read_waits_behind_the_write_of_its_connection_and_others_do_not() {
    let machine = Machine::new(LOG_BYTES, SSD_BYTES);
    let (mut rig, kept) = started(&machine, Plan::of(2, Form::TimeShare), None);
    let client = rig.net.connect();
    rig.set(&client, "cold", b"5");
    rig.set(&client, "warm", b"w");
    drop((rig, kept));
    let (mut rig, kept) = started(&machine, Plan::of(2, Form::TimeShare), None);
    let (client, other) = (rig.net.connect(), rig.net.connect());
    rig.ask(&other, b"get warm\r\n", b"END\r\n");
    kept.gate.reads_wait.store(true, Relaxed);
    // The first waits for a read of the SSD or the log, and everything behind it for the first.
    client.send(b"incr cold 1\r\n");
    rig.turns(30);
    client.send(b"set warm 0 0 1\r\nx\r\nget cold warm\r\n");
    rig.turns(30);
    client.send(b"delete warm\r\nmg warm v\r\n");
    rig.turns(100);
    assert_eq!(client.receive(usize::MAX), b"");
    let seen = rig.ask(&other, b"get warm\r\n", b"END\r\n");
    assert_eq!(seen, b"VALUE warm 0 1\r\nw\r\nEND\r\n", "nothing behind it was executed");
    kept.gate.reads_wait.store(false, Relaxed);
    let got = rig.until(&client, Vec::new(), |got| got.ends_with(b"EN\r\n"));
    let wanted =
        "6\r\nSTORED\r\nVALUE cold 0 1\r\n6\r\nVALUE warm 0 1\r\nx\r\nEND\r\nDELETED\r\nEN\r\n";
    assert_eq!(String::from_utf8_lossy(&got), wanted);
}

#[test]
fn of_a_pipeline_that_a_flush_failed_for_writes_are_refused_and_reads_answered() {
    for plan in plans() {
        let machine = Machine::new(LOG_BYTES, SSD_BYTES);
        let (mut rig, kept) = started(&machine, plan, None);
        let client = rig.net.connect();
        rig.set(&client, "k", b"old");
        machine.log.set_faults(Faults { sync_error_one_in: 1, ..Faults::default() });
        kept.gate.commits_wait.store(true, Relaxed);
        client.send(
            b"set k 0 0 3\r\nnew\r\nget k\r\nset q 0 0 1 noreply\r\nq\r\nms m 1 q\r\nm\r\n\
              incr none 1\r\nmg q v\r\nmn\r\n",
        );
        rig.turns(100);
        kept.gate.commits_wait.store(false, Relaxed);
        let got = rig.until(&client, Vec::new(), |got| got.ends_with(b"MN\r\n"));
        let got = String::from_utf8_lossy(&got).into_owned();
        let lines: Vec<&str> = got.split("\r\n").collect();
        assert!(lines[0].starts_with("SERVER_ERROR "), "{got}");
        assert_eq!(lines[1..4], ["VALUE k 0 3", "old", "END"], "{got}");
        // No reply was wanted to the third, and a quiet meta command tells of failures.
        assert!(lines[4].starts_with("SERVER_ERROR "), "{got}");
        assert_eq!(lines[5..], ["NOT_FOUND", "EN", "MN", ""], "{got}");
        let durable = rig.shared.durable.get().expect("kept").clone();
        rig.turns(50);
        for key in [&b"k"[..], b"q", b"m"] {
            assert!(
                !durable.pending_writes.hides(rig.shared.store.hash(key)),
                "nothing is under way"
            );
        }
        assert!(durable.is_idle(), "and nothing is counted as such");
    }
}

#[test]
fn of_a_batch_that_a_flush_failed_for_in_its_midst_what_is_durable_stays() {
    let machine = Machine::new(LOG_BYTES, SSD_BYTES);
    let (mut rig, kept) = started(&machine, Plan::of(2, Form::TimeShare), None);
    let client = rig.net.connect();
    rig.set(&client, "cold", b"c");
    rig.set(&client, "n", b"1");
    drop((rig, kept));
    let (mut rig, kept) = started(&machine, Plan::of(2, Form::TimeShare), None);
    let (client, other) = (rig.net.connect(), rig.net.connect());
    rig.ask(&other, b"get n\r\n", b"END\r\n");
    kept.gate.reads_wait.store(true, Relaxed);
    // The first is durable while the second waits.
    client.send(b"incr n 1\r\nget cold\r\nincr n 10\r\ndelete n\r\nmg n v\r\nmn\r\n");
    rig.turns(200);
    assert!(kept.tier.get(b"n").expect("sound").is_some_and(|item| item.value == b"2"));
    machine.log.set_faults(Faults { sync_error_one_in: 1, ..Faults::default() });
    kept.gate.reads_wait.store(false, Relaxed);
    let got = rig.until(&client, Vec::new(), |got| got.ends_with(b"MN\r\n"));
    let got = String::from_utf8_lossy(&got).into_owned();
    let lines: Vec<&str> = got.split("\r\n").collect();
    assert_eq!(lines[..4], ["2", "VALUE cold 0 1", "c", "END"], "{got}");
    assert!(lines[4].starts_with("SERVER_ERROR "), "{got}");
    assert!(lines[5].starts_with("SERVER_ERROR "), "{got}");
    assert_eq!(lines[6..], ["VA 1", "2", "MN", ""], "{got}");
}

/// What they have written may be there when the store is opened again: nobody says that it is not.
#[test]
fn what_a_flush_failed_for_is_not_told_of_as_if_it_had_never_been_tried() {
    let machine = Machine::new(LOG_BYTES, SSD_BYTES);
    let (mut rig, kept) = started(&machine, Plan::of(2, Form::TimeShare), None);
    let client = rig.net.connect();
    kept.gate.commits_wait.store(true, Relaxed);
    client.send(
        b"set k 0 0 1\r\na\r\nappend k 0 0 1\r\nb\r\ntouch k 100\r\nget k\r\n\
          md k\r\nadd k 0 0 1\r\nc\r\nmn\r\n",
    );
    rig.turns(100);
    machine.log.set_faults(Faults { sync_error_one_in: 1, ..Faults::default() });
    kept.gate.commits_wait.store(false, Relaxed);
    let got = rig.until(&client, Vec::new(), |got| got.ends_with(b"MN\r\n"));
    let got = String::from_utf8_lossy(&got).into_owned();
    let lines: Vec<&str> = got.split("\r\n").collect();
    for (number, line) in lines.iter().enumerate() {
        let (reads, ends) = (number == 3, 6 <= number);
        let refused = line.starts_with("SERVER_ERROR ");
        assert!(refused != (reads || ends), "line {number}: {got}");
    }
    assert_eq!((lines[3], &lines[6..]), ("END", &["MN", ""][..]), "{got}");
}

#[test]
fn what_a_waiting_batch_has_written_is_shown_to_nobody_once_a_flush_has_failed() {
    let machine = Machine::new(LOG_BYTES, SSD_BYTES);
    let (mut rig, kept) = started(&machine, Plan::of(2, Form::TimeShare), None);
    let client = rig.net.connect();
    rig.set(&client, "cold", b"c");
    rig.set(&client, "k", b"old");
    drop((rig, kept));
    let (mut rig, kept) = started(&machine, Plan::of(2, Form::TimeShare), None);
    let (client, other) = (rig.net.connect(), rig.net.connect());
    rig.ask(&other, b"get k\r\n", b"END\r\n");
    kept.gate.reads_wait.store(true, Relaxed);
    machine.log.set_faults(Faults { sync_error_one_in: 1, ..Faults::default() });
    client.send(b"set k 0 0 3\r\nnew\r\nget cold\r\nmn\r\n");
    rig.turns(200);
    other.send(b"get k\r\n");
    rig.turns(200);
    kept.gate.reads_wait.store(false, Relaxed);
    let seen = rig.until(&other, Vec::new(), |got| got.ends_with(b"END\r\n"));
    assert_eq!(seen, b"VALUE k 0 3\r\nold\r\nEND\r\n");
    let got = rig.until(&client, Vec::new(), |got| got.ends_with(b"MN\r\n"));
    let got = String::from_utf8_lossy(&got).into_owned();
    assert!(got.starts_with("SERVER_ERROR "), "{got}");
    assert!(got.ends_with("\r\nVALUE cold 0 1\r\nc\r\nEND\r\nMN\r\n"), "{got}");
}

#[test]
fn a_client_that_sends_no_more_is_answered_all_it_has_asked() {
    for plan in plans() {
        let machine = Machine::new(LOG_BYTES, SSD_BYTES);
        let (mut rig, kept) = started(&machine, plan, None);
        let client = rig.net.connect();
        kept.gate.commits_wait.store(true, Relaxed);
        rig.send(&client, &set("k", b"v").repeat(100));
        client.finish();
        rig.turns(100);
        assert!(!client.ended());
        kept.gate.commits_wait.store(false, Relaxed);
        let mut got = Vec::new();
        for _ in 0..1000 {
            rig.turn();
            got.extend(client.receive(usize::MAX));
        }
        assert!(got == b"STORED\r\n".repeat(100), "{}", rig::tail(&got));
        assert!(client.ended());
    }
}

#[test]
fn what_one_connection_has_under_way_is_bounded_and_the_rest_waits_unread() {
    const ASKED: usize = 20_000;
    let machine = Machine::new(4 * LOG_BYTES, SSD_BYTES);
    let (mut rig, kept) = started(&machine, Plan::of(2, Form::TimeShare), None);
    let (client, other) = (rig.net.connect(), rig.net.connect());
    kept.gate.commits_wait.store(true, Relaxed);
    let bytes = set("k", b"v").repeat(ASKED);
    let mut sent = 0;
    for _ in 0..2000 {
        sent += client.send(&bytes[sent..]);
        rig.turn();
    }
    let begun = requests_of_executor(&rig);
    assert!((200..=8 * 64).contains(&begun), "{begun} requests are under way");
    assert!(sent < bytes.len(), "the rest is the client's to keep");
    // Others are served meanwhile.
    assert_eq!(rig.ask(&other, b"get none\r\n", b"END\r\n"), b"END\r\n");
    kept.gate.commits_wait.store(false, Relaxed);
    let got = rig.send(&client, &bytes[sent..]);
    let got = rig.until(&client, got, |got| got.len() >= 8 * ASKED);
    assert!(got == b"STORED\r\n".repeat(ASKED));
}

#[test]
fn a_client_that_always_has_writes_under_way_leaves_the_large_worker_all_the_same() {
    const ASKED: usize = 20_000;
    let machine = Machine::new(4 * LOG_BYTES, SSD_BYTES);
    let plan = Plan { threshold_bytes: 600, ..Plan::of(3, Form::Roles) };
    let (mut rig, _kept) = started(&machine, plan, None);
    let client = rig.net.connect();
    let moved = |rig: &Rig| {
        let lanes = |worker: usize| &rig.shared.workers[worker].lanes;
        let to_large: u64 = (0..3).map(|worker| lanes(worker).moved_to_large.get()).sum();
        let home: u64 = (0..3).map(|worker| lanes(worker).moved_home.get()).sum();
        (to_large, home)
    };
    let first = set("large", &[b'l'; 2000]);
    assert_eq!(rig.ask(&client, &first, b"STORED\r\n"), b"STORED\r\n");
    let before = moved(&rig);
    let bytes = [set("large", &[b'l'; 2000]), set("k", b"v").repeat(ASKED)].concat();
    let mut sent = 0;
    let mut got = Vec::new();
    while sent < bytes.len() {
        sent += client.send(&bytes[sent..]);
        rig.turn();
        got.extend(client.receive(usize::MAX));
        if got.len() > 8 * ASKED / 4 {
            break;
        }
    }
    assert!(sent < bytes.len(), "the client has always had more");
    let after = moved(&rig);
    assert!(before.0 < after.0, "it went where its large value was to be served");
    assert_eq!(after.1 - before.1, after.0 - before.0, "and came home with its small ones");
    got.extend(rig.send(&client, &bytes[sent..]));
    let got = rig.until(&client, got, |got| got.len() >= 8 * (ASKED + 1));
    assert!(got == b"STORED\r\n".repeat(ASKED + 1));
}

#[test]
fn one_request_of_another_does_not_wait_for_all_that_a_connection_has_under_way() {
    let machine = Machine::new(4 * LOG_BYTES, SSD_BYTES);
    let (mut rig, _kept) =
        started(&machine, Plan::of(1, Form::TimeShare), Some(Duration::from_millis(5)));
    let (bulk, other) = (rig.net.connect(), rig.net.connect());
    let executor = rig.executor.take().expect("kept");
    bulk.send(&set("k", b"v").repeat(2000));
    rig.turns(40);
    other.send(&set("other", b"v"));
    rig.turns(10);
    assert_eq!(other.receive(usize::MAX), b"", "nobody takes a step");
    // A step begins 64 requests, a job of the first; the next job is the other's.
    rig.executor = Some(executor);
    let got = rig.until(&other, Vec::new(), |got| got.ends_with(b"\r\n"));
    assert_eq!(got, b"STORED\r\n");
    let begun = requests_of_executor(&rig);
    assert!(begun <= 4 * 64, "{begun} were executed before it");
}

#[test]
fn a_worker_executes_what_it_received_or_wakes_who_does() {
    let machine = Machine::new(LOG_BYTES, SSD_BYTES);
    let plan = Plan::of(2, Form::TimeShare);
    let (mut rig, _kept) = started(&machine, plan, Some(Duration::from_millis(5)));
    let rings = Arc::new(AtomicU64::new(0));
    let counts = rings.clone();
    let durable = rig.shared.durable.get().expect("kept").clone();
    durable.set_bell(Box::new(move || {
        counts.fetch_add(1, Relaxed);
    }));
    let executor = rig.executor.take().expect("kept");
    let client = rig.net.connect();
    // Nobody but workers takes a step.
    client.send(&set("k", b"one"));
    rig.turns(20);
    assert_eq!(client.receive(usize::MAX), b"STORED\r\n");
    // More than a step takes.
    client.send(&set("k", b"one").repeat(300));
    rig.turns(60);
    assert!(client.receive(usize::MAX) == b"STORED\r\n".repeat(300));
    assert_eq!(rings.load(Relaxed), 0, "nobody else was needed");
    let guard = executor.lock();
    client.send(&set("k", b"two"));
    rig.turns(20);
    assert_eq!(client.receive(usize::MAX), b"", "another has the executor");
    assert_eq!(rings.load(Relaxed), 1, "its thread is told");
    drop(guard);
    rig.executor = Some(executor);
    let got = rig.until(&client, Vec::new(), |got| got.ends_with(b"\r\n"));
    assert_eq!(got, b"STORED\r\n");
}

#[test]
fn replies_to_reads_behind_a_write_that_waits_are_bounded_too() {
    const ASKED: usize = 20_000;
    let machine = Machine::new(LOG_BYTES, SSD_BYTES);
    let (mut rig, kept) = started(&machine, Plan::of(1, Form::TimeShare), None);
    let client = rig.net.connect();
    rig.set(&client, "there", b"some value");
    kept.gate.commits_wait.store(true, Relaxed);
    let mut bytes = set("k", b"v");
    bytes.extend(b"mg there v\r\n".repeat(ASKED));
    // The write is given away alone: what follows is executed at once, and answered behind it.
    let mut sent = client.send(&bytes[..bytes.len() - ASKED * 12]);
    rig.turns(30);
    let before = requests_of_executor(&rig);
    for _ in 0..2000 {
        sent += client.send(&bytes[sent..]);
        rig.turn();
    }
    let begun = requests_of_executor(&rig) - before;
    assert!((64..=8 * 64).contains(&begun), "{begun} reads are answered and not sent");
    assert!(sent < bytes.len(), "the rest is the client's to keep");
    kept.gate.commits_wait.store(false, Relaxed);
    let got = rig.send(&client, &bytes[sent..]);
    let wanted = [&b"STORED\r\n"[..], &b"VA 10\r\nsome value\r\n".repeat(ASKED)].concat();
    let got = rig.until(&client, got, |got| got.len() >= wanted.len());
    assert!(got == wanted, "{}", rig::tail(&got));
}

#[test]
fn reads_of_what_was_stored_a_moment_ago_count_as_much_as_that() {
    const LONG: usize = 15_000;
    let append = b"append k 0 0 5000\r\n".iter().chain(&[b'b'; 5000]).chain(b"\r\n");
    let append: Vec<u8> = append.copied().collect();
    let rows = [
        (set("k", &[b'a'; LONG]), LONG),
        ([set("k", &[b'a'; 5000]), append.clone(), append].concat(), LONG),
    ];
    for (store, long) in rows {
        let machine = Machine::new(LOG_BYTES, SSD_BYTES);
        let (mut rig, kept) = started(&machine, Plan::of(1, Form::TimeShare), None);
        let client = rig.net.connect();
        rig.set(&client, "cold", b"c");
        drop((rig, kept));
        // Nothing of what comes is executed before the cold key is here.
        let (mut rig, kept) = started(&machine, Plan::of(1, Form::TimeShare), None);
        let client = rig.net.connect();
        kept.gate.reads_wait.store(true, Relaxed);
        kept.gate.commits_wait.store(true, Relaxed);
        client.send(&[&set("j", b"v")[..], b"get cold\r\n"].concat());
        rig.turns(20);
        let reads = b"mg k v\r\n".repeat(400);
        let mut sent = 0;
        let bytes = [store, reads].concat();
        for _ in 0..200 {
            sent += client.send(&bytes[sent..]);
            rig.turn();
        }
        let durable = rig.shared.durable.get().expect("kept").clone();
        let before = requests_of_executor(&rig);
        let held = durable.held_bytes();
        kept.gate.reads_wait.store(false, Relaxed);
        rig.turns(200);
        let begun = (requests_of_executor(&rig) - before) as usize;
        assert!(begun * long <= 9 * (32 << 10), "{begun} replies of {long} bytes are held");
        assert!(begun.saturating_sub(4) as u64 * long as u64 <= held, "{begun} beside {held}");
        kept.gate.commits_wait.store(false, Relaxed);
        let mut got = client.receive(usize::MAX);
        while sent < bytes.len() {
            sent += client.send(&bytes[sent..]);
            rig.turns(20);
            got.extend(client.receive(usize::MAX));
        }
        let got = rig.until(&client, got, |got| got.len() >= 400 * long);
        assert_eq!(got.windows(5).filter(|text| text == b"VA 15").count(), 400);
    }
}

#[test]
fn what_a_batch_takes_of_memory_is_counted_until_it_is_answered() {
    let machine = Machine::new(LOG_BYTES, SSD_BYTES);
    let (mut rig, kept) = started(&machine, Plan::of(1, Form::TimeShare), None);
    let client = rig.net.connect();
    rig.set(&client, "there", &value(1000, 1));
    let durable = rig.shared.durable.get().expect("kept").clone();
    assert_eq!(durable.held_bytes(), 0);
    kept.gate.commits_wait.store(true, Relaxed);
    let deletion = format!("delete {}\r\n", "k".repeat(200));
    let bytes =
        [&set("k", b"v")[..], deletion.repeat(40).as_bytes(), b"mg there v\r\nmn\r\n"].concat();
    assert_eq!(rig.send(&client, &bytes), b"");
    rig.turns(50);
    let held = durable.held_bytes();
    assert!(bytes.len() as u64 + 1000 <= held, "{held} of requests and replies");
    kept.gate.commits_wait.store(false, Relaxed);
    rig.until(&client, Vec::new(), |got| got.ends_with(b"MN\r\n"));
    assert_eq!(durable.held_bytes(), 0);
}

/// Sets that the workers' books tell of.
fn sets_told(rig: &Rig) -> u64 {
    let mut rows = vec![Latencies::default(); ROWS];
    rig.shared.workers.iter().for_each(|worker| worker.book.read_into(&mut rows));
    rows[row(Operation::Set, false)].whole.count()
}

#[test]
fn the_time_of_what_is_answered_is_told_though_more_of_its_connection_is_under_way() {
    let machine = Machine::new(LOG_BYTES, SSD_BYTES);
    let (mut rig, kept) = started(&machine, Plan::of(1, Form::TimeShare), None);
    let client = rig.net.connect();
    rig.set(&client, "cold", b"c");
    drop((rig, kept));
    let (mut rig, kept) = started(&machine, Plan::of(1, Form::TimeShare), None);
    let client = rig.net.connect();
    kept.gate.commits_wait.store(true, Relaxed);
    kept.gate.reads_wait.store(true, Relaxed);
    client.send(&set("k", b"v"));
    rig.turns(20);
    client.send(b"get cold\r\n");
    rig.turns(20);
    kept.gate.commits_wait.store(false, Relaxed);
    let got = rig.until(&client, Vec::new(), |got| got.ends_with(b"STORED\r\n"));
    assert_eq!(got, b"STORED\r\n");
    rig.turns(20);
    assert_eq!(sets_told(&rig), 1, "the read behind it is still under way");
    kept.gate.reads_wait.store(false, Relaxed);
    rig.until(&client, Vec::new(), |got| got.ends_with(b"END\r\n"));
    assert_eq!(sets_told(&rig), 1);
}

/// Short large values wait in memory for their commit. One that finds no room there is written by
/// itself, at several times the cost.
#[test]
fn with_a_long_interval_a_commit_is_due_before_there_is_no_room_for_values_to_wait() {
    let machine = Machine::new(LOG_BYTES, 64 << 20);
    let hour = Duration::from_secs(3600);
    let (mut rig, _kept) = started(&machine, Plan::of(2, Form::TimeShare), Some(hour));
    let client = rig.net.connect();
    for number in 0..2000 {
        rig.set(&client, &format!("key{number}"), &value(number, 16_000));
    }
    let told = rig.ask(&client, b"stats tier\r\n", b"END\r\n");
    let told = String::from_utf8_lossy(&told).into_owned();
    assert!(told.contains("STAT large_written 0\r\n"), "{told}");
}
