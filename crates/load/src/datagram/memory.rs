//! One region of memory shared with the server, in place of a socket: requests are written into
//! slots, replies taken out of others, and what no slot holds is lent. Never blocks, and never
//! sleeps: the loop spins, as with sockets. It knows no request, and takes replies in frames, as it
//! does by sockets.
//!
//! A server drops replies that find no place, so no more requests are under way than have one;
//! those beyond wait here.

use super::Door;
use super::socket::Outbox;
use laneway_rdma::contract::{Descriptor, Posted, Requester as _};
use laneway_rdma::door::{self, Version};
use laneway_rdma::shmring::RingRequester;
use laneway_wire::udp::{Header, Kind};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;

/// Replies that one look takes at most.
const BURST: usize = 64;

/// What stands for a queue where sockets have a port.
pub const QUEUES_AT: Ipv4Addr = Ipv4Addr::LOCALHOST;

/// The address that stands for a queue.
pub(super) fn peer(queue: usize) -> SocketAddr {
    SocketAddr::from((QUEUES_AT, queue as u16))
}

/// A client's region.
pub struct Memory {
    ring: RingRequester,
    /// Whether a request is posted and has not ended, by id; and how many are.
    is_posted: Vec<bool>,
    under_way: usize,
    under_way_max: usize,
    /// Of requests that ended while they waited in the outbox, how many, by id: none is posted.
    given_up: HashMap<u16, u32>,
    /// Requests longer than anything that may be lent.
    never: HashSet<u16>,
    /// Requests that no slot holds and that are not yet lent: id, queue and message.
    long: VecDeque<(u16, usize, Vec<u8>)>,
    lent: HashMap<u16, Descriptor>,
}

/// The clients of a server on this host that ask for nothing as long as they are held.
pub fn idle_clients(door: Option<&Door>) -> Result<Vec<RingRequester>, String> {
    let Some(Door::Memory { path, idle: count @ 1.. }) = door else { return Ok(Vec::new()) };
    // Each has a descriptor for every lane. Where there may not be so many, one is refused.
    let limits = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limits.maximum, ..limits });
    let enter = |_| door::enter(path).map_err(|error| format!("--shm-idle {count}: {error}"));
    (0..*count).map(enter).collect()
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory").field("under_way", &self.under_way).finish_non_exhaustive()
    }
}

impl Memory {
    /// A region of the server whose door is at `path`.
    pub fn open(path: &Path) -> io::Result<Memory> {
        Ok(Memory::new(door::enter_as(Version::Framed, path)?))
    }

    /// With nothing under way.
    fn new(ring: RingRequester) -> Memory {
        // Half of the places are those of small replies, and each request has one.
        let under_way_max = (ring.terms().replies / 2).max(1);
        Memory {
            ring,
            is_posted: vec![false; 1 << 16],
            under_way: 0,
            under_way_max,
            given_up: HashMap::new(),
            never: HashSet::new(),
            long: VecDeque::new(),
            lent: HashMap::new(),
        }
    }

    /// Takes a request that no slot holds, for the queue that `peer` stands for. One that is longer
    /// than anything that may be lent is never sent.
    pub fn lend(&mut self, id: u16, peer: SocketAddr, message: Vec<u8>) {
        if message.len() <= self.ring.terms().bulk_bytes {
            self.long.push_back((id, peer.port().into(), message));
        } else {
            self.never.insert(id);
        }
    }

    /// Whether something waits to be lent.
    pub fn has_long(&self) -> bool {
        !self.long.is_empty()
    }

    /// Sends what waits, as far as there is room; true if something is left.
    pub fn send(&mut self, outbox: &mut Outbox) -> io::Result<bool> {
        while self.under_way < self.under_way_max {
            let first = outbox.first(|peer, bytes| self.send_short(peer, bytes));
            if !first.unwrap_or_else(|| self.send_long()) {
                break;
            }
        }
        self.ring.pump()?;
        Ok(!outbox.is_empty() || self.has_long())
    }

    /// Posts a request, unless it ended while it waited. False: no room.
    fn send_short(&mut self, peer: SocketAddr, bytes: &[u8]) -> bool {
        let Some((Header { request_id: id, .. }, _)) = Header::parse(bytes) else { return true };
        if let Some(count) = self.given_up.get_mut(&id) {
            *count -= 1;
            if *count == 0 {
                self.given_up.remove(&id);
            }
            return true;
        }
        let is_posted = self.ring.post_request(peer.port().into(), bytes) == Posted::Done;
        if is_posted {
            self.begun(id);
        }
        is_posted
    }

    fn begun(&mut self, id: u16) {
        self.is_posted[usize::from(id)] = true;
        self.under_way += 1;
    }

    fn send_long(&mut self) -> bool {
        let Some((id, queue, message)) = self.long.front() else { return false };
        if !self.ring.has_room(*queue) {
            return false;
        }
        let Some(descriptor) = self.ring.lend(message) else { return false };
        let header = Header { kind: Kind::Lent, ..Header::whole(*id) };
        let said = [&header.to_bytes()[..], &descriptor.to_bytes()].concat();
        if self.ring.post_request(*queue, &said) != Posted::Done {
            self.ring.take_back(descriptor);
            return false;
        }
        let id = *id;
        self.lent.insert(id, descriptor);
        self.long.pop_front();
        self.begun(id);
        true
    }

    /// A request has ended, by its reply or without one.
    pub fn ended(&mut self, id: u16) {
        if std::mem::take(&mut self.is_posted[usize::from(id)]) {
            self.under_way -= 1;
            if let Some(descriptor) = self.lent.remove(&id) {
                self.ring.take_back(descriptor);
            }
        } else if let Some(at) = self.long.iter().position(|long| long.0 == id) {
            self.long.remove(at);
        } else if !self.never.remove(&id) {
            *self.given_up.entry(id).or_default() += 1;
        }
    }

    /// Hands every datagram that is there to `take` with the queue it came from.
    pub fn receive(&mut self, mut take: impl FnMut(Option<SocketAddr>, &[u8])) -> io::Result<()> {
        if !self.ring.has_reply() {
            return Ok(());
        }
        self.ring.poll_replies(BURST, &mut |queue, bytes| take(Some(peer(queue)), bytes));
        self.ring.pump()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use laneway_rdma::contract::Responder as _;
    use laneway_rdma::layout::Terms;
    use laneway_rdma::region::Registry;
    use laneway_rdma::shmring::RingResponder;
    use std::sync::Arc;

    /// Two requests under way at a time, and one kilobyte to lend.
    const TERMS: Terms = Terms { window: 4, replies: 4, loans: 2, ..Terms::of(1, 1024) };

    fn add(outbox: &mut Outbox, id: u16) {
        outbox.add(peer(0), |out| out.extend_from_slice(&Header::whole(id).to_bytes()));
    }

    /// Ids of the requests that came, in their order.
    fn come(responder: &mut RingResponder) -> Vec<u16> {
        let count = responder.poll_slots(0, 32);
        let id = |at| Header::parse(responder.request(at).bytes).expect("a header").0.request_id;
        (0..count).map(id).collect()
    }

    #[test]
    fn no_more_are_under_way_than_have_a_place_and_those_that_ended_waiting_are_not_sent() {
        let registry = Arc::new(Registry::new(TERMS, 1));
        let (given, _, _server) = door::join(&registry).expect("memory").expect("a place");
        let mut responder = RingResponder::new(registry, 0);
        let mut memory = Memory::new(RingRequester::new(given));
        let mut outbox = Outbox::default();
        (1..=5).for_each(|id| add(&mut outbox, id));
        memory.lend(6, peer(0), vec![6; 500]);
        memory.lend(7, peer(0), vec![7; 2000]);
        assert!(memory.send(&mut outbox).expect("it is there"));
        assert_eq!(come(&mut responder), [1, 2]);
        // Given up while they wait: of the same id one that is new is sent.
        (3..=4).for_each(|id| memory.ended(id));
        memory.ended(7);
        add(&mut outbox, 3);
        memory.ended(1);
        assert!(memory.send(&mut outbox).expect("it is there"));
        assert_eq!(come(&mut responder), [5]);
        [2, 5].into_iter().for_each(|id| memory.ended(id));
        assert!(!memory.send(&mut outbox).expect("it is there"));
        assert_eq!(come(&mut responder), [3, 6]);
        assert!(!memory.has_long() && outbox.is_empty());
        [3, 6].into_iter().for_each(|id| memory.ended(id));
        assert_eq!((memory.under_way, memory.given_up.len(), memory.lent.len()), (0, 0, 0));
    }
}
