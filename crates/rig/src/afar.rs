//! A client on another host, without a card: its slots and datagrams are those of shared memory,
//! with the faults that the plan says, and its long messages go through memory of one side's that a
//! twin of a card moves bytes into and out of, and loses some.

use laneway_rdma::contract::{
    Lend, Lenders, Lent, LongRequester, Peer, Placed, Posted, Request, Requester, Responder, Verbs,
};
use laneway_rdma::long::ledger::Ledger;
use laneway_rdma::long::rendezvous::{Counts, RendezvousBuffer};
use laneway_rdma::long::sealed_descriptor::SealedDescriptor;
use laneway_rdma::long::twin::{Memory, Twin, memory};
use laneway_rdma::shmring::RingRequester;
use laneway_sync::words;
use std::collections::BTreeMap;
use std::io::{self, IoSlice};
use std::sync::{Arc, Mutex};

/// What a client lends for replies, and has for requests: a few of the largest values of the mix.
pub const BYTES: usize = 2 << 20;

/// How long messages travel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Way {
    /// As over reliable connections: the server reads requests where they lie. Otherwise the client
    /// writes them into memory that it was granted.
    pub reads: bool,
    /// Packets that are lost or late, in a hundred.
    pub faults_percent: u64,
    pub seed: u64,
    /// The card is never at something else when a reply is to be written.
    pub is_idle: bool,
    /// It is always: nothing moves.
    pub is_stuck: bool,
    /// What the client lends for replies, and has for requests.
    pub bytes: usize,
}

/// The server's side of all of them.
pub struct RendezvousBuffers {
    pub way: Way,
    rendezvous_buffers: Mutex<BTreeMap<Peer, Arc<RendezvousBuffer<Twin>>>>,
    pub counts: Arc<Counts>,
}

impl RendezvousBuffers {
    pub fn new(way: Way) -> Arc<RendezvousBuffers> {
        Arc::new(RendezvousBuffers {
            way,
            rendezvous_buffers: Mutex::default(),
            counts: Arc::default(),
        })
    }

    pub fn count(&self, name: &str) -> u64 {
        self.counts.each().find(|(told, _)| *told == name).expect("it is counted").1
    }

    /// A client that has come by shared memory.
    pub fn enter(&self, peer: Peer, ring: RingRequester) -> Client {
        let Way { reads, faults_percent, seed, is_idle, is_stuck, bytes } = self.way;
        let (replies, requests) = (memory(bytes), memory(bytes));
        let card = Twin::new(&replies, &requests, seed, faults_percent);
        let card = if is_idle { card.idle() } else { card };
        let card = if is_stuck { card.stuck() } else { card };
        let rendezvous = RendezvousBuffer::new(card, bytes, bytes, self.counts.clone());
        self.rendezvous_buffers.lock().expect("not poisoned").insert(peer, rendezvous);
        let wire = Twin::new(&requests, &requests, seed ^ 0xc11e, faults_percent);
        let (places, own) = (Ledger::new(bytes), memory(bytes));
        Client { ring, reads, replies, requests, own, wire, places }
    }

    fn rendezvous(&self, peer: Peer) -> Option<Arc<RendezvousBuffer<Twin>>> {
        self.rendezvous_buffers.lock().expect("not poisoned").get(&peer).cloned()
    }
}

struct ByTwin(Arc<RendezvousBuffers>);

impl Lenders for ByTwin {
    fn bytes(&self, said: &[u8]) -> Option<usize> {
        SealedDescriptor::parse(said).map(|sealed_descriptor| sealed_descriptor.bytes as usize)
    }

    fn claim(&self, peer: Peer, said: &[u8]) -> Option<Box<dyn Lent>> {
        self.0.rendezvous(peer)?.claim(SealedDescriptor::parse(said)?, false)
    }

    fn claim_again(&self, peer: Peer, said: &[u8]) -> Option<Box<dyn Lent>> {
        self.0.rendezvous(peer)?.claim(SealedDescriptor::parse(said)?, true)
    }

    fn place(&self, peer: Peer, id: u16, bytes: usize, now: u64) -> Option<Box<dyn Placed>> {
        self.0.rendezvous(peer)?.place(id, bytes, now)
    }

    fn taken(&self, peer: Peer, id: u16) {
        if let Some(rendezvous) = self.0.rendezvous(peer) {
            rendezvous.taken(id);
        }
    }
}

/// A worker's handle whose clients are afar.
pub struct Afar<R> {
    pub inner: R,
    pub rendezvous_buffers: Arc<RendezvousBuffers>,
}

impl<R: Responder> Responder for Afar<R> {
    fn queues(&self) -> usize {
        self.inner.queues()
    }
    fn poll_slots(&mut self, queue: usize, burst: usize) -> usize {
        self.inner.poll_slots(queue, burst)
    }
    fn request(&self, index: usize) -> Request<'_> {
        self.inner.request(index)
    }
    fn reply(&mut self, peer: Peer, queue: usize, pieces: &[IoSlice<'_>], spare: usize) -> Posted {
        self.inner.reply(peer, queue, pieces, spare)
    }
    fn pump(&mut self) -> io::Result<()> {
        self.inner.pump()
    }
    fn tidy(&mut self) {
        self.inner.tidy();
    }
    fn lenders(&self) -> Box<dyn Lenders> {
        Box::new(ByTwin(self.rendezvous_buffers.clone()))
    }
}

/// The client's side.
pub struct Client {
    pub ring: RingRequester,
    reads: bool,
    replies: Memory,
    /// Where the server looks for its requests, and where they are written from.
    requests: Memory,
    own: Memory,
    wire: Twin,
    places: Ledger,
}

impl Client {
    fn carry(&mut self, sealed_descriptor: &SealedDescriptor) {
        let (at, bytes) = (sealed_descriptor.offset as usize, sealed_descriptor.bytes as usize);
        let mut message = Vec::new();
        words::read_into(&self.own, at, bytes, &mut message);
        if self.reads {
            words::write(&self.requests, at, &message);
        } else {
            assert!(self.wire.send(at, &message), "it lies within");
        }
    }
}

impl Requester for Client {
    fn queues(&self) -> usize {
        self.ring.queues()
    }
    fn post_request(&mut self, queue: usize, message: &[u8]) -> Posted {
        self.ring.post_request(queue, message)
    }
    fn poll_replies(&mut self, burst: usize, take: &mut dyn FnMut(usize, &[u8])) -> usize {
        self.ring.poll_replies(burst, take)
    }
    fn pump(&mut self) -> io::Result<()> {
        self.ring.pump()
    }
    fn verbs(&self) -> Verbs {
        self.ring.verbs()
    }
}

impl LongRequester for Client {
    fn has_room(&mut self, queue: usize) -> bool {
        self.ring.has_room(queue)
    }

    fn lent_bytes_max(&self) -> usize {
        self.places.bytes()
    }

    fn lend(&mut self, name: u16, message: &[u8]) -> Lend {
        let Some(place) = self.places.take(name, message.len(), 0, u64::MAX) else {
            return Lend::NoRoom;
        };
        words::write(&self.own, place.offset, message);
        let sealed_descriptor = SealedDescriptor::of(place.number, place.offset as u32, message);
        self.carry(&sealed_descriptor);
        Lend::Lent(sealed_descriptor)
    }

    fn lend_again(&mut self, sealed_descriptor: &SealedDescriptor) -> Lend {
        self.carry(sealed_descriptor);
        Lend::Lent(*sealed_descriptor)
    }

    fn take_back(&mut self, name: u16) {
        self.places.give_back(name);
    }

    fn open_reply(&self, sealed_descriptor: &SealedDescriptor, out: &mut Vec<u8>) -> bool {
        sealed_descriptor.open(&self.replies, out)
    }
}
