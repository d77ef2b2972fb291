//! Memory that a server on the same host shares with this client (HERD's way, over
//! [`laneway_rdma`]): requests are written into slots, replies taken out of others, and what is too
//! long for a slot is lent; a long reply lies in memory of its own, of which a notice tells. One
//! request is one write here and one message back.
//!
//! It knows no clock, and no request: the core's datagrams go in and out as they are.

use crate::core::Core;
use crate::told::{Notice, Told};
use crate::waiting::{Waiting, end_loans, lent_id, posted};
use laneway_rdma::contract::{Descriptor, Requester};
use laneway_rdma::shmring::{LyingReply, RingRequester};
use laneway_wire::udp::HEADER_BYTES;
use std::collections::BTreeMap;
use std::io;
use std::ops::Range;

/// Replies taken before time is looked at again.
const BURST: usize = 64;

/// How often a reply is looked for that was told: it lies there already, or not any more.
const LOOKS_AT_REPLY: u32 = 1;

/// The link between a [`Core`] and the server in memory, for whoever has a loop of their own.
pub struct Memory {
    ring: RingRequester,
    /// What is lent, by the id of its request.
    lent: BTreeMap<u16, Descriptor>,
    waiting: Waiting,
    /// Replies that lie where their notices say.
    told: Told<Descriptor>,
    /// The next value that lies so is left there, and the one that was.
    leaves: bool,
    left: Option<Left>,
}

/// A value that was left where it lies.
pub(crate) struct Left {
    said: Descriptor,
    /// Which bytes of its reply it is.
    pub(crate) range: Range<usize>,
    /// Queue, id and frames of its reply.
    pub(crate) name: (u16, u16, u16),
}

impl Memory {
    /// The client's side of a region, with nothing under way.
    pub fn new(ring: RingRequester) -> Memory {
        Memory {
            ring,
            lent: BTreeMap::new(),
            waiting: Waiting::default(),
            told: Told::new(LOOKS_AT_REPLY),
            leaves: false,
            left: None,
        }
    }

    /// Whether the value of the next long reply is left where it lies ([`Core::leave_lying`]).
    pub(crate) fn leave_next(&mut self, leaves: bool) {
        self.leaves = leaves;
    }

    /// The one that was left, once.
    pub(crate) fn left(&mut self) -> Option<Left> {
        self.left.take()
    }

    /// The reply of a value that was left, if it is there still.
    pub(crate) fn reply(&self, left: &Left) -> Option<LyingReply<'_>> {
        self.ring.open_reply(left.said)
    }

    /// The region.
    pub fn ring(&self) -> &RingRequester {
        &self.ring
    }

    /// Sends everything that the core has to send now.
    pub fn send(&mut self, core: &mut Core, now_nanos: u64) -> io::Result<()> {
        let Memory { ring, lent, waiting, .. } = self;
        end_loans(lent, core, |_, descriptor| ring.take_back(*descriptor));
        waiting.send(core, now_nanos, |core, queue, bytes| post(ring, lent, core, queue, bytes))?;
        ring.pump()
    }

    /// Waits until something has come, and at most so long; an error if the server is gone.
    pub fn wait(&mut self, nanos: u64) -> io::Result<()> {
        let sleep = self.waiting.sleep(nanos, false, || self.ring.has_reply());
        let Some(most) = sleep else { return Ok(()) };
        self.ring.sleep(most)?;
        if !self.ring.has_reply() && self.ring.is_server_gone() {
            return Err(gone());
        }
        Ok(())
    }

    /// Feeds the core what has come. Whether there may be more.
    pub fn receive(&mut self, core: &mut Core, now_nanos: u64) -> io::Result<bool> {
        let Memory { ring, told, leaves, left, .. } = self;
        let mut hear = |queue: usize, bytes: &[u8]| {
            told.hear(core, (queue, bytes), now_nanos, Descriptor::parse);
        };
        let count = ring.poll_replies(BURST, &mut hear);
        told.open(core, |core, Notice { queue, id, total, said, .. }| {
            let Some(reply) = ring.open_reply(*said) else { return false };
            let name = (*queue, *id, *total);
            if std::mem::take(leaves)
                && let Some(range) = core.leave_lying((*queue, *id), &reply, now_nanos)
            {
                *left = Some(Left { said: *said, range, name });
                return true;
            }
            core.feed_lying(name, &reply, now_nanos)
        });
        core.put_off(now_nanos, |id| ring.is_writing(id));
        ring.pump()?;
        Ok(count == BURST)
    }
}

/// Posts one datagram, and lends the request of which it says so. False: no room.
fn post(
    ring: &mut RingRequester,
    lent: &mut BTreeMap<u16, Descriptor>,
    core: &Core,
    queue: u16,
    bytes: &[u8],
) -> io::Result<bool> {
    let queue = usize::from(queue);
    let Some(id) = lent_id(bytes) else {
        return posted(ring.post_request(queue, bytes), gone);
    };
    // Before anything is lent.
    if !ring.has_room(queue) {
        return Ok(false);
    }
    let descriptor = match lent.get(&id) {
        Some(descriptor) => ring.lend_again(*descriptor),
        None => {
            let Some(pieces) = core.lent_message(id) else { return Ok(true) };
            match ring.lend_pieces(&pieces) {
                Some(descriptor) => descriptor,
                None => return Ok(false),
            }
        }
    };
    lent.insert(id, descriptor);
    let said = [&bytes[..HEADER_BYTES], &descriptor.to_bytes()].concat();
    posted(ring.post_request(queue, &said), gone)
}

fn gone() -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionReset, "the server behind the shared memory is gone")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answer::{Answer, Value};
    use crate::error::Error;
    use crate::found::Found;
    use crate::request::Request;
    use crate::settings::{MILLISECOND, SECOND, Settings};
    use crate::topology::Topology;
    use laneway_rdma::contract::{Moved, Peer, Posted, Responder as _};
    use laneway_rdma::door;
    use laneway_rdma::layout::Terms;
    use laneway_rdma::region::Registry;
    use laneway_rdma::shmring::RingResponder;
    use laneway_wire::udp::frames::frames;
    use laneway_wire::udp::{Header, Kind};
    use std::io::IoSlice;
    use std::os::unix::net::UnixStream;
    use std::sync::Arc;

    #[test]
    fn what_waits_for_room_does_not_leave_once_its_request_is_given_up() {
        let terms = Terms { window: 1, replies: 2, loans: 1, ..Terms::of(1, 8192) };
        let requests = [
            Request::set("k", "v"),
            Request::set("k", vec![7; 5000]),
            Request::increment("k", 1),
            Request::get("k"),
        ];
        for (request, is_told) in requests.iter().flat_map(|one| [(one, true), (one, false)]) {
            let World { mut memory, mut core, mut server, _door, .. } = World::of(terms);
            for request in [&Request::get("other"), request] {
                core.push(request.clone(), 0).expect("it is a fine request");
                memory.send(&mut core, 0).expect("memory does not fail");
            }
            assert!(memory.waiting.is_any(), "the only slot is taken");
            // The server stands still meanwhile, and perhaps this process, too.
            let late_nanos = 60 * SECOND;
            if is_told {
                core.tick(late_nanos);
            }
            assert_eq!(server.poll_slots(0, 8), 1, "it goes on");
            memory.send(&mut core, late_nanos).expect("memory does not fail");
            assert_eq!(server.poll_slots(0, 8), 0, "{request:?}, {is_told}");
            core.tick(late_nanos);
            let answers = std::iter::from_fn(|| core.answer());
            assert_eq!(answers.filter(|(_, answer)| answer.is_err()).count(), 2);
            assert!(core.is_idle() && !memory.waiting.is_any());
        }
    }

    /// A client and its server, which answers by hand.
    struct World {
        memory: Memory,
        core: Core,
        server: RingResponder,
        peer: Peer,
        _door: UnixStream,
    }

    impl World {
        fn of(terms: Terms) -> World {
            let registry = Arc::new(Registry::new(terms, 1));
            let (given, peer, _door) = door::join(&registry).expect("memory").expect("a place");
            let server = RingResponder::new(registry, 0);
            let topology = Topology::in_memory(1, terms.bulk_bytes);
            let core = Core::new(Settings::in_memory(), topology, 1);
            World { memory: Memory::new(RingRequester::new(given)), core, server, peer, _door }
        }

        /// One that has asked for a value, and by which id.
        fn asking() -> (World, u16) {
            let mut world = World::of(Terms::of(1, 64 << 10));
            world.core.push(Request::get("k"), 0).expect("it is a fine request");
            let id = world.sent(0)[0].request_id;
            (world, id)
        }

        /// Of what kinds that is which the client sends now.
        fn kinds(&mut self, now_nanos: u64) -> Vec<Kind> {
            self.sent(now_nanos).iter().map(|header| header.kind).collect()
        }

        /// What the client sends now.
        fn sent(&mut self, now_nanos: u64) -> Vec<Header> {
            self.memory.send(&mut self.core, now_nanos).expect("memory does not fail");
            let count = self.server.poll_slots(0, 8);
            let header = |at| Header::parse(self.server.request(at).bytes).expect("a header").0;
            (0..count).map(header).collect()
        }

        /// The server's reply to a `get`, in its place, told of.
        fn place(&mut self, id: u16, value: &[u8]) {
            let line = format!("VALUE k 7 {}\r\n", value.len());
            let reply = [line.as_bytes(), value, b"\r\nEND\r\n"].concat();
            let placed = self.server.lenders().place(self.peer, id, reply.len(), 0);
            let mut placed = placed.expect("there is room");
            assert_eq!(placed.write(&[IoSlice::new(&reply)]), Moved::Done);
            let told = placed.notice(0).expect("it is in time");
            let total = frames(reply.len()).expect("it is not so long");
            let header = Header { request_id: id, sequence: 0, total, kind: Kind::Notice };
            let header = header.to_bytes();
            let pieces = [IoSlice::new(&header), IoSlice::new(&told)];
            assert_eq!(self.server.reply(self.peer, 0, &pieces, 0), Posted::Done);
        }

        fn receive(&mut self) -> Option<Result<Answer, Error>> {
            self.memory.receive(&mut self.core, 0).expect("memory does not fail");
            self.core.answer().map(|(_, answer)| answer)
        }
    }

    #[test]
    fn a_value_is_copied_out_of_its_place_or_left_there_until_it_was_taken() {
        let data: Vec<u8> = (0..5000).map(|at| (at * 7) as u8).collect();
        for leaves in [false, true] {
            let (mut world, id) = World::asking();
            world.memory.leave_next(leaves);
            world.place(id, &data);
            let answer = world.receive().expect("it is there").expect("it is a value");
            let wanted = if leaves { Vec::new() } else { data.clone() };
            assert_eq!(answer, Answer::Value(Value { data: wanted, flags: 7, cas: None }));
            let left = world.memory.left();
            assert_eq!(left.is_some(), leaves);
            if let Some(left) = left {
                assert!(world.sent(0).is_empty(), "nothing was taken yet");
                let reply = world.memory.reply(&left).expect("it is there still");
                let found = Found::lying(&reply, left.range.clone());
                for (from, length) in [(0, 5000), (1, 4999), (3, 20), (4997, 3), (5000, 0)] {
                    let mut copy = vec![0; length];
                    found.copy(from, &mut copy);
                    assert!(copy == data[from..from + length], "{length} from {from}");
                }
                assert!(reply.is_there() && found.as_slice().is_none());
                world.core.has_taken(left.name);
            }
            let sent = world.sent(0);
            assert_eq!(sent.iter().map(|header| header.kind).collect::<Vec<_>>(), [Kind::Forget]);
            assert_eq!(sent[0].request_id, id);
        }
    }

    #[test]
    fn a_reply_that_is_being_placed_is_not_asked_for_again() {
        for is_placed in [true, false] {
            let (mut world, id) = World::asking();
            let data = vec![7; 5000];
            let reply = [&b"VALUE k 0 5000\r\n"[..], &data, b"\r\nEND\r\n"].concat();
            let placed = world.server.lenders().place(world.peer, id, reply.len(), 0);
            // It takes much longer than any reply before.
            let sent_after = |world: &mut World| {
                let now_nanos = world.core.wake_nanos().expect("it is under way");
                world.memory.receive(&mut world.core, now_nanos).expect("memory does not fail");
                world.core.tick(now_nanos);
                world.sent(now_nanos)
            };
            for _ in 0..10 {
                assert!(sent_after(&mut world).is_empty());
            }
            assert_eq!(world.core.counts().retries, 0);
            drop(placed.expect("there is room"));
            if is_placed {
                world.place(id, &data);
                let answer = world.receive().expect("it is there").expect("it is a value");
                assert_eq!(answer, Answer::Value(Value { data, flags: 7, cas: None }));
            } else {
                // Its writer has let go of it, and whoever waits asks once more.
                let sent = sent_after(&mut world);
                assert_eq!(sent.iter().map(|sent| sent.kind).collect::<Vec<_>>(), [Kind::Data]);
                assert_ne!(sent[0].request_id, id);
            }
        }
    }

    #[test]
    fn a_reply_in_memory_is_no_longer_than_the_settings_allow() {
        for leaves in [false, true] {
            let (mut world, id) = World::asking();
            world.core.settings_mut().reply_message_bytes_max = 4000;
            world.memory.leave_next(leaves);
            world.place(id, &[7; 5000]);
            assert!(matches!(world.receive(), Some(Err(Error::ReplyTooLong))));
            assert_eq!(world.kinds(0), [Kind::Forget]);
        }
    }

    #[test]
    fn frames_are_asked_for_of_a_reply_whose_place_has_ended() {
        for leaves in [false, true] {
            let (mut world, id) = World::asking();
            world.memory.leave_next(leaves);
            world.place(id, &[7; 5000]);
            world.server.lenders().taken(world.peer, id);
            assert!(world.receive().is_none() && world.memory.left().is_none());
            assert!(!world.memory.told.is_any(), "it does not come back");
            let mut kinds = Vec::new();
            // What reaches to a message's end is waited for once before it is asked for.
            for _ in 0..2 {
                let now_nanos = world.core.wake_nanos().expect("it is under way");
                world.core.tick(now_nanos);
                kinds.extend(world.kinds(now_nanos));
            }
            assert_eq!(kinds, [Kind::Resend]);
        }
    }

    #[test]
    fn what_is_short_goes_past_what_waits_for_memory_to_lend() {
        let terms = Terms { window: 8, replies: 16, loans: 1, ..Terms::of(1, 8192) };
        let World { mut memory, mut core, mut server, _door, .. } = World::of(terms);
        for number in 0..3 {
            let long = Request::set(format!("long:{number}"), vec![7; 5000]);
            core.push(long, 0).expect("it is a fine request");
        }
        // One behind the other, as fast as long requests leave.
        for now_nanos in [0, MILLISECOND] {
            memory.send(&mut core, now_nanos).expect("memory does not fail");
        }
        assert_eq!((server.poll_slots(0, 8), memory.waiting.is_any()), (1, true), "one is lent");
        for number in 0..3 {
            core.push(Request::get(format!("short:{number}")), 0).expect("it is a fine request");
        }
        memory.send(&mut core, MILLISECOND).expect("memory does not fail");
        assert_eq!(server.poll_slots(0, 8), 3);
        let is_short = |index| server.request(index).bytes.windows(5).any(|word| word == b"short");
        assert!((0..3).all(is_short));
    }
}
