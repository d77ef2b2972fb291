//! RESP where items are kept durably: the same answers, and what is acknowledged outlives the
//! server.

use laneway_policy::Form;
use laneway_rig::durable::{Kept, Machine, SEGMENT_BYTES, settings};
use laneway_rig::resp::{are_replies, bulk, request, words};
use laneway_rig::{self as rig, Plan, Rig, tail, value};
use laneway_server::durable::shared::KEY_HELD_BYTES;
use laneway_store::meter;
use laneway_tier::disk::sim::Faults;
use laneway_transport::memory::Client;
use std::sync::atomic::Ordering::Relaxed;

const LOG_BYTES: usize = 32 * SEGMENT_BYTES as usize;
const SSD_BYTES: usize = 16 << 20;
pub const FORMS: [(usize, Form); 3] =
    [(1, Form::TimeShare), (2, Form::TimeShare), (3, Form::Roles)];

pub fn machine() -> Machine {
    Machine::new(LOG_BYTES, SSD_BYTES)
}

fn folder() -> Kept {
    Kept::of(&machine().open(settings()).expect("the media are sound"))
}

/// Every design, NUMA domains, and a data folder.
pub fn all_plans() -> Vec<Plan> {
    let domains = Plan { domains: 2, ..Plan::of(4, Form::TimeShare) };
    let mut plans = rig::plans();
    plans.push(domains);
    plans.extend(
        FORMS.map(|(workers, form)| Plan { kept: Some(folder()), ..Plan::of(workers, form) }),
    );
    plans
}

/// The same plan, with a fresh data folder where it has one.
pub fn with_folder(plan: &Plan) -> Plan {
    Plan { kept: plan.kept.as_ref().map(|_| folder()), ..plan.clone() }
}

pub fn started(machine: &Machine, (workers, form): (usize, Form)) -> (Rig, Kept) {
    let kept = Kept::of(&machine.open(settings()).expect("the media are sound"));
    (Rig::new(&Plan { kept: Some(kept.clone()), ..Plan::of(workers, form) }), kept)
}

/// Asks line by line and compares; `\r\n` is written as `|`.
pub fn check(rig: &mut Rig, client: &Client, rows: &[(&str, &str)]) {
    for (line, wanted) in rows {
        let got = rig.say_resp(client, line).replace("\r\n", "|");
        assert_eq!(got, *wanted, "{line}");
    }
}

fn faults_of(rig: &Rig) -> u64 {
    rig.shared.durable.get().expect("it is kept").counts.faults.load(Relaxed)
}

#[test]
#[allow(clippy::too_many_lines, reason = "rows and steps of one test")]
fn every_kind_of_change_survives_a_restart() {
    const CHANGES: &[(&str, &str)] = &[
        ("SET plain hello", "+OK|"),
        ("SET ends x EXAT 1900000000", "+OK|"),
        ("SET kept x EXAT 1900000000", "+OK|"),
        ("SET kept y KEEPTTL", "+OK|"),
        ("SET unkept x EXAT 1900000000", "+OK|"),
        ("SET unkept y", "+OK|"),
        ("SET plain other NX", "$-1|"),
        ("SET none other XX", "$-1|"),
        ("SET plain hello GET", "$5|hello|"),
        ("SETNX first 1", ":1|"),
        ("SETNX first 2", ":0|"),
        ("SETEX soon 100 s", "+OK|"),
        ("GETSET first 3", "$1|1|"),
        ("APPEND joined ab", ":2|"),
        ("APPEND joined cd", ":4|"),
        ("INCR number", ":1|"),
        ("INCRBY number 41", ":42|"),
        ("DECR below", ":-1|"),
        ("MSET a 1 b 2 c 3 d 4", "+OK|"),
        ("DEL a none d", ":2|"),
        ("GETDEL b", "$1|2|"),
        ("SET lock mine", "+OK|"),
        ("SET other-lock mine", "+OK|"),
        ("DELIFEQ lock mine", ":1|"),
        ("DELIFEQ other-lock yours", ":0|"),
        ("EXPIREAT c 1900000000", ":1|"),
        ("SET over x", "+OK|"),
        ("EXPIREAT over 1", ":1|"),
        ("SET past x EXAT 1", "+OK|"),
        ("SET for-ever x EXAT 1900000000", "+OK|"),
        ("PERSIST for-ever", ":1|"),
        ("SET cold x", "+OK|"),
        ("SET got x", "+OK|"),
        ("GETEX got EXAT 1900000001", "$1|x|"),
        ("MULTI", "+OK|"),
        ("SET by-multi 1", "+QUEUED|"),
        ("INCR by-multi", "+QUEUED|"),
        ("EXEC", "*2|+OK|:2|"),
    ];
    const FOUND: &[(&str, &str)] = &[
        ("MGET plain first joined number below", "*5|$5|hello|$1|3|$4|abcd|$2|42|$2|-1|"),
        ("MGET a b c d over past by-multi", "*7|$-1|$-1|$1|3|$-1|$-1|$-1|$1|2|"),
        ("EXPIRETIME ends", ":1900000000|"),
        ("EXPIRETIME kept", ":1900000000|"),
        ("GET kept", "$1|y|"),
        ("TTL unkept", ":-1|"),
        ("TTL soon", ":100|"),
        ("EXPIRETIME c", ":1900000000|"),
        ("TTL for-ever", ":-1|"),
        ("EXPIRETIME got", ":1900000001|"),
        ("EXISTS plain none ends", ":2|"),
        ("INCR number", ":43|"),
        ("MGET lock other-lock", "*2|$-1|$4|mine|"),
        // What lies on the disk alone is compared with, too.
        ("DELIFEQ other-lock yours", ":0|"),
        ("DELIFEQ other-lock mine", ":1|"),
        ("DELIFEQ other-lock mine", ":0|"),
        // What is over when it is stored replaces also what memory does not hold.
        ("SET cold x EXAT 1", "+OK|"),
        ("GET cold", "$-1|"),
        ("SET below x EXAT 1", "+OK|"),
        ("GET below", "$-1|"),
        ("GETEX kept EXAT 1", "$1|y|"),
        ("EXISTS kept below", ":0|"),
        ("APPEND joined e", ":5|"),
    ];
    for form in FORMS {
        let machine = machine();
        let (mut rig, kept) = started(&machine, form);
        let client = rig.net.connect();
        check(&mut rig, &client, CHANGES);
        drop((rig, kept));
        let (mut rig, kept) = started(&machine, form);
        let client = rig.net.connect();
        check(&mut rig, &client, FOUND);
        rig.clock.advance(101_000_000_000);
        check(&mut rig, &client, &[("GET soon", "$-1|"), ("FLUSHALL", "+OK|")]);
        check(&mut rig, &client, &[("MGET plain ends", "*2|$-1|$-1|"), ("SET new n", "+OK|")]);
        drop((rig, kept));
        let (mut rig, _kept) = started(&machine, form);
        let client = rig.net.connect();
        check(&mut rig, &client, &[("MGET plain number new", "*3|$-1|$-1|$1|n|")]);
    }
}

#[test]
fn values_of_every_size_come_back_from_the_media() {
    let sizes = [0, 1, 1000, 2047, 2048, 4096, 15_000, 16_500, 100_000, 600_000];
    let both = [value(100_000, 8), value(70_000, 3)].concat();
    for form in FORMS {
        let machine = machine();
        let (mut rig, kept) = started(&machine, form);
        let client = rig.net.connect();
        let mut pairs = vec![b"MSET".to_vec()];
        for (salt, &bytes) in sizes.iter().enumerate() {
            let (key, value) = (format!("k{bytes}"), value(bytes, salt as u64));
            let set = request(&[b"SET", key.as_bytes(), &value, b"EXAT", b"1900000000"]);
            assert_eq!(rig.ask_resp(&client, &set, 1), b"+OK\r\n");
            pairs.extend([format!("m{bytes}").into_bytes(), value]);
        }
        let pairs: Vec<&[u8]> = pairs.iter().map(Vec::as_slice).collect();
        assert_eq!(rig.ask_resp(&client, &request(&pairs), 1), b"+OK\r\n");
        let append = request(&[b"APPEND", b"m100000", &value(70_000, 3)]);
        assert_eq!(rig.ask_resp(&client, &append, 1), b":170000\r\n");
        drop((rig, kept));
        let (mut rig, _kept) = started(&machine, form);
        let client = rig.net.connect();
        let mut names = Vec::new();
        let mut wanted = format!("*{}\r\n", 2 * sizes.len() + 1).into_bytes();
        for (salt, &bytes) in sizes.iter().enumerate() {
            let length = if bytes == 100_000 { 170_000 } else { bytes };
            // What is known without the value is told without it.
            for (line, reply) in [
                (format!("STRLEN m{bytes}"), format!(":{length}|")),
                (format!("EXPIRETIME k{bytes}"), ":1900000000|".into()),
                (format!("TYPE k{bytes}"), "+string|".into()),
                (format!("EXISTS k{bytes} m{bytes} none"), ":2|".into()),
                (format!("TOUCH m{bytes}"), ":1|".into()),
            ] {
                check(&mut rig, &client, &[(&line, &reply)]);
            }
            names.extend([format!("k{bytes}"), format!("m{bytes}")]);
            let value = value(bytes, salt as u64);
            let joined = if bytes == 100_000 { &both } else { &value };
            wanted.extend([bulk(&value), bulk(joined)].concat());
        }
        assert_eq!(faults_of(&rig), 0);
        wanted.extend_from_slice(b"$-1\r\n");
        let line = format!("MGET {} none", names.join(" "));
        for round in 0..2 {
            let got = rig.ask_resp(&client, &words(&line), 1);
            assert!(got == wanted, "round {round}: {} and {}", got.len(), tail(&got));
        }
        assert_eq!(faults_of(&rig), names.len() as u64, "the second are hits");
        // One by one from the media, in one pipeline.
        assert!(rig.shared.store.flush_all());
        let gets: Vec<u8> = names.iter().flat_map(|name| words(&format!("GET {name}"))).collect();
        let got = rig.ask_resp(&client, &gets, names.len());
        let head = wanted.iter().position(|byte| *byte == b'\n').expect("a line") + 1;
        assert!(got == wanted[head..wanted.len() - 5], "{}", tail(&got));
        // Deleting what is cold reads nothing.
        assert!(rig.shared.store.flush_all());
        let before = faults_of(&rig);
        let line = format!("DEL {}", names.join(" "));
        check(&mut rig, &client, &[(&line, &format!(":{}|", names.len()))]);
        assert_eq!(faults_of(&rig), before);
        check(&mut rig, &client, &[("EXISTS k0 k1 m1 m600000", ":0|")]);
    }
}

#[test]
fn nobody_sees_or_is_told_of_what_is_not_durable() {
    for form in FORMS {
        let machine = machine();
        let (mut rig, kept) = started(&machine, form);
        let (writer, third) = (rig.net.connect(), rig.net.connect());
        check(&mut rig, &writer, &[("MSET k old other here", "+OK|")]);
        let reader = rig.net.connect();
        kept.gate.commits_wait.store(true, Relaxed);
        // The second is executed behind the first, and none of it is told.
        writer.send(&[words("SET k newer"), words("GET k"), words("APPEND k !")].concat());
        rig.turns(100);
        assert_eq!(writer.receive(usize::MAX), b"", "nothing is durable yet");
        let rows = [
            ("GET k", "$3|old|"),
            ("MGET k k", "*2|$3|old|$3|old|"),
            ("GETRANGE k 1 2", "$2|ld|"),
            ("STRLEN k", ":3|"),
            ("TTL k", ":-1|"),
            ("EXISTS k none", ":1|"),
        ];
        check(&mut rig, &reader, &rows);
        check(&mut rig, &third, &[("MGET other none", "*2|$4|here|$-1|"), ("TTL none", ":-2|")]);
        kept.gate.commits_wait.store(false, Relaxed);
        let got = rig.until(&writer, Vec::new(), |got| are_replies(got, 3));
        assert_eq!(String::from_utf8_lossy(&got), "+OK\r\n$5\r\nnewer\r\n:6\r\n");
        // From now on it is an ordinary hit.
        let requests =
            |rig: &Rig| rig.shared.durable.get().expect("kept").counts.requests.load(Relaxed);
        let before = requests(&rig);
        check(&mut rig, &third, &[("GET k", "$6|newer!|"), ("STRLEN k", ":6|"), ("TTL k", ":-1|")]);
        assert_eq!(requests(&rig), before, "the executor was not asked");
    }
}

/// A pipeline is given to the executor in rows, and its writes are made durable together.
#[test]
fn a_pipeline_of_writes_waits_for_one_group() {
    for form in FORMS {
        let machine = machine();
        let (mut rig, kept) = started(&machine, form);
        let client = rig.net.connect();
        let before = kept.tier.stats().groups;
        let lines: Vec<u8> =
            (0..60).flat_map(|number| words(&format!("SET k{number} {number}"))).collect();
        let got = rig.ask_resp(&client, &lines, 60);
        assert_eq!(got, b"+OK\r\n".repeat(60));
        let commits = kept.tier.stats().groups - before;
        assert!(commits < 10, "{commits} commits of 60 writes");
    }
}

#[test]
fn what_a_flush_failed_for_is_refused_in_the_words_of_redis_and_not_shown() {
    for form in FORMS {
        let machine = machine();
        let (mut rig, kept) = started(&machine, form);
        let (client, other) = (rig.net.connect(), rig.net.connect());
        check(&mut rig, &client, &[("MSET k old n 1", "+OK|")]);
        kept.gate.commits_wait.store(true, Relaxed);
        let lines = ["SET k new", "GET k", "MSET a 1 b 2", "INCR n", "DEL k n", "INCR none"];
        client.send(&lines.iter().flat_map(|line| words(line)).collect::<Vec<u8>>());
        rig.turns(100);
        machine.log.set_faults(Faults { sync_error_one_in: 1, ..Faults::default() });
        kept.gate.commits_wait.store(false, Relaxed);
        let got = rig.until(&client, Vec::new(), |got| are_replies(got, lines.len()));
        let got = String::from_utf8_lossy(&got).into_owned();
        let told: Vec<&str> = got.split("\r\n").collect();
        for (number, told) in [(0, told[0]), (2, told[3]), (3, told[4]), (4, told[5]), (5, told[6])]
        {
            assert!(told.starts_with("-ERR "), "{number}: {got}");
        }
        assert_eq!(told[1..3], ["$3", "old"], "{got}");
        check(&mut rig, &other, &[("MGET k n a b none", "*5|$3|old|$1|1|$-1|$-1|$-1|")]);
        for (args, value) in [("SET k x", None), ("SET k", Some(value(300_000, 1)))] {
            let request = match value {
                None => words(args),
                Some(value) => request(&[b"SET", b"k", &value, b"EX", b"100"]),
            };
            let got = rig.ask_resp(&client, &[request, words("GET k")].concat(), 2);
            let got = String::from_utf8_lossy(&got);
            assert!(got.starts_with("-ERR ") && got.ends_with("$3\r\nold\r\n"), "{got}");
        }
        let big = value(40_000, 1);
        let many = request(&[b"MSET", b"a", b"1", b"b", &big, b"c", &big, b"d", b"1"]);
        let got = rig.ask_resp(&client, &[many, words("MGET a b c d")].concat(), 2);
        let got = String::from_utf8_lossy(&got);
        assert!(got.starts_with("-ERR "), "{got}");
        assert!(got.ends_with("*4\r\n$-1\r\n$-1\r\n$-1\r\n$-1\r\n"), "{got}");
    }
}

#[test]
fn of_an_mget_only_the_value_that_cannot_be_read_is_an_error() {
    for form in FORMS {
        let machine = machine();
        let (mut rig, kept) = started(&machine, form);
        let client = rig.net.connect();
        let damaged = value(5000, 9);
        rig.ask_resp(&client, &request(&[b"SET", b"damaged", &damaged]), 1);
        check(&mut rig, &client, &[("SET sound s", "+OK|"), ("SET another a", "+OK|")]);
        drop((rig, kept));
        let mut ssd = machine.ssd.image();
        let at = ssd.windows(100).position(|bytes| *bytes == damaged[..100]);
        ssd[at.expect("it is on the SSD") + 7] ^= 1;
        let machine = Machine::of(u64::MAX, machine.log.image(), ssd);
        let (mut rig, _kept) = started(&machine, form);
        let client = rig.net.connect();
        // Behind a write the executor is given all of it, and else one value after the other.
        for (before, ok) in [(Vec::new(), ""), (words("SET new n"), "+OK|")] {
            let count = 1 + usize::from(!before.is_empty());
            let asked = [before, words("MGET sound damaged another")].concat();
            let got = rig.ask_resp(&client, &asked, count);
            let got = String::from_utf8_lossy(&got).replace("\r\n", "|");
            let begins = format!("{ok}*3|$1|s|-ERR lost: key damaged");
            assert!(got.starts_with(&begins) && got.ends_with("|$1|a|"), "{got}");
        }
    }
}

/// A request about very many keys lets others have their turns.
#[test]
fn a_request_about_many_keys_lets_others_in_between() {
    let machine = machine();
    let (mut rig, _kept) = started(&machine, FORMS[0]);
    let (client, other) = (rig.net.connect(), rig.net.connect());
    let names: Vec<String> = (0..2_000).map(|number| format!("k{number}")).collect();
    let mut pairs = vec![&b"MSET"[..]];
    names.iter().for_each(|name| pairs.extend([name.as_bytes(), b"v"]));
    for (bytes, wanted) in [
        (request(&pairs), "+OK\r\n"),
        (words(&format!("EXISTS {}", names.join(" "))), ":2000\r\n"),
        (words(&format!("DEL {} none", names.join(" "))), ":2000\r\n"),
    ] {
        let (mut got, mut answered, mut sent) = (Vec::new(), 0, 0);
        while got.is_empty() {
            sent += client.send(&bytes[sent..]);
            other.send(&words("INCR n"));
            let reply = rig.until(&other, Vec::new(), |got| are_replies(got, 1));
            assert!(reply.starts_with(b":"));
            answered += 1;
            got.extend(client.receive(usize::MAX));
        }
        assert_eq!(String::from_utf8_lossy(&got), wanted);
        assert!(answered > 3, "{answered} were answered meanwhile");
    }
    check(&mut rig, &client, &[("EXISTS k0 k1 k1999", ":0|")]);
}

/// A long request is read once, and not anew whenever it goes on behind others.
#[test]
fn a_request_about_many_keys_is_read_once() {
    let machine = machine();
    let (mut rig, _kept) = started(&machine, FORMS[0]);
    let client = rig.net.connect();
    let names: Vec<String> = (0..5_000).map(|number| format!("none{number}")).collect();
    for (name, wanted) in [("DEL", ":0\r\n"), ("EXISTS", ":0\r\n"), ("TOUCH", ":0\r\n")] {
        let bytes = words(&format!("{name} {}", names.join(" ")));
        meter::take();
        let (mut sent, mut got) = (0, Vec::new());
        while got.is_empty() {
            sent += client.send(&bytes[sent..]);
            rig.turn();
            got.extend(client.receive(usize::MAX));
        }
        let moved = meter::take().bytes;
        assert_eq!(String::from_utf8_lossy(&got), wanted);
        let length = bytes.len() as u64;
        // Received, copied as it grows, given to the executor, and read there.
        assert!(moved < 10 * length, "{name}: {moved} bytes for a request of {length}");
        assert!(moved >= 2 * length, "{name}: the meter counted {moved} of {length}");
    }
}

/// No step copies or reads all of it.
#[test]
fn a_request_about_very_many_keys_is_given_and_read_a_stretch_at_a_time() {
    const BYTES_PER_TURN: u64 = 384 << 10;
    let machine = machine();
    let (mut rig, _kept) = started(&machine, FORMS[0]);
    let client = rig.net.connect();
    let names: Vec<String> = (0..40_000).map(|number| format!("none{number}")).collect();
    let mut delete = vec![&b"DEL"[..]];
    delete.extend(names.iter().map(String::as_bytes));
    let mut no_key = delete.clone();
    no_key.push(b"");
    let empty = &b"-ERR the key is empty, which this server does not take\r\n"[..];
    for (asked, wanted) in [(&delete, &b":0\r\n"[..]), (&no_key, empty)] {
        let bytes = request(asked);
        assert!(BYTES_PER_TURN + (128 << 10) < bytes.len() as u64);
        meter::take();
        let (mut sent, mut got, mut most) = (0, Vec::new(), 0);
        while got.is_empty() {
            sent += client.send(&bytes[sent..]);
            rig.turn();
            most = most.max(meter::take().bytes);
            got.extend(client.receive(usize::MAX));
        }
        assert_eq!(String::from_utf8_lossy(&got), String::from_utf8_lossy(wanted));
        assert!(most <= BYTES_PER_TURN, "{most} bytes in one turn");
    }
}

/// It lies whole in memory since it was queued.
#[test]
fn a_long_value_that_comes_out_of_exec_goes_to_the_executor_slice_by_slice() {
    const BYTES_PER_TURN: u64 = 256 << 10;
    let new = value(900_000, 3);
    let rows: [(&[&[u8]], &str); 7] = [
        (&[b"SET", b"k", &new, b"EX", b"100"], "+OK\r\n"),
        (&[b"SETEX", b"k", b"100", &new], "+OK\r\n"),
        (&[b"SETNX", b"k", &new], ":1\r\n"),
        (&[b"MSET", b"one", b"1", b"k", &new, b"two", b"2"], "+OK\r\n"),
        (&[b"MSET", b"one", b"1", b"k", &new], "+OK\r\n"),
        (&[b"SET", b"k", &new, b"EX"], "-ERR syntax error\r\n"),
        (&[b"MSETNX", b"k", &new], "-ERR what changes in one moment"),
    ];
    for (asked, told) in rows {
        let machine = machine();
        let (mut rig, _kept) = started(&machine, FORMS[0]);
        let client = rig.net.connect();
        assert_eq!(rig.say_resp(&client, "MULTI"), "+OK\r\n");
        assert_eq!(rig.ask_resp(&client, &request(asked), 1), b"+QUEUED\r\n");
        client.send(&words("EXEC"));
        let mut got = Vec::new();
        while !are_replies(&got, 1) {
            meter::take();
            rig.turn();
            let moved = meter::take().bytes;
            assert!(moved <= BYTES_PER_TURN, "{moved} bytes in one turn, {told}");
            got.extend(client.receive(usize::MAX));
        }
        let got = String::from_utf8_lossy(&got);
        assert!(got.starts_with(&format!("*1\r\n{told}")), "{got}");
        let stored = if told.starts_with('-') { b"$-1\r\n".to_vec() } else { bulk(&new) };
        let got = rig.ask_resp(&client, &words("GET k"), 1);
        assert!(got == stored, "{told}: {}", tail(&got));
    }
}

/// What is joined to an item is copied so, too, before the executor has it.
#[test]
fn a_long_value_that_comes_out_of_exec_is_joined() {
    let machine = machine();
    let (mut rig, _kept) = started(&machine, FORMS[0]);
    let client = rig.net.connect();
    rig.say_resp(&client, "SET k abc");
    let new = value(500_000, 4);
    assert_eq!(rig.say_resp(&client, "MULTI"), "+OK\r\n");
    assert_eq!(rig.ask_resp(&client, &request(&[b"APPEND", b"k", &new]), 1), b"+QUEUED\r\n");
    let got = rig.ask_resp(&client, &words("EXEC"), 1);
    assert_eq!(String::from_utf8_lossy(&got), "*1\r\n:500003\r\n");
    let got = rig.ask_resp(&client, &words("GET k"), 1);
    assert!(got == bulk(&[b"abc", &new[..]].concat()), "{}", tail(&got));
}

/// What the executor notes of each key is counted with the request: many long requests at once
/// would else take far more memory than is allowed.
#[test]
fn what_is_noted_of_each_key_is_counted_until_the_request_is_answered() {
    let machine = machine();
    let (mut rig, kept) = started(&machine, FORMS[0]);
    let client = rig.net.connect();
    let durable = rig.shared.durable.get().expect("it is kept").clone();
    // The second is longer than what goes with others.
    for count in [300, 3_000] {
        let names: Vec<String> = (0..count).map(|number| format!("k{number}")).collect();
        let pairs = format!("MSET {} v", names[..300].join(" v "));
        for (line, reply) in [(pairs, "+OK\r\n"), (format!("DEL {}", names.join(" ")), ":300\r\n")]
        {
            let keys = if line.starts_with("MSET") { 300 } else { count };
            let bytes = words(&line);
            kept.gate.commits_wait.store(true, Relaxed);
            let mut sent = 0;
            for _ in 0..200 {
                sent += client.send(&bytes[sent..]);
                rig.turn();
            }
            assert_eq!((sent, client.receive(usize::MAX)), (bytes.len(), Vec::new()));
            let wanted = keys * KEY_HELD_BYTES + bytes.len() as u64;
            let held = durable.held_bytes();
            assert!(wanted <= held, "{held} of {wanted} are counted");
            kept.gate.commits_wait.store(false, Relaxed);
            let got = rig.until(&client, Vec::new(), |got| are_replies(got, 1));
            assert_eq!(String::from_utf8_lossy(&got), reply);
            assert_eq!(durable.held_bytes(), 0);
        }
    }
}

/// A value that is joined is copied as a whole: no two in one step of the executor.
#[test]
fn long_values_are_joined_one_in_a_step() {
    let machine = machine();
    let (mut rig, _kept) = started(&machine, FORMS[0]);
    let clients: Vec<Client> = (0..6).map(|_| rig.net.connect()).collect();
    let requests = requests_begun;
    for number in 0..2 {
        for (at, client) in clients.iter().enumerate() {
            let line = format!("SETRANGE k{at} {} x", 100_000 + number);
            // Also of one connection.
            client.send(&[words(&line), words(&line)].concat());
        }
        let (mut most, before) = (0, requests(&rig));
        let mut got = vec![Vec::new(); clients.len()];
        while !got.iter().all(|got| are_replies(got, 2)) {
            let before = requests(&rig);
            rig.turn();
            most = most.max(requests(&rig) - before);
            for (client, got) in clients.iter().zip(&mut got) {
                got.extend(client.receive(usize::MAX));
            }
        }
        assert_eq!(requests(&rig) - before, 12);
        assert_eq!(most, 1, "requests of one step");
        let wanted = format!(":{}\r\n", 100_001 + number).repeat(2);
        assert!(got.iter().all(|got| String::from_utf8_lossy(got) == wanted), "{got:?}");
    }
}

/// A flush does not come between the keys of a request that has begun.
#[test]
fn a_flush_waits_for_a_request_about_many_keys_that_has_begun() {
    let names: Vec<String> = (0..400).map(|number| format!("k{number}")).collect();
    let pairs = format!("MSET {} v", names.join(" v "));
    let exists = format!("EXISTS {}", names.join(" "));
    for form in FORMS {
        for memcached in [false, true] {
            let machine = machine();
            let (mut rig, _kept) = started(&machine, form);
            let (client, other) = (rig.net.connect(), rig.net.connect());
            let before = requests_begun(&rig);
            client.send(&words(&pairs));
            while requests_begun(&rig) == before {
                rig.turn();
            }
            let (flush, flushed) = match memcached {
                true => (b"flush_all\r\n".to_vec(), "OK\r\n"),
                false => (words("FLUSHALL"), "+OK\r\n"),
            };
            other.send(&flush);
            let got = rig.until(&client, Vec::new(), |got| !got.is_empty());
            assert_eq!(String::from_utf8_lossy(&got), "+OK\r\n");
            let got = rig.until(&other, Vec::new(), |got| !got.is_empty());
            assert_eq!(String::from_utf8_lossy(&got), flushed);
            check(&mut rig, &client, &[(&exists, ":0|"), ("SET k0 again", "+OK|")]);
        }
    }
}

fn requests_begun(rig: &Rig) -> u64 {
    rig.shared.durable.get().expect("it is kept").counts.requests.load(Relaxed)
}
