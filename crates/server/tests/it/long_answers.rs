//! `stats cachedump` and `stats conns` are as long as there are items and connections; they come in
//! steps, and small requests between.

use laneway_policy::Form;
use laneway_rig::resp::request;
use laneway_rig::{Plan, Rig, binary};
use laneway_server::stats::Question;
use laneway_server::stream::connection::ConnectionKind;
use laneway_store::Moment;

const NOW: Moment = Moment::from_seconds(1);
const ITEMS: usize = 3000;

fn rig() -> Rig {
    let rig = Rig::new(&Plan { connections_max: 1000, ..Plan::of(1, Form::TimeShare) });
    for number in 0..ITEMS {
        let key = format!("key{number:04}");
        let store = &rig.shared.store;
        let mut draft = store.draft(key.as_bytes(), 0, Moment::NEVER, 4).expect("there is room");
        draft.write(b"data").expect("there is room");
        store.enter(store.hash(key.as_bytes()), key.as_bytes(), NOW).publish(draft, None);
    }
    rig
}

/// Number of the class that all items of [`rig`] are in.
fn class(rig: &Rig) -> u32 {
    let classes = rig.shared.store.class_stats();
    classes.into_iter().find(|class| class.used >= ITEMS as u64).expect("they are alike").class
}

/// The answer to `request`, in which no step was longer than a few `line`s, and in whose midst
/// another client was answered.
fn asked_in_steps(rig: &mut Rig, request: &str, line_bytes_max: usize) -> String {
    let (client, other) = (rig.net.connect(), rig.net.connect());
    rig.turns(2);
    client.send(request.as_bytes());
    let (mut got, mut between) = (Vec::new(), 0);
    for _ in 0..100_000 {
        let before = got.len();
        rig.turn();
        got.extend(client.receive(usize::MAX));
        let step = got.len() - before;
        assert!(step <= 64 * line_bytes_max + 5, "{step} bytes in a turn");
        if got.ends_with(b"END\r\n") {
            assert!(between > 5, "{between} small requests were served meanwhile");
            assert_eq!(rig.ask(&client, b"mn\r\n", b"\r\n"), b"MN\r\n", "the next one is served");
            return String::from_utf8(got).expect("ASCII");
        }
        if !got.is_empty() {
            other.send(b"mn\r\n");
            rig.turn();
            got.extend(client.receive(usize::MAX));
            between += usize::from(other.receive(usize::MAX) == b"MN\r\n");
        }
    }
    panic!("no end after {} bytes", got.len());
}

#[test]
fn cachedump_without_a_limit_tells_every_item_and_holds_nobody_up() {
    let mut rig = rig();
    let request = format!("stats cachedump {} 0\r\n", class(&rig));
    let got = asked_in_steps(&mut rig, &request, 40);
    let mut lines: Vec<&str> = got.lines().collect();
    assert_eq!(lines.pop(), Some("END"));
    lines.sort_unstable();
    let wanted = (0..ITEMS).map(|number| format!("ITEM key{number:04} [4 b; 0 s]"));
    assert!(lines.into_iter().eq(wanted), "each item once");
}

#[test]
fn cachedump_tells_no_more_items_than_it_is_asked_for() {
    let mut rig = rig();
    let client = rig.net.connect();
    let class = class(&rig);
    for limit in [1, 63, 64, 65, 1000] {
        let request = format!("stats cachedump {class} {limit}\r\n");
        let got = rig.ask(&client, request.as_bytes(), b"END\r\n");
        assert_eq!(got.split(|&byte| byte == b'\n').count(), limit + 2, "{limit}");
    }
    let request = format!("stats cachedump {} 0\r\n", class + 1);
    assert_eq!(rig.ask(&client, request.as_bytes(), b"END\r\n"), b"END\r\n", "an empty class");
}

/// Clients read lines until one is `END`: what such a key has in it is no line of the answer.
#[test]
fn cachedump_leaves_out_keys_that_a_line_of_text_cannot_have() {
    let mut rig = rig();
    let (client, other) = (rig.net.connect(), rig.net.connect());
    for key in [&b"a\nEND\r\n"[..], b"a b c d", b"\0\0\0\0\0\0\0"] {
        let stored = rig.ask_resp(&other, &request(&[b"SET", key, b"data"]), 1);
        assert_eq!(stored, b"+OK\r\n");
    }
    let classes = rig.shared.store.class_stats();
    assert!(classes.iter().any(|class| class.used >= ITEMS as u64 + 3), "all are of one class");
    let class = class(&rig);
    for (limit, told) in [(0, ITEMS), (ITEMS, ITEMS), (ITEMS - 1, ITEMS - 1)] {
        let line = format!("stats cachedump {class} {limit}\r\nmn\r\n");
        let got = rig.ask(&client, line.as_bytes(), b"MN\r\n");
        let got = String::from_utf8(got).expect("ASCII");
        let items = got.lines().filter(|line| line.starts_with("ITEM key")).count();
        assert!(items == told && got.ends_with("s]\r\nEND\r\nMN\r\n"), "{limit}: {items}");
        assert_eq!(got.lines().count(), told + 2, "{limit}");
    }
}

#[test]
fn metadump_tells_every_item_and_holds_nobody_up() {
    let mut rig = rig();
    let got = asked_in_steps(&mut rig, "lru_crawler metadump all\r\n", 120);
    let mut lines: Vec<&str> = got.lines().collect();
    assert_eq!((lines.remove(0), lines.pop()), ("OK", Some("END")));
    lines.sort_unstable();
    let class = class(&rig);
    for (number, line) in lines.iter().enumerate() {
        assert!(line.starts_with(&format!("key=key{number:04} exp=-1 la=")), "{line}");
        assert!(line.contains(&format!(" fetch=no cls={class} ")), "{line}");
    }
    assert_eq!(lines.len(), ITEMS, "each item once");
}

#[test]
fn mgdump_tells_how_each_item_is_asked_for() {
    let mut rig = rig();
    let client = rig.net.connect();
    rig.ask(&client, b"ms AAAA 5 b\r\nvalue\r\n", b"\r\n");
    let got = rig.ask(&client, b"lru_crawler mgdump hash\r\n", b"EN\r\n");
    let got = String::from_utf8(got).expect("ASCII");
    let mut lines: Vec<&str> = got.lines().collect();
    assert_eq!((lines.remove(0), lines.pop()), ("OK", Some("EN")));
    lines.sort_unstable();
    assert_eq!((lines.remove(0), lines.len()), ("mg AAAA b", ITEMS));
    assert_eq!(rig.ask(&client, b"mg AAAA b v\r\n", b"e\r\n"), b"VA 5\r\nvalue\r\n");
    // A key whose text is longer than a key is told, and refused: memcached does both.
    let other = rig.net.connect();
    for (key, front, told) in [
        (&[1; 186][..], "mg AQEB", &b"VA 1\r\nx\r\n"[..]),
        (&[2; 187], "mg AgIC", b"CLIENT_ERROR bad command line format\r\n"),
    ] {
        rig.say_binary(&other, &binary::set(key, b"x"));
        let got = rig.ask(&client, b"lru_crawler mgdump all\r\n", b"EN\r\n");
        let got = String::from_utf8(got).expect("ASCII");
        let line = got.lines().find(|line| line.starts_with(front)).expect("it is told");
        let got = rig.ask(&client, format!("{line} v\r\nmn\r\n").as_bytes(), b"MN\r\n");
        assert_eq!(got, [told, &b"MN\r\n"[..]].concat(), "{} bytes", key.len());
    }
    // Classes without items, and what is none.
    let none = class(&rig) + 20;
    let ask = |rig: &mut Rig, line: &str| {
        let got = rig.ask(&client, format!("{line}\r\nmn\r\n").as_bytes(), b"MN\r\n");
        String::from_utf8(got).expect("ASCII")
    };
    for (line, told) in [
        (format!("lru_crawler metadump {none}"), "OK\r\nEND\r\nMN\r\n"),
        (format!("lru_crawler mgdump {none}"), "OK\r\nEN\r\nMN\r\n"),
        ("lru_crawler metadump 64".into(), "BADCLASS invalid class id\r\nMN\r\n"),
        ("lru_crawler mgdump x".into(), "BADCLASS invalid class id\r\nMN\r\n"),
        ("lru_crawler metadump".into(), "ERROR\r\nMN\r\n"),
    ] {
        assert_eq!(ask(&mut rig, &line), told, "{line}");
    }
}

#[test]
fn where_keys_may_not_be_told_dumps_are_refused_as_memcached_refuses_them() {
    let mut rig = Rig::new(&Plan { dump: false, ..Plan::of(1, Form::TimeShare) });
    let client = rig.net.connect();
    rig.set(&client, "secret", b"value");
    for (form, told) in
        [("metadump", "ERROR metadump not allowed\r\n"), ("mgdump", "ERROR mgdump not allowed\r\n")]
    {
        for classes in ["all", "x"] {
            let line = format!("lru_crawler {form} {classes}\r\n");
            assert_eq!(rig.ask(&client, line.as_bytes(), b"\r\n"), told.as_bytes(), "{line}");
        }
    }
}

#[test]
fn every_connection_is_told_in_steps() {
    let mut rig = rig();
    let clients: Vec<_> = (0..900).map(|_| rig.net.connect()).collect();
    rig.turns(100);
    let got = asked_in_steps(&mut rig, "stats conns\r\n", 120);
    let told = got.lines().filter(|line| line.contains(":addr ")).count();
    assert_eq!(told, clients.len() + 2);
}

#[test]
fn an_answer_in_one_message_has_as_many_steps_as_a_turn_may_take() {
    let rig = rig();
    let class = class(&rig);
    let answer = |limit| {
        let bytes = rig.shared.answer(&Question::Cachedump { class, limit }, NOW, 0);
        String::from_utf8(bytes).expect("ASCII")
    };
    for limit in [1, 64, 65, 150] {
        let told = answer(limit);
        assert_eq!(told.matches("ITEM ").count(), limit as usize);
        assert!(told.ends_with("\r\nEND\r\n"), "{limit}");
    }
    let refused = "SERVER_ERROR too long for one message, ask over a stream\r\n";
    assert_eq!(answer(1000), refused);
}

#[test]
fn conns_tells_sockets_first_and_what_a_connection_does() {
    let mut rig = Rig::new(&Plan::of(1, Form::TimeShare));
    let connections = &rig.shared.connections;
    connections.add_place(ConnectionKind::Listener, "tcp:127.0.0.1:11211".to_owned(), 1);
    connections.add_place(ConnectionKind::Datagrams, "udp:127.0.0.1:11211".to_owned(), 1);
    let (idle, storing) = (rig.net.connect(), rig.net.connect());
    rig.turns(3);
    storing.send(b"set k 0 0 500000\r\nabc");
    rig.turns(3);
    let got = rig.ask(&idle, b"stats conns\r\n", b"END\r\n");
    let got = String::from_utf8(got).expect("ASCII");
    let has = |line: &str| got.lines().any(|one| one == line);
    for line in [
        "STAT 1:addr tcp:127.0.0.1:11211",
        "STAT 1:state conn_listening",
        "STAT 2:UDP UDP",
        "STAT 2:addr udp:127.0.0.1:11211",
        "STAT 2:state conn_read",
        "STAT 3:state conn_parse_cmd",
        "STAT 4:state conn_nread",
    ] {
        assert!(has(line), "{line} is not in\n{got}");
    }
    assert_eq!(got.matches(":addr ").count(), 4);
}

#[test]
fn every_item_is_in_a_class_that_tools_can_ask_for() {
    let mut rig = Rig::new(&Plan::of(1, Form::TimeShare));
    let client = rig.net.connect();
    let mut items = 0;
    for length in (0..16_000).step_by(37) {
        rig.set(&client, &format!("key{length}"), &vec![b'x'; length]);
        items += 1;
    }
    rig.set(&client, "in-pieces", &vec![b'x'; 100_000]);
    items += 1;
    let slabs = rig.ask(&client, b"stats slabs\r\n", b"END\r\n");
    let slabs = String::from_utf8(slabs).expect("ASCII");
    assert_eq!(slabs.matches("STAT 63:chunk_size ").count(), 1);
    let mut told = 0;
    for class in 1..64 {
        assert!(slabs.matches(&format!("STAT {class}:used_chunks ")).count() < 2);
        let request = format!("stats cachedump {class} 0\r\n");
        let got = rig.ask(&client, request.as_bytes(), b"END\r\n");
        told += got.windows(5).filter(|five| five == b"ITEM ").count();
    }
    assert!(told == items && !slabs.contains("STAT 64:"), "{told} of {items}\n{slabs}");
}
