//! The GET lane on interfaces: a pair of hosts of the test's own, and loopback of a third.
#![cfg(feature = "kernel")]
#![forbid(unsafe_code)]
#![allow(clippy::disallowed_methods, reason = "the kernel keeps its own time")]

mod common;

use common::hosts::{self, Host, INTERFACE, PEER};
use common::writer::{PLAIN, Writer};
use laneway_kernel::layout::Settings;
use laneway_kernel::{Outcome, Program, ethtool, redirect};
use laneway_transport::datagram::{Datagrams, Departure, Path};
use laneway_transport::udp::{Ports, Sockets, UdpDatagrams};
use std::io::IoSlice;
use std::sync::Arc;

const OWN: [&str; 3] = ["10.9.0.1", "fd09::1", "127.0.0.1"];

fn writer_on(host: &Host, interface: &str) -> Writer {
    let mut writer = Writer::new(Program::TrafficControl, &OWN).expect("loaded");
    host.run(|| writer.lane.attach(interface)).expect("attached");
    writer
}

#[test]
fn hits_are_answered_though_no_process_listens() {
    if !common::available() {
        return;
    }
    let (server, client) = hosts::connected();
    let mut writer = writer_on(&server, INTERFACE);
    let long = "x".repeat(1400);
    writer.set(b"short", b"1", PLAIN);
    writer.set(b"long", long.as_bytes(), PLAIN);
    for (from, to) in [("10.9.0.2:0", "10.9.0.1:11211"), ("[fd09::2]:0", "[fd09::1]:11211")] {
        let socket = client.socket(from);
        let reply = hosts::ask(&socket, to, "get short\r\n");
        assert_eq!(reply, "VALUE short 0 1\r\n1\r\nEND\r\n");
        let reply = hosts::ask(&socket, to, "get long\r\n");
        assert_eq!(reply, format!("VALUE long 0 1400\r\n{long}\r\nEND\r\n"));
    }
    assert_eq!(writer.lane.counts().expect("counters").of(Outcome::Hit), 4);
}

#[test]
fn several_keys_are_answered_by_one_datagram_on_every_way() {
    if !common::available() {
        return;
    }
    let (server, client) = hosts::connected();
    let mut writer = writer_on(&server, INTERFACE);
    server.run(|| writer.lane.attach("lo")).expect("attached");
    // A request of 1 kB, and a reply of nearly the MTU.
    let keys: Vec<String> = (0..16).map(|i| format!("{i:02}{}", "k".repeat(58))).collect();
    let mut expected = String::new();
    for (i, key) in keys.iter().enumerate() {
        let value = "v".repeat(i);
        writer.set(key.as_bytes(), value.as_bytes(), PLAIN);
        expected.push_str(&format!("VALUE {key} 0 {i}\r\n{value}\r\n"));
    }
    let request = format!("get {}\r\n", keys.join(" "));
    for (host, from, to) in [
        (&client, "10.9.0.2:0", "10.9.0.1:11211"),
        (&client, "[fd09::2]:0", "[fd09::1]:11211"),
        (&server, "127.0.0.1:0", "127.0.0.1:11211"),
    ] {
        let socket = host.socket(from);
        for _ in 0..10 {
            assert_eq!(hosts::ask(&socket, to, &request), format!("{expected}END\r\n"), "{to}");
        }
    }
    let counts = writer.lane.counts().expect("counters");
    assert_eq!((counts.of(Outcome::Hit), counts.hits()), (30, 480));
}

#[test]
fn everything_else_reaches_the_server_unchanged_and_writes_are_read_at_once() {
    if !common::available() {
        return;
    }
    let (server, client) = hosts::connected();
    let mut writer = writer_on(&server, INTERFACE);
    let (listening, asking) = (server.socket("10.9.0.1:11211"), client.socket("10.9.0.2:0"));
    let passes = |request: &str| {
        asking.send_to(&hosts::datagram(request), "10.9.0.1:11211").expect("sent");
        let (heard, from) = hosts::heard(&listening);
        assert_eq!(heard, request);
        assert_eq!(from, asking.local_addr().expect("an address"));
    };
    passes("get key\r\n");
    passes("set key 0 0 1\r\nx\r\n");
    let mut linked = None;
    for round in 0..100 {
        let value = format!("value {round}");
        let at = writer.slot();
        let word = writer.record(at, b"key", value.as_bytes(), PLAIN);
        writer.link(b"key", linked.replace(word), word);
        let reply = hosts::ask(&asking, "10.9.0.1:11211", "get key\r\n");
        assert!(reply.contains(&format!("\r\n{value}\r\n")), "{reply} after {value}");
    }
    assert!(server.run(|| writer.lane.detach(INTERFACE)).expect("detached"));
    passes("get key\r\n");
}

#[test]
fn the_lane_serves_loopback_too_and_lets_go_when_it_is_dropped() {
    if !common::available() {
        return;
    }
    let host = Host::new();
    let mut writer = writer_on(&host, "lo");
    writer.set(b"key", b"value", PLAIN);
    let listening = host.socket("127.0.0.1:11211");
    let asking = host.socket("127.0.0.1:0");
    let reply = hosts::ask(&asking, "127.0.0.1:11211", "mg key v\r\n");
    assert_eq!(reply, "VA 5\r\nvalue\r\n");
    drop(writer);
    asking.send_to(&hosts::datagram("mg key v\r\n"), "127.0.0.1:11211").expect("sent");
    assert_eq!(hosts::heard(&listening).0, "mg key v\r\n");
}

/// The request's own packet goes on up as the reply.
#[test]
fn on_loopback_a_reply_is_not_sent_again() {
    if !common::available() {
        return;
    }
    let host = Host::new();
    host.ip("addr add 10.9.0.1/32 dev lo");
    host.ip("-6 addr add fd09::1/128 dev lo nodad");
    let mut writer = writer_on(&host, "lo");
    let long = "x".repeat(1300);
    writer.set(b"short", b"1", PLAIN);
    writer.set(b"long", long.as_bytes(), PLAIN);
    for address in ["127.0.0.1", "10.9.0.1", "[fd09::1]"] {
        let (asking, to) = (host.socket(&format!("{address}:0")), format!("{address}:11211"));
        let before = packets_of_loopback(&host);
        for (key, value) in [("short", "1"), ("long", long.as_str())] {
            let reply = hosts::ask(&asking, &to, &format!("mg {key} v\r\n"));
            assert_eq!(reply, format!("VA {}\r\n{value}\r\n", value.len()), "{address}");
        }
        assert_eq!(packets_of_loopback(&host) - before, 2, "{address}");
    }
    assert_eq!(writer.lane.counts().expect("counters").of(Outcome::Hit), 6);
}

/// How many packets this host's loopback has carried.
fn packets_of_loopback(host: &Host) -> u64 {
    let told = host.run(|| std::fs::read_to_string("/proc/thread-self/net/dev")).expect("procfs");
    let counts = told.lines().find_map(|line| line.trim_start().strip_prefix("lo:"));
    let packets = counts.and_then(|counts| counts.split_whitespace().nth(1));
    packets.expect("a loopback").parse().expect("a number")
}

/// At the driver's own hook. Virtual Ethernet sends from there only to a peer that has a program at
/// that hook, too: any will do, such as a lane that was never opened.
#[test]
fn the_drivers_hook_of_virtual_ethernet_answers_what_it_has_room_for() {
    if !common::available() {
        return;
    }
    let (server, client) = hosts::connected();
    let mut writer = Writer::new(Program::Xdp, &OWN).expect("loaded");
    let mut peer = Writer::new(Program::Xdp, &OWN).expect("loaded");
    peer.lane.control().close();
    client.run(|| peer.lane.attach("lane1")).expect("attached");
    server.run(|| writer.lane.attach(INTERFACE)).expect("attached");
    // The driver leaves little room behind a packet: the reply is shorter than the request.
    let interfaces = vec![server.run(|| redirect::look(INTERFACE)).expect("it is there")];
    writer.lane.control().open(&Settings { interfaces, ..writer.settings(&OWN) });
    let (key, value) = ("k".repeat(200), "x".repeat(100));
    writer.set(key.as_bytes(), value.as_bytes(), PLAIN);
    for (from, to) in [("10.9.0.2:0", "10.9.0.1:11211"), ("[fd09::2]:0", "[fd09::1]:11211")] {
        let (listening, socket) = (server.socket(to), client.socket(from));
        for _ in 0..10 {
            let reply = hosts::ask(&socket, to, &format!("mg {key} v\r\n"));
            assert_eq!(reply, format!("VA 100\r\n{value}\r\n"));
        }
        socket.send_to(&hosts::datagram("get other\r\n"), to).expect("sent");
        assert_eq!(hosts::heard(&listening).0, "get other\r\n");
    }
    assert_eq!(writer.lane.counts().expect("counters").of(Outcome::Hit), 20);
}

/// Datagrams of one flow and one length that come together are joined before tc sees them (GRO),
/// as soon as a socket there asks for it. Virtual Ethernet does as cards do when it is told to.
#[test]
fn datagrams_that_a_card_would_join_are_answered_one_by_one_unless_sockets_ask_for_it() {
    const TRAIN: usize = 8;
    const FLOWS: usize = 16;
    if !common::available() {
        return;
    }
    let (server, client) = hosts::connected();
    let mut writer = writer_on(&server, INTERFACE);
    writer.set(b"key", b"value", PLAIN);
    server.run(|| ethtool::set(INTERFACE, "rx-gro", true)).expect("virtual Ethernet can");
    // An interface that cuts trains by itself, TCP's too, hands them over whole and unjoined.
    for kind in ["udp", "tcp", "tcp6", "tcp-ecn", "tcp-mangleid", "tcp-accecn"] {
        let feature = format!("tx-{kind}-segmentation");
        if client.run(|| ethtool::is_on(PEER, &feature)).expect("the kernel tells") {
            let off = client.run(|| ethtool::set(PEER, &feature, false));
            off.expect("it can do without");
        }
    }
    let bind = |host: &hosts::Host, ip: [u8; 4], port, join| {
        let addresses = vec![ip.into()];
        let ports = Ports { addresses, workers: 1, base: None, ordinary: Some(port), join };
        let began = std::time::Instant::now();
        let sockets = loop {
            match host.run(|| Sockets::bind(&ports)) {
                Ok(sockets) => break sockets,
                // Until it is another program, a child that another test starts at this moment
                // holds what was closed here.
                Err(error) => assert!(began.elapsed() < hosts::PATIENCE, "{error:?}"),
            }
        };
        UdpDatagrams::new(Arc::new(sockets))
    };
    let request = hosts::datagram("get key\r\n");
    let train = request.repeat(TRAIN);
    let pieces = [IoSlice::new(&train)];
    let count = |outcome| writer.lane.counts().expect("counters").of(outcome);
    let peer = "10.9.0.1:11211".parse().expect("an address");
    // How many of a train of a new client were answered by the lane, when all were answered or
    // received.
    let answered = |listening: &mut UdpDatagrams| {
        let mut sending = bind(&client, [10, 9, 0, 2], 0, false);
        let before = count(Outcome::Hit);
        let segment_bytes = Some(request.len() as u16);
        let train = Departure { peer, segment_bytes, pieces: &pieces };
        assert_eq!(sending.send(0, Path::Small, &[train]).expect("sent").done, 1);
        let mut heard = 0;
        let began = std::time::Instant::now();
        while heard < TRAIN {
            for handle in [&mut *listening, &mut sending] {
                let arrivals = handle.poll(0, TRAIN).expect("it receives");
                let datagrams = |at| handle.arrival(at).datagrams().count();
                heard += (0..arrivals).map(datagrams).sum::<usize>();
            }
            assert!(began.elapsed() < hosts::PATIENCE, "{heard} of {TRAIN}");
        }
        count(Outcome::Hit) - before
    };
    // Whose flag counts the kernel chooses among the sockets of the port, by the flow's hash.
    let mut asking = bind(&server, [10, 9, 0, 1], 11211, true);
    let began = std::time::Instant::now();
    while answered(&mut asking) > 0 {
        assert!(began.elapsed() < hosts::PATIENCE, "nothing is joined here, so this shows nothing");
    }
    drop(asking);
    let mut listening = bind(&server, [10, 9, 0, 1], 11211, false);
    for client in 0..FLOWS {
        assert_eq!(answered(&mut listening), TRAIN as u64, "client {client}");
    }
}

/// Before the driver's hook nobody has looked for whom a packet is.
#[test]
fn at_the_drivers_hook_a_packet_for_another_ethernet_address_goes_up() {
    if !common::available() {
        return;
    }
    let (server, client) = hosts::connected();
    let mut writer = Writer::new(Program::Xdp, &OWN).expect("loaded");
    let interfaces = vec![server.run(|| redirect::look(INTERFACE)).expect("it is there")];
    writer.lane.control().open(&Settings { interfaces, ..writer.settings(&OWN) });
    server.run(|| writer.lane.attach(INTERFACE)).expect("attached");
    writer.set(b"key", b"value", PLAIN);
    client.ip("neigh replace 10.9.0.1 lladdr 02:00:00:00:00:99 dev lane1 nud permanent");
    let socket = client.socket("10.9.0.2:0");
    socket.send_to(&hosts::datagram("mg key v\r\n"), "10.9.0.1:11211").expect("sent");
    let count = |outcome| writer.lane.counts().expect("counters").of(outcome);
    let began = std::time::Instant::now();
    while count(Outcome::Frame) == 0 {
        assert_eq!(count(Outcome::Hit), 0, "another host's request was answered");
        assert!(began.elapsed() < hosts::PATIENCE, "it never came");
    }
}

#[test]
fn programs_of_others_on_the_same_hook_get_what_ours_passes() {
    if !common::available() {
        return;
    }
    let (server, client) = hosts::connected();
    let (mut first, mut second) = (writer_on(&server, INTERFACE), writer_on(&server, INTERFACE));
    first.set(b"first", b"1", PLAIN);
    second.set(b"second", b"2", PLAIN);
    let (listening, socket) = (server.socket("10.9.0.1:11211"), client.socket("10.9.0.2:0"));
    for (key, value) in [("first", "1"), ("second", "2")] {
        let reply = hosts::ask(&socket, "10.9.0.1:11211", &format!("get {key}\r\n"));
        assert_eq!(reply, format!("VALUE {key} 0 1\r\n{value}\r\nEND\r\n"));
    }
    socket.send_to(&hosts::datagram("get third\r\n"), "10.9.0.1:11211").expect("sent");
    assert_eq!(hosts::heard(&listening).0, "get third\r\n");
    let hits = |writer: &Writer| writer.lane.counts().expect("counters").of(Outcome::Hit);
    assert_eq!((hits(&first), hits(&second)), (1, 1));
}

#[test]
fn an_interface_that_is_not_there_is_named() {
    if !common::available() {
        return;
    }
    let mut writer = Writer::new(Program::TrafficControl, &OWN).expect("loaded");
    let told = writer.lane.attach("nowhere0").expect_err("no such interface").to_string();
    assert!(told.contains("nowhere0"), "{told}");
    assert!(!writer.lane.detach("nowhere0").expect("nothing to do"));
}
