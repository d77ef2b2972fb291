//! What leaves: batches of small replies by their queue's own socket; large replies by its sibling,
//! and large values into their items, one slice a turn, so that a small request waits for one
//! slice at most, and a full send buffer for large replies holds up no small one.

use super::lent::expire_lent;
use super::placed::notice;
use super::reply::{Reply, Slice, Transfer};
use super::state::{At, Desk, From, JoiningFrom, Slicing, Storing, Udp};
use crate::clock::Clock;
use crate::handoff::{DatagramOrigin, Finished, Job, Origin, Work};
use crate::latency::Operation;
use crate::receive::OUT_BYTES_PER_TURN;
use crate::worker::Worker;
use laneway_policy::ItemBytes;
use laneway_rdma::contract::{Moved, Placed};
use laneway_rdma::long::parcel::PIECE_BYTES;
use laneway_store::meter;
use laneway_transport::Transport;
use laneway_transport::datagram::Path;
use laneway_transport::rdma;
use laneway_wire::reply::CRLF;
use laneway_wire::udp::frames::{Message, TRAIN_BYTES_MAX, frames};
use std::cell::Cell;
use std::io::{self, IoSlice};
use std::sync::Arc;

/// Large replies that one worker has under way; more are thrown away.
pub const TRANSFERS_MAX: usize = 1024;

/// The same of one client in memory, here or afar, which may leave them lying.
const TRANSFERS_PER_CLIENT_MAX: usize = 64;
/// How long a client in memory may leave a large reply lying before it is thrown away, and a
/// client afar one that waits for its card before it goes in frames: as long as it is kept behind
/// that.
const PARKED_NANOS: u64 = 2_000_000_000;

/// Bytes that one large reply moves, slice by slice, before the next one has its turn: see
/// `lanes`.
const RUN_BYTES: usize = 8 << 20;

impl<T: Transport, C: Clock> Worker<T, C> {
    /// Hand the batches to the kernel.
    pub(super) fn flush_datagrams(&mut self, udp: &mut Udp, at: At<'_>) -> io::Result<()> {
        let Udp { datagrams, desk } = udp;
        while let Some(queue) = desk.dirty.pop() {
            let batch = &mut desk.batches[queue];
            if desk.full[queue] {
                if batch.is_over_budget() {
                    let dropped = batch.forget();
                    at.counts.replies_dropped.add_owner(dropped as u64);
                }
                continue;
            }
            let flushed = batch.send(&mut **datagrams, queue)?;
            self.counters().bytes_written.add_owner(flushed.bytes as u64);
            meter::bytes(flushed.bytes);
            at.counts.replies_refused.add_owner(flushed.refused as u64);
            if flushed.is_full {
                desk.full[queue] = true;
                self.transport.watch_room(queue, Path::Small, true)?;
            } else if !desk.tallies[queue].is_empty() {
                let now = self.clock.nanos();
                self.shared.workers[self.id.index()].book.settle(&mut desk.tallies[queue], now);
            }
        }
        Ok(())
    }

    /// Send what jobs have left in the batches.
    pub(crate) fn send_datagrams(&mut self) -> io::Result<()> {
        let has_dirt = self.udp.as_ref().is_some_and(|udp| !udp.desk.dirty.is_empty());
        let Some(mut udp) = self.udp.take_if(|_| has_dirt) else { return Ok(()) };
        let shared = udp.desk.shared.clone();
        let at = At { shared: &shared, counts: &shared.counts[self.id.index()] };
        let sent = self.flush_datagrams(&mut udp, at);
        self.udp = Some(udp);
        sent
    }

    /// The reply to a job that came in a datagram.
    pub(crate) fn deliver_datagram(&mut self, finished: Finished) {
        let Some(mut udp) = self.udp.take() else { return };
        let shared = udp.desk.shared.clone();
        let at = At { shared: &shared, counts: &shared.counts[self.id.index()] };
        self.finish_datagram(&mut udp.desk, at, finished);
        self.udp = Some(udp);
    }

    /// A reply that was not executed into the batch: by the large lane if it holds large values,
    /// else into the batch after all.
    pub(super) fn finish_datagram(&mut self, desk: &mut Desk, at: At<'_>, finished: Finished) {
        let Finished { origin, reply, tally, large, .. } = finished;
        let Origin::Datagram(to) = origin else { return };
        let mut reply = Reply::of(reply);
        let now = self.clock.nanos();
        // It was believed when its request was taken.
        let mut from = From { to, once: false, allowance: usize::MAX, arrived_nanos: now };
        // Of small values it may be long, too.
        let bytes = reply.message_bytes();
        if bytes == 0 || (!large && bytes <= OUT_BYTES_PER_TURN) {
            desk.tallies[from.queue()].merge(&tally);
            let batch = &mut desk.batches[from.queue()];
            batch.begin();
            reply.copy_into(batch.out());
            // Remembered even if it cannot leave now: the client will ask again.
            at.shared.answered(to.queue, &from.key(), batch.reply(), now);
            if batch.is_over_budget() {
                batch.abandon();
                return at.counts.replies_dropped.add_owner(1);
            }
            return self.end_reply(desk, at, &mut from);
        }
        if desk.transfers.len() + desk.parked.len() >= TRANSFERS_MAX {
            at.shared.given_up(to.queue, &from.key(), now);
            return at.counts.replies_dropped.add_owner(1);
        }
        if rdma::whence(&to.peer).is_some()
            && desk.transfers_to(&to.peer) >= TRANSFERS_PER_CLIENT_MAX
        {
            at.shared.given_up(to.queue, &from.key(), now);
            return at.counts.replies_dropped.add_owner(1);
        }
        if !reply.hold(&at.shared.buffers) {
            at.shared.given_up(to.queue, &from.key(), now);
            return at.counts.messages_no_room.add_owner(1);
        }
        if !desk.is_sampled() {
            at.counts.replies_not_sampled.add_owner(1);
            return at.shared.given_up(to.queue, &from.key(), now);
        }
        match Transfer::first(to, Arc::new(reply), tally) {
            Some(transfer) => {
                let placed = desk.place(&from, transfer.reply.message_bytes());
                desk.transfers.push_back(transfer.placed(placed));
            }
            None => {
                at.shared.given_up(to.queue, &from.key(), now);
                self.answer_too_long(desk, at, &mut from);
            }
        }
    }

    /// Whether a large datagram has a slice to move, and it is its turn.
    pub(crate) fn is_turn_of_datagrams(&self) -> bool {
        self.udp
            .as_ref()
            .is_some_and(|udp| udp.desk.has_slices() && (udp.desk.is_turn || self.large.is_empty()))
    }

    /// A stream has had its turn.
    pub(crate) fn turn_to_datagrams(&mut self) {
        if let Some(udp) = &mut self.udp {
            udp.desk.is_turn = true;
        }
    }

    /// Move one slice of a large reply or value.
    pub(crate) fn slice_datagrams(&mut self) -> io::Result<()> {
        let Some(mut udp) = self.udp.take() else { return Ok(()) };
        let shared = udp.desk.shared.clone();
        let at = At { shared: &shared, counts: &shared.counts[self.id.index()] };
        udp.desk.is_turn = false;
        self.lanes().slices.add_owner(1);
        let moved = match udp.desk.take_turn() {
            Some(Slicing::Value) => {
                self.store_slice(&mut udp.desk, at);
                self.flush_datagrams(&mut udp, at)
            }
            Some(Slicing::Join) => {
                self.join_slice_of_datagram(&mut udp.desk, at);
                self.flush_datagrams(&mut udp, at)
            }
            Some(Slicing::Lent) => {
                self.fetch_slice(&mut udp.desk, at);
                self.flush_datagrams(&mut udp, at)
            }
            Some(Slicing::Keys) => {
                self.gather_slice(&mut udp.desk, at);
                self.flush_datagrams(&mut udp, at)
            }
            Some(Slicing::Reply) | None => self.send_slice(&mut udp, at),
        };
        udp.desk.account();
        self.udp = Some(udp);
        moved
    }

    fn send_slice(&mut self, udp: &mut Udp, at: At<'_>) -> io::Result<()> {
        let Udp { datagrams, desk } = udp;
        let Some(mut transfer) = desk.transfers.pop_front() else { return Ok(()) };
        let queue = usize::from(transfer.to.queue);
        let now = if transfer.is_placed() { self.clock.nanos() } else { 0 };
        let slice = transfer.slice(&mut **datagrams, self.slice_budget(), now)?;
        let (Slice::More(bytes) | Slice::Full(bytes) | Slice::Last(bytes)) = slice;
        self.counters().bytes_written.add_owner(bytes as u64);
        meter::bytes(bytes);
        if !transfer.is_placed() {
            at.counts.trains.add_owner(bytes.div_ceil(TRAIN_BYTES_MAX) as u64);
        }
        transfer.run_bytes += bytes;
        match slice {
            Slice::More(_) if transfer.run_bytes < RUN_BYTES => {
                transfer.parked_nanos = 0;
                desk.transfers.push_front(transfer);
            }
            Slice::More(_) => {
                (transfer.run_bytes, transfer.parked_nanos) = (0, 0);
                desk.transfers.push_back(transfer);
            }
            Slice::Full(bytes) => {
                if bytes > 0 || transfer.parked_nanos == 0 {
                    transfer.parked_nanos = self.clock.nanos();
                }
                desk.parked.push_back(transfer);
                self.transport.watch_room(queue, Path::Large, true)?;
            }
            Slice::Last(_) => self.sent(at, transfer),
        }
        Ok(())
    }

    /// The last frame has left.
    fn sent(&mut self, at: At<'_>, transfer: Transfer) {
        let Transfer { to, reply, mut tally, is_first, .. } = transfer;
        let now = self.clock.nanos();
        if !tally.is_empty() {
            self.shared.workers[self.id.index()].book.settle(&mut tally, now);
        }
        if is_first {
            at.counts.replies.add_owner(1);
            at.counts.replies_of_many.add_owner(1);
            let bytes = reply.message_bytes();
            let key = (to.peer, to.request_id);
            at.shared.keep_reply(to.queue, key, reply, bytes, now);
            // Too much to remember as an answer: whoever lost all of it has it looked up again.
            at.shared.given_up(to.queue, &key, now);
        }
    }

    /// One slice of a value goes into its item; after the last one the request is answered.
    fn store_slice(&mut self, desk: &mut Desk, at: At<'_>) {
        let Some(mut storing) = desk.storing.pop_front() else { return };
        let mut budget = self.slice_budget();
        while budget > 0 && storing.incoming.draft().missing() > 0 {
            let ready = match storing.incoming.draft().prepare() {
                Ok(None) => return desk.storing.push_front(storing), // others come first
                Ok(Some(ready)) => ready,
                Err(_) => return self.stored(desk, at, storing, false),
            };
            let piece = storing.message.piece(storing.at);
            let most = piece.len().min(budget).min(ready);
            if storing.incoming.draft().write(&piece[..most]).is_err() {
                return self.stored(desk, at, storing, false);
            }
            storing.at += most;
            budget -= most;
        }
        if storing.incoming.draft().missing() > 0 {
            desk.storing.push_front(storing);
        } else {
            self.stored(desk, at, storing, true);
        }
    }

    /// The value is in its item, or there was no room for all of it: answer.
    fn stored(&mut self, desk: &mut Desk, at: At<'_>, storing: Storing, fits: bool) {
        let Storing { mut from, message, at: end, incoming } = storing;
        desk.storing_bytes -= message.message_bytes();
        let is_whole = fits && ends(&message, end);
        let size = ItemBytes(incoming.item_bytes());
        if let Some(to) =
            self.queue_for_store(incoming.key(), || incoming.joins(), size.0).filter(|_| is_whole)
        {
            let (origin, now) = (Origin::Datagram(from.to), from.arrived_nanos);
            let work = Work::Body(incoming);
            let (home, held) = (None, None); // what it takes lies in the store
            match self.enqueue(to, Job { work, size, arrived_nanos: now, origin, home, held }) {
                Ok(()) => at.counts.requests_handed_over.add_owner(1),
                Err(_) => {
                    at.counts.requests_queue_full.add_owner(1);
                    at.shared.given_up(from.to.queue, &from.key(), now);
                }
            }
            return;
        }
        at.counts.requests.add_owner(1);
        self.count_hot(incoming.key(), true);
        let size = incoming.item_bytes();
        let batch = &mut desk.batches[from.queue()];
        batch.begin();
        let touched = Cell::new(0);
        let context = self.context_for(&touched, incoming.key());
        let alone = self.shared.put_locks.enter(|| incoming.hash());
        if !fits {
            incoming.out_of_memory(&context, batch.out());
        } else if is_whole {
            let budget = self.slice_budget();
            if let Some(joining) = incoming.finish_slice(&context, budget, batch.out()) {
                batch.abandon();
                return desk.joinings.push_back(JoiningFrom { from, size, joining });
            }
        } else {
            incoming.abandon_bad_chunk(&context, batch.out());
        }
        drop(alone);
        let (row, _) = self.count(Operation::Set, size);
        desk.tallies[from.queue()].add(row, from.arrived_nanos);
        self.end_reply(desk, at, &mut from);
    }

    /// One slice of a large item that something is joined to; behind the last one, the answer.
    fn join_slice_of_datagram(&mut self, desk: &mut Desk, at: At<'_>) {
        let Some(mut under_way) = desk.joinings.pop_front() else { return };
        let JoiningFrom { from, size, joining } = &mut under_way;
        let batch = &mut desk.batches[from.queue()];
        batch.begin();
        let alone = self.shared.put_locks.enter(|| joining.hash());
        let (touched, budget) = (Cell::new(0), self.slice_budget());
        let context = self.context_for(&touched, joining.key());
        let done = joining.step(&context, budget, batch.out());
        drop(alone);
        if !done {
            batch.abandon();
            return desk.joinings.push_front(under_way);
        }
        let (row, _) = self.count(Operation::Set, *size);
        desk.tallies[from.queue()].add(row, from.arrived_nanos);
        self.end_reply(desk, at, from);
    }

    /// Once a second: let go of what is too old.
    pub(crate) fn expire_datagrams(&mut self, now: u64) {
        let Some(udp) = &mut self.udp else { return };
        let Udp { datagrams, desk } = &mut **udp;
        datagrams.tidy();
        let shared = desk.shared.clone();
        let at = At { shared: &shared, counts: &shared.counts[self.id.index()] };
        expire_lent(desk, at, now);
        let Desk { parked, transfers, .. } = desk;
        for transfer in parked.iter_mut().chain(transfers) {
            let waits = transfer.is_placed() && transfer.parked_nanos > 0;
            if waits && now.saturating_sub(transfer.parked_nanos) > PARKED_NANOS {
                transfer.send_in_frames();
            }
        }
        parked.retain(|transfer| {
            let waited = now.saturating_sub(transfer.parked_nanos);
            let lies = transfer.is_in_memory() && waited > PARKED_NANOS;
            if lies {
                let DatagramOrigin { queue, peer, request_id } = transfer.to;
                if transfer.is_first {
                    shared.given_up(queue, &(peer, request_id), now);
                }
                shared.counts[self.id.index()].replies_dropped.add_owner(1);
            }
            !lies
        });
        for (number, queue) in shared.queues.iter().enumerate() {
            if queue.worker == self.id.index() {
                shared.expire(number as u16, now);
            }
        }
    }
}

impl Desk {
    /// Room for a long reply with its client, if that lends any.
    pub(super) fn place(&self, from: &From, bytes: usize) -> Option<Box<dyn Placed>> {
        let (lenders, peer) = self.lending.to(&from.to.peer)?;
        lenders.place(peer, from.to.request_id, bytes, from.arrived_nanos)
    }

    /// The reply in a queue's batch, of several frames: write it at once and have the notice in its
    /// place, if it is no more than a slice and nothing is in the way.
    pub(super) fn place_batched(&mut self, from: &From) -> bool {
        let bytes = self.batches[from.queue()].reply().len();
        let Some(total) = frames(bytes).filter(|_| bytes <= PIECE_BYTES) else {
            return false;
        };
        let Some(mut placed) = self.place(from, bytes) else { return false };
        let batch = &mut self.batches[from.queue()];
        if placed.write(&[IoSlice::new(batch.reply())]) != Moved::Done {
            return false;
        }
        let Some(parcel) = placed.notice(from.arrived_nanos) else { return false };
        batch.abandon();
        batch.datagram(from.to.peer, &notice(from.to.request_id, total, &parcel));
        true
    }
}

/// Whether `\r\n` stands at `offset`, be it in two pieces.
fn ends(message: &impl Message, offset: usize) -> bool {
    (0..CRLF.len()).all(|at| message.piece(offset + at).first() == Some(&CRLF[at]))
}
