//! One worker's handle on the queues: what comes past the stack, and behind it in the same burst
//! what comes by the socket.

use super::links::{Links, Route};
use super::{Bypass, Counts, Place, add};
use crate::cut::each_datagram;
use crate::datagram::{
    Arrival, Arrivals, BURST, BURST_BYTES, Datagrams, Departure, Path, Queue, Sent, Whence,
};
use laneway_rdma::contract::Lenders;
use laneway_xdp::mapped::Frame;
use laneway_xdp::packet::{self, Link, Wrong};
use laneway_xdp::queue::{Kick, Receiver, Sender};
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, TryLockError};

/// Of all frames to send with, the part that trains of large replies leave to small ones.
const SPARE_PART: usize = 2;
/// Packets that one poll takes, at most: those of a peer may make one arrival together.
const PACKETS_MAX: usize = 4 * BURST;
/// Packets posted before the kernel is asked to send them: as many as it takes at a time.
const PACKETS_PER_KICK: usize = 32;
/// One poll in so many asks the socket first, that datagrams by the stack never starve.
const SOCKET_TURN: u32 = 16;

/// A worker's own way out by one interface: that of the RX queue of its number.
struct Out {
    sender: Sender,
    /// That RX queue.
    place: usize,
    /// Frames that trains of large replies leave to small ones.
    spare: usize,
    /// Posted since the kernel was last asked to send.
    posted: usize,
    /// The interface was down when it was last asked.
    is_down: bool,
}

/// A worker's handle.
pub struct XdpDatagrams {
    bypass: Arc<Bypass>,
    others: Box<dyn Datagrams>,
    worker: usize,
    /// By interface.
    outs: Vec<Out>,
    links: Links,
    received: Arrivals,
    /// Arrivals of the last poll by the socket, behind those received past the stack.
    by_socket: usize,
    polls: u32,
}

impl XdpDatagrams {
    /// Worker `worker`'s handle, before its handle on the sockets. `senders` are its ways out, as
    /// [`Bypass::new`] gave them.
    pub fn new(
        bypass: Arc<Bypass>,
        worker: usize,
        senders: Vec<Sender>,
        others: Box<dyn Datagrams>,
    ) -> XdpDatagrams {
        let out = |(sender, place): (Sender, &usize)| {
            let (held, away) = sender.held_and_away();
            let spare = (held + away) / SPARE_PART;
            Out { sender, place: *place, spare, posted: 0, is_down: false }
        };
        let outs = senders.into_iter().zip(&bypass.outs[worker]).map(out).collect();
        XdpDatagrams {
            bypass,
            others,
            worker,
            outs,
            links: Links::default(),
            received: Arrivals::default(),
            by_socket: 0,
            polls: 0,
        }
    }

    /// Take what came past the stack for `queue`: at most `burst` arrivals.
    fn receive(&mut self, queue: usize, burst: usize) {
        self.received.clear();
        let bypass = self.bypass.clone();
        let places = bypass.places_of(queue);
        // Another one first each time, or a busy one would starve the others.
        let first = self.polls as usize % places.clone().count().max(1);
        let (mut packets, mut has_left) = (PACKETS_MAX, false);
        for number in places.clone().skip(first).chain(places.take(first)) {
            let mut receiver = match bypass.places[number].receiver.try_lock() {
                Ok(receiver) => receiver,
                Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
                Err(TryLockError::WouldBlock) => {
                    has_left = true; // another worker is at it, and may just have finished
                    continue;
                }
            };
            packets = self.take(number, &mut receiver, queue, burst, packets);
            has_left |= receiver.look().is_some();
            receiver.refill();
        }
        // Whoever gets less than a burst believes that there is no more.
        if has_left && self.received.len() < burst {
            let here = bypass.queues.iter().zip(&bypass.states[self.worker]);
            let whose = bypass.queues[queue].worker;
            for (_, state) in here.filter(|(queue, _)| queue.worker == whose) {
                state.again.store(true, Relaxed); // read by the same worker
            }
        }
    }

    /// Take what came by the socket, if anything may have: at most `burst` arrivals.
    fn receive_by_socket(&mut self, queue: usize, burst: usize) -> io::Result<()> {
        // Written and read by this very worker.
        let state = &self.bypass.states[self.worker][queue];
        let may_have = state.by_socket.load(Relaxed) || !state.is_watched.load(Relaxed);
        self.by_socket = 0;
        if may_have && burst > 0 {
            self.by_socket = self.others.poll(queue, burst)?;
            let bytes = |index| self.others.arrival(index).bytes.len();
            let is_cut = BURST_BYTES <= (0..self.by_socket).map(bytes).sum();
            state.by_socket.store(self.by_socket == burst || is_cut, Relaxed);
        }
        Ok(())
    }

    /// Take at most `packets` packets of one RX queue. How many more there may be.
    fn take(
        &mut self,
        number: usize,
        receiver: &mut Receiver,
        queue: usize,
        burst: usize,
        mut packets: usize,
    ) -> usize {
        let bypass = self.bypass.clone();
        let port = |queue: usize| bypass.queues[queue].address.port();
        let Place { counts, interface, .. } = &bypass.places[number];
        let own = &bypass.sides[*interface].own;
        let mut count = 0;
        while packets > 0
            && let Some(packet) = receiver.look()
        {
            match packet::parse(packet, own) {
                Ok(datagram) if datagram.port == port(queue) => {
                    if !self.received.keep(datagram.from, datagram.payload, burst) {
                        break;
                    }
                    let route = Route { interface: *interface, link: datagram.link };
                    self.links.learn(&bypass.neighbours, &datagram.from, route);
                    count += 1;
                }
                // The next one is for another queue of the same worker, which polls that, too.
                Ok(datagram) if bypass.queues_at(number).any(|at| port(at) == datagram.port) => {
                    break;
                }
                Ok(_) => add(&counts.wrong[Wrong::Destination as usize], 1),
                Err(wrong) => add(&counts.wrong[wrong as usize], 1),
            }
            receiver.pass();
            packets -= 1;
        }
        add(&counts.received, count);
        self.outs[*interface].is_down &= count == 0;
        packets
    }

    /// By which way a departure leaves; none: by the socket.
    fn route(&mut self, from: &SocketAddr, departure: &Departure<'_>) -> Option<Route> {
        let to = &departure.peer;
        if to.port() == 0 || from.is_ipv4() != to.is_ipv4() {
            return None;
        }
        let route = self.links.find(&self.bypass.neighbours, to)?;
        let all = || departure.pieces.iter().map(|piece| piece.len()).sum();
        let bytes = departure.segment_bytes.map_or_else(all, usize::from);
        let mtu_bytes = self.bypass.sides[route.interface].mtu_bytes;
        let fits = bytes <= packet::payload_bytes_max(to, mtu_bytes);
        (fits && !self.outs[route.interface].is_down).then_some(route)
    }
}

impl Out {
    /// Post one departure, datagram by datagram. `counts` are those of the way out. An error: no
    /// frame was left behind so many.
    fn post(
        &mut self,
        counts: &Counts,
        link: &Link,
        from: &SocketAddr,
        path: Path,
        departure: &Departure<'_>,
    ) -> Result<(), usize> {
        let ends = (link, from, &departure.peer);
        let spare = if path == Path::Large { self.spare } else { 0 };
        let posted = each_datagram(departure, |pieces| {
            let pieces = pieces.iter().map(|piece| &piece[..]);
            self.post_one(counts, ends, spare, pieces).then_some(()).ok_or(())
        });
        posted.map_err(|(datagrams, ())| datagrams)
    }

    /// Post one datagram. False if there is no frame for it.
    fn post_one<'a>(
        &mut self,
        counts: &Counts,
        (link, from, to): (&Link, &SocketAddr, &SocketAddr),
        spare: usize,
        pieces: impl Iterator<Item = &'a [u8]>,
    ) -> bool {
        let Some(mut frame) = self.frame(counts, spare) else { return false };
        let room = &mut frame.bytes_mut()[..];
        let Some(bytes) = packet::compose(room, link, from, to, pieces) else {
            // What does not fit a frame was to leave by the socket: it is lost, as on a wire.
            self.sender.put_back(frame);
            return true;
        };
        if !self.sender.post(frame, bytes) {
            return false;
        }
        self.posted += 1;
        add(&counts.sent, 1);
        if self.posted == PACKETS_PER_KICK {
            self.flush(counts);
        }
        true
    }

    fn frame(&mut self, counts: &Counts, spare: usize) -> Option<Frame> {
        if let Some(frame) = self.sender.frame(spare) {
            return Some(frame);
        }
        self.flush(counts); // what leaves now may come back now
        self.sender.frame(spare)
    }

    /// Show what was posted, and ask the kernel to send it.
    fn flush(&mut self, counts: &Counts) {
        self.sender.publish();
        self.posted = 0;
        if self.sender.outlet().kick() == Kick::Down {
            self.is_down = true;
            add(&counts.down, 1);
        }
    }
}

impl Datagrams for XdpDatagrams {
    fn queues(&self) -> usize {
        self.others.queues()
    }

    fn queue(&self, queue: usize) -> Queue {
        self.others.queue(queue)
    }

    fn poll(&mut self, queue: usize, burst: usize) -> io::Result<usize> {
        self.polls = self.polls.wrapping_add(1);
        let burst = burst.min(BURST);
        if self.polls.is_multiple_of(SOCKET_TURN) {
            self.receive_by_socket(queue, burst)?;
            self.receive(queue, burst - self.by_socket);
        } else {
            self.receive(queue, burst);
            self.receive_by_socket(queue, burst - self.received.len())?;
        }
        Ok(self.received.len() + self.by_socket)
    }

    fn take_failures(&mut self) -> u64 {
        self.others.take_failures()
    }

    fn arrival(&self, index: usize) -> Arrival<'_> {
        self.received.get(index).unwrap_or_else(|| {
            let index = index - self.received.len();
            assert!(index < self.by_socket, "there are not so many");
            self.others.arrival(index)
        })
    }

    fn send(&mut self, queue: usize, path: Path, departures: &[Departure<'_>]) -> io::Result<Sent> {
        let from = self.bypass.queues[queue].address;
        let bypass = self.bypass.clone();
        self.links.follow(&bypass.neighbours);
        let mut sent = Sent::default();
        while let Some(next) = departures.get(sent.done) {
            if let Some(Route { interface, link }) = self.route(&from, next) {
                let out = &mut self.outs[interface];
                let counts = &bypass.places[out.place].counts;
                match out.post(counts, &link, &from, path, next) {
                    Ok(()) => sent.done += 1,
                    Err(datagrams) => {
                        sent.datagrams_of_next = datagrams;
                        // Read by the same worker.
                        bypass.waits[self.worker].store(1 + interface, Relaxed);
                        add(&counts.full, 1);
                        break;
                    }
                }
                continue;
            }
            let rest = &departures[sent.done..];
            let count = rest.iter().take_while(|one| self.route(&from, one).is_none()).count();
            let more = self.others.send(queue, path, &rest[..count])?;
            let counts = &bypass.places[self.outs[0].place].counts;
            add(&counts.by_stack, (more.done - more.refused) as u64);
            sent.done += more.done;
            sent.refused += more.refused;
            if more.done < count {
                sent.datagrams_of_next = more.datagrams_of_next;
                break;
            }
        }
        for out in self.outs.iter_mut().filter(|out| out.posted > 0) {
            out.flush(&bypass.places[out.place].counts);
        }
        Ok(sent)
    }

    fn tidy(&mut self) {
        self.others.tidy();
    }

    fn lenders(&self, whence: Whence) -> Option<Box<dyn Lenders>> {
        self.others.lenders(whence)
    }
}
