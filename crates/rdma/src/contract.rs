//! The interface of memory between a client and a server, which every kind implements. The kind
//! over shared memory is [`crate::shmring`]. The one over RDMA writes requests by WRITE on
//! connections, or sends them as datagrams where clients are many, and replies by SEND on datagram
//! queue pairs (HERD §4.3).
//!
//! A *queue* is where requests of any client arrive, one per worker of the server. Nothing here
//! waits or allocates per request; what finds no room says so. Messages are bytes without meaning.

use crate::long::sealed_descriptor::{
    SEALED_DESCRIPTOR_BYTES, SealedDescriptor, put_words, words_in,
};
use std::io::{self, IoSlice};

/// Longest message of a slot.
pub const MESSAGE_BYTES_MAX: usize = crate::layout::SLOT_BYTES - 8;

/// A client, as the server knows it. Numbers are used again, generations are not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Peer {
    /// Its place among the clients.
    pub client: u16,
    /// Tells it from who had the place before.
    pub generation: u32,
}

/// What one side has asked of the memory or the card: one of these is one work request there.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Verbs {
    /// Requests written into the other's memory (WRITE).
    pub writes: u64,
    /// Messages sent (SEND), each one datagram, or a part of one where packets are short.
    pub sends: u64,
    /// Replies received (RECV).
    pub receives: u64,
    /// Pieces of lent memory read (READ).
    pub reads: u64,
    /// Times that a sleeping peer was woken: a call to the kernel, no verb.
    pub rings: u64,
}

/// What became of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Posted {
    /// It is on its way.
    Done,
    /// No slot is free: the peer has not taken what is there.
    Full,
    /// The peer is gone.
    Gone,
}

/// A request as it lay in its slot: a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request<'a> {
    /// Whose.
    pub peer: Peer,
    /// The message.
    pub bytes: &'a [u8],
}

/// Where a client lends memory: what a request says instead of a long message, and in shared memory
/// a notice instead of a long reply. 24 bytes, little-endian.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Descriptor {
    /// Which of the client's loans, or places for replies.
    pub loan: u32,
    /// The loan's number, new each time.
    pub number: u64,
    /// Where the memory begins, from the start of what the client may lend, or that for replies.
    pub offset: u64,
    /// How much it is.
    pub bytes: u32,
}

/// Bytes of a descriptor.
pub const DESCRIPTOR_BYTES: usize = 24;

const _: () = assert!(DESCRIPTOR_BYTES == SEALED_DESCRIPTOR_BYTES, "a notice has one length");

impl Descriptor {
    /// As it stands in a message.
    pub fn to_bytes(self) -> [u8; DESCRIPTOR_BYTES] {
        put_words([self.number, self.offset, u64::from(self.loan) << 32 | u64::from(self.bytes)])
    }

    /// From a message; `None` if it is not as long as one.
    pub fn parse(bytes: &[u8]) -> Option<Descriptor> {
        let [number, offset, last] = words_in(bytes)?;
        Some(Descriptor { loan: (last >> 32) as u32, number, offset, bytes: last as u32 })
    }
}

/// What became of a piece of a long message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moved {
    /// It is there, or on its way.
    Done,
    /// Not now: as much is on its way as may be, or somebody else is at it. Try again.
    Later,
    /// Never: the other side is gone, or took it back.
    Gone,
}

/// Memory that a client has lent, until this is dropped: then the client may write it again.
pub trait Lent: Send {
    /// How much.
    fn bytes(&self) -> usize;
    /// Append `bytes` from `offset` on, as they are now: each byte is to be read once, from the
    /// front on. Unless it is done nothing was appended.
    ///
    /// # Panics
    /// If that is beyond its end.
    fn read(&mut self, offset: usize, bytes: usize, out: &mut Vec<u8>) -> Moved;
    /// Behind the last byte: whether they are those that the client lent, as far as it says.
    fn is_right(&self) -> bool {
        true
    }
}

/// A reply on its way into memory that its client lends. Dropped before its notice it is given up.
pub trait Placed: Send {
    /// Write the next bytes, at most [`crate::long::sealed_descriptor::PIECE_BYTES`].
    ///
    /// # Panics
    /// If they are more, or more than the reply has.
    fn write(&mut self, pieces: &[IoSlice<'_>]) -> Moved;
    /// What tells the client where it lies: in shared memory a [`Descriptor`], over RDMA a sealed
    /// one, which is as long. `None`: it took too long, and is given up.
    ///
    /// # Panics
    /// If not all of it is written.
    fn notice(&mut self, now_nanos: u64) -> Option<[u8; SEALED_DESCRIPTOR_BYTES]>;
}

/// Whoever may claim what clients lend. Any worker may: large messages have a worker of their own.
pub trait Lenders: Send {
    /// How much a request says that it lends; `None`: it says nothing of the kind.
    fn bytes(&self, said: &[u8]) -> Option<usize>;
    /// Begin to read. `None`: there is no such loan, it was taken back, or it was claimed before,
    /// as by the same request that came twice.
    fn claim(&self, peer: Peer, said: &[u8]) -> Option<Box<dyn Lent>>;
    /// The same for a request that was read whole before, but of which nobody knows what became:
    /// it was refused, or its answer is not kept. `None` too where it is read only once.
    fn claim_again(&self, _peer: Peer, _said: &[u8]) -> Option<Box<dyn Lent>> {
        None
    }
    /// Room for the reply of `bytes` to request `id`, in memory that its client lends for it.
    /// `None`: there is none.
    fn place(
        &self,
        _peer: Peer,
        _id: u16,
        _bytes: usize,
        _now_nanos: u64,
    ) -> Option<Box<dyn Placed>> {
        None
    }
    /// The client has taken the reply to request `id`.
    fn taken(&self, _peer: Peer, _id: u16) {}
}

/// The client's side. It belongs to one thread.
pub trait Requester {
    /// How many queues the server has.
    fn queues(&self) -> usize;
    /// Write a request of at most [`MESSAGE_BYTES_MAX`] bytes into the next slot of a queue.
    ///
    /// # Panics
    /// If it is longer.
    fn post_request(&mut self, queue: usize, message: &[u8]) -> Posted;
    /// Take at most `burst` replies: for each, the queue that answered and the message. Returns how
    /// many there were.
    fn poll_replies(&mut self, burst: usize, take: &mut dyn FnMut(usize, &[u8])) -> usize;
    /// Wake the server's workers that sleep over what was posted. After every batch.
    fn pump(&mut self) -> io::Result<()>;
    /// What was asked so far.
    fn verbs(&self) -> Verbs;
}

/// What became of a long request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lend {
    /// It lies where the server finds it, or is on its way there.
    Lent(SealedDescriptor),
    /// There is no room for it: send frames.
    NoRoom,
    /// Not now: too much is on its way. Try again.
    Later,
}

/// The client's side of long messages between hosts. Whatever finds no room goes in frames.
pub trait LongRequester: Requester {
    /// Whether a queue takes a request now; where it does not, its server is asked for room now and
    /// then.
    fn has_room(&mut self, queue: usize) -> bool;
    /// Longest request that may be lent; 0: none.
    fn lent_bytes_max(&self) -> usize;
    /// Put a long request where the server finds it, under a name of the client's; what had that
    /// name before is over.
    fn lend(&mut self, name: u16, message: &[u8]) -> Lend;
    /// The same once more, as it lies there: it may have been lost on its way.
    fn lend_again(&mut self, sealed_descriptor: &SealedDescriptor) -> Lend;
    /// The request of this name is over.
    fn take_back(&mut self, name: u16);
    /// The long reply that a notice tells of, behind what is in `out`. False: it has not come, not
    /// whole, or not any more.
    fn open_reply(&self, sealed_descriptor: &SealedDescriptor, out: &mut Vec<u8>) -> bool;
}

/// The server's side: one worker's handle on all queues.
pub trait Responder: Send {
    /// How many queues there are.
    fn queues(&self) -> usize;
    /// Take at most `burst` requests of a queue. They last until the next call.
    fn poll_slots(&mut self, queue: usize, burst: usize) -> usize;
    /// Request number `index` of the last poll.
    ///
    /// # Panics
    /// If that poll returned no more.
    fn request(&self, index: usize) -> Request<'_>;
    /// Send a reply of at most [`MESSAGE_BYTES_MAX`] bytes, in pieces, in the name of a queue. Of
    /// the client's places for replies at least `spare` stay free behind it, for who is in more of
    /// a hurry.
    ///
    /// # Panics
    /// If it is longer.
    fn reply(&mut self, peer: Peer, queue: usize, pieces: &[IoSlice<'_>], spare: usize) -> Posted;
    /// Wake the clients that sleep over what was replied. After every batch.
    fn pump(&mut self) -> io::Result<()>;
    /// Let go of clients that are gone. Now and then, also by who polls nothing.
    fn tidy(&mut self);
    /// Who claims what clients lend.
    fn lenders(&self) -> Box<dyn Lenders>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_descriptor_comes_back_and_has_one_length() {
        let descriptor =
            Descriptor { loan: 3, number: 1 << 40 | 5, offset: 1 << 33, bytes: 0xffff_fffe };
        let bytes = descriptor.to_bytes();
        assert_eq!(Descriptor::parse(&bytes), Some(descriptor));
        assert_eq!(Descriptor::parse(&bytes[1..]), None);
        assert_eq!(Descriptor::parse(&[&bytes[..], b"x"].concat()), None);
    }
}
