//! The way past the stack with the kernel's side in software: which way requests and replies take,
//! whose they are, and what happens when frames run out. The same over a kernel is a test of the
//! crate with the program that leads packets there.

mod common;

use common::take;
use laneway_transport::datagram::{Datagrams, Departure, Path, Queue, Sent};
use laneway_transport::memory_datagram::{DatagramFaults, DatagramNet, MemoryClient};
use laneway_transport::xdp::handle::XdpDatagrams;
use laneway_transport::xdp::{Bypass, Interface, Part, TooFew};
use laneway_xdp::packet::{Link, Own, compose, parse};
use laneway_xdp::queue::Sizes;
use laneway_xdp::twin::{self, Twin};
use std::io::IoSlice;
use std::net::SocketAddr;

const SIZES: Sizes = Sizes { receive: 32, send: 16 };
const LINK: Link = Link { peer: [2, 0, 0, 0, 0, 2], own: [2, 0, 0, 0, 0, 1] };

/// Two workers before a network in memory, and so many RX queues of each interface.
struct World {
    net: DatagramNet,
    handles: Vec<XdpDatagrams>,
    twins: Vec<Twin>,
    bypass: std::sync::Arc<Bypass>,
}

fn parts(count: usize) -> (Vec<Part>, Vec<Twin>) {
    let queues = (0..count).map(|_| twin::queue(SIZES).expect("memory"));
    queues.map(|(receiver, sender, twin)| (Part { receiver, sender, socket: None }, twin)).unzip()
}

fn world(places: usize) -> World {
    world_of(&[places])
}

fn world_of(interfaces: &[usize]) -> World {
    let net = DatagramNet::new(DatagramFaults::NONE, 2);
    let queues: Vec<Queue> = (0..2).map(|queue| net.datagrams().queue(queue)).collect();
    let own = Own { address: queues[0].address.ip(), scope: 1 };
    let mut twins = Vec::new();
    let interface = |places: &usize| {
        let (parts, ends) = parts(*places);
        twins.extend(ends);
        Interface { parts, own, mtu_bytes: 1500 }
    };
    let interfaces = interfaces.iter().map(interface).collect();
    let (bypass, senders) = Bypass::new(interfaces, queues).expect("a queue each");
    let handles = senders.into_iter().enumerate().map(|(worker, senders)| {
        XdpDatagrams::new(bypass.clone(), worker, senders, Box::new(net.datagrams()))
    });
    World { handles: handles.collect(), net, twins, bypass }
}

impl World {
    fn queue(&self, queue: usize) -> SocketAddr {
        self.handles[0].queue(queue).address
    }

    /// A packet from a peer comes to an RX queue.
    fn deliver(&mut self, place: usize, from: &str, to: SocketAddr, payload: &[u8]) {
        let mut room = [0; 2048];
        let there = Link { peer: LINK.own, own: LINK.peer };
        let bytes = compose(&mut room, &there, &address(from), &to, [payload]).expect("it fits");
        assert!(self.twins[place].deliver(&room[..bytes]), "there are frames");
    }

    /// Every datagram that leaves by an RX queue: whom to, from which port, what it says.
    fn leaving(&mut self, place: usize) -> Vec<(String, u16, Vec<u8>)> {
        let mut all = Vec::new();
        while let Some(packet) = self.twins[place].transmit() {
            let to = std::net::Ipv4Addr::from_octets(packet[30..34].try_into().expect("four"));
            let datagram = parse(&packet, &Own { address: to.into(), scope: 1 }).expect("good");
            assert_eq!(datagram.link, Link { peer: LINK.own, own: LINK.peer });
            let peer = format!("{to}:{}", datagram.port);
            all.push((peer, datagram.from.port(), datagram.payload.to_vec()));
        }
        all
    }
}

fn address(text: &str) -> SocketAddr {
    text.parse().expect("an address")
}

fn one<'a>(peer: SocketAddr, pieces: &'a [IoSlice<'a>]) -> [Departure<'a>; 1] {
    [Departure { peer, segment_bytes: None, pieces }]
}

fn done(count: usize) -> Sent {
    Sent { done: count, ..Sent::default() }
}

#[test]
fn a_reply_leaves_the_way_its_peer_is_known_to_come() {
    let mut world = world(2);
    let (peer, to) = ("10.0.0.9:4000", world.queue(0));
    world.deliver(0, peer, to, b"past the stack");
    assert_eq!(take(&mut world.handles[0], 0), [(address(peer), b"past the stack".to_vec())]);
    let pieces = [IoSlice::new(b"an"), IoSlice::new(b""), IoSlice::new(b"swer")];
    // By the other worker, too, out of its own RX queue; and from the queue that was asked.
    for worker in 0..2 {
        let sent = world.handles[worker].send(0, Path::Small, &one(address(peer), &pieces));
        assert_eq!(sent.expect("sends"), done(1));
        let expected = (peer.to_owned(), to.port(), b"answer".to_vec());
        assert_eq!(world.leaving(worker), [expected]);
    }
    // Who came by the stack is answered by it; and so is what fits no packet.
    let client: MemoryClient = world.net.client();
    client.send(to, b"by the stack");
    assert_eq!(take(&mut world.handles[0], 0), [(client.address(), b"by the stack".to_vec())]);
    let mixed = [one(address(peer), &pieces), one(client.address(), &pieces)].concat();
    assert_eq!(world.handles[0].send(0, Path::Small, &mixed).expect("sends"), done(2));
    assert_eq!((world.leaving(0).len(), client.receive().is_some()), (1, true));
    let long = [IoSlice::new(&[7; 1473])];
    assert_eq!(
        world.handles[0].send(0, Path::Large, &one(address(peer), &long)).expect("sends"),
        done(1)
    );
    assert_eq!((world.leaving(0).len(), world.net.fates().unreachable), (0, 1));
    assert_eq!((world.bypass.counted().sent, world.bypass.counted().by_stack), (3, 2));
}

#[test]
fn a_reply_leaves_by_the_interface_that_its_peer_was_last_heard_at() {
    let mut world = world_of(&[3, 2]);
    let (peer, to) = ("10.0.0.9:4000", world.queue(1));
    let pieces = [IoSlice::new(b"answer")];
    let reply = (peer.to_owned(), to.port(), b"answer".to_vec());
    // The second RX queue of each interface is the second worker's; the third of the first one is
    // the first worker's again. Replies leave by the first of the sender's.
    for (place, leaves_at) in [(1, 1), (4, 4), (1, 1)] {
        world.deliver(place, peer, to, b"get");
        assert_eq!(take(&mut world.handles[1], 1), [(address(peer), b"get".to_vec())]);
        let sent = world.handles[1].send(1, Path::Small, &one(address(peer), &pieces));
        assert_eq!(sent.expect("sends"), done(1));
        let left: Vec<_> = (0..5).map(|place| world.leaving(place)).collect();
        for (at, packets) in left.iter().enumerate() {
            let expected = if at == leaves_at { vec![reply.clone()] } else { vec![] };
            assert_eq!(*packets, expected, "came to {place}, at {at}");
        }
    }
    let first = world.queue(0);
    for place in [2, 3] {
        world.deliver(place, peer, first, b"get");
        assert_eq!(take(&mut world.handles[0], 0), [(address(peer), b"get".to_vec())], "{place}");
    }
    // The other worker learns of the move, too.
    let sent = world.handles[1].send(1, Path::Small, &one(address(peer), &pieces));
    assert_eq!(sent.expect("sends"), done(1));
    assert_eq!(world.leaving(4), [reply]);
}

/// Frames of one interface that are all under way are waited for there, and not at the other.
#[test]
fn each_interface_has_frames_of_its_own() {
    let mut world = world_of(&[2, 2]);
    let to = world.queue(0);
    let peers = ["10.0.0.8:4000", "10.0.0.9:4000"];
    for (peer, place) in peers.into_iter().zip([0, 2]) {
        world.deliver(place, peer, to, b"get");
        take(&mut world.handles[0], 0);
    }
    let small = [IoSlice::new(b"small")];
    let sends = |world: &mut World, peer: &str| {
        world.handles[0].send(0, Path::Small, &one(address(peer), &small)).expect("sends")
    };
    for _ in 0..SIZES.send {
        assert_eq!(sends(&mut world, peers[0]), done(1));
    }
    assert_eq!(sends(&mut world, peers[0]), done(0), "none is left");
    // What is handed over together leaves in its order, whichever interface is next.
    let both = peers.map(|peer| one(address(peer), &small)).concat();
    assert_eq!(world.handles[0].send(0, Path::Small, &both).expect("sends"), done(0));
    assert_eq!(sends(&mut world, peers[1]), done(1), "there are some here");
    assert_eq!((world.leaving(0).len(), world.leaving(2).len()), (SIZES.send as usize, 1));
}

#[test]
fn datagrams_of_one_peer_that_came_together_are_told_together() {
    let mut world = world(2);
    let to = world.queue(1);
    for payload in [&b"aaaa"[..], b"bbbb", b"cc", b"", b"dddd"] {
        world.deliver(1, "10.0.0.9:1", to, payload);
    }
    world.deliver(1, "10.0.0.9:2", to, b"eeee");
    let handle = &mut world.handles[0];
    assert_eq!(handle.poll(1, 3).expect("polls"), 3);
    let told: Vec<_> = (0..3).map(|index| handle.arrival(index)).collect();
    assert_eq!((told[0].segment_bytes, told[0].bytes), (4, &b"aaaabbbbcc"[..]));
    assert_eq!((told[1].bytes, told[2].bytes), (&b""[..], &b"dddd"[..]));
    assert_eq!(take(handle, 1), [(address("10.0.0.9:2"), b"eeee".to_vec())]);
    assert_eq!(take(handle, 1), []);
}

#[test]
fn each_rx_queue_is_its_workers_whatever_port_a_datagram_is_for() {
    let mut world = world(4);
    let [first, second] = [world.queue(0), world.queue(1)];
    world.deliver(2, "10.0.0.9:1", first, b"at the third");
    world.deliver(3, "10.0.0.9:1", second, b"at the fourth");
    // For a port of the other worker's: nobody polls for it here, so it is thrown away.
    world.deliver(0, "10.0.0.9:1", second, b"astray");
    world.deliver(0, "10.0.0.9:1", first, b"at the first");
    let texts =
        |got: Vec<(SocketAddr, Vec<u8>)>| got.into_iter().map(|one| one.1).collect::<Vec<_>>();
    let mut got = texts(take(&mut world.handles[1], 0));
    got.sort_unstable(); // two RX queues have no order between them
    assert_eq!(got, [&b"at the first"[..], b"at the third"]);
    assert_eq!(texts(take(&mut world.handles[1], 1)), [b"at the fourth".to_vec()]);
    let wrong = world.bypass.counted().wrong;
    assert_eq!(wrong.into_iter().filter(|(_, n)| *n > 0).collect::<Vec<_>>(), [("destination", 1)]);
}

#[test]
fn trains_leave_frames_to_small_replies_and_say_how_far_they_came() {
    let mut world = world(2);
    let (peer, to) = ("10.0.0.9:4000", world.queue(0));
    world.deliver(0, peer, to, b"x");
    take(&mut world.handles[0], 0);
    let body: Vec<u8> = (0..100 * 20).map(|at| at as u8).collect();
    let pieces: Vec<IoSlice<'_>> = body.chunks(77).map(IoSlice::new).collect();
    let train = [Departure { peer: address(peer), segment_bytes: Some(100), pieces: &pieces }];
    let sent = world.handles[0].send(0, Path::Large, &train).expect("sends");
    assert_eq!(sent, Sent { datagrams_of_next: 8, ..Sent::default() }, "half of the frames");
    let small = [IoSlice::new(b"small")];
    for _ in 0..8 {
        let sent = world.handles[0].send(0, Path::Small, &one(address(peer), &small));
        assert_eq!(sent.expect("sends"), done(1));
    }
    let sent = world.handles[0].send(0, Path::Small, &one(address(peer), &small)).expect("sends");
    assert_eq!(sent, done(0), "none is left");
    assert_eq!(world.bypass.counted().full, 2);
    let mut left = world.leaving(0);
    world.twins[0].complete(usize::MAX);
    // The rest of the train, as its sender cuts it now.
    let rest = [IoSlice::new(&body[8 * 100..])];
    let rest = [Departure { peer: address(peer), segment_bytes: Some(100), pieces: &rest }];
    let sent = world.handles[0].send(0, Path::Large, &rest).expect("sends");
    assert_eq!(sent.datagrams_of_next, 8);
    left.retain(|(_, _, payload)| payload.len() == 100);
    left.extend(world.leaving(0));
    assert!(left.iter().flat_map(|one| &one.2).eq(&body[..16 * 100]), "in order, nothing twice");
}

#[test]
fn fewer_rx_queues_than_workers_are_refused() {
    let net = DatagramNet::new(DatagramFaults::NONE, 2);
    let queues: Vec<Queue> = (0..2).map(|queue| net.datagrams().queue(queue)).collect();
    let own = Own { address: queues[0].address.ip(), scope: 1 };
    let interface = |places| Interface { parts: parts(places).0, own, mtu_bytes: 1500 };
    let few = Bypass::new(vec![interface(2), interface(1)], queues).err();
    assert_eq!(few, Some(TooFew { interface: 1, queues: 1, workers: 2 }));
}
