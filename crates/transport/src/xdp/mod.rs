//! Datagrams past the kernel's stack: AF_XDP sockets ([`laneway_xdp`]) on the RX queues of one
//! interface, before other queues of the same numbers, which are the server's UDP sockets.
//!
//! - **A way, not a place.** A queue is where clients send to, and has the same number, address and
//!   worker whichever way a datagram takes. What the BPF program leads past the stack comes by the
//!   interface's queues, everything else (from other interfaces, in fragments, for a port that
//!   another worker's RX queue received) by the socket. A reply leaves past the stack if its peer's
//!   Ethernet address is known from a request that came so ([`links`]) and it fits the link, else
//!   by the socket.
//! - **Whose.** RX queue r belongs to worker r modulo the workers, and with it what comes there for
//!   that worker's queues. Whoever may serve these takes it, under a lock that is only tried. To
//!   send, each worker has an RX queue's other half for itself, and so waits for nobody.
//! - **Small first.** Trains of large replies may use half the frames; the others are for small
//!   ones. A transfer leaves a slice at a time, and small replies between slices (`server::lanes`).
//!
//! - **Told once.** A queue is told when something comes by either way, and then read until there
//!   is no more. What a poll leaves all the same (another worker has the RX queue, the next packet
//!   is for the worker's other queue) it has told again ([`State`]).
//!
//! Requests are copied out of their frames, which go back to the kernel before the requests are
//! served: they are short, and whoever receives does not depend on how long serving takes.
//!
//! [`handle`] is a worker's `Datagrams`, [`watch`] the part of its `Transport`.

pub mod handle;
pub mod links;
pub mod watch;

use crate::datagram::Queue;
use laneway_xdp::packet::{self, Own, Wrong};
use laneway_xdp::queue::{Outlet, Receiver, Sender, Sizes};
use laneway_xdp::socket::{self, Statistics};
use links::Neighbours;
use rustix::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

/// Frames of each RX queue: 4 MiB of packets that wait to be received, 2 MiB of such to be sent.
pub const SIZES: Sizes = Sizes { receive: 2048, send: 1024 };

/// What the workers counted at one RX queue. Each is written by one thread at a time.
#[derive(Debug, Default)]
struct Counts {
    received: AtomicU64,
    wrong: [AtomicU64; Wrong::ALL.len()],
    /// By the worker whose way out it is.
    sent: AtomicU64,
    by_stack: AtomicU64,
    full: AtomicU64,
    down: AtomicU64,
}

/// All of it together, since the start.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counted {
    /// Datagrams received.
    pub received: u64,
    /// Packets thrown away, by what spoke against them.
    pub wrong: Vec<(&'static str, u64)>,
    /// Packets that wait now.
    pub waiting: u64,
    /// Datagrams sent.
    pub sent: u64,
    /// Departures that left by the socket instead: no link is known, or they do not fit it.
    pub by_stack: u64,
    /// Times that no frame was left to send with.
    pub full: u64,
    /// Times that the interface was down.
    pub down: u64,
    /// What the kernel counted of packets that did not come.
    pub lost: Statistics,
}

/// One RX queue of the interface.
struct Place {
    receiver: Mutex<Receiver>,
    outlet: Outlet,
    /// None where somebody else than the kernel is at the other end.
    socket: Option<Arc<OwnedFd>>,
    counts: Counts,
}

/// What is known of one RX queue when it is opened.
pub struct Part {
    /// What comes.
    pub receiver: Receiver,
    /// What leaves.
    pub sender: Sender,
    /// The socket, if the kernel is at the other end.
    pub socket: Option<Arc<OwnedFd>>,
}

/// What all workers share of the way past the stack.
pub struct Bypass {
    places: Vec<Place>,
    queues: Vec<Queue>,
    own: Own,
    mtu_bytes: usize,
    workers: usize,
    neighbours: Neighbours,
    /// Whether a worker found its half without frames and waits for some.
    waits: Vec<AtomicBool>,
    /// Of each worker, by queue.
    states: Vec<Vec<State>>,
}

/// What one worker's transport and handle tell each other of a queue; both are in one thread.
#[derive(Debug, Default)]
struct State {
    /// The transport tells arrivals at the socket: none need be looked for that it did not tell.
    is_watched: AtomicBool,
    /// There may be some there.
    by_socket: AtomicBool,
    /// A poll left something: it is to be told again.
    again: AtomicBool,
}

/// A server whose workers are more than the interface's RX queues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooFew {
    /// RX queues there are.
    pub queues: usize,
    /// Workers there are.
    pub workers: usize,
}

impl Bypass {
    /// The RX queues of an interface, by number, before the server's queues; and each worker's way
    /// out.
    pub fn new(
        parts: Vec<Part>,
        queues: Vec<Queue>,
        own: Own,
        mtu_bytes: usize,
    ) -> Result<(Arc<Bypass>, Vec<Sender>), TooFew> {
        let workers = queues.iter().map(|queue| queue.worker + 1).max().unwrap_or(1);
        if parts.len() < workers {
            return Err(TooFew { queues: parts.len(), workers });
        }
        let (mut places, mut senders) = (Vec::new(), Vec::new());
        for Part { receiver, sender, socket } in parts {
            let (outlet, counts) = (sender.outlet().clone(), Counts::default());
            places.push(Place { receiver: Mutex::new(receiver), outlet, socket, counts });
            senders.push(sender);
        }
        senders.truncate(workers);
        let neighbours = Neighbours::default();
        let waits = (0..workers).map(|_| AtomicBool::new(false)).collect();
        let mtu_bytes = mtu_bytes.min(packet::MTU_BYTES_MAX);
        let states = || queues.iter().map(|_| State::default()).collect();
        let states = (0..workers).map(|_| states()).collect();
        let bypass = Bypass { places, queues, own, mtu_bytes, workers, neighbours, waits, states };
        Ok((Arc::new(bypass), senders))
    }

    /// RX queues at which the datagrams of `queue` come.
    fn places_of(&self, queue: usize) -> impl Iterator<Item = usize> + Clone + use<> {
        (self.queues[queue].worker..self.places.len()).step_by(self.workers)
    }

    /// Queues whose datagrams come at an RX queue.
    fn queues_at(&self, place: usize) -> impl Iterator<Item = usize> + '_ {
        let whose = place % self.workers;
        let is_here = move |(_, queue): &(usize, &Queue)| queue.worker == whose;
        self.queues.iter().enumerate().filter(is_here).map(|(number, _)| number)
    }

    /// How many RX queues there are.
    pub fn places(&self) -> usize {
        self.places.len()
    }

    /// How many packets wait at an RX queue, if nobody is receiving there just now.
    pub fn waiting(&self, place: usize) -> Option<u32> {
        self.places[place].receiver.try_lock().ok().map(|receiver| receiver.waiting())
    }

    /// What was counted.
    pub fn counted(&self) -> Counted {
        let mut all = Counted {
            wrong: Wrong::ALL.iter().map(|wrong| (wrong.name(), 0)).collect(),
            ..Counted::default()
        };
        for (number, Place { counts, socket, .. }) in self.places.iter().enumerate() {
            all.waiting += u64::from(self.waiting(number).unwrap_or(0));
            all.received += counts.received.load(Relaxed);
            all.sent += counts.sent.load(Relaxed);
            all.by_stack += counts.by_stack.load(Relaxed);
            all.full += counts.full.load(Relaxed);
            all.down += counts.down.load(Relaxed);
            for ((_, sum), count) in all.wrong.iter_mut().zip(&counts.wrong) {
                *sum += count.load(Relaxed);
            }
            // A socket whose interface is gone tells nothing.
            let told = socket.as_ref().and_then(|socket| socket::statistics(socket).ok());
            if let Some(told) = told {
                all.lost.receive_ring_full += told.receive_ring_full;
                all.lost.fill_ring_empty += told.fill_ring_empty;
                all.lost.receive_dropped += told.receive_dropped;
                all.lost.invalid_descriptors += told.invalid_descriptors;
            }
        }
        all
    }
}

/// Add to a count that one thread writes at a time.
fn add(count: &AtomicU64, more: u64) {
    if more > 0 {
        count.fetch_add(more, Relaxed);
    }
}
