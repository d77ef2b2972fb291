//! What every kind of datagram queues promises, checked for each: UDP sockets of both families,
//! memory.

mod common;

use common::{Peer, UdpPeer, all, check, next, nothing, one_each, take, until};
use laneway_transport::datagram::{BURST, Datagrams, Path};
use laneway_transport::memory::{Faults, MemoryTransport, Net};
use laneway_transport::memory_datagram::{DatagramFaults, DatagramNet, Fates};
use laneway_transport::socket::SocketTransport;
use laneway_transport::udp::{Ports, Sockets, UdpDatagrams};
use laneway_transport::{Ready, Transport};
use std::io::{ErrorKind, IoSlice};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

fn ports(ip: IpAddr) -> Ports {
    Ports { addresses: vec![ip], workers: 2, base: Some(0), ordinary: None, join: true }
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

/// Three long datagrams at a time: a poll ends with the one that reaches the bytes of a burst.
fn check_bursts(datagrams: &mut dyn Datagrams, send: impl Fn(&[u8])) {
    const LONG: usize = 40_000;
    let mut poll = || {
        let count = datagrams.poll(0, BURST).expect("polls");
        (0..count).map(|index| datagrams.arrival(index).bytes.len()).sum::<usize>()
    };
    send(&[1; LONG]);
    assert_eq!(poll(), LONG, "from now on it knows how long they are");
    for _ in 0..20 {
        (0..3).for_each(|_| send(&[2; LONG]));
        assert_eq!([poll(), poll(), poll()], [2 * LONG, LONG, 0]);
    }
}

#[test]
fn a_poll_ends_where_a_burst_has_enough_bytes() {
    let net = DatagramNet::new(DatagramFaults::NONE, 1);
    let (mut datagrams, client) = (net.datagrams(), net.client());
    let to = datagrams.queue(0).address;
    check_bursts(&mut datagrams, |bytes| client.send(to, bytes));

    let ip = Ipv4Addr::LOCALHOST.into();
    let sockets = Arc::new(Sockets::bind(&ports(ip)).expect("loopback has ports"));
    let mut datagrams = UdpDatagrams::new(sockets);
    let (client, to) = (UdpPeer::new(ip), datagrams.queue(0).address);
    check_bursts(&mut datagrams, |bytes| {
        assert_eq!(client.0.send_to(bytes, to).expect("loopback has room"), bytes.len());
    });
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
