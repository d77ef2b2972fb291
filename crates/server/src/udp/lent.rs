//! Requests that do not lie in their datagram: a client in memory lends what is too long for a
//! slot, and says where it is. (HERD leaves PUTs beyond a slot open.) The worker that puts messages
//! together copies it slice by slice, so that no small request waits for more than one of them, and
//! gives the memory back; from there on it is a message like any other.
//!
//! Each byte is read once, and what is judged is the copy: the client may change the memory while
//! it is read, and stores what was read then. A loan that cannot be claimed is a request that came
//! twice, or one that its client took back. Sizes are bytes.

use super::state::{At, Desk, Fetching, From};
use crate::clock::Clock;
use crate::worker::Worker;
use laneway_rdma::contract::{Descriptor, MESSAGE_BYTES_MAX};
use laneway_transport::Transport;
use laneway_transport::rdma::{self, Whence};
use laneway_wire::udp::DATAGRAM_BYTES_MAX;
use laneway_wire::udp::reassembly::Whole;

const _: () = assert!(DATAGRAM_BYTES_MAX <= MESSAGE_BYTES_MAX, "a slot holds a datagram");

/// What is read at a time. The digest of a message is made of its pieces', so that they are the
/// same however much a turn moves.
const PIECE_BYTES: usize = 32 * 1024;

impl<T: Transport, C: Clock> Worker<T, C> {
    /// A request that its client lends.
    pub(super) fn take_lent(&mut self, desk: &mut Desk, at: At<'_>, mut from: From, said: &[u8]) {
        if self.stopping {
            return at.counts.requests_while_stopping.add_owner(1);
        }
        let peer = rdma::peer(Whence::Here, &from.to.peer);
        let descriptor = Descriptor::parse(said);
        let (Some(descriptor), Some(peer)) = (descriptor, peer) else {
            return at.counts.unknown_kind.add_owner(1);
        };
        // Before it is claimed: what is refused for want of room is still lent, and asked again.
        if !desk.may_fetch(descriptor.bytes as usize) {
            return at.counts.requests_queue_full.add_owner(1);
        }
        let lent = desk.lenders.as_ref().and_then(|lenders| lenders.claim(peer, descriptor));
        let Some(lent) = lent else {
            // It is being read, or was: then its answer may have been lost.
            let answer = at.shared.answer(from.to.queue, &from.key(), from.arrived_nanos);
            if let Some(answer) = answer {
                at.counts.repeats_answered.add_owner(1);
                from.once = false;
                self.answer(desk, at, &mut from, &answer);
            }
            return;
        };
        desk.storing_bytes += lent.bytes();
        let bytes = Vec::with_capacity(lent.bytes());
        desk.fetching.push_back(Fetching { from, lent, bytes, digest: 0 });
    }

    /// Copy one slice. Behind the last one the memory is given back and the message served.
    pub(super) fn fetch_slice(&mut self, desk: &mut Desk, at: At<'_>) {
        let Some(mut fetching) = desk.fetching.pop_front() else { return };
        let Fetching { lent, bytes, digest, .. } = &mut fetching;
        let mut budget = self.slice_budget();
        while bytes.len() < lent.bytes() {
            if budget == 0 {
                return desk.fetching.push_front(fetching);
            }
            let start = bytes.len();
            lent.read(start, PIECE_BYTES.min(lent.bytes() - start), bytes);
            *digest = at.shared.digest_behind(*digest, &bytes[start..]);
            budget = budget.saturating_sub(bytes.len() - start);
        }
        let Fetching { from, lent, bytes, digest } = fetching;
        drop(lent);
        desk.storing_bytes -= bytes.len();
        at.counts.messages_lent.add_owner(1);
        self.whole(desk, at, from, Whole::of(bytes, digest));
    }
}
