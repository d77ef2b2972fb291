//! Memory that holds a part of the items only: what it forgets is in the tier, and no command may
//! take it for absent, not even one that has its own item evicted for the memory it takes.

use crate::durable::{FORMS, check, machine, started};
use laneway_policy::Form;
use laneway_rig as rig;
use laneway_rig::durable::{Kept, Machine, SEGMENT_BYTES, settings};
use laneway_rig::{Plan, Rig, value};
use laneway_tier::disk::sim::Random;
use laneway_transport::memory::Client;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Relaxed;

/// At least.
const KEYS_MIN: u64 = 160;
const CHANGES: usize = 3000;
/// As little as a store can have; the items are three times as much.
const MEMORY_BYTES: u64 = 1 << 20;
/// A value of the tier's log, and two of its SSD.
const LENGTHS: [usize; 3] = [1500, 12_000, 30_000];

type Model = BTreeMap<u64, Vec<u8>>;

fn store(verb: &str, number: u64, value: &[u8], behind: &str) -> Vec<u8> {
    let head = format!("{verb} k{number} 0 0 {}{behind}\r\n", value.len());
    [head.as_bytes(), value, b"\r\n"].concat()
}

/// The CAS id of an item.
fn cas(rig: &mut Rig, client: &Client, number: u64) -> String {
    let told = rig.ask(client, format!("mg k{number} c\r\n").as_bytes(), b"\r\n");
    let told = String::from_utf8(told).expect("text");
    told.trim_end().strip_prefix("HD c").expect("it is there").into()
}

/// One change: the request, and what is answered.
fn change(
    rig: &mut Rig,
    client: &Client,
    model: &mut Model,
    random: &mut Random,
) -> (Vec<u8>, &'static str) {
    let number = random.below(model.len() as u64);
    let length = model[&number].len();
    let new = value(length, random.number());
    match random.below(10) {
        0 => (store("add", number, &new, ""), "NOT_STORED\r\n"),
        1 => (format!("ms k{number} 1 ME\r\nx\r\n").into_bytes(), "NS\r\n"),
        2 => (store("cas", number, &new, " 987654321"), "EXISTS\r\n"),
        3 => {
            let id = cas(rig, client, number);
            model.insert(number, new.clone());
            (store("cas", number, &new, &format!(" {id}")), "STORED\r\n")
        }
        4 => {
            // Its own length again, so that the items do not grow.
            model.insert(number, [&new[..length - 1], b"+"].concat());
            let told = rig.ask(client, &store("set", number, &new[..length - 1], ""), b"\r\n");
            assert_eq!(told, b"STORED\r\n");
            (store("append", number, b"+", ""), "STORED\r\n")
        }
        5 => {
            model.insert(number, [b"-", &new[..length - 1]].concat());
            let told = rig.ask(client, &store("set", number, &new[..length - 1], ""), b"\r\n");
            assert_eq!(told, b"STORED\r\n");
            (format!("ms k{number} 1 MP N0\r\n-\r\n").into_bytes(), "HD\r\n")
        }
        6 => (format!("touch k{number} 0\r\n").into_bytes(), "TOUCHED\r\n"),
        7 => {
            let told = rig.ask(client, format!("delete k{number}\r\n").as_bytes(), b"\r\n");
            assert_eq!(told, b"DELETED\r\n", "k{number}");
            model.insert(number, new.clone());
            (store("add", number, &new, ""), "STORED\r\n")
        }
        _ => {
            model.insert(number, new.clone());
            (store("replace", number, &new, ""), "STORED\r\n")
        }
    }
}

#[test]
fn an_item_that_its_own_change_evicts_is_changed_all_the_same() {
    for (length, form) in LENGTHS.into_iter().zip([Form::TimeShare, Form::Roles, Form::Roles]) {
        let machine = Machine::new(64 * SEGMENT_BYTES as usize, 24 << 20);
        let plan =
            Plan { memory_bytes: MEMORY_BYTES, item_bytes_max: 64 << 10, ..Plan::of(3, form) };
        let keys = (3 * MEMORY_BYTES / length as u64).max(KEYS_MIN);
        let kept = Kept::of(&machine.open(settings()).expect("the media are sound"));
        let mut rig = Rig::new(&Plan { kept: Some(kept), ..plan });
        let client = rig.net.connect();
        let mut model = Model::new();
        for number in 0..keys {
            model.insert(number, value(length, number));
            rig.set(&client, &format!("k{number}"), &model[&number]);
        }
        assert!(rig.shared.store.stats().evictions > 0, "memory holds all of it: {length}");
        let mut random = Random::new(length as u64);
        for count in 0..CHANGES {
            let (request, reply) = change(&mut rig, &client, &mut model, &mut random);
            let told = rig.ask(&client, &request, b"\r\n");
            let head = String::from_utf8_lossy(&request[..request.len().min(24)]).into_owned();
            assert_eq!(String::from_utf8_lossy(&told), reply, "{count}: {head:?} of {length}");
        }
        for (number, value) in &model {
            let told = rig.ask(&client, format!("get k{number}\r\n").as_bytes(), b"END\r\n");
            let wanted = [&rig::hit(&format!("k{number}"), value)[..], b"END\r\n"].concat();
            assert!(told == wanted, "k{number} of {length}: {}", rig::tail(&told));
        }
    }
}

#[test]
fn who_adds_where_there_is_an_item_has_nothing_read() {
    for form in FORMS {
        let machine = machine();
        let (mut rig, _kept) = started(&machine, form);
        let (client, resp) = (rig.net.connect(), rig.net.connect());
        rig.set(&client, "small", b"s");
        rig.set(&client, "large", &value(5000, 1));
        assert_eq!(rig.say_resp(&resp, "SET soon v PX 1500"), "+OK\r\n");
        assert!(rig.shared.store.flush_all(), "memory forgets them");
        let rows = [
            ("add small 0 0 1\r\nx\r\n", "NOT_STORED\r\n"),
            ("add large 0 0 1 noreply\r\nx\r\nadd large 0 0 1\r\nx\r\n", "NOT_STORED\r\n"),
            ("ms large 1 ME Oq k\r\nx\r\n", "NS Oq klarge\r\n"),
            ("add fresh 0 0 1\r\nx\r\n", "STORED\r\n"),
        ];
        check(&mut rig, &client, &rows);
        for (line, said) in [
            ("SET small x NX", "$-1\r\n"),
            ("SET soon x NX", "$-1\r\n"),
            ("SETNX large x", ":0\r\n"),
            ("SETNX other x", ":1\r\n"),
        ] {
            assert_eq!(rig.say_resp(&resp, line), said, "{line}");
        }
        let faults = rig.shared.durable.get().expect("it is kept").counts.faults.load(Relaxed);
        assert_eq!(faults, 0, "the index says that they are there");
        rig.clock.advance(1_600_000_000);
        assert_eq!(rig.say_resp(&resp, "SET soon x NX"), "+OK\r\n", "it is over");
        let rows = [
            ("get small\r\n", "VALUE small 0 1\r\ns\r\nEND\r\n"),
            // Its deletion is not durable yet, and it is gone all the same.
            ("delete large\r\nadd large 0 0 1\r\nx\r\n", "DELETED\r\nSTORED\r\n"),
            ("get large\r\n", "VALUE large 0 1\r\nx\r\nEND\r\n"),
        ];
        check(&mut rig, &client, &rows);
    }
}
