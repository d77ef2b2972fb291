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
use crate::requests::writes;
use laneway_policy::turn::{self, OFFER_MIN};
use laneway_policy::{Design, ItemBytes, Role, WorkerId, WorkerTarget};
use laneway_sync::planted::{Bug, is_planted};
use laneway_transport::{Ready, Transport};
use laneway_wire::Get;
use std::sync::atomic::Ordering;

impl<T: Transport> Core<T> {
    /// The worker, not this one, in whose queue the most small jobs lie. A standby's are large.
    pub(crate) fn longest_queue(&self) -> Option<WorkerId> {
        let length = |worker: &WorkerId| self.shared.workers[worker.index()].jobs.len();
        let takes =
            |worker: &WorkerId| *worker != self.id && self.plan.role(*worker) != Role::Standby;
        let others = self.plan.small_ids().filter(takes);
        others.max_by_key(length).filter(|worker| length(worker) > 0)
    }

    /// Whether this worker's small requests may be taken by others at all.
    pub(crate) fn may_offer(&self) -> bool {
        matches!(self.plan.design, Design::Lanes | Design::Minos)
            && self.plan.steal.when_idle
            && matches!(self.plan.role(self.id), Role::Small | Role::Both)
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
        self.offers.set(turn::offers(&self.plan, streams, any_idle, any_slices));
    }

    /// The queue for a `get` that is offered: one of a single key.
    pub(crate) fn offer_get(&self, get: &Get<'_>) -> Option<WorkerTarget> {
        if self.offers.get() == 0 {
            return None;
        }
        let mut keys = get.keys;
        let key = keys.next().filter(|_| keys.next().is_none())?;
        // A `gat` changes its item: where items are kept durably the keeper carries it out.
        let keeps = writes(get.verb) && self.shared.durable.get().is_some();
        match keeps && !is_planted(Bug::TouchOffered) {
            true => None,
            false => self.offer(key, 0),
        }
    }

    /// The queue for a request that is offered. `size`: of its item, 0 if unknown.
    pub(crate) fn offer(&self, key: &[u8], size: u64) -> Option<WorkerTarget> {
        let left = self.offers.get().checked_sub(1)?;
        if self.abroad(key).is_some() {
            return None; // who takes it would look in the wrong memory
        }
        let size = if size > 0 {
            ItemBytes(size)
        } else {
            let store = &self.shared.store;
            let meta = store.peek(store.hash(key), key, self.now);
            ItemBytes(meta.map_or(0, |m| u64::from(m.key_bytes) + u64::from(m.value_bytes)))
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
