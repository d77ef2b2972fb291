//! The lanes hold for RESP: a small request never waits behind a large one, and large values come
//! and go whole, whatever roles do.

use laneway_policy::{Design, Form};
use laneway_rig::resp::{bulk, reply_bytes, request, words};
use laneway_rig::{self as rig, Plan, Rig, tail, value};
use laneway_store::meter;
use laneway_transport::memory::Faults;

const LARGE: usize = 4 << 20;

fn plans_of_lanes_and_minos() -> Vec<Plan> {
    let mut plans = rig::plans_of_lanes();
    plans.extend([2, 6].map(|workers| Plan::design(Design::Minos, workers)));
    plans
}

fn is_whole(got: &[u8]) -> bool {
    reply_bytes(got) == Some(got.len())
}

#[test]
fn small_requests_are_answered_while_a_large_reply_is_on_its_way() {
    for plan in plans_of_lanes_and_minos() {
        let what = plan.what();
        let mut rig = Rig::new(&plan);
        let (slow, quick) = (rig.net.connect(), rig.net.connect());
        let big = value(LARGE, 1);
        rig.ask_resp(&slow, &request(&[b"SET", b"big", &big]), 1);
        rig.say_resp(&quick, "SET small s");
        slow.send(&words("GET big"));
        let (mut got, mut answered) = (Vec::new(), 0);
        while got.len() < LARGE / 2 {
            quick.send(&words("GET small"));
            rig.turns(4);
            assert_eq!(quick.receive(usize::MAX), bulk(b"s"), "{what}");
            answered += 1;
            got.extend(slow.receive(usize::MAX));
        }
        assert!(answered > 10, "only {answered} small replies, {what}");
        let got = rig.until(&slow, got, is_whole);
        assert!(got == bulk(&big), "{what}: {}", tail(&got));
    }
}

#[test]
fn small_requests_are_answered_while_a_large_value_arrives_and_its_options_behind_it() {
    for plan in plans_of_lanes_and_minos() {
        let what = plan.what();
        let mut rig = Rig::new(&plan);
        let (slow, quick) = (rig.net.connect(), rig.net.connect());
        rig.say_resp(&quick, "SET small s");
        let big = value(LARGE, 2);
        let whole = request(&[b"SET", b"big", &big, b"EX", b"100", b"NX"]);
        let mut sent = 0;
        while sent < whole.len() - 10 {
            sent += slow.send(&whole[sent..whole.len() - 10]);
            quick.send(&words("GET small"));
            rig.turns(4);
            assert_eq!(quick.receive(usize::MAX), bulk(b"s"), "{what}");
        }
        assert_eq!(rig.say_resp(&quick, "EXISTS big"), ":0\r\n", "it is not complete; {what}");
        assert_eq!(rig.ask_resp(&slow, &whole[sent..], 1), b"+OK\r\n");
        assert_eq!(rig.say_resp(&quick, "TTL big"), ":100\r\n", "{what}");
        let got = rig.ask_resp(&quick, &words("GET big"), 1);
        assert!(got == bulk(&big), "{what}: {}", tail(&got));
    }
}

/// It lies whole in memory since it was queued, and goes into its item slice by slice where small
/// requests could wait for it.
#[test]
fn small_requests_are_answered_while_a_long_value_comes_out_of_exec() {
    let plans = [(1, Form::TimeShare, 5), (2, Form::TimeShare, 5), (3, Form::Roles, 1)];
    for (workers, form, fewest) in plans {
        let plan = Plan::of(workers, form);
        let what = plan.what();
        for head in [&[&b"SET"[..], b"big"][..], &[b"MSET", b"one", b"1", b"big"]] {
            let mut rig = Rig::new(&plan);
            let (slow, quick) = (rig.net.connect(), rig.net.connect());
            rig.say_resp(&quick, "SET small s");
            let big = value(1_000_000, 3);
            assert_eq!(rig.say_resp(&slow, "MULTI"), "+OK\r\n");
            let queued = rig.ask_resp(&slow, &request(&[head, &[&big]].concat()), 1);
            assert_eq!(queued, b"+QUEUED\r\n");
            slow.send(&words("EXEC"));
            let (mut got, mut answered) = (Vec::new(), 0);
            while !is_whole(&got) {
                quick.send(&words("GET small"));
                rig.turns(4);
                assert_eq!(quick.receive(usize::MAX), bulk(b"s"), "{what}");
                answered += 1;
                got.extend(slow.receive(usize::MAX));
            }
            assert_eq!(got, b"*1\r\n+OK\r\n", "{what}: {}", tail(&got));
            assert!(answered >= fewest, "only {answered} small replies, {what}");
            let got = rig.ask_resp(&quick, &words("GET big"), 1);
            assert!(got == bulk(&big), "{what}: {}", tail(&got));
        }
    }
}

/// It is copied slice by slice into what waits, too, whether it has few arguments or many.
#[test]
fn a_long_request_is_kept_until_exec_without_holding_others_up() {
    const BYTES_PER_TURN: u64 = 256 << 10;
    let long = value(1_000_000, 5);
    let mut many = vec![&b"EXISTS"[..]];
    many.resize(20_001, &long[..40]);
    for (asked, told) in [(&[&b"SET"[..], b"k", &long][..], "+OK\r\n"), (&many[..], ":0\r\n")] {
        let mut rig = Rig::new(&Plan::of(1, Form::TimeShare));
        let client = rig.net.connect();
        let asked = request(asked);
        assert_eq!(rig.say_resp(&client, "MULTI"), "+OK\r\n");
        let (mut sent, mut got, mut turns) = (0, Vec::new(), 0);
        while got.is_empty() {
            sent += client.send(&asked[sent..]);
            meter::take();
            rig.turn();
            let moved = meter::take().bytes;
            assert!(moved <= BYTES_PER_TURN, "{moved} bytes in one turn");
            turns += usize::from(sent == asked.len());
            got.extend(client.receive(usize::MAX));
        }
        assert_eq!(got, b"+QUEUED\r\n");
        assert!(turns > 20, "only {turns} turns since it was sent");
        assert_eq!(rig.say_resp(&client, "EXEC"), format!("*1\r\n{told}"));
        let got = rig.ask_resp(&client, &words("GET k"), 1);
        let stored = if told.starts_with('+') { bulk(&long) } else { b"$-1\r\n".to_vec() };
        assert!(got == stored, "{}", tail(&got));
    }
}

/// Options, the reply, and the value afterwards.
type Options<'a> = (&'a [&'a [u8]], Vec<u8>, &'a [u8]);

/// What stands behind a large value decides what becomes of it, wherever the stream is cut.
#[test]
fn the_options_behind_a_large_value_decide() {
    let old = value(70_000, 5);
    let new = value(90_000, 6);
    for (number, plan) in rig::plans().into_iter().enumerate() {
        let what = plan.what();
        let faults = Faults { seed: 3, short: 60, refuse: 40, reset: 0, pipe_bytes: 65536 };
        let plan = Plan { faults: if number % 2 == 0 { Faults::NONE } else { faults }, ..plan };
        let mut rig = Rig::new(&plan);
        let client = rig.net.connect();
        let long = b"-ERR IFEQ compares with values of up to 64 bytes here\r\n".to_vec();
        let rows: [Options<'_>; 12] = [
            (&[], b"+OK\r\n".to_vec(), &new),
            (&[b"NX"], b"$-1\r\n".to_vec(), &old),
            (&[b"XX", b"GET"], bulk(&old), &new),
            (&[b"GET", b"NX"], bulk(&old), &old),
            (&[b"EX", b"0"], b"-ERR invalid expire time in 'set' command\r\n".to_vec(), &old),
            (&[b"EX"], b"-ERR syntax error\r\n".to_vec(), &old),
            (&[b"IFEQ", b"x"], b"$-1\r\n".to_vec(), &old),
            (&[b"IFEQ", &[b'x'; 65]], long.clone(), &old),
            (&[b"IFEQ", &new], long, &old),
            (&[b"what"], b"-ERR syntax error\r\n".to_vec(), &old),
            (&[&new], b"-ERR syntax error\r\n".to_vec(), &old),
            (&[&b"a"[..]; 9], b"-ERR syntax error\r\n".to_vec(), &old),
        ];
        for (options, reply, after) in rows {
            rig.ask_resp(&client, &request(&[b"SET", b"k", &old]), 1);
            let args = [&[&b"SET"[..], b"k", &new], options].concat();
            let requests = [request(&args), words("PING"), words("GET k")].concat();
            let wanted = [&reply[..], b"+PONG\r\n", &bulk(after)].concat();
            let got = rig.ask_resp(&client, &requests, 3);
            assert!(got == wanted, "{what}: {} {}", tail(&got), got.len());
        }
        assert_eq!(rig.shared.store.stats().unpublished_bytes, 0, "{what}");
    }
}

#[test]
fn every_command_that_takes_a_value_takes_a_large_one() {
    let (one, two) = (value(70_000, 7), value(300_000, 8));
    for (number, plan) in rig::plans().into_iter().enumerate() {
        let what = plan.what();
        let faults = Faults { seed: 9, short: 60, refuse: 40, reset: 0, pipe_bytes: 65536 };
        let plan = Plan { faults: if number % 2 == 0 { Faults::NONE } else { faults }, ..plan };
        let mut rig = Rig::new(&plan);
        let client = rig.net.connect();
        let both = [&one[..], &two[..]].concat();
        let many = [b"*5\r\n", &bulk(&one)[..], b"$-1\r\n", &bulk(&two), &bulk(b"s"), &bulk(&one)];
        let rows: Vec<(Vec<u8>, Vec<u8>)> = vec![
            (request(&[b"SETNX", b"a", &one]), b":1\r\n".to_vec()),
            (request(&[b"SETNX", b"a", &two]), b":0\r\n".to_vec()),
            (request(&[b"GETSET", b"a", &two]), bulk(&one)),
            (request(&[b"SETEX", b"a", b"100", &one]), b"+OK\r\n".to_vec()),
            (words("TTL a"), b":100\r\n".to_vec()),
            (request(&[b"APPEND", b"a", &two]), b":370000\r\n".to_vec()),
            (words("TTL a"), b":100\r\n".to_vec()),
            (words("GET a"), bulk(&both)),
            (words("STRLEN a"), b":370000\r\n".to_vec()),
            (words("APPEND a x"), b":370001\r\n".to_vec()),
            (words("INCR a"), b"-ERR value is not an integer or out of range\r\n".to_vec()),
            (request(&[b"APPEND", b"fresh", &two]), b":300000\r\n".to_vec()),
            (request(&[b"MSET", b"a", &one, b"s", b"s", b"b", &two]), b"+OK\r\n".to_vec()),
            (words("MGET a none b s a"), many.concat()),
            (words("GETRANGE b 100 -101"), bulk(&two[100..two.len() - 100])),
            (words("GETRANGE b 299999 400000"), bulk(&two[299_999..])),
            (request(&[b"SETRANGE", b"b", b"1000", &one]), b":300000\r\n".to_vec()),
            (words("SETRANGE b 300005 end"), b":300008\r\n".to_vec()),
            (words("GETRANGE b 71000 -1"), bulk(&[&two[71_000..], b"\0\0\0\0\0end"].concat())),
            (words("GETRANGE b 990 70999"), bulk(&[&two[990..1000], &one[..]].concat())),
            (request(&[b"SETRANGE", b"made", b"80000", &one]), b":150000\r\n".to_vec()),
            (words("GETRANGE made 79999 -1"), bulk(&[b"\0", &one[..]].concat())),
            (request(&[b"SET", b"b", &two]), b"+OK\r\n".to_vec()),
            (words("GETEX b EX 50"), bulk(&two)),
            (words("TTL b"), b":50\r\n".to_vec()),
            (words("GETDEL b"), bulk(&two)),
            (words("EXISTS a b fresh s"), b":3\r\n".to_vec()),
        ];
        for (request, wanted) in &rows {
            let got = rig.ask_resp(&client, request, 1);
            assert!(got == *wanted, "{what}: {} for {}", tail(&got), tail(request));
        }
        let mut rig = Rig::new(&plan);
        let client = rig.net.connect();
        let (requests, wanted): (Vec<_>, Vec<_>) = rows.into_iter().unzip();
        let got = rig.ask_resp(&client, &requests.concat(), wanted.len());
        assert!(got == wanted.concat(), "{what}: {}", tail(&got));
    }
}

#[test]
fn connections_move_and_come_home_while_roles_change() {
    for faults in [Faults::NONE, Faults { seed: 5, short: 60, refuse: 40, ..Faults::NONE }] {
        let mut rig = Rig::new(&Plan { faults, ..Plan::of(6, Form::Roles) });
        let clients: Vec<_> = (0..8).map(|_| rig.net.connect()).collect();
        for round in 0..24_usize {
            rig.publish_large(1 + round % 3);
            let client = &clients[round % clients.len()];
            let big = value(50_000 + 10_000 * round, round as u64);
            let requests = [
                request(&[b"SET", b"big", &big, b"EX", b"1000"]),
                words("MGET big none big"),
                words("MULTI"),
                words("GET big"),
                words("STRLEN big"),
                words("EXEC"),
                words("GET big"),
                words("PING"),
            ]
            .concat();
            let wanted = [
                &b"+OK\r\n*3\r\n"[..],
                &bulk(&big),
                b"$-1\r\n",
                &bulk(&big),
                b"+OK\r\n+QUEUED\r\n+QUEUED\r\n*2\r\n",
                &bulk(&big),
                format!(":{}\r\n", big.len()).as_bytes(),
                &bulk(&big),
                b"+PONG\r\n",
            ]
            .concat();
            let got = rig.ask_resp(client, &requests, 8);
            assert!(got == wanted, "round {round}: {}", tail(&got));
        }
        let moved: u64 = rig.shared.workers.iter().map(|w| w.lanes.moved_to_large.get()).sum();
        assert!(moved > 20, "{moved} connections moved");
    }
}
