//! Datagrams past the kernel's stack: AF_XDP sockets ([`laneway_xdp`]) on the RX queues of one
//! interface or several, before other queues of the same numbers, which are the server's UDP
//! sockets.
//!
//! - **A way, not a place.** A queue is where clients send to, and has the same number, address and
//!   worker whichever way a datagram takes. What the BPF program leads past the stack comes by the
//!   interface's queues, everything else (from other interfaces, in fragments, for a port that
//!   another worker's RX queue received) by the socket. A reply leaves past the stack if its peer's
//!   Ethernet address is known from a request that came so ([`links`]) and it fits the link, by the
//!   interface that this came by, else by the socket.
//! - **Whose.** RX queue r of an interface belongs to worker r modulo the workers, and with it what
//!   comes there for that worker's queues. Whoever may serve these takes it, under a lock that is
//!   only tried. To send, each worker has an RX queue's other half of each interface for itself,
//!   and so waits for nobody.
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
//! [`handle`] is a worker's `Datagrams`, [`watch`] the part of its `Transport`; [`busy`] has a
//! worker's own calls look at the card's driver.

pub mod busy;
pub mod handle;
pub mod links;
pub mod watch;

use crate::datagram::Queue;
use laneway_xdp::packet::{self, Own, Wrong};
use laneway_xdp::queue::{Outlet, Receiver, Sender, Sizes};
use laneway_xdp::socket::{self, Statistics};
use links::Neighbours;
use rustix::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
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

/// One RX queue of an interface.
struct Place {
    receiver: Mutex<Receiver>,
    outlet: Outlet,
    /// None where somebody else than the kernel is at the other end.
    socket: Option<Arc<OwnedFd>>,
    counts: Counts,
    /// Whose it is.
    worker: usize,
    /// Of which interface.
    interface: usize,
}

/// One interface.
struct Side {
    own: Own,
    mtu_bytes: usize,
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

/// What is known of one interface when it is opened.
pub struct Interface {
    /// Its RX queues, by number.
    pub parts: Vec<Part>,
    /// Who we are there.
    pub own: Own,
    /// The longest packet that it takes.
    pub mtu_bytes: usize,
}

/// What all workers share of the way past the stack.
pub struct Bypass {
    /// The RX queues of all interfaces, one interface after the other.
    places: Vec<Place>,
    sides: Vec<Side>,
    queues: Vec<Queue>,
    /// Of each worker, its RX queues.
    of_worker: Vec<Vec<usize>>,
    /// Of each worker, by interface, the RX queue by whose other half it sends.
    outs: Vec<Vec<usize>>,
    neighbours: Neighbours,
    /// By which interface a worker found its half without frames and waits for some, counted from
    /// 1; 0 where it does not.
    waits: Vec<AtomicUsize>,
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

/// A server whose workers are more than an interface's RX queues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooFew {
    /// Which interface, by its place in what was asked for.
    pub interface: usize,
    /// RX queues there are.
    pub queues: usize,
    /// Workers there are.
    pub workers: usize,
}

impl Bypass {
    /// The RX queues of these interfaces before the server's queues; and each worker's ways out, by
    /// interface.
    pub fn new(
        interfaces: Vec<Interface>,
        queues: Vec<Queue>,
    ) -> Result<(Arc<Bypass>, Vec<Vec<Sender>>), TooFew> {
        let workers = queues.iter().map(|queue| queue.worker + 1).max().unwrap_or(1);
        let (mut places, mut sides) = (Vec::new(), Vec::new());
        let mut senders: Vec<Vec<Sender>> = (0..workers).map(|_| Vec::new()).collect();
        let mut of_worker = vec![Vec::new(); workers];
        let mut outs = vec![Vec::new(); workers];
        for (interface, Interface { parts, own, mtu_bytes }) in interfaces.into_iter().enumerate() {
            if parts.len() < workers {
                return Err(TooFew { interface, queues: parts.len(), workers });
            }
            for (number, Part { receiver, sender, socket }) in parts.into_iter().enumerate() {
                let (worker, receiver) = (number % workers, Mutex::new(receiver));
                let (outlet, counts) = (sender.outlet().clone(), Counts::default());
                of_worker[worker].push(places.len());
                if number < workers {
                    outs[worker].push(places.len());
                    senders[worker].push(sender);
                }
                places.push(Place { receiver, outlet, socket, counts, worker, interface });
            }
            sides.push(Side { own, mtu_bytes: mtu_bytes.min(packet::MTU_BYTES_MAX) });
        }
        let neighbours = Neighbours::default();
        let waits = (0..workers).map(|_| AtomicUsize::new(0)).collect();
        let states = || queues.iter().map(|_| State::default()).collect();
        let states = (0..workers).map(|_| states()).collect();
        let bypass = Bypass { places, sides, queues, of_worker, outs, neighbours, waits, states };
        Ok((Arc::new(bypass), senders))
    }

    /// RX queues at which the datagrams of `queue` come.
    fn places_of(&self, queue: usize) -> impl Iterator<Item = usize> + Clone + '_ {
        self.of_worker[self.queues[queue].worker].iter().copied()
    }

    /// Queues whose datagrams come at an RX queue.
    fn queues_at(&self, place: usize) -> impl Iterator<Item = usize> + '_ {
        let whose = self.places[place].worker;
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
