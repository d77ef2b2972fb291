//! Who came by a read-only port may read: what changes something is refused in the words of the
//! protocol, its value is read over, and the connection goes on.

use laneway_rig as rig;

use laneway_policy::Form;
use laneway_transport::memory::{Client, Faults};
use laneway_wire::binary::Opcode;
use laneway_wire::binary::print::{echo, put_parts};
use rig::binary::{self, replies};
use rig::durable::{Kept, Machine, SEGMENT_BYTES, settings};
use rig::resp::words;
use rig::{Plan, Rig, hit, plans, value};

/// Opcode, extras, key and value.
type Write<'w> = (Opcode, &'w [u8], &'w [u8], &'w [u8]);

const REFUSED: &str = "CLIENT_ERROR this port is read-only\r\n";
/// Longer than a worker's buffer.
const LONG: usize = 300_000;
/// No item has so many.
const TOO_LONG: usize = 400_000;

/// A client that may write, with a few items stored, and one that may not.
fn clients(rig: &mut Rig) -> (Client, Client) {
    let writer = rig.net.connect();
    rig.set(&writer, "k", b"value");
    rig.set(&writer, "n", b"5");
    rig.set(&writer, "long", &value(LONG, 1));
    (writer, rig.net.connect_at(1))
}

/// Nothing has changed.
fn is_as_it_was(rig: &mut Rig, writer: &Client, what: &str) {
    let all = rig.ask(writer, b"get k n long new\r\nmn\r\n", b"MN\r\n");
    let long = hit("long", &value(LONG, 1));
    let wanted = [&hit("k", b"value")[..], &hit("n", b"5"), &long, b"END\r\nMN\r\n"].concat();
    assert_eq!(all, wanted, "{what}");
    let ttl = rig.ask(writer, b"mg k t\r\n", b"\r\n");
    assert_eq!(ttl, b"HD t-1\r\n", "{what}");
}

fn refusals(requests: &[&str]) -> (Vec<u8>, String) {
    let (mut asked, mut wanted) = (Vec::new(), String::new());
    for (number, request) in requests.iter().enumerate() {
        asked.extend_from_slice(format!("{request}\r\nmg k v O{number}\r\n").as_bytes());
        wanted += &format!("{REFUSED}VA 5 O{number}\r\nvalue\r\n");
    }
    (asked, wanted)
}

#[test]
fn what_changes_something_is_refused_and_reads_are_not_in_every_design() {
    let requests = [
        "set k 0 0 3\r\nnew",
        "add new 0 0 3\r\nnew",
        "replace k 0 0 3\r\nnew",
        "append k 0 0 3\r\nnew",
        "prepend k 0 0 3\r\nnew",
        "cas k 0 0 3 1\r\nnew",
        "set k 0 0 11\r\nset k 0 0 5",
        "ms k 3\r\nnew",
        "ms k 3 MA q\r\nnew",
        "md k",
        "md k q",
        "ma n",
        "ma new N0 J7",
        "mg k t T30",
        "mg new N30 v",
        "mg k v R30",
        "incr n 1",
        "decr n 1",
        "delete k",
        "touch k 30",
        "gat 30 k",
        "gats 30 k n",
        "flush_all",
        "flush_all 10",
        "cache_memlimit 8",
        "verbosity 1",
        "stats reset",
        "stats detail on",
        "shutdown",
        "lru mode flat",
        "checkpoint",
        "compact",
        "migrate_rate 5",
    ];
    for plan in plans() {
        let what = plan.what();
        let mut rig = Rig::new(&Plan { shutdown: true, ..plan });
        let (writer, reader) = clients(&mut rig);
        let (mut asked, mut wanted) = refusals(&requests);
        asked.extend_from_slice(b"get k n\r\nget k\r\nget n\r\ngets none\r\nme none\r\nmn\r\n");
        let both = [hit("k", b"value"), hit("n", b"5")].concat();
        wanted += &String::from_utf8(both).expect("it is text");
        wanted +=
            "END\r\nVALUE k 0 5\r\nvalue\r\nEND\r\nVALUE n 0 1\r\n5\r\nEND\r\nEND\r\nEN\r\nMN\r\n";
        let got = rig.ask(&reader, &asked, b"MN\r\n");
        assert_eq!(String::from_utf8_lossy(&got), wanted, "{what}");
        is_as_it_was(&mut rig, &writer, &what);
        let totals = rig.shared.watch(0).totals;
        assert_eq!(totals.refused_read_only, requests.len() as u64, "{what}");
        assert!(!rig.shared.wait_for_stop_within(std::time::Duration::ZERO), "{what}");
    }
}

#[test]
fn a_refused_value_is_read_over_however_it_comes_in_pieces() {
    let faults = Faults { seed: 7, short: 120, refuse: 60, reset: 0, pipe_bytes: 4096 };
    for plan in plans() {
        let what = plan.what();
        let mut rig = Rig::new(&Plan { faults, ..plan });
        let (writer, reader) = clients(&mut rig);
        let mut asked = format!("set long 0 0 {LONG}\r\n").into_bytes();
        asked.extend(b"set k 0 0 1\r\nx\r\n".iter().cycle().take(LONG));
        asked.extend_from_slice(b"\r\nms new 4 q\r\nmore\r\nget k\r\nmn\r\n");
        let got = rig.ask(&reader, &asked, b"MN\r\n");
        let wanted = format!("{REFUSED}{REFUSED}VALUE k 0 5\r\nvalue\r\nEND\r\nMN\r\n");
        assert_eq!(String::from_utf8_lossy(&got), wanted, "{what}");
        is_as_it_was(&mut rig, &writer, &what);
    }
}

#[test]
fn who_wants_no_reply_to_a_write_has_none_to_its_refusal() {
    let mut rig = Rig::new(&Plan::of(1, Form::TimeShare));
    let (writer, reader) = clients(&mut rig);
    let quiet = b"set k 0 0 3 noreply\r\nnew\r\ndelete k noreply\r\nincr n 1 noreply\r\n\
                  touch k 1 noreply\r\nflush_all noreply\r\nverbosity 2 noreply\r\n\
                  cache_memlimit 8 noreply\r\nmn\r\n";
    assert_eq!(rig.ask(&reader, quiet, b"MN\r\n"), b"MN\r\n");
    is_as_it_was(&mut rig, &writer, "noreply");
    assert_eq!(rig.shared.watch(0).totals.refused_read_only, 7);
}

#[test]
fn the_binary_protocol_says_that_it_is_not_supported() {
    for plan in plans() {
        let what = plan.what();
        let mut rig = Rig::new(&plan);
        let (writer, reader) = clients(&mut rig);
        let arith = [&[0; 7][..], &[1], &[0; 12]].concat();
        let long = value(LONG, 2);
        let writes: [Write<'_>; 14] = [
            (Opcode::Set, &[0; 8], b"k", b"new"),
            (Opcode::Set, &[0; 8], b"long", &long),
            (Opcode::Add, &[0; 8], b"new", b"new"),
            (Opcode::Replace, &[0; 8], b"k", b"new"),
            (Opcode::Append, b"", b"k", b"new"),
            (Opcode::Prepend, b"", b"k", b"new"),
            (Opcode::Delete, b"", b"k", b""),
            (Opcode::Increment, &arith, b"n", b""),
            (Opcode::Decrement, &arith, b"n", b""),
            (Opcode::Touch, &[0; 4], b"k", b""),
            (Opcode::GetAndTouch, &[0; 4], b"k", b""),
            (Opcode::Flush, b"", b"", b""),
            (Opcode::Verbosity, &[0; 4], b"", b""),
            (Opcode::Stat, b"", b"reset", b""),
        ];
        let mut asked = Vec::new();
        for (opcode, extras, key, value) in &writes {
            asked.extend(binary::request(*opcode, extras, key, value));
        }
        // A failure is told of a quiet request, too.
        put_parts(&mut asked, echo(Opcode::Set, true, 0), 0, (&[0; 8], b"k", b"new"));
        asked.extend(binary::get(b"k"));
        asked.extend(binary::get(b"n"));
        asked.extend(binary::noop());
        let back = rig.send(&reader, &asked);
        let count = writes.len() + 4;
        let got = rig.until(&reader, back, |got| replies(got).0.len() == count);
        let (told, _) = replies(&got);
        for reply in &told[..writes.len() + 1] {
            assert_eq!((reply.status, &reply.value[..]), (0x83, &b"Not supported"[..]), "{what}");
        }
        let values: Vec<_> = told[writes.len() + 1..].iter().map(|one| &one.value[..]).collect();
        assert_eq!(values, [&b"value"[..], b"5", b""], "{what}");
        is_as_it_was(&mut rig, &writer, &what);
    }
}

#[test]
fn redis_clients_are_told_readonly() {
    for plan in plans() {
        let what = plan.what();
        let mut rig = Rig::new(&plan);
        let (writer, reader) = clients(&mut rig);
        let long = String::from_utf8(b"x".repeat(LONG)).expect("it is text");
        let writes = [
            "SET k new",
            "SETNX new 1",
            "SETEX k 10 new",
            "MSET k a n b",
            "APPEND k more",
            "SETRANGE k 1 x",
            "INCR n",
            "INCRBYFLOAT n 1",
            "DEL k n",
            "UNLINK k",
            "EXPIRE k 10",
            "PERSIST k",
            "GETEX k EX 10",
            "GETDEL k",
            "GETSET k new",
            "MSETNX new 1 more 2",
            "RENAME k new",
            "RENAMENX k new",
            "INCRBY n 2",
            "DECR n",
            "DECRBY n 2",
            "PSETEX k 10000 new",
            "PEXPIRE k 10000",
            "EXPIREAT k 4000000000",
            "PEXPIREAT k 4000000000000",
            "SET k new GET",
            "FLUSHALL",
            "FLUSHDB",
        ];
        let mut asked = Vec::new();
        writes.iter().for_each(|line| asked.extend(words(line)));
        asked.extend(words(&format!("SET long {long}")));
        asked.extend(words(&format!("MSET long {long} k {long}")));
        asked.extend(words("MGET k n"));
        let refused = "-READONLY You can't write against a read only replica.\r\n";
        let mut wanted = refused.repeat(writes.len() + 2);
        wanted += "*2\r\n$5\r\nvalue\r\n$1\r\n5\r\n";
        // A transaction with a write in it is not executed.
        asked.extend(["MULTI", "GET k", "SET k new", "EXEC", "PING"].into_iter().flat_map(words));
        wanted += &format!(
            "+OK\r\n+QUEUED\r\n{refused}-EXECABORT Transaction discarded because of \
                            previous errors.\r\n+PONG\r\n"
        );
        // One that only reads is, also behind WATCH.
        let reads = ["WATCH k", "MULTI", "GET k", "EXISTS n none", "EXEC", "TOUCH k", "PING"];
        asked.extend(reads.into_iter().flat_map(words));
        wanted += "+OK\r\n+OK\r\n+QUEUED\r\n+QUEUED\r\n*2\r\n$5\r\nvalue\r\n:1\r\n:1\r\n+PONG\r\n";
        let back = rig.send(&reader, &asked);
        let got = rig.until(&reader, back, |got| got.len() >= wanted.len());
        assert_eq!(String::from_utf8_lossy(&got), wanted, "{what}");
        let refusals = writes.len() as u64 + 3;
        assert_eq!(rig.shared.watch(0).totals.refused_read_only, refusals, "{what}");
        let scanned = rig.ask(&reader, &words("DBSIZE"), b"\r\n");
        assert!(scanned.starts_with(b":"), "{what}");
        is_as_it_was(&mut rig, &writer, &what);
    }
}

#[test]
fn a_value_that_is_too_long_takes_no_item_away() {
    for plan in plans() {
        let what = plan.what();
        let mut rig = Rig::new(&Plan { item_bytes_max: TOO_LONG, ..plan });
        let (writer, reader) = clients(&mut rig);
        let long = TOO_LONG;
        let mut asked = Vec::new();
        for line in [
            format!("set k 0 0 {long}"),
            format!("set n 0 0 {long} noreply"),
            format!("ms k {long}"),
            format!("ms n {long} q"),
            format!("cas k 0 0 {long} 1"),
        ] {
            asked.extend_from_slice(line.as_bytes());
            asked.extend_from_slice(b"\r\n");
            asked.extend(b"delete k\r\n".iter().cycle().take(long));
            asked.extend_from_slice(b"\r\n");
        }
        asked.extend_from_slice(b"mn\r\n");
        let got = rig.ask(&reader, &asked, b"MN\r\n");
        // A `cas` takes nothing away, and is told what it always is.
        let too_long = "SERVER_ERROR object too large for cache\r\n";
        let wanted = format!("{}{too_long}MN\r\n", REFUSED.repeat(3));
        assert_eq!(String::from_utf8_lossy(&got), wanted, "{what}");
        is_as_it_was(&mut rig, &writer, &what);
        assert_eq!(rig.shared.watch(0).totals.refused_read_only, 4, "{what}");
    }
}

#[test]
fn a_stale_item_is_read_without_its_token() {
    for plan in plans() {
        let what = plan.what();
        let mut rig = Rig::new(&plan);
        let (writer, reader) = clients(&mut rig);
        assert_eq!(rig.ask(&writer, b"md k I T30\r\n", b"\r\n"), b"HD\r\n", "{what}");
        let asked = b"mg k v\r\nmg k v\r\nmg k s\r\nmg azE= b\r\nmn\r\n";
        let got = rig.ask(&reader, asked, b"MN\r\n");
        let wanted = "VA 5 X\r\nvalue\r\nVA 5 X\r\nvalue\r\nHD s5 X\r\nEN\r\nMN\r\n";
        assert_eq!(String::from_utf8_lossy(&got), wanted, "{what}");
        let won = rig.ask(&writer, b"mg k v\r\nmn\r\n", b"MN\r\n");
        assert_eq!(String::from_utf8_lossy(&won), "VA 5 X W\r\nvalue\r\nMN\r\n", "{what}");
        // Somebody has the token now, and whoever reads is told so.
        let told = rig.ask(&reader, b"mg k v\r\nmn\r\n", b"MN\r\n");
        assert_eq!(String::from_utf8_lossy(&told), "VA 5 Z X\r\nvalue\r\nMN\r\n", "{what}");
    }
}

#[test]
fn the_data_folder_gives_a_stale_item_without_its_token() {
    let machine = Machine::new(16 * SEGMENT_BYTES as usize, 8 << 20);
    let plan = || Plan { item_bytes_max: TOO_LONG, ..Plan::of(2, Form::TimeShare) };
    {
        let tier = machine.open(settings()).expect("the media are sound");
        let mut rig = Rig::new(&Plan { kept: Some(Kept::of(&tier)), ..plan() });
        let writer = rig.net.connect();
        rig.set(&writer, "k", b"value");
        assert_eq!(rig.ask(&writer, b"md k I T300\r\n", b"\r\n"), b"HD\r\n");
    }
    // It is not in memory: the durable executor answers.
    let tier = machine.open(settings()).expect("the media are sound");
    let mut rig = Rig::new(&Plan { kept: Some(Kept::of(&tier)), ..plan() });
    let (writer, reader) = (rig.net.connect(), rig.net.connect_at(1));
    let mut asked = format!("set k 0 0 {TOO_LONG}\r\n").into_bytes();
    asked.resize(asked.len() + TOO_LONG, b'x');
    asked.extend_from_slice(b"\r\nmg k v\r\nmg k v\r\nmn\r\n");
    let got = rig.ask(&reader, &asked, b"MN\r\n");
    let wanted = format!("{REFUSED}VA 5 X\r\nvalue\r\nVA 5 X\r\nvalue\r\nMN\r\n");
    assert_eq!(String::from_utf8_lossy(&got), wanted);
    let won = rig.ask(&writer, b"mg k v\r\nmn\r\n", b"MN\r\n");
    assert_eq!(String::from_utf8_lossy(&won), "VA 5 X W\r\nvalue\r\nMN\r\n");
}

#[test]
fn reads_that_the_data_folder_answers_let_no_write_along() {
    let machine = Machine::new(16 * SEGMENT_BYTES as usize, 8 << 20);
    {
        let tier = machine.open(settings()).expect("the media are sound");
        let kept = Kept::of(&tier);
        let mut rig = Rig::new(&Plan { kept: Some(kept), ..Plan::of(2, Form::TimeShare) });
        let writer = rig.net.connect();
        (0..8).for_each(|number| rig.set(&writer, &format!("k{number}"), b"kept"));
    }
    // Nothing is in memory: the durable executor answers each read.
    let tier = machine.open(settings()).expect("the media are sound");
    let kept = Kept::of(&tier);
    let mut rig = Rig::new(&Plan { kept: Some(kept), ..Plan::of(2, Form::TimeShare) });
    let reader = rig.net.connect_at(1);
    let (mut asked, mut wanted) = (String::new(), String::new());
    for number in 0..8 {
        asked += &format!("get k{number}\r\nset k{number} 0 0 3\r\nnew\r\ndelete k{number}\r\n");
        wanted += &format!("VALUE k{number} 0 4\r\nkept\r\nEND\r\n{REFUSED}{REFUSED}");
    }
    let got = rig.ask(&reader, format!("{asked}mn\r\n").as_bytes(), b"MN\r\n");
    assert_eq!(String::from_utf8_lossy(&got), wanted + "MN\r\n");
}

#[test]
fn a_password_that_is_sent_by_a_set_is_none() {
    let plan = Plan { users: Some("u:p\n"), ..Plan::of(1, Form::TimeShare) };
    let mut rig = Rig::new(&plan);
    let reader = rig.net.connect_at(1);
    let got = rig.ask(&reader, b"set x 0 0 3\r\nu p\r\nset x 0 0 3\r\nu p\r\nmn\r\n", b"MN\r\n");
    assert_eq!(String::from_utf8_lossy(&got), format!("STORED\r\n{REFUSED}MN\r\n"));
}
