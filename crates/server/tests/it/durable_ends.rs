//! Ends of items that are kept: what expires, what is flushed, and what that leaves on the media.

use crate::durable::{FORMS, SSD_BYTES, check, machine, started, started_with};
use laneway_policy::Form;
use laneway_rig::durable::{Machine, settings};
use laneway_rig::{Plan, value};
use laneway_server::clock::Clock;
use laneway_tier::{ItemMeta, Settings};
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

/// Two hundred thousand a second, however many others there are, and wherever these lie.
#[test]
fn what_expires_all_at_once_is_dropped_as_fast_as_it_is_found() {
    const NANOS_EACH: u64 = 1_000_000_000 / 200_000;
    /// What is dropped fills few of them.
    const LONG_SEGMENT_BYTES: u32 = 256 << 10;
    // All of them; one of four; those before and behind many that stay.
    type Stays = fn(usize) -> bool;
    let layouts: [(usize, Stays); 3] = [
        (6000, |_| true),
        (8000, |number| number.is_multiple_of(4)),
        (22_000, |number| !(6000..16_000).contains(&number)),
    ];
    for (items, is_over) in layouts {
        let machine = Machine::new(8 << 20, SSD_BYTES);
        let settings = Settings { segment_bytes: LONG_SEGMENT_BYTES, ..settings() };
        let (mut rig, kept) = started_with(&machine, settings, Plan::of(2, Form::TimeShare));
        let client = rig.net.connect();
        rig.set(&client, "stays", b"x");
        let at = rig.clock.unix_seconds(rig.clock.nanos()) + 1000;
        for number in 0..items {
            let expires_at_seconds = if is_over(number) { at } else { 0 };
            let meta = ItemMeta { expires_at_seconds, ..ItemMeta::default() };
            let key = format!("k{number:05}");
            kept.tier.submit_put(key.as_bytes(), b"x", meta, None).expect("room");
            if number.is_multiple_of(100) || number + 1 == items {
                kept.tier.commit().expect("the media are sound");
            }
        }
        let left = || kept.tier.stats().items.items();
        let gone = (0..items).filter(|number| is_over(*number)).count() as u64;
        let stay = items as u64 + 1 - gone;
        assert_eq!(left(), stay + gone);
        rig.clock.advance(1000 * 1_000_000_000);
        let began = rig.clock.nanos();
        while stay < left() {
            rig.turns(10);
            let took_nanos = rig.clock.nanos() - began;
            let late = || format!("{} of {gone} are there after {took_nanos} ns", left() - stay);
            assert!(took_nanos < gone * NANOS_EACH, "{}", late());
        }
        check(&mut rig, &client, &[("get stays k00000\r\n", "VALUE stays 0 1\r\nx\r\nEND\r\n")]);
    }
}
