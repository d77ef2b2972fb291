//! A client over UDP: the client library's own core, which repeats what was lost, over the seeded
//! memory network.

use crate::asking::Asking;
use crate::scene::Scene;
use crate::swarm::Swarm;
use laneway_client::{Core, Settings, Topology};
use laneway_policy::{Placement, owner};
use laneway_transport::memory_datagram::{DatagramNet, MemoryClient};
use std::net::SocketAddr;

/// The address of queue 0 of a memory network.
const QUEUES_AT: ([u8; 4], u16) = ([10, 0, 0, 1], 11_211);

/// One client.
pub struct DatagramClient {
    /// What it asks.
    pub asking: Asking,
    socket: MemoryClient,
}

impl DatagramClient {
    /// On this network, of a server with so many workers.
    pub fn new(number: usize, net: &DatagramNet, swarm: &Swarm, seed: u64) -> DatagramClient {
        let queues = swarm.workers as u16;
        // Every second one does not know of domains, and sends to any.
        let domains = if number.is_multiple_of(2) { swarm.domains() } else { 1 };
        let placement = Placement::new(owner::SEED, queues, domains).expect("there are workers");
        let topology = Topology::queues(QUEUES_AT.1, queues).placed(placement);
        let core = Core::new(Settings::default(), topology, seed);
        let is_exact = swarm.datagram_faults == 0;
        let asking = Asking::new(format!("udp {number}"), core, is_exact);
        DatagramClient { asking, socket: net.client() }
    }

    /// Sends and receives, and judges what came.
    pub fn exchange(&mut self, scene: &mut Scene<'_>, now_nanos: u64) -> Result<(), String> {
        let core = &mut self.asking.core;
        let mut out = Vec::new();
        while let Some(departure) = core.transmit(now_nanos, &mut out) {
            let to = SocketAddr::from((QUEUES_AT.0, QUEUES_AT.1 + departure.queue));
            for datagram in out.chunks(departure.segment_bytes) {
                self.socket.send(to, datagram);
            }
        }
        while let Some((from, datagram)) = self.socket.receive() {
            core.feed(from.port() - QUEUES_AT.1, &datagram, now_nanos);
        }
        core.tick(now_nanos);
        self.asking.hear(scene)
    }
}
