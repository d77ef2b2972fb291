//! One region of memory shared with the server, in place of a socket: requests are written into
//! slots, replies taken out of others, and what no slot holds is lent. Never blocks, and never
//! sleeps: the loop spins, as with sockets. Knows no request.
//!
//! A server drops replies that find no place, so no more requests are under way than have one;
//! those beyond wait here.

use super::socket::Outbox;
use laneway_rdma::contract::{Descriptor, Posted, Requester as _};
use laneway_rdma::door;
use laneway_rdma::shmring::RingRequester;
use laneway_wire::udp::{Header, Kind};
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;

/// Replies that one look takes at most.
const BURST: usize = 64;

/// What stands for a queue where sockets have a port.
pub const QUEUES_AT: Ipv4Addr = Ipv4Addr::LOCALHOST;

/// The address that stands for a queue.
fn peer(queue: usize) -> SocketAddr {
    SocketAddr::from((QUEUES_AT, queue as u16))
}

/// A request that no slot holds.
struct Long {
    id: u16,
    queue: usize,
    message: Vec<u8>,
}

/// A client's region.
pub struct Memory {
    ring: RingRequester,
    /// Requests without an end.
    under_way: usize,
    under_way_max: usize,
    /// Not yet lent.
    long: VecDeque<Long>,
    lent: HashMap<u16, Descriptor>,
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory").field("under_way", &self.under_way).finish_non_exhaustive()
    }
}

impl Memory {
    /// A region of the server whose door is at `path`.
    pub fn open(path: &Path) -> io::Result<Memory> {
        let ring = door::enter(path)?;
        // Half of the places are those of small replies, and each request has one.
        let under_way_max = (ring.terms().replies / 2).max(1);
        let (long, lent) = (VecDeque::new(), HashMap::new());
        Ok(Memory { ring, under_way: 0, under_way_max, long, lent })
    }

    /// Takes a request that no slot holds, for the queue that `peer` stands for. False if it is
    /// longer than anything that may be lent.
    pub fn lend(&mut self, id: u16, peer: SocketAddr, message: Vec<u8>) -> bool {
        let fits = message.len() <= self.ring.terms().bulk_bytes;
        if fits {
            self.long.push_back(Long { id, queue: peer.port().into(), message });
        }
        fits
    }

    /// Whether something waits to be lent.
    pub fn has_long(&self) -> bool {
        !self.long.is_empty()
    }

    /// Sends what waits, as far as there is room; true if something is left.
    pub fn send(&mut self, outbox: &mut Outbox) -> io::Result<bool> {
        while self.under_way < self.under_way_max {
            let ring = &mut self.ring;
            let posted = outbox
                .first(|peer, bytes| ring.post_request(peer.port().into(), bytes) == Posted::Done);
            match posted {
                Some(true) => self.under_way += 1,
                Some(false) => break,
                None => match self.send_long() {
                    true => self.under_way += 1,
                    false => break,
                },
            }
        }
        self.ring.pump()?;
        Ok(!outbox.is_empty() || self.has_long())
    }

    fn send_long(&mut self) -> bool {
        let Some(Long { id, queue, message }) = self.long.front() else { return false };
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
        self.lent.insert(*id, descriptor);
        self.long.pop_front();
        true
    }

    /// A request has ended, by its reply or without one.
    pub fn ended(&mut self, id: u16) {
        let waiting = self.long.iter().position(|long| long.id == id);
        if let Some(at) = waiting {
            self.long.remove(at);
            return;
        }
        self.under_way = self.under_way.saturating_sub(1);
        if let Some(descriptor) = self.lent.remove(&id) {
            self.ring.take_back(descriptor);
        }
    }

    /// Hands every datagram that is there to `take` with the queue it came from; `after_look` runs
    /// once, if there is one.
    pub fn receive<T>(
        &mut self,
        after_look: impl FnOnce() -> T,
        mut take: impl FnMut(&T, Option<SocketAddr>, &[u8]),
    ) -> io::Result<()> {
        if !self.ring.has_reply() {
            return Ok(());
        }
        let token = after_look();
        self.ring.poll_replies(BURST, &mut |queue, bytes| take(&token, Some(peer(queue)), bytes));
        self.ring.pump()
    }
}
