//! One NUMA domain of several that are alike, each with workers, a plan and RX queues of its own
//! (Minos §3.1; `laneway serve --numa`).
//!
//! A share of the requests are for items of another domain, as by connections, which live in one:
//! who receives such a request hands it over, and a small worker of the other domain takes it as
//! one of its own. As many come from other domains as go there, so the domain that is simulated is
//! its own neighbour: what it hands over comes into its own queues. Departs from the server: who
//! serves such a request also replies, the cost of taking the reply back being part of
//! [`Numa::cost`]. Not modelled: large values that are written to the other domain's memory
//! directly, multigets, a wire. Unit: picoseconds.

use super::{Doing, Request, Run};

/// NUMA domains.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Numa {
    /// How many; the machine is one of them.
    pub domains: u16,
    /// Share of the requests that come to another domain than their item's.
    pub strays: f64,
    /// What such a request costs the other domain's worker beyond taking it from a queue.
    pub cost: u64,
}

impl Run<'_> {
    /// Whether the next request is for an item of another domain.
    pub(super) fn strays(&mut self) -> bool {
        self.machine.numa.is_some_and(|numa| self.stray.chance(numa.strays))
    }

    /// Begin to hand over a request for another domain's item.
    pub(super) fn begin_crossing(&mut self, worker: usize, request: Request, extra: u64) {
        let time = self.costs.receive + self.costs.handoff + extra;
        self.begin(worker, Doing::Cross(request), time);
    }

    /// It is handed over.
    pub(super) fn crossed(&mut self, request: Request) {
        let cost = self.machine.numa.map_or(0, |numa| numa.cost);
        let spared = self.costs.receive.saturating_sub(self.costs.steal);
        let service = request.service.saturating_sub(spared).max(1) + cost;
        let request = Request { remote: false, came: self.now, service, ..request };
        let small = u64::from(self.control.plan.workers_small);
        let queue = if self.machine.central_queue { 0 } else { self.stray.below(small) as usize };
        self.rx[queue].push_back(request);
        self.wake_for_rx(queue);
    }
}
