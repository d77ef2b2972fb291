//! What slow clients make a server hold beside `-m` is within the bounds that docs/operating.md
//! states under "Memory": 1 024 connections whose clients read nothing, and as many halves of
//! messages in datagrams as there is room for.
//!
//! Memory is told by the capacities of the connections' buffers, by the account of datagrams, and
//! by the store. What the allocator adds is in none of them; `cargo xtask faults slow-readers`
//! looks at the process.

use laneway_rig as rig;

use laneway_policy::Form;
use laneway_transport::memory::Faults;
use laneway_transport::memory_datagram::DatagramFaults;
use laneway_wire::udp::{FRAME_BYTES_MAX, Header, Kind, TRAIN_FRAMES_MAX};
use rig::peer::{Peer, count};
use rig::{Plan, Rig, hit, value};

const WORKERS: usize = 4;
const READERS: usize = 1024;
const ROUNDS: usize = 6;
/// What a pipe between client and server holds, each way.
const PIPE_BYTES: usize = 8 << 10;
/// Below the threshold, and copied into the replies: the third one ends the turn.
const SMALL_BYTES: usize = 15_000;
const LARGE_BYTES: usize = 1 << 20;

/// Input and replies of a connection: docs/operating.md.
const CONNECTION_BYTES: usize = (32 + 49) << 10;
/// What `-m` may be exceeded by: the first chunk of 80 sizes.
const CHUNKS_BYTES: u64 = 80 * (256 << 10);

/// Frames of a message, of which one in so many comes: each takes the room of all of these.
const FRAMES: u16 = 6_000;
/// Messages that begin in a round, for all workers alike; together more than there is room for.
const MESSAGES: usize = WORKERS;

fn is_within(rig: &Rig, what: &str) {
    let (most, all) = rig.connection_bytes();
    assert!(most <= CONNECTION_BYTES, "{what}: a connection holds {most} bytes");
    assert!(all <= (READERS + 1) * CONNECTION_BYTES, "{what}: connections hold {all} bytes");
    let buffers = &rig.shared.udp.get().expect("the rig serves datagrams").buffers;
    let (held, most) = (buffers.held(), buffers.most());
    assert!(held <= most, "{what}: messages hold {held} bytes, {most} at most");
    let stats = rig.shared.store.stats();
    let bytes = stats.pool_bytes + stats.index_bytes;
    assert!(bytes <= stats.limit_bytes + CHUNKS_BYTES, "{what}: the store has {bytes} bytes");
    assert_eq!(stats.unpublished_bytes, 0, "{what}");
}

/// One frame of each stretch of a message.
fn begin_message(rig: &mut Rig, peer: &Peer, queue: usize, request_id: u16) {
    let payload = vec![b'x'; FRAME_BYTES_MAX];
    for (number, sequence) in (0..FRAMES).step_by(TRAIN_FRAMES_MAX).enumerate() {
        let header = Header { request_id, sequence, total: FRAMES, kind: Kind::Data };
        peer.datagram(queue, header, &payload);
        if number % 16 == 15 {
            rig.turn();
        }
    }
    rig.turns(3);
}

#[test]
fn slow_readers_and_halves_of_messages_take_no_more_than_is_stated() {
    let mut rig = Rig::new(&Plan {
        faults: Faults { pipe_bytes: PIPE_BYTES, ..Faults::NONE },
        connections_max: READERS + 10,
        datagrams: Some(DatagramFaults::NONE),
        ..Plan::of(WORKERS, Form::TimeShare)
    });
    let other = rig.net.connect();
    let small = value(SMALL_BYTES, 1);
    rig.set(&other, "small", &small);
    let readers: Vec<_> = (0..READERS).map(|_| rig.net.connect()).collect();
    let asked = [&b"get small\r\n"[..], b"get large\r\n", b"get small\r\nget large\r\n"];
    let asked = asked.map(|request| request.repeat(10_000));
    let mut sent = vec![0; READERS];
    let buffers = rig.shared.udp.get().expect("the rig serves datagrams").buffers.clone();
    let peers: Vec<Peer> = (0..MESSAGES).map(|_| Peer::new(&rig)).collect();
    for round in 0..ROUNDS {
        // Who is being sent the one before this keeps it.
        rig.set(&other, "large", &value(LARGE_BYTES, round as u64));
        for _ in 0..4 {
            for (number, (reader, sent)) in readers.iter().zip(&mut sent).enumerate() {
                *sent += reader.send(&asked[number % asked.len()][*sent..]);
            }
            rig.turns(40);
            is_within(&rig, &format!("round {round}"));
        }
        for (queue, peer) in peers.iter().enumerate() {
            begin_message(&mut rig, peer, queue, round as u16);
            is_within(&rig, &format!("round {round}, a message for worker {queue}"));
        }
        let got = rig.ask(&other, b"get small\r\n", b"END\r\n");
        assert!(got == [hit("small", &small), b"END\r\n".to_vec()].concat(), "round {round}");
    }
    // Readers hold what they can, and the messages what there is.
    let more = readers.iter().zip(&sent).enumerate();
    let more = more.map(|(number, (reader, sent))| reader.send(&asked[number % 3][*sent..]));
    assert_eq!(more.sum::<usize>(), 0, "all pipes are full, and nobody reads from them");
    let (_, all) = rig.connection_bytes();
    assert!(all > READERS / 3 * (24 << 10), "{all} bytes are held");
    assert!(rig.shared.store.stats().pinned_dead_bytes > 0, "replaced values are kept");
    let (held, most) = (buffers.held(), buffers.most());
    assert!(most - held < 5 << 20, "messages hold {held} bytes of {most}");
    assert!(count(&rig, "frames_no_room") > 0, "more have come than there is room for");

    readers.iter().for_each(|reader| reader.reset());
    rig.turns(1_000);
    assert_eq!(rig.connection_bytes(), (0, 0), "of those who have gone nothing is left");
    assert_eq!(rig.shared.store.stats().pinned_dead_bytes, 0);
    for _ in 0..2 {
        rig.clock.advance(3_000_000_000);
        rig.turns(10);
    }
    assert_eq!(buffers.held(), 0, "messages that stand still are given up");
}
