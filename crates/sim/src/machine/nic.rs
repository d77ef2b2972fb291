//! The wire: TX queues of frames, sent one at a time at the NIC's rate.
//!
//! Each worker has one TX queue, as in the paper, or with `lanes` two, so that its small replies
//! never stand behind its own large ones. The NIC takes a frame from each queue in turn, or from
//! those of small replies first; or a burst of frames, if so told. A worker's frames are in its
//! queue as soon as it has made them. Not modelled: a bound on the queues, and the way in.
//! Unit: picoseconds.

use super::{Doing, Request, Run};
use crate::events::NEVER;
use laneway_policy::FRAME_BYTES;
use std::collections::VecDeque;

/// In which order the NIC serves its queues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WireOrder {
    /// A frame from each that has any, in turn.
    RoundRobin,
    /// The same, but no frame of a large reply while one of a small reply waits. Where a worker
    /// has one queue this changes nothing within it.
    SmallFirst,
}

/// A NIC.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Nic {
    /// Its rate.
    pub gigabits: f64,
    /// Its order.
    pub order: WireOrder,
    /// Frames that it takes from a queue before it goes on to the next.
    pub burst: u32,
    /// A second TX queue for each worker's large replies, whatever the design.
    pub queue_per_lane: bool,
}

impl Nic {
    /// The paper's: 40 Gb/s, round robin.
    pub const MINOS: Nic =
        Nic { gigabits: 40.0, order: WireOrder::RoundRobin, burst: 1, queue_per_lane: false };
}

/// On the wire besides the payload: Ethernet preamble, header, checksum and gap (38), IP (20) and
/// UDP (8).
const FRAME_OVERHEAD: u64 = 38 + 20 + 8;

/// The shortest frame, with preamble and gap.
const FRAME_MIN: u64 = 84;

/// Payload of a reply that carries no value, and what precedes a value in one that does.
const REPLY_HEADER: u32 = 16;

#[derive(Debug, Clone, Copy)]
struct Entry {
    request: Request,
    bytes_left: u32,
    /// The reply is whole when this has been sent.
    last: bool,
}

pub(super) struct Wire {
    nic: Nic,
    per_lane: bool,
    /// Two for each worker: small replies (or all), and large ones.
    queues: Vec<VecDeque<Entry>>,
    waiting: u128,
    small_mask: u128,
    cursor: u32,
    /// Frames left of the turn of the queue before the cursor.
    turn_left: u32,
    sending: Option<(usize, u32)>,
    ps_per_byte: f64,
    /// Bytes of large replies not sent, for each worker.
    pub(super) large_unsent: Vec<u64>,
    unsent: u64,
    pub(super) busy: u64,
}

impl Wire {
    pub(super) fn new(nic: Nic, workers: usize, per_lane: bool) -> Wire {
        Wire {
            nic,
            per_lane: per_lane || nic.queue_per_lane,
            queues: (0..2 * workers).map(|_| VecDeque::with_capacity(256)).collect(),
            waiting: 0,
            small_mask: u128::from_ne_bytes([0x55; 16]),
            cursor: 0,
            turn_left: 0,
            sending: None,
            ps_per_byte: 8_000.0 / nic.gigabits,
            large_unsent: vec![0; workers],
            unsent: 0,
            busy: 0,
        }
    }

    /// How long it would take to send all that waits.
    pub(super) fn backlog(&self) -> u64 {
        (self.unsent as f64 * self.ps_per_byte) as u64
    }

    pub(super) fn waiting(&self) -> impl Iterator<Item = &Request> {
        self.queues.iter().flatten().filter(|entry| entry.last).map(|entry| &entry.request)
    }

    fn push(&mut self, worker: usize, entry: Entry) {
        let lane = usize::from(self.per_lane && entry.request.large);
        let queue = 2 * worker + lane;
        self.queues[queue].push_back(entry);
        self.waiting |= 1 << queue;
        self.unsent += u64::from(entry.bytes_left);
        if entry.request.large {
            self.large_unsent[worker] += u64::from(entry.bytes_left);
        }
    }

    /// Begin the next frame; how long it takes.
    fn begin(&mut self) -> Option<u64> {
        let mut from = self.waiting;
        if from == 0 {
            return None;
        }
        if self.nic.order == WireOrder::SmallFirst && from & self.small_mask != 0 {
            from &= self.small_mask;
        }
        if self.turn_left > 0 && from >> (self.cursor - 1) & 1 == 1 {
            self.turn_left -= 1;
        } else {
            let after = from.checked_shr(self.cursor).unwrap_or(0);
            self.cursor = 1 + match after {
                0 => from.trailing_zeros(),
                _ => self.cursor + after.trailing_zeros(),
            };
            self.turn_left = self.nic.burst - 1;
        }
        let queue = self.cursor as usize - 1;
        let entry = self.queues[queue].front()?;
        let payload = entry.bytes_left.min(FRAME_BYTES.0 as u32);
        self.sending = Some((queue, payload));
        let frame = (u64::from(payload) + FRAME_OVERHEAD).max(FRAME_MIN);
        let time = (frame as f64 * self.ps_per_byte) as u64;
        self.busy += time;
        Some(time)
    }

    /// The frame on the wire has left; its worker, and the request if that was the last of it.
    fn sent(&mut self) -> (usize, Option<Request>) {
        let (queue, payload) = self.sending.take().expect("a frame is on the wire");
        let worker = queue / 2;
        self.unsent -= u64::from(payload);
        let entry = self.queues[queue].front_mut().expect("its reply is in the queue");
        entry.bytes_left -= payload;
        let Entry { request, bytes_left, last } = *entry;
        if request.large {
            self.large_unsent[worker] -= u64::from(payload);
        }
        if bytes_left > 0 {
            return (worker, None);
        }
        self.queues[queue].pop_front();
        if self.queues[queue].is_empty() {
            self.waiting &= !(1 << queue);
        }
        (worker, last.then_some(request))
    }
}

impl Run<'_> {
    /// `bytes` of the reply are made; `last` if it is whole now.
    pub(super) fn reply(&mut self, worker: usize, request: Request, bytes: u32, last: bool) {
        let silent = self.wire.is_none() || !request.replied;
        if silent {
            if last {
                self.answered(&request);
            }
            return;
        }
        let bytes = match (request.put, last) {
            (true, false) => return,
            (true, true) => REPLY_HEADER,
            (false, _) => bytes + REPLY_HEADER,
        };
        let Some(wire) = &mut self.wire else { return };
        wire.push(worker, Entry { request, bytes_left: bytes, last });
        if wire.sending.is_none() {
            self.next_frame();
        }
    }

    fn next_frame(&mut self) {
        let time = self.wire.as_mut().and_then(Wire::begin);
        let source = self.source_wire();
        self.events.set(source, time.map_or(NEVER, |time| self.now + time));
    }

    pub(super) fn frame_sent(&mut self) {
        let Some(wire) = &mut self.wire else { return };
        let (worker, done) = wire.sent();
        self.next_frame();
        if let Some(request) = done {
            self.answered(&request);
        }
        let blocked = matches!(self.workers[worker].doing, Doing::Nothing);
        if blocked && !self.workers[worker].transfers.is_empty() {
            self.wake(worker);
        }
    }
}
