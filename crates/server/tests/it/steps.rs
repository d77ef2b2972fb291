//! Maintenance goes in bounded steps, one in a turn of a worker: no small request waits for a
//! sweep, or for memory that somebody else's value needs. What is due comes before what is asked
//! behind it.

use laneway_policy::{Design, Form};
use laneway_rig::resp::{are_replies, words};
use laneway_rig::{Plan, Rig, value};
use laneway_server::clock::Clock;
use laneway_store::Moment;
use std::time::Duration;

/// Items that one turn may take out of the store: of a sweep, and of a draft.
const ITEMS_PER_TURN: u64 = 64;

fn fill(rig: &Rig, items: usize, value_bytes: usize, expires: Moment) {
    const NOW: Moment = Moment::from_seconds(1);
    let store = &rig.shared.store;
    for number in 0..items {
        let key = format!("key{number}");
        let hash = store.hash(key.as_bytes());
        let mut draft = store.draft(key.as_bytes(), 0, expires, value_bytes).expect("room");
        draft.write(&vec![b'v'; value_bytes]).expect("room");
        store.enter(hash, key.as_bytes(), NOW).publish(draft, None);
    }
}

#[test]
fn items_that_expire_together_are_swept_a_few_a_turn() {
    let mut rig = Rig::new(&Plan::of(2, Form::TimeShare));
    let soon = Moment::from_seconds(laneway_server::clock::ManualClock::UNIX_START + 10);
    fill(&rig, 100_000, 50, soon);
    rig.clock.advance(11_000_000_000);
    let began = rig.clock.nanos();
    let mut turns = 0;
    while rig.shared.store.stats().items > 0 {
        let before = rig.shared.store.stats().items;
        rig.turn();
        let swept = before - rig.shared.store.stats().items;
        assert!(swept <= ITEMS_PER_TURN, "{swept} items in a turn");
        turns += 1;
        assert!(turns < 1_000_000, "they are never swept");
    }
    let took = rig.clock.nanos() - began;
    assert!(took < 500_000_000, "{took} ns: more than 200 k end in a second");
}

#[test]
fn a_large_value_makes_room_among_small_items_a_few_a_turn() {
    for plan in [Plan::of(1, Form::TimeShare), Plan::of(2, Form::Roles)] {
        let mut rig = Rig::new(&Plan { memory_bytes: 16 << 20, ..plan });
        fill(&rig, 500_000, 10, Moment::NEVER);
        assert!(rig.shared.store.stats().evictions > 0, "it is full");
        let (client, other) = (rig.net.connect(), rig.net.connect());
        rig.turns(5);
        let value = value(1 << 20, 7);
        let head = format!("set large 0 0 {}\r\n", value.len()).into_bytes();
        let request = [&head[..], &value, b"\r\n"].concat();
        let (mut sent, mut got, mut answered) = (0, Vec::new(), 0);
        for _ in 0..200_000 {
            sent += client.send(&request[sent..]);
            other.send(b"mn\r\n");
            let before = rig.shared.store.stats().evictions;
            rig.turn();
            let evicted = rig.shared.store.stats().evictions - before;
            assert!(evicted <= ITEMS_PER_TURN * rig.workers.len() as u64, "{evicted} in a turn");
            answered += usize::from(other.receive(usize::MAX).starts_with(b"MN\r\n"));
            got.extend(client.receive(usize::MAX));
            if !got.is_empty() {
                break;
            }
        }
        assert_eq!(got, b"STORED\r\n");
        assert!(answered > 100, "{answered} small requests were served meanwhile");
        assert!(rig.ask(&client, b"get large\r\n", b"END\r\n").len() > value.len());
    }
}

/// Where an append is carried out at once, each of its pieces takes memory by whatever it takes:
/// one that stopped half way ended the server.
#[test]
fn an_append_to_a_large_value_at_once_finds_memory_among_small_items() {
    for plan in [Plan::design(Design::Minos, 2), Plan::design(Design::Sho, 2)] {
        let mut rig = Rig::new(&Plan { memory_bytes: 16 << 20, ..plan });
        let client = rig.net.connect();
        let value = value(2 << 20, 7);
        rig.set(&client, "large", &value);
        fill(&rig, 500_000, 10, Moment::NEVER);
        rig.set(&client, "large", &value);
        for _ in 0..4 {
            let told = rig.ask(&client, b"append large 0 0 1\r\nx\r\n", b"\r\n");
            assert!([&b"STORED\r\n"[..], b"NOT_STORED\r\n"].contains(&&told[..]));
        }
    }
}

/// A turn that begins 300 ms before this second since the rig's clock began; whoever has come is
/// read behind it. A worker that sleeps has such turns.
fn turn_over(rig: &mut Rig, second: u64) {
    const MS: u64 = 1_000_000;
    rig.clock.advance((second * 1000 - 900) * MS - rig.clock.nanos());
    rig.clock.run(600 * MS); // it is asked as the turn begins, and again for who has come
    rig.turn();
    rig.clock.run(0);
}

#[test]
fn what_comes_behind_the_second_of_a_flush_to_come_is_not_flushed_and_sees_nothing_older() {
    let mut rig = Rig::new(&Plan::of(1, Form::TimeShare));
    let client = rig.net.connect();
    rig.set(&client, "old", b"o");
    assert_eq!(rig.ask(&client, b"flush_all 10\r\n", b"\r\n"), b"OK\r\n");
    client.send(b"set new 0 0 1\r\nn\r\nget old new\r\n");
    turn_over(&mut rig, 10);
    let got = rig.until(&client, Vec::new(), |got| got.ends_with(b"END\r\n"));
    let value = "VALUE new 0 1\r\nn\r\nEND\r\n";
    assert_eq!(String::from_utf8_lossy(&got), format!("STORED\r\n{value}"));
    rig.turns(10);
    assert_eq!(rig.ask(&client, b"get new\r\n", b"END\r\n"), value.as_bytes());
}

/// Who looks at memory past the workers, as the lane in the kernel does, finds what is to be gone
/// until one of them is awake.
#[test]
fn an_idle_worker_sleeps_no_further_than_to_the_second_of_a_flush_to_come() {
    const MS: u64 = 1_000_000;
    let mut rig = Rig::new(&Plan::of(2, Form::TimeShare));
    let client = rig.net.connect();
    rig.set(&client, "old", b"o");
    assert_eq!(rig.ask(&client, b"flush_all 10\r\n", b"\r\n"), b"OK\r\n");
    rig.clock.advance(9_600 * MS - rig.clock.nanos());
    // The other worker has the control loop, and wakes once in an epoch for that.
    let asleep = (0..10_000).find_map(|_| {
        rig.turn();
        rig.workers[1].transport().inner().asleep()
    });
    let asleep = asleep.expect("nothing is asked");
    assert!(asleep <= Duration::from_millis(400), "{asleep:?}");
    let is_there = |rig: &Rig| {
        let (store, now) = (&rig.shared.store, rig.clock.moment(rig.clock.nanos()));
        store.peek(store.hash(b"old"), b"old", now).is_some()
    };
    assert!(is_there(&rig), "its second has not come");
    rig.clock.advance(asleep.as_nanos() as u64);
    rig.turn();
    assert!(!is_there(&rig));
}

/// By RESP the worker that has received a request executes it, whatever domain its keys are of.
#[test]
fn a_flush_to_come_comes_before_what_is_asked_of_another_domains_items_too() {
    let mut rig = Rig::new(&Plan { domains: 2, ..Plan::of(2, Form::TimeShare) });
    let (client, other) = (rig.net.connect(), rig.net.connect());
    assert_eq!(rig.say_resp(&client, "MSET a 1 b 1 c 1 d 1 e 1 f 1"), "+OK\r\n");
    assert_eq!(rig.ask(&other, b"flush_all 10\r\n", b"\r\n"), b"OK\r\n");
    let asked = [words("MGET a b c d e f"), words("MSET a 2 b 2 c 2 d 2 e 2 f 2")].concat();
    client.send(&asked);
    turn_over(&mut rig, 10);
    let got = rig.until(&client, Vec::new(), |got| are_replies(got, 2));
    let told = format!("*6\r\n{}+OK\r\n", "$-1\r\n".repeat(6));
    assert_eq!(String::from_utf8_lossy(&got), told);
    rig.turns(10);
    let told = format!("*6\r\n{}", "$1\r\n2\r\n".repeat(6));
    assert_eq!(rig.say_resp(&client, "MGET a b c d e f"), told);
}
