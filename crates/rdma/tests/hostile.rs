//! What a client may write, and what it may say at the door: everything. Nobody but itself is any
//! the worse.

use laneway_rdma::contract::{
    Descriptor, MESSAGE_BYTES_MAX, Moved, Peer, Posted, Requester as _, Responder as _,
};
use laneway_rdma::door::{self, Door, HELLOS_MAX, Turned, Version};
use laneway_rdma::layout::Terms;
use laneway_rdma::long::rendezvous::KEEP_NANOS;
use laneway_rdma::long::sealed_descriptor::PIECE_BYTES;
use laneway_rdma::region::Registry;
use laneway_rdma::shmring::{Given, RingRequester, RingResponder};
use laneway_sync::prim::Ordering::Relaxed;
use laneway_sync::slot::{self, Control};
use rustix::event::Timespec;
use std::io::{IoSlice, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::Arc;

const TERMS: Terms = Terms { window: 4, replies: 8, loans: 3, places: 3, ..Terms::of(2, 16 << 10) };

fn server(clients_max: usize) -> (Arc<Registry>, RingResponder) {
    let registry = Arc::new(Registry::new(TERMS, clients_max));
    let responder = RingResponder::new(registry.clone(), 0);
    (registry, responder)
}

fn given(registry: &Registry) -> (Given, Peer, UnixStream) {
    door::join(registry).expect("there is memory").expect("there is a place")
}

fn client(registry: &Registry) -> (RingRequester, Peer, UnixStream) {
    let (given, peer, stream) = given(registry);
    (RingRequester::new(given), peer, stream)
}

fn count(registry: &Registry, name: &str) -> u64 {
    registry.sums().iter().find(|(told, _)| *told == name).expect("it is counted").1
}

/// Echo what is there; how many that were.
fn echo(responder: &mut RingResponder, queue: usize) -> usize {
    let count = responder.poll_slots(queue, 32);
    for index in 0..count {
        let request = responder.request(index);
        let (peer, bytes) = (request.peer, request.bytes.to_vec());
        assert_eq!(responder.reply(peer, queue, &[IoSlice::new(&bytes)], 0), Posted::Done);
    }
    responder.pump().expect("nobody to wake");
    count
}

fn replies(client: &mut RingRequester) -> Vec<(usize, Vec<u8>)> {
    let mut got = Vec::new();
    client.poll_replies(64, &mut |queue, bytes| got.push((queue, bytes.to_vec())));
    got
}

#[test]
fn requests_of_any_length_arrive_whole_in_every_lane_and_come_back() {
    let (registry, mut responder) = server(2);
    let (mut one, _, _one) = client(&registry);
    let (mut two, _, _two) = client(&registry);
    for length in (0..MESSAGE_BYTES_MAX).step_by(173).chain([MESSAGE_BYTES_MAX]) {
        for queue in 0..TERMS.lanes {
            let message: Vec<u8> = (0..length).map(|at| (at * 7 + queue) as u8).collect();
            assert_eq!(one.post_request(queue, &message), Posted::Done);
            assert_eq!(two.post_request(queue, b"of two"), Posted::Done);
            assert_eq!(echo(&mut responder, queue), 2);
            assert_eq!(replies(&mut one), [(queue, message)]);
            assert_eq!(replies(&mut two), [(queue, b"of two".to_vec())]);
        }
    }
}

#[test]
fn a_full_window_says_so_and_has_room_again_when_the_server_has_looked() {
    let (registry, mut responder) = server(1);
    let (mut client, _, _server) = client(&registry);
    for round in 0..3 {
        for request in 0..TERMS.window {
            assert!(client.has_room(1), "request {request} of round {round}");
            assert_eq!(client.post_request(1, &[request as u8]), Posted::Done);
        }
        assert!(!client.has_room(1));
        assert_eq!(client.post_request(1, b"too many"), Posted::Full);
        assert_eq!(echo(&mut responder, 1), TERMS.window);
        let got = replies(&mut client);
        let bytes: Vec<u8> = got.iter().flat_map(|(_, bytes)| bytes.clone()).collect();
        assert_eq!(bytes, [0, 1, 2, 3], "in their order");
    }
}

#[test]
fn a_full_reply_window_drops_small_replies_and_makes_large_ones_wait() {
    let (registry, mut responder) = server(1);
    let (mut client, peer, _server) = client(&registry);
    let half = TERMS.replies / 2;
    let mut large = 0;
    while responder.reply(peer, 0, &[IoSlice::new(b"large")], half) == Posted::Done {
        large += 1;
    }
    assert_eq!(large, TERMS.replies - half, "the rest is left to small ones");
    let region = registry.clients()[0].clone().expect("it is there");
    assert!(!region.has_room_again(0, half), "nothing was taken yet");
    for _ in 0..half {
        assert_eq!(responder.reply(peer, 0, &[IoSlice::new(b"small")], 0), Posted::Done);
    }
    assert_eq!(responder.reply(peer, 0, &[IoSlice::new(b"small")], 0), Posted::Full);
    assert_eq!(count(&registry, "replies_without_room"), 2);
    assert_eq!(replies(&mut client).len(), TERMS.replies);
    assert!(region.has_room_again(0, half) && !region.has_room_again(0, half), "told once");
    assert_eq!(responder.reply(peer, 0, &[IoSlice::new(b"large")], half), Posted::Done);
}

#[test]
fn impossible_lengths_and_stale_numbers_are_thrown_away_and_the_next_request_is_served() {
    let (registry, mut responder) = server(1);
    let (given, _, _server) = given(&registry);
    let words = given.map.words();
    let put = |sequence: u32, bytes: u16, at: u32| {
        let slot = &words[TERMS.request(0, at)];
        slot.last().expect("a slot").store(Control { sequence, note: 0, bytes }.pack(), Relaxed);
    };
    // No message is so long; its number counts, or the lane would stand still.
    for (number, bytes) in [(1, 1401), (2, u16::MAX)] {
        put(number, bytes, number);
        assert_eq!(responder.poll_slots(0, 32), 0);
    }
    assert_eq!(count(&registry, "impossible"), 2);
    // Written twice, from the future, and a number that is none.
    for sequence in [1, 2, 4, 7, u32::MAX, 0] {
        put(sequence, 5, 3);
        assert_eq!(responder.poll_slots(0, 32), 0);
        assert!(slot::is_free(&words[TERMS.request(0, 3)]), "the slot is given back");
    }
    assert_eq!(count(&registry, "stale"), 6);
    // Half a request: the message stands there, the last word does not.
    let slot = &words[TERMS.request(0, 3)];
    slot[170].store(u64::MAX, Relaxed);
    assert_eq!(responder.poll_slots(0, 32), 0);
    slot::write(slot, Control { sequence: 3, note: 0, bytes: 4 }, [&b"good"[..]]);
    assert_eq!(responder.poll_slots(0, 32), 1);
    assert_eq!(responder.request(0).bytes, b"good");
    // Every byte of the region, whatever it is.
    for pattern in [u64::MAX, 0x0101_0101_0101_0101, 1, 1 << 63] {
        words.iter().for_each(|word| word.store(pattern, Relaxed));
        (0..TERMS.lanes).for_each(|lane| _ = responder.poll_slots(lane, 32));
        let peer = registry.clients()[0].as_ref().expect("it is there").peer();
        responder.reply(peer, 0, &[IoSlice::new(b"reply")], 4);
        responder.pump().expect("nothing that fails");
    }
}

#[test]
fn who_fills_slots_with_rubbish_keeps_nobody_from_being_served() {
    let (registry, mut responder) = server(2);
    let (bad, _, _bad) = given(&registry);
    let (mut good, _, _good) = client(&registry);
    for round in 0..50 {
        for slot in 1..=TERMS.window as u32 {
            let word = bad.map.words()[TERMS.request(0, slot)].last().expect("a slot");
            word.store(u64::MAX, Relaxed);
        }
        assert_eq!(good.post_request(0, b"please"), Posted::Done);
        assert_eq!(echo(&mut responder, 0), 1, "round {round}");
        assert_eq!(replies(&mut good).len(), 1);
    }
}

#[test]
fn what_is_lent_is_claimed_once_within_its_bounds_and_given_back() {
    let (registry, responder) = server(2);
    let (mut client, peer, _server) = client(&registry);
    let lenders = responder.lenders();
    let message: Vec<u8> = (0..10_001_u32).map(|at| at as u8).collect();
    let lent = client.lend(&message).expect("there is room");
    for wrong in [
        Descriptor { loan: 3, ..lent },
        Descriptor { loan: u32::MAX, ..lent },
        Descriptor { number: 0, ..lent },
        Descriptor { number: u64::MAX, ..lent },
        Descriptor { offset: 16 << 10, ..lent },
        Descriptor { offset: u64::MAX, ..lent },
        Descriptor { bytes: u32::MAX, ..lent },
        Descriptor { bytes: (16 << 10) + 1, ..lent },
    ] {
        assert!(lenders.claim(peer, &wrong.to_bytes()).is_none(), "{wrong:?}");
    }
    let stranger = Peer { generation: peer.generation + 1, ..peer };
    assert!(lenders.claim(stranger, &lent.to_bytes()).is_none(), "another's");
    assert!(lenders.claim(Peer { client: 9, ..peer }, &lent.to_bytes()).is_none(), "nobody's");
    let mut claimed = lenders.claim(peer, &lent.to_bytes()).expect("it is lent");
    assert!(lenders.claim(peer, &lent.to_bytes()).is_none(), "twice");
    // Taken back while it is read: its memory is not lent again before.
    client.take_back(lent);
    assert!(client.lend(&message).is_none(), "no room for both");
    let mut copy = Vec::new();
    claimed.read(0, 5_000, &mut copy);
    claimed.read(5_000, 5_001, &mut copy);
    assert!(copy == message);
    drop(claimed);
    let again = client.lend(&message).expect("it is free again");
    assert_ne!(again.number, lent.number);
    assert!(lenders.claim(peer, &lent.to_bytes()).is_none(), "an old descriptor");
    client.take_back(again);
    assert!(lenders.claim(peer, &again.to_bytes()).is_none(), "it was taken back");
    assert!(client.lend(&[0; (16 << 10) + 1]).is_none(), "more than there is");
    let refused = count(&registry, "loans_refused");
    assert_eq!((count(&registry, "loans_claimed"), refused), (1, 13));
}

/// The server's side of a reply, which is written and told.
fn placed(responder: &RingResponder, peer: Peer, id: u16, reply: &[u8], now: u64) -> Descriptor {
    let mut placed = responder.lenders().place(peer, id, reply.len(), now).expect("there is room");
    for piece in reply.chunks(PIECE_BYTES) {
        let (front, back) = piece.split_at(piece.len() / 3);
        assert_eq!(placed.write(&[IoSlice::new(front), IoSlice::new(back)]), Moved::Done);
    }
    let told = placed.notice(now).expect("it was in time");
    Descriptor::parse(&told).expect("it is as long as one")
}

/// What a client finds there.
fn opened(client: &RingRequester, told: Descriptor) -> Option<Vec<u8>> {
    let reply = client.open_reply(told)?;
    let copy = reply.copied(0..reply.bytes());
    reply.is_there().then_some(copy)
}

#[test]
fn a_long_reply_lies_where_its_notice_says_until_it_is_taken_or_its_time_is_up() {
    let (registry, responder) = server(2);
    let (client, peer, _server) = client(&registry);
    let lenders = responder.lenders();
    let reply = |length: usize| -> Vec<u8> { (0..length).map(|at| (at * 7) as u8).collect() };
    for length in [0, 1, 7, 8, 1393, 5_001, PIECE_BYTES, 16 << 10] {
        let reply = &reply(length.min(16 << 10));
        let told = placed(&responder, peer, 7, reply, 0);
        assert_eq!(opened(&client, told).as_ref(), Some(reply), "{length}");
        // From anywhere in it, as who skips a line has it.
        let lies = client.open_reply(told).expect("it is there");
        for start in (0..reply.len()).step_by(997) {
            assert!(lies.copied(start..reply.len()) == reply[start..], "{start} of {length}");
        }
        assert!(lies.is_there());
        lenders.taken(peer, 8);
        assert!(lies.is_there(), "another's");
        lenders.taken(peer, 7);
        assert!(!lies.is_there() && opened(&client, told).is_none(), "{length}");
    }
    let first = placed(&responder, peer, 1, &reply(8_000), 5);
    let second = placed(&responder, peer, 2, &reply(8_000), 6);
    assert!(lenders.place(peer, 3, 8_000, KEEP_NANOS).is_none(), "there is no room");
    let lies = client.open_reply(first).expect("it is there");
    let third = placed(&responder, peer, 3, &reply(4_000), KEEP_NANOS + 5);
    assert_eq!(third.offset, first.offset);
    assert!(!lies.is_there() && opened(&client, first).is_none(), "its time was up");
    assert!(opened(&client, second).is_some() && opened(&client, third).is_some());
    // Another reply to the same request.
    let again = placed(&responder, peer, 3, &reply(4_000), KEEP_NANOS + 5);
    assert!(opened(&client, third).is_none() && opened(&client, again).is_some());
    let counts = ["notices", "replies_unplaced", "places_expired"];
    assert_eq!(counts.map(|name| count(&registry, name)), [12, 1, 1]);
    // What a killed server may have left.
    for wrong in [
        Descriptor { loan: 3, ..again },
        Descriptor { loan: u32::MAX, ..again },
        Descriptor { number: 0, loan: 1, ..again },
        Descriptor { number: again.number + 1, ..again },
        Descriptor { offset: 16 << 10, ..again },
        Descriptor { offset: u64::MAX, ..again },
        Descriptor { bytes: u32::MAX, ..again },
    ] {
        assert!(client.open_reply(wrong).is_none(), "{wrong:?}");
    }
}

#[test]
fn a_reply_that_nobody_wants_any_more_is_given_up_and_its_place_is_free() {
    let (registry, responder) = server(2);
    let (client, peer, _server) = client(&registry);
    let lenders = responder.lenders();
    let mut unwanted = lenders.place(peer, 7, 16 << 10, 0).expect("all is free");
    assert_eq!(unwanted.write(&[IoSlice::new(&[7; 100])]), Moved::Done);
    lenders.taken(peer, 7);
    assert!(lenders.place(peer, 8, 1, u64::MAX / 2).is_none(), "it is still being written");
    assert_eq!(unwanted.write(&[IoSlice::new(&[7; 100])]), Moved::Gone);
    drop(unwanted);
    let told = placed(&responder, peer, 8, b"another", 0);
    assert_eq!(opened(&client, told).as_deref(), Some(&b"another"[..]));
    // Of a stranger, and of who is gone.
    let stranger = Peer { generation: peer.generation + 1, ..peer };
    assert!(lenders.place(stranger, 9, 1, 0).is_none());
    lenders.taken(stranger, 8);
    assert!(opened(&client, told).is_some());
    let mut late = lenders.place(peer, 9, 100, 0).expect("there is room");
    registry.leave(peer);
    assert_eq!(late.write(&[IoSlice::new(&[9; 100])]), Moved::Gone);
    assert!(lenders.place(peer, 10, 1, 0).is_none());
}

#[test]
fn a_client_of_version_1_is_told_of_no_places() {
    let (registry, responder) = server(2);
    let joined = door::join_as(Version::Framed, &registry).expect("there is memory");
    let (given, peer, _server) = joined.expect("there is a place");
    assert_eq!(given.terms, TERMS.framed());
    assert!(responder.lenders().place(peer, 1, 1, 0).is_none());
    assert_eq!(count(&registry, "replies_unplaced"), 0, "none was asked for");
}

/// Whatever a client writes, and whenever: the server's account lies elsewhere.
#[test]
fn words_of_places_that_the_client_writes_change_nothing_for_the_server() {
    let (registry, responder) = server(2);
    let (given, peer, _server) = given(&registry);
    for pattern in [0, 1, u64::MAX, 0x0101_0101_0101_0101] {
        let mut placed =
            responder.lenders().place(peer, 7, 3_000, 0).expect("the one before has ended");
        given.map.words().iter().for_each(|word| word.store(pattern, Relaxed));
        assert_eq!(placed.write(&[IoSlice::new(&[5; 1_500])]), Moved::Done);
        given.map.words().iter().for_each(|word| word.store(!pattern, Relaxed));
        assert_eq!(placed.write(&[IoSlice::new(&[5; 1_500])]), Moved::Done);
        let told = placed.notice(0).and_then(|told| Descriptor::parse(&told));
        let Descriptor { loan, offset, bytes, .. } = told.expect("it was in time");
        assert_eq!((loan, offset, bytes), (0, 0, 3_000), "{pattern}");
        // Nothing of the server's was written beside it.
        let memory = &given.map.words()[TERMS.long_replies()];
        assert!(memory[375..].iter().all(|word| word.load(Relaxed) == !pattern));
    }
}

#[test]
fn loans_fill_the_memory_and_its_gaps() {
    let (registry, responder) = server(1);
    let (mut client, peer, _server) = client(&registry);
    let lend = |client: &mut RingRequester, byte: u8, bytes| client.lend(&vec![byte; bytes]);
    let first = lend(&mut client, 1, 6_001).expect("room");
    let second = lend(&mut client, 2, 6_001).expect("room");
    assert!(lend(&mut client, 3, 6_001).is_none(), "two fit");
    client.take_back(first);
    let third = lend(&mut client, 3, 6_001).expect("the gap");
    assert_eq!(third.offset, first.offset);
    let fourth = lend(&mut client, 4, 4_000).expect("the end");
    assert!(lend(&mut client, 5, 1).is_none(), "three loans at a time");
    for (lent, byte) in [(second, 2), (third, 3), (fourth, 4)] {
        let mut lent = responder.lenders().claim(peer, &lent.to_bytes()).expect("it is lent");
        let mut copy = Vec::new();
        lent.read(0, lent.bytes(), &mut copy);
        assert!(copy.iter().all(|found| *found == byte), "loan {byte}");
    }
}

#[test]
fn a_client_that_leaves_with_requests_in_flight_is_forgotten_and_its_place_used_again() {
    let (registry, mut responder) = server(1);
    let (mut client, peer, server) = client(&registry);
    let lent = client.lend(&[7; 9_000]).expect("room");
    assert_eq!(client.post_request(0, b"in flight"), Posted::Done);
    assert_eq!(responder.poll_slots(0, 32), 1);
    let mut claimed = responder.lenders().claim(peer, &lent.to_bytes()).expect("it is lent");
    assert!(!client.is_server_gone());
    drop(client);
    registry.leave(peer);
    registry.leave(peer); // twice is once
    drop(server);
    // The memory is there as long as somebody reads it.
    let mut copy = Vec::new();
    claimed.read(0, 9_000, &mut copy);
    assert!(copy == vec![7; 9_000]);
    drop(claimed);
    assert_eq!(responder.reply(peer, 0, &[IoSlice::new(b"late")], 0), Posted::Gone);
    responder.pump().expect("nobody to wake");
    let (mut next, other, server) = self::client(&registry);
    assert_eq!((other.client, other.generation != peer.generation), (peer.client, true));
    assert_eq!(responder.reply(peer, 0, &[IoSlice::new(b"late")], 0), Posted::Gone);
    assert_eq!(next.post_request(0, b"mine"), Posted::Done);
    assert_eq!(echo(&mut responder, 0), 1);
    assert_eq!(replies(&mut next), [(0, b"mine".to_vec())]);
    assert_eq!(count(&registry, "replies_to_nobody"), 2);
    drop(server);
    assert!(next.is_server_gone());
}

#[test]
fn the_memory_of_who_is_gone_goes_when_no_worker_has_hold_of_it() {
    let (registry, mut responder) = server(1);
    let (client, peer, _server) = client(&registry);
    assert!(!registry.bury());
    assert_eq!(responder.poll_slots(0, 32), 0); // from now on it knows the region
    let region = Arc::downgrade(registry.clients()[0].as_ref().expect("it is there"));
    registry.leave(peer);
    drop(client);
    assert!(registry.bury() && region.upgrade().is_some(), "a worker may be writing there");
    responder.tidy();
    assert!(!registry.bury() && region.upgrade().is_none());
}

#[test]
fn more_clients_than_places_are_refused() {
    let (registry, _) = server(2);
    let here = [client(&registry), client(&registry)];
    assert!(door::join(&registry).expect("no error").is_none());
    assert_eq!((registry.count(), registry.clients_refused.load(Relaxed)), (2, 1));
    registry.leave(here[0].1);
    assert!(door::join(&registry).expect("no error").is_some());
}

/// A door at a path of its own, turned by hand.
struct House {
    folder: PathBuf,
    registry: Arc<Registry>,
    door: Door<UnixListener>,
    stop: Option<UnixStream>,
}

impl House {
    fn new(name: &str, clients_max: usize) -> House {
        let folder = std::env::temp_dir().join(format!("laneway-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let path = folder.join("door");
        let _ = std::fs::remove_file(&path);
        let listener = UnixListener::bind(path).expect("a socket");
        listener.set_nonblocking(true).expect("it does not block");
        let registry = Arc::new(Registry::new(TERMS, clients_max));
        let (door, stop) = Door::new(listener, registry.clone()).expect("a door");
        House { folder, registry, door, stop: Some(stop) }
    }

    fn connect(&self) -> UnixStream {
        UnixStream::connect(self.folder.join("door")).expect("the door is open")
    }

    /// Turn until nothing happens any more; whether anybody came or went.
    fn settle(&mut self) -> bool {
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let turns =
            (0..4 * HELLOS_MAX).map(|_| self.door.turn(Some(&now), || 0).expect("it turns"));
        turns.filter(|turned| *turned == Turned::Changed).count() > 0
    }

    /// `enter` in another thread, while the door turns here.
    fn enter(&mut self) -> std::io::Result<RingRequester> {
        self.enter_as(Version::Placed)
    }

    fn enter_as(&mut self, version: Version) -> std::io::Result<RingRequester> {
        let path = self.folder.join("door");
        let coming = std::thread::spawn(move || door::enter_as(version, &path));
        let short = Timespec { tv_sec: 0, tv_nsec: 10_000_000 };
        while !coming.is_finished() {
            self.door.turn(Some(&short), || 0).expect("it turns");
        }
        coming.join().expect("it came")
    }
}

impl Drop for House {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

#[test]
fn who_says_hello_at_the_door_gets_a_region_and_is_gone_when_it_hangs_up() {
    let mut house = House::new("hello", 2);
    let mut client = house.enter().expect("it is let in");
    assert_eq!((client.terms(), house.registry.count()), (TERMS, 1));
    let mut responder = RingResponder::new(house.registry.clone(), 1);
    assert_eq!(client.post_request(1, b"hello"), Posted::Done);
    // Nobody has said that he is awake: it rings.
    client.pump().expect("the doorbell is there");
    assert_eq!(client.verbs().rings, 1);
    let region = house.registry.clients()[0].clone().expect("it is there");
    let mut rung = [0; 8];
    rustix::io::read(region.doorbell(1).as_fd(), &mut rung).expect("it was rung");
    assert_eq!(echo(&mut responder, 1), 1);
    assert_eq!(replies(&mut client), [(1, b"hello".to_vec())]);
    let again = house.enter_as(Version::Framed).expect("there is another place");
    assert_eq!(again.terms(), TERMS.framed());
    let refused = house.enter().err().expect("there is no third").to_string();
    assert!(refused.contains("--shm-clients"), "{refused}");
    drop(client);
    assert!(house.settle());
    assert_eq!(house.registry.count(), 1);
    assert!(region.is_gone() && !again.is_server_gone());
}

#[test]
fn a_server_that_knows_version_1_alone_is_asked_for_that() {
    let path = std::env::temp_dir().join(format!("laneway-old-{}", std::process::id()));
    let _ = std::fs::remove_file(&path);
    let listener = UnixListener::bind(&path).expect("a socket");
    let server = std::thread::spawn(move || {
        ["ERROR say laneway-shm 1\n", "ERROR there is no place\n"].map(|answer| {
            let (mut stream, _) = listener.accept().expect("the client comes");
            let mut hello = [0; 14];
            stream.read_exact(&mut hello).expect("it says hello");
            stream.write_all(answer.as_bytes()).expect("it listens");
            hello
        })
    });
    let refused = door::enter(&path).err().expect("there is no place").to_string();
    let heard = server.join().expect("it was asked twice");
    let _ = std::fs::remove_file(&path);
    assert_eq!(refused, "there is no place");
    assert_eq!(heard.each_ref().map(|hello| &hello[..]), [door::HELLO, door::HELLO_FRAMED]);
}

#[test]
fn nonsense_and_silence_at_the_door_keep_nobody_out() {
    let mut house = House::new("nonsense", 4);
    for said in [&b"GET / HTTP/1.1\r\n"[..], b"laneway-shm 3\n", b"laneway-shm 2\nand more"] {
        let mut stream = house.connect();
        stream.write_all(said).expect("it takes it");
        house.settle();
        let mut told = String::new();
        stream.read_to_string(&mut told).expect("it answers");
        assert_eq!(told, "ERROR say laneway-shm 2\n");
    }
    // Half a hello, and then the end.
    let mut half = house.connect();
    half.write_all(b"laneway").expect("it takes it");
    house.settle();
    drop(half);
    // Nobody waits for whoever says nothing; the oldest is sent away.
    let mut silent: Vec<UnixStream> = (0..HELLOS_MAX + 3).map(|_| house.connect()).collect();
    house.settle();
    let mut told = String::new();
    silent[0].read_to_string(&mut told).expect("it hangs up");
    assert_eq!(told, "");
    house.enter().expect("it is let in all the same");
    assert_eq!(house.registry.hellos_bad.load(Relaxed), 3 + 4);
    // Whoever has a region and talks on is out.
    let mut talks = house.connect();
    talks.write_all(door::HELLO).expect("it takes it");
    house.settle();
    let members = house.registry.count();
    talks.write_all(b"x").expect("it takes it");
    assert!(house.settle());
    assert_eq!(house.registry.count(), members - 1);
}

#[test]
fn a_sleeping_client_is_woken_by_its_reply_and_by_nothing_else() {
    let (registry, mut responder) = server(1);
    let (client, peer, _server) = client(&registry);
    let region = registry.clients()[0].clone().expect("it is there");
    assert!(!region.wake_client(), "it is awake");
    let sleeping = std::thread::spawn(move || {
        let mut sleeps = 0;
        while !client.has_reply() {
            client.sleep(std::time::Duration::from_secs(60)).expect("a futex");
            sleeps += 1;
        }
        (client, sleeps)
    });
    assert_eq!(responder.reply(peer, 0, &[IoSlice::new(b"wake up")], 0), Posted::Done);
    responder.pump().expect("it is woken, or awake still");
    let (mut client, sleeps) = sleeping.join().expect("it woke");
    assert!(sleeps <= 1, "{sleeps} sleeps for one reply");
    assert_eq!(replies(&mut client).len(), 1);
    // A timeout is an end, too.
    client.sleep(std::time::Duration::from_millis(1)).expect("a futex");
}

#[test]
fn who_came_by_a_door_that_is_no_more_is_a_client_no_more() {
    let mut house = House::new("dropped", 1);
    let client = house.enter().expect("it is let in");
    let registry = house.registry.clone();
    assert_eq!(registry.count(), 1);
    drop(house);
    assert_eq!(registry.count(), 0);
    assert!(client.is_server_gone());
}

#[test]
fn a_dropped_stop_closes_the_door() {
    let mut house = House::new("stop", 1);
    house.stop = None;
    assert_eq!(house.door.turn(None, || 0).expect("it turns"), Turned::Closed);
}
