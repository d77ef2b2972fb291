//! `stats cachedump` and `stats conns` are as long as there are items and connections; they come in
//! steps, and small requests between.

use laneway_policy::Form;
use laneway_vopr::rig::{Plan, Rig};

const ITEMS: usize = 3000;

fn rig() -> Rig {
    let rig = Rig::new(&Plan { connections_max: 1000, ..Plan::of(1, Form::TimeShare) });
    for number in 0..ITEMS {
        let key = format!("key{number:04}");
        let store = &rig.shared.store;
        let mut draft = store.draft(key.as_bytes(), 0, 0, 4, 1).expect("there is room");
        draft.write(b"data").expect("there is room");
        store.enter(store.hash(key.as_bytes()), key.as_bytes(), 1).publish(draft, None);
    }
    rig
}

/// Number of the class that all items are in.
fn class(rig: &Rig) -> u32 {
    let classes = rig.shared.store.class_stats();
    classes.into_iter().find(|class| class.used == ITEMS as u64).expect("they are alike").class
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

#[test]
fn every_connection_is_told_in_steps() {
    let mut rig = rig();
    let clients: Vec<_> = (0..900).map(|_| rig.net.connect()).collect();
    rig.turns(100);
    let got = asked_in_steps(&mut rig, "stats conns\r\n", 120);
    let told = got.lines().filter(|line| line.contains(":addr ")).count();
    assert_eq!(told, clients.len() + 2);
}
