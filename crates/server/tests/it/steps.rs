//! Maintenance goes in bounded steps, one in a turn of a worker: no small request waits for a
//! sweep, or for memory that somebody else's value needs.

use laneway_policy::{Design, Form};
use laneway_rig::{Plan, Rig, value};
use laneway_store::Moment;

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
    fill(&rig, 20_000, 50, soon);
    rig.clock.advance(11_000_000_000);
    let mut turns = 0;
    while rig.shared.store.stats().items > 0 {
        let before = rig.shared.store.stats().items;
        rig.turn();
        let swept = before - rig.shared.store.stats().items;
        assert!(swept <= ITEMS_PER_TURN, "{swept} items in a turn");
        turns += 1;
        assert!(turns < 1_000_000, "they are never swept");
    }
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
