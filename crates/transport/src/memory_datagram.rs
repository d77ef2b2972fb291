//! Datagrams without a kernel: queues and clients in memory, on a network that loses, duplicates
//! and reorders by seed, for tests that repeat exactly.
//!
//! The draws are made in the order of the calls: one thread, one story. As with real sockets, what
//! arrives at a full receive buffer is dropped, and what leaves through a full send buffer waits;
//! a test fills one with [`DatagramNet::hold`].

use crate::cut::each_datagram;
use crate::datagram::{
    Arrival, Arrivals, BURST, BURST_BYTES, Datagrams, Departure, Path, Queue, Sent,
};
use crate::draws::Draws;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A probability is told in parts of this.
pub const PARTS: u32 = 10_000;
/// A datagram that is held back lets at most this many others pass.
const PASSED_MAX: u32 = 8;
/// Port of the first queue.
const PORT_BASE: u16 = 11_211;
/// Port of the first client.
const CLIENT_PORT_BASE: u16 = 40_000;

/// What goes wrong on the way, in parts of [`PARTS`] per datagram, and how much buffers hold.
#[derive(Debug, Clone, Copy)]
pub struct DatagramFaults {
    /// Seed of all draws.
    pub seed: u64,
    /// It does not arrive.
    pub drop: u32,
    /// It arrives twice.
    pub duplicate: u32,
    /// Later ones arrive before it.
    pub reorder: u32,
    /// Bytes that a queue or a client holds before arrivals are dropped.
    pub receive_bytes: usize,
    /// Bytes that wait to leave a queue by one path, while the network is held, before no more
    /// are taken.
    pub send_bytes: usize,
}

impl DatagramFaults {
    /// Nothing goes wrong.
    pub const NONE: DatagramFaults = DatagramFaults {
        seed: 1,
        drop: 0,
        duplicate: 0,
        reorder: 0,
        receive_bytes: 1 << 20,
        send_bytes: 1 << 18,
    };

    /// Each fault this often, in parts of [`PARTS`].
    pub const fn each(seed: u64, parts: u32) -> DatagramFaults {
        DatagramFaults { seed, drop: parts, duplicate: parts, reorder: parts, ..Self::NONE }
    }
}

#[derive(Debug, Clone)]
struct Datagram {
    from: SocketAddr,
    to: SocketAddr,
    bytes: Vec<u8>,
}

#[derive(Default)]
struct Buffer {
    datagrams: VecDeque<Datagram>,
    bytes: usize,
    /// How many have ever come.
    pushed: u64,
}

impl Buffer {
    fn push(&mut self, datagram: Datagram) {
        self.bytes += datagram.bytes.len();
        self.pushed += 1;
        self.datagrams.push_back(datagram);
    }

    fn pop(&mut self) -> Option<Datagram> {
        let datagram = self.datagrams.pop_front()?;
        self.bytes -= datagram.bytes.len();
        Some(datagram)
    }
}

/// What happened to datagrams so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Fates {
    /// Lost by a draw.
    pub dropped: u64,
    /// Doubled by a draw.
    pub duplicated: u64,
    /// Held back by a draw.
    pub reordered: u64,
    /// Came to a full buffer.
    pub overflowed: u64,
    /// Sent to where nobody is.
    pub unreachable: u64,
}

struct State {
    faults: DatagramFaults,
    draws: Draws,
    queues: Vec<Queue>,
    /// Everybody who receives: queues and clients.
    receivers: BTreeMap<SocketAddr, Buffer>,
    /// Held back: how many others pass before each arrives.
    late: Vec<(u32, Datagram)>,
    held: bool,
    sending: BTreeMap<(usize, Path), Buffer>,
    clients: u16,
    fates: Fates,
}

impl State {
    fn happens(&mut self, parts: u32) -> bool {
        parts > 0 && self.draws.next() % PARTS < parts
    }

    /// On its way: lost, doubled, held back, or none of these.
    fn carry(&mut self, datagram: Datagram) {
        if self.happens(self.faults.drop) {
            self.fates.dropped += 1;
            return;
        }
        if self.happens(self.faults.duplicate) {
            self.fates.duplicated += 1;
            self.arrive_or_wait(datagram.clone());
        }
        self.arrive_or_wait(datagram);
    }

    fn arrive_or_wait(&mut self, datagram: Datagram) {
        if self.happens(self.faults.reorder) {
            self.fates.reordered += 1;
            let passed = 1 + self.draws.next() % PASSED_MAX;
            self.late.push((passed, datagram));
            return;
        }
        self.arrive(datagram);
        for (passed, _) in &mut self.late {
            *passed -= 1;
        }
        while let Some(at) = self.late.iter().position(|(passed, _)| *passed == 0) {
            let (_, datagram) = self.late.remove(at);
            self.arrive(datagram);
        }
    }

    fn arrive(&mut self, datagram: Datagram) {
        let Some(buffer) = self.receivers.get_mut(&datagram.to) else {
            self.fates.unreachable += 1;
            return;
        };
        if buffer.bytes + datagram.bytes.len() > self.faults.receive_bytes {
            self.fates.overflowed += 1;
        } else {
            buffer.push(datagram);
        }
    }

    /// What was held back for `receiver` comes when nothing else does: there is no clock here.
    fn catch_up(&mut self, receiver: &SocketAddr) {
        if self.receivers.get(receiver).is_some_and(|buffer| !buffer.datagrams.is_empty()) {
            return;
        }
        let (due, late) = self.late.drain(..).partition(|(_, late)| late.to == *receiver);
        self.late = late;
        for (_, datagram) in due {
            self.arrive(datagram);
        }
    }
}

/// A network between one server's queues and any number of clients.
#[derive(Clone)]
pub struct DatagramNet {
    state: Arc<Mutex<State>>,
    /// The queues that this handle numbers from 0 on.
    part: Range<usize>,
}

impl DatagramNet {
    /// One queue per worker, chosen by port, and nobody else yet.
    pub fn new(faults: DatagramFaults, workers: usize) -> DatagramNet {
        let queue = |worker: usize| Queue {
            worker,
            address: SocketAddr::new(
                IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)),
                PORT_BASE + worker as u16,
            ),
            chosen: true,
        };
        let queues: Vec<Queue> = (0..workers).map(queue).collect();
        let receivers = queues.iter().map(|queue| (queue.address, Buffer::default())).collect();
        let state = State {
            faults,
            draws: Draws::new(faults.seed),
            queues,
            receivers,
            late: Vec::new(),
            held: false,
            sending: BTreeMap::new(),
            clients: 0,
            fates: Fates::default(),
        };
        DatagramNet { state: Arc::new(Mutex::new(state)), part: 0..workers }
    }

    /// The same network for those who have some of its queues, as the workers of one NUMA domain.
    pub fn part(&self, queues: Range<usize>) -> DatagramNet {
        DatagramNet { state: self.state.clone(), part: queues }
    }

    /// A worker's handle on the queues.
    pub fn datagrams(&self) -> MemoryDatagrams {
        let mut queues = self.lock().queues[self.part.clone()].to_vec();
        queues.iter_mut().for_each(|queue| queue.worker -= self.part.start);
        MemoryDatagrams { net: self.clone(), queues, arrivals: Arrivals::default() }
    }

    /// A new client, with an address of its own.
    pub fn client(&self) -> MemoryClient {
        let mut state = self.lock();
        let port = CLIENT_PORT_BASE + state.clients;
        state.clients += 1;
        let address = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2)), port);
        state.receivers.insert(address, Buffer::default());
        MemoryClient { net: self.clone(), address }
    }

    /// While held, nothing that queues send leaves their send buffers; then all of it does.
    pub fn hold(&self, held: bool) {
        let mut state = self.lock();
        state.held = held;
        if !held {
            for (_, mut buffer) in std::mem::take(&mut state.sending) {
                while let Some(datagram) = buffer.pop() {
                    state.carry(datagram);
                }
            }
        }
    }

    /// What happened to datagrams so far.
    pub fn fates(&self) -> Fates {
        self.lock().fates
    }

    /// If a poll of `queue` would return something: how many datagrams have ever come to it.
    pub fn arrivals(&self, queue: usize) -> Option<u64> {
        let mut state = self.lock();
        let address = state.queues[self.part.start + queue].address;
        state.catch_up(&address);
        let buffer = state.receivers.get(&address)?;
        (!buffer.datagrams.is_empty()).then_some(buffer.pushed)
    }

    /// Whether `queue` takes departures by `path`.
    pub fn has_room(&self, queue: usize, path: Path) -> bool {
        let state = self.lock();
        let queue = self.part.start + queue;
        let waiting = state.sending.get(&(queue, path)).map_or(0, |buffer| buffer.bytes);
        waiting < state.faults.send_bytes
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A worker's handle on the queues of a [`DatagramNet`].
pub struct MemoryDatagrams {
    net: DatagramNet,
    queues: Vec<Queue>,
    arrivals: Arrivals,
}

impl Datagrams for MemoryDatagrams {
    fn queues(&self) -> usize {
        self.queues.len()
    }

    fn queue(&self, queue: usize) -> Queue {
        self.queues[queue]
    }

    fn poll(&mut self, queue: usize, burst: usize) -> io::Result<usize> {
        self.arrivals.clear();
        let mut state = self.net.lock();
        let address = self.queues[queue].address;
        state.catch_up(&address);
        let buffer = state.receivers.get_mut(&address).expect("queues receive");
        let mut bytes = 0;
        while let Some(datagram) = buffer.datagrams.front().filter(|_| bytes < BURST_BYTES) {
            bytes += datagram.bytes.len();
            if !self.arrivals.keep(datagram.from, &datagram.bytes, burst.min(BURST)) {
                break;
            }
            buffer.pop();
        }
        Ok(self.arrivals.len())
    }

    fn arrival(&self, index: usize) -> Arrival<'_> {
        self.arrivals.get(index).expect("there are so many")
    }

    fn send(&mut self, queue: usize, path: Path, departures: &[Departure<'_>]) -> io::Result<Sent> {
        let from = self.queues[queue].address;
        let mut state = self.net.lock();
        let mut sent = Sent::default();
        for departure in departures {
            let room = state.faults.send_bytes;
            let buffer = state.sending.entry((self.net.part.start + queue, path)).or_default();
            if buffer.bytes >= room {
                break;
            }
            sent.done += 1;
            if departure.peer.port() == 0 {
                sent.refused += 1;
                continue;
            }
            // It takes all of them.
            let _ = each_datagram(departure, |pieces| {
                let bytes = pieces.iter().flat_map(|piece| piece.iter().copied()).collect();
                buffer.push(Datagram { from, to: departure.peer, bytes });
                Ok::<(), ()>(())
            });
        }
        let held = state.held;
        drop(state);
        self.net.hold(held);
        Ok(sent)
    }
}

/// A client's socket: faults meet what it sends as well as what it is sent.
pub struct MemoryClient {
    net: DatagramNet,
    address: SocketAddr,
}

impl MemoryClient {
    /// Its address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Send one datagram to an address.
    pub fn send(&self, to: SocketAddr, bytes: &[u8]) {
        let datagram = Datagram { from: self.address, to, bytes: bytes.to_vec() };
        self.net.lock().carry(datagram);
    }

    /// The next datagram and who sent it; `None` when there is none now.
    pub fn receive(&self) -> Option<(SocketAddr, Vec<u8>)> {
        let mut state = self.net.lock();
        state.catch_up(&self.address);
        let datagram = state.receivers.get_mut(&self.address)?.pop()?;
        Some((datagram.from, datagram.bytes))
    }
}

impl Drop for MemoryClient {
    fn drop(&mut self) {
        self.net.lock().receivers.remove(&self.address);
    }
}
