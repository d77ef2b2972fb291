//! Handshakes in memory, with the clock driven by hand: who gets through, who is closed and why,
//! and how many there may be.

use laneway_certs::{self as certs, Authority, ClientEnd, Pair, TERMS, VERSIONS};
use laneway_tls::{
    Acceptor, Bounds, Cause, Census, Finished, Handshakes, Progress, Terms, TlsStream, Told,
};
use laneway_tls::{Failure, Verify};
use laneway_transport::Stream;
use laneway_transport::memory::{Client, Faults, MemoryStream, MemoryTransport, Net};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

const BOUNDS: Bounds = Bounds { most: 3, nanos: 1000 };

struct Server {
    net: Net,
    acceptor: Arc<Acceptor>,
    handshakes: Handshakes<MemoryTransport>,
    finished: Vec<Finished<MemoryStream>>,
    now: u64,
}

impl Server {
    fn new(pair: &Pair, terms: Terms, client_ca: Option<&str>, faults: Faults) -> Server {
        let net = Net::new(faults);
        let identity = certs::identity(pair, &terms, client_ca);
        let acceptor = Arc::new(Acceptor::new(identity, terms));
        let handshakes = Handshakes::new(net.transport(), acceptor.clone(), BOUNDS);
        Server { net, acceptor, handshakes, finished: Vec::new(), now: 0 }
    }

    fn plain(authority: &Authority) -> Server {
        Server::new(&authority.pair(), TERMS, None, Faults::NONE)
    }

    fn step(&mut self) {
        let now = self.now;
        let refused = self.handshakes.step(&|| now, &mut self.finished).expect("memory");
        assert!(refused.is_none(), "{refused:?}");
    }

    /// Step both ends until the client is through, or is refused.
    fn shake(&mut self, client: &mut TlsStream<ClientEnd>) -> Result<(), Failure> {
        for _ in 0..10_000 {
            let progress = client.handshake()?;
            self.step();
            if progress == Progress::Done {
                return Ok(());
            }
        }
        panic!("the handshake hangs");
    }

    fn told(&self) -> Told {
        self.acceptor.told()
    }

    fn failed(&self, cause: Cause) -> u64 {
        self.told().failed[cause as usize]
    }
}

#[test]
fn who_is_through_is_handed_out_and_counted_by_version() {
    let authority = Authority::new("good");
    // Wherever the bytes are cut.
    for seed in 1..20 {
        let faults = Faults { seed, short: 150, refuse: 80, reset: 0, pipe_bytes: 700 };
        let mut server = Server::new(&authority.pair(), TERMS, None, faults);
        for version in VERSIONS {
            let config = authority.client(version, None);
            let mut client = certs::client(server.net.connect(), &config);
            server.shake(&mut client).expect("it is a good one");
            while server.finished.is_empty() {
                server.step();
            }
            let mut stream = server.finished.remove(0).stream;
            // It is nobody's any more: what comes is for who has it now.
            assert!(client.write(&[std::io::IoSlice::new(b"get k\r\n")]).is_ok());
            server.step();
            let mut got = Vec::new();
            while got.len() < 7 {
                let mut room = [0; 64];
                if let Ok(bytes) = stream.read(&mut room) {
                    got.extend_from_slice(&room[..bytes]);
                }
            }
            assert_eq!(got, b"get k\r\n");
        }
        let told = server.told();
        assert_eq!((told.full_1_2, told.full_1_3, told.failed()), (1, 1, 0));
        assert_eq!((told.underway, server.handshakes.underway()), (0, 0));
    }
}

#[test]
fn a_time_without_an_end_is_not_over_at_once() {
    let authority = Authority::new("patient");
    let mut server = Server::plain(&authority);
    let bounds = Bounds { nanos: u64::MAX, ..BOUNDS };
    server.handshakes = Handshakes::new(server.net.transport(), server.acceptor.clone(), bounds);
    server.now = 5;
    for version in VERSIONS {
        let config = authority.client(version, None);
        let mut client = certs::client(server.net.connect(), &config);
        server.shake(&mut client).expect("nobody is late");
    }
    assert_eq!(server.failed(Cause::Late), 0);
}

#[test]
fn who_speaks_in_plain_text_is_closed_and_counted() {
    let mut server = Server::plain(&Authority::new("plain"));
    for words in [&b"get k\r\n"[..], b"*1\r\n$4\r\nPING\r\n", b"\x80\x00\x00\x00", &[0; 100]] {
        let client = server.net.connect();
        client.send(words);
        server.step();
        server.step();
        assert!(client.ended(), "{words:?}");
    }
    assert_eq!(server.failed(Cause::NotTls), 4, "{:?}", server.told());
    assert!(server.finished.is_empty());
}

#[test]
fn half_handshakes_are_bounded_in_number_and_closed_when_they_are_late() {
    let authority = Authority::new("late");
    let mut server = Server::plain(&authority);
    // They say nothing, or half of a greeting.
    let silent: Vec<Client> = (0..3).map(|_| server.net.connect()).collect();
    silent[1].send(&[22, 3, 1, 2, 0, 1, 0]);
    server.step();
    assert_eq!(server.handshakes.underway(), BOUNDS.most);
    // A good one waits in the queue.
    let config = authority.client(VERSIONS[1], None);
    let mut client = certs::client(server.net.connect(), &config);
    server.now = BOUNDS.nanos - 1;
    for _ in 0..5 {
        assert_ne!(client.handshake().expect("nobody refuses"), Progress::Done);
        server.step();
    }
    assert!(silent.iter().all(|client| !client.ended()));
    assert_eq!(server.handshakes.underway(), BOUNDS.most, "no more than that");
    // They are late, and it is not: its time runs from when it was let in.
    server.now = BOUNDS.nanos;
    server.step();
    assert!(silent.iter().all(Client::ended));
    assert_eq!(server.failed(Cause::Late), 3);
    server.shake(&mut client).expect("there is a place now");
    assert_eq!(server.finished.len(), 1);
    assert_eq!(server.handshakes.underway(), 0);
}

#[test]
fn a_client_that_vanishes_leaves_its_place() {
    let authority = Authority::new("gone");
    let mut server = Server::plain(&authority);
    for number in 0..10 {
        let end = server.net.connect();
        end.send(&[22, 3, 1]);
        server.step();
        if number % 2 == 0 {
            end.reset()
        } else {
            end.finish()
        }
        server.step();
        assert_eq!(server.handshakes.underway(), 0);
    }
    assert_eq!(server.failed(Cause::Gone), 10);
}

#[test]
fn certificates_of_clients_are_asked_for_as_the_terms_say() {
    let (authority, other) = (Authority::new("ours"), Authority::new("another's"));
    let (good, bad) = (authority.pair(), other.pair());
    for version in VERSIONS {
        for (verify, shown, through) in [
            (Verify::Always, Some(&good), true),
            (Verify::Always, None, false),
            (Verify::Always, Some(&bad), false),
            (Verify::IfGiven, None, true),
            (Verify::IfGiven, Some(&good), true),
            (Verify::IfGiven, Some(&bad), false),
        ] {
            let terms = Terms { verify, ..TERMS };
            let ca = Some(&*authority.pem);
            let mut server = Server::new(&authority.pair(), terms, ca, Faults::NONE);
            let config = authority.client(version, shown);
            let mut client = certs::client(server.net.connect(), &config);
            // A client of TLS 1.3 takes itself to be through before it is refused.
            let _ = server.shake(&mut client);
            (0..5).for_each(|_| server.step());
            assert_eq!(server.finished.len(), usize::from(through), "{verify:?} {version:?}");
            let refused = server.failed(Cause::ClientCertificate);
            assert_eq!(refused, u64::from(!through), "{verify:?} {:?}", server.told());
        }
    }
}

#[test]
fn who_trusts_another_authority_or_speaks_another_version_is_counted_so() {
    let (authority, other) = (Authority::new("ours"), Authority::new("another's"));
    let mut server = Server::plain(&authority);
    for version in VERSIONS {
        let mut client = certs::client(server.net.connect(), &other.client(version, None));
        assert!(server.shake(&mut client).is_err());
        drop(client);
        (0..3).for_each(|_| server.step());
    }
    assert_eq!(server.failed(Cause::RefusedByClient), 2, "{:?}", server.told());
    let terms = Terms { only_1_3: true, ..TERMS };
    let mut server = Server::new(&authority.pair(), terms, None, Faults::NONE);
    let config = authority.client(VERSIONS[0], None);
    let mut client = certs::client(server.net.connect(), &config);
    assert!(server.shake(&mut client).is_err());
    (0..3).for_each(|_| server.step());
    assert_eq!(server.failed(Cause::NothingInCommon), 1, "{:?}", server.told());
}

#[test]
fn another_certificate_is_shown_to_who_comes_next_and_tickets_of_the_old_one_are_void() {
    let (before, after) = (Authority::new("before"), Authority::new("after"));
    let mut server = Server::plain(&before);
    let config = before.client(VERSIONS[1], None);
    let mut first = certs::client(server.net.connect(), &config);
    server.shake(&mut first).expect("it is shown the old one");
    let mut stays = server.finished.remove(0).stream;
    stays.write(&[std::io::IoSlice::new(b"x")]).expect("room");
    assert_eq!(first.read(&mut [0; 8]).expect("a byte, and tickets"), 1);
    server.acceptor.replace(certs::identity(&after.pair(), &TERMS, None));
    // Who comes with a ticket is not taken at it: it is shown the new one, which it does not trust.
    let mut second = certs::client(server.net.connect(), &config);
    assert!(server.shake(&mut second).is_err());
    let config = after.client(VERSIONS[1], None);
    let mut third = certs::client(server.net.connect(), &config);
    server.shake(&mut third).expect("it is shown the new one");
    assert_eq!(server.told().resumed, 0);
    // Who came before goes on.
    stays.write(&[std::io::IoSlice::new(b"y")]).expect("room");
    assert_eq!(first.read(&mut [0; 8]).expect("a byte"), 1);
}

#[test]
fn where_nothing_can_be_watched_accepting_pauses_and_goes_on_later() {
    let authority = Authority::new("full");
    let mut server = Server::plain(&authority);
    server.step();
    server.net.refuse_watching(true);
    let lost = server.net.connect();
    let now = server.now;
    let refused = server.handshakes.step(&|| now, &mut server.finished).expect("memory");
    assert!(refused.is_some() && lost.ended());
    server.net.refuse_watching(false);
    let config = authority.client(VERSIONS[1], None);
    let mut client = certs::client(server.net.connect(), &config);
    let _ = client.handshake();
    server.step();
    assert_eq!(server.handshakes.underway(), 0, "it pauses");
    server.now += 1_000_000_000;
    server.shake(&mut client).expect("the pause is over");
    assert_eq!(server.told().underway, 0);
}

#[test]
fn where_listeners_cannot_be_watched_accepting_pauses_and_goes_on_later() {
    let authority = Authority::new("deaf");
    let mut server = Server::plain(&authority);
    server.net.refuse_watching(true);
    let mut client = certs::client(server.net.connect(), &authority.client(VERSIONS[1], None));
    let _ = client.handshake(); // it greets
    let now = server.now;
    let refused = server.handshakes.step(&|| now, &mut server.finished);
    assert!(refused.expect("it goes on").is_some());
    server.net.refuse_watching(false);
    server.step();
    assert_eq!(server.handshakes.underway(), 0, "it pauses");
    server.now += 1_000_000_000;
    server.shake(&mut client).expect("the pause is over");
}

#[test]
fn who_asks_and_ends_together_with_its_handshake_is_through() {
    const LAST: &[u8] = b"set k 0 0 1 noreply\r\nx\r\n";
    let authority = Authority::new("brief");
    let mut server = Server::plain(&authority);
    let mut client = certs::client(server.net.connect(), &authority.client(VERSIONS[1], None));
    while client.handshake().expect("a good server") != Progress::Done {
        server.step();
    }
    assert!(server.finished.is_empty(), "the end of the handshake is on its way");
    assert_eq!(client.write(&[std::io::IoSlice::new(LAST)]).expect("room"), LAST.len());
    drop(client); // says that it ends
    server.step();
    let mut stream = server.finished.pop().expect("it is through").stream;
    let mut room = [0; 64];
    assert_eq!(stream.read(&mut room).expect("what it asks"), LAST.len());
    assert_eq!(&room[..LAST.len()], LAST);
    assert_eq!(stream.read(&mut room).expect("the end"), 0);
    assert_eq!((server.told().failed(), server.told().full_1_3), (0, 1));
}

/// Lets so many in at a time, wherever they come from.
struct AtMost(usize, Arc<AtomicUsize>);

impl Census for AtMost {
    fn enter(&self, _peer: &str) -> bool {
        let fits = self.1.load(SeqCst) < self.0;
        self.1.fetch_add(usize::from(fits), SeqCst);
        fits
    }

    fn leave(&self, _peer: &str) {
        let before = self.1.fetch_sub(1, SeqCst);
        assert!(before > 0, "somebody leaves who never came");
    }
}

#[test]
fn who_comes_is_counted_before_the_handshake_and_until_it_fails() {
    let authority = Authority::new("counted");
    let (mut server, inside) = (Server::plain(&authority), Arc::new(AtomicUsize::new(0)));
    server.handshakes = server.handshakes.counted_by(Box::new(AtMost(2, inside.clone())));
    let (mut late, garbage) = (server.net.connect(), server.net.connect());
    server.step();
    assert_eq!((inside.load(SeqCst), server.handshakes.underway()), (2, 2));
    let third = server.net.connect();
    server.step();
    assert!(third.ended() && !late.ended(), "the third is closed, and no other");
    assert_eq!(server.told().underway, 2, "no handshake was begun for it");
    // What fails makes room, whatever it fails for.
    garbage.send(b"get k\r\n");
    (0..2).for_each(|_| server.step());
    assert!(garbage.ended());
    assert_eq!(inside.load(SeqCst), 1);
    server.now += BOUNDS.nanos;
    server.step();
    assert!(late.ended());
    assert_eq!(inside.load(SeqCst), 0);
    late = server.net.connect();
    server.step();
    late.reset();
    (0..2).for_each(|_| server.step());
    assert_eq!(inside.load(SeqCst), 0, "who has gone is not counted");
    // Who is through stays counted: that is up to who has the connection then.
    let mut good = certs::client(server.net.connect(), &authority.client(VERSIONS[1], None));
    server.shake(&mut good).expect("it is a good one");
    let _under_way = server.net.connect();
    server.step();
    assert_eq!((inside.load(SeqCst), server.finished.len()), (2, 1));
    drop(server.handshakes);
    assert_eq!(inside.load(SeqCst), 1, "a pool that ends lets go of those under way alone");
}

#[test]
fn who_is_silent_in_front_keeps_nothing_of_those_who_are_over() {
    let mut server = Server::plain(&Authority::new("good"));
    let silent = server.net.connect();
    server.step();
    for _ in 0..50 {
        let client = server.net.connect();
        client.send(b"get key\r\n");
        (0..4).for_each(|_| server.step());
        assert!(client.ended());
    }
    assert_eq!((server.handshakes.underway(), server.handshakes.deadlines()), (1, 1));
    server.now = BOUNDS.nanos;
    server.step();
    assert!(silent.ended() && server.failed(Cause::Late) == 1);
    assert_eq!((server.handshakes.underway(), server.handshakes.deadlines()), (0, 0));
}
