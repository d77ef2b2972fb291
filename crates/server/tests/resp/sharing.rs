//! One store for two protocols, and one port.

use crate::kept::{all_plans, with_folder};
use laneway_policy::{Design, Form};
use laneway_rig::resp::{request, words};
use laneway_rig::{Plan, Rig, value};
use laneway_store::Moment;
use laneway_transport::memory::Client;

fn rig() -> Rig {
    Rig::new(&Plan::of(2, Form::TimeShare))
}

fn memcached(rig: &mut Rig, client: &Client, request: &str) -> String {
    let end = if request.starts_with("get") { &b"END\r\n"[..] } else { b"\r\n" };
    String::from_utf8(rig.ask(client, request.as_bytes(), end)).expect("it is text")
}

#[test]
fn what_one_protocol_sets_the_other_reads() {
    let mut rig = rig();
    let (redis, memcache) = (rig.net.connect(), rig.net.connect());
    let rows: [(bool, &str, &str); 22] = [
        (true, "SET k v", "+OK\r\n"),
        (false, "get k\r\n", "VALUE k 0 1\r\nv\r\nEND\r\n"),
        (false, "set k 7 0 3\r\nabc\r\n", "STORED\r\n"),
        (true, "GET k", "$3\r\nabc\r\n"),
        // What changes a value in part keeps its flags; what sets it has none.
        (true, "APPEND k d", ":4\r\n"),
        (false, "get k\r\n", "VALUE k 7 4\r\nabcd\r\nEND\r\n"),
        (true, "SET k 10", "+OK\r\n"),
        (false, "decr k 1\r\n", "9\r\n"),
        // memcached's `decr` fills up with spaces.
        (true, "GET k", "$2\r\n9 \r\n"),
        (true, "INCR k", ":10\r\n"),
        (true, "DECRBY k 5", ":5\r\n"),
        (false, "get k\r\n", "VALUE k 0 1\r\n5\r\nEND\r\n"),
        (true, "DECRBY k 7", ":-2\r\n"),
        (false, "incr k 1\r\n", "CLIENT_ERROR cannot increment or decrement non-numeric value\r\n"),
        (false, "set k 5 0 20\r\n18446744073709551615\r\n", "STORED\r\n"),
        (true, "INCR k", "-ERR value is not an integer or out of range\r\n"),
        (false, "set k 5 0 1\r\n1\r\n", "STORED\r\n"),
        (true, "INCR k", ":2\r\n"),
        (false, "get k\r\n", "VALUE k 5 1\r\n2\r\nEND\r\n"),
        (false, "touch k 100\r\n", "TOUCHED\r\n"),
        (true, "TTL k", ":100\r\n"),
        (false, "flush_all\r\n", "OK\r\n"),
    ];
    for (is_redis, request, wanted) in rows {
        let got = match is_redis {
            true => rig.say_resp(&redis, request),
            false => memcached(&mut rig, &memcache, request),
        };
        assert_eq!(got, wanted, "{request}");
    }
    assert_eq!(rig.say_resp(&redis, "EXISTS k"), ":0\r\n");
}

#[test]
fn the_first_bytes_of_a_connection_tell_its_protocol_for_good() {
    let rows: [(&[u8], &[u8]); 8] = [
        (b"*1\r\n$4\r\nPING\r\n", b"+PONG\r\n"),
        (b"PING\r\n", b"+PONG\r\n"),
        (b"ping\r\nset k v\r\nget k\r\n", b"+PONG\r\n+OK\r\n$1\r\nv\r\n"),
        (b"echo \"a b\"\n", b"$3\r\na b\r\n"),
        (b"GET k\r\n", b"ERROR\r\n"),
        (b"mn\r\nPING\r\n", b"MN\r\nERROR\r\n"),
        (b"get k\r\n*1\r\n$4\r\nPING\r\n", b"END\r\nERROR\r\nERROR\r\nERROR\r\n"),
        (b"\r\nPING\r\n", b"ERROR\r\nERROR\r\n"),
    ];
    for (bytes, wanted) in rows {
        for whole in [true, false] {
            let mut rig = rig();
            let client = rig.net.connect();
            let pieces = if whole { vec![bytes] } else { bytes.chunks(1).collect() };
            for piece in pieces {
                client.send(piece);
                rig.turns(3);
            }
            rig.turns(10);
            let got = client.receive(usize::MAX);
            let got = String::from_utf8_lossy(&got)
                .replace("CLIENT_ERROR bad command line format\r\n", "ERROR\r\n");
            assert_eq!(got, String::from_utf8_lossy(wanted), "{}", bytes.escape_ascii());
        }
    }
}

#[test]
fn where_redis_clients_are_not_wanted_they_are_memcached_clients() {
    let mut rig = Rig::new(&Plan { resp: false, ..Plan::of(2, Form::TimeShare) });
    let client = rig.net.connect();
    client.send(&words("PING"));
    rig.turns(10);
    let got = client.receive(usize::MAX);
    assert!(got.starts_with(b"ERROR\r\n"), "{}", got.escape_ascii());
}

#[test]
fn at_a_port_of_their_own_inline_commands_are_redis() {
    let mut rig = rig();
    rig.shared.resp_from.set(0).expect("it is not set");
    let client = rig.net.connect();
    client.send(b"set k 'a b'\r\nGET k\r\n\r\nget none\r\nincr n\r\nquit\r\n");
    rig.turns(20);
    let got = client.receive(usize::MAX);
    assert_eq!(String::from_utf8_lossy(&got), "+OK\r\n$3\r\na b\r\n$-1\r\n:1\r\n+OK\r\n");
    assert!(client.ended());
}

#[test]
fn what_is_asked_is_counted_as_memcacheds_requests_are() {
    let mut rig = rig();
    let client = rig.net.connect();
    let requests =
        ["SET k v", "GET k", "GET none", "MGET k k none", "DEL k none", "INCR n", "INCR n"];
    let pipeline: Vec<u8> = requests.iter().flat_map(|line| words(line)).collect();
    rig.ask_resp(&client, &pipeline, requests.len());
    let totals = rig.shared.board.totals();
    let told = (totals.cmd_get, totals.get_hits, totals.get_misses, totals.cmd_set);
    assert_eq!(told, (5, 3, 2, 1));
    let told = (totals.delete_hits, totals.delete_misses, totals.incr_hits, totals.incr_misses);
    assert_eq!(told, (1, 1, 1, 1));
}

/// What stands in a transaction counts as it does alone: with its size, once, and not at all where
/// it was not executed.
#[test]
fn what_changes_in_one_moment_is_counted_by_size_and_once() {
    let plans = all_plans().into_iter();
    for plan in plans.filter(|plan| plan.design == Design::Lanes && plan.domains == 1) {
        let (what, is_kept) = (plan.what(), plan.kept.is_some());
        let mut rig = Rig::new(&with_folder(&plan));
        let [client, other] = [(); 2].map(|()| rig.net.connect());
        let say = |rig: &mut Rig, lines: &[&str]| {
            lines.iter().for_each(|line| drop(rig.say_resp(&client, line)));
        };
        rig.ask_resp(&client, &request(&[b"SET", b"big", &value(20_000, 1)]), 1);
        say(&mut rig, &["SET k v", "WATCH k", "MULTI"]);
        let before = rig.shared.board.totals();
        say(&mut rig, &["GET big", "GET none", "MGET k none", "SET k w", "INCR n", "INCR n"]);
        say(&mut rig, &["DEL k none", "MSETNX a 1 b 2"]);
        assert_eq!(rig.shared.board.totals().cmd_get, before.cmd_get, "nothing is executed yet");
        say(&mut rig, &["EXEC"]);
        let since = rig.shared.board.totals().since(&before);
        let told = (since.cmd_get, since.get_hits, since.get_misses, since.cmd_set);
        assert_eq!(told, (4, 2, 2, 3), "{what}");
        let told = (since.delete_hits, since.delete_misses, since.incr_hits, since.incr_misses);
        assert_eq!(told, (1, 1, 1, 1), "{what}");
        rig.turns(10);
        let sums = rig.shared.watch(0).clients[0].sums;
        assert_eq!((sums.requests, sums.requests_large), (13, 2), "{what}");
        assert_eq!(since.get_hits_large, 1, "{what}");
        // What the durable executor has done is in no worker's count.
        if !is_kept {
            let lanes = rig.shared.workers.iter().map(|worker| &worker.lanes);
            let large: u64 = lanes.map(|lanes| lanes.requests_large.get()).sum();
            assert_eq!(large, 2, "{what}");
            let sizes = rig.shared.workers.iter().flat_map(|worker| &worker.sizes);
            let sized: u64 = sizes.map(|count| count.get()).sum();
            // Both before it, `GET big`, the value of `k` of `MGET`, three values that are stored,
            // and the number that the second `INCR` reads.
            assert_eq!(sized, 8, "{what}");
        }
        // It is not executed: somebody has changed what is watched.
        say(&mut rig, &["SET k v", "WATCH k", "MULTI", "GET k"]);
        rig.say_resp(&other, "SET k other");
        let before = rig.shared.board.totals();
        assert_eq!(rig.say_resp(&client, "EXEC"), "*-1\r\n", "{what}");
        assert_eq!(rig.shared.board.totals().get_hits, before.get_hits, "{what}");
        // It is too much for one moment, which is found out behind its last request.
        say(&mut rig, &["MULTI", "GET big", "GET big", "GET big", "GET big", "EXEC"]);
        let since = rig.shared.board.totals().since(&before);
        assert_eq!((since.cmd_get, since.get_hits), (4, 4), "{what}");
    }
}

/// Somebody changes the item all the time, so that transactions are tried several times. One that
/// is given up, since each of its tries was in vain, is not counted.
#[test]
fn a_transaction_that_is_tried_again_is_counted_once() {
    const TRANSACTIONS: u64 = 300;
    const CHANGES: u32 = 200_000;
    let mut rig = rig();
    let client = rig.net.connect();
    rig.say_resp(&client, "SET k v");
    let store = rig.shared.store.clone();
    let now = Moment::from_seconds(rig.shared.started_seconds);
    let lines = ["MULTI", "GET k", "SET k x", "GET k", "EXEC"];
    let pipeline: Vec<u8> = lines.iter().flat_map(|line| words(line)).collect();
    let mut is_done = || {
        let replies = rig.ask_resp(&client, &pipeline, lines.len());
        !replies.ends_with(b"-ERR too many changes of one key at once\r\n")
    };
    let mut done = 0;
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for _ in 0..CHANGES {
                let mut draft = store.draft(b"k", 0, Moment::NEVER, 1).expect("memory");
                draft.write(b"w").expect("memory");
                store.enter(store.hash(b"k"), b"k", now).publish(draft, None);
            }
        });
        (0..TRANSACTIONS).for_each(|_| done += u64::from(is_done()));
    });
    assert!(is_done(), "nobody changes it any more");
    done += 1;
    let totals = rig.shared.board.totals();
    let told = (totals.cmd_get, totals.get_hits, totals.cmd_set);
    assert_eq!(told, (2 * done, 2 * done, done + 1));
    rig.turns(10);
    let sums = rig.shared.watch(0).clients[0].sums;
    assert_eq!(sums.requests, 3 * done + 1);
}

/// At a port of both protocols nobody knows yet which one is spoken: the words are memcached's.
#[test]
fn clients_beyond_the_limit_are_told_so_in_redis_words_at_a_port_of_their_own() {
    const BOTH: usize = 0;
    const RESP: usize = 2;
    for plan in all_plans().into_iter().filter(|plan| plan.domains == 1) {
        let what = plan.what();
        let mut rig = Rig::new(&Plan { connections_max: 2, ..with_folder(&plan) });
        assert!(rig.shared.resp_from.set(RESP).is_ok());
        let clients = [BOTH, RESP].map(|listener| rig.net.connect_at(listener));
        for client in &clients {
            assert_eq!(rig.say_resp(client, "PING"), "+PONG\r\n", "{what}");
        }
        for (listener, words) in [
            (BOTH, &b"ERROR Too many open connections\r\n"[..]),
            (RESP, b"-ERR max number of clients reached\r\n"),
        ] {
            let late = rig.net.connect_at(listener);
            rig.turns(20);
            let told = (late.receive(usize::MAX), late.ended());
            assert_eq!(told, (words.to_vec(), true), "{what}");
        }
        let connections = rig.shared.watch(0).connections;
        assert_eq!((connections.open, connections.rejected), (2, 2), "{what}");
        clients[1].finish();
        rig.turns(20);
        let next = rig.net.connect_at(RESP);
        assert_eq!(rig.say_resp(&next, "PING"), "+PONG\r\n", "{what}");
    }
}
