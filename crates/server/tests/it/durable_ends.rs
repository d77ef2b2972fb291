//! Ends of items that are kept: what expires, what is flushed, and what that leaves on the media.

use crate::durable::{FORMS, SSD_BYTES, check, machine, started};
use laneway_policy::Form;
use laneway_rig::durable::{Machine, SEGMENT_BYTES};
use laneway_rig::value;
use laneway_server::clock::Clock;
use laneway_tier::ItemMeta;
use laneway_transport::memory::Client;

#[test]
fn a_flush_that_is_to_come_comes_after_a_restart_too() {
    let machine = machine();
    let (mut rig, kept) = started(&machine, FORMS[1]);
    let client = rig.net.connect();
    rig.set(&client, "small", b"s");
    rig.set(&client, "large", &value(5000, 1));
    check(
        &mut rig,
        &client,
        &[("flush_all 10\r\n", "OK\r\n"), ("get small\r\n", "VALUE small 0 1\r\ns\r\nEND\r\n")],
    );
    drop((rig, kept));
    let (mut rig, kept) = started(&machine, FORMS[1]);
    let client = rig.net.connect();
    check(&mut rig, &client, &[("get small\r\n", "VALUE small 0 1\r\ns\r\nEND\r\n")]);
    rig.clock.advance(11_000_000_000);
    rig.turns(10);
    check(
        &mut rig,
        &client,
        &[("get small large\r\n", "END\r\n"), ("set new 0 0 1\r\nn\r\n", "STORED\r\n")],
    );
    drop((rig, kept));
    let (mut rig, kept) = started(&machine, FORMS[1]);
    let client = rig.net.connect();
    check(&mut rig, &client, &[("get small large new\r\n", "VALUE new 0 1\r\nn\r\nEND\r\n")]);
    rig.clock.advance(11_000_000_000);
    rig.turns(10);
    check(
        &mut rig,
        &client,
        &[
            ("get new\r\n", "VALUE new 0 1\r\nn\r\nEND\r\n"),
            ("flush_all\r\n", "OK\r\n"),
            ("get new\r\n", "END\r\n"),
        ],
    );
    drop((rig, kept));
    let (mut rig, _kept) = started(&machine, FORMS[1]);
    let client = rig.net.connect();
    check(&mut rig, &client, &[("get new\r\n", "END\r\n")]);
}

#[test]
fn what_has_expired_leaves_the_media() {
    let machine = machine();
    let (mut rig, kept) = started(&machine, FORMS[0]);
    let client = rig.net.connect();
    for number in 0..50 {
        let request = format!("set k{number} 0 {} 3000\r\n", if number % 2 == 0 { 10 } else { 0 });
        let request = [request.as_bytes(), &value(3000, number), b"\r\n"].concat();
        assert_eq!(rig.ask(&client, &request, b"\r\n"), b"STORED\r\n");
    }
    rig.clock.advance(20_000_000_000);
    rig.turns(20);
    assert_eq!(kept.tier.stats().items.items(), 25);
    drop((rig, kept));
    let (_rig, kept) = started(&machine, FORMS[0]);
    assert_eq!(kept.tier.stats().items.items(), 25);
}

/// Several connections are ready at once while other workers are idle, so that these may take some
/// of the requests; but what changes an item is the executor's.
#[test]
fn a_new_expiry_is_kept_also_where_a_burst_of_requests_is_shared_out() {
    const CLIENTS: usize = 16;
    for form in [(4, Form::TimeShare), (6, Form::Roles)] {
        let machine = machine();
        let (mut rig, kept) = started(&machine, form);
        let clients: Vec<Client> = (0..CLIENTS).map(|_| rig.net.connect()).collect();
        for (number, client) in clients.iter().enumerate() {
            rig.set(client, &format!("k{number}"), b"v");
        }
        for (number, client) in clients.iter().enumerate() {
            client.send(format!("gat 100 k{number}\r\n").as_bytes());
        }
        for client in &clients {
            rig.until(client, Vec::new(), |got| got.ends_with(b"END\r\n"));
        }
        drop((rig, kept));
        let (mut rig, _kept) = started(&machine, form);
        let client = rig.net.connect();
        for number in 0..CLIENTS {
            check(&mut rig, &client, &[(&format!("mg k{number} t\r\n"), "HD t100\r\n")]);
        }
    }
}

#[test]
fn what_expires_all_at_once_is_dropped_as_fast_as_it_is_found() {
    const ITEMS: usize = 6000;
    let machine = Machine::new(64 * SEGMENT_BYTES as usize, SSD_BYTES);
    let (mut rig, kept) = started(&machine, FORMS[1]);
    let client = rig.net.connect();
    rig.set(&client, "stays", b"x");
    let at = rig.clock.unix_seconds(rig.clock.nanos()) + 1000;
    for number in 0..ITEMS {
        let meta = ItemMeta { expires_at_seconds: at, ..ItemMeta::default() };
        kept.tier.put(format!("gone{number}").as_bytes(), b"x", meta).expect("room");
    }
    assert_eq!(kept.tier.stats().items.items(), ITEMS as u64 + 1);
    rig.clock.advance(1000 * 1_000_000_000);
    let began = rig.clock.nanos();
    while kept.tier.stats().items.items() > 1 {
        rig.turns(100);
        let took_ms = (rig.clock.nanos() - began) / 1_000_000;
        assert!(took_ms < 150, "{} items are left", kept.tier.stats().items.items());
    }
    check(&mut rig, &client, &[("get stays gone7\r\n", "VALUE stays 0 1\r\nx\r\nEND\r\n")]);
}
