//! Requests in memory that clients write, as datagrams: [`laneway_rdma`] has the memory and its
//! kinds, and here it becomes queues like those of UDP, so that whoever serves datagrams serves it
//! without knowing (HERD's requests are datagrams in all but the way they come).
//!
//! Its queues are numbered behind those of UDP, one per worker, and chosen by the client. Peers and
//! queues have addresses that no kernel gives: of the discard prefix 100::/64 (RFC 6666), and with
//! a flow label of more bits than there are, so that no datagram can come from one.
//!
//! What of it is a part of a worker's transport looks into the slots ([`crate::shm_watch`],
//! [`crate::verbs`]). Nothing here waits.

use crate::cut::each_datagram;
pub use crate::datagram::Whence;
use crate::datagram::{Arrival, Datagrams, Departure, Path, Queue, Sent};
use laneway_rdma::contract::{Lenders, Peer, Posted, Responder};
use std::io;
use std::net::{Ipv6Addr, SocketAddr, SocketAddrV6};

/// Marks an address as none of the kernel's: a flow label has 20 bits.
const FLOW: u32 = u32::MAX;
/// The last word of a peer's address and of a queue's.
const fn marks(whence: Whence) -> (u16, u16) {
    match whence {
        Whence::Here => (1, 0),
        Whence::Afar => (3, 2),
    }
}

/// The address by which a client is known.
pub fn address(whence: Whence, peer: Peer) -> SocketAddr {
    let (high, low) = ((peer.generation >> 16) as u16, peer.generation as u16);
    let ip = Ipv6Addr::new(0x100, 0, 0, 0, high, low, peer.client, marks(whence).0);
    SocketAddr::V6(SocketAddrV6::new(ip, 0, FLOW, 0))
}

/// The client of such an address, if it is one from there.
pub fn peer(whence: Whence, address: &SocketAddr) -> Option<Peer> {
    let SocketAddr::V6(v6) = address else { return None };
    let [0x100, 0, 0, 0, high, low, client, mark] = v6.ip().segments() else { return None };
    let generation = u32::from(high) << 16 | u32::from(low);
    let is_one = v6.flowinfo() == FLOW && mark == marks(whence).0;
    is_one.then_some(Peer { client, generation })
}

/// Whether an address is a queue's in memory, or that of a client who writes there: it has come
/// through a door, so it is where it says.
pub fn is_in_memory(address: &SocketAddr) -> bool {
    matches!(address, SocketAddr::V6(v6) if v6.flowinfo() == FLOW)
}

/// From where such a client writes, and who it is.
pub fn whence(address: &SocketAddr) -> Option<(Whence, Peer)> {
    let of = |whence| Some((whence, peer(whence, address)?));
    of(Whence::Here).or_else(|| of(Whence::Afar))
}

/// Whether it is a client who shares memory with us: it has places for replies of its own, which it
/// alone can empty.
pub fn is_here(address: &SocketAddr) -> bool {
    peer(Whence::Here, address).is_some()
}

fn queue_of(whence: Whence, worker: usize) -> Queue {
    let ip = Ipv6Addr::new(0x100, 0, 0, 0, 0, 0, worker as u16, marks(whence).1);
    Queue { worker, address: SocketAddr::V6(SocketAddrV6::new(ip, 0, FLOW, 0)), chosen: true }
}

/// Of a client's places for replies, how many large ones leave to small ones.
pub(crate) fn spare(places: usize) -> usize {
    places / 2
}

/// One worker's handle on queues in memory, behind whatever other queues there are.
pub struct RdmaDatagrams<R> {
    whence: Whence,
    others: Option<Box<dyn Datagrams>>,
    /// How many those are.
    first: usize,
    responder: R,
    spare: usize,
    /// The last poll's arrivals are the others'.
    is_elsewhere: bool,
}

impl<R: Responder> RdmaDatagrams<R> {
    /// `responder`, which has so many places for replies, of one client or of all.
    pub fn new(whence: Whence, responder: R, places: usize) -> RdmaDatagrams<R> {
        RdmaDatagrams {
            whence,
            others: None,
            first: 0,
            responder,
            spare: spare(places),
            is_elsewhere: false,
        }
    }

    /// Number its queues behind those of `others`, and serve both.
    pub fn behind(self, others: Box<dyn Datagrams>) -> RdmaDatagrams<R> {
        RdmaDatagrams { first: others.queues(), others: Some(others), ..self }
    }

    /// One departure, datagram by datagram; or behind how many it ended, and why.
    fn send_one(
        &mut self,
        queue: usize,
        spare: usize,
        departure: &Departure<'_>,
    ) -> Result<(), (usize, Posted)> {
        let peer = peer(self.whence, &departure.peer).ok_or((0, Posted::Gone))?;
        each_datagram(departure, |pieces| match self.responder.reply(peer, queue, pieces, spare) {
            Posted::Done => Ok(()),
            other => Err(other),
        })
    }
}

impl<R: Responder> Datagrams for RdmaDatagrams<R> {
    fn queues(&self) -> usize {
        self.first + self.responder.queues()
    }

    fn queue(&self, queue: usize) -> Queue {
        match &self.others {
            Some(others) if queue < self.first => others.queue(queue),
            _ => queue_of(self.whence, queue - self.first),
        }
    }

    fn poll(&mut self, queue: usize, burst: usize) -> io::Result<usize> {
        if let Some(others) = self.others.as_mut().filter(|_| queue < self.first) {
            self.is_elsewhere = true;
            return others.poll(queue, burst);
        }
        self.is_elsewhere = false;
        Ok(self.responder.poll_slots(queue - self.first, burst))
    }

    fn take_failures(&mut self) -> u64 {
        self.others.as_mut().map_or(0, |others| others.take_failures())
    }

    fn arrival(&self, index: usize) -> Arrival<'_> {
        if let Some(others) = self.others.as_ref().filter(|_| self.is_elsewhere) {
            return others.arrival(index);
        }
        let request = self.responder.request(index);
        let bytes = request.bytes;
        let peer = address(self.whence, request.peer);
        Arrival { peer, segment_bytes: bytes.len().max(1), bytes }
    }

    fn send(&mut self, queue: usize, path: Path, departures: &[Departure<'_>]) -> io::Result<Sent> {
        if let Some(others) = self.others.as_mut().filter(|_| queue < self.first) {
            return others.send(queue, path, departures);
        }
        let spare = if path == Path::Large { self.spare } else { 0 };
        let mut sent = Sent::default();
        for departure in departures {
            match self.send_one(queue - self.first, spare, departure) {
                Ok(()) => {}
                // A small reply never waits for a client that takes none, or all others' would.
                Err((datagrams, Posted::Full)) if path == Path::Large => {
                    sent.datagrams_of_next = datagrams;
                    break;
                }
                Err(_) => sent.refused += 1,
            }
            sent.done += 1;
        }
        self.responder.pump()?;
        Ok(sent)
    }

    fn tidy(&mut self) {
        if let Some(others) = &mut self.others {
            others.tidy();
        }
        self.responder.tidy();
    }

    fn lenders(&self, whence: Whence) -> Option<Box<dyn Lenders>> {
        if whence == self.whence {
            return Some(self.responder.lenders());
        }
        self.others.as_ref().and_then(|others| others.lenders(whence))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::datagram::failing::Failing;
    use laneway_rdma::layout::Terms;
    use laneway_rdma::region::Registry;
    use laneway_rdma::shmring::RingResponder;
    use std::sync::Arc;

    #[test]
    fn what_others_fail_to_receive_is_told_beside_clients_in_memory() {
        let responder = || RingResponder::new(Arc::new(Registry::new(Terms::of(1, 0), 1)), 0);
        let alone = || RdmaDatagrams::new(Whence::Here, responder(), 2);
        assert_eq!(alone().take_failures(), 0);
        let mut beside = alone().behind(Box::new(Failing { failures: 3 }));
        assert_eq!((beside.take_failures(), beside.take_failures()), (3, 0));
    }

    #[test]
    fn addresses_in_memory_come_back_and_are_none_of_the_kernels() {
        for peer in [
            Peer { client: 0, generation: 0 },
            Peer { client: 63, generation: 0x8001_7fff },
            Peer { client: u16::MAX, generation: u32::MAX },
        ] {
            for (whence, other) in [(Whence::Here, Whence::Afar), (Whence::Afar, Whence::Here)] {
                let address = address(whence, peer);
                assert_eq!(super::peer(whence, &address), Some(peer));
                assert_eq!(super::peer(other, &address), None, "nobody lends for another");
                assert_eq!(
                    (is_in_memory(&address), is_here(&address)),
                    (true, whence == Whence::Here)
                );
                let SocketAddr::V6(v6) = address else { panic!("it is one of IPv6") };
                let sent = SocketAddr::V6(SocketAddrV6::new(*v6.ip(), 0, 0, 0));
                assert_eq!((super::peer(whence, &sent), is_in_memory(&sent)), (None, false));
                let queue = queue_of(whence, 3);
                assert!(is_in_memory(&queue.address));
                assert!(super::peer(whence, &queue.address).is_none() && !is_here(&queue.address));
                assert_eq!((queue.worker, queue.chosen), (3, true));
            }
        }
    }
}
