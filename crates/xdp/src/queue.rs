//! Has the two halves of a queue. What comes: frames go into the fill ring, and come back by the RX
//! ring with a packet each. What leaves: frames go into the TX ring with a packet, and come back by
//! the completion ring when it has been sent. A half has frames of its own, and one owner at a
//! time.
//!
//! The order of things is the caller's: packets are looked at one by one and given back in bursts
//! ([`Receiver::refill`]), packets to send are posted one by one and shown in bursts
//! ([`Sender::publish`]), then the kernel is asked to send ([`Outlet::kick`]).

use crate::frames::Away;
use crate::mapped::{FRAME_BYTES, Frame, Ring};
use laneway_sync::descriptors::{Consumer, Producer};
use laneway_sync::prim::Ordering::Relaxed;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::xdp::XdpRingFlags;
use rustix::net::{RecvFlags, SendFlags};
use std::sync::Arc;

/// The four rings of a queue.
#[derive(Debug, Clone)]
pub(crate) struct Rings {
    /// Empty frames for packets to come.
    pub(crate) fill: Arc<Ring>,
    /// Packets that came.
    pub(crate) rx: Arc<Ring>,
    /// Packets to be sent.
    pub(crate) tx: Arc<Ring>,
    /// Frames of packets that have been sent.
    pub(crate) completion: Arc<Ring>,
}

/// Frames of one half, and so places of each of its rings: a power of two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sizes {
    /// For what comes.
    pub receive: u32,
    /// For what leaves.
    pub send: u32,
}

/// Words of a descriptor of the fill and completion rings: an address.
pub(crate) const ADDRESS_WORDS: usize = 1;
/// Words of a descriptor of the RX and TX rings: an address, and a length (`struct xdp_desc`).
pub(crate) const PACKET_WORDS: usize = 2;

fn needs_wakeup(ring: &Ring) -> bool {
    ring.flags().load(Relaxed) & XdpRingFlags::XDP_RING_NEED_WAKEUP.bits() != 0
}

/// The half that receives.
#[derive(Debug)]
pub struct Receiver {
    rings: Rings,
    fill: Producer<ADDRESS_WORDS>,
    rx: Consumer<PACKET_WORDS>,
    away: Away,
    /// Frames here.
    idle: Vec<Frame>,
    /// The packet that was looked at last.
    current: Option<(Frame, usize, usize)>,
    socket: Option<Arc<OwnedFd>>,
    /// Descriptors that made no sense.
    astray: u64,
}

impl Receiver {
    /// The half with these frames, all of which lie in the fill ring then. The kernel is behind
    /// `socket`; none: somebody else is at the other end.
    pub(crate) fn new(rings: Rings, frames: Vec<Frame>, socket: Option<Arc<OwnedFd>>) -> Receiver {
        let count = frames.len() as u32;
        let first = frames.iter().map(Frame::number).min().unwrap_or(0);
        let mut receiver = Receiver {
            rings,
            fill: Producer::new(count),
            rx: Consumer::new(count),
            away: Away::new(first, count),
            idle: frames,
            current: None,
            socket,
            astray: 0,
        };
        receiver.refill();
        receiver
    }

    /// The next packet, from the Ethernet header on and still in its ring; none when there is none
    /// now. It stays the next one until [`Receiver::pass`].
    pub fn look(&mut self) -> Option<&[u8]> {
        while self.current.is_none() {
            let [address, length] = self.rx.peek(self.rings.rx.memory())?;
            // The upper half has options, and none that a packet of one frame could need.
            let (at, bytes) = (address as usize % FRAME_BYTES, length as u32 as usize);
            match self.away.take(address) {
                Some(frame) if at + bytes <= FRAME_BYTES => self.current = Some((frame, at, bytes)),
                other => {
                    self.idle.extend(other);
                    self.astray += 1;
                    self.rx.take(self.rings.rx.memory());
                }
            }
        }
        let (frame, at, bytes) = self.current.as_ref()?;
        Some(&frame.bytes()[*at..at + bytes])
    }

    /// Done with the packet that was looked at.
    pub fn pass(&mut self) {
        if let Some((frame, ..)) = self.current.take() {
            self.idle.push(frame);
            self.rx.take(self.rings.rx.memory());
        }
    }

    /// Give the frames of packets that are done with back to the kernel.
    pub fn refill(&mut self) {
        self.rx.release(self.rings.rx.memory());
        while let Some(frame) = self.idle.pop() {
            if !self.fill.put(self.rings.fill.memory(), [Away::address(&frame)]) {
                self.idle.push(frame);
                break;
            }
            self.away.give(frame);
        }
        self.fill.publish(self.rings.fill.memory());
        if let Some(socket) = self.socket.as_ref().filter(|_| needs_wakeup(&self.rings.fill)) {
            // Whatever it says: the driver has looked, or looks at the next packet.
            let _ = rustix::net::recv(socket, &mut [0_u8; 0][..], RecvFlags::DONTWAIT);
        }
    }

    /// How many packets have come and were not looked at, or not passed.
    pub fn waiting(&self) -> u32 {
        self.rx.waiting(self.rings.rx.memory())
    }

    /// Descriptors that made no sense.
    pub fn astray(&self) -> u64 {
        self.astray
    }

    /// Frames in our hands, and out of them.
    pub fn held_and_away(&self) -> (usize, usize) {
        (self.idle.len() + usize::from(self.current.is_some()), self.away.len())
    }
}

/// What became of asking the kernel to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kick {
    /// Everything shown has been taken.
    Drained,
    /// Something is left: ask again.
    Left,
    /// The interface is down or gone.
    Down,
}

/// A queue's way out, as others than its sender see it.
#[derive(Debug, Clone)]
pub struct Outlet {
    rings: Rings,
    socket: Option<Arc<OwnedFd>>,
}

/// Times that the kernel is asked in a row: it takes 32 packets at a time where it copies.
const KICKS_MAX: usize = 8;

impl Outlet {
    /// Whether the kernel has taken all that was shown to it.
    pub fn is_drained(&self) -> bool {
        self.rings.tx.memory().is_empty()
    }

    /// Whether frames have come back that the sender has not taken in.
    pub fn has_completions(&self) -> bool {
        !self.rings.completion.memory().is_empty()
    }

    /// Ask the kernel to send what it has been shown, if it wants to be asked.
    pub fn kick(&self) -> Kick {
        let Some(socket) = &self.socket else { return Kick::Drained };
        for _ in 0..KICKS_MAX {
            if self.is_drained() {
                return Kick::Drained;
            }
            if !needs_wakeup(&self.rings.tx) {
                return Kick::Left; // the driver is at it
            }
            match rustix::net::send(socket, &[], SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                // Again: it has sent what it sends at a time, or has no buffers just now.
                Ok(_) | Err(Errno::AGAIN | Errno::INTR) => {}
                Err(Errno::BUSY | Errno::NOBUFS | Errno::NOMEM) => return Kick::Left,
                Err(_) => return Kick::Down,
            }
        }
        if self.is_drained() { Kick::Drained } else { Kick::Left }
    }
}

/// The half that sends.
#[derive(Debug)]
pub struct Sender {
    outlet: Outlet,
    tx: Producer<PACKET_WORDS>,
    completion: Consumer<ADDRESS_WORDS>,
    away: Away,
    idle: Vec<Frame>,
    astray: u64,
}

impl Sender {
    /// The half with these frames.
    pub(crate) fn new(rings: Rings, frames: Vec<Frame>, socket: Option<Arc<OwnedFd>>) -> Sender {
        let count = frames.len() as u32;
        let first = frames.iter().map(Frame::number).min().unwrap_or(0);
        Sender {
            outlet: Outlet { rings, socket },
            tx: Producer::new(count),
            completion: Consumer::new(count),
            away: Away::new(first, count),
            idle: frames,
            astray: 0,
        }
    }

    /// Its way out.
    pub fn outlet(&self) -> &Outlet {
        &self.outlet
    }

    /// An empty frame; none if that would leave fewer than `spare`.
    pub fn frame(&mut self, spare: usize) -> Option<Frame> {
        if self.idle.len() <= spare {
            self.reap();
        }
        if self.idle.len() <= spare { None } else { self.idle.pop() }
    }

    /// A frame that was not needed after all.
    pub fn put_back(&mut self, frame: Frame) {
        self.idle.push(frame);
    }

    /// Take in the frames of packets that have been sent.
    pub fn reap(&mut self) {
        let completion = &self.outlet.rings.completion;
        while let Some([address]) = self.completion.take(completion.memory()) {
            match self.away.take(address) {
                Some(frame) => self.idle.push(frame),
                None => self.astray += 1,
            }
        }
        self.completion.release(completion.memory());
    }

    /// The first `bytes` bytes of a frame are a packet. The kernel sees it after
    /// [`Sender::publish`]. False if the ring has no place: the frame is back where it was.
    ///
    /// # Panics
    /// If the frame is shorter, or none of this half's.
    pub fn post(&mut self, frame: Frame, bytes: usize) -> bool {
        assert!(bytes <= FRAME_BYTES);
        let descriptor = [Away::address(&frame), bytes as u64];
        // There are as many places as frames, but frames may come back first.
        let has_place = self.tx.put(self.outlet.rings.tx.memory(), descriptor);
        match has_place {
            true => self.away.give(frame),
            false => self.idle.push(frame),
        }
        has_place
    }

    /// Show what was posted.
    pub fn publish(&mut self) {
        self.tx.publish(self.outlet.rings.tx.memory());
    }

    /// Descriptors that made no sense.
    pub fn astray(&self) -> u64 {
        self.astray
    }

    /// Frames in our hands, and out of them.
    pub fn held_and_away(&self) -> (usize, usize) {
        (self.idle.len(), self.away.len())
    }
}
