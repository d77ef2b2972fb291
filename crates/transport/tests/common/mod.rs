//! What every kind of datagram queues promises, as one check, and clients to check it with.
#![allow(dead_code)] // each test binary uses a part

use laneway_transport::datagram::{BURST, Datagrams, Departure, Path, Sent};
use laneway_transport::memory_datagram::MemoryClient;
use laneway_transport::{Ready, Transport, Wait};
use std::io::IoSlice;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::Duration;

/// Long enough that only a hang reaches it.
pub const HANG: Duration = Duration::from_secs(60);

/// A client.
pub trait Peer {
    fn address(&self) -> SocketAddr;
    fn send(&self, to: SocketAddr, bytes: &[u8]);
    fn receive(&self) -> (SocketAddr, Vec<u8>);
}

pub struct UdpPeer(pub UdpSocket);

impl UdpPeer {
    pub fn new(ip: IpAddr) -> UdpPeer {
        let socket = UdpSocket::bind((ip, 0)).expect("loopback has ports");
        socket.set_read_timeout(Some(HANG)).expect("it can wait");
        UdpPeer(socket)
    }
}

impl Peer for UdpPeer {
    fn address(&self) -> SocketAddr {
        self.0.local_addr().expect("it is bound")
    }
    fn send(&self, to: SocketAddr, bytes: &[u8]) {
        assert_eq!(self.0.send_to(bytes, to).expect("loopback takes it"), bytes.len());
    }
    fn receive(&self) -> (SocketAddr, Vec<u8>) {
        let mut room = vec![0; 1 << 16];
        let (bytes, from) = loop {
            match self.0.recv_from(&mut room) {
                // The process was halted and goes on.
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                other => break other.expect("a datagram comes"),
            }
        };
        room.truncate(bytes);
        (from, room)
    }
}

impl Peer for MemoryClient {
    fn address(&self) -> SocketAddr {
        MemoryClient::address(self)
    }
    fn send(&self, to: SocketAddr, bytes: &[u8]) {
        MemoryClient::send(self, to, bytes);
    }
    fn receive(&self) -> (SocketAddr, Vec<u8>) {
        MemoryClient::receive(self).expect("a datagram is there")
    }
}

/// Poll once, and take everything apart.
pub fn take(datagrams: &mut impl Datagrams, queue: usize) -> Vec<(SocketAddr, Vec<u8>)> {
    let count = datagrams.poll(queue, BURST).expect("polling works");
    let arrivals = (0..count).map(|index| datagrams.arrival(index));
    arrivals
        .flat_map(|arrival| arrival.datagrams().map(move |d| (arrival.peer, d.to_vec())))
        .collect()
}

/// Poll until `count` datagrams came: the kernel may have left what was sent to a thread of its
/// own, which has no CPU.
pub fn take_all(
    datagrams: &mut impl Datagrams,
    queue: usize,
    count: usize,
) -> Vec<(SocketAddr, Vec<u8>)> {
    let mut taken = Vec::new();
    until(|| {
        taken.extend(take(datagrams, queue));
        (taken.len() >= count).then_some(())
    });
    taken
}

/// A minute of system calls, about.
pub const ASKS_MAX: usize = 50_000_000;

/// Ask until there is an answer.
pub fn until<A>(mut ask: impl FnMut() -> Option<A>) -> A {
    for _ in 0..ASKS_MAX {
        if let Some(answer) = ask() {
            return answer;
        }
        std::thread::yield_now();
    }
    panic!("it never comes");
}

pub fn next<T: Transport>(transport: &mut T) -> Vec<Ready> {
    let mut ready = Vec::new();
    transport.poll(&mut ready, 32, Wait::AtMost(HANG)).expect("polling works");
    assert!(!ready.is_empty(), "nothing became ready");
    ready
}

pub fn nothing<T: Transport>(transport: &mut T) {
    let mut ready = Vec::new();
    transport.poll(&mut ready, 32, Wait::No).expect("polling works");
    assert_eq!(ready, []);
}

pub fn one_each<'a>(peer: SocketAddr, pieces: &'a [IoSlice<'a>]) -> Vec<Departure<'a>> {
    let alone =
        |piece| Departure { peer, segment_bytes: None, pieces: std::slice::from_ref(piece) };
    pieces.iter().map(alone).collect()
}

pub fn all(count: usize) -> Sent {
    Sent { done: count, ..Sent::default() }
}

/// Two workers with a queue each, in the hands of both; clients from `connect`.
pub fn check<D: Datagrams, T: Transport, P: Peer>(
    mut handles: [D; 2],
    mut transport: T,
    connect: impl Fn() -> P,
) {
    let [one, two] = &mut handles;
    assert_eq!(one.queues(), 2);
    let queues = [one.queue(0), one.queue(1)];
    assert_eq!((queues[0].worker, queues[1].worker), (0, 1));
    assert_eq!(queues[0].address.port() + 1, queues[1].address.port());
    assert!(queues[0].chosen && queues[1].chosen);
    let peer = connect();

    receives(one, two, &mut transport, &peer);
    replies(one, &peer);
    trains(one, two, &peer);
    room(&mut transport);
    let peers: Vec<P> = (0..100).map(|_| connect()).collect();
    siblings_never_receive(one, &peers);
}

pub fn receives(
    one: &mut impl Datagrams,
    two: &mut impl Datagrams,
    transport: &mut impl Transport,
    peer: &impl Peer,
) {
    let to = one.queue(0).address;
    transport.watch_datagrams(0, true).expect("queues can be watched");
    nothing(transport);
    assert_eq!(take(one, 0), []);
    peer.send(to, b"hello");
    peer.send(to, b"");
    peer.send(to, b"!");
    assert_eq!(next(transport), [Ready::Datagrams(0)]);
    let from = peer.address();
    // Another worker's handle does as well, and the other queue has nothing.
    assert_eq!(take(two, 1), []);
    let expected = [&b"hello"[..], b"", b"!"].map(|bytes| (from, bytes.to_vec()));
    assert_eq!(take_all(two, 0, expected.len()), expected);
    nothing(transport);

    // Who does not watch is not told; a burst is bounded, and what is left is ready again.
    transport.watch_datagrams(0, false).expect("queues can be left");
    until(|| {
        for number in 0..5 {
            peer.send(to, &vec![number; 10 + usize::from(number)]);
        }
        nothing(transport);
        let burst = one.poll(0, 2).expect("polling works");
        assert!(burst <= 2, "{burst}");
        if burst == 2 {
            assert_eq!(one.arrival(1).bytes, [1; 11]);
            return Some(());
        }
        take_all(one, 0, 5 - burst); // they came late: once more
        None
    });
    transport.watch_datagrams(0, true).expect("queues can be watched");
    assert_eq!(next(transport), [Ready::Datagrams(0)]);
    nothing(transport); // told once
    assert_eq!(one.poll(0, 1).expect("polling works"), 1);
    nothing(transport); // whatever is left
    peer.send(to, b"more");
    assert_eq!(next(transport), [Ready::Datagrams(0)]);
    assert_eq!(take_all(one, 0, 3).len(), 3);
    nothing(transport);
}

pub fn replies(one: &mut impl Datagrams, peer: &impl Peer) {
    for (queue, path) in [(0, Path::Small), (0, Path::Large), (1, Path::Small), (1, Path::Large)] {
        let pieces = [IoSlice::new(b"an "), IoSlice::new(b""), IoSlice::new(b"answer")];
        let departure = Departure { peer: peer.address(), segment_bytes: None, pieces: &pieces };
        assert_eq!(one.send(queue, path, &[departure]).expect("sends"), all(1));
        assert_eq!(peer.receive(), (one.queue(queue).address, b"an answer".to_vec()));
    }
    // More than a burst leaves by one call of ours, in order; the impossible is left out.
    let bytes: Vec<[u8; 2]> = (0..70).map(|number| [number, 7]).collect();
    let pieces: Vec<IoSlice<'_>> = bytes.iter().map(|bytes| IoSlice::new(bytes)).collect();
    let mut departures = one_each(peer.address(), &pieces);
    departures[40].peer.set_port(0);
    let sent = one.send(0, Path::Small, &departures).expect("sends");
    assert_eq!(sent, Sent { done: 70, refused: 1, datagrams_of_next: 0 });
    for number in (0..70).filter(|number| *number != 40) {
        assert_eq!(peer.receive().1, [number, 7]);
    }
    assert_eq!(one.send(0, Path::Small, &[]).expect("sends"), all(0));
}

pub fn trains(one: &mut impl Datagrams, two: &mut impl Datagrams, peer: &impl Peer) {
    let body: Vec<u8> = (0..=255).cycle().take(46 * 1400 - 1).collect();
    let pieces: Vec<IoSlice<'_>> = body.chunks(701).map(IoSlice::new).collect();
    let train = |peer| Departure { peer, segment_bytes: Some(1400), pieces: &pieces };
    let single = [IoSlice::new(b"between")];
    let departures = [
        train(peer.address()),
        Departure { peer: peer.address(), segment_bytes: None, pieces: &single },
        Departure { peer: peer.address(), segment_bytes: Some(1400), pieces: &single },
    ];
    assert_eq!(one.send(1, Path::Large, &departures).expect("sends"), all(3));
    let from = one.queue(1).address;
    for datagram in body.chunks(1400) {
        assert_eq!(peer.receive(), (from, datagram.to_vec()));
    }
    assert_eq!(peer.receive(), (from, b"between".to_vec()));
    assert_eq!(peer.receive(), (from, b"between".to_vec()));

    // More datagrams than any kernel cuts a train into leave all the same.
    let short = [IoSlice::new(&body[..1999])];
    let long = Departure { peer: peer.address(), segment_bytes: Some(10), pieces: &short };
    assert_eq!(one.send(1, Path::Small, &[long]).expect("sends"), all(1));
    for datagram in body[..1999].chunks(10) {
        assert_eq!(peer.receive(), (from, datagram.to_vec()));
    }

    // A train that comes in is told in few arrivals; after plain datagrams, too.
    let to = one.queue(0).address;
    for round in 0..3 {
        peer.send(to, b"plain");
        assert_eq!(take_all(two, 0, 1), [(peer.address(), b"plain".to_vec())]);
        assert_eq!(one.send(1, Path::Small, &[train(to)]).expect("sends"), all(1));
        let count = until(|| match two.poll(0, BURST).expect("polling works") {
            0 => None,
            count => Some(count),
        });
        assert_eq!(count, 1, "round {round}");
        let arrival = two.arrival(0);
        assert_eq!((arrival.peer, arrival.segment_bytes), (from, 1400));
        assert!(arrival.datagrams().eq(body.chunks(1400)));
    }
}

pub fn room(transport: &mut impl Transport) {
    for path in [Path::Small, Path::Large] {
        transport.watch_room(1, path, true).expect("room can be watched");
        assert_eq!(next(transport), [Ready::Room(1, path)]);
        transport.watch_room(1, path, false).expect("room can be left");
    }
    nothing(transport);
}

pub fn siblings_never_receive(one: &mut impl Datagrams, peers: &[impl Peer]) {
    for queue in [0, 1] {
        let to = one.queue(queue).address;
        let mut got = Vec::new();
        for (number, peer) in peers.iter().enumerate() {
            peer.send(to, &[number as u8]);
            got.extend(take(one, queue));
        }
        let late = peers.len() - got.len();
        got.extend(take_all(one, queue, late));
        let sent: Vec<(SocketAddr, Vec<u8>)> =
            (0u8..).zip(peers).map(|(number, peer)| (peer.address(), vec![number])).collect();
        assert_eq!(got, sent);
    }
}
