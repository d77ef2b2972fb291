//! What is a request where clients are limited, in each protocol and whatever stands beside it.

use crate::client_limits::{MILLI, NOISY, QUIET, count, one_worker, rig_with};
use laneway_rig::durable::{Kept, Machine, SEGMENT_BYTES, settings};
use laneway_rig::peer::orphan;
use laneway_rig::{Plan, Rig, binary};
use laneway_server::access::client_limits::Limited;
use laneway_server::clock::Clock;
use laneway_transport::memory::Client;

#[test]
fn it_holds_in_every_protocol() {
    let noop = binary::noop();
    let noop_reply = {
        let mut rig = Rig::new(&one_worker());
        let client = rig.net.connect();
        rig.send(&client, &noop);
        rig.until(&client, Vec::new(), |got| got.len() >= 24)
    };
    let words: [(&[u8], &[u8]); 15] = [
        (b"get none\r\n", b"END\r\n"),
        (b"mg none\r\n", b"EN\r\n"),
        (b"*2\r\n$3\r\nGET\r\n$4\r\nnone\r\n", b"$-1\r\n"),
        (b"*2\r\n$4\r\nMGET\r\n$4\r\nnone\r\n", b"*1\r\n$-1\r\n"),
        (b"*2\r\n$3\r\nDEL\r\n$4\r\nnone\r\n", b":0\r\n"),
        (b"*3\r\n$4\r\nMSET\r\n$1\r\nk\r\n$1\r\nv\r\n", b"+OK\r\n"),
        (&noop[..], &noop_reply[..]),
        // These are counted nowhere else.
        (b"*1\r\n$4\r\nPING\r\n", b"+PONG\r\n"),
        (b"nonsense\r\n", b"ERROR\r\n"),
        (
            b"*3\r\n$4\r\nMSET\r\n$0\r\n\r\n$1\r\nv\r\n",
            b"-ERR the key is empty, which this server does not take\r\n",
        ),
        // Nor these, whose values are passed over.
        (b"set k x 0 1\r\nv\r\n", b"CLIENT_ERROR bad command line format\r\n"),
        (b"ms k 1 Z\r\nv\r\n", b"CLIENT_ERROR invalid flag\r\n"),
        // Nor these, each of which ends its turn.
        (b"*1\r\n$6\r\nDBSIZE\r\n", b":0\r\n"),
        (b"*2\r\n$4\r\nSCAN\r\n$1\r\nx\r\n", b"-ERR invalid cursor\r\n"),
        (
            b"*3\r\n$6\r\nRENAME\r\n$0\r\n\r\n$1\r\nk\r\n",
            b"-ERR the key is empty, which this server does not take\r\n",
        ),
    ];
    for (request, reply) in words {
        let what = String::from_utf8_lossy(request);
        let mut rig = rig_with(&one_worker(), Limited::Requests, 1_000);
        let noisy = rig.net.connect_from(NOISY);
        rig.send(&noisy, &request.repeat(300));
        let mut answered = 0;
        for _ in 0..50 {
            rig.turns(MILLI);
            answered += count(&noisy, reply);
        }
        assert!((149..=152).contains(&answered), "{answered}, {what}");
    }
}

#[test]
fn a_command_of_resp_that_somebody_types_is_one_request() {
    let mut rig = rig_with(&one_worker(), Limited::Requests, 1_000);
    let noisy = rig.net.connect_from(NOISY);
    let all = [&b"*1\r\n$4\r\nPING\r\n"[..], &b"PING\r\n".repeat(300)].concat();
    rig.send(&noisy, &all);
    let mut answered = 0;
    for _ in 0..50 {
        rig.turns(MILLI);
        answered += count(&noisy, b"+PONG\r\n");
    }
    assert!((149..=153).contains(&answered), "{answered}");
}

#[test]
fn what_is_typed_and_ends_its_turn_is_one_request_too() {
    let mut rig = rig_with(&one_worker(), Limited::Requests, 1_000);
    let noisy = rig.net.connect_from(NOISY);
    let first = b"*1\r\n$4\r\nPING\r\n";
    assert_eq!(rig.ask(&noisy, first, b"+PONG\r\n"), b"+PONG\r\n");
    rig.send(&noisy, &b"SCAN x\r\n".repeat(300));
    let mut answered = 0;
    for _ in 0..50 {
        rig.turns(MILLI);
        answered += count(&noisy, b"-ERR invalid cursor\r\n");
    }
    assert!((147..=152).contains(&answered), "{answered}");
}

#[test]
fn a_request_that_waited_for_exec_is_one() {
    let tier = Machine::new(16 * SEGMENT_BYTES as usize, 8 << 20).open(settings());
    let kept = Kept::of(&tier.expect("the media are sound"));
    for plan in [one_worker(), Plan { kept: Some(kept), ..one_worker() }] {
        let mut rig = rig_with(&plan, Limited::Requests, 100);
        let noisy = rig.net.connect_from(NOISY);
        let queued = b"*2\r\n$3\r\nGET\r\n$4\r\nnone\r\n".repeat(4);
        let asked = [&b"*1\r\n$5\r\nMULTI\r\n"[..], &queued].concat();
        let told = [&b"+OK\r\n"[..], &b"+QUEUED\r\n".repeat(4)].concat();
        assert_eq!(rig.ask(&noisy, &asked, &told), told);
        let told = [&b"*4\r\n"[..], &b"$-1\r\n".repeat(4)].concat();
        assert_eq!(rig.ask(&noisy, b"*1\r\n$4\r\nEXEC\r\n", &told), told);
        // Six of the eleven that may come at once are used up, or five: of what waits for devices
        // `EXEC` may be a part.
        noisy.send(&b"*1\r\n$4\r\nPING\r\n".repeat(20));
        rig.turns(MILLI);
        let answered = count(&noisy, b"+PONG\r\n");
        assert!((5..=6).contains(&answered), "{answered}, kept: {}", plan.kept.is_some());
    }
}

#[test]
fn what_waited_for_exec_and_is_in_no_count_pays_for_nothing_else() {
    for is_one_turn in [false, true] {
        let mut rig = rig_with(&one_worker(), Limited::Requests, 1_000);
        let noisy = rig.net.connect_from(NOISY);
        let queued = [&b"*1\r\n$5\r\nMULTI\r\n"[..], &b"*1\r\n$4\r\nPING\r\n".repeat(40)].concat();
        let told = [&b"+OK\r\n"[..], &b"+QUEUED\r\n".repeat(40)].concat();
        let exec = &b"*1\r\n$4\r\nEXEC\r\n"[..];
        let done = [&b"*40\r\n"[..], &b"+PONG\r\n".repeat(40)].concat();
        if is_one_turn {
            let told = [told, done].concat();
            assert_eq!(rig.ask(&noisy, &[&queued, exec].concat(), &told), told);
        } else {
            assert_eq!(rig.ask(&noisy, &queued, &told), told);
            assert_eq!(rig.ask(&noisy, exec, &done), done);
        }
        // 41 of 101 are used up.
        noisy.send(&b"*2\r\n$3\r\nGET\r\n$4\r\nnone\r\n".repeat(100));
        rig.turns(10);
        let answered = count(&noisy, b"$-1\r\n");
        assert!((58..=62).contains(&answered), "{answered}, in one turn: {is_one_turn}");
    }
}

/// How many lines that are wrong are answered in some milliseconds, of which 50 come with each of
/// these at a time.
fn wrong_lines_answered(rig: &mut Rig, noisy: &Client, (front, back): (&str, &str)) -> usize {
    let more = [front, &"nonsense\r\n".repeat(50), back].concat();
    let mut got = Vec::new();
    for _ in 0..40 {
        assert_eq!(noisy.send(more.as_bytes()), more.len());
        rig.turns(10);
        got.extend(noisy.receive(usize::MAX));
    }
    let got = String::from_utf8(got).expect("replies are text");
    got.split("\r\n").filter(|&reply| reply == "ERROR").count()
}

#[test]
fn lines_that_are_wrong_are_requests_behind_the_rest_of_a_value_too() {
    let mut rig = rig_with(&one_worker(), Limited::Requests, 1_000);
    let noisy = rig.net.connect_from(NOISY);
    let refused = format!("set {} 0 0 10\r\n01234", "k".repeat(251));
    assert_eq!(noisy.send(refused.as_bytes()), refused.len());
    rig.turns(4);
    // Each turn begins in the middle of a value that is refused.
    let answered = wrong_lines_answered(&mut rig, &noisy, ("56789\r\n", &refused));
    assert!((90..=110).contains(&answered), "{answered}");
}

#[test]
fn lines_that_are_wrong_are_requests_before_what_the_durable_executor_is_given_too() {
    let machine = Machine::new(16 * SEGMENT_BYTES as usize, 8 << 20);
    let tier = machine.open(settings()).expect("the media are sound");
    let plan = Plan { kept: Some(Kept::of(&tier)), ..one_worker() };
    let mut rig = rig_with(&plan, Limited::Requests, 1_000);
    let noisy = rig.net.connect_from(NOISY);
    let set = ("", "set k 0 0 1\r\nx\r\n");
    let answered = wrong_lines_answered(&mut rig, &noisy, set);
    assert!((90..=160).contains(&answered), "{answered}");
}

#[test]
fn lines_that_are_wrong_are_requests_in_front_of_half_a_line_too() {
    let mut rig = rig_with(&one_worker(), Limited::Requests, 1_000);
    let noisy = rig.net.connect_from(NOISY);
    assert_eq!(noisy.send(b"n"), 1);
    let mut answered = 0;
    for _ in 0..300 {
        assert_eq!(noisy.send(b"onsense\r\nn"), 10);
        rig.turns(2);
        answered += count(&noisy, b"ERROR\r\n");
    }
    assert!((100..=112).contains(&answered), "{answered}");
}

#[test]
fn lines_that_are_wrong_are_requests_behind_one_of_many_keys_too() {
    let mut rig = rig_with(&one_worker(), Limited::Requests, 1_000);
    let noisy = rig.net.connect_from(NOISY);
    let all = ["get", &" none".repeat(300), "\r\n", &"nonsense\r\n".repeat(50)].concat();
    rig.ask(&noisy, all.as_bytes(), &b"ERROR\r\n".repeat(50));
    noisy.send(b"mn\r\n");
    rig.turns(248 * MILLI);
    assert!(noisy.receive(usize::MAX).is_empty(), "350 are owed, of which 100 are the burst");
    rig.turns(4 * MILLI);
    assert_eq!(noisy.receive(usize::MAX), b"MN\r\n");
}

/// How long 300 requests and one behind them take with a data folder, of which 100 may come at
/// once; and what they are told.
fn told_and_millis(all: &[u8], bytes: usize, (one, reply): (&[u8], &[u8])) -> (Vec<u8>, u64) {
    let tier = Machine::new(16 * SEGMENT_BYTES as usize, 8 << 20).open(settings());
    let kept = Kept::of(&tier.expect("the media are sound"));
    let mut rig = rig_with(&Plan { kept: Some(kept), ..one_worker() }, Limited::Requests, 1_000);
    let (noisy, quiet) = (rig.net.connect_from(NOISY), rig.net.connect_from(QUIET));
    rig.set(&quiet, "cold", b"c");
    assert!(rig.shared.store.flush_all(), "memory forgets, and the folder does not");
    let began = rig.clock.nanos();
    let back = rig.send(&noisy, all);
    let told = rig.until(&noisy, back, |got| got.len() >= bytes);
    noisy.send(one);
    rig.until(&noisy, Vec::new(), |got| got == reply);
    (told, (rig.clock.nanos() - began) / 1_000_000)
}

#[test]
fn what_the_durable_executor_refuses_or_answers_without_the_item_is_a_request_too() {
    const EMPTY: &[u8] = b"-ERR the key is empty, which this server does not take\r\n";
    let words: [(&[u8], &[u8]); 6] = [
        (b"*4\r\n$3\r\nSET\r\n$1\r\nk\r\n$1\r\nv\r\n$4\r\nwhat\r\n", b"-ERR syntax error\r\n"),
        (b"*3\r\n$6\r\nEXPIRE\r\n$0\r\n\r\n$1\r\n9\r\n", EMPTY),
        (b"*2\r\n$3\r\nDEL\r\n$0\r\n\r\n", EMPTY),
        (b"*3\r\n$6\r\nRENAME\r\n$0\r\n\r\n$1\r\nk\r\n", EMPTY),
        (b"*2\r\n$6\r\nSTRLEN\r\n$4\r\ncold\r\n", b":1\r\n"),
        (b"*2\r\n$6\r\nEXISTS\r\n$4\r\ncold\r\n", b":1\r\n"),
    ];
    for (request, reply) in words {
        let ping = (&b"*1\r\n$4\r\nPING\r\n"[..], &b"+PONG\r\n"[..]);
        let (told, millis) = told_and_millis(&request.repeat(300), 300 * reply.len(), ping);
        let what = String::from_utf8_lossy(request);
        assert!(told == reply.repeat(300), "{what}");
        assert!((190..=230).contains(&millis), "{millis} ms, {what}");
    }
}

#[test]
fn a_get_of_an_item_that_cannot_be_read_is_a_request_too() {
    const VALUE: [u8; 5000] = [b'd'; 5000];
    let plan = |machine: &Machine| {
        let tier = machine.open(settings()).expect("the media are sound");
        Plan { kept: Some(Kept::of(&tier)), ..one_worker() }
    };
    let machine = Machine::new(16 * SEGMENT_BYTES as usize, 8 << 20);
    let mut rig = Rig::new(&plan(&machine));
    let quiet = rig.net.connect_from(QUIET);
    rig.set(&quiet, "damaged", &VALUE);
    rig.set(&quiet, "another", b"a"); // vouches for the group before it
    drop(rig);
    let mut ssd = machine.ssd.image();
    let at = ssd.windows(100).position(|bytes| *bytes == VALUE[..100]);
    ssd[at.expect("it is on the SSD") + 7] ^= 1;
    let machine = Machine::of(u64::MAX, machine.log.image(), ssd);
    let by_resp = b"*2\r\n$3\r\nGET\r\n$7\r\ndamaged\r\n";
    for get in [&b"get damaged\r\n"[..], by_resp] {
        let mut rig = rig_with(&plan(&machine), Limited::Requests, 1_000);
        let noisy = rig.net.connect_from(NOISY);
        let began = rig.clock.nanos();
        let back = rig.send(&noisy, &get.repeat(300));
        let lines = |got: &[u8]| got.iter().filter(|byte| **byte == b'\n').count();
        let told = rig.until(&noisy, back, |got| lines(got) >= 300);
        let millis = (rig.clock.nanos() - began) / 1_000_000;
        let words = String::from_utf8_lossy(get);
        let is_lost = |line: &[u8]| line.windows(5).any(|part| part == b"lost:");
        assert!(told.split(|byte| *byte == b'\n').take(300).all(is_lost), "{words}");
        assert!((180..=230).contains(&millis), "{millis} ms, {words}");
    }
}

#[test]
fn a_noop_behind_a_write_of_the_durable_executor_is_a_request_too() {
    let noop = binary::noop();
    let mut rig = Rig::new(&one_worker());
    let client = rig.net.connect();
    rig.send(&client, &noop);
    let reply = rig.until(&client, Vec::new(), |got| got.len() >= 24);
    let row = [binary::set(b"k", b"v"), noop.repeat(9)].concat();
    let (_, millis) = told_and_millis(&row.repeat(30), 300 * 24, (&noop, &reply));
    assert!((190..=230).contains(&millis), "{millis} ms");
}

/// It stands behind a request that memory answers, in the same row.
#[test]
fn a_request_for_which_the_durable_executor_has_no_room_is_charged_for_once() {
    let resp_get = |key: &str| format!("*2\r\n$3\r\nGET\r\n$5\r\n{key}\r\n").into_bytes();
    type Ask = fn(&str) -> Vec<u8>;
    let ways: [(Ask, usize); 2] =
        [(resp_get, 2 * 7), (|key| binary::get(key.as_bytes()), 2 * (24 + 4 + 1))];
    for (get, replies_bytes) in ways {
        let machine = Machine::new(16 * SEGMENT_BYTES as usize, 8 << 20);
        let plan = || {
            let tier = machine.open(settings()).expect("the media are sound");
            Plan { kept: Some(Kept::of(&tier)), ..one_worker() }
        };
        let mut rig = Rig::new(&plan());
        let quiet = rig.net.connect_from(QUIET);
        let cold = ["cold1", "cold2", "cold3", "cold4"];
        cold.iter().for_each(|key| rig.set(&quiet, key, b"c"));
        drop(rig);
        let mut rig = rig_with(&plan(), Limited::Requests, 100);
        let quiet = rig.net.connect_from(QUIET);
        rig.set(&quiet, "warm1", b"w");
        let (noisy, other) = (rig.net.connect_from(NOISY), rig.net.connect_from(NOISY));
        rig.turns(4);
        for key in cold {
            let durable = rig.shared.durable.get().expect("items are kept");
            while durable.jobs.push(orphan(0, b"mn\r\n")).is_ok() {}
            noisy.send(&[get("warm1"), get(key)].concat());
            for _ in 0..3 {
                rig.workers[0].step().expect("memory does not fail");
            }
            while durable.jobs.pop().is_some() {} // nobody is to execute them
            rig.until(&noisy, Vec::new(), |got| got.len() == replies_bytes);
        }
        // Eight of the eleven that may come at once are used up.
        other.send(&b"mn\r\n".repeat(20));
        rig.turns(MILLI);
        let answered = count(&other, b"MN\r\n");
        assert!((2..=4).contains(&answered), "{answered}, {replies_bytes}");
    }
}

#[test]
fn a_value_whose_end_comes_a_turn_later_is_charged_for_once() {
    static VALUE: [u8; 40_000] = [b'v'; 40_000];
    let by_resp = b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$40000\r\n";
    let ways: [(&[u8], &[u8]); 2] =
        [(b"set k 0 0 40000\r\n", b"STORED\r\n"), (by_resp, b"+OK\r\n")];
    for (head, reply) in ways {
        let tier = Machine::new(16 * SEGMENT_BYTES as usize, 8 << 20).open(settings());
        let kept = Kept::of(&tier.expect("the media are sound"));
        for plan in [one_worker(), Plan { kept: Some(kept), ..one_worker() }] {
            let mut rig = rig_with(&plan, Limited::Requests, 100);
            let (noisy, other) = (rig.net.connect_from(NOISY), rig.net.connect_from(NOISY));
            for _ in 0..4 {
                let back = rig.send(&noisy, &[head, &VALUE].concat());
                rig.turns(4);
                noisy.send(b"\r\n");
                rig.until(&noisy, back, |got| got == reply);
            }
            // Four of the eleven that may come at once are used up.
            other.send(&b"mn\r\n".repeat(20));
            rig.turns(MILLI);
            let answered = count(&other, b"MN\r\n");
            let (what, keeps) = (String::from_utf8_lossy(head), plan.kept.is_some());
            assert!((6..=8).contains(&answered), "{answered}, {what:?}, kept: {keeps}");
        }
    }
}

#[test]
fn each_key_of_a_line_is_a_request() {
    let mut rig = rig_with(&one_worker(), Limited::Requests, 1_000);
    let noisy = rig.net.connect_from(NOISY);
    let line = ["get", &" none".repeat(300), "\r\n"].concat();
    rig.ask(&noisy, line.as_bytes(), b"END\r\n");
    noisy.send(b"mn\r\n");
    rig.turns(198 * MILLI);
    assert!(noisy.receive(usize::MAX).is_empty(), "300 are owed, of which 100 are the burst");
    rig.turns(4 * MILLI);
    assert_eq!(noisy.receive(usize::MAX), b"MN\r\n");
}
