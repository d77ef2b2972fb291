//! `watch`: a connection that streams what happens. Each event is told once, in order, to those who
//! asked for its class, whichever way the request came and whoever has executed it; a watcher that
//! does not keep up is told how many events it has missed, and nobody waits for it.

use laneway_rig as rig;

use laneway_policy::Form;
use laneway_server::shared::Phase;
use laneway_transport::memory::{Client, Faults};
use laneway_transport::memory_datagram::DatagramFaults;
use laneway_wire::binary::Opcode;
use rig::binary;
use rig::durable::{Kept, Machine, SEGMENT_BYTES, settings};
use rig::peer::Peer;
use rig::{Plan, Rig, hit, plans, resp, value};

/// Longer than a worker's buffer, and in the large lane.
const LONG: usize = 300_000;
/// So many turns later every worker has looked for news (an eighth of a second).
const TURNS_TO_LOOK: usize = 20_000;

/// A client that watches.
fn watch(rig: &mut Rig, asked: &str) -> Client {
    let client = rig.net.connect();
    let line = format!("watch {asked}\r\n");
    assert_eq!(rig.ask(&client, line.as_bytes(), b"\r\n"), b"OK\r\n", "{asked}");
    client
}

fn lines_in(bytes: &[u8]) -> usize {
    bytes.iter().filter(|byte| **byte == b'\n').count()
}

/// The next so many lines that it is told, without what depends on time, place or other events; the
/// numbers of the events rise.
fn told(rig: &mut Rig, watcher: &Client, lines: usize) -> Vec<String> {
    let got = rig.until(watcher, Vec::new(), |got| lines_in(got) >= lines);
    let text = String::from_utf8(got).expect("text");
    let mut last = 0;
    let mut told = Vec::new();
    for line in text.lines() {
        let (numbers, event) = line.split_once(" type=").expect("an event");
        let (time, gid) = numbers.split_once(" gid=").expect("a number");
        assert!(time.starts_with("ts="), "{line}");
        let gid: u64 = gid.parse().expect("a number");
        assert!(gid > last, "{line} comes behind {last}");
        last = gid;
        let depends = |word: &&str| !word.starts_with("clsid=") && !word.starts_with("cfd=");
        told.push(event.split(' ').filter(depends).collect::<Vec<_>>().join(" "));
    }
    told
}

/// A request and its reply's end, and the events of it.
type Row = (Vec<u8>, &'static [u8], &'static [&'static str]);

#[allow(clippy::too_many_lines, reason = "rows and steps of one test")]
fn rows() -> Vec<Row> {
    let long = [format!("set long 0 60 {LONG}\r\n").as_bytes(), &value(LONG, 1), b"\r\n"].concat();
    let text = |request: &str| request.as_bytes().to_vec();
    vec![
        (text("get a\r\n"), b"END\r\n", &["item_get key=a status=not_found size=0"]),
        (
            text("set a%20 0 0 3\r\nabc\r\n"),
            b"STORED\r\n",
            &["item_store key=a%2520 status=stored cmd=set ttl=0 size=3"],
        ),
        (
            text("set a 0 60 3\r\nabc\r\n"),
            b"STORED\r\n",
            &["item_store key=a status=stored cmd=set ttl=60 size=3"],
        ),
        (
            text("add a 0 0 1\r\nx\r\n"),
            b"NOT_STORED\r\n",
            &["item_store key=a status=not_stored cmd=add ttl=0 size=1"],
        ),
        (
            text("cas a 0 0 1 999999\r\nx\r\n"),
            b"EXISTS\r\n",
            &["item_store key=a status=exists cmd=cas ttl=0 size=1"],
        ),
        (
            text("cas none 0 0 1 7\r\nx\r\n"),
            b"NOT_FOUND\r\n",
            &["item_store key=none status=not_found cmd=cas ttl=0 size=1"],
        ),
        (
            text("append a 0 0 2\r\nde\r\n"),
            b"STORED\r\n",
            &["item_store key=a status=stored cmd=append ttl=0 size=5"],
        ),
        (
            text("get a none\r\n"),
            b"END\r\n",
            &["item_get key=a status=found size=5", "item_get key=none status=not_found size=0"],
        ),
        (
            text("get a\r\nget none\r\nget a\r\n"),
            b"END\r\nEND\r\nVALUE a 0 5\r\nabcde\r\nEND\r\n",
            &[
                "item_get key=a status=found size=5",
                "item_get key=none status=not_found size=0",
                "item_get key=a status=found size=5",
            ],
        ),
        (text("gat 90 a\r\n"), b"END\r\n", &["item_get key=a status=found size=5"]),
        (text("touch a 90\r\n"), b"TOUCHED\r\n", &["item_get key=a status=found size=5"]),
        (text("mg a v\r\n"), b"abcde\r\n", &["item_get key=a status=found size=5"]),
        (
            text("mg a v\r\nmg none v\r\nmg a s\r\n"),
            b"EN\r\nHD s5\r\n",
            &[
                "item_get key=a status=found size=5",
                "item_get key=none status=not_found size=0",
                "item_get key=a status=found size=5",
            ],
        ),
        (
            text("ms m 1\r\n5\r\n"),
            b"HD\r\n",
            &["item_store key=m status=stored cmd=set ttl=0 size=1"],
        ),
        (
            text("mg made N30\r\n"),
            b"HD W\r\n",
            &[
                "item_get key=made status=not_found size=0",
                "item_store key=made status=stored cmd=add ttl=30 size=0",
            ],
        ),
        (
            text("incr m 6\r\n"),
            b"11\r\n",
            &["item_store key=m status=stored cmd=incr ttl=0 size=2"],
        ),
        (
            text("ma m MD q D1\r\nmn\r\n"),
            b"MN\r\n",
            &["item_store key=m status=stored cmd=decr ttl=0 size=2"],
        ),
        (text("md m I\r\n"), b"HD\r\n", &[]), // it is stale, and there
        (text("md m\r\n"), b"HD\r\n", &["deleted key=m cmd=md size=2"]),
        (text("md m\r\n"), b"NF\r\n", &[]),
        (long, b"STORED\r\n", &["item_store key=long status=stored cmd=set ttl=60 size=300000"]),
        (text("get long\r\n"), b"END\r\n", &["item_get key=long status=found size=300000"]),
        (
            text("append long 0 0 1\r\nx\r\n"),
            b"STORED\r\n",
            &["item_store key=long status=stored cmd=append ttl=0 size=300001"],
        ),
        (text("delete long\r\n"), b"DELETED\r\n", &["deleted key=long cmd=delete size=300001"]),
        (text("delete long\r\n"), b"NOT_FOUND\r\n", &[]),
        (text("flush_all\r\n"), b"OK\r\n", &[]),
    ]
}

/// Asks all of them, and looks at what the watcher is told.
fn ask_all(rig: &mut Rig, watcher: &Client, client: &Client, what: &str) {
    for (request, end, events) in rows() {
        rig.ask(client, &request, end);
        let mut all = events.to_vec();
        // It is told behind them, and nothing else is.
        rig.ask(client, b"get end\r\n", b"END\r\n");
        all.push("item_get key=end status=not_found size=0");
        let front = request[..request.len().min(20)].escape_ascii().to_string();
        assert_eq!(told(rig, watcher, all.len()), all, "{front} of {what}");
    }
}

#[test]
fn each_event_is_told_once_and_in_order_in_every_design() {
    for plan in plans() {
        let what = plan.what();
        let mut rig = Rig::new(&plan);
        let watcher = watch(&mut rig, "fetchers mutations deletions");
        let client = rig.net.connect();
        ask_all(&mut rig, &watcher, &client, &what);
    }
}

#[test]
fn what_the_durable_executor_does_is_told_with_who_asked() {
    for plan in rig::plans_of_lanes() {
        let what = format!("{}, durably", plan.what());
        let machine = Machine::new(16 * SEGMENT_BYTES as usize, 8 << 20);
        let tier = machine.open(settings()).expect("a new folder");
        let mut rig = Rig::new(&Plan { kept: Some(Kept::of(&tier)), ..plan });
        let watcher = watch(&mut rig, "mutations");
        let client = rig.net.connect();
        rig.set(&client, "k", b"value");
        let got = rig.until(&watcher, Vec::new(), |got| got.ends_with(b"\n"));
        let got = String::from_utf8(got).expect("text");
        assert!(got.contains("type=item_store key=k status=stored cmd=set"), "{got} of {what}");
        assert!(!got.contains(" cfd=0 "), "{got} of {what}");
        drop(watcher);
        let watcher = watch(&mut rig, "fetchers mutations deletions");
        ask_all(&mut rig, &watcher, &client, &what);
    }
}

#[test]
fn requests_of_other_protocols_are_told_too() {
    let mut rig =
        Rig::new(&Plan { datagrams: Some(DatagramFaults::NONE), ..Plan::of(2, Form::TimeShare) });
    let watcher = watch(&mut rig, "fetchers mutations deletions");
    let resp = rig.net.connect();
    for (line, events) in [
        ("SET r abc", &["item_store key=r status=stored cmd=set ttl=0 size=3"][..]),
        ("SET r x NX", &["item_store key=r status=not_stored cmd=add ttl=0 size=1"]),
        ("GET r", &["item_get key=r status=found size=3"]),
        (
            "MGET r none",
            &["item_get key=r status=found size=3", "item_get key=none status=not_found size=0"],
        ),
        ("INCR n", &["item_store key=n status=stored cmd=add ttl=0 size=1"]),
        ("INCRBY n 9", &["item_store key=n status=stored cmd=incr ttl=0 size=2"]),
        ("DECR n", &["item_store key=n status=stored cmd=decr ttl=0 size=1"]),
        ("INCRBYFLOAT n 0.5", &["item_store key=n status=stored cmd=incr ttl=0 size=3"]),
        ("PEXPIRE n 90000", &["item_get key=n status=found size=3"]),
        ("PERSIST n", &["item_get key=n status=found size=3"]),
        ("EXPIRE none 90", &["item_get key=none status=not_found size=0"]),
        (
            "TOUCH n none",
            &["item_get key=n status=found size=3", "item_get key=none status=not_found size=0"],
        ),
        ("APPEND r d", &["item_store key=r status=stored cmd=append ttl=0 size=4"]),
        (
            "RENAME r s",
            &[
                "deleted key=r cmd=delete size=4",
                "item_store key=s status=stored cmd=set ttl=0 size=4",
            ],
        ),
        ("GETDEL s", &["deleted key=s cmd=delete size=4", "item_get key=s status=found size=4"]),
        ("EXPIRE n -1", &["deleted key=n cmd=delete size=3", "item_get key=n status=found size=3"]),
        ("SET n 1", &["item_store key=n status=stored cmd=set ttl=0 size=1"]),
        ("DEL n none", &["deleted key=n cmd=delete size=1"]),
        ("SET q abc", &["item_store key=q status=stored cmd=set ttl=0 size=3"]),
        ("DELIFEQ q abc", &["deleted key=q cmd=delete size=3"]),
    ] {
        rig.say_resp(&resp, line);
        assert_eq!(told(&mut rig, &watcher, events.len()), events, "{line}");
    }
    let client = rig.net.connect();
    let delete = binary::request(Opcode::Delete, b"", b"b", b"");
    for (request, events) in [
        (binary::set(b"b", b"val"), &["item_store key=b status=stored cmd=set ttl=0 size=3"][..]),
        (binary::get(b"b"), &["item_get key=b status=found size=3"]),
        (delete, &["deleted key=b cmd=delete size=3"]),
    ] {
        rig.say_binary(&client, &request);
        assert_eq!(told(&mut rig, &watcher, events.len()), events);
    }
    let mut peer = Peer::new(&rig);
    assert_eq!(peer.ask(&mut rig, 0, 1, b"set u 0 0 1\r\nx\r\n"), b"STORED\r\n");
    assert_eq!(peer.ask(&mut rig, 0, 2, b"get u\r\n"), b"VALUE u 0 1\r\nx\r\nEND\r\n");
    assert_eq!(
        told(&mut rig, &watcher, 2),
        [
            "item_store key=u status=stored cmd=set ttl=0 size=1",
            "item_get key=u status=found size=1",
        ]
    );
    let refused = peer.ask(&mut rig, 0, 3, b"watch fetchers\r\n");
    assert_eq!(refused, b"CLIENT_ERROR watch needs a stream\r\n");
}

/// What memory has stands before what it has not.
#[test]
fn a_multiget_by_datagram_that_the_executor_answers_is_told_and_counted_once() {
    let machine = Machine::new(16 * SEGMENT_BYTES as usize, 8 << 20);
    let start = || {
        let kept = Some(Kept::of(&machine.open(settings()).expect("it is sound")));
        let plan = Plan::of(2, Form::TimeShare);
        Rig::new(&Plan { kept, datagrams: Some(DatagramFaults::NONE), ..plan })
    };
    let mut rig = start();
    let client = rig.net.connect();
    rig.set(&client, "cold", b"abc");
    drop((client, rig));
    let mut rig = start();
    let client = rig.net.connect();
    rig.set(&client, "warm", b"de");
    let watcher = watch(&mut rig, "fetchers");
    let mut peer = Peer::new(&rig);
    let wanted = [hit("warm", b"de"), hit("cold", b"abc"), b"END\r\n".to_vec()].concat();
    assert_eq!(peer.ask(&mut rig, 0, 1, b"get warm cold\r\n"), wanted);
    rig.ask(&client, b"get end\r\n", b"END\r\n");
    let events = [
        "item_get key=warm status=found size=2",
        "item_get key=cold status=found size=3",
        "item_get key=end status=not_found size=0",
    ];
    assert_eq!(told(&mut rig, &watcher, events.len()), events);
    assert_eq!(stat(&mut rig, &client, "get_hits"), 2);
}

/// Its item need not come into memory for that.
#[test]
fn a_touch_by_resp_is_told_of_an_item_that_memory_has_not_too() {
    let machine = Machine::new(16 * SEGMENT_BYTES as usize, 8 << 20);
    let start = || {
        let kept = Some(Kept::of(&machine.open(settings()).expect("it is sound")));
        Rig::new(&Plan { kept, ..Plan::of(2, Form::TimeShare) })
    };
    let mut rig = start();
    let client = rig.net.connect();
    rig.set(&client, "cold", b"abc");
    drop((client, rig));
    let mut rig = start();
    let watcher = watch(&mut rig, "fetchers");
    let client = rig.net.connect();
    assert_eq!(rig.say_resp(&client, "TOUCH cold none"), ":1\r\n");
    let events =
        ["item_get key=cold status=found size=3", "item_get key=none status=not_found size=0"];
    assert_eq!(told(&mut rig, &watcher, events.len()), events);
}

/// Also where the executor executes it.
#[test]
fn reads_and_touches_within_a_transaction_are_told_behind_its_changes() {
    let machine = Machine::new(16 * SEGMENT_BYTES as usize, 8 << 20);
    let tier = machine.open(settings()).expect("a new folder");
    for kept in [None, Some(Kept::of(&tier))] {
        let mut rig = Rig::new(&Plan { kept, ..Plan::of(2, Form::TimeShare) });
        let watcher = watch(&mut rig, "fetchers mutations deletions");
        let client = rig.net.connect();
        let lines = [
            "WATCH w",
            "MULTI",
            "SET k abc",
            "GETRANGE k first last", // is refused, and reads nothing
            "GET k",
            "MGET none k",
            "TOUCH k none",
            "EXPIRE k soon", // the same
            "EXPIRE k 100",
            "PERSIST k",
            "EXPIRE none 100",
            "EXEC",
        ];
        let requests: Vec<u8> = lines.iter().flat_map(|line| resp::words(line)).collect();
        rig.ask_resp(&client, &requests, lines.len());
        let events = [
            "item_store key=k status=stored cmd=set ttl=0 size=3",
            "item_get key=k status=found size=3",
            "item_get key=none status=not_found size=0",
            "item_get key=k status=found size=3",
            "item_get key=k status=found size=3",
            "item_get key=none status=not_found size=0",
            "item_get key=k status=found size=3",
            "item_get key=k status=found size=3",
            "item_get key=none status=not_found size=0",
        ];
        assert_eq!(told(&mut rig, &watcher, events.len()), events);
    }
}

#[test]
fn what_memory_refuses_is_told_once_if_it_came_by_resp_too() {
    let plan = Plan { store_mode: true, memory_bytes: 8 << 20, ..Plan::of(2, Form::TimeShare) };
    let mut rig = Rig::new(&plan);
    let watcher = watch(&mut rig, "mutations");
    let client = rig.net.connect();
    let mut refused = 0;
    for number in 0..40 {
        let (key, big) = (format!("key{number}"), value(700_000, number));
        let set = resp::request(&[b"SET", key.as_bytes(), &big]);
        let got = rig.ask_resp(&client, &[set, resp::words("PING")].concat(), 2);
        let (status, size) =
            if got.starts_with(b"+OK") { ("stored", 700_000) } else { ("no_memory", 0) };
        refused += u32::from(size == 0);
        let event = format!("item_store key={key} status={status} cmd=set ttl=0 size={size}");
        assert_eq!(told(&mut rig, &watcher, 1), [event]);
    }
    assert!(refused > 10, "{refused} were refused");
}

#[test]
fn connections_are_told_as_they_come_and_go() {
    for plan in plans() {
        let what = plan.what();
        let mut rig = Rig::new(&plan);
        let watcher = watch(&mut rig, "connevents");
        let client = rig.net.connect();
        rig.ask(&client, b"mn\r\n", b"MN\r\n");
        let new = told(&mut rig, &watcher, 1);
        assert!(new[0].starts_with("conn_new rip="), "{new:?} of {what}");
        client.finish();
        let gone = told(&mut rig, &watcher, 1);
        assert!(gone[0].starts_with("conn_close rip="), "{gone:?} of {what}");
        assert!(gone[0].ends_with(" reason=normal"), "{gone:?} of {what}");
    }
}

#[test]
fn every_eviction_is_told_or_counted() {
    let mut rig = Rig::new(&Plan { memory_bytes: 1 << 20, ..Plan::of(2, Form::TimeShare) });
    let watcher = watch(&mut rig, "evictions");
    let client = rig.net.connect();
    for number in 0..3000 {
        rig.set(&client, &format!("k{number}"), &value(1000, number));
    }
    let evictions = rig.evictions();
    assert!(evictions > 100, "{evictions}");
    let got = rig.until(&watcher, Vec::new(), |got| lines_in(got) as u64 >= evictions);
    let text = String::from_utf8(got).expect("text");
    let (skips, lines): (Vec<_>, Vec<_>) =
        text.lines().partition(|line| line.starts_with("skipped="));
    assert!(skips.is_empty(), "a watcher that reads is told all");
    assert!(lines.iter().all(|line| line.contains(" type=eviction key=k")), "{}", lines[0]);
    assert!(lines[0].contains(" fetch=no ttl=-1 la=") && lines[0].ends_with(" size=1000"));
    assert_eq!(lines.len() as u64, evictions);
}

/// Of the counts that `stats` has, this one.
fn stat(rig: &mut Rig, client: &Client, name: &str) -> u64 {
    let stats = rig.ask(client, b"stats\r\n", b"END\r\n");
    let stats = String::from_utf8(stats).expect("text");
    let line = stats.lines().find_map(|line| line.strip_prefix(&format!("STAT {name} ")));
    line.expect("it is there").parse().expect("a number")
}

#[test]
fn who_does_not_read_misses_events_and_is_told_how_many_and_others_do_not_wait() {
    let faults = Faults { pipe_bytes: 4096, ..Faults::NONE };
    for plan in [
        Plan { faults, ..Plan::of(1, Form::TimeShare) },
        Plan { faults, ..Plan::of(4, Form::Roles) },
    ] {
        let what = plan.what();
        let mut rig = Rig::new(&plan);
        let slow = watch(&mut rig, "fetchers");
        let client = rig.net.connect();
        let line = [&b"get"[..], &b" key".repeat(32), b"\r\n"].concat();
        let rounds = 200;
        for round in 0..rounds {
            rig.ask(&client, &line, b"END\r\n");
            if round % 50 == 0 {
                rig.turns(200);
            }
        }
        let events = rounds * 32;
        assert_eq!(stat(&mut rig, &client, "log_worker_written"), events, "{what}");
        let mut got = slow.receive(usize::MAX);
        let count = |got: &[u8]| {
            let text = String::from_utf8_lossy(got);
            text.lines().fold(0, |sum, line| match line.strip_prefix("skipped=") {
                Some(skipped) => sum + skipped.parse::<u64>().expect("a number"),
                None => sum + u64::from(line.contains(" type=item_get key=key ")),
            })
        };
        got = rig.until(&slow, got, |got| got.ends_with(b"\n") && count(got) >= events);
        assert_eq!(count(&got), events, "{what}: each is told or counted, and once");
        let skipped = stat(&mut rig, &client, "log_watcher_skipped");
        let sent = stat(&mut rig, &client, "log_watcher_sent");
        assert!(skipped > 0, "{what}");
        assert_eq!(skipped + sent, events, "{what}");
    }
}

#[test]
fn of_a_sample_one_event_in_so_many_is_told() {
    let mut rig = Rig::new(&Plan::of(2, Form::TimeShare));
    let watcher = watch(&mut rig, "fetchers sample=10");
    let client = rig.net.connect();
    for _ in 0..10 {
        rig.ask(&client, &[&b"get"[..], &b" key".repeat(10), b"\r\n"].concat(), b"END\r\n");
    }
    rig.turns(TURNS_TO_LOOK);
    assert_eq!(lines_in(&watcher.receive(usize::MAX)), 10);
}

#[test]
fn who_has_gone_watches_no_more() {
    for plan in plans() {
        let what = plan.what();
        let mut rig = Rig::new(&plan);
        let client = rig.net.connect();
        rig.ask(&client, b"mn\r\n", b"MN\r\n");
        let ways: [fn(&Client); 2] = [Client::finish, Client::reset];
        for vanish in ways {
            let watcher = watch(&mut rig, "fetchers mutations");
            assert_eq!(stat(&mut rig, &client, "log_watchers"), 1, "{what}");
            vanish(&watcher);
            rig.turns(20);
            assert_eq!(stat(&mut rig, &client, "log_watchers"), 0, "{what}");
            assert!(!rig.shared.connections.events.is_watched(), "{what}");
        }
    }
}

#[test]
fn words_that_are_no_class_are_told_and_the_connection_goes_on() {
    let usage = "CLIENT_ERROR usage: watch [fetchers] [mutations] [evictions] [connevents] \
                 [deletions] [sample=N]\r\n";
    let mut rig = Rig::new(&Plan::of(1, Form::TimeShare));
    let client = rig.net.connect();
    for line in ["watch foo", "watch fetchers foo", "watch sample=0", "watch sample=x"] {
        let got = rig.ask(&client, format!("{line}\r\nmn\r\n").as_bytes(), b"MN\r\n");
        assert_eq!(String::from_utf8_lossy(&got), format!("{usage}MN\r\n"), "{line:?}");
    }
    assert_eq!(rig.ask(&client, b"watch foo noreply\r\nmn\r\n", b"MN\r\n"), b"MN\r\n");
    // What a watcher sends is read over, however much.
    let watcher = watch(&mut rig, "connevents");
    rig.send(&watcher, &b"get k\r\n".repeat(10_000));
    rig.turns(TURNS_TO_LOOK);
    assert!(watcher.receive(usize::MAX).is_empty() && !watcher.ended());
}

#[test]
fn no_more_than_twenty_watch_and_none_where_keys_are_not_told() {
    let mut rig = Rig::new(&Plan::of(2, Form::TimeShare));
    let watchers: Vec<_> = (0..20).map(|_| watch(&mut rig, "fetchers")).collect();
    let late = rig.net.connect();
    let got = rig.ask(&late, b"watch fetchers\r\nmn\r\n", b"MN\r\n");
    assert_eq!(got, b"WATCHER_TOO_MANY log watcher limit reached\r\nMN\r\n");
    watchers[7].finish();
    rig.turns(20);
    assert_eq!(rig.ask(&late, b"watch fetchers\r\n", b"\r\n"), b"OK\r\n");

    let mut rig = Rig::new(&Plan { dump: false, ..Plan::of(1, Form::TimeShare) });
    let client = rig.net.connect();
    let got = rig.ask(&client, b"watch fetchers\r\nmn\r\n", b"MN\r\n");
    assert_eq!(got, b"CLIENT_ERROR watch commands not allowed\r\nMN\r\n");
}

#[test]
fn who_may_only_read_may_watch() {
    let mut rig = Rig::new(&Plan::of(2, Form::TimeShare));
    let writer = rig.net.connect();
    let reader = rig.net.connect_at(1);
    assert_eq!(rig.ask(&reader, b"watch mutations\r\n", b"\r\n"), b"OK\r\n");
    rig.set(&writer, "k", b"v");
    let events = ["item_store key=k status=stored cmd=set ttl=0 size=1"];
    assert_eq!(told(&mut rig, &reader, 1), events);
}

#[test]
fn a_stop_waits_for_nobody_who_watches() {
    let faults = Faults { pipe_bytes: 4096, ..Faults::NONE };
    for plan in plans() {
        let what = plan.what();
        let mut rig = Rig::new(&Plan { faults, ..plan });
        let (idle, slow) = (watch(&mut rig, "connevents"), watch(&mut rig, "fetchers"));
        let client = rig.net.connect();
        for _ in 0..20 {
            rig.ask(&client, &[&b"get"[..], &b" key".repeat(20), b"\r\n"].concat(), b"END\r\n");
        }
        rig.turns(TURNS_TO_LOOK);
        rig.domains.iter().for_each(|shared| shared.enter_phase(Phase::Draining));
        rig.turns(50);
        assert!(idle.ended() && slow.ended() && client.ended(), "{what}");
        assert!(rig.shared.is_drained(), "{what}");
    }
}
