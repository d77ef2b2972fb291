//! Requests of several datagrams. Whoever receives a frame forwards it unparsed to the one worker
//! that puts its message together: the large worker that a hash of peer and request id chooses, or
//! the standby; where no worker is large, the one whose queue it is. That worker also asks for
//! frames that are missing, and answers clients that miss frames of a reply.
//!
//! What is whole is served like any message; a large value goes into its item slice by slice.
//! Departs from Minos: the paper leaves PUTs of several packets open.

use super::guard::allowance;
use super::reply::Transfer;
use super::request::value_bytes;
use super::shared::LINE_BYTES_MAX;
use super::shared::Train;
use super::state::{At, Desk, From, PATIENCE_NANOS, Storing};
use crate::clock::Clock;
use crate::execute;
use crate::handoff::DatagramOrigin;
use crate::udp::send::TRANSFERS_MAX;
use crate::worker::Worker;
use laneway_policy::{CorePlan, ItemBytes, WorkerId};
use laneway_store::meter;
use laneway_transport::Transport;
use laneway_transport::datagram::Arrival;
use laneway_wire::reply::CRLF;
use laneway_wire::udp::frames::Message;
use laneway_wire::udp::reassembly::{Refused, Taken, Whole};
use laneway_wire::udp::resend::{gaps, put_resend};
use laneway_wire::udp::{Header, Kind};
use laneway_wire::{Frame, KEY_BYTES_MAX, Malformed, Then, parse};
use std::cell::Cell;
use std::net::SocketAddr;

/// The worker that puts a message together, which came to a queue of worker `whose`.
pub fn assembler(plan: &CorePlan, whose: usize, spread: u64) -> WorkerId {
    let large = u64::from(plan.workers_large());
    if large > 0 {
        return WorkerId(plan.workers_small + (spread % large) as u16);
    }
    plan.standby().unwrap_or(WorkerId(whose as u16))
}

/// Bytes of a message that is served at once: the longest line, and small values.
const AT_ONCE_BYTES_MAX: usize = LINE_BYTES_MAX + (64 << 10);

/// Where the first request of a message ends: with its value, as far as it says how long that is.
fn end_of_first(parsed: &Result<Option<Frame<'_>>, Malformed<'_>>) -> usize {
    match parsed {
        Ok(Some(frame)) => {
            let value = value_bytes(&frame.request).map_or(0, |bytes| bytes + CRLF.len());
            frame.head_bytes + value
        }
        // It has no end where the longest line would have one.
        Ok(None) => 0,
        Err(malformed) => match malformed.then {
            Then::Continue => malformed.head_bytes,
            Then::Swallow(bytes) => malformed.head_bytes + bytes,
            Then::Close => usize::MAX,
        },
    }
}

impl<T: Transport, C: Clock> Worker<T, C> {
    /// Give frames to whoever puts their message together.
    pub(super) fn forward(
        &mut self,
        desk: &mut Desk,
        at: At<'_>,
        (queue, peer, request_id): (usize, SocketAddr, u16),
        segment_bytes: usize,
        bytes: &[u8],
    ) {
        let key = (peer, request_id);
        let whose = at.shared.queues[queue].worker;
        let worker = assembler(&self.plan, whose, at.shared.spread(&key));
        if worker == self.id {
            return self.take_frames(desk, at, queue, Arrival { peer, segment_bytes, bytes });
        }
        meter::bytes(bytes.len());
        let frames = bytes.len().div_ceil(segment_bytes) as u64;
        let Some(held) = at.shared.buffers.hold(bytes.len()) else {
            return at.counts.frames_no_room.add_owner(frames);
        };
        let bytes = bytes.to_vec();
        let train = Train { queue: queue as u16, peer, segment_bytes, bytes, held };
        match at.shared.trains[worker.index()].push(train) {
            Ok(()) => {
                at.counts.frames_forwarded.add_owner(frames);
                self.wake_one([worker]);
            }
            Err(_) => at.counts.frames_queue_full.add_owner(frames),
        }
    }

    /// Frames that another worker has forwarded.
    pub(super) fn take_train(&mut self, desk: &mut Desk, at: At<'_>, train: &Train) {
        let Train { queue, peer, segment_bytes, bytes, .. } = train;
        let arrival = Arrival { peer: *peer, segment_bytes: *segment_bytes, bytes };
        self.take_frames(desk, at, usize::from(*queue), arrival);
    }

    fn take_frames(&mut self, desk: &mut Desk, at: At<'_>, queue: usize, arrival: Arrival<'_>) {
        let now = self.clock.nanos();
        let peer = arrival.peer;
        for datagram in arrival.datagrams() {
            let Some((header, payload)) = Header::parse(datagram) else { continue };
            let to = DatagramOrigin { queue: queue as u16, peer, request_id: header.request_id };
            // The sender of a message of many frames may be answered as if it were one.
            let mut from =
                From { to, once: true, allowance: allowance(payload.len()), arrived_nanos: now };
            if header.kind == Kind::Lent {
                self.take_lent(desk, at, from, payload);
            } else if header.kind == Kind::Resend {
                self.send_again(desk, at, from, header, payload);
            } else if at.shared.guard.believes(&peer, now) {
                self.take_frame(desk, at, from, header, payload);
            } else {
                desk.batches[queue].begin();
                self.send_cookie(desk, at, &mut from);
            }
        }
        at.counts.set_reassembly_owner(desk.assembly.counts(), &desk.counted_before);
        desk.account();
    }

    fn take_frame(
        &mut self,
        desk: &mut Desk,
        at: At<'_>,
        mut from: From,
        header: Header,
        payload: &[u8],
    ) {
        let name = (from.key(), from.to.queue);
        if self.stopping && !desk.assembly.is_open(&name) {
            return at.counts.requests_while_stopping.add_owner(1);
        }
        // What others have begun goes on: it is what gives room back.
        let opens = desk.assembly.takes_memory(&name, &header);
        if opens && !at.shared.buffers.has_room_to_open(payload.len()) {
            return at.counts.frames_no_room.add_owner(1);
        }
        meter::bytes(payload.len());
        let digest = at.shared.digest(header.sequence, payload);
        match desk.assembly.take_digested(name, header, payload, digest, from.arrived_nanos) {
            Taken::Whole(whole) => self.whole(desk, at, from, whole),
            Taken::More => {
                desk.ask_nanos = desk.ask_nanos.min(from.arrived_nanos + PATIENCE_NANOS);
            }
            Taken::Refused(Refused::Stale) if header.is_last() => {
                // Its client repeats all of it: the answer was lost.
                let answer = at.shared.answer(from.to.queue, &from.key(), from.arrived_nanos);
                if let Some(answer) = answer {
                    at.counts.repeats_answered.add_owner(1);
                    from.once = false;
                    self.answer(desk, at, &mut from, &answer);
                }
            }
            Taken::Refused(_) => {}
        }
    }

    /// A message is whole.
    pub(super) fn whole(&mut self, desk: &mut Desk, at: At<'_>, from: From, whole: Whole) {
        let parsed = parse(whole.piece(0), &self.limits);
        let is_long = AT_ONCE_BYTES_MAX < whole.message_bytes();
        if is_long && end_of_first(&parsed) < whole.message_bytes() {
            return self.too_long(desk, at, from, whole.digest(), whole.piece(0));
        }
        let head = match parsed {
            Ok(Some(frame)) => value_bytes(&frame.request).map(|bytes| (frame, bytes)),
            _ => None,
        };
        let exact = |head: usize, value: usize| head + value + CRLF.len() == whole.message_bytes();
        match head {
            Some((frame, value_bytes)) if exact(frame.head_bytes, value_bytes) => {
                let mut scratch = [0; KEY_BYTES_MAX];
                let key = execute::key_of_store(&frame.request, &mut scratch);
                let size = key.len() + value_bytes;
                let size = ItemBytes(size as u64);
                // What is too long to be served at once goes the same way, small as it may count.
                if size >= self.plan.threshold || is_long {
                    let head_bytes = frame.head_bytes;
                    return self.large_value(desk, at, from, whole, head_bytes);
                }
            }
            _ => {}
        }
        let digest = whole.digest();
        // What ends far behind is a value that is shorter than it says.
        let bytes = whole.into_front(AT_ONCE_BYTES_MAX);
        meter::bytes(bytes.len());
        self.message(desk, at, from, digest, &bytes);
    }

    /// A large value: into its item, slice by slice. Whose item it is executes it then.
    fn large_value(
        &mut self,
        desk: &mut Desk,
        at: At<'_>,
        mut from: From,
        message: Whole,
        head_bytes: usize,
    ) {
        let (queue, now) = (from.to.queue, from.arrived_nanos);
        if !self.is_first(desk, at, &mut from, message.digest()) {
            return;
        }
        if !desk.may_store(message.message_bytes()) {
            at.counts.requests_queue_full.add_owner(1);
            return at.shared.given_up(queue, &from.key(), now);
        }
        let incoming = {
            let Ok(Some(frame)) = parse(message.piece(0), &self.limits) else { return };
            let batch = &mut desk.batches[from.queue()];
            batch.begin();
            let (touched, mut scratch) = (Cell::new(0), [0; KEY_BYTES_MAX]);
            let key = execute::key_of_store(&frame.request, &mut scratch);
            execute::begin(&self.context_for(&touched, key), &frame.request, batch.out())
        };
        match incoming {
            Some(incoming) => {
                desk.batches[from.queue()].abandon();
                let incoming = Box::new(incoming);
                desk.storing_bytes += message.message_bytes();
                desk.storing.push_back(Storing { from, message, at: head_bytes, incoming });
            }
            None => {
                at.counts.requests.add_owner(1);
                self.end_reply(desk, at, &mut from); // refused, and says so
            }
        }
    }

    /// A client misses frames of a reply.
    fn send_again(
        &mut self,
        desk: &mut Desk,
        at: At<'_>,
        from: From,
        header: Header,
        payload: &[u8],
    ) {
        let (queue, now) = (from.to.queue, from.arrived_nanos);
        let believed = at.shared.guard.believes(&from.to.peer, now);
        let kept = believed.then(|| at.shared.kept_reply(queue, &from.key(), now)).flatten();
        let is_of = |reply: &std::sync::Arc<super::reply::Reply>| {
            laneway_wire::udp::frames::frames(reply.message_bytes()) == Some(header.total)
        };
        let Some(reply) = kept.filter(is_of) else {
            return at.counts.resends_unknown.add_owner(1);
        };
        let transfer = Transfer::again(from.to, reply, gaps(payload, header.total));
        if !transfer.is_empty() && desk.transfers.len() < TRANSFERS_MAX {
            at.counts.resends_answered.add_owner(1);
            desk.transfers.push_back(transfer);
        }
    }

    /// Ask for the frames of messages that stand still.
    pub(super) fn ask_for_frames(&mut self, desk: &mut Desk, at: At<'_>) {
        if desk.ask_nanos == u64::MAX {
            return;
        }
        let now = self.clock.nanos();
        if now < desk.ask_nanos {
            return;
        }
        desk.assembly.expire(now);
        let Desk { assembly, batches, dirty, .. } = desk;
        let mut datagram = Vec::new();
        assembly.overdue(now, PATIENCE_NANOS, |((peer, request_id), queue), overdue| {
            datagram.clear();
            put_resend(&mut datagram, *request_id, overdue.total, overdue.gaps);
            let queue = usize::from(*queue);
            batches[queue].datagram(*peer, &datagram);
            if !dirty.contains(&queue) {
                dirty.push(queue);
            }
            at.counts.resends_asked.add_owner(1);
        });
        at.counts.set_reassembly_owner(desk.assembly.counts(), &desk.counted_before);
        desk.ask_nanos = if desk.assembly.is_empty() { u64::MAX } else { now + PATIENCE_NANOS };
    }
}
