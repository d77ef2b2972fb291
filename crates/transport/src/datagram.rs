//! What arrives and leaves as datagrams: queues of them, received and sent in bursts.
//!
//! A *queue* is a place that clients send to (a UDP port), one or more per worker. Every worker has
//! a handle of its own on all queues: whoever may serve a queue polls it, and whoever executed a
//! request answers from the queue it came to, so that the reply's source is the address the client
//! knows. Handles share nothing but the queues themselves, and none waits for another.
//!
//! Large replies leave by [`Path::Large`]: same source address, another send buffer, so that a full
//! one holds up no small reply.
//!
//! Kinds: [`crate::udp`] (kernel sockets), [`crate::xdp`] (past the kernel's stack, before others),
//! [`crate::rdma`] (memory that clients write) and [`crate::memory_datagram`] (seeded loss,
//! duplication and reordering). Nothing here knows what a datagram means.

use laneway_rdma::contract::Lenders;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::ops::Range;

/// Arrivals received, and departures sent, by one call, at most (Minos §4.1).
pub const BURST: usize = 32;

/// Bytes after which one call receives no more arrivals: the kernel joins frames to trains of up to
/// 64 KiB, and a burst of those would keep a worker for a millisecond.
pub const BURST_BYTES: usize = 64 << 10;

/// From where clients write into memory that the server polls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whence {
    /// This host: the memory is shared.
    Here,
    /// Another, over RDMA.
    Afar,
}

/// Which send buffer a departure leaves through.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Path {
    /// Replies that nothing may hold up.
    Small,
    /// Trains of large replies.
    Large,
}

/// What a queue is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Queue {
    /// The worker whose queue it is, from 0.
    pub worker: usize,
    /// Where clients send to, with the port that the kernel chose where 0 was asked for.
    pub address: SocketAddr,
    /// Whether clients choose it, by its port. Otherwise several queues have one address, and
    /// the client's own address decides.
    pub chosen: bool,
}

/// Something that arrived: one datagram, or several of one peer that the kernel kept together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrival<'a> {
    /// Who sent it.
    pub peer: SocketAddr,
    /// Length of each datagram in `bytes`; the last may be shorter. At least 1.
    pub segment_bytes: usize,
    /// The datagrams, end to end.
    pub bytes: &'a [u8],
}

impl<'a> Arrival<'a> {
    /// The datagrams it is made of, at least one.
    pub fn datagrams(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let empty = self.bytes.is_empty().then_some(self.bytes);
        empty.into_iter().chain(self.bytes.chunks(self.segment_bytes))
    }
}

/// Longest arrival of several datagrams.
const ARRIVAL_BYTES_MAX: usize = 65_535;

/// The arrivals of one poll, copied out of where they came to.
#[derive(Default)]
pub(crate) struct Arrivals {
    /// The datagrams, end to end.
    room: Vec<u8>,
    /// Peer, bytes in the room, and how long a datagram is.
    received: Vec<(SocketAddr, Range<usize>, usize)>,
}

impl Arrivals {
    /// Forgets the poll before.
    pub(crate) fn clear(&mut self) {
        self.room.clear();
        self.received.clear();
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.received.len()
    }

    /// Keeps a datagram, in one arrival with those before it where a kernel would join them to a
    /// train. False: there would be more than `most`.
    pub(crate) fn keep(&mut self, from: SocketAddr, datagram: &[u8], most: usize) -> bool {
        let end = self.room.len() + datagram.len();
        let is_full = self.received.len() == most;
        match self.received.last_mut() {
            Some((peer, bytes, segment_bytes))
                if *peer == from
                    && bytes.start < bytes.end
                    && bytes.len().is_multiple_of(*segment_bytes)
                    && (1..=*segment_bytes).contains(&datagram.len())
                    && end - bytes.start <= ARRIVAL_BYTES_MAX =>
            {
                bytes.end = end;
            }
            _ if is_full => return false,
            _ => self.received.push((from, self.room.len()..end, datagram.len().max(1))),
        }
        self.room.extend_from_slice(datagram);
        true
    }

    /// One of them, if there are so many.
    pub(crate) fn get(&self, index: usize) -> Option<Arrival<'_>> {
        let (peer, bytes, segment_bytes) = self.received.get(index)?.clone();
        Some(Arrival { peer, segment_bytes, bytes: &self.room[bytes] })
    }
}

/// Something to send: one datagram, or a train of them.
#[derive(Debug, Clone, Copy)]
pub struct Departure<'a> {
    /// Whom to.
    pub peer: SocketAddr,
    /// Cut the bytes into datagrams of this length, the last of which may be shorter; `None`: they
    /// are one datagram. A train has at most 64 of them, which kernels since 4.18 cut, and 65 507
    /// bytes, the longest datagram of IPv4.
    pub segment_bytes: Option<u16>,
    /// The bytes, in pieces of memory that need not end where a datagram does.
    pub pieces: &'a [IoSlice<'a>],
}

/// How many pieces a departure may have (`UIO_MAXIOV`).
pub const PIECES_MAX: usize = 1024;

/// What became of departures.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sent {
    /// How many, from the front, need not be sent again: they left, or never could. Fewer than
    /// there were: the send buffer is full, and [`crate::Transport::watch_room`] tells when it
    /// has room.
    pub done: usize,
    /// How many of these never could: the peer has no route or no valid address.
    pub refused: usize,
    /// Datagrams of the train behind them that left before the send buffer was full, from the
    /// front. Only where trains are cut on our side; others leave whole or not at all.
    pub datagrams_of_next: usize,
}

/// One worker's handle on the queues.
pub trait Datagrams: Send {
    /// How many queues there are, of all workers.
    fn queues(&self) -> usize;

    /// What queue number `queue` is.
    fn queue(&self, queue: usize) -> Queue;

    /// Receive at most `burst` (and at most [`BURST`]) arrivals of any worker's queue, in one call
    /// to the kernel. Returns how many; fewer than `burst` when there are no more now, or when they
    /// have [`BURST_BYTES`] together. (The first long ones behind short ones may have more: how
    /// many the kernel is asked for depends on what came before.) They are read by
    /// [`arrival`](Datagrams::arrival), and last until the next `poll`.
    fn poll(&mut self, queue: usize, burst: usize) -> io::Result<usize>;

    /// Times that the kernel failed to receive, for whatever reason, and was asked again: of this
    /// handle, since the last call.
    fn take_failures(&mut self) -> u64 {
        0
    }

    /// Arrival number `index` of the last poll.
    ///
    /// # Panics
    /// If that poll returned no more than `index`.
    fn arrival(&self, index: usize) -> Arrival<'_>;

    /// Send from the address of `queue`, in as few calls to the kernel as it takes.
    fn send(&mut self, queue: usize, path: Path, departures: &[Departure<'_>]) -> io::Result<Sent>;

    /// Let go of peers that are gone, where they are known. Once a second or so.
    fn tidy(&mut self) {}

    /// Who claims the memory that clients there lend, where they may.
    fn lenders(&self, _whence: Whence) -> Option<Box<dyn Lenders>> {
        None
    }
}

#[cfg(test)]
pub(crate) mod failing {
    //! A queue whose kernel fails to receive, for tests of what stands before it.

    use super::*;

    pub(crate) struct Failing {
        pub(crate) failures: u64,
    }

    impl Datagrams for Failing {
        fn queues(&self) -> usize {
            1
        }

        fn queue(&self, _queue: usize) -> Queue {
            unreachable!("nobody asks")
        }

        fn poll(&mut self, _queue: usize, _burst: usize) -> io::Result<usize> {
            Ok(0)
        }

        fn take_failures(&mut self) -> u64 {
            std::mem::take(&mut self.failures)
        }

        fn arrival(&self, _index: usize) -> Arrival<'_> {
            unreachable!("nothing arrives")
        }

        fn send(
            &mut self,
            _queue: usize,
            _path: Path,
            _departures: &[Departure<'_>],
        ) -> io::Result<Sent> {
            unreachable!("nothing is sent")
        }
    }
}
