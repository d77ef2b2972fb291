//! Requests that do not lie in their datagram: a client in memory lends what is too long for a
//! slot, and says where it is; so does one over RDMA, in memory of its own that the card reads, or
//! in memory that it was granted. (HERD leaves PUTs beyond a slot open.) The worker that puts
//! messages together copies it slice by slice, so that no small request waits for more than one of
//! them, and gives the memory back; from there on it is a message like any other.
//!
//! Each byte is read once, and what is judged is the copy: the client may change the memory while
//! it is read, and stores what was read then. A loan that cannot be claimed is a request that came
//! twice, or one that its client took back. What came over RDMA and is not as its client sealed it
//! is asked for in frames. Sizes are bytes.

use super::state::{At, Fetching, From, UdpWorker};
use crate::core::Core;
use laneway_policy::pace::Way;
use laneway_rdma::contract::{Lent, MESSAGE_BYTES_MAX, Moved};
use laneway_rdma::long::sealed_descriptor;
use laneway_store::{Store, meter};
use laneway_transport::Transport;
use laneway_wire::udp::frames::frames;
use laneway_wire::udp::reassembly::Whole;
use laneway_wire::udp::resend::put_resend;
use laneway_wire::udp::{DATAGRAM_BYTES_MAX, FRAME_BYTES_MAX, Gap};
use std::mem;

const _: () = assert!(DATAGRAM_BYTES_MAX <= MESSAGE_BYTES_MAX, "a slot holds a datagram");

/// What is read at a time: so many whole frames, for the digest of a message is made of theirs,
/// so that it is the same whichever way it comes.
const PIECE_BYTES: usize = FRAME_BYTES_MAX * (sealed_descriptor::PIECE_BYTES / FRAME_BYTES_MAX);

/// How long a card may give nothing of what it reads. (Memory of this host always gives.)
const STILL_NANOS: u64 = 2_000_000_000;

impl UdpWorker {
    /// A request that its client lends.
    pub(super) fn take_lent<T: Transport>(
        &mut self,
        core: &mut Core<T>,
        at: At<'_>,
        mut from: From,
        said: &[u8],
    ) {
        if core.stopping {
            return at.counts.requests_while_stopping.add_owner(1);
        }
        let lending = self.lending.to(&from.to.peer);
        let found = lending.and_then(|(lenders, peer)| Some((lenders, peer, lenders.bytes(said)?)));
        let Some((lenders, peer, bytes)) = found else {
            return at.counts.unknown_kind.add_owner(1);
        };
        if bytes > self.message_bytes_max() {
            // There never is room for it.
            match lenders.claim(peer, said).map(front_of) {
                Some(Some(front)) => self.is_too_long(core, at, from, &front, bytes),
                // A card gives nothing at once: it is refused when its first frame comes.
                Some(None) => ask_for_all(self, at, &from, bytes),
                None => {}
            }
            return;
        }
        // Before it is claimed: what is refused for want of room is still lent, and asked again.
        if !self.may_fetch(bytes) {
            return at.counts.requests_queue_full.add_owner(1);
        }
        let (queue, key, now) = (from.to.queue, from.key(), from.arrived_nanos);
        let mut claimed = lenders.claim(peer, said);
        if claimed.is_none() {
            // It is being read: what was answered under its number was another request.
            let is_it = |other: &Fetching| other.from.to.queue == queue && other.from.key() == key;
            if self.fetching.iter().any(is_it) {
                return at.counts.repeats_under_way.add_owner(1);
            }
            // It was read: then its answer may have been lost.
            if let Some(answer) = at.shared.answer(queue, &key, now) {
                at.counts.repeats_answered.add_owner(1);
                from.once = false;
                return self.answer(at, &mut from, &answer);
            }
            // Or it was refused when it was whole, or its reply was too long to be remembered.
            if !at.shared.is_under_way(queue, &key, now) {
                claimed = lenders.claim_again(peer, said);
            }
        }
        if let Some(lent) = claimed {
            fetch(self, from, lent);
        }
    }

    /// Copy one slice. Behind the last one the memory is given back and the message served.
    pub(super) fn fetch_slice<T: Transport>(&mut self, core: &mut Core<T>, at: At<'_>) {
        let Some(mut fetching) = self.fetching.pop_front() else { return };
        let Fetching { lent, bytes, digest, is_late, counted, .. } = &mut fetching;
        core.shared.store.give_buffers(); // of messages before: who takes memory gives some back
        if bytes.capacity() == 0 {
            *bytes = self.spare.take(lent.bytes());
            self.storing_bytes += bytes.capacity() - *counted;
            *counted = bytes.capacity();
        }
        let (began, most) = (core.clock.nanos(), core.slice_budget(Way::Copy));
        let mut budget = most;
        while bytes.len() < lent.bytes() {
            if budget == 0 {
                core.note_slice(Way::Copy, most, began);
                return self.fetching.push_front(fetching);
            }
            let start = bytes.len();
            match lent.read(start, PIECE_BYTES.min(lent.bytes() - start), bytes) {
                Moved::Done => *is_late = false,
                // A card is at it: meanwhile others have their turn.
                Moved::Later => {
                    fetching.is_late = true;
                    return self.fetching.push_back(fetching);
                }
                // The client is gone: there is nobody to ask.
                Moved::Gone => {
                    self.storing_bytes -= *counted;
                    self.spare.keep(&core.shared.store, mem::take(bytes));
                    return at.counts.messages_lent_lost.add_owner(1);
                }
            }
            meter::bytes(bytes.len() - start);
            let first = start / FRAME_BYTES_MAX;
            for (number, frame) in bytes[start..].chunks(FRAME_BYTES_MAX).enumerate() {
                let frame = at.shared.digest((first + number) as u16, frame);
                *digest = digest.wrapping_add(frame);
            }
            budget = budget.saturating_sub(bytes.len() - start);
        }
        let Fetching { from, lent, bytes, digest, counted, .. } = fetching;
        let is_right = lent.is_right();
        drop(lent);
        self.storing_bytes -= counted;
        if !is_right {
            ask_for_all(self, at, &from, bytes.len());
            return self.spare.keep(&core.shared.store, bytes);
        }
        at.counts.messages_lent.add_owner(1);
        self.is_whole(core, at, from, Whole::of(bytes, digest));
    }
}

/// What the first frame of a message would hold, if it can be had at once.
fn front_of(mut lent: Box<dyn Lent>) -> Option<Vec<u8>> {
    let (bytes, mut front) = (FRAME_BYTES_MAX.min(lent.bytes()), Vec::new());
    (lent.read(0, bytes, &mut front) == Moved::Done).then_some(front)
}

/// Have what is claimed copied in its turn. Its room is counted from now on.
fn fetch(desk: &mut UdpWorker, from: From, lent: Box<dyn Lent>) {
    let (counted, seen) = (lent.bytes(), (0, from.arrived_nanos));
    desk.storing_bytes += counted;
    let fetching =
        Fetching { from, lent, bytes: Vec::new(), counted, digest: 0, is_late: false, seen };
    desk.fetching.push_back(fetching);
}

/// A client whose memory gives nothing for a while holds room that all share: what it lent is let
/// go of, and asked for in frames.
pub(super) fn expire_lent(desk: &mut UdpWorker, store: &Store, at: At<'_>, now: u64) {
    for _ in 0..desk.fetching.len() {
        let Some(mut fetching) = desk.fetching.pop_front() else { return };
        let (bytes, since) = fetching.seen;
        if fetching.bytes.len() > bytes || !fetching.is_late {
            // It moves, or waits for its turn.
            fetching.seen = (fetching.bytes.len(), now);
        } else if now.saturating_sub(since) > STILL_NANOS {
            let Fetching { from, lent, counted, bytes: copied, .. } = fetching;
            let bytes = lent.bytes();
            desk.storing_bytes -= counted;
            drop(lent);
            desk.spare.keep(store, copied);
            ask_for_all(desk, at, &from, bytes);
            continue;
        }
        desk.fetching.push_back(fetching);
    }
}

/// What was lent has not come as it was: have its client send it in frames.
fn ask_for_all(desk: &mut UdpWorker, at: At<'_>, from: &From, bytes: usize) {
    at.counts.messages_lent_lost.add_owner(1);
    let Some(total) = frames(bytes) else { return };
    let mut datagram = Vec::new();
    put_resend(&mut datagram, from.to.request_id, total, [Gap { first: 0, count: total }]);
    desk.batches[from.queue()].datagram(from.to.peer, &datagram);
    desk.soil(from.queue());
    at.counts.resends_asked.add_owner(1);
}
