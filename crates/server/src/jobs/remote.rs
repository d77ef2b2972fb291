//! What belongs to another NUMA domain ([`crate::jobs::domains`]): a connection's requests for its
//! keys are handed over, one parsed request each, as in the rival designs
//! ([`crate::request::forward`]), and so is a datagram that came to a wrong domain. The reply comes
//! back to who received the request, and leaves from there. It departs from Minos §3.1, which has
//! no connections.
//!
//! Three things are done in another domain's memory directly, and counted: the bytes of a large
//! value that arrives by a connection go straight into their item; an append or prepend is done in
//! slices by who received it, since a job is one step, and the old value may be large; and a
//! multiget by UDP whose keys are of several domains is answered by who received it, since its
//! reply is one message.

use crate::core::Core;
use crate::execute::Context;
use crate::jobs::domains::Domains;
use crate::jobs::handoff::{Home, Job};
use crate::shared::Shared;
use laneway_policy::{Design, Placement, WorkerId, WorkerTarget};
use laneway_store::Store;
use laneway_sync::planted::{Bug, is_planted};
use laneway_sync::sleep::Posted;
use laneway_transport::Transport;
use laneway_wire::{KEY_BYTES_MAX, Malformed};
use std::sync::Arc;

/// A domain takes jobs as a worker does, under a number that no worker has and the executor has
/// not.
const OTHER_DOMAINS: u16 = 1 << 15;

/// Tell every domain of the others. Called once, before a worker is made.
pub fn link<S>(all: &[Arc<Shared<S>>], placement: Placement) {
    let stores: Vec<Arc<Store>> = all.iter().map(|shared| shared.store.clone()).collect();
    for (own, shared) in all.iter().enumerate() {
        let neighbours = all.iter().map(Arc::downgrade).collect();
        let domains = Domains::new(own as u16, placement, neighbours, &stores);
        assert!(shared.domains.set(domains).is_ok(), "linked twice");
    }
}

/// Whether this is the place of another domain.
pub(crate) fn is_remote(to: WorkerTarget) -> bool {
    let of_domain = |id: WorkerId| (OTHER_DOMAINS..u16::MAX).contains(&id.0);
    matches!(to, WorkerTarget::Worker(id) if of_domain(id))
}

impl<T: Transport> Core<T> {
    /// Whether the server has several domains.
    pub(crate) fn has_domains(&self) -> bool {
        self.shared.domains.get().is_some()
    }

    /// The queue for a request for `key`, if another domain holds it.
    pub(crate) fn remote(&self, key: &[u8]) -> Option<WorkerTarget> {
        let domains = self.shared.domains.get()?;
        let domain = domains.of(key);
        let is_remote = domain != domains.own() && !key.is_empty();
        is_remote.then_some(WorkerTarget::Worker(WorkerId(OTHER_DOMAINS + domain)))
    }

    /// What a command about `key` is executed in, wherever the key's memory is.
    pub(crate) fn context_for(&self, key: &[u8]) -> Context<'_> {
        let context = self.context();
        let Some(domains) = self.shared.domains.get() else { return context };
        let domain = domains.of(key);
        if domain == domains.own() {
            return context;
        }
        self.lanes().items_remote.add_owner(1);
        Context { store: domains.store(domain), hand: None, ..context }
    }

    /// The same where requests are executed by who received them, in every design: in a rival one
    /// what is large is read here, since there only connections could move.
    pub(crate) fn context_here(&self, key: &[u8]) -> Context<'_> {
        let context = self.context_for(key);
        let moves = self.plan.design == Design::Lanes;
        Context { large_from: if moves { context.large_from } else { u64::MAX }, ..context }
    }

    /// What is answered to `what` is executed in: it may be about a key.
    pub(crate) fn context_of_malformed(&self, what: &Malformed<'_>) -> Context<'_> {
        let mut scratch = [0; KEY_BYTES_MAX];
        match &what.unlink {
            Some(key) => self.context_for(key.bytes(&mut scratch)),
            None => self.context(),
        }
    }

    /// Put a job into a queue of another domain: that of a worker that serves small requests there.
    pub(crate) fn enqueue_remote(&self, to: WorkerTarget, mut job: Job) -> Result<(), Job> {
        let (Some(domains), WorkerTarget::Worker(WorkerId(number))) =
            (self.shared.domains.get(), to)
        else {
            return Err(job);
        };
        let Some(there) = domains.neighbour(number - OTHER_DOMAINS) else {
            return Err(job);
        };
        job.home = Some(Home { domain: domains.own(), worker: self.id });
        let small = usize::from(there.plan.get().workers_small);
        let worker = self.id.index() % small;
        if let Err(mut job) = there.workers[worker].jobs.push(job) {
            job.home = None;
            return Err(job);
        }
        self.lanes().handed_over.add_owner(1);
        self.lanes().forwarded.add_owner(1);
        wake_there(&there, worker);
        Ok(())
    }
}

/// Wake a worker of another domain if it sleeps, as [`Core::wake_one`] does.
pub(crate) fn wake_there<S>(there: &Shared<S>, worker: usize) {
    let there = &there.workers[worker];
    if Posted::now().must_wake(&there.sleeper) && !is_planted(Bug::DomainNotWoken) {
        there.wake();
    }
}
