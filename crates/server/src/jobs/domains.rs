//! NUMA domains: each has workers, a plan, memory and queues of its own, and a key belongs to one
//! of them by its hash (Minos §3.1: "an independent set of small and large cores within each NUMA
//! domain", and clients send to the domain that stores the key).
//!
//! Clients that speak UDP and know us choose a queue of the key's domain, and nothing crosses;
//! [`crate::jobs::remote`] is about what does. Where a key's memory is, is routing and never
//! safety: every store may be used by any thread.
//!
//! It knows no worker; `N` is all that a domain's workers share.

use laneway_policy::Placement;
use laneway_store::Store;
use std::sync::{Arc, Weak};

/// The domains of one server, as one of them sees them.
pub struct Domains<N> {
    own: u16,
    placement: Placement,
    all: Vec<Weak<N>>,
    stores: Vec<Arc<Store>>,
    /// The stores of the others.
    others: Vec<Arc<Store>>,
}

impl<N> Domains<N> {
    /// Domain number `own` of these, which have these stores.
    pub fn new(own: u16, placement: Placement, all: Vec<Weak<N>>, stores: &[Arc<Store>]) -> Self {
        let stores = stores.to_vec();
        let mut others = stores.clone();
        others.remove(usize::from(own));
        Domains { own, placement, all, stores, others }
    }

    /// Number of this domain.
    pub fn own(&self) -> u16 {
        self.own
    }

    /// How keys are placed, over all domains.
    pub fn placement(&self) -> &Placement {
        &self.placement
    }

    /// The domain whose memory holds the key.
    pub fn of(&self, key: &[u8]) -> u16 {
        self.placement.domain(self.placement.hash(key))
    }

    /// A domain's store.
    pub fn store(&self, domain: u16) -> &Arc<Store> {
        &self.stores[usize::from(domain)]
    }

    /// The stores of the other domains.
    pub fn other_stores(&self) -> &[Arc<Store>] {
        &self.others
    }

    /// A domain; none where the server has ended.
    pub fn neighbour(&self, domain: u16) -> Option<Arc<N>> {
        self.all[usize::from(domain)].upgrade()
    }

    /// All domains that there still are, in their order.
    pub fn all(&self) -> impl Iterator<Item = Arc<N>> + '_ {
        self.all.iter().filter_map(Weak::upgrade)
    }
}
