//! Clients that are wrong, or want to be: they get Redis' words, lose nothing of others, and hold
//! no memory to speak of.

use crate::kept::{all_plans, with_folder};
use laneway_policy::Form;
use laneway_rig::resp::{are_replies, bulk, request, words};
use laneway_rig::{self as rig, Plan, Rig, tail, value};
use laneway_transport::memory::Faults;

fn plan() -> Plan {
    Plan::of(2, Form::TimeShare)
}

#[test]
fn who_does_not_speak_the_protocol_is_told_and_closed() {
    let rows: [(&[u8], &str); 9] = [
        (b"*1\r\n:1\r\n", "-ERR Protocol error: expected '$', got ':'\r\n"),
        (b"*2\r\n$3\r\nGET\r\n*1\r\n", "-ERR Protocol error: expected '$', got '*'\r\n"),
        (b"*x\r\n", "-ERR Protocol error: invalid multibulk length\r\n"),
        (b"*99999999\r\n", "-ERR Protocol error: invalid multibulk length\r\n"),
        (b"*1\r\n$-5\r\n", "-ERR Protocol error: invalid bulk length\r\n"),
        (
            b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1073741824\r\n",
            "-ERR Protocol error: invalid bulk length\r\n",
        ),
        (b"*1\r\n$4\r\nPINGxx", "-ERR Protocol error: expected CRLF behind a bulk string\r\n"),
        (b"PING \"\r\n", "-ERR Protocol error: unbalanced quotes in request\r\n"),
        (b"*1\r\n$4\r\nPING\r\n$1\r\na\r\n", "+PONG\r\n-ERR unknown command '$1'"),
    ];
    for (bytes, words) in rows {
        let mut rig = Rig::new(&plan());
        let (client, other) = (rig.net.connect(), rig.net.connect());
        rig.say_resp(&other, "SET k v");
        client.send(bytes);
        rig.turns(20);
        let got = client.receive(usize::MAX);
        let got = String::from_utf8_lossy(&got);
        assert!(got.starts_with(words), "{}: {got}", bytes.escape_ascii());
        let closes = !words.contains("unknown");
        assert_eq!(client.ended(), closes, "{}", bytes.escape_ascii());
        assert_eq!(rig.say_resp(&other, "GET k"), "$1\r\nv\r\n");
    }
}

#[test]
fn an_inline_command_without_an_end_is_refused_at_its_limit() {
    let mut rig = Rig::new(&plan());
    let client = rig.net.connect();
    let mut got = rig.send(&client, &[&b"PING "[..], &vec![b'a'; 64 << 10]].concat());
    for _ in 0..50 {
        rig.turn();
        got.extend(client.receive(usize::MAX));
    }
    assert_eq!(got, b"-ERR Protocol error: too big inline request\r\n");
    assert!(client.ended());
}

/// What is refused is passed over whole, and what stands behind it is answered.
#[test]
fn what_is_refused_does_not_become_requests() {
    // A value that looks like requests.
    let bait = words("SET stolen 1").repeat(40_000);
    assert!(bait.len() > 1 << 20);
    let large = vec![b'x'; 3 << 20];
    let long_key = vec![b'k'; 251];
    let rows: Vec<(Vec<u8>, &str)> = vec![
        (request(&[b"SET", b"k", &large]), "-ERR the item is larger"),
        (request(&[b"SETEX", b"k", b"0", &bait]), "-ERR invalid expire time"),
        (request(&[b"SET", &long_key, &bait]), "-ERR the key is longer"),
        (request(&[b"SET", b"", &bait]), "-ERR the key is empty"),
        (request(&[b"GET", &long_key]), "-ERR the key is longer"),
        (request(&[b"MGET", b"a", &long_key]), "-ERR the key is longer"),
        (request(&[b"GET", &bait]), "-ERR the request is longer"),
        (request(&[b"ECHO", &bait, b"x"]), "-ERR the request is longer"),
        (request(&[b"nope", &bait, &bait]), "-ERR the request is longer"),
        (request(&[b"SET", b"k", &bait[..900_000], &bait]), "-ERR syntax error"),
        (
            request(&[b"MSET", b"first", b"1", &long_key, &bait, b"k", b"v"]),
            "-ERR the key is longer",
        ),
        (request(&[b"MSET", b"first", b"1", &bait, b"v"]), "-ERR the key is longer"),
        (request(&[b"MSET", b"first", b"1", b"k", &large, b"b", &bait]), "-ERR the item is larger"),
        (request(&[b"MSET", b"first", &bait, b"k"]), "-ERR the request is longer"),
        (request(&vec![&b"DEL"[..]; 200_000]), "-ERR the request is longer"),
    ];
    for (number, plan) in rig::plans_of_lanes().into_iter().enumerate() {
        let faults = Faults { seed: 11, short: 60, refuse: 40, reset: 0, pipe_bytes: 65536 };
        let faults = if number % 2 == 0 { Faults::NONE } else { faults };
        let plan = Plan { faults, item_bytes_max: 2 << 20, ..plan };
        let mut rig = Rig::new(&plan);
        let client = rig.net.connect();
        rig.say_resp(&client, "SET k old");
        for (bytes, wanted) in &rows {
            let requests = [&bytes[..], &words("GET k"), &words("GET stolen")].concat();
            let got = rig.ask_resp(&client, &requests, 3);
            let got = String::from_utf8_lossy(&got);
            assert!(got.starts_with(wanted), "{wanted}: {got}");
            assert!(got.ends_with("\r\n$3\r\nold\r\n$-1\r\n"), "{wanted}: {got}");
        }
        let stats = rig.shared.store.stats();
        assert_eq!(stats.unpublished_bytes, 0);
    }
}

#[test]
fn a_value_that_never_ends_is_never_an_item_and_leaves_its_memory() {
    for (verb, tail) in [("SET", ""), ("MSET", ""), ("APPEND", ""), ("SET", "EX")] {
        let mut rig = Rig::new(&plan());
        let (client, other) = (rig.net.connect(), rig.net.connect());
        rig.say_resp(&other, "SET k old");
        let big = value(1 << 20, 4);
        let whole = match tail {
            "" => request(&[verb.as_bytes(), b"k", &big]),
            tail => request(&[verb.as_bytes(), b"k", &big, tail.as_bytes(), b"10"]),
        };
        for cut in [whole.len() / 2, whole.len() - 1] {
            let client = rig.net.connect();
            rig.send(&client, &whole[..cut]);
            rig.turns(100);
            assert_eq!(rig.say_resp(&other, "GET k"), "$3\r\nold\r\n", "{verb}");
            client.reset();
            rig.turns(20);
            assert_eq!(rig.shared.store.stats().unpublished_bytes, 0, "{verb} {cut}");
        }
        rig.say_resp(&client, "PING");
    }
}

#[test]
fn a_transaction_is_bounded() {
    let mut rig = Rig::new(&plan());
    let client = rig.net.connect();
    rig.say_resp(&client, "MULTI");
    let half = value(400_000, 3);
    let set = request(&[b"SET", b"k", &half]);
    assert_eq!(rig.ask_resp(&client, &set, 1), b"+QUEUED\r\n");
    assert_eq!(rig.ask_resp(&client, &set, 1), b"+QUEUED\r\n");
    let got = rig.ask_resp(&client, &set, 1);
    assert!(got.starts_with(b"-ERR the transaction is longer"), "{}", tail(&got));
    assert_eq!(rig.ask_resp(&client, &set, 1), b"+QUEUED\r\n", "it is discarded already");
    let got = rig.say_resp(&client, "EXEC");
    assert!(got.starts_with("-EXECABORT"), "{got}");
    assert_eq!(rig.say_resp(&client, "EXISTS k"), ":0\r\n");
    // One request that is too long for it is passed over.
    rig.say_resp(&client, "MULTI");
    let got = rig.ask_resp(&client, &request(&[b"SET", b"k", &value(2 << 20, 3)]), 1);
    assert!(got.starts_with(b"-ERR the transaction is longer"), "{}", tail(&got));
    assert!(rig.say_resp(&client, "EXEC").starts_with("-EXECABORT"));
    // And one that is never ended is closed with its connection.
    rig.say_resp(&client, "MULTI");
    rig.ask_resp(&client, &set, 1);
    assert!(rig.shared.store.stats().unpublished_bytes > 0, "what waits is counted");
    client.reset();
    rig.turns(20);
    assert_eq!(rig.shared.store.stats().unpublished_bytes, 0);
}

/// Whoever stays in a transaction that can only be refused has no memory of others' values.
#[test]
fn a_transaction_that_will_be_refused_holds_no_memory() {
    let mut rig = Rig::new(&plan());
    let client = rig.net.connect();
    let set = request(&[b"SET", b"k", &value(600_000, 3)]);
    for (refused, wanted) in [
        (words("NOPE"), "-ERR unknown command"),
        (words("GET a b"), "-ERR wrong number of arguments"),
        (set.clone(), "-ERR the transaction is longer"),
    ] {
        rig.say_resp(&client, "MULTI");
        assert_eq!(rig.ask_resp(&client, &set, 1), b"+QUEUED\r\n");
        assert!(rig.shared.store.stats().unpublished_bytes >= 600_000, "what waits is counted");
        let got = rig.ask_resp(&client, &refused, 1);
        assert!(got.starts_with(wanted.as_bytes()), "{wanted}: {}", tail(&got));
        assert_eq!(rig.shared.store.stats().unpublished_bytes, 0, "{wanted}: nothing waits");
        assert_eq!(rig.ask_resp(&client, &set, 1), b"+QUEUED\r\n");
        assert_eq!(rig.shared.store.stats().unpublished_bytes, 0, "{wanted}: nor does this");
        assert!(rig.say_resp(&client, "EXEC").starts_with("-EXECABORT"), "{wanted}");
    }
    assert_eq!(rig.say_resp(&client, "EXISTS k"), ":0\r\n");
}

#[test]
fn no_memory_is_said_in_the_words_of_redis_and_the_old_value_stays() {
    let plan = Plan { store_mode: true, memory_bytes: 8 << 20, ..plan() };
    let mut rig = Rig::new(&plan);
    let client = rig.net.connect();
    rig.say_resp(&client, "SET k old");
    let (mut refused, mut asked) = (0, 1);
    for number in 0..40 {
        let big = value(700_000, number);
        let key = format!("key{number}");
        for args in [&[&b"SET"[..], key.as_bytes(), &big, b"EX", b"90"][..], &[b"SET", b"k", &big]]
        {
            if args.len() == 3 && refused == 0 {
                continue; // there is room yet
            }
            asked += 1;
            let got = rig.ask_resp(&client, &[request(args), words("PING")].concat(), 2);
            match got.starts_with(b"+OK") {
                true => assert_eq!(got, b"+OK\r\n+PONG\r\n"),
                false => {
                    refused += 1;
                    let wanted = "-OOM command not allowed when used memory > 'maxmemory'.\r\n";
                    assert_eq!(String::from_utf8_lossy(&got), format!("{wanted}+PONG\r\n"));
                }
            }
        }
    }
    assert!(refused > 10, "{refused} were refused");
    assert_eq!(rig.shared.totals().cmd_set, asked, "what is refused is counted, too");
    assert_eq!(rig.say_resp(&client, "GET k"), "$3\r\nold\r\n");
    assert_eq!(rig.say_resp(&client, "GET key0").len(), bulk(&value(700_000, 0)).len());
}

#[test]
fn a_pipeline_of_very_many_requests_lets_others_in_between() {
    let mut rig = Rig::new(&Plan::of(1, Form::TimeShare));
    let (deep, other) = (rig.net.connect(), rig.net.connect());
    rig.say_resp(&other, "SET k v");
    const MANY: usize = 1_000_000;
    let (many, pongs) = (words("PING").repeat(MANY), b"+PONG\r\n".repeat(MANY));
    let (mut sent, mut got, mut answered) = (0, Vec::new(), 0);
    while got.len() < pongs.len() {
        sent += deep.send(&many[sent..]);
        other.send(&words("GET k"));
        rig.turns(3);
        assert_eq!(other.receive(usize::MAX), bulk(b"v"));
        answered += 1;
        got.extend(deep.receive(usize::MAX));
    }
    assert!(got == pongs && answered > 100, "{answered}");
    assert!(are_replies(&got, MANY));
}

/// A request of very many arguments that comes byte by byte is looked at once, not with every byte.
#[test]
fn half_a_request_is_not_looked_at_from_its_beginning_with_every_byte() {
    let mut rig = Rig::new(&Plan::of(1, Form::TimeShare));
    let client = rig.net.connect();
    let keys = vec![&b"k"[..]; 50_000];
    let whole = request(&[&[&b"MGET"[..]], &keys[..]].concat());
    let (most, last) = whole.split_at(whole.len() - 5_000);
    rig.send(&client, most);
    rig.turns(50);
    for byte in last {
        assert_eq!(client.send(&[*byte]), 1);
        rig.turn();
    }
    let got = rig.until(&client, Vec::new(), |got| are_replies(got, 1));
    assert_eq!(got.len(), b"*50000\r\n".len() + 50_000 * b"$-1\r\n".len());
}

/// Half a command takes no turn of the worker's and nothing of anybody else, however long it is
/// held, and is served when the rest comes.
#[test]
fn half_a_command_may_be_held_for_hours() {
    for plan in all_plans() {
        let what = plan.what();
        let mut rig = Rig::new(&with_folder(&plan));
        let other = rig.net.connect();
        rig.say_resp(&other, "SET k old");
        let big = value(300_000, 4);
        let wholes = [
            words("SET k v"),
            words("INCR n"),
            request(&[b"SET", b"big", &big, b"EX", b"100000"]),
            request(&[b"MSET", b"a", b"1", b"b", &big]),
            b"PING\r\n".to_vec(),
        ];
        let halves: Vec<_> = wholes
            .iter()
            .map(|whole| {
                let client = rig.net.connect();
                rig.send(&client, &whole[..whole.len() - 3]);
                client
            })
            .collect();
        for _ in 0..5 {
            rig.clock.advance(3_600_000_000_000);
            rig.turns(20);
            assert_eq!(rig.say_resp(&other, "GET k"), "$3\r\nold\r\n", "{what}");
        }
        let wanted = ["+OK\r\n", ":1\r\n", "+OK\r\n", "+OK\r\n", "+PONG\r\n"];
        for ((client, whole), wanted) in halves.iter().zip(&wholes).zip(wanted) {
            let got = rig.ask_resp(client, &whole[whole.len() - 3..], 1);
            assert_eq!(String::from_utf8_lossy(&got), wanted, "{what}");
        }
        let got = rig.ask_resp(&other, &words("MGET k n a b big"), 1);
        let wanted =
            [b"*5\r\n", &bulk(b"v")[..], &bulk(b"1"), &bulk(b"1"), &bulk(&big), &bulk(&big)]
                .concat();
        assert!(got == wanted, "{what}: {}", tail(&got));
    }
}

/// A pipeline of very many writes is bounded where items are kept durably, too.
#[test]
fn a_pipeline_of_very_many_durable_writes_lets_others_in_between() {
    const MANY: usize = 30_000;
    for plan in all_plans().into_iter().filter(|plan| plan.kept.is_some()) {
        let mut rig = Rig::new(&with_folder(&plan));
        let (deep, other) = (rig.net.connect(), rig.net.connect());
        let many = words("INCR n").repeat(MANY);
        let (mut sent, mut got, mut answered) = (0, Vec::new(), 0);
        let last = format!(":{MANY}\r\n");
        while !got.ends_with(last.as_bytes()) {
            sent += deep.send(&many[sent..]);
            other.send(&words("SET k v"));
            let reply = rig.until(&other, Vec::new(), |got| are_replies(got, 1));
            assert_eq!(reply, b"+OK\r\n");
            answered += 1;
            got.extend(deep.receive(usize::MAX));
        }
        let wanted: String = (1..=MANY).map(|number| format!(":{number}\r\n")).collect();
        assert!(got == wanted.as_bytes() && answered > 20, "{answered}");
    }
}

/// Who pipelines small requests and reads no reply is served until its replies fill its pipe, and
/// a turn's replies more; the rest of its requests stays where it is.
#[test]
fn who_pipelines_small_gets_and_never_reads_holds_little_memory() {
    const MANY: usize = 20_000;
    const HELD_BYTES_MAX: usize = 128 << 10;
    let designs = rig::one_of_each_design().into_iter();
    for plan in rig::plans_of_lanes().into_iter().chain(designs) {
        let (what, pipe_bytes) = (plan.what(), plan.faults.pipe_bytes);
        let mut rig = Rig::new(&plan);
        let (stuck, other) = (rig.net.connect(), rig.net.connect());
        let small = value(400, 5);
        rig.ask_resp(&other, &request(&[b"SET", b"k", &small]), 1);
        let (asked, reply) = (words("GET k"), bulk(&small));
        let pipeline = asked.repeat(MANY);
        let mut sent = 0;
        for _ in 0..500 {
            sent += stuck.send(&pipeline[sent..]);
            assert_eq!(rig.say_resp(&other, "PING"), "+PONG\r\n", "{what}");
        }
        let served = rig.shared.board.totals().cmd_get as usize;
        let (made, left) = (served * reply.len(), sent - served * asked.len());
        assert!(served > 0 && sent < pipeline.len(), "{served} were served of {sent}, {what}");
        assert!(made <= pipe_bytes + HELD_BYTES_MAX, "{made} bytes of replies, {what}");
        assert!(left <= pipe_bytes + HELD_BYTES_MAX, "{left} bytes of requests, {what}");
        let held = rig.shared.store.stats().unpublished_bytes;
        assert!(held <= HELD_BYTES_MAX as u64, "{held} bytes, {what}");
        // When it reads at last, all is there.
        let (mut got, all) = (Vec::new(), reply.repeat(MANY));
        while got.len() < all.len() {
            sent += stuck.send(&pipeline[sent..]);
            rig.turn();
            got.extend(stuck.receive(usize::MAX));
            assert!(!stuck.ended(), "{what}");
        }
        assert!(got == all, "{what}: {}", tail(&got));
    }
}
