//! Those who make TLS handshakes, without their threads: a step at a time.

use super::{Plan, RESP_ALONE, RigStream, rules};
use laneway_server::access::usher::{ByAddress, Guest, Usher};
use laneway_server::clock::{Clock, ManualClock};
use laneway_server::shared::Shared;
use laneway_tls::{Acceptor, Bounds, Finished, Handshakes};
use laneway_transport::memory::{MemoryStream, MemoryTransport, Net};
use std::collections::VecDeque;
use std::sync::Arc;

/// Listeners from this number on are encrypted, and otherwise as those from 0 on.
pub const ENCRYPTED: usize = 8;
/// As many as there are clients, and a few.
const BOUNDS: Bounds = Bounds { most: 16, nanos: 20_000_000_000 };

pub struct Pool {
    handshakes: Handshakes<MemoryTransport>,
    usher: Usher<MemoryStream>,
    /// Through, and not counted among the connections yet.
    finished: VecDeque<Finished<MemoryStream>>,
    /// The mailbox of its worker is full.
    waiting: Option<Guest<MemoryStream>>,
}

impl Pool {
    pub fn new(
        net: &Net,
        domains: &[Arc<Shared<RigStream>>],
        plan: &Plan,
        acceptor: &Arc<Acceptor>,
    ) -> Pool {
        let transport = net.transport().at_listeners(ENCRYPTED..usize::MAX);
        let mut handshakes = Handshakes::new(transport, acceptor.clone(), BOUNDS);
        let most = domains[0].settings.connections_per_address;
        if most > 0 {
            let census = ByAddress::new(domains[0].connections.clone(), most);
            handshakes = handshakes.counted_by(Box::new(census));
        }
        let resp_from = if plan.resp_alone { RESP_ALONE } else { usize::MAX };
        let rules = rules(plan, &domains[0].connections.clients.limits);
        let usher = Usher::new(domains.to_vec(), resp_from, rules);
        Pool { handshakes, usher, finished: VecDeque::new(), waiting: None }
    }

    /// A step of the thread that makes handshakes. Returns whether there was something to do.
    pub fn shake(&mut self, clock: &ManualClock) -> bool {
        let mut finished = Vec::new();
        let stepped = self.handshakes.step(&|| clock.nanos(), &mut finished);
        let refused = stepped.expect("memory transports do not fail");
        assert!(refused.is_none(), "{refused:?}");
        let busy = !finished.is_empty() || self.handshakes.transport().asleep().is_none();
        let ours = |guest: Finished<_>| Finished { listener: guest.listener - ENCRYPTED, ..guest };
        self.finished.extend(finished.into_iter().map(ours));
        busy
    }

    /// A step of the thread that brings them to workers. Returns whether it brought one.
    pub fn bring(&mut self, clock: &ManualClock) -> bool {
        let guest = match self.waiting.take() {
            Some(guest) => guest,
            None => {
                let Some(finished) = self.finished.pop_front() else { return false };
                let now_seconds = clock.unix_seconds(clock.nanos());
                match self.usher.welcome(finished, now_seconds) {
                    Some(guest) => guest,
                    None => return true,
                }
            }
        };
        self.waiting = guest.enter().err();
        self.waiting.is_none()
    }

    /// Those who are counted at their address and not among the connections.
    pub fn knocking(&self) -> usize {
        self.handshakes.underway() + self.finished.len()
    }

    /// As a server does that stops: handshakes under way end, who is through goes to a worker.
    pub fn close(mut self, clock: &ManualClock) {
        while self.bring(clock) {}
        let Pool { handshakes, usher, finished, waiting } = self;
        drop(handshakes);
        waiting.into_iter().for_each(Guest::turn_away);
        let now_seconds = clock.unix_seconds(clock.nanos());
        let guests = finished.into_iter().filter_map(|guest| usher.welcome(guest, now_seconds));
        guests.filter_map(|guest| guest.enter().err()).for_each(Guest::turn_away);
    }
}
