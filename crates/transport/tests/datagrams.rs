//! What every kind of datagram queues promises, checked for each: UDP sockets of both families,
//! memory.

use laneway_transport::datagram::{BURST, Datagrams, Departure, Path, Sent};
use laneway_transport::memory::{Faults, MemoryTransport, Net};
use laneway_transport::memory_datagram::{DatagramFaults, DatagramNet, Fates, MemoryClient};
use laneway_transport::socket::SocketTransport;
use laneway_transport::udp::{Ports, Sockets, UdpDatagrams};
use laneway_transport::{Ready, Transport, Wait};
use std::io::{ErrorKind, IoSlice};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

/// Long enough that only a hang reaches it.
const HANG: Duration = Duration::from_secs(60);

/// A client.
trait Peer {
    fn address(&self) -> SocketAddr;
    fn send(&self, to: SocketAddr, bytes: &[u8]);
    fn receive(&self) -> (SocketAddr, Vec<u8>);
}

struct UdpPeer(UdpSocket);

impl UdpPeer {
    fn new(ip: IpAddr) -> UdpPeer {
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
fn take(datagrams: &mut impl Datagrams, queue: usize) -> Vec<(SocketAddr, Vec<u8>)> {
    let count = datagrams.poll(queue, BURST).expect("polling works");
    let arrivals = (0..count).map(|index| datagrams.arrival(index));
    arrivals
        .flat_map(|arrival| arrival.datagrams().map(move |d| (arrival.peer, d.to_vec())))
        .collect()
}

/// Poll until `count` datagrams came: the kernel may have left what was sent to a thread of its
/// own, which has no CPU.
fn take_all(
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
const ASKS_MAX: usize = 50_000_000;

/// Ask until there is an answer.
fn until<A>(mut ask: impl FnMut() -> Option<A>) -> A {
    for _ in 0..ASKS_MAX {
        if let Some(answer) = ask() {
            return answer;
        }
        std::thread::yield_now();
    }
    panic!("it never comes");
}

fn next<T: Transport>(transport: &mut T) -> Vec<Ready> {
    let mut ready = Vec::new();
    transport.poll(&mut ready, 32, Wait::AtMost(HANG)).expect("polling works");
    assert!(!ready.is_empty(), "nothing became ready");
    ready
}

fn nothing<T: Transport>(transport: &mut T) {
    let mut ready = Vec::new();
    transport.poll(&mut ready, 32, Wait::No).expect("polling works");
    assert_eq!(ready, []);
}

fn one_each<'a>(peer: SocketAddr, pieces: &'a [IoSlice<'a>]) -> Vec<Departure<'a>> {
    let alone =
        |piece| Departure { peer, segment_bytes: None, pieces: std::slice::from_ref(piece) };
    pieces.iter().map(alone).collect()
}

fn all(count: usize) -> Sent {
    Sent { done: count, ..Sent::default() }
}

/// Two workers with a queue each, in the hands of both; clients from `connect`.
fn check<D: Datagrams, T: Transport, P: Peer>(
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

fn receives(
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

fn replies(one: &mut impl Datagrams, peer: &impl Peer) {
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

fn trains(one: &mut impl Datagrams, two: &mut impl Datagrams, peer: &impl Peer) {
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

fn room(transport: &mut impl Transport) {
    for path in [Path::Small, Path::Large] {
        transport.watch_room(1, path, true).expect("room can be watched");
        assert_eq!(next(transport), [Ready::Room(1, path)]);
        transport.watch_room(1, path, false).expect("room can be left");
    }
    nothing(transport);
}

fn siblings_never_receive(one: &mut impl Datagrams, peers: &[impl Peer]) {
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

fn ports(ip: IpAddr) -> Ports {
    Ports { addresses: vec![ip], workers: 2, base: Some(0), ordinary: None }
}

fn check_udp(ip: IpAddr) {
    let sockets = Arc::new(Sockets::bind(&ports(ip)).expect("loopback has ports"));
    let handle = || UdpDatagrams::new(sockets.clone());
    let transport = SocketTransport::new(Arc::default()).expect("epoll works");
    check([handle(), handle()], transport.with_datagrams(sockets.clone()), || UdpPeer::new(ip));
}

#[test]
fn udp_keeps_the_contract() {
    check_udp(Ipv4Addr::LOCALHOST.into());
}

#[test]
fn udp_over_ipv6_keeps_the_contract() {
    check_udp(Ipv6Addr::LOCALHOST.into());
}

#[test]
fn memory_keeps_the_contract() {
    let net = DatagramNet::new(DatagramFaults::NONE, 2);
    let transport: MemoryTransport = Net::new(Faults::NONE).transport();
    let handles = [net.datagrams(), net.datagrams()];
    check(handles, transport.with_datagrams(&net), || net.client());
}

#[test]
fn a_connected_client_of_a_wildcard_address_hears_both_paths() {
    let any = Ports { base: None, ordinary: Some(0), ..ports(Ipv4Addr::UNSPECIFIED.into()) };
    let sockets = Arc::new(Sockets::bind(&any).expect("there are ports"));
    let mut datagrams = UdpDatagrams::new(sockets);
    let client = UdpPeer::new(Ipv4Addr::LOCALHOST.into());
    let port = datagrams.queue(0).address.port();
    client.0.connect((Ipv4Addr::LOCALHOST, port)).expect("UDP connects to anything");
    let pieces = [IoSlice::new(b"x")];
    for queue in [0, 1] {
        for path in [Path::Small, Path::Large] {
            let departures = one_each(client.address(), &pieces);
            assert_eq!(datagrams.send(queue, path, &departures).expect("sends"), all(1));
            let mut room = [0; 8];
            assert_eq!(client.0.recv(&mut room).expect("it hears"), 1, "queue {queue} {path:?}");
        }
    }
}

fn check_ordinary(ip: IpAddr) {
    const WORKERS: usize = 3;
    let both = Ports { workers: WORKERS, ordinary: Some(0), ..ports(ip) };
    let sockets = Arc::new(Sockets::bind(&both).expect("loopback has ports"));
    let queues: Vec<_> = sockets.queues().collect();
    assert_eq!(queues.len(), 2 * WORKERS);
    assert!(queues[..WORKERS].iter().all(|queue| queue.chosen));
    let ordinary = &queues[WORKERS..];
    assert!(ordinary.iter().all(|queue| !queue.chosen && queue.address == ordinary[0].address));
    assert!(ordinary.iter().map(|queue| queue.worker).eq(0..WORKERS));

    let mut datagrams = UdpDatagrams::new(sockets);
    let peers: Vec<UdpPeer> = (0..60).map(|_| UdpPeer::new(ip)).collect();
    let mut share = [0; WORKERS];
    for peer in &peers {
        let mut homes = Vec::new();
        for _ in 0..2 {
            peer.send(ordinary[0].address, b"where?");
            homes.extend(until(|| {
                let mut took = |queue: &usize| !take(&mut datagrams, WORKERS + queue).is_empty();
                let took: Vec<usize> = (0..WORKERS).filter(|queue| took(queue)).collect();
                (!took.is_empty()).then_some(took)
            }));
        }
        assert!(homes.len() == 2 && homes[0] == homes[1], "{} at {homes:?}", peer.address());
        share[homes[0]] += 1;
    }
    // 60 peers among 3: a queue that gets fewer than 5 has a chance below one in a million.
    assert!(share.iter().all(|peers| *peers >= 5), "{share:?}");
}

#[test]
fn the_ordinary_port_shares_peers_out_and_keeps_each_at_its_queue() {
    check_ordinary(Ipv4Addr::LOCALHOST.into());
    check_ordinary(Ipv6Addr::LOCALHOST.into());
}

#[test]
fn a_port_in_use_is_an_error_also_where_its_holder_would_share() {
    let ip = Ipv4Addr::LOCALHOST.into();
    let first = Sockets::bind(&ports(ip)).expect("loopback has ports");
    let address = first.queues().next().expect("it has queues").address;
    for taken in [
        Ports { base: Some(address.port()), ..ports(ip) },
        Ports { base: None, ordinary: Some(address.port()), ..ports(ip) },
    ] {
        let error = Sockets::bind(&taken).err().expect("it is taken");
        assert_eq!((error.address, error.error.kind()), (address, ErrorKind::AddrInUse));
        assert!(error.to_string().contains(&address.to_string()), "{error}");
    }
}

#[test]
fn queues_beyond_the_last_port_are_refused() {
    let high = Ports { workers: 3, base: Some(65_534), ..ports(Ipv4Addr::LOCALHOST.into()) };
    let error = Sockets::bind(&high).err().expect("there is no port 65536");
    assert!(error.to_string().ends_with("3 queues from there on end beyond port 65535"), "{error}");
}

#[test]
fn a_full_send_buffer_says_so_and_its_room_is_told() {
    let net = DatagramNet::new(DatagramFaults { send_bytes: 1000, ..DatagramFaults::NONE }, 1);
    let mut transport = Net::new(Faults::NONE).transport().with_datagrams(&net);
    let (mut datagrams, client) = (net.datagrams(), net.client());
    let bytes = [7; 300];
    let pieces = [IoSlice::new(&bytes); 6];
    let departures = one_each(client.address(), &pieces);
    net.hold(true);
    let sent = datagrams.send(0, Path::Large, &departures).expect("sends");
    assert_eq!(sent, all(4), "what begins below the bound is taken whole");
    transport.watch_room(0, Path::Large, true).expect("room can be watched");
    nothing(&mut transport);
    assert_eq!(datagrams.send(0, Path::Small, &departures[..1]).expect("sends"), all(1));
    assert!(client.receive().is_none());
    net.hold(false);
    assert_eq!(next(&mut transport), [Ready::Room(0, Path::Large)]);
    assert_eq!(std::iter::from_fn(|| client.receive()).count(), 5);
    assert_eq!(datagrams.send(0, Path::Large, &departures[4..]).expect("sends"), all(2));
}

/// What arrives of 5000 numbered datagrams, and what became of the others.
fn story(seed: u64) -> (Vec<u32>, Fates) {
    let net = DatagramNet::new(DatagramFaults::each(seed, 100), 1);
    let (mut datagrams, client) = (net.datagrams(), net.client());
    let to = datagrams.queue(0).address;
    let mut got = Vec::new();
    for number in 0..5000u32 {
        client.send(to, &number.to_be_bytes());
        if number % 50 == 49 {
            while net.arrivals(0).is_some() {
                let numbers = take(&mut datagrams, 0).into_iter().map(|(_, bytes)| bytes);
                got.extend(
                    numbers.map(|bytes| u32::from_be_bytes(bytes.try_into().expect("four"))),
                );
            }
        }
    }
    (got, net.fates())
}

#[test]
fn a_faulty_memory_network_repeats_from_its_seed_and_loses_what_it_says() {
    let (got, fates) = story(3);
    assert_eq!((got.clone(), fates), story(3));
    assert_ne!(got, story(4).0);
    let each = [fates.dropped, fates.duplicated, fates.reordered];
    assert!(each.iter().all(|count| (25..=85).contains(count)), "{fates:?}: about 50 each");
    assert_eq!(got.len() as u64, 5000 - fates.dropped + fates.duplicated);
    assert!(!got.is_sorted(), "some came late");
    let mut distinct = got;
    distinct.sort_unstable();
    distinct.dedup();
    assert_eq!(distinct.len() as u64, 5000 - fates.dropped);
}

#[test]
fn a_full_receive_buffer_drops_and_nobody_is_unreachable_by_accident() {
    let faults = DatagramFaults { receive_bytes: 1000, ..DatagramFaults::NONE };
    let net = DatagramNet::new(faults, 1);
    let (mut datagrams, client) = (net.datagrams(), net.client());
    let to = datagrams.queue(0).address;
    for _ in 0..5 {
        client.send(to, &[1; 300]);
    }
    assert_eq!((take(&mut datagrams, 0).len(), net.fates().overflowed), (3, 2));
    client.send("10.0.0.1:9".parse().expect("an address"), b"nobody");
    assert_eq!(net.fates().unreachable, 1);
}
