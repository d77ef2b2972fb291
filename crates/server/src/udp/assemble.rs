//! Requests of several datagrams. Whoever receives a frame forwards it unparsed to the one worker
//! that puts its message together: the large worker that a hash of peer and request id chooses, or
//! the standby; where no worker is large, the one whose queue it is. That worker also asks for
//! frames that are missing, and answers clients that miss frames of a reply.
//!
//! What is whole is served like any message; a large value goes into its item slice by slice.
//! Departs from Minos: the paper leaves PUTs of several packets open.

use super::deliver::TRANSFERS_MAX;
use super::guard::allowance;
use super::reply::Transfer;
use super::shared::Train;
use super::state::{At, From, PATIENCE_NANOS, UdpWorker};
use crate::core::Core;
use crate::jobs::handoff::DatagramOrigin;
use laneway_policy::{CorePlan, WorkerId};
use laneway_store::meter;
use laneway_transport::Transport;
use laneway_transport::datagram::Arrival;
use laneway_wire::udp::frames::Message;
use laneway_wire::udp::reassembly::{Refused, Taken};
use laneway_wire::udp::resend::{gaps, put_resend};
use laneway_wire::udp::{Header, Kind};
use std::net::SocketAddr;

/// The worker that puts a message together, which came to a queue of worker `whose`.
pub fn assembler(plan: &CorePlan, whose: usize, spread: u64) -> WorkerId {
    let large = u64::from(plan.workers_large());
    if large > 0 {
        return WorkerId(plan.workers_small + (spread % large) as u16);
    }
    plan.standby().unwrap_or(WorkerId(whose as u16))
}

impl UdpWorker {
    /// Give frames to whoever puts their message together.
    pub(super) fn forward<T: Transport>(
        &mut self,
        core: &mut Core<T>,
        at: At<'_>,
        (queue, peer, request_id): (usize, SocketAddr, u16),
        segment_bytes: usize,
        bytes: &[u8],
    ) {
        let key = (peer, request_id);
        let whose = at.shared.queues[queue].worker;
        let worker = assembler(&core.plan, whose, at.shared.spread(&key));
        if worker == core.id {
            return self.take_frames(core, at, queue, Arrival { peer, segment_bytes, bytes });
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
                core.wake_one([worker]);
            }
            Err(_) => at.counts.frames_queue_full.add_owner(frames),
        }
    }

    /// Frames that another worker has forwarded.
    pub(super) fn take_train<T: Transport>(
        &mut self,
        core: &mut Core<T>,
        at: At<'_>,
        train: &Train,
    ) {
        let Train { queue, peer, segment_bytes, bytes, .. } = train;
        let arrival = Arrival { peer: *peer, segment_bytes: *segment_bytes, bytes };
        self.take_frames(core, at, usize::from(*queue), arrival);
    }

    fn take_frames<T: Transport>(
        &mut self,
        core: &mut Core<T>,
        at: At<'_>,
        queue: usize,
        arrival: Arrival<'_>,
    ) {
        let now = core.clock.nanos();
        let peer = arrival.peer;
        for datagram in arrival.datagrams() {
            let Some((header, payload)) = Header::parse(datagram) else { continue };
            let to = DatagramOrigin { queue: queue as u16, peer, request_id: header.request_id };
            // The sender of a message of many frames may be answered as if it were one.
            let mut from =
                From { to, once: true, allowance: allowance(payload.len()), arrived_nanos: now };
            if header.kind == Kind::Lent {
                self.take_lent(core, at, from, payload);
            } else if header.kind == Kind::Resend {
                self.send_again(at, from, header, payload);
            } else if at.shared.guard.believes(&peer, now) {
                self.take_frame(core, at, from, header, payload);
            } else {
                self.batches[queue].begin();
                self.send_cookie(at, &mut from);
            }
        }
        at.counts.set_reassembly_owner(self.assembly.counts());
        self.account();
    }

    fn take_frame<T: Transport>(
        &mut self,
        core: &mut Core<T>,
        at: At<'_>,
        mut from: From,
        header: Header,
        payload: &[u8],
    ) {
        let name = (from.key(), from.to.queue);
        if core.stopping && !self.assembly.is_open(&name) {
            return at.counts.requests_while_stopping.add_owner(1);
        }
        // What others have begun goes on: it is what gives room back.
        let opens = self.assembly.takes_memory(&name, &header);
        if opens && !at.shared.buffers.has_room_to_open(payload.len()) {
            return at.counts.frames_no_room.add_owner(1);
        }
        meter::bytes(payload.len());
        let digest = at.shared.digest(header.sequence, payload);
        match self.assembly.take_digested(name, header, payload, digest, from.arrived_nanos) {
            Taken::Whole(whole) => self.is_whole(core, at, from, whole),
            Taken::More => {
                self.ask_nanos = self.ask_nanos.min(from.arrived_nanos + PATIENCE_NANOS);
            }
            Taken::Refused(Refused::TooLong) if header.sequence == 0 => {
                let bytes_least = (usize::from(header.total) - 1) * payload.len();
                self.is_too_long(core, at, from, payload, bytes_least);
            }
            Taken::Refused(Refused::Stale) if header.is_last() => {
                // Its client repeats all of it: the answer was lost.
                let answer = at.shared.answer(from.to.queue, &from.key(), from.arrived_nanos);
                if let Some(answer) = answer {
                    at.counts.repeats_answered.add_owner(1);
                    from.once = false;
                    self.answer(at, &mut from, &answer);
                }
            }
            Taken::Refused(_) => {}
        }
    }

    /// A client misses frames of a reply.
    fn send_again(&mut self, at: At<'_>, from: From, header: Header, payload: &[u8]) {
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
        if !transfer.is_empty() && self.transfers.len() < TRANSFERS_MAX {
            at.counts.resends_answered.add_owner(1);
            self.transfers.push_back(transfer);
        }
    }

    /// Ask for the frames of messages that stand still.
    pub(super) fn ask_for_frames<T: Transport>(&mut self, core: &mut Core<T>, at: At<'_>) {
        if self.ask_nanos == u64::MAX {
            return;
        }
        let now = core.clock.nanos();
        if now < self.ask_nanos {
            return;
        }
        self.assembly.expire(now);
        let UdpWorker { assembly, batches, dirty, .. } = self;
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
        at.counts.set_reassembly_owner(self.assembly.counts());
        self.ask_nanos = if self.assembly.is_empty() { u64::MAX } else { now + PATIENCE_NANOS };
    }
}
