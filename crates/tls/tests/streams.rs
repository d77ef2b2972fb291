//! An encrypted stream keeps the promises of a stream, wherever the bytes below it are cut: what
//! goes in comes out, a read that brings less than it had room for has emptied all, and what was
//! not told as written is written once.

use laneway_certs::{self as certs, Authority, ClientEnd, TERMS, VERSIONS};
use laneway_tls::{Acceptor, EitherStream, EitherTransport, Progress, TlsStream};
use laneway_transport::Transport;
use laneway_transport::memory::{Faults, MemoryStream, MemoryTransport, Net};
use laneway_transport::{Interest, Ready, Stream, Token, Wait};
use proptest::prelude::*;
use std::io::{ErrorKind, IoSlice};
use std::sync::LazyLock;

const TOKEN: Token = Token { slot: 0, generation: 0 };
/// Turns without progress after which two ends hang.
const TURNS_MAX: usize = 100_000;

struct World {
    authority: Authority,
    acceptor: Acceptor,
}

static WORLD: LazyLock<World> = LazyLock::new(|| {
    let authority = Authority::new("tests");
    let identity = certs::identity(&authority.pair(), &TERMS, None);
    World { authority, acceptor: Acceptor::new(identity, TERMS) }
});

/// Both ends of a connection, and the server's transport.
struct Ends {
    server: TlsStream<MemoryStream>,
    client: TlsStream<ClientEnd>,
    transport: MemoryTransport,
}

fn ends(faults: Faults, version: usize) -> Ends {
    let net = Net::new(faults);
    let config = WORLD.authority.client(VERSIONS[version], None);
    let client = certs::client(net.connect(), &config);
    let mut transport = net.transport();
    transport.watch_listeners(true).expect("memory");
    let stream = transport.accept(0).expect("memory").expect("a client has come");
    let server = WORLD.acceptor.stream(stream).expect("a session");
    Ends { server, client, transport }
}

/// Ends whose handshake is over.
fn shaken(faults: Faults, version: usize) -> Ends {
    let mut ends = ends(faults, version);
    for _ in 0..TURNS_MAX {
        let ours = ends.server.handshake().expect("a good client");
        let theirs = ends.client.handshake().expect("a good server");
        if ours == Progress::Done && theirs == Progress::Done {
            assert_eq!(ends.server.version(), Some(VERSIONS[version].version));
            return ends;
        }
        if theirs == Progress::Done {
            // Tickets come behind its handshake.
            let nothing = ends.client.read(&mut [0; 8]).expect_err("nothing was sent");
            assert_eq!(nothing.kind(), ErrorKind::WouldBlock);
        }
    }
    panic!("the handshake hangs");
}

/// Bytes that tell where they belong.
fn bytes(count: usize, salt: u8) -> Vec<u8> {
    (0..count).map(|at| (at as u8).wrapping_mul(31) ^ (at >> 8) as u8 ^ salt).collect()
}

/// Write a part of `all` from `sent` on, in pieces.
fn write_some(stream: &mut impl Stream, all: &[u8], sent: &mut usize, lengths: &[usize]) -> bool {
    let mut pieces = Vec::new();
    let mut at = *sent;
    for length in lengths {
        let end = (at + length).min(all.len());
        pieces.push(IoSlice::new(&all[at..end]));
        at = end;
    }
    if at == *sent {
        return true;
    }
    match stream.write(&pieces) {
        Ok(told) => {
            assert!(told <= at - *sent);
            *sent += told;
            told == at - (*sent - told)
        }
        Err(error) if error.kind() == ErrorKind::WouldBlock => false,
        Err(error) => panic!("{error}"),
    }
}

/// Read once into this much room; what came, and whether that was all.
fn read_some(stream: &mut impl Stream, room: usize, into: &mut Vec<u8>) -> bool {
    let mut buffer = vec![0; room];
    match stream.read(&mut buffer) {
        Ok(0) => panic!("it ended after {}", into.len()),
        Ok(count) => {
            into.extend_from_slice(&buffer[..count]);
            count < room
        }
        Err(error) if error.kind() == ErrorKind::WouldBlock => true,
        Err(error) if error.kind() == ErrorKind::Interrupted => false,
        Err(error) => panic!("{error}"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// Both ways at once. The server reads and writes as a worker does: only when it was told, and
    /// on until a read brings less than it had room for or a write is not taken whole.
    #[test]
    fn what_goes_in_comes_out(
        seed in 1u64..,
        short in 0u8..200,
        refuse in 0u8..100,
        pipe_bytes in 300usize..40_000,
        version in 0usize..2,
        (up, down) in (0usize..120_000, 0usize..120_000),
        lengths in prop::collection::vec(0usize..20_000, 1..5),
        rooms in prop::collection::vec(1usize..40_000, 1..4),
    ) {
        let mut ends = shaken(Faults { seed, short, refuse, reset: 0, pipe_bytes }, version);
        let (up, down) = (bytes(up, 1), bytes(down, 2));
        let (mut up_sent, mut down_sent) = (0, 0);
        let (mut up_got, mut down_got) = (Vec::new(), Vec::new());
        let (mut reads, mut writes) = (true, true);
        let attached = ends.transport.attach(ends.server.inner(), TOKEN, Interest::Read);
        attached.expect("memory");
        let mut interest = Interest::Read;
        let mut ready = Vec::new();
        for turn in 0..TURNS_MAX {
            if up_got.len() == up.len() && down_got.len() == down.len() {
                break;
            }
            let room = rooms[turn % rooms.len()];
            write_some(&mut ends.client, &up, &mut up_sent, &lengths);
            read_some(&mut ends.client, room, &mut down_got);
            // The server.
            if reads && interest == Interest::Read {
                let is_dry = read_some(&mut ends.server, room, &mut up_got);
                reads = !is_dry || ends.server.has_more();
            }
            if writes {
                writes = write_some(&mut ends.server, &down, &mut down_sent, &lengths);
            }
            let wanted = if writes { Interest::Read } else { Interest::Write };
            if wanted != interest {
                interest = wanted;
                let rearmed = ends.transport.rearm(ends.server.inner(), TOKEN, interest);
                rearmed.expect("memory");
                // As `EitherTransport` tells it.
                reads |= interest == Interest::Read && ends.server.has_more();
            }
            ready.clear();
            ends.transport.poll(&mut ready, 8, Wait::No).expect("memory");
            for event in &ready {
                assert!(matches!(event, Ready::Stream(TOKEN)), "{event:?}");
                match interest {
                    Interest::Write => writes = true,
                    _ => reads = true,
                }
            }
        }
        prop_assert_eq!(up_got.len(), up.len(), "the server hangs");
        prop_assert_eq!(down_got.len(), down.len(), "the client hangs");
        prop_assert!(up_got == up && down_got == down);
    }
}

#[test]
fn a_write_that_the_socket_has_not_taken_is_told_as_unfinished_and_sent_once() {
    for version in 0..2 {
        let faults = Faults { pipe_bytes: 20_000, ..Faults::NONE };
        let mut ends = shaken(faults, version);
        let all = bytes(25_000, 3);
        // All of it is encrypted, and the pipe holds less: the last byte is owed.
        let told = ends.server.write(&[IoSlice::new(&all)]).expect("there is some room");
        assert_eq!(told, all.len() - 1);
        let again = ends.server.write(&[IoSlice::new(&all[told..])]);
        assert_eq!(again.expect_err("no room").kind(), ErrorKind::WouldBlock);
        let mut got = Vec::new();
        while !read_some(&mut ends.client, 50_000, &mut got) {}
        assert!(got.len() < all.len());
        assert_eq!(ends.server.write(&[IoSlice::new(&all[told..])]).expect("room"), 1);
        while got.len() < all.len() {
            read_some(&mut ends.client, 50_000, &mut got);
        }
        assert_eq!(got, all);
    }
}

#[test]
fn a_peer_that_does_not_read_keeps_two_records_in_memory_whatever_is_written() {
    let mut ends = shaken(Faults { pipe_bytes: 1000, ..Faults::NONE }, 1);
    let all = bytes(4 << 20, 4);
    let mut sent = 0;
    for _ in 0..100 {
        write_some(&mut ends.server, &all, &mut sent, &[4 << 20]);
    }
    assert!(sent <= 32 << 10, "{sent} bytes were taken from who writes");
}

#[test]
fn what_lies_decrypted_is_told_by_the_stream_alone() {
    let mut ends = shaken(Faults::NONE, 1);
    let mut sent = 0;
    assert!(write_some(&mut ends.client, &bytes(1000, 5), &mut sent, &[1000]));
    let mut got = Vec::new();
    assert!(!read_some(&mut ends.server, 100, &mut got), "the room is full");
    assert!(ends.server.has_more());
    assert!(read_some(&mut ends.server, 2000, &mut got));
    assert!(!ends.server.has_more());
    assert_eq!(got, bytes(1000, 5));
}

#[test]
fn the_end_that_came_with_the_last_bytes_is_told_though_the_socket_stays_open() {
    for version in 0..2 {
        let mut ends = shaken(Faults::NONE, version);
        let mut sent = 0;
        write_some(&mut ends.client, b"last words", &mut sent, &[10]);
        let Ends { mut server, client, .. } = ends;
        drop(client); // says that it ends; a client in memory leaves its socket open
        let mut buffer = [0; 64];
        assert_eq!(server.read(&mut buffer).expect("bytes"), 10);
        assert!(server.has_more(), "no event will tell of the end");
        assert_eq!(server.read(&mut buffer).expect("the end"), 0);
    }
}

#[test]
fn bytes_that_were_changed_on_the_way_end_the_connection() {
    let mut ends = shaken(Faults::NONE, 1);
    // A record of the right form that nobody has sealed.
    let mut record = vec![23, 3, 3, 0, 40];
    record.extend(bytes(40, 6));
    assert_eq!(ends.client.inner().0.send(&record), record.len());
    let error = ends.server.read(&mut [0; 64]).expect_err("it is forged");
    assert_eq!(error.kind(), ErrorKind::InvalidData);
    let error = ends.server.write(&[IoSlice::new(b"x")]).expect_err("it is over");
    assert_eq!(error.kind(), ErrorKind::BrokenPipe);
}

/// What came before them is what the client has asked.
#[test]
fn bytes_before_those_that_were_changed_are_read_though_they_come_together() {
    for version in 0..2 {
        let mut ends = shaken(Faults::NONE, version);
        let sent = bytes(10, 7);
        assert_eq!(ends.client.write(&[IoSlice::new(&sent)]).expect("room"), sent.len());
        let mut record = vec![23, 3, 3, 0, 40];
        record.extend(bytes(40, 6));
        assert_eq!(ends.client.inner().0.send(&record), record.len());
        let mut got = Vec::new();
        for _ in 0..3 {
            assert!(got.is_empty() || ends.server.has_more(), "no event will tell of it");
            read_some(&mut ends.server, 4, &mut got);
        }
        assert_eq!(got, sent);
        let error = ends.server.read(&mut [0; 4]).expect_err("the next is forged");
        assert_eq!(error.kind(), ErrorKind::InvalidData);
    }
}

#[test]
fn a_stream_is_told_of_once_though_both_the_session_and_the_socket_have_something() {
    let Ends { mut server, mut client, transport } = shaken(Faults::NONE, 0);
    let mut transport = EitherTransport::new(transport);
    assert_eq!(client.write(&[IoSlice::new(&[1; 100])]).expect("room"), 100);
    assert_eq!(server.read(&mut [0; 10]).expect("they have come"), 10);
    assert_eq!(client.write(&[IoSlice::new(&[2; 100])]).expect("room"), 100);
    let stream = EitherStream::Tls(Box::new(server));
    transport.attach(&stream, TOKEN, Interest::Read).expect("memory");
    let mut ready = Vec::new();
    transport.poll(&mut ready, 32, Wait::No).expect("memory");
    let told = ready.iter().filter(|ready| matches!(ready, Ready::Stream(TOKEN))).count();
    assert_eq!(told, 1, "{ready:?}");
}

#[test]
fn what_lies_decrypted_in_many_streams_keeps_nothing_from_being_told_of_sockets() {
    const ENCRYPTED: u32 = 40;
    let net = Net::new(Faults::NONE);
    let config = WORLD.authority.client(VERSIONS[1], None);
    let mut transport = EitherTransport::new(net.transport());
    let accepted = || {
        let stream = net.transport().accept(0).expect("memory");
        stream.expect("a client has come")
    };
    let mut all = Vec::new();
    for slot in 0..ENCRYPTED {
        let mut client = certs::client(net.connect(), &config);
        let mut server = WORLD.acceptor.stream(accepted()).expect("a session");
        let mut is_done = false;
        while !is_done {
            let theirs = client.handshake().expect("good");
            let ours = server.handshake().expect("good");
            is_done = (ours, theirs) == (Progress::Done, Progress::Done);
        }
        assert_eq!(client.write(&[IoSlice::new(&[1; 100])]).expect("room"), 100);
        assert_eq!(server.read(&mut [0; 10]).expect("they have come"), 10);
        let stream = EitherStream::Tls(Box::new(server));
        let token = Token { slot, generation: 0 };
        transport.attach(&stream, token, Interest::Read).expect("memory");
        all.push((stream, client));
    }
    let client = net.connect();
    client.send(b"get k\r\n");
    let stream = EitherStream::Plain(accepted());
    let token = Token { slot: ENCRYPTED, generation: 0 };
    transport.attach(&stream, token, Interest::Read).expect("memory");
    let mut ready = Vec::new();
    transport.poll(&mut ready, 32, Wait::No).expect("memory");
    assert!(ready.contains(&Ready::Stream(token)), "{ready:?}");
    // And nobody is forgotten for it.
    while transport.has_to_tell() {
        transport.poll(&mut ready, 32, Wait::No).expect("memory");
    }
    assert_eq!(ready.len(), ENCRYPTED as usize + 1, "{ready:?}");
}

#[test]
fn records_that_bring_little_hold_nobody_for_long() {
    // As many bytes as would fit the room, in so many records that they take many reads: the stream
    // gives the turn back before all of them are read, and says that there is more.
    const RECORDS: usize = 80_000;
    const ROOM: usize = 1 << 20;
    let mut ends = shaken(Faults { pipe_bytes: 4 << 20, ..Faults::NONE }, 0);
    for number in 0..RECORDS {
        let byte = [number as u8];
        assert_eq!(ends.client.write(&[IoSlice::new(&byte)]).expect("the pipe has room"), 1);
    }
    let mut room = vec![0; ROOM];
    let (mut read, mut turns) = (0, 0);
    while read < RECORDS {
        let bytes = ends.server.read(&mut room).expect("there is more");
        let expected = (read..read + bytes).map(|number| number as u8);
        assert!(room[..bytes].iter().copied().eq(expected));
        (read, turns) = (read + bytes, turns + 1);
        assert!(read == RECORDS || ends.server.has_more());
    }
    assert!(1 < turns, "one turn had to read everything");
}

#[test]
fn a_session_is_taken_up_again_by_both_versions() {
    for (version, _) in VERSIONS.iter().enumerate() {
        let config = WORLD.authority.client(VERSIONS[version], None);
        let mut resumed = Vec::new();
        for _ in 0..2 {
            let net = Net::new(Faults::NONE);
            let mut client = certs::client(net.connect(), &config);
            let mut transport = net.transport();
            let stream = transport.accept(0).expect("memory").expect("a client");
            let mut server = WORLD.acceptor.stream(stream).expect("a session");
            let mut is_done = false;
            while !is_done {
                let theirs = client.handshake().expect("good");
                let ours = server.handshake().expect("good");
                is_done = (ours, theirs) == (Progress::Done, Progress::Done);
            }
            // Tickets of 1.3 come behind the handshake.
            server.write(&[IoSlice::new(b"x")]).expect("room");
            assert_eq!(client.read(&mut [0; 8]).expect("a byte"), 1);
            resumed.push(server.is_resumed());
        }
        assert_eq!(resumed, [false, true], "{:?}", VERSIONS[version]);
    }
}
