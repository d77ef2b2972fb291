//! Ends to the millisecond, by a clock that the test drives.

use crate::kept::{FORMS, all_plans, check, machine, started, with_folder};
use laneway_policy::Form;
use laneway_rig::resp::{are_replies, request, words};
use laneway_rig::{Plan, Rig, binary, tail, value};
use laneway_server::clock::{Clock, ManualClock};
use laneway_tier::disk::sim::Faults;
use laneway_transport::memory::Client;
use laneway_wire::binary::Opcode;
use std::sync::atomic::Ordering::Relaxed;

/// The unix millisecond at which the clock of a new server stands.
const START: u64 = ManualClock::UNIX_START as u64 * 1000;

fn unix_nanos(rig: &Rig) -> u64 {
    rig.clock.unix_nanos(rig.clock.nanos())
}

/// Lets time pass until this unix millisecond has just begun.
fn pass_to(rig: &Rig, ms: u64) {
    let left = (ms * 1_000_000).checked_sub(unix_nanos(rig));
    rig.clock.advance(left.expect("that is not over yet"));
}

/// Lets time pass until so many milliseconds of some second have passed.
fn pass_into_second(rig: &Rig, ms: u64) -> u64 {
    let second = unix_nanos(rig) / 1_000_000_000 + 1;
    pass_to(rig, second * 1000 + ms);
    second * 1000 + ms
}

fn say(rig: &mut Rig, client: &Client, line: &str) -> String {
    rig.say_resp(client, line).replace("\r\n", "|")
}

fn number(reply: &str) -> u64 {
    reply.trim_matches([':', '|']).parse().unwrap_or_else(|_| panic!("{reply} is no number"))
}

/// `$MS` stands for a time to live of 1234 ms, `$AT` for the unix millisecond of its end.
const ENDS: &[&[&str]] = &[
    &["SET k v PX $MS"],
    &["PSETEX k $MS v"],
    &["SET k v", "PEXPIRE k $MS"],
    &["SET k v EX 100", "PEXPIRE k $MS LT"],
    &["SET k v", "GETEX k PX $MS"],
    &["SET k v PXAT $AT"],
    &["SET k v", "PEXPIREAT k $AT"],
    &["SET k v", "GETEX k PXAT $AT"],
    &["SET k w PXAT $AT", "SET k v KEEPTTL"],
    &["SET k w PXAT $AT", "SET k v XX KEEPTTL GET"],
    &["SET l v PXAT $AT", "RENAME l k"],
    &["SET k v", "WATCH k", "MULTI", "PEXPIREAT k $AT", "EXEC"],
    &["SET k v", "EXPIRE k 100", "PEXPIREAT k $AT", "PERSIST k", "PEXPIREAT k $AT"],
];

#[test]
fn an_item_lives_to_its_millisecond_and_no_longer() {
    for plan in all_plans() {
        let what = plan.what();
        let mut rig = Rig::new(&with_folder(&plan));
        let client = rig.net.connect();
        for lines in ENDS {
            let asked = pass_into_second(&rig, 250) + 1234;
            for line in *lines {
                let line = line.replace("$AT", &asked.to_string()).replace("$MS", "1234");
                let told = say(&mut rig, &client, &line);
                assert!(!told.starts_with('-'), "{line}: {told}; {what}");
            }
            let end = number(&say(&mut rig, &client, "PEXPIRETIME k"));
            assert!((asked..asked + 2).contains(&end), "{lines:?}: {end}, not {asked}; {what}");
            pass_to(&rig, end - 1);
            assert_eq!(say(&mut rig, &client, "PTTL k"), ":1|", "{lines:?}; {what}");
            assert_eq!(say(&mut rig, &client, "GET k"), "$1|v|", "{lines:?}; {what}");
            pass_to(&rig, end);
            assert_eq!(say(&mut rig, &client, "GET k"), "$-1|", "{lines:?}; {what}");
            assert_eq!(say(&mut rig, &client, "PTTL k"), ":-2|", "{lines:?}; {what}");
        }
    }
}

#[test]
fn times_left_are_rounded_as_redis_does() {
    let mut rig = Rig::new(&Plan::of(1, Form::TimeShare));
    let client = rig.net.connect();
    let end = pass_into_second(&rig, 0) + 2_700;
    let rows = [(2_500, 3), (1_501, 2), (1_500, 2), (1_499, 1), (500, 1), (499, 0), (1, 0)];
    assert_eq!(say(&mut rig, &client, &format!("SET k v PXAT {end}")), "+OK|");
    assert_eq!(number(&say(&mut rig, &client, "EXPIRETIME k")), (end + 500) / 1000);
    for (left, told) in rows {
        pass_to(&rig, end - left);
        assert_eq!(say(&mut rig, &client, "TTL k"), format!(":{told}|"), "{left} ms");
    }
}

/// What memcached's clients see of such an item, and leave of its end.
#[test]
fn memcached_sees_the_next_full_second_and_keeps_the_milliseconds() {
    let mut rig = Rig::new(&Plan::of(1, Form::TimeShare));
    let (resp, text) = (rig.net.connect(), rig.net.connect());
    let end = pass_into_second(&rig, 250) + 1_500;
    assert_eq!(say(&mut rig, &resp, &format!("SET k 5 PXAT {end}")), "+OK|");
    let ask = |rig: &mut Rig, line: &str, end: &[u8]| {
        let told = rig.ask(&text, format!("{line}\r\n").as_bytes(), end);
        String::from_utf8_lossy(&told).into_owned()
    };
    assert_eq!(ask(&mut rig, "mg k t v", b"\r\n5\r\n"), "VA 1 t2\r\n5\r\n");
    assert!(ask(&mut rig, "me k", b"\r\n").contains(" exp=2 "));
    for (line, told) in [
        ("incr k 2", "7\r\n"),
        ("ma k v", "VA 1\r\n8\r\n"),
        ("append k 0 0 1\r\n9", "STORED\r\n"),
        ("prepend k 0 0 1\r\n7", "STORED\r\n"),
    ] {
        assert_eq!(ask(&mut rig, line, told.as_bytes()), told);
        assert_eq!(number(&say(&mut rig, &resp, "PEXPIRETIME k")), end, "{line}");
    }
    pass_to(&rig, end - 1);
    assert_eq!(ask(&mut rig, "get k", b"END\r\n"), "VALUE k 0 3\r\n789\r\nEND\r\n");
    pass_to(&rig, end);
    assert_eq!(ask(&mut rig, "mg k t v", b"\r\n"), "EN\r\n");
    // memcached's own ends lie at full seconds, whatever part of one has passed.
    let now = pass_into_second(&rig, 999) / 1000;
    assert_eq!(say(&mut rig, &resp, "SET k 5 PX 5001"), "+OK|");
    assert_eq!(ask(&mut rig, "touch k 10", b"\r\n"), "TOUCHED\r\n");
    assert_eq!(number(&say(&mut rig, &resp, "PEXPIRETIME k")), (now + 10) * 1000);
    assert_eq!(ask(&mut rig, "mg k t", b"\r\n"), "HD t10\r\n");
}

/// An end goes with its item to the data folder, and comes back with it or without.
#[test]
fn an_end_in_the_data_folder_has_its_milliseconds() {
    let end = START + 5_500;
    for form in FORMS {
        let machine = machine();
        let (mut rig, kept) = started(&machine, form);
        let client = rig.net.connect();
        let long = "x".repeat(200_000);
        for key in ["got", "told", "there", "gone", "deleted", "made", "counted", "renamed"] {
            let line = format!("SET {key} v PXAT {end}");
            check(&mut rig, &client, &[(&line, "+OK|"), ("SET other v", "+OK|")]);
        }
        let line = format!("SET long {long} PXAT {end}");
        check(&mut rig, &client, &[(&line, "+OK|"), ("SET touched v", "+OK|")]);
        check(&mut rig, &client, &[(&format!("PEXPIREAT touched {end}"), ":1|")]);
        drop((rig, kept));

        let (mut rig, _kept) = started(&machine, form);
        let client = rig.net.connect();
        let faults = |rig: &Rig| {
            let counts = &rig.shared.durable.get().expect("it is kept").counts;
            counts.fault_bytes.load(Relaxed)
        };
        let told = format!(":{end}|");
        for key in ["told", "touched", "long"] {
            let asked = [&*format!("PEXPIRETIME {key}"), &*format!("EXPIRETIME {key}")];
            check(&mut rig, &client, &[(asked[0], &told)]);
            check(&mut rig, &client, &[(asked[1], &format!(":{}|", (end + 500) / 1000))]);
        }
        assert_eq!(faults(&rig), 0, "no value was read into memory for that");
        pass_to(&rig, end - 1);
        check(&mut rig, &client, &[("EXISTS there", ":1|"), ("GET got", "$1|v|")]);
        check(&mut rig, &client, &[("PTTL there", ":1|"), ("PTTL got", ":1|")]);
        pass_to(&rig, end);
        check(
            &mut rig,
            &client,
            &[
                ("GET got", "$-1|"),
                ("EXISTS there gone", ":0|"),
                ("STRLEN gone", ":0|"),
                ("TYPE long", "+none|"),
                ("TTL touched", ":-2|"),
                ("DEL deleted", ":0|"),
                ("SET made w NX", "+OK|"),
                ("INCR counted", ":1|"),
                ("RENAME renamed x", "-ERR no such key|"),
                ("GET other", "$1|v|"),
            ],
        );
    }
}

/// What the durable executor has counted: requests, items brought into memory, and their bytes.
fn counts(rig: &Rig) -> [u64; 3] {
    let counts = &rig.shared.durable.get().expect("it is kept").counts;
    [&counts.requests, &counts.faults, &counts.fault_bytes].map(|count| count.load(Relaxed))
}

/// A time to live counts from when a request is executed: one that waited in the same turn for
/// another connection's loses nothing of it.
#[test]
fn a_time_to_live_counts_from_its_execution_and_not_from_the_beginning_of_the_turn() {
    const WORK_NANOS: u64 = 10_000_000;
    for lock in ["SET $K me NX PX 5", "PSETEX $K 5 me"] {
        let mut rig = Rig::new(&Plan::of(1, Form::TimeShare));
        let clients = [rig.net.connect(), rig.net.connect()];
        rig.turns(10);
        for (number, client) in clients.iter().enumerate() {
            let lines =
                [&lock.replace("$K", &format!("lock{number}")), &*format!("GET lock{number}")];
            let lines = lines.map(words).concat();
            client.send(&[lines, words(&format!("SET k{number} v PX 100000"))].concat());
        }
        rig.clock.run(WORK_NANOS);
        rig.turn();
        rig.clock.run(0);
        for client in &clients {
            let got = rig.until(client, Vec::new(), |got| are_replies(got, 3));
            assert_eq!(String::from_utf8_lossy(&got), "+OK\r\n$2\r\nme\r\n+OK\r\n", "{lock}");
        }
        let ends =
            [0, 1].map(|k| number(&say(&mut rig, &clients[0], &format!("PEXPIRETIME k{k}"))));
        let apart = ends[0].abs_diff(ends[1]);
        assert!(WORK_NANOS / 1_000_000 <= apart, "one was served {apart} ms behind the other");
    }
}

/// The same of one that waits for its key, or for the item it looks at.
#[test]
fn a_time_to_live_counts_from_its_execution_by_the_durable_executor() {
    for form in FORMS {
        for (line, told) in [
            ("PEXPIRE k 20", ":1|"),
            ("GETEX k PX 20", "$1|v|"),
            ("SET k w PX 20", "+OK|"),
            ("PSETEX k 20 w", "+OK|"),
            ("SET k w XX PX 20", "+OK|"),
        ] {
            let machine = machine();
            let (mut rig, kept) = started(&machine, form);
            let client = rig.net.connect();
            check(&mut rig, &client, &[("SET k v", "+OK|")]);
            drop((rig, kept));
            let (mut rig, kept) = started(&machine, form);
            let clients = [rig.net.connect(), rig.net.connect()];
            kept.gate.reads_wait.store(true, Relaxed);
            for (client, line) in clients.iter().zip(["STRLEN none", "APPEND k x"]) {
                rig.send(client, &words(line));
            }
            rig.turns(50);
            rig.send(&clients[0], &words(line));
            rig.turns(50);
            rig.clock.advance(30_000_000);
            let waited = unix_nanos(&rig) / 1_000_000;
            kept.gate.reads_wait.store(false, Relaxed);
            let got = rig.until(&clients[0], Vec::new(), |got| are_replies(got, 2));
            let got = String::from_utf8_lossy(&got).replace("\r\n", "|");
            let told = told.replace("$1|v|", "$2|vx|");
            assert_eq!(got, format!(":0|{told}"), "{line}");
            let end = number(&say(&mut rig, &clients[0], "PEXPIRETIME k"));
            assert!(waited + 20 <= end && end < waited + 22, "{line}: {end}, {waited}");
        }
    }
}

/// And of a value that streams in: it counts from when the value is there.
#[test]
fn the_time_to_live_of_a_value_that_streams_in_counts_from_its_last_byte() {
    let long = value(200_000, 7);
    for plan in all_plans() {
        let what = plan.what();
        for head in [&[&b"SETEX"[..], b"k", b"10"][..], &[b"PSETEX", b"k", b"10000"]] {
            let mut rig = Rig::new(&with_folder(&plan));
            let client = rig.net.connect();
            let whole = request(&[head, &[&long]].concat());
            let (first, rest) = whole.split_at(100_000);
            let back = rig.send(&client, first);
            rig.turns(50);
            rig.clock.advance(30_000_000_000);
            let back = [back, rig.send(&client, rest)].concat();
            let got = rig.until(&client, back, |got| are_replies(got, 1));
            assert_eq!(got, b"+OK\r\n", "{}; {what}", tail(&got));
            assert_eq!(say(&mut rig, &client, "TTL k"), ":10|", "{what}");
            assert_eq!(say(&mut rig, &client, "STRLEN k"), ":200000|", "{what}");
        }
    }
}

/// In the last second of its life an item's end is read, where it lies on the disk alone; its value
/// is not, and no error of that read keeps it from being deleted.
#[test]
fn what_asks_whether_an_item_is_there_reads_no_value_in_its_last_second() {
    const TOO_MUCH: &str = "-ERR what changes in one moment";
    let end = START + 5_500;
    for form in FORMS {
        let machine = machine();
        let (mut rig, kept) = started(&machine, form);
        let client = rig.net.connect();
        let lengths = [("s", 20), ("m", 20_000), ("l", 200_000)];
        let names = ["told", "deleted", "renamed", "texted", "binary", "lost"];
        for (length, bytes) in lengths {
            for name in names {
                let line = format!("SET {length}{name} {} PXAT {end}", "x".repeat(bytes));
                check(&mut rig, &client, &[(&line, "+OK|")]);
            }
        }
        drop((rig, kept));
        let (mut rig, _kept) = started(&machine, form);
        let (client, text, binary) = (rig.net.connect(), rig.net.connect(), rig.net.connect());
        let delete = |key: &[u8]| binary::request(Opcode::Delete, b"", key, b"");
        pass_to(&rig, end - 499);
        for (length, bytes) in lengths {
            let rows = [
                (format!("EXISTS {length}told"), ":1|".to_owned()),
                (format!("TOUCH {length}told"), ":1|".to_owned()),
                (format!("STRLEN {length}told"), format!(":{bytes}|")),
                (format!("PEXPIRETIME {length}told"), format!(":{end}|")),
                (format!("DEL {length}deleted {length}none"), ":1|".to_owned()),
                (format!("EXISTS {length}deleted"), ":0|".to_owned()),
            ];
            rows.iter().for_each(|(line, told)| check(&mut rig, &client, &[(line, told)]));
            let told = rig.ask(&text, format!("delete {length}texted\r\n").as_bytes(), b"\r\n");
            assert_eq!(told, b"DELETED\r\n", "{length}");
            let key = format!("{length}binary");
            let told = rig.say_binary(&binary, &delete(key.as_bytes()));
            assert_eq!(told.status, 0, "{length}: {told:?}");
        }
        let told = say(&mut rig, &client, "RENAME lrenamed x");
        assert!(told.starts_with(TOO_MUCH), "{told}");
        assert_eq!(counts(&rig)[1..], [0, 0], "no value was read into memory");
        let unreadable = || Faults { read_error_one_in: 1, ..Faults::default() };
        machine.log.set_faults(unreadable());
        machine.ssd.set_faults(unreadable());
        for (length, _) in lengths {
            check(&mut rig, &client, &[(&format!("DEL {length}lost"), ":1|")]);
        }
        machine.log.set_faults(Faults::default());
        machine.ssd.set_faults(Faults::default());
        for (length, _) in lengths {
            check(&mut rig, &client, &[(&format!("GET {length}lost"), "$-1|")]);
        }
        pass_to(&rig, end);
        check(&mut rig, &client, &[("RENAME lrenamed x", "-ERR no such key|")]);
        assert_eq!(counts(&rig)[2], 0);
    }
}

/// Its second has not come, and it is over: its end is read for that, and its value is not.
#[test]
fn a_watched_item_that_is_over_has_changed_where_the_disk_alone_has_it() {
    let end = START + 5_500;
    for form in FORMS {
        let machine = machine();
        let (mut rig, kept) = started(&machine, form);
        let client = rig.net.connect();
        let watched = [("over", end, "*-1|"), ("living", end + 400, "*1|+PONG|")];
        for (key, end, _) in watched {
            check(&mut rig, &client, &[(&format!("SET {key} v PXAT {end}"), "+OK|")]);
        }
        drop((rig, kept));
        let (mut rig, _kept) = started(&machine, form);
        let clients = watched.map(|_| rig.net.connect());
        for (client, (key, ..)) in clients.iter().zip(watched) {
            let line = format!("WATCH {key}");
            let rows = [(&*line, "+OK|"), ("MULTI", "+OK|"), ("PING", "+QUEUED|")];
            check(&mut rig, client, &rows);
        }
        pass_to(&rig, end);
        for (client, (_, _, told)) in clients.iter().zip(watched) {
            check(&mut rig, client, &[("EXEC", told)]);
        }
        assert_eq!(counts(&rig)[1..], [0, 0], "no value was read into memory");
    }
}

/// Each is taken for there, as one alone is.
#[test]
fn watched_items_that_cannot_be_read_in_their_last_second_have_not_changed() {
    let end = START + 5_900;
    for form in FORMS {
        let machine = machine();
        let (mut rig, kept) = started(&machine, form);
        let client = rig.net.connect();
        for key in ["a", "b", "c"] {
            check(&mut rig, &client, &[(&format!("SET {key} v PXAT {end}"), "+OK|")]);
        }
        drop((rig, kept));
        let (mut rig, _kept) = started(&machine, form);
        let client = rig.net.connect();
        let rows = [("WATCH a b c", "+OK|"), ("MULTI", "+OK|"), ("PING", "+QUEUED|")];
        check(&mut rig, &client, &rows);
        pass_to(&rig, end - 400);
        let unreadable = || Faults { read_error_one_in: 1, ..Faults::default() };
        machine.log.set_faults(unreadable());
        machine.ssd.set_faults(unreadable());
        check(&mut rig, &client, &[("EXEC", "*1|+PONG|")]);
    }
}

/// An item that is over is known to be by everybody soon, not only at its next full second: till
/// then each miss of each worker would be asked of the one executor.
#[test]
fn what_is_over_is_no_longer_asked_of_the_durable_executor() {
    for form in FORMS {
        for was_restarted in [false, true] {
            let machine = machine();
            let (mut rig, mut kept) = started(&machine, form);
            let mut client = rig.net.connect();
            let end = START + 5_500;
            for key in ["hot", "lock", "told"] {
                let line = format!("SET {key} v PXAT {end}");
                check(&mut rig, &client, &[(&line, "+OK|")]);
            }
            if was_restarted {
                drop((rig, kept));
                (rig, kept) = started(&machine, form);
                client = rig.net.connect();
                check(&mut rig, &client, &[("PEXPIRETIME told", &format!(":{end}|"))]);
            }
            // The sweep, which takes back what is over, has just been there.
            pass_to(&rig, end - 50);
            rig.turns(50);
            pass_to(&rig, end);
            let before = counts(&rig)[1];
            check(&mut rig, &client, &[("SET lock w NX", "+OK|"), ("GET lock", "$1|w|")]);
            if !was_restarted {
                assert_eq!(counts(&rig)[1], before, "memory knew when it ended");
            }
            // What was found to be over is not durable yet, and is true for all that.
            kept.gate.commits_wait.store(true, Relaxed);
            for key in ["hot", "told"] {
                check(&mut rig, &client, &[(&format!("GET {key}"), "$-1|")]);
            }
            kept.gate.commits_wait.store(false, Relaxed);
            rig.turns(100);
            let before = counts(&rig);
            for key in ["hot", "told"] {
                for line in [format!("GET {key}"), format!("PTTL {key}"), format!("STRLEN {key}")] {
                    let told = say(&mut rig, &client, &line);
                    assert!(["$-1|", ":-2|", ":0|"].contains(&&*told), "{line}: {told}");
                }
            }
            assert_eq!(counts(&rig), before, "the workers know");
            drop((rig, kept));
            let (mut rig, _kept) = started(&machine, form);
            let client = rig.net.connect();
            check(&mut rig, &client, &[("GET hot", "$-1|"), ("GET lock", "$1|w|")]);
        }
    }
}
