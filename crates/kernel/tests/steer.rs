//! Keys steered to the sockets of their owners, on the loopback of a host of the test's own.
#![cfg(feature = "kernel")]
#![forbid(unsafe_code)]
#![allow(clippy::disallowed_methods, reason = "the kernel keeps its own time")]

mod common;

use common::hosts::{self, Host, PATIENCE};
use laneway_kernel::Steer;
use laneway_kernel::layout::{Lead, STEER_SLOTS, slot_of};
use laneway_policy::owner::{OwnerHash, SEED, hash};
use socket2::{Domain, Socket, Type};
use std::net::{SocketAddr, UdpSocket};
use std::time::Instant;

const QUEUES: u16 = 4;
const ADDRESS: &str = "127.0.0.1:11211";
/// Enough that one of them goes elsewhere than the others.
const SENDERS: u64 = 64;

/// Sockets that share a port, and the program that chooses among them.
struct Group {
    host: Host,
    sockets: Vec<UdpSocket>,
    asking: UdpSocket,
    steer: Steer,
}

impl Group {
    fn new() -> Option<Group> {
        if !common::available() {
            return None;
        }
        let host = Host::new();
        let sockets: Vec<UdpSocket> = (0..QUEUES).map(|_| host.run(sharing)).collect();
        let mut steer = Steer::load(SEED).expect("loaded");
        for (index, socket) in sockets.iter().enumerate() {
            steer.set_socket(index as u32, socket).expect("an index of the array");
        }
        for slot in 0..STEER_SLOTS {
            let middle = OwnerHash((slot as u64) << 52 | 1 << 51);
            steer.set_slot(slot, Lead::Socket(u32::from(middle.queue(QUEUES).0)));
        }
        steer.attach(&sockets[0]).expect("attached");
        let asking = host.socket("127.0.0.1:0");
        Some(Group { host, sockets, asking, steer })
    }

    fn send(&self, text: &str) {
        self.asking.send_to(&hosts::datagram(text), ADDRESS).expect("sent");
    }

    /// On loopback a datagram is usually at its socket when `send` returns; not where the kernel
    /// left it to its own thread.
    fn receiver(&self, text: &str) -> usize {
        let mut bytes = [0; 2048];
        let began = Instant::now();
        let at = loop {
            let mut got = self.sockets.iter().map(|socket| socket.recv(&mut bytes).is_ok());
            if let Some(at) = got.position(|got| got) {
                break at;
            }
            assert!(began.elapsed() < PATIENCE, "nobody got {text:?}");
            std::thread::yield_now();
        };
        assert_eq!(&bytes[8..8 + text.len()], text.as_bytes());
        at
    }
}

fn sharing() -> UdpSocket {
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, None).expect("a socket");
    socket.set_reuse_port(true).expect("an option");
    socket.bind(&ADDRESS.parse::<SocketAddr>().expect("an address").into()).expect("bound");
    socket.set_nonblocking(true).expect("an option");
    socket.into()
}

#[test]
fn every_request_reaches_the_owner_of_its_key() {
    let Some(group) = Group::new() else { return };
    for length in 1..=250 {
        let key = format!("{length}-").repeat(250)[..length].to_string();
        let owner = usize::from(hash(SEED, key.as_bytes()).queue(QUEUES).0);
        let requests = [
            format!("get {key}\r\n"),
            format!("set {key} 0 0 1\r\nx\r\n"),
            format!("mg {key} v\r\n"),
            format!("gat 100 {key}\r\n"),
            format!("delete  {key}\r\n"),
            format!("touch {key}"),
        ];
        for text in requests {
            group.send(&text);
            assert_eq!(group.receiver(&text), owner, "{text:?}");
        }
    }
    let counts = group.steer.counts().expect("counters");
    assert_eq!((counts.steered, counts.unsteered, counts.socketless), (1500, 0, 0));
}

#[test]
fn a_key_ends_where_its_datagram_or_its_word_ends_whatever_came_before() {
    let Some(group) = Group::new() else { return };
    let before = format!("get {}\r\n", "z".repeat(250));
    for key in ["b", "seven77", "eight888", "nine99999", "sixteen16sixteen"] {
        let owner = usize::from(hash(SEED, key.as_bytes()).queue(QUEUES).0);
        for text in [
            format!("get {key}"),
            format!("get {key}\n"),
            format!("get {key} other\r\n"),
            format!(" get {key}\r\n"),
            format!("get  {key}\r\n"),
            format!("gets {key}\r\n"),
            format!("prepend {key} 0 0 1\r\nx\r\n"),
            format!("longer-than-that {key}\r\n"),
        ] {
            group.send(&before);
            group.receiver(&before);
            group.send(&text);
            assert_eq!(group.receiver(&text), owner, "{text:?}");
        }
    }
    // A tab is no space: with it the word before it goes on, and so does the key.
    for (text, key) in [("get\tb c\r\n", "c"), ("get b\tc d\r\n", "b\tc")] {
        let owner = usize::from(hash(SEED, key.as_bytes()).queue(QUEUES).0);
        group.send(text);
        assert_eq!(group.receiver(text), owner, "{text:?}");
    }
    assert_eq!(group.steer.counts().expect("counters").unsteered, 0);
}

#[test]
fn a_slot_rewritten_moves_its_keys_and_a_socket_closed_loses_none() {
    let Some(mut group) = Group::new() else { return };
    let slot = slot_of(hash(SEED, b"key").0);
    for socket in [3, 0, 2, 1] {
        group.steer.set_slot(slot, Lead::Socket(socket));
        group.send("get key\r\n");
        assert_eq!(group.receiver("get key\r\n"), socket as usize);
    }
    group.sockets.remove(1);
    group.send("get key\r\n");
    group.receiver("get key\r\n");
    assert_eq!(group.steer.counts().expect("counters").socketless, 1);
}

#[test]
fn a_slot_that_leads_to_anyone_is_spread_by_its_senders() {
    let Some(group) = Group::new() else { return };
    group.steer.set_receivers(2);
    group.steer.set_slot(slot_of(hash(SEED, b"key").0), Lead::Anyone);
    let mut seen = [0; QUEUES as usize];
    for _ in 0..SENDERS {
        let asking = group.host.socket("127.0.0.1:0");
        let ask = || {
            asking.send_to(&hosts::datagram("get key\r\n"), ADDRESS).expect("sent");
            group.receiver("get key\r\n")
        };
        let receiver = ask();
        assert_eq!(ask(), receiver, "a sender's datagrams stay together");
        seen[receiver] += 1;
    }
    // Of sixty-four coins one is heads and one is tails.
    assert!(seen[0] > 0 && seen[1] > 0, "{seen:?}");
    assert_eq!(seen[2..], [0, 0], "these do not receive");
    assert_eq!(group.steer.counts().expect("counters").steered, 2 * SENDERS);
}

#[test]
fn what_has_no_key_is_left_to_the_kernel() {
    let Some(group) = Group::new() else { return };
    let long = format!("get {}\r\n", "k".repeat(251));
    let rows = ["version\r\n", "stats\r\n", "\r\n", "get \r\n", "", "gat 100\r\n", &long];
    for text in rows {
        group.send(text);
        group.receiver(text);
    }
    assert_eq!(group.steer.counts().expect("counters").unsteered, rows.len() as u64);
}

#[test]
fn hot_keys_are_reported_once_a_timeslot() {
    let Some(group) = Group::new() else { return };
    group.steer.set_hot_requests(16);
    let ask = |key: &str, times: usize| {
        for _ in 0..times {
            group.send(&format!("get {key}\r\n"));
            group.receiver(&format!("get {key}\r\n"));
        }
    };
    let hot = hash(SEED, b"hot").0;
    ask("hot", 40);
    (0..100).for_each(|i| ask(&format!("cold{i}"), 1));
    ask("warm", 15);
    assert_eq!(group.steer.end_timeslot(), [hot]);
    ask("warm", 15);
    assert!(group.steer.end_timeslot().is_empty(), "counts of the last timeslot are forgotten");
    ask("hot", 16);
    assert_eq!(group.steer.end_timeslot(), [hot]);
    let instructions = group.steer.verified_instructions().expect("this kernel tells");
    assert!(instructions < 10_000, "{instructions}");
    assert_eq!(group.host.run(|| 1), 1);
}
