//! Many items at once out of a data folder into a memory that does not hold them all.

use laneway_rig as rig;

use laneway_policy::Form;
use laneway_server::clock::Clock;
use laneway_tier::disk::sim::Faults;
use laneway_transport::memory::{self, Client};
use rig::durable::{Kept, Machine, SEGMENT_BYTES, settings};
use rig::{Plan, Rig, hit, value};
use std::collections::BTreeSet;
use std::sync::atomic::Ordering::Relaxed;

const LOG_BYTES: usize = 16 * SEGMENT_BYTES as usize;
const SSD_BYTES: usize = 64 << 20;
const CLIENTS: u64 = 48;

/// Who gets an item that is in the folder alone: lengths of one stretch and more, and of one piece
/// and more.
const LENGTHS: [usize; 4] = [70_000, 300_000, (1 << 20) - 100, (1 << 20) + 200_000];

fn turn_until_all_have(rig: &mut Rig, clients: &[Client], wanted: &[Vec<u8>]) {
    let mut got: Vec<Vec<u8>> = vec![Vec::new(); clients.len()];
    for _ in 0..100_000 {
        rig.turn();
        for (got, client) in got.iter_mut().zip(clients) {
            got.extend(client.receive(usize::MAX));
        }
        if got.iter().zip(wanted).all(|(got, wanted)| wanted.len() <= got.len()) {
            break;
        }
    }
    for (number, (got, wanted)) in got.iter().zip(wanted).enumerate() {
        assert!(got == wanted, "client {number} of {}: {}", clients.len(), rig::tail(got));
    }
}

/// A server on a folder of [`CLIENTS`] items of this length, of which memory has none.
fn started(plan: &Plan, bytes: usize) -> (Rig, Kept) {
    started_on(&Machine::new(LOG_BYTES, SSD_BYTES), plan, CLIENTS, bytes)
}

fn started_on(machine: &Machine, plan: &Plan, items: u64, bytes: usize) -> (Rig, Kept) {
    let start = || {
        let kept = Kept::of(&machine.open(settings()).expect("the media are sound"));
        (Rig::new(&Plan { kept: Some(kept.clone()), ..plan.clone() }), kept)
    };
    let (mut rig, kept) = start();
    let client = rig.net.connect();
    for number in 0..items {
        rig.set(&client, &format!("k{number}"), &value(bytes, number));
    }
    drop((rig, kept));
    start()
}

fn whole(number: u64, bytes: usize) -> Vec<u8> {
    [&hit(&format!("k{number}"), &value(bytes, number))[..], b"END\r\n"].concat()
}

#[test]
fn the_executor_keeps_a_free_slot_until_it_has_nothing_to_do_or_sweeps() {
    let machine = Machine::new(LOG_BYTES, SSD_BYTES);
    let kept = Kept::of(&machine.open(settings()).expect("the media are sound"));
    let mut rig = Rig::new(&Plan { kept: Some(kept), ..Plan::of(1, Form::TimeShare) });
    let client = rig.net.connect();
    rig.set(&client, "k", b"value");
    rig.turns(20);
    let slots = rig.shared.store.slots_used();
    for (passed_nanos, held) in [(0, 1), (2_000_000_000, 0)] {
        let executor = rig.executor.take().expect("kept");
        client.send(&b"set k 0 0 5\r\nvalue\r\n".repeat(3));
        rig.turns(20);
        rig.clock.advance(passed_nanos);
        let now = rig.clock.nanos();
        executor.lock().step(now, rig.clock.moment(now));
        assert_eq!(rig.shared.store.slots_used(), slots + held, "behind {passed_nanos} ns");
        rig.executor = Some(executor);
        rig.turns(20);
        assert_eq!(rig.shared.store.slots_used(), slots);
        assert_eq!(client.receive(usize::MAX), b"STORED\r\n".repeat(3));
    }
}

#[test]
fn long_values_asked_for_at_once_come_in_one_after_the_other_and_none_is_refused() {
    for (memory_bytes, form) in [(16 << 20, Form::TimeShare), (32 << 20, Form::Roles)] {
        for bytes in LENGTHS {
            let plan = Plan { memory_bytes, item_bytes_max: 2 << 20, ..Plan::of(3, form) };
            let (mut rig, kept) = started(&plan, bytes);
            kept.gate.reads_wait.store(true, Relaxed);
            let clients: Vec<Client> = (0..CLIENTS).map(|_| rig.net.connect()).collect();
            for (number, client) in clients.iter().enumerate() {
                rig.send(client, format!("get k{number}\r\n").as_bytes());
            }
            rig.turns(10);
            kept.gate.reads_wait.store(false, Relaxed);
            let wanted: Vec<_> = (0..CLIENTS).map(|number| whole(number, bytes)).collect();
            turn_until_all_have(&mut rig, &clients, &wanted);
            let stats = rig.shared.store.stats();
            assert_eq!(stats.unpublished_bytes, 0, "nothing is left on its way");
        }
    }
}

#[test]
fn where_clients_take_no_replies_and_memory_is_theirs_others_wait_a_second_for_it() {
    const BYTES: usize = 1 << 20;
    let plan =
        Plan { memory_bytes: 16 << 20, item_bytes_max: 2 << 20, ..Plan::of(2, Form::TimeShare) };
    let (mut rig, _kept) = started(&plan, BYTES);
    let deaf: Vec<Client> = (0..32).map(|_| rig.net.connect()).collect();
    for (number, client) in deaf.iter().enumerate() {
        rig.send(client, format!("get k{number}\r\n").as_bytes());
    }
    rig.turns(2000);
    let client = rig.net.connect();
    rig.send(&client, b"get k40\r\n");
    rig.turns(2000);
    assert_eq!(client.receive(usize::MAX), b"", "there may be room any moment");
    // The executor's thread sleeps until then.
    let executor = |rig: &Rig| rig.executor.as_ref().unwrap().lock().again_nanos();
    let again = executor(&rig).expect("it waits for the time of its next try");
    assert!(again - rig.clock.nanos() <= 32_000_000);
    // What each try reads is read in vain: they become fewer.
    let mut tries = BTreeSet::new();
    for _ in 0..500 {
        rig.clock.advance(1_000_000);
        rig.turns(4);
        tries.extend(executor(&rig));
    }
    assert!((10..40).contains(&tries.len()), "{} tries in half a second", tries.len());
    rig.clock.advance(1_100_000_000);
    let told = rig.until(&client, Vec::new(), |got| got.ends_with(b"\r\n"));
    assert_eq!(told, b"SERVER_ERROR out of memory reading object\r\n");
    deaf.iter().for_each(Client::reset);
    rig.turns(2000);
    let got = rig.ask(&client, b"get k40\r\n", b"END\r\n");
    assert!(got == whole(40, BYTES), "{}", rig::tail(&got));
    assert_eq!(executor(&rig), None);
}

#[test]
fn who_finds_no_room_waits_a_second_however_long_others_before_it_waited_that_failed() {
    const BYTES: usize = 1 << 20;
    let plan =
        Plan { memory_bytes: 16 << 20, item_bytes_max: 2 << 20, ..Plan::of(2, Form::TimeShare) };
    let machine = Machine::new(LOG_BYTES, SSD_BYTES);
    let (mut rig, _kept) = started_on(&machine, &plan, CLIENTS, BYTES);
    let deaf: Vec<Client> = (0..32).map(|_| rig.net.connect()).collect();
    for (number, client) in deaf.iter().enumerate() {
        rig.send(client, format!("get k{number}\r\n").as_bytes());
    }
    rig.turns(2000);
    rig.clock.advance(900_000_000);
    rig.turns(2000);
    // There is room now, and nothing can be read.
    machine.ssd.set_faults(Faults { read_error_one_in: 1, ..Faults::default() });
    deaf.iter().for_each(Client::reset);
    rig.clock.advance(40_000_000);
    rig.turns(2000);
    assert!(rig.keeps_nothing(), "all of them have failed");
    machine.ssd.set_faults(Faults::default());
    let client = rig.net.connect();
    let mut deaf = Vec::new();
    for number in 100..140 {
        let (name, value) = (format!("k{number}"), value(BYTES, number));
        let line = format!("set {name} 0 0 {BYTES}\r\n");
        let reply = rig.ask(&client, &[line.as_bytes(), &value, b"\r\n"].concat(), b"\r\n");
        if reply != b"STORED\r\n" {
            break;
        }
        deaf.push(rig.net.connect());
        rig.send(deaf.last().unwrap(), format!("get {name}\r\n").as_bytes());
        rig.turns(50);
    }
    let client = rig.net.connect();
    rig.clock.advance(200_000_000);
    rig.send(&client, b"get k40\r\n");
    rig.turns(2000);
    assert!(client.receive(usize::MAX).is_empty(), "there may be room any moment");
    rig.clock.advance(1_100_000_000);
    let told = rig.until(&client, Vec::new(), |got| got.ends_with(b"\r\n"));
    assert_eq!(told, b"SERVER_ERROR out of memory reading object\r\n");
}

#[test]
fn who_waits_for_a_turn_counts_among_the_items_under_way() {
    const UNDER_WAY_MAX: u64 = 512;
    const ITEMS: u64 = 600;
    const BYTES: usize = 66_000;
    let plan = Plan { memory_bytes: 16 << 20, connections_max: 1000, ..Plan::of(2, Form::Roles) };
    let machine = Machine::new(LOG_BYTES, SSD_BYTES);
    let (mut rig, kept) = started_on(&machine, &plan, ITEMS, BYTES);
    kept.gate.reads_wait.store(true, Relaxed);
    let clients: Vec<Client> = (0..ITEMS).map(|_| rig.net.connect()).collect();
    for (number, client) in clients.iter().enumerate() {
        rig.send(client, format!("get k{number}\r\n").as_bytes());
    }
    rig.turns(200);
    let faults = rig.shared.durable.get().unwrap().counts.faults.load(Relaxed);
    assert_eq!(faults, UNDER_WAY_MAX, "the others wait as requests");
    kept.gate.reads_wait.store(false, Relaxed);
    let wanted: Vec<_> = (0..ITEMS).map(|number| whole(number, BYTES)).collect();
    turn_until_all_have(&mut rig, &clients, &wanted);
}

#[test]
fn who_asks_when_cold_items_end_does_not_prolong_the_wait_for_memory() {
    const BYTES: usize = 60_000; // as many as wait in the line of short ones
    let faults = memory::Faults { pipe_bytes: 4096, ..memory::Faults::NONE };
    let plan = Plan { memory_bytes: 2 << 20, faults, ..Plan::of(2, Form::TimeShare) };
    let (mut rig, _kept) = started_on(&Machine::new(LOG_BYTES, SSD_BYTES), &plan, CLIENTS, BYTES);
    let resp = rig.net.connect();
    for number in 0..400 {
        assert_eq!(rig.say_resp(&resp, &format!("SET ends{number} v PX 900500")), "+OK\r\n");
    }
    assert!(rig.shared.store.flush_all(), "memory forgets them");
    // Clients that take no replies hold all memory, but for the last of them, who waits for some.
    let executor = |rig: &Rig| rig.executor.as_ref().unwrap().lock().again_nanos();
    let mut deaf: Vec<Client> = Vec::new();
    for number in 0..CLIENTS {
        let client = rig.net.connect();
        rig.send(&client, format!("get k{number}\r\n").as_bytes());
        deaf.push(client);
        rig.turns(50);
        if executor(&rig).is_some() {
            break;
        }
    }
    assert!(executor(&rig).is_some(), "memory is short");
    let read = |rig: &Rig| rig.shared.durable.get().unwrap().counts.released.load(Relaxed);
    let before = read(&rig);
    for number in 0..240 {
        rig.clock.advance(5_000_000);
        let left = rig.say_resp(&resp, &format!("PTTL ends{number}"));
        assert!(left.starts_with(":900") || left.starts_with(":899"), "{left}");
    }
    assert!(240 <= read(&rig) - before, "each end was read from the folder");
    let told = deaf.pop().expect("one waits").receive(usize::MAX);
    assert_eq!(told, b"SERVER_ERROR out of memory reading object\r\n");
}
