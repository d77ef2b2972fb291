//! Small requests that others may take (the rules (d) and (e) of `lanes`, and what `--extra-large`
//! adds to `minos`; Minos §6.1 "Latency of large requests").
//!
//! Over TCP a request lies in its connection's input, where nobody else can reach it. So a worker
//! that finds several connections ready at once, while another worker has nothing to do or has
//! large transfers to take it between, puts some of their requests into its own queue, one parsed
//! request each; their replies come back through the connections' ordered slots. Whoever is idle
//! takes one, a large worker between two slices as many as the plan lets it, and this worker goes
//! on with half of what is left each turn, so that what is offered is never left lying.
//!
//! Half of a burst is offered, and only where somebody could take it, for each costs a copy.
//! Offered are single requests for small items with nothing behind them: a connection has one
//! request under way at a time, and a pipeline would stand still for it.

use crate::core::Core;
use crate::request::requests::writes;
use laneway_policy::turn::{self, OFFER_MIN};
use laneway_policy::{Design, ItemBytes, Move, Others, WorkerId, WorkerTarget};
use laneway_sync::planted::{Bug, is_planted};
use laneway_transport::{Ready, Transport};
use laneway_wire::Get;
use std::sync::atomic::Ordering;

/// Of another worker's requests this one can reach the jobs in its queue.
impl<T: Transport> Others for Core<T> {
    #[inline]
    fn takable(&self, whose: WorkerId) -> u32 {
        let takes = whose != self.id && turn::may_offer(&self.plan, whose);
        if takes { self.received_by(whose) } else { 0 }
    }

    #[inline]
    fn received_by(&self, whose: WorkerId) -> u32 {
        self.shared.workers[whose.index()].jobs.len() as u32
    }
}

impl<T: Transport> Core<T> {
    /// The worker of whose jobs this one takes one where it has nothing to do.
    #[inline]
    pub(crate) fn idle_takes_of(&self) -> Option<WorkerId> {
        match turn::idle(&self.plan, self.id, self) {
            Move::Steal(whose) | Move::StealReceived(whose) => Some(whose),
            _ => None,
        }
    }

    /// Whether this worker offers small requests to others. (In `hkh-ws` all that it receives goes
    /// into its queue.)
    pub(crate) fn may_offer(&self) -> bool {
        self.plan.design != Design::HkhWs && turn::may_offer(&self.plan, self.id)
    }

    /// A burst has come: how many of its requests are offered.
    pub(crate) fn begin_offering(&self, ready: &[Ready]) {
        let is_stream = |event: &&Ready| matches!(event, Ready::Stream(_) | Ready::Ending(_));
        let streams = ready.iter().filter(is_stream).count() as u32;
        if streams < OFFER_MIN || !self.may_offer() {
            return;
        }
        let mut others = (0..self.shared.workers.len()).filter(|&other| other != self.id.index());
        let is_idle = |other: usize| self.shared.workers[other].idle.load(Ordering::Relaxed);
        let has_slices =
            |id: WorkerId| self.shared.workers[id.index()].lanes.waiting_large.get() > 0;
        let any_idle = || others.any(is_idle);
        let any_slices = || self.plan.large_ids().any(has_slices);
        self.offers.set(turn::offers(&self.plan, self.id, streams, any_idle, any_slices));
    }

    /// The queue for a `get` that is offered: one of a single key.
    pub(crate) fn offer_get(&self, get: &Get<'_>) -> Option<WorkerTarget> {
        if self.offers.get() == 0 {
            return None;
        }
        let mut keys = get.keys;
        let key = keys.next().filter(|_| keys.next().is_none())?;
        // A `gat` changes its item: where items are kept durably the executor carries it out.
        let keeps = writes(get.verb) && self.shared.durable.get().is_some();
        match keeps && !is_planted(Bug::TouchOffered) {
            true => None,
            false => self.offer(key, 0),
        }
    }

    /// The queue for a request that is offered. `size`: of its item, 0 if unknown.
    pub(crate) fn offer(&self, key: &[u8], size: u64) -> Option<WorkerTarget> {
        let left = self.offers.get().checked_sub(1)?;
        if self.remote(key).is_some() {
            return None; // who takes it would look in the wrong memory
        }
        let size = if size > 0 {
            ItemBytes(size)
        } else {
            let store = &self.shared.store;
            let meta = store.peek(store.hash(key), key, self.now);
            ItemBytes(meta.map_or(0, |meta| meta.item_bytes()))
        };
        if size >= self.plan.threshold {
            return None;
        }
        self.offers.set(left);
        Some(WorkerTarget::Worker(self.id))
    }

    /// A turn has ended: whether this worker looks for something to do.
    pub(crate) fn tell_idle(&mut self, idle: bool) {
        if self.told_idle != idle {
            self.told_idle = idle;
            self.shared.workers[self.id.index()].idle.store(idle, Ordering::Relaxed);
        }
    }
}
