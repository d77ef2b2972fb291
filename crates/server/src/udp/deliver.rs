//! Replies to datagrams: a small one is a message of its queue's batch, a large one becomes a
//! transfer, which leaves slice by slice. Whoever has not proved its address is sent a cookie
//! where the reply would be much longer than what was asked.

use super::guard::FRAME_COST_BYTES;
use super::placed::notice;
use super::reply::{Reply, Transfer};
use super::state::{At, From, Udp, UdpWorker};
use crate::core::Core;
use crate::jobs::handoff::{Finished, Job, Origin};
use crate::stream::output::Output;
use crate::stream::step::OUT_BYTES_PER_TURN;
use crate::udp::answers::Once;
use laneway_policy::WorkerTarget;
use laneway_rdma::contract::{Moved, Placed};
use laneway_rdma::long::sealed_descriptor::PIECE_BYTES;
use laneway_store::meter;
use laneway_transport::{Transport, rdma};
use laneway_wire::udp::frames::{Message, frames};
use laneway_wire::udp::{FRAME_BYTES_MAX, Kind};
use std::io::IoSlice;
use std::sync::Arc;

/// Large replies that one worker has under way; more are thrown away.
pub const TRANSFERS_MAX: usize = 1024;

/// The same of one client in memory, here or afar, which may leave them lying.
const TRANSFERS_PER_CLIENT_MAX: usize = 64;

/// And no more than this part of those that are left: clients that leave theirs lying do not use up
/// what others need, however many they are (Choudhury and Hahne's dynamic thresholds).
const PART_OF_FREE: usize = 8;

/// What a reply that no frames can carry is answered by instead.
const REPLY_TOO_LONG: &[u8] = b"SERVER_ERROR reply too long for UDP\r\n";

/// The answer to a change that comes again when its own answer has made room for others'.
const ANSWER_FORGOTTEN: &[u8] = b"SERVER_ERROR carried out before, and the answer is forgotten\r\n";

/// Whether a client in memory that has so many large replies under way may have one more, of all
/// that are.
fn may_have_more(of_client: usize, under_way: usize) -> bool {
    let free = TRANSFERS_MAX.saturating_sub(under_way);
    of_client < TRANSFERS_PER_CLIENT_MAX.min(free / PART_OF_FREE)
}

/// Puts a job that came in a datagram into a queue; where that is full it is not carried out.
pub(super) fn hand_over<T: Transport>(core: &mut Core<T>, at: At<'_>, to: WorkerTarget, job: Job) {
    match core.enqueue(to, job) {
        Ok(()) => at.counts.requests_handed_over.add_owner(1),
        Err(Job { origin: Origin::Datagram(from), arrived_nanos, .. }) => {
            at.has_no_room(&from, arrived_nanos);
        }
        Err(_) => unreachable!("it came in a datagram"),
    }
}

impl Udp {
    /// The reply to a job that came in a datagram.
    pub(crate) fn deliver<T: Transport>(&mut self, core: &mut Core<T>, finished: Finished) {
        let at = At::of(&self.shared, core.id);
        self.desk.finish_datagram(core, at, finished);
    }
}

impl UdpWorker {
    /// Whether a request that is to be carried out once has not been; if it has, it is answered.
    /// Where its answer is forgotten, one that `is_harmless` is carried out again.
    pub(super) fn is_first(
        &mut self,
        at: At<'_>,
        from: &mut From,
        digest: u64,
        is_harmless: impl FnOnce() -> bool,
    ) -> bool {
        let (queue, key, now) = (from.to.queue, from.key(), from.arrived_nanos);
        let told = match at.shared.once(queue, &key, digest, now) {
            Once::Go => return true,
            Once::UnderWay => {
                at.counts.repeats_under_way.add_owner(1);
                return false;
            }
            Once::Answered(reply) => reply,
            Once::Forgotten => {
                if is_harmless() {
                    at.shared.again(queue, &key, digest, now);
                    return true;
                }
                ANSWER_FORGOTTEN.into()
            }
        };
        at.counts.repeats_answered.add_owner(1);
        from.once = false;
        self.answer(at, from, &told);
        false
    }

    /// A small reply that is known already.
    pub(super) fn answer(&mut self, at: At<'_>, from: &mut From, reply: &[u8]) {
        let batch = &mut self.batches[from.queue()];
        batch.begin();
        batch.out().extend_from_slice(reply);
        self.end_reply(at, from);
    }

    /// The reply that stands in the batch is whole.
    pub(super) fn end_reply(&mut self, at: At<'_>, from: &mut From) {
        let queue = from.queue();
        let batch = &mut self.batches[queue];
        let bytes = batch.reply().len();
        if from.once {
            at.shared.answered(from.to.queue, &from.key(), batch.reply(), from.arrived_nanos);
        }
        if bytes == 0 {
            return batch.abandon();
        }
        let batch = &mut self.batches[queue];
        let cost = bytes.div_ceil(FRAME_BYTES_MAX) * FRAME_COST_BYTES + bytes;
        let believed = || at.shared.guard.believes(&from.to.peer, from.arrived_nanos);
        if cost > from.allowance && !believed() {
            return self.send_cookie(at, from);
        }
        from.allowance = from.allowance.saturating_sub(cost);
        if bytes > FRAME_BYTES_MAX {
            // Frames may be lost: the reply is kept, to send them again.
            meter::bytes(bytes);
            let mut reply = Reply::of(Output::of(batch.reply().to_vec()));
            let now = from.arrived_nanos;
            if reply.hold(&at.shared.buffers) {
                at.shared.keep_reply(from.to.queue, from.key(), Arc::new(reply), bytes, now);
            } else {
                at.shared.forget_reply(from.to.queue, &from.key());
            }
            at.counts.replies_of_many.add_owner(1);
            if self.place_batched(from) {
                at.counts.replies.add_owner(1);
                return self.soil(queue);
            }
        }
        let batch = &mut self.batches[queue];
        if batch.end(from.to.peer, from.to.request_id, Kind::Data).is_none() {
            batch.abandon();
            return self.answer_too_long(at, from);
        }
        at.counts.replies.add_owner(1);
        self.soil(queue);
    }

    /// No number of frames can carry the reply: say so instead.
    pub(super) fn answer_too_long(&mut self, at: At<'_>, from: &mut From) {
        at.counts.replies_too_long.add_owner(1);
        self.answer(at, from, REPLY_TOO_LONG);
    }

    /// Instead of the reply that stands in the batch: the cookie, or nothing, if even that is too
    /// much for what was asked.
    pub(super) fn send_cookie(&mut self, at: At<'_>, from: &mut From) {
        let queue = from.queue();
        let batch = &mut self.batches[queue];
        batch.clear_reply();
        at.shared.guard.put_cookie(&from.to.peer, batch.out());
        let cost = FRAME_COST_BYTES + batch.reply().len();
        if cost > from.allowance {
            at.counts.unproved_unanswered.add_owner(1);
            return batch.abandon();
        }
        from.allowance -= cost;
        at.counts.cookies_sent.add_owner(1);
        batch.end(from.to.peer, from.to.request_id, Kind::Cookie);
        self.soil(queue);
    }

    /// A reply that was not executed into the batch: by the large lane if it holds large values,
    /// else into the batch after all.
    pub(super) fn finish_datagram<T: Transport>(
        &mut self,
        core: &mut Core<T>,
        at: At<'_>,
        finished: Finished,
    ) {
        let Finished { origin, reply, tally, large, .. } = finished;
        let Origin::Datagram(to) = origin else { return };
        let mut reply = Reply::of(reply);
        let now = core.clock.nanos();
        // It was believed when its request was taken.
        let mut from = From { to, once: false, allowance: usize::MAX, arrived_nanos: now };
        // Of small values it may be long, too.
        let bytes = reply.message_bytes();
        if bytes == 0 || (!large && bytes <= OUT_BYTES_PER_TURN) {
            self.tallies[from.queue()].merge(&tally);
            let batch = &mut self.batches[from.queue()];
            batch.begin();
            reply.copy_into(batch.out());
            // Remembered even if it cannot leave now: the client will ask again.
            at.shared.answered(to.queue, &from.key(), batch.reply(), now);
            if batch.is_over_budget() {
                batch.abandon();
                return at.counts.replies_dropped.add_owner(1);
            }
            return self.end_reply(at, &mut from);
        }
        let under_way = self.transfers.len() + self.parked.len();
        if under_way >= TRANSFERS_MAX {
            at.shared.given_up(to.queue, &from.key(), now);
            return at.counts.replies_dropped.add_owner(1);
        }
        if rdma::whence(&to.peer).is_some()
            && !may_have_more(self.transfers_to(&to.peer), under_way)
        {
            at.shared.given_up(to.queue, &from.key(), now);
            return at.counts.replies_dropped.add_owner(1);
        }
        if !reply.hold(&at.shared.buffers) {
            at.shared.given_up(to.queue, &from.key(), now);
            return at.counts.messages_no_room.add_owner(1);
        }
        match Transfer::first(to, Arc::new(reply), tally) {
            Some(transfer) => {
                // This one is kept when it has left. Until then no frame of the one before it under
                // this number may be sent for one of its own.
                at.shared.forget_reply(to.queue, &from.key());
                let placed = self.place(&from, transfer.reply.message_bytes());
                self.transfers.push_back(transfer.placed(placed));
            }
            None => {
                at.shared.given_up(to.queue, &from.key(), now);
                self.answer_too_long(at, &mut from);
            }
        }
    }

    /// Room for a long reply with its client, if that lends any. A reply of one frame is not told
    /// of: that is as soon sent.
    fn place(&self, from: &From, bytes: usize) -> Option<Box<dyn Placed>> {
        if bytes <= FRAME_BYTES_MAX {
            return None;
        }
        let (lenders, peer) = self.lending.to(&from.to.peer)?;
        lenders.place(peer, from.to.request_id, bytes, from.arrived_nanos)
    }

    /// The reply in a queue's batch, of several frames: write it at once and have the notice in its
    /// place, if it is no more than a slice and nothing is in the way.
    fn place_batched(&mut self, from: &From) -> bool {
        let bytes = self.batches[from.queue()].reply().len();
        let Some(total) = frames(bytes).filter(|_| bytes <= PIECE_BYTES) else {
            return false;
        };
        let Some(mut placed) = self.place(from, bytes) else { return false };
        let batch = &mut self.batches[from.queue()];
        if placed.write(&[IoSlice::new(batch.reply())]) != Moved::Done {
            return false;
        }
        let Some(sealed_descriptor) = placed.notice(from.arrived_nanos) else { return false };
        batch.abandon();
        batch.datagram(from.to.peer, &notice(from.to.request_id, total, &sealed_descriptor));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_that_leave_their_replies_lying_leave_room_to_others() {
        for clients in [1, 16, 64] {
            let (mut each, mut under_way) = (vec![0; clients], 0);
            for _ in 0..TRANSFERS_MAX {
                for of_client in &mut each {
                    if may_have_more(*of_client, under_way) {
                        *of_client += 1;
                        under_way += 1;
                    }
                }
            }
            assert!(
                each.iter().all(|has| (14..=TRANSFERS_PER_CLIENT_MAX).contains(has)),
                "{each:?}"
            );
            let late = (0..).find(|has| !may_have_more(*has, under_way + has));
            assert!(late.is_some_and(|has| has > 8), "{late:?} beside {clients}");
            assert!(under_way < TRANSFERS_MAX - 64, "{under_way} of {clients}");
        }
        assert!(may_have_more(TRANSFERS_PER_CLIENT_MAX - 1, TRANSFERS_MAX / 2));
        assert!(!may_have_more(TRANSFERS_PER_CLIENT_MAX, 0));
    }
}
