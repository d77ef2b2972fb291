//! The door of clients that come over a network, of whom nobody knows who they are: what they can
//! take of it from each other.

use laneway_rdma::contract::Peer;
use laneway_rdma::door::{Admitted, Door, HELLO_NANOS, HELLOS_MAX, Heard, House, PROOF_NANOS};
use rustix::event::Timespec;
use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// A house whose members say `hello`, and of whom those below a number have used their places.
#[derive(Default)]
struct Inn {
    come: AtomicUsize,
    left: AtomicUsize,
    proven: AtomicUsize,
    misheard: AtomicUsize,
}

impl House for Inn {
    type Hello = ();

    fn hear(&self, said: &[u8]) -> Heard<()> {
        match said {
            b"hello" => Heard::Whole(()),
            said if b"hello".starts_with(said) => Heard::More,
            _ => Heard::Nonsense("say hello".into()),
        }
    }

    fn admit(&self, (): (), _stream: &OwnedFd) -> Admitted {
        Admitted::Member(Peer { client: self.come.fetch_add(1, Relaxed) as u16, generation: 0 })
    }

    fn misheard(&self) {
        self.misheard.fetch_add(1, Relaxed);
    }

    fn leave(&self, _peer: Peer) {
        self.left.fetch_add(1, Relaxed);
    }

    fn is_proven(&self, peer: Peer) -> bool {
        usize::from(peer.client) < self.proven.load(Relaxed)
    }

    fn bury(&self) -> bool {
        false
    }
}

struct Street {
    inn: Arc<Inn>,
    door: Door<TcpListener, Inn>,
    address: SocketAddr,
    _stop: std::os::unix::net::UnixStream,
}

impl Street {
    fn new() -> Street {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has ports");
        listener.set_nonblocking(true).expect("it does not block");
        let address = listener.local_addr().expect("it listens");
        let inn = Arc::new(Inn::default());
        let (door, _stop) = Door::new(listener, inn.clone()).expect("a door");
        Street { inn, door, address, _stop }
    }

    /// A connection from an address of this host.
    fn from(&mut self, ip: [u8; 4]) -> TcpStream {
        let stream = socket(AddressFamily::INET, SocketType::STREAM, None).expect("a socket");
        bind(&stream, &SocketAddr::from((ip, 0))).expect("all of 127.0.0.0/8 is ours");
        connect(&stream, &self.address).expect("the door is open");
        self.turn(0);
        stream.into()
    }

    /// Turn once for what has happened.
    fn turn(&mut self, now: u64) {
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        self.door.turn(Some(&at_once), || now).expect("it turns");
    }

    fn members(&self) -> usize {
        self.inn.come.load(Relaxed) - self.inn.left.load(Relaxed)
    }
}

#[test]
fn who_says_hello_and_does_not_use_the_place_loses_it() {
    let mut street = Street::new();
    let mut streams = [(); 2].map(|()| street.from([127, 0, 0, 1]));
    for stream in &mut streams {
        stream.write_all(b"hello").expect("it is heard");
        street.turn(5);
    }
    street.inn.proven.store(1, Relaxed);
    street.turn(5 + PROOF_NANOS - 1);
    assert_eq!(street.members(), 2, "there is time left");
    street.turn(5 + PROOF_NANOS);
    assert_eq!(street.members(), 1);
    let [_first, second] = &mut streams;
    assert_eq!(second.read(&mut [0; 8]).expect("it is told"), 0, "the end");
    // Who used it once may be quiet as long as it likes.
    street.inn.proven.store(0, Relaxed);
    street.turn(u64::MAX);
    assert_eq!(street.members(), 1);
}

#[test]
fn who_does_not_say_hello_in_time_is_sent_away() {
    let mut street = Street::new();
    let mut silent = street.from([127, 0, 0, 1]);
    let mut slow = street.from([127, 0, 0, 2]);
    let mut quick = street.from([127, 0, 0, 3]);
    slow.write_all(b"hel").expect("it is heard");
    quick.write_all(b"hell").expect("it is heard");
    street.turn(HELLO_NANOS - 1);
    assert_eq!(street.inn.misheard.load(Relaxed), 0, "there is time left");
    // A word a second does not put it off.
    slow.write_all(b"l").expect("it is heard");
    // Who is through just then is let in.
    quick.write_all(b"o").expect("it is heard");
    street.turn(HELLO_NANOS);
    assert_eq!((street.inn.misheard.load(Relaxed), street.members()), (2, 1));
    for stream in [&mut silent, &mut slow] {
        assert_eq!(stream.read(&mut [0; 8]).expect("it is told"), 0, "the end");
    }
}

#[test]
fn who_opens_many_connections_and_says_nothing_sends_away_its_own() {
    let mut street = Street::new();
    let mut quiet = street.from([127, 0, 0, 1]);
    let mut many: Vec<_> = (0..3 * HELLOS_MAX).map(|_| street.from([127, 0, 0, 2])).collect();
    quiet.write_all(b"hello").expect("it is still heard");
    street.turn(0);
    assert_eq!(street.members(), 1);
    assert_eq!(many[0].read(&mut [0; 8]).expect("it is told"), 0, "the oldest of the many is gone");
    many.pop().expect("the newest").write_all(b"hello").expect("it is heard");
    street.turn(0);
    assert_eq!(street.members(), 2);
}
