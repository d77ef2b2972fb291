//! What leaves: batches of small replies by their queue's own socket; large replies by its sibling,
//! and large values into their items, one slice a turn, so that a small request waits for one
//! slice at most, and a full send buffer for large replies holds up no small one.

use super::deliver::hand_over;
use super::lent::expire_lent;
use super::reply::{Slice, Transfer};
use super::state::{At, JoiningFrom, Slicing, Storing, Udp, UdpWorker};
use crate::core::Core;
use crate::jobs::handoff::{DatagramOrigin, Job, Origin, Work};
use crate::latency::Operation;
use laneway_policy::ItemBytes;
use laneway_policy::pace::Way;
use laneway_store::meter;
use laneway_transport::Transport;
use laneway_transport::datagram::Path;
use laneway_wire::reply::CRLF;
use laneway_wire::udp::frames::{Message, TRAIN_BYTES_MAX};
use std::io;

/// How long a client in memory may leave a large reply lying before it is thrown away, and a
/// client afar one that waits for its card before it goes in frames: as long as it is kept behind
/// that.
const PARKED_NANOS: u64 = 2_000_000_000;

/// Bytes that one large reply moves, slice by slice, before the next one has its turn: see
/// `lanes`.
const RUN_BYTES: usize = 8 << 20;

impl Udp {
    /// Hand the batches to the kernel.
    pub(crate) fn flush<T: Transport>(&mut self, core: &mut Core<T>) -> io::Result<()> {
        let Udp { datagrams, desk, shared } = self;
        let counts = At::of(shared, core.id).counts;
        while let Some(queue) = desk.dirty.pop() {
            let batch = &mut desk.batches[queue];
            if desk.full[queue] {
                if batch.is_over_budget() {
                    let dropped = batch.forget();
                    counts.replies_dropped.add_owner(dropped as u64);
                }
                continue;
            }
            let flushed = batch.send(&mut **datagrams, queue)?;
            core.counters().bytes_written.add_owner(flushed.bytes as u64);
            meter::bytes(flushed.bytes);
            counts.replies_refused.add_owner(flushed.refused as u64);
            if flushed.is_full {
                desk.full[queue] = true;
                core.transport.watch_room(queue, Path::Small, true)?;
            } else if !desk.tallies[queue].is_empty() {
                let now = core.clock.nanos();
                core.note_datagrams(&mut desk.tallies[queue], None, now);
                core.shared.workers[core.id.index()].book.settle(
                    &mut desk.tallies[queue],
                    now,
                    |_, _| {},
                );
            }
        }
        Ok(())
    }

    /// Whether a large datagram has a slice to move, and it is its turn; `alone`: no stream has.
    pub(crate) fn has_turn(&self, alone: bool) -> bool {
        self.desk.has_slices() && (self.desk.is_turn || alone)
    }

    /// Move one slice of a large reply or value.
    pub(crate) fn slice<T: Transport>(&mut self, core: &mut Core<T>) -> io::Result<()> {
        let at = At::of(&self.shared, core.id);
        let desk = &mut self.desk;
        desk.is_turn = false;
        core.asker = 0;
        core.lanes().slices.add_owner(1);
        match desk.take_turn() {
            Some(Slicing::Value) => desk.value_slice(core, at),
            Some(Slicing::Join) => desk.join_slice(core, at),
            Some(Slicing::Lent) => desk.fetch_slice(core, at),
            Some(Slicing::Keys) => desk.gather_slice(core, at),
            Some(Slicing::Reply) | None => {
                let sent = self.send_slice(core);
                self.desk.account();
                return sent;
            }
        }
        desk.account();
        self.flush(core)
    }

    fn send_slice<T: Transport>(&mut self, core: &mut Core<T>) -> io::Result<()> {
        let Udp { datagrams, desk, shared } = self;
        let at = At::of(shared, core.id);
        let Some(mut transfer) = desk.transfers.pop_front() else { return Ok(()) };
        let queue = usize::from(transfer.to.queue);
        let began = core.clock.nanos();
        let way = if transfer.is_placed() { Way::Copy } else { Way::Frames };
        let budget = core.slice_budget(way);
        let slice = transfer.slice(&mut **datagrams, budget, began)?;
        if let Slice::More(bytes) = slice {
            core.note_slice(way, bytes, began);
        }
        let (Slice::More(bytes) | Slice::Full(bytes) | Slice::Last(bytes)) = slice;
        core.counters().bytes_written.add_owner(bytes as u64);
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
                    transfer.parked_nanos = core.clock.nanos();
                }
                desk.parked.push_back(transfer);
                core.transport.watch_room(queue, Path::Large, true)?;
            }
            Slice::Last(_) => sent(core, at, transfer),
        }
        Ok(())
    }

    /// Once a second: let go of what is too old.
    pub(crate) fn expire<T: Transport>(&mut self, core: &Core<T>, now: u64) {
        let Udp { datagrams, desk, shared } = self;
        let worker = core.id;
        let at = At::of(shared, worker);
        datagrams.tidy();
        if let Some(client_table) = core.shared.verbs.get() {
            desk.deaf.look(worker.index(), client_table.is_deaf(worker.index()));
        }
        expire_lent(desk, &core.shared.store, at, now);
        desk.spare.expire(&core.shared.store);
        let UdpWorker { parked, transfers, .. } = desk;
        for transfer in parked.iter_mut().chain(transfers) {
            // In shared memory there is nothing but its notice that waits, and frames would, too.
            let is_by_card = transfer.is_placed() && !transfer.is_in_memory();
            let waits = is_by_card && transfer.parked_nanos > 0;
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
                at.counts.replies_dropped.add_owner(1);
            }
            !lies
        });
        for (number, queue) in shared.queues.iter().enumerate() {
            if queue.worker == worker.index() {
                shared.expire(number as u16, now);
            }
        }
    }
}

impl UdpWorker {
    /// One slice of a value goes into its item; after the last one the request is answered.
    fn value_slice<T: Transport>(&mut self, core: &mut Core<T>, at: At<'_>) {
        let Some(mut storing) = self.storing.pop_front() else { return };
        let (began, most) = (core.clock.nanos(), core.slice_budget(Way::Copy));
        let mut budget = most;
        while budget > 0 && storing.incoming.draft().missing() > 0 {
            let ready = match storing.incoming.draft().prepare() {
                Ok(None) => return self.storing.push_front(storing), // others come first
                Ok(Some(ready)) => ready,
                Err(_) => return self.stored(core, at, storing, false),
            };
            let piece = storing.message.piece(storing.at);
            let most = piece.len().min(budget).min(ready);
            if storing.incoming.draft().write(&piece[..most]).is_err() {
                return self.stored(core, at, storing, false);
            }
            storing.at += most;
            budget -= most;
        }
        if storing.incoming.draft().missing() > 0 {
            core.note_slice(Way::Copy, most, began);
            self.storing.push_front(storing);
        } else {
            self.stored(core, at, storing, true);
        }
    }

    /// The value is in its item, or there was no room for all of it: answer.
    fn stored<T: Transport>(
        &mut self,
        core: &mut Core<T>,
        at: At<'_>,
        storing: Storing,
        fits: bool,
    ) {
        let Storing { mut from, message, at: end, incoming } = storing;
        self.storing_bytes -= message.memory_bytes();
        let is_whole = fits && ends(&message, end);
        self.let_go(core, message);
        let size = ItemBytes(incoming.item_bytes());
        if let Some(to) =
            core.queue_for_store(incoming.key(), || incoming.joins(), size.0).filter(|_| is_whole)
        {
            let (origin, now) = (Origin::Datagram(from.to), from.arrived_nanos);
            let work = Work::Body(incoming);
            let (home, held) = (None, None); // what it takes lies in the store
            let job = Job { work, size, arrived_nanos: now, origin, home, held };
            return hand_over(core, at, to, job);
        }
        core.count_hot(incoming.key(), true);
        let size = incoming.item_bytes();
        let batch = &mut self.batches[from.queue()];
        batch.begin();
        let context = core.context_for(incoming.key());
        if !fits {
            incoming.out_of_memory(&context, batch.out());
        } else if is_whole {
            let budget = core.slice_budget(Way::Copy);
            if let Some(joining) = incoming.finish_slice(&context, budget, batch.out()) {
                batch.abandon();
                return self.join_later(at, JoiningFrom { from, size, joining });
            }
        } else {
            incoming.abandon_bad_chunk(&context, batch.out());
        }
        at.counts.requests.add_owner(1);
        core.tally_request(
            &mut self.tallies[from.queue()],
            Operation::Set,
            size,
            from.arrived_nanos,
        );
        self.end_reply(at, &mut from);
    }

    /// One slice of a large item that something is joined to; behind the last one, the answer.
    fn join_slice<T: Transport>(&mut self, core: &mut Core<T>, at: At<'_>) {
        let Some(mut under_way) = self.joinings.pop_front() else { return };
        let JoiningFrom { from, size, joining } = &mut under_way;
        let batch = &mut self.batches[from.queue()];
        batch.begin();
        let (began, budget) = (core.clock.nanos(), core.slice_budget(Way::Copy));
        let context = core.context_for(joining.key());
        let done = joining.step(&context, budget, batch.out());
        if !done {
            core.note_slice(Way::Copy, budget, began);
            batch.abandon();
            return self.joinings.push_front(under_way);
        }
        core.tally_request(
            &mut self.tallies[from.queue()],
            Operation::Set,
            *size,
            from.arrived_nanos,
        );
        self.end_reply(at, from);
    }
}

/// Whether `\r\n` stands at `offset`, be it in two pieces.
fn ends(message: &impl Message, offset: usize) -> bool {
    (0..CRLF.len()).all(|at| message.piece(offset + at).first() == Some(&CRLF[at]))
}

/// The last frame has left.
fn sent<T: Transport>(core: &mut Core<T>, at: At<'_>, transfer: Transfer) {
    let Transfer { to, reply, mut tally, is_first, .. } = transfer;
    let now = core.clock.nanos();
    if !tally.is_empty() {
        core.note_datagrams(&mut tally, Some(&to.peer), now);
        core.shared.workers[core.id.index()].book.settle(&mut tally, now, |_, _| {});
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
