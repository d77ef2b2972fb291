//! Clients that are wrong, or want to be: they get memcached's words, lose nothing of others, and
//! hold no memory to speak of.

use crate::kept::{all_plans, with_folder};
use laneway_policy::Form;
use laneway_rig::binary::{get, noop, replies, request, set, with};
use laneway_rig::resp::words;
use laneway_rig::{self as rig, Plan, Rig, value};
use laneway_server::settings::Binding;
use laneway_transport::memory::Faults;
use laneway_wire::binary::Opcode;
use laneway_wire::binary::print::{echo, put_head};
use laneway_wire::binary::reply::Status;

fn plan() -> Plan {
    Plan::of(2, Form::TimeShare)
}

/// What is refused is passed over whole, and what stands behind it is answered.
#[test]
fn what_is_refused_does_not_become_requests() {
    // A value that looks like requests.
    let bait = set(b"stolen", b"1").repeat(40_000);
    assert!(bait.len() > 1 << 20);
    let large = [&bait[..], &bait, &bait].concat();
    let unknown = |value: &[u8]| {
        let echo = laneway_wire::binary::Echo { opcode: 0x77, opaque: [0; 4] };
        with(echo, 0, (b"1234", b"key", value))
    };
    let rows: Vec<(Vec<u8>, Status)> = vec![
        (set(b"other", &large), Status::TooLarge),
        (request(Opcode::Add, &[0; 8], b"k", &large), Status::TooLarge),
        (request(Opcode::Add, &[0; 8], b"k", &bait), Status::Exists),
        (request(Opcode::Replace, &[0; 8], b"none", &bait), Status::NotFound),
        (request(Opcode::Append, b"", b"k", &large), Status::TooLarge),
        (request(Opcode::Append, b"", b"none", &bait), Status::NotStored),
        (unknown(&bait), Status::UnknownCommand),
        (unknown(b""), Status::UnknownCommand),
        (request(Opcode::SaslAuth, b"", b"PLAIN", &bait), Status::UnknownCommand),
    ];
    for (number, plan) in all_plans().into_iter().enumerate() {
        let faults = Faults { seed: 11, short: 60, refuse: 40, reset: 0, pipe_bytes: 65536 };
        let faults = if number % 2 == 0 { Faults::NONE } else { faults };
        let plan = with_folder(&Plan { faults, item_bytes_max: 4 << 20, ..plan });
        let mut rig = Rig::new(&plan);
        let client = rig.net.connect();
        rig.say_binary(&client, &set(b"k", b"old"));
        for (bytes, wanted) in &rows {
            let requests = [&bytes[..], &get(b"k"), &get(b"stolen")].concat();
            let told = rig.ask_binary(&client, &requests, 3);
            assert_eq!(told[0].status, *wanted as u16, "{wanted:?}");
            assert_eq!(told[1].value, b"old", "{wanted:?}");
            assert_eq!(told[2].status, Status::NotFound as u16, "{wanted:?}");
        }
        assert_eq!(rig.shared.store.stats().unpublished_bytes, 0);
    }
}

#[test]
fn who_does_not_speak_the_protocol_is_closed_and_what_came_before_is_answered() {
    let long_key = vec![b'k'; 251];
    for (bad, told) in [
        (b"\x81".to_vec(), 0),
        (b"get k\r\n".to_vec(), 0),
        (get(&long_key), 1),
        (get(b""), 1),
        (request(Opcode::Noop, b"", b"", b"x"), 1),
        (request(Opcode::Touch, &[0; 4], b"k", b"x"), 1),
        (request(Opcode::Set, b"", b"k", b"v"), 1),
    ] {
        for plan in all_plans() {
            let mut rig = Rig::new(&with_folder(&plan));
            let (client, other) = (rig.net.connect(), rig.net.connect());
            rig.say_binary(&other, &set(b"k", b"v"));
            let sent = [set(b"a", b"1"), get(b"a"), bad.clone(), set(b"k", b"stolen")].concat();
            client.send(&sent);
            rig.turns(200);
            let got = client.receive(usize::MAX);
            let (answers, bytes) = replies(&got);
            assert_eq!((answers.len(), bytes), (2 + told, got.len()), "{}", bad.escape_ascii());
            assert_eq!(answers[1].value, b"1");
            assert!(client.ended(), "{}", bad.escape_ascii());
            assert_eq!(rig.say_binary(&other, &get(b"k")).value, b"v");
        }
    }
}

#[test]
fn a_gigabyte_that_is_declared_reserves_nothing() {
    for value_bytes in [1 << 30, u32::MAX as usize - 9] {
        let mut rig = Rig::new(&plan());
        let (client, other) = (rig.net.connect(), rig.net.connect());
        let mut head = Vec::new();
        put_head(&mut head, echo(Opcode::Set, false, 1), 0, (&[0; 8], b"k"), value_bytes);
        let told = rig.say_binary(&client, &head);
        assert_eq!(told.status, Status::TooLarge as u16);
        // A part of it comes, and is passed over.
        let part = noop().repeat(10_000);
        assert!(rig.send(&client, &part).is_empty());
        rig.turns(100);
        assert!(client.receive(usize::MAX).is_empty() && !client.ended());
        assert_eq!(rig.shared.store.stats().unpublished_bytes, 0);
        assert_eq!(rig.say_binary(&other, &noop()).status, 0);
    }
}

#[test]
fn a_value_that_never_ends_is_never_an_item_and_leaves_its_memory() {
    for opcode in [Opcode::Set, Opcode::Append] {
        let mut rig = Rig::new(&plan());
        let other = rig.net.connect();
        rig.say_binary(&other, &set(b"k", b"old"));
        let extras: &[u8] = if opcode == Opcode::Set { &[0; 8] } else { b"" };
        let whole = request(opcode, extras, b"k", &value(1 << 20, 4));
        for cut in [whole.len() / 2, whole.len() - 1] {
            let client = rig.net.connect();
            rig.send(&client, &whole[..cut]);
            rig.turns(100);
            assert_eq!(rig.say_binary(&other, &get(b"k")).value, b"old", "{opcode:?}");
            client.reset();
            rig.turns(20);
            assert_eq!(rig.shared.store.stats().unpublished_bytes, 0, "{opcode:?} {cut}");
        }
    }
}

#[test]
fn no_memory_is_said_in_the_words_of_memcached() {
    let plan = Plan { store_mode: true, memory_bytes: 8 << 20, ..plan() };
    let mut rig = Rig::new(&plan);
    let client = rig.net.connect();
    rig.say_binary(&client, &set(b"k", b"old"));
    let mut refused = 0;
    for number in 0..40u64 {
        let big = value(700_000, number);
        let add = request(Opcode::Add, &[0; 8], format!("key{number}").as_bytes(), &big);
        let told = rig.ask_binary(&client, &[add, noop()].concat(), 2);
        if told[0].status != 0 {
            refused += 1;
            assert_eq!(told[0].status, Status::OutOfMemory as u16);
            assert_eq!(told[0].value, b"Out of memory allocating item");
        }
    }
    assert!(refused > 10, "{refused} were refused");
    assert_eq!(rig.say_binary(&client, &get(b"k")).value, b"old");
    // As in memcached, a value that could not be set leaves no stale one behind.
    let told = rig.say_binary(&client, &set(b"k", &value(700_000, 1)));
    assert_eq!(told.status, Status::OutOfMemory as u16);
    assert_eq!(rig.say_binary(&client, &get(b"k")).status, Status::NotFound as u16);
}

#[test]
fn half_a_request_may_be_held_for_hours() {
    for plan in all_plans() {
        let what = plan.what();
        let mut rig = Rig::new(&with_folder(&plan));
        let other = rig.net.connect();
        rig.say_binary(&other, &set(b"k", b"old"));
        let wholes = [set(b"k", b"value"), set(b"big", &value(300_000, 4)), get(b"none")];
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
            assert_eq!(rig.say_binary(&other, &get(b"k")).value, b"old", "{what}");
        }
        for ((client, whole), wanted) in halves.iter().zip(&wholes).zip([0, 0, 1]) {
            let told = rig.say_binary(client, &whole[whole.len() - 3..]);
            assert_eq!(told.status, wanted, "{what}");
        }
        assert!(rig.say_binary(&other, &get(b"big")).value == value(300_000, 4), "{what}");
    }
}

#[test]
fn a_pipeline_of_very_many_requests_lets_others_in_between() {
    const MANY: usize = 300_000;
    let mut rig = Rig::new(&Plan::of(1, Form::TimeShare));
    let (deep, other) = (rig.net.connect(), rig.net.connect());
    rig.say_binary(&other, &set(b"k", b"v"));
    let quiet = with(echo(Opcode::Get, true, 1), 0, (b"", b"none", b""));
    let many = [quiet.repeat(MANY), noop()].concat();
    let (mut sent, mut got, mut answered) = (0, Vec::new(), 0);
    while got.is_empty() {
        sent += deep.send(&many[sent..]);
        other.send(&get(b"k"));
        rig.turns(3);
        assert_eq!(replies(&other.receive(usize::MAX)).0.len(), 1);
        answered += 1;
        got.extend(deep.receive(usize::MAX));
    }
    assert!(answered > 100, "{answered}");
    assert_eq!(replies(&got).0.len(), 1, "the NOOP's alone");
}

/// The first byte tells the protocol, and `-B` which there are.
#[test]
fn which_protocols_are_spoken_is_said_by_the_binding() {
    let spoken = |binding, resp| {
        let mut rig = Rig::new(&Plan { binding, resp, ..plan() });
        let mut say = |bytes: &[u8]| {
            let client = rig.net.connect();
            client.send(bytes);
            rig.turns(20);
            (client.receive(usize::MAX), client.ended())
        };
        let binary = say(&noop());
        (say(b"mn\r\n").0 == b"MN\r\n", replies_of(&binary), say(&words("PING")).0 == b"+PONG\r\n")
    };
    fn replies_of((bytes, closed): &(Vec<u8>, bool)) -> bool {
        let is_refused = bytes.starts_with(b"CLIENT_ERROR the binary protocol");
        assert!(!is_refused || *closed);
        !is_refused && replies(bytes).0.len() == 1
    }
    for (binding, resp, wanted) in [
        (Binding::Auto, true, (true, true, true)),
        (Binding::Auto, false, (true, true, false)),
        (Binding::Ascii, true, (true, false, true)),
        (Binding::Ascii, false, (true, false, false)),
        (Binding::Binary, true, (false, true, false)),
        (Binding::Binary, false, (false, true, false)),
    ] {
        assert_eq!(spoken(binding, resp), wanted, "{binding:?} {resp}");
    }
}

/// What one protocol stores the others read.
#[test]
fn the_protocols_share_their_items() {
    for plan in rig::plans() {
        let what = plan.what();
        let mut rig = Rig::new(&plan);
        let (binary, resp) = (rig.net.connect(), rig.net.connect());
        rig.say_binary(&binary, &set(b"k", b"one"));
        assert_eq!(rig.say_resp(&resp, "APPEND k two"), ":6\r\n", "{what}");
        assert_eq!(rig.say_binary(&binary, &get(b"k")).value, b"onetwo", "{what}");
        let text = rig.net.connect();
        let got = rig.send(&text, b"gets k\r\n");
        let got = rig.until(&text, got, |got| got.ends_with(b"END\r\n"));
        let id = rig.say_binary(&binary, &get(b"k")).cas;
        assert_eq!(String::from_utf8_lossy(&got), format!("VALUE k 0 6 {id}\r\nonetwo\r\nEND\r\n"));
    }
}
