//! What of a rig is about clients in memory.

use super::{Plan, Rig, afar};
use crate::slot_faults::{Faults, Lossy};
use laneway_rdma::contract::Peer;
use laneway_rdma::door;
use laneway_rdma::layout::Terms;
use laneway_rdma::region::Registry;
use laneway_rdma::shmring::{RingRequester, RingResponder};
use laneway_transport::datagram::Datagrams;
use laneway_transport::memory::MemoryTransport;
use laneway_transport::rdma::{RdmaDatagrams, Whence};
use laneway_transport::shm_watch::Watch;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

/// What a client may lend: two of the largest items of the mix.
const BULK_BYTES: usize = 4 << 20;
/// Clients.
const CLIENTS_MAX: usize = 4;

impl Rig {
    /// A client in memory. The server is there as long as the stream is.
    pub fn enter(&self) -> (RingRequester, Peer, UnixStream) {
        self.enter_as(door::Version::Placed)
    }

    /// The same of that version.
    pub fn enter_as(&self, version: door::Version) -> (RingRequester, Peer, UnixStream) {
        let registry = self.registry.as_ref().expect("it serves clients in memory");
        let given = door::join_as(version, registry).expect("there is memory");
        let (given, peer, server) = given.expect("there is a place");
        (RingRequester::new(given), peer, server)
    }

    /// A client on another host, or so it seems.
    pub fn enter_afar(&self) -> (afar::Client, UnixStream) {
        let rendezvous_buffers = self.rendezvous_buffers.as_ref().expect("it serves clients afar");
        let (ring, peer, server) = self.enter();
        (rendezvous_buffers.enter(peer, ring), server)
    }
}

/// Room for them.
pub fn registry(plan: &Plan) -> Arc<Registry> {
    let usual = Terms::of(plan.workers, BULK_BYTES);
    Arc::new(Registry::new(plan.terms.unwrap_or(usual), CLIENTS_MAX))
}

/// The transport of a worker, which looks into their slots: its queues are numbered from `first`
/// on. `rings`: it may sleep over them.
pub fn watching(
    transport: MemoryTransport,
    registry: &Arc<Registry>,
    (worker, first): (usize, usize),
    rings: bool,
) -> MemoryTransport {
    if !rings {
        return transport.with_rdma(first);
    }
    let watch = Watch::new(registry.clone(), worker, first);
    transport.with_bells(watch).expect("there are descriptors")
}

/// A worker's handle on the queues in memory, with faults, behind `others`.
pub fn queues(
    registry: &Arc<Registry>,
    worker: usize,
    (faults, rendezvous_buffers): (Faults, &Option<Arc<afar::RendezvousBuffers>>),
    others: Option<Box<dyn Datagrams>>,
) -> Box<dyn Datagrams> {
    let faults = Faults { seed: faults.seed ^ worker as u64, ..faults };
    let responder = RingResponder::new(registry.clone(), worker);
    let responder = Lossy::new(responder, faults);
    let places = registry.terms().replies;
    if let Some(rendezvous_buffers) = rendezvous_buffers.clone() {
        assert!(others.is_none(), "clients afar, and nobody else");
        let responder = afar::Afar { inner: responder, rendezvous_buffers };
        return Box::new(RdmaDatagrams::new(Whence::Afar, responder, places));
    }
    let queues = RdmaDatagrams::new(Whence::Here, responder, places);
    match others {
        Some(others) => Box::new(queues.behind(others)),
        None => Box::new(queues),
    }
}
