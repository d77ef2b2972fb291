//! The order of a worker's turn: what it takes up next, from whom it takes, and when it stops to
//! let others in (Minos §3.1 "Receiving incoming requests"; the rules (c) to (e) of
//! [`crate::designs::Lanes`]).
//!
//! A [`Turn`] is asked whenever its worker has nothing in hand, and answers with one [`Move`]. It
//! sees queue lengths ([`Sight`]) and moves nothing itself, so that who carries the moves out may
//! be a simulated worker or a real one. The order:
//!
//! 1. A transfer that runs to completion goes on before anything else.
//! 2. What was received is served, to its end.
//! 3. A batch B is received from the worker's own RX queue; once that is served, B / n_s (rounded
//!    up, so that all queues drain alike) from each queue that nobody reads, one after the other;
//!    then it is large work's turn.
//! 4. Large work: a large worker first takes one small request from the longest RX queue, if the
//!    plan lets it; else one slice of its own transfer, or of one that it takes from the shared
//!    queue, goes on.
//! 5. Who has found nothing in a whole round takes one request from another.
//!
//! The server's worker, whose small requests come by connections mostly, goes through the same
//! order by itself (`server::worker`), and asks for what is to be decided on the way:
//! [`between_slices`], [`idle`], [`offers`].
//!
//! It departs from the paper: 4 and 5 are not in it, but for §6.1. It knows no request, no cost and
//! no clock. Units: requests, workers, bytes.

use crate::cores::Role;
use crate::plan::{CorePlan, LargeLane};
use crate::units::{BATCH, FRAME_BYTES, ItemBytes, WorkerId};
use alloc::vec::Vec;

/// What a worker makes of a large reply before it gives it to the wire, where nobody slices: a
/// burst of frames.
pub const BURST_BYTES: ItemBytes = ItemBytes(BATCH as u64 * FRAME_BYTES.0);

/// Requests received together from which on half are offered, where nobody reads another's queue.
pub const OFFER_MIN: u32 = 4;

/// Who reads RX queues under a plan, and who of them does not read its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Readers {
    reads: Vec<bool>,
    unread: Vec<WorkerId>,
    batch: u32,
    batch_unread: u32,
}

impl Readers {
    /// Of this plan, where a standby that has raised its flag reads nothing. `batch`: requests
    /// taken from an RX queue at a time.
    pub fn of(plan: &CorePlan, standby_raised: bool, batch: u32) -> Readers {
        Readers::new(plan, (standby_raised, false), batch)
    }

    /// The same, where a standby reads all the while: its own queue with others, while they drain
    /// it.
    pub fn beside_standby(plan: &CorePlan, standby_raised: bool, batch: u32) -> Readers {
        Readers::new(plan, (standby_raised, true), batch)
    }

    fn new(plan: &CorePlan, (raised, reads_on): (bool, bool), batch: u32) -> Readers {
        let is_drained = |role| role == Role::Large || raised && role == Role::Standby;
        let reads = |role| !is_drained(role) || reads_on && role == Role::Standby;
        let reads: Vec<bool> = plan.roles.iter().map(|&role| reads(role)).collect();
        let unread = (0..plan.workers()).map(WorkerId).filter(|&id| is_drained(plan.role(id)));
        let readers = reads.iter().filter(|&&reads| reads).count().max(1) as u32;
        Readers { unread: unread.collect(), reads, batch, batch_unread: batch.div_ceil(readers) }
    }

    /// Whether a worker reads RX queues: its own, and then those that are drained by all.
    #[inline]
    pub fn reads(&self, worker: WorkerId) -> bool {
        self.reads[worker.index()]
    }

    /// The workers whose queues all that read drain: they read none themselves, but for a standby
    /// that reads on.
    pub fn unread(&self) -> &[WorkerId] {
        &self.unread
    }

    /// Requests that a worker receives at a time from the RX queue of another, or from its own; 0
    /// where it does not read it.
    pub fn most(&self, me: WorkerId, whose: WorkerId) -> u32 {
        if !self.reads(me) {
            0
        } else if whose == me {
            self.batch
        } else {
            u32::from(self.unread.contains(&whose)) * self.batch_unread
        }
    }
}

/// What a worker sees of the others.
pub trait Others {
    /// Requests of this worker, unread or offered, that one may take.
    fn takable(&self, whose: WorkerId) -> u32;
    /// Requests that another has received and not begun.
    fn received_by(&self, whose: WorkerId) -> u32;
    /// Where nobody sees how much waits with others: with whom to begin to look, one after the
    /// other ([`in_turn`]).
    fn look_first(&self) -> Option<WorkerId> {
        None
    }
}

/// What a worker sees of itself, and of the others.
pub trait Sight: Others {
    /// Requests that it has received and not begun.
    fn received(&self) -> u32;
    /// Requests in the RX queue of a worker, as far as this one can read it.
    fn unread(&self, whose: WorkerId) -> u32;
    /// It has a transfer of its own, and that may go on now.
    fn may_slice(&self) -> bool;
    /// It has no transfer of its own.
    fn has_no_transfer(&self) -> bool;
    /// Transfers in the queue that large workers share.
    fn shared(&self) -> u32;
}

/// The worker from which the most can be taken, the first of equals, and how much that is.
#[inline]
fn longest(plan: &CorePlan, others: &impl Others) -> (WorkerId, u32) {
    let mut longest = (WorkerId(0), 0);
    for whose in (0..plan.workers()).map(WorkerId) {
        let length = others.takable(whose);
        if length > longest.1 {
            longest = (whose, length);
        }
    }
    longest
}

/// The other worker that has received the most without beginning it.
fn fullest(plan: &CorePlan, me: WorkerId, others: &impl Others) -> Option<WorkerId> {
    let workers = (0..plan.workers()).map(WorkerId).filter(|&whose| whose != me);
    workers
        .max_by_key(|&whose| others.received_by(whose))
        .filter(|&whose| others.received_by(whose) > 0)
}

/// What a worker does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Move {
    /// The next of those that it has received.
    Serve,
    /// Receive up to so many from the RX queue of this worker, and ask again.
    Receive(WorkerId, u32),
    /// The next slice of its own transfer.
    Slice,
    /// Take a transfer from the shared queue; the next slice is that one's.
    TakeShared,
    /// Take one small request that waits with this worker, and serve it.
    Steal(WorkerId),
    /// The same of what this worker has received and not begun.
    StealReceived(WorkerId),
    /// Nothing; ask again when something has come.
    Rest,
}

/// Where a worker is in its turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Turn {
    /// 0: its own RX queue; then those nobody reads; then large work.
    stage: u16,
    /// Small requests taken since its last slice.
    took_between: u32,
    /// Its transfer goes on before anything else.
    in_transfer: bool,
}

impl Turn {
    /// What `me` does next.
    #[inline]
    pub fn next(
        &mut self,
        plan: &CorePlan,
        readers: &Readers,
        me: WorkerId,
        sight: &impl Sight,
    ) -> Move {
        if self.in_transfer && sight.may_slice() {
            return Move::Slice;
        }
        if sight.received() > 0 {
            return Move::Serve;
        }
        let stages = if readers.reads(me) { 1 + readers.unread.len() as u16 } else { 0 };
        for _ in 0..=stages {
            let stage = if self.stage > stages { 0 } else { self.stage };
            self.stage = if stage == stages { 0 } else { stage + 1 };
            if stage == stages {
                if let Some(found) = self.large(plan, readers, me, sight) {
                    return found;
                }
                continue;
            }
            let (whose, most) = match stage {
                0 => (me, readers.batch),
                _ => (readers.unread[usize::from(stage) - 1], readers.batch_unread),
            };
            let count = sight.unread(whose).min(most);
            // A standby that reads on has had its own.
            if count > 0 && (stage == 0 || whose != me) {
                return Move::Receive(whose, count);
            }
        }
        idle(plan, me, sight)
    }

    fn large(
        &mut self,
        plan: &CorePlan,
        readers: &Readers,
        me: WorkerId,
        sight: &impl Sight,
    ) -> Option<Move> {
        let reads = readers.reads(me);
        if !reads {
            if let Some(whose) = between_slices(plan, self.took_between, sight) {
                self.took_between += 1;
                return Some(Move::Steal(whose));
            }
            self.took_between = 0;
        }
        if !sight.has_no_transfer() {
            return sight.may_slice().then_some(Move::Slice);
        }
        let may_share =
            !reads && matches!(plan.large_lane, LargeLane::SharedQueue | LargeLane::Everything);
        (may_share && sight.shared() > 0).then_some(Move::TakeShared)
    }

    /// A slice has begun, of a transfer with more to come or not; until it is over nothing else is
    /// asked.
    pub fn slice_begun(&mut self) {
        self.in_transfer = true;
    }

    /// It is over. Where nobody slices, what is left goes on before anything else.
    pub fn slice_over(&mut self, plan: &CorePlan, more: bool) {
        self.in_transfer = more && plan.slice_bytes.is_none();
    }

    /// A slice is under way, or its transfer goes on before anything else.
    pub fn in_transfer(&self) -> bool {
        self.in_transfer
    }
}

/// From whom a large worker takes a small request in front of its next slice, having taken so many
/// since the last one; `None`: the slice is due.
#[inline]
pub fn between_slices(plan: &CorePlan, took: u32, others: &impl Others) -> Option<WorkerId> {
    plan.steal.between_slices_queue_min?;
    let (whose, length) = longest(plan, others);
    plan.steal.between_slices(took, length).then_some(whose)
}

/// What a worker does that has found nothing: it takes one request, of what another has received if
/// sizes mean nothing to the design, else of what is unread or offered.
#[inline(always)]
pub fn idle(plan: &CorePlan, me: WorkerId, others: &impl Others) -> Move {
    if !plan.steal.when_idle {
        return Move::Rest;
    }
    if plan.large_lane == LargeLane::None
        && let Some(whose) = fullest(plan, me, others)
    {
        return Move::StealReceived(whose);
    }
    if let Some(first) = others.look_first() {
        let workers = in_turn(first.index(), usize::from(plan.workers()));
        let mut workers = workers.map(|worker| WorkerId(worker as u16));
        return workers.find(|&whose| others.takable(whose) > 0).map_or(Move::Rest, Move::Steal);
    }
    match longest(plan, others) {
        (whose, length) if plan.steal.idle(length) => Move::Steal(whose),
        _ => Move::Rest,
    }
}

/// So many, the first one first and those before it last. (One past the last is as the first.)
pub fn in_turn(first: usize, count: usize) -> impl Iterator<Item = usize> {
    (first..count).chain(0..first.min(count))
}

/// Where RX queues are sockets, which others cannot see into: whether this worker takes from those
/// of others when it has nothing to do. A large one has no time to look into all of them.
#[inline]
pub fn looks_into_sockets(plan: &CorePlan, me: WorkerId) -> bool {
    plan.steal.when_idle && plan.role(me) != Role::Large
}

/// Where nobody reads another's queue: whether the others may take what a worker has received. What
/// waits with a large worker is large, and so is what waits with a standby beside that.
#[inline]
pub fn may_offer(plan: &CorePlan, me: WorkerId) -> bool {
    plan.steal.when_idle && matches!(plan.role(me), Role::Small | Role::Both)
}

/// How many of the requests that a worker has received together it offers to the others, half of
/// them or none. Each costs something, so it offers where somebody has nothing to do, or has slices
/// between which it may take some.
#[inline]
pub fn offers(
    plan: &CorePlan,
    me: WorkerId,
    received: u32,
    somebody_is_idle: impl FnOnce() -> bool,
    somebody_slices: impl FnOnce() -> bool,
) -> u32 {
    if received < OFFER_MIN || !may_offer(plan, me) {
        return 0;
    }
    let half = received / 2;
    let takes = somebody_is_idle() || plan.steal.between_slices(0, half) && somebody_slices();
    if takes { half } else { 0 }
}

/// The next slice of a transfer with so many bytes left. Where nobody slices it is a burst of
/// frames if there is a wire to give them to, and all of it if there is none.
pub fn slice_of(plan: &CorePlan, left: ItemBytes, wire: bool) -> ItemBytes {
    match plan.slice_bytes {
        Some(slice) => left.min(slice),
        None if wire => left.min(BURST_BYTES),
        None => left,
    }
}

/// Whether a worker with so many bytes of large replies unsent may make so many more.
pub fn may_make(plan: &CorePlan, unsent: ItemBytes, more: ItemBytes) -> bool {
    plan.large_unsent_bytes_max.is_none_or(|most| unsent.0 + more.0 <= most.0)
}

/// Whether a request that [`crate::route()`] serves here waits for large work's turn all the same:
/// the standby finishes its batch first.
pub fn waits_for_its_turn(plan: &CorePlan, size: ItemBytes) -> bool {
    plan.large_lane != LargeLane::None && size >= plan.threshold
}
