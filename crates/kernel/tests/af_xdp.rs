//! Datagrams past the stack, between network namespaces of the test's own, over virtual Ethernet of
//! several queues: the contract of datagram queues, ordinary clients, and what goes up the stack.
#![cfg(feature = "kernel")]
#![forbid(unsafe_code)]

mod common;
#[path = "../../transport/tests/common/mod.rs"]
mod contract;

use common::hosts::{self, Host, INTERFACE, PEER};
use contract::{Peer, UdpPeer, check, take, until};
use laneway_kernel::redirect::{self, Hook, Redirect, RedirectCounts, RedirectSettings};
use laneway_transport::datagram::{Datagrams, Departure, Path};
use laneway_transport::socket::SocketTransport;
use laneway_transport::udp::{Ports, Sockets, UdpDatagrams};
use laneway_transport::xdp::handle::XdpDatagrams;
use laneway_transport::xdp::watch::Watch;
use laneway_transport::xdp::{Bypass, Interface, Part, SIZES};
use laneway_xdp::packet::{Link, Own, compose};
use laneway_xdp::queue::{Kick, Sender};
use laneway_xdp::socket::{self, Mode};
use std::io::IoSlice;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex};

const WORKERS: usize = 2;
const V4: [&str; 2] = ["10.9.0.1", "10.9.0.2"];
const V6: [&str; 2] = ["fd09::1", "fd09::2"];

fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

/// The server's side: everything but workers.
struct Server {
    sockets: Arc<Sockets>,
    bypass: Arc<Bypass>,
    handles: Vec<XdpDatagrams>,
    redirect: Redirect,
    link: Link,
}

impl Server {
    /// At `address`, with sockets for the first `sockets` RX queues known to the program.
    fn start(server: &Host, client: &Host, address: &str, ports: Ports, known: usize) -> Server {
        let sockets = server.run(|| Sockets::bind(&ports)).expect("the host has ports");
        let sockets = Arc::new(sockets);
        let queues: Vec<_> = sockets.queues().collect();
        let interface = server.run(|| redirect::look(INTERFACE)).expect("it is there");
        let theirs = client.run(|| redirect::look(PEER)).expect("it is there");
        let mut redirect = Redirect::load().expect("it loads");
        let mut parts = Vec::new();
        let index = interface.index;
        let open = |number| server.run(|| socket::open(index, number, SIZES, Mode::ZeroCopy));
        while let Some(queue) = open(parts.len() as u32).expect("sockets") {
            assert_eq!(queue.mode, Mode::Copy, "virtual Ethernet has no memory of its own");
            if parts.len() < known {
                let number = parts.len() as u32;
                redirect.set_socket(number, queue.socket.as_fd()).expect("a socket");
            }
            let socket::Queue { receiver, sender, socket, .. } = queue;
            parts.push(Part { receiver, sender, socket: Some(socket) });
        }
        let own = Own { address: ip(address), scope: interface.index };
        let port = |chosen| queues.iter().find(|q| q.chosen == chosen).map(|q| q.address.port());
        let led = RedirectSettings {
            interface: INTERFACE.into(),
            address: own.address,
            ordinary: port(false),
            base: port(true),
            workers: WORKERS,
        };
        let side = Interface { parts, own, mtu_bytes: interface.mtu_bytes };
        let opened = Bypass::new(vec![side], queues);
        let (bypass, senders) = opened.expect("a queue each");
        let hook = server.run(|| redirect.attach(&led, &interface)).expect("attached");
        assert_eq!(hook, Hook::Driver);
        let handle = |(worker, senders)| {
            let others = Box::new(UdpDatagrams::new(sockets.clone()));
            XdpDatagrams::new(bypass.clone(), worker, senders, others)
        };
        let handles = senders.into_iter().enumerate().map(handle).collect();
        let link = Link { peer: interface.ethernet, own: theirs.ethernet };
        Server { sockets, bypass, handles, redirect, link }
    }

    fn counts(&self) -> RedirectCounts {
        self.redirect.counts().expect("counters")
    }
}

fn chosen(address: &str) -> Ports {
    Ports {
        addresses: vec![ip(address)],
        workers: WORKERS,
        base: Some(0),
        ordinary: None,
        join: true,
    }
}

fn ordinary(address: &str) -> Ports {
    Ports {
        addresses: vec![ip(address)],
        workers: WORKERS,
        base: None,
        ordinary: Some(0),
        join: true,
    }
}

/// The client's ways out past the stack, one by each queue of its interface: what leaves by queue i
/// comes to the server's RX queue i.
struct Outs {
    senders: Mutex<Vec<Sender>>,
    link: Link,
}

impl Outs {
    fn open(client: &Host, link: Link) -> Arc<Outs> {
        let index = client.run(|| redirect::look(PEER)).expect("it is there").index;
        let open = |number| client.run(|| socket::open(index, number, SIZES, Mode::Copy));
        let mut senders = Vec::new();
        while let Some(queue) = open(senders.len() as u32).expect("sockets") {
            senders.push(queue.sender);
        }
        Arc::new(Outs { senders: Mutex::new(senders), link })
    }

    /// Send a packet as it is.
    fn send_packet(&self, queue: usize, packet: &[u8]) {
        let mut senders = self.senders.lock().expect("nobody panicked");
        let sender = &mut senders[queue];
        let mut frame = until(|| sender.frame(0));
        frame.bytes_mut()[..packet.len()].copy_from_slice(packet);
        assert!(sender.post(frame, packet.len()));
        sender.publish();
        until(|| (sender.outlet().kick() == Kick::Drained).then_some(()));
    }

    fn packet(&self, from: &SocketAddr, to: &SocketAddr, payload: &[u8]) -> Vec<u8> {
        let mut room = vec![0; 2048];
        let bytes = compose(&mut room, &self.link, from, to, [payload]).expect("it fits");
        room.truncate(bytes);
        room
    }
}

/// A client that sends by the queue of the worker it chooses, and hears by an ordinary socket.
struct LinkPeer {
    udp: UdpPeer,
    outs: Arc<Outs>,
    base: u16,
    server: Arc<Bypass>,
}

impl Peer for LinkPeer {
    fn address(&self) -> SocketAddr {
        self.udp.address()
    }

    fn send(&self, to: SocketAddr, bytes: &[u8]) {
        let packet = self.outs.packet(&self.address(), &to, bytes);
        let queue = usize::from(to.port() - self.base);
        // The kernel may leave what was sent to a thread of its own, which has no CPU.
        let waiting = || until(|| self.server.waiting(queue));
        let before = waiting();
        self.outs.send_packet(queue, &packet);
        until(|| (waiting() > before).then_some(()));
    }

    fn receive(&self) -> (SocketAddr, Vec<u8>) {
        self.udp.receive()
    }
}

fn check_contract([here, there]: [&str; 2]) {
    if !common::bypass_available() {
        return;
    }
    let (server, client) = hosts::connected_by(WORKERS);
    let mut side = Server::start(&server, &client, here, chosen(here), WORKERS);
    let outs = Outs::open(&client, side.link);
    let transport = SocketTransport::new(Arc::default()).expect("epoll works");
    let transport = transport.with_datagrams(side.sockets.clone());
    let transport = transport.with_bypass(Watch::new(side.bypass.clone(), 0));
    let handles: [XdpDatagrams; 2] =
        std::mem::take(&mut side.handles).try_into().ok().expect("two workers");
    let base = handles[0].queue(0).address.port();
    let connect = || {
        let udp = client.run(|| UdpPeer::new(ip(there)));
        LinkPeer { udp, outs: outs.clone(), base, server: side.bypass.clone() }
    };
    check(handles, transport, connect);
    let counted = side.bypass.counted();
    assert!(counted.received >= 200, "requests came past the stack: {counted:?}");
    assert!(counted.sent >= 300, "and replies left so: {counted:?}");
    assert!(counted.wrong.iter().all(|(_, count)| *count == 0), "{counted:?}");
    assert_eq!(side.counts().led, counted.received);
}

#[test]
fn af_xdp_keeps_the_contract() {
    check_contract(V4);
}

#[test]
fn af_xdp_over_ipv6_keeps_the_contract() {
    check_contract(V6);
}

fn check_ordinary([here, there]: [&str; 2]) {
    if !common::bypass_available() {
        return;
    }
    let (server, client) = hosts::connected_by(WORKERS);
    let mut side = Server::start(&server, &client, here, ordinary(here), WORKERS);
    let to = side.handles[0].queue(0).address;
    let peers: Vec<UdpPeer> = (0..20).map(|_| client.run(|| UdpPeer::new(ip(there)))).collect();
    let mut home = vec![None; peers.len()];
    for round in 0..3_u8 {
        for (number, peer) in peers.iter().enumerate() {
            peer.send(to, &[round, number as u8]);
            // Whichever worker's queue: that worker answers, and next time it is the same one.
            let worker = until(|| {
                (0..WORKERS).find(|worker| {
                    let got = take(&mut side.handles[*worker], *worker);
                    let expected = (peer.address(), vec![round, number as u8]);
                    assert!(got.iter().all(|one| *one == expected), "{got:?}");
                    !got.is_empty()
                })
            });
            assert_eq!(*home[number].get_or_insert(worker), worker);
            let pieces = [IoSlice::new(b"yes")];
            let reply = Departure { peer: peer.address(), segment_bytes: None, pieces: &pieces };
            let sent = side.handles[worker].send(worker, Path::Small, &[reply]).expect("sends");
            assert_eq!((sent.done, sent.refused), (1, 0));
            assert_eq!(peer.receive(), (to, b"yes".to_vec()));
        }
    }
    let counted = side.bypass.counted();
    assert_eq!((counted.received, counted.sent, counted.by_stack), (60, 60, 0), "{counted:?}");
}

#[test]
fn ordinary_clients_are_served_past_the_stack() {
    check_ordinary(V4);
    check_ordinary(V6);
}

#[test]
fn what_is_not_for_the_server_goes_up_the_stack_and_what_is_wrong_gets_no_further() {
    if !common::bypass_available() {
        return;
    }
    let (server, client) = hosts::connected_by(WORKERS);
    let mut side = Server::start(&server, &client, V4[0], chosen(V4[0]), WORKERS);
    let outs = Outs::open(&client, side.link);
    let peer = client.run(|| UdpPeer::new(ip(V4[1])));
    let [first, second] = [0, 1].map(|queue| side.handles[0].queue(queue).address);
    let all = |side: &mut Server, queue| {
        until(|| {
            let got = take(&mut side.handles[0], queue);
            (!got.is_empty()).then_some(got)
        })
    };

    // Another port: a socket of somebody else's hears it.
    let other = server.run(|| UdpPeer::new(ip(V4[0])));
    peer.send(other.address(), b"for another");
    assert_eq!(other.receive().1, b"for another");
    // A chosen port at another worker's RX queue: by the socket.
    outs.send_packet(0, &outs.packet(&peer.address(), &second, b"elsewhere"));
    assert_eq!(all(&mut side, 1), [(peer.address(), b"elsewhere".to_vec())]);
    // Fragments: put together by the stack, answered past it once the peer is known.
    let long = vec![7; 3000];
    peer.send(first, &long);
    assert_eq!(all(&mut side, 0), [(peer.address(), long)]);
    let passed = side.counts();
    assert!(passed.elsewhere == 1 && passed.unfit >= 2 && passed.other >= 1, "{passed:?}");
    let reply = [IoSlice::new(b"by the stack")];
    let reply = Departure { peer: peer.address(), segment_bytes: None, pieces: &reply };
    assert_eq!(side.handles[0].send(0, Path::Small, &[reply]).expect("sends").done, 1);
    assert_eq!(peer.receive(), (first, b"by the stack".to_vec()));
    assert_eq!(side.bypass.counted().by_stack, 1, "no request of it came past the stack");
    assert_eq!(side.bypass.counted().received, 0);

    // Wrong checksums, lengths, senders: thrown away and counted by cause; good ones go on.
    let good = outs.packet(&peer.address(), &first, b"good");
    let mut sum = good.clone();
    sum[41] ^= 1;
    let mut length = good.clone();
    length[39] -= 1;
    let loopback = "127.0.0.1:9".parse().expect("an address");
    let source = outs.packet(&loopback, &first, b"liar");
    for packet in [&sum, &length, &source, &good] {
        outs.send_packet(0, packet);
    }
    assert_eq!(all(&mut side, 0), [(peer.address(), b"good".to_vec())]);
    let wrong: Vec<_> = side.bypass.counted().wrong.into_iter().filter(|(_, n)| *n > 0).collect();
    assert_eq!(wrong, [("length", 1), ("checksum", 1), ("source", 1)]);
    let reply = [IoSlice::new(b"past it")];
    let reply = Departure { peer: peer.address(), segment_bytes: None, pieces: &reply };
    side.handles[0].send(0, Path::Small, &[reply]).expect("sends");
    assert_eq!(peer.receive(), (first, b"past it".to_vec()));
    assert_eq!(side.bypass.counted().sent, 1);
}

#[test]
fn without_a_socket_or_a_program_everything_comes_by_the_stack() {
    if !common::bypass_available() {
        return;
    }
    let (server, client) = hosts::connected_by(WORKERS);
    let mut side = Server::start(&server, &client, V4[0], ordinary(V4[0]), 1);
    let outs = Outs::open(&client, side.link);
    let peer = client.run(|| UdpPeer::new(ip(V4[1])));
    let to = side.handles[0].queue(0).address;
    let anywhere = |side: &mut Server| {
        until(|| (0..WORKERS).find_map(|queue| take(&mut side.handles[0], queue).pop()))
    };
    outs.send_packet(1, &outs.packet(&peer.address(), &to, b"no socket"));
    assert_eq!(anywhere(&mut side).1, b"no socket");
    assert_eq!(side.counts().socketless, 1);
    outs.send_packet(0, &outs.packet(&peer.address(), &to, b"a socket"));
    assert_eq!(anywhere(&mut side).1, b"a socket");
    assert_eq!((side.counts().led, side.bypass.counted().received), (1, 1));
    server.run(|| side.redirect.detach()).expect("detached");
    for queue in [0, 1] {
        outs.send_packet(queue, &outs.packet(&peer.address(), &to, b"no program"));
        assert_eq!(anywhere(&mut side).1, b"no program");
    }
    assert_eq!((side.counts().led, side.bypass.counted().received), (1, 1));
}

#[test]
fn the_program_leads_what_the_parser_takes_and_is_small() {
    if !common::bypass_available() {
        return;
    }
    let host = Host::new();
    let mut redirect = Redirect::load().expect("it loads");
    let steps = redirect.verified_instructions().expect("the kernel tells");
    assert!(steps < 400, "{steps} instructions verified");
    let ethernet = [2, 0, 0, 0, 0, 1];
    let interface = redirect::Interface { index: 1, ethernet, mtu_bytes: 1500 };
    // Trial runs come by the loopback's queue 0.
    let opened = host.run(|| socket::open(1, 0, SIZES, Mode::Copy));
    let queue = opened.expect("a socket").expect("a queue");
    redirect.set_socket(0, queue.socket.as_fd()).expect("set");
    let link = Link { peer: ethernet, own: [2, 0, 0, 0, 0, 2] };
    let mut draws = Draws(0x5eed);
    let (mut led, mut parsed) = (0, 0);
    for [here, there] in [V4, V6] {
        let own = Own { address: ip(here), scope: 1 };
        let settings = RedirectSettings {
            interface: "lo".into(),
            address: own.address,
            ordinary: Some(11211),
            base: Some(7000),
            workers: 2,
        };
        redirect.tell(&settings, &interface).expect("told");
        for round in 0..4000 {
            let port = [11211, 7000, 7001, 7002, 11212][round % 5];
            let mut room = vec![0; 2048];
            let (from, to) = (SocketAddr::new(ip(there), 4000), SocketAddr::new(ip(here), port));
            let bytes = compose(&mut room, &link, &from, &to, [&b"get key of some length\r\n"[..]]);
            room.truncate(bytes.expect("it fits"));
            for _ in 0..draws.below(3) {
                let at = draws.below(60);
                room[at] ^= 1 << draws.below(8);
            }
            if draws.below(10) == 0 {
                room.truncate(14 + draws.below(room.len() - 14));
            }
            let would = redirect.would_lead(&room).expect("a trial run");
            let ours = room.get(..6) == Some(&ethernet[..]);
            let told = laneway_xdp::packet::parse(&room, &own);
            let is_served = |port| matches!(port, 11211 | 7000); // RX queue 0 is worker 0's
            if ours && told.is_ok_and(|datagram| is_served(datagram.port)) {
                assert!(would, "taken by the parser, and not led: {room:02x?}");
                parsed += 1;
            }
            if would {
                use laneway_xdp::packet::Wrong::{Destination, Kind, Truncated};
                let never = matches!(told, Err(Kind | Destination | Truncated));
                assert!(ours && !never, "led, and nothing for the parser: {told:?} {room:02x?}");
                led += 1;
            }
        }
    }
    assert!(led > parsed && parsed > 500, "{led} led, {parsed} parsed");
}

/// Numbers that repeat.
struct Draws(u64);

impl Draws {
    fn below(&mut self, bound: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % bound
    }
}
