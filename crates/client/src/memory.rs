//! Memory that a server on the same host shares with this client (HERD's way, over
//! [`laneway_rdma`]): requests are written into slots, replies taken out of others, and what is too
//! long for a slot is lent. One request is one write here and one message back.
//!
//! It knows no clock, and no request: the core's datagrams go in and out as they are.

use crate::core::Core;
use crate::waiting::Waiting;
use laneway_rdma::contract::{Descriptor, MESSAGE_BYTES_MAX, Posted, Requester};
use laneway_rdma::shmring::RingRequester;
use laneway_wire::udp::{HEADER_BYTES, Header};
use std::collections::BTreeMap;
use std::io;

/// Replies taken before time is looked at again.
const BURST: usize = 64;

/// The link between a [`Core`] and the server in memory, for whoever has a loop of their own.
pub struct Memory {
    ring: RingRequester,
    /// What is lent, by the id of its request.
    lent: BTreeMap<u16, Descriptor>,
    waiting: Waiting,
}

impl Memory {
    /// The client's side of a region, with nothing under way.
    pub fn new(ring: RingRequester) -> Memory {
        Memory { ring, lent: BTreeMap::new(), waiting: Waiting::default() }
    }

    /// The region.
    pub fn ring(&self) -> &RingRequester {
        &self.ring
    }

    /// Sends everything that the core has to send now.
    pub fn send(&mut self, core: &mut Core, now_nanos: u64) -> io::Result<()> {
        self.end_loans(core);
        let mut waiting = std::mem::take(&mut self.waiting);
        let sent = waiting.send(core, now_nanos, |_, queue, bytes| self.post(queue, bytes));
        self.waiting = waiting;
        sent?;
        self.ring.pump()
    }

    /// Lets go of what is lent for requests that have ended.
    fn end_loans(&mut self, core: &Core) {
        let ring = &mut self.ring;
        self.lent.retain(|id, descriptor| {
            let is_wanted = core.is_under_way(*id);
            if !is_wanted {
                ring.take_back(*descriptor);
            }
            is_wanted
        });
    }

    /// Posts one datagram, or, if it is too long for a slot, where it lies. False: no room.
    fn post(&mut self, queue: u16, bytes: &[u8]) -> io::Result<bool> {
        let queue = usize::from(queue);
        if bytes.len() <= MESSAGE_BYTES_MAX {
            return posted(self.ring.post_request(queue, bytes));
        }
        // Before anything is lent.
        if !self.ring.has_room(queue) {
            return Ok(false);
        }
        let Some((header, message)) = Header::parse(bytes) else { return Ok(true) };
        let id = header.request_id;
        let descriptor = match self.lent.get(&id) {
            Some(descriptor) => self.ring.lend_again(*descriptor),
            None => match self.ring.lend(message) {
                Some(descriptor) => descriptor,
                None => return Ok(false),
            },
        };
        self.lent.insert(id, descriptor);
        let said = [&bytes[..HEADER_BYTES], &descriptor.to_bytes()].concat();
        posted(self.ring.post_request(queue, &said))
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
        let mut feed = |queue: usize, bytes: &[u8]| core.feed(queue as u16, bytes, now_nanos);
        let count = self.ring.poll_replies(BURST, &mut feed);
        self.ring.pump()?;
        Ok(count == BURST)
    }
}

fn posted(posted: Posted) -> io::Result<bool> {
    match posted {
        Posted::Done => Ok(true),
        Posted::Full => Ok(false),
        Posted::Gone => Err(gone()),
    }
}

fn gone() -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionReset, "the server behind the shared memory is gone")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Request;
    use crate::settings::{MILLISECOND, SECOND, Settings};
    use crate::topology::Topology;
    use laneway_rdma::contract::Responder as _;
    use laneway_rdma::door;
    use laneway_rdma::layout::Terms;
    use laneway_rdma::region::Registry;
    use laneway_rdma::shmring::RingResponder;
    use std::sync::Arc;

    #[test]
    fn what_waits_for_room_does_not_leave_once_its_request_is_given_up() {
        const BULK_BYTES: usize = 8192;
        let terms = Terms { lanes: 1, window: 1, replies: 2, loans: 1, bulk_bytes: BULK_BYTES };
        let requests = [
            Request::set("k", "v"),
            Request::set("k", vec![7; 5000]),
            Request::increment("k", 1),
            Request::get("k"),
        ];
        for (request, is_told) in requests.iter().flat_map(|one| [(one, true), (one, false)]) {
            let registry = Arc::new(Registry::new(terms, 1));
            let (given, _, _server) = door::join(&registry).expect("memory").expect("a place");
            let mut memory = Memory::new(RingRequester::new(given));
            let mut server = RingResponder::new(registry, 0);
            let topology = Topology::in_memory(1, BULK_BYTES);
            let mut core = Core::new(Settings::in_memory(), topology, 1);
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

    #[test]
    fn what_is_short_goes_past_what_waits_for_memory_to_lend() {
        let terms = Terms { lanes: 1, window: 8, replies: 16, loans: 1, bulk_bytes: 8192 };
        let registry = Arc::new(Registry::new(terms, 1));
        let (given, _, _server) = door::join(&registry).expect("memory").expect("a place");
        let mut memory = Memory::new(RingRequester::new(given));
        let mut server = RingResponder::new(registry, 0);
        let mut core = Core::new(Settings::in_memory(), Topology::in_memory(1, 8192), 1);
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
