//! Decides which requests go to another worker or to the durable executor: once before any look-up,
//! and once more when the size of the item is known.

use crate::core::Core;
use crate::durable::shared::EXECUTOR;
use crate::execute::is_checkpoint;
use crate::jobs::remote::is_remote;
use crate::request::requests::key_of;
use crate::stats::{self, Question};
use laneway_policy::route::hands_unseen;
use laneway_policy::{Asked, Design, ItemBytes, Route, WorkerTarget, hand, route};
use laneway_sync::planted::{Bug, is_planted};
use laneway_transport::Transport;
use laneway_wire::{KEY_BYTES_MAX, Request};

impl<T: Transport> Core<T> {
    /// Whether requests of this worker's connections may have to be handed over: those of some
    /// size, and those of which no size is known.
    pub(crate) fn rules(&self) -> (bool, bool) {
        let elsewhere = |size| matches!(route(&self.plan, self.id, size), Route::Hand(_));
        let sizes = elsewhere(self.plan.threshold) || elsewhere(ItemBytes(u64::MAX));
        let unseen = hands_unseen(&self.plan) || self.shared.durable.get().is_some();
        (sizes, unseen || self.has_domains())
    }

    /// The queue for a request for `key`, if not here and now. `size`: of its item, 0 if unknown.
    pub(crate) fn queue_for(&self, key: &[u8], writes: bool, size: u64) -> Option<WorkerTarget> {
        if writes && self.shared.durable.get().is_some() {
            return Some(EXECUTOR);
        }
        if !self.hands_unseen && (!self.hands_over || size == 0) {
            return None;
        }
        if let Some(remote) = self.remote(key) {
            return Some(remote);
        }
        let owner = match self.plan.design {
            Design::Hkh => self.owner_of(key),
            _ => self.id, // no other design asks whose key it is
        };
        let size = (size > 0).then_some(ItemBytes(size));
        hand(&self.plan, self.id, &Asked { owner, writes, size })
    }

    /// The queue for a request that stores. Whoever executes a job does so in one step, so what
    /// joins bytes to another domain's item, which may be large, is done here, slice by slice.
    pub(crate) fn queue_for_store(
        &self,
        key: &[u8],
        joins: impl Fn() -> bool,
        size: u64,
    ) -> Option<WorkerTarget> {
        let is_mine = |to| is_remote(to) && joins() && !is_planted(Bug::JoinedRemotely);
        self.queue_for(key, true, size).filter(|to| !is_mine(*to))
    }

    /// The queue for a request without a value, before anybody has looked its item up.
    pub(crate) fn queue_for_unseen(&self, request: &Request<'_>) -> Option<WorkerTarget> {
        if !self.hands_unseen {
            return None;
        }
        let may_flush = self.execute_settings.flush_enabled;
        if self.shared.durable.get().is_some() && is_executors(request, may_flush) {
            return Some(EXECUTOR);
        }
        let mut scratch = [0; KEY_BYTES_MAX];
        let (key, writes) = key_of(request, &mut scratch)?;
        self.queue_for(key, writes, 0)
    }

    /// The queue for an item of the large lane. Its own, where the plan serves it here after all.
    pub(crate) fn queue_for_size(&self, size: u64) -> WorkerTarget {
        self.queue_for(&[], false, size).unwrap_or(WorkerTarget::Worker(self.id))
    }

    /// What the executor has to bring into memory for a key that it is given.
    pub(crate) fn kept_bytes(&self, key: &[u8], to: WorkerTarget) -> u64 {
        let durable = self.shared.durable.get().filter(|_| to == EXECUTOR);
        let bytes = durable.and_then(|durable| durable.pending_writes.value_bytes(key, self.now));
        bytes.unwrap_or(0)
    }

    /// Bytes of the item of a key that the tier has and memory has not; 0 where there is none.
    pub(crate) fn cold_bytes(&self, key: &[u8]) -> u64 {
        let Some(durable) = self.shared.durable.get() else { return 0 };
        let store = &self.shared.store;
        if store.peek(store.hash(key), key, self.now).is_some() {
            return 0;
        }
        let value_bytes = durable.pending_writes.value_bytes(key, self.now);
        value_bytes.map_or(0, |value_bytes| key.len() as u64 + value_bytes)
    }

    /// Whether a key of a multiget goes where the one before it goes.
    pub(crate) fn goes_along(&self, key: &[u8], writes: bool, to: WorkerTarget) -> bool {
        if to != EXECUTOR || writes {
            return self.queue_for(key, writes, 0) == Some(to);
        }
        let store = &self.shared.store;
        store.peek(store.hash(key), key, self.now).is_none()
    }
}

/// Whether a request that changes no item is the executor's all the same: it is about all of them,
/// or about what memory does not know.
fn is_executors(request: &Request<'_>, may_flush: bool) -> bool {
    match request {
        // One that is refused does nothing, and nobody may wait for it.
        Request::FlushAll { .. } => may_flush,
        Request::MetaDebug(_) => true,
        Request::Stats(words) => stats::question(words) == Ok(Question::Tier),
        Request::Admin(line) => is_checkpoint(line),
        _ => false,
    }
}
