//! What every transport promises, checked for each kind: TCP, unix sockets, memory.

use laneway_transport::memory::{Client, Faults, Net};
use laneway_transport::socket::{Listener, SocketTransport};
use laneway_transport::{FOREVER, Interest, Ready, Stream, Token, Transport, Wait};
use std::fs::Permissions;
use std::io::{ErrorKind, IoSlice, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// The other end of a stream.
trait Peer {
    fn send(&mut self, bytes: &[u8]);
    fn receive(&mut self) -> Vec<u8>;
    fn finish(&mut self);
    fn vanish(self);
}

macro_rules! socket_is_peer {
    ($socket:ty) => {
        impl Peer for $socket {
            fn send(&mut self, bytes: &[u8]) {
                self.write_all(bytes).expect("a socket takes a few bytes");
            }
            fn receive(&mut self) -> Vec<u8> {
                let mut buffer = vec![0; 1 << 16];
                let bytes = self.read(&mut buffer).expect("bytes are there");
                buffer.truncate(bytes);
                buffer
            }
            fn finish(&mut self) {
                self.shutdown(Shutdown::Write).expect("it is connected");
            }
            fn vanish(self) {}
        }
    };
}
socket_is_peer!(TcpStream);
socket_is_peer!(UnixStream);

struct MemoryPeer(Client);

impl Peer for MemoryPeer {
    fn send(&mut self, bytes: &[u8]) {
        assert_eq!(self.0.send(bytes), bytes.len());
    }
    fn receive(&mut self) -> Vec<u8> {
        self.0.receive(1 << 16)
    }
    fn finish(&mut self) {
        self.0.finish();
    }
    fn vanish(self) {
        self.0.reset();
    }
}

/// A full stream is filled again so often at most.
const FILLS_MAX: usize = 1_000;
/// Long enough that only a hang reaches it.
const HANG: Wait = Wait::AtMost(Duration::from_secs(60));

fn token(slot: u32) -> Token {
    Token { slot, generation: slot + 7 }
}

/// Poll until something is ready.
fn next<T: Transport>(transport: &mut T) -> Vec<Ready> {
    let mut ready = Vec::new();
    transport.poll(&mut ready, 32, HANG).expect("polling works");
    assert!(!ready.is_empty(), "nothing became ready");
    ready
}

fn nothing<T: Transport>(transport: &mut T) {
    let mut ready = Vec::new();
    transport.poll(&mut ready, 32, Wait::No).expect("polling works");
    assert_eq!(ready, []);
}

fn accept<T: Transport>(transport: &mut T) -> T::Stream {
    assert_eq!(next(transport), [Ready::Listener(0)]);
    let stream = transport.accept(0).expect("accepting works").expect("somebody waits");
    assert!(transport.accept(0).expect("accepting works").is_none(), "only one waits");
    stream
}

fn read<S: Stream>(stream: &mut S, most: usize) -> Vec<u8> {
    let mut room = vec![0; most];
    let bytes = stream.read(&mut room).expect("bytes are there");
    room.truncate(bytes);
    room
}

fn check<T: Transport, P: Peer>(mut one: T, mut two: T, connect: impl Fn() -> P) {
    one.watch_listeners(true).expect("listeners can be watched");
    nothing(&mut one);
    let mut peer = connect();
    let mut stream = accept(&mut one);
    one.attach(&stream, token(3), Interest::Read).expect("attaches");
    nothing(&mut one);
    let none = stream.read(&mut [0; 10]).expect_err("nothing was sent");
    assert_eq!(none.kind(), ErrorKind::WouldBlock);

    // Told once: again when more arrives, or by a new arming.
    peer.send(b"hello");
    assert_eq!(next(&mut one), [Ready::Stream(token(3))]);
    assert_eq!(read(&mut stream, 2), b"he");
    nothing(&mut one);
    peer.send(b"!");
    assert_eq!(next(&mut one), [Ready::Stream(token(3))]);
    assert_eq!(read(&mut stream, 2), b"ll");
    one.rearm(&stream, token(3), Interest::Read).expect("rearms");
    assert_eq!(next(&mut one), [Ready::Stream(token(3))], "what is unread");
    nothing(&mut one);

    // The stream moves with unread bytes, and is ready where it goes.
    one.detach(&stream).expect("detaches");
    nothing(&mut one);
    two.attach(&stream, token(5), Interest::Read).expect("attaches elsewhere");
    assert_eq!(next(&mut two), [Ready::Stream(token(5))]);
    assert_eq!(read(&mut stream, 100), b"o!");
    nothing(&mut two);
    peer.send(b"what comes after a short read");
    assert_eq!(next(&mut two), [Ready::Stream(token(5))]);
    assert_eq!(read(&mut stream, 100), b"what comes after a short read");

    let pieces = [IoSlice::new(b"an "), IoSlice::new(b""), IoSlice::new(b"answer")];
    assert_eq!(stream.write(&pieces).expect("there is room"), 9);
    assert_eq!(peer.receive(), b"an answer");
    two.rearm(&stream, token(5), Interest::Write).expect("rearms");
    assert_eq!(next(&mut two), [Ready::Stream(token(5))], "there is room to write");
    nothing(&mut two);
    // What the kernel had not delivered when the buffers were full makes room once more.
    let mut filled = 0;
    let is_full = (0..FILLS_MAX).any(|_| {
        filled += fill(&mut stream);
        let mut ready = Vec::new();
        two.poll(&mut ready, 32, Wait::No).expect("polling works");
        ready.is_empty()
    });
    assert!(is_full, "who has no room is not ready");
    while filled > 0 {
        filled -= peer.receive().len();
    }
    assert_eq!(next(&mut two), [Ready::Stream(token(5))], "there is room again");

    // A wake-up ends the wait, also one that came before it.
    let waker = one.waker();
    waker.wake();
    waker.wake();
    assert_eq!(next(&mut one), [Ready::Woken]);
    nothing(&mut one);

    // A peer that vanishes with unread bytes is reported whatever the stream waits for.
    fill(&mut stream);
    two.rearm(&stream, token(5), Interest::Nothing).expect("rearms");
    peer.vanish();
    assert_eq!(next(&mut two), [Ready::Ending(token(5))]);
    two.detach(&stream).expect("detaches");

    // Who does not watch the listeners is not told of them.
    one.watch_listeners(false).expect("listeners can be left");
    let _late = connect();
    nothing(&mut one);
    two.watch_listeners(true).expect("listeners can be watched");
    accept(&mut two);
}

/// The end of a peer is told, whether bytes come with it or not, and told anew where the stream
/// goes.
fn check_end<T: Transport, P: Peer>(mut one: T, mut two: T, connect: impl Fn() -> P) {
    one.watch_listeners(true).expect("listeners can be watched");
    let mut peer = connect();
    let mut stream = accept(&mut one);
    one.attach(&stream, token(1), Interest::Read).expect("attaches");
    peer.send(b"the last words");
    peer.finish();
    // The end may come a moment after the words, and is told then.
    while next(&mut one) != [Ready::Ending(token(1))] {}
    assert_eq!(read(&mut stream, 9), b"the last ");
    one.detach(&stream).expect("detaches");
    two.attach(&stream, token(2), Interest::Read).expect("attaches elsewhere");
    assert_eq!(next(&mut two), [Ready::Ending(token(2))]);
    assert_eq!(read(&mut stream, 100), b"words");
    assert_eq!(read(&mut stream, 100), b"");
    assert_eq!(stream.write(&[IoSlice::new(b"heard")]).expect("only one way has ended"), 5);
    assert_eq!(peer.receive(), b"heard");
    two.detach(&stream).expect("detaches");

    let mut peer = connect();
    let mut stream = accept(&mut one);
    one.attach(&stream, token(3), Interest::Read).expect("attaches");
    peer.send(b"words");
    assert_eq!(next(&mut one), [Ready::Stream(token(3))]);
    assert_eq!(read(&mut stream, 100), b"words");
    nothing(&mut one);
    peer.finish();
    assert_eq!(next(&mut one), [Ready::Ending(token(3))]);
    assert_eq!(read(&mut stream, 100), b"");
    nothing(&mut one);
}

/// An alarm ends one wait; the last one that was set.
fn check_alarm<T: Transport>(mut transport: T) {
    nothing(&mut transport);
    assert!(transport.set_alarm(Duration::from_secs(3600)));
    nothing(&mut transport);
    for after in [Duration::from_millis(2), Duration::ZERO] {
        assert!(transport.set_alarm(after));
        let mut ready = Vec::new();
        transport.poll(&mut ready, 32, Wait::AtMost(FOREVER)).expect("polling works");
        assert_eq!(ready, [Ready::Woken]);
        nothing(&mut transport);
    }
}

/// Write until the peer takes no more; how many bytes that were.
fn fill<S: Stream>(stream: &mut S) -> usize {
    let block = [b'f'; 1 << 12];
    let mut taken = 0;
    loop {
        match stream.write(&[IoSlice::new(&block)]) {
            Ok(bytes) => taken += bytes,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return taken,
            Err(error) => panic!("writing failed: {error}"),
        }
    }
}

/// A peer that reads nothing is left fewer bytes under a limit, and no less than ever without one.
fn check_limit<T: Transport, P: Peer>(mut transport: T, connect: impl Fn() -> P) {
    transport.watch_listeners(true).expect("listeners can be watched");
    let (_limited, _free) = (connect(), connect());
    let mut stream = || {
        next(&mut transport);
        transport.accept(0).expect("accepting works").expect("two wait")
    };
    let (mut limited, mut free) = (stream(), stream());
    limited.limit_unsent(Some(1 << 14));
    let (few, many) = (fill(&mut limited), fill(&mut free));
    assert!(0 < few && few < many, "{few}, and without a limit {many}");
    limited.limit_unsent(None);
    assert!(fill(&mut limited) > 0, "{few} were all, though the limit is gone");
}

fn sockets(listener: Listener) -> (SocketTransport, SocketTransport, Option<SocketAddr>) {
    let address = listener.address();
    let listeners = Arc::new(vec![listener]);
    let transport = || SocketTransport::new(listeners.clone()).expect("epoll works");
    (transport(), transport(), address)
}

fn tcp() -> (SocketTransport, SocketTransport, SocketAddr) {
    let any = "127.0.0.1:0".parse().expect("an address");
    let (one, two, address) = sockets(Listener::tcp(any, 16).expect("loopback listens"));
    (one, two, address.expect("TCP has one"))
}

/// A path that no other test has.
fn scratch(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("laneway-{name}-{}", std::process::id()))
}

#[test]
fn tcp_keeps_the_contract() {
    let (one, two, address) = tcp();
    check(one, two, || TcpStream::connect(address).expect("connects"));
}

#[test]
fn unix_sockets_keep_the_contract() {
    let path = scratch("contract");
    let (one, two, _) = sockets(Listener::unix(&path, 0o600, 16).expect("temp is writable"));
    check(one, two, || UnixStream::connect(&path).expect("connects"));
}

#[test]
fn a_unix_socket_that_somebody_has_is_left_alone() {
    let path = scratch("taken");
    let other = UnixDatagram::bind(&path).expect("temp is writable");
    assert!(Listener::unix(&path, 0o600, 16).is_err() && path.exists(), "it is of another kind");
    drop(other);
    let busy = Listener::unix(&path, 0o600, 1).expect("whoever had it is gone");
    // As many as its queue takes, and nobody accepts them.
    let clients = [(); 2].map(|()| UnixStream::connect(&path).expect("there is room"));
    let refused = Listener::unix(&path, 0o600, 16).err().expect("it is taken");
    assert_eq!(refused.kind(), ErrorKind::AddrInUse);
    drop((busy, clients));
    assert!(!path.exists());
}

#[test]
fn a_unix_socket_that_another_server_made_anew_stays() {
    let path = scratch("anew");
    let listen = || Listener::unix(&path, 0o600, 16).expect("nobody accepts there");
    let first = listen();
    first.refuse();
    let second = listen();
    drop(first);
    drop(UnixStream::connect(&path).expect("it is the second one's"));
    drop(second);
    assert!(!path.exists());
}

/// A socket whose owner is none of its clients is his all the same. (Root may open any.)
#[test]
fn a_unix_socket_that_its_owner_may_not_open_is_replaced_where_nobody_has_it() {
    let path = scratch("others");
    let mode = || path.metadata().expect("it is there").permissions().mode() & 0o777;
    let living = UnixListener::bind(&path).expect("temp is writable");
    let permissions = Permissions::from_mode(0o060);
    std::fs::set_permissions(&path, permissions).expect("it is ours");
    let refused = Listener::unix(&path, 0o060, 16).err().expect("it is taken");
    assert_eq!((refused.kind(), mode()), (ErrorKind::AddrInUse, 0o060));
    drop(living); // its file stays
    let listener = Listener::unix(&path, 0o060, 16).expect("nobody has it");
    assert_eq!(mode(), 0o060);
    drop(listener);
    assert!(!path.exists());
}

#[test]
fn a_listener_refuses_newcomers_and_who_waits_but_not_at_a_socket_of_somebody_else() {
    let any = "127.0.0.1:0";
    let path = scratch("refuses");
    let unix = Listener::unix(&path, 0o600, 16).expect("temp is writable");
    let tcp = Listener::tcp(any.parse().expect("an address"), 16).expect("loopback listens");
    let address = tcp.address().expect("TCP has one");
    let mut tcp_waits = TcpStream::connect(address).expect("it listens");
    let mut unix_waits = UnixStream::connect(&path).expect("it listens");
    unix.refuse();
    tcp.refuse();
    let reset = tcp_waits.read(&mut [0; 4]).expect_err("it is not accepted");
    assert_eq!(reset.kind(), ErrorKind::ConnectionReset);
    assert_eq!(unix_waits.read(&mut [0; 4]).expect("it ends"), 0);
    for error in [TcpStream::connect(address).err(), UnixStream::connect(&path).err()] {
        assert_eq!(error.expect("nobody listens").kind(), ErrorKind::ConnectionRefused);
    }
    let theirs = TcpListener::bind(any).expect("a port is free");
    let copy = theirs.try_clone().expect("a descriptor is free");
    let handed = Listener::opened_before(copy.into()).expect("it listens");
    handed.refuse();
    drop(handed);
    TcpStream::connect(theirs.local_addr().expect("it is bound")).expect("it listens still");
}

#[test]
fn memory_keeps_the_contract() {
    let net = Net::new(Faults::NONE);
    check(net.transport(), net.transport(), || MemoryPeer(net.connect()));
}

#[test]
fn the_end_of_a_tcp_peer_is_told() {
    let (one, two, address) = tcp();
    check_end(one, two, || TcpStream::connect(address).expect("connects"));
}

#[test]
fn the_end_of_a_peer_by_unix_socket_is_told() {
    let path = scratch("ends");
    let (one, two, _) = sockets(Listener::unix(&path, 0o600, 16).expect("temp is writable"));
    check_end(one, two, || UnixStream::connect(&path).expect("connects"));
}

#[test]
fn the_end_of_a_peer_in_memory_is_told() {
    let net = Net::new(Faults::NONE);
    check_end(net.transport(), net.transport(), || MemoryPeer(net.connect()));
}

#[test]
fn alarms_of_sockets_end_waits() {
    check_alarm(tcp().0);
}

#[test]
fn what_is_left_unsent_can_be_limited() {
    let (one, _, address) = tcp();
    check_limit(one, || TcpStream::connect(address).expect("connects"));
    let net = Net::new(Faults::NONE);
    check_limit(net.transport(), || MemoryPeer(net.connect()));
}

#[test]
fn a_faulty_memory_network_loses_nothing_and_repeats_from_its_seed() {
    let story = |seed| {
        let faults = Faults { seed, short: 128, refuse: 100, reset: 0, pipe_bytes: 64 };
        let net = Net::new(faults);
        let mut transport = net.transport();
        transport.watch_listeners(true).expect("memory does not fail");
        let client = net.connect();
        let mut stream = transport.accept(0).expect("memory does not fail").expect("one waits");
        let sent: Vec<u8> = (0..5000u32).map(|at| (at % 241) as u8).collect();
        let (mut taken, mut got, mut calls) = (0, Vec::new(), Vec::new());
        while got.len() < sent.len() {
            taken += client.send(&sent[taken..]);
            let mut room = [0; 50];
            match stream.read(&mut room) {
                Ok(bytes) => {
                    calls.push(bytes);
                    got.extend_from_slice(&room[..bytes]);
                }
                Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
            }
        }
        assert!(got == sent);
        calls
    };
    assert_eq!(story(5), story(5));
    assert_ne!(story(5), story(6));
}

#[test]
fn resets_are_told_to_the_server() {
    let faults = Faults { seed: 9, short: 0, refuse: 0, reset: 255, pipe_bytes: 64 };
    let net = Net::new(faults);
    let mut transport = net.transport();
    let client = net.connect();
    let mut stream = transport.accept(0).expect("memory does not fail").expect("one waits");
    client.send(b"x");
    let failed = (0..100).find_map(|_| stream.read(&mut [0; 4]).err());
    assert_eq!(failed.map(|error| error.kind()), Some(ErrorKind::ConnectionReset));
    assert!(client.ended());
}
