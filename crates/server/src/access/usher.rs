//! Brings a connection whose TLS handshake is over to a worker, and counts handshakes that are
//! under way. This module knows no thread and no clock: the threads that make handshakes call it.

use crate::access::listener_rules::ListenerRules;
use crate::access::per_address::Counted;
use crate::shared::{Connections, Shared};
use crate::stream::connection::Connection;
use laneway_policy::WorkerId;
use laneway_sync::planted::{Bug, is_planted};
use laneway_tls::{Census, EitherStream, Finished};
use laneway_transport::Stream;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// What the workers of a domain share.
type Domain<S> = Arc<Shared<EitherStream<S>>>;

/// Who brings connections to workers.
pub struct Usher<S: Stream> {
    domains: Vec<Domain<S>>,
    resp_from: usize,
    rules: Vec<ListenerRules>,
}

/// A connection that is counted, and that no worker has yet.
pub struct Guest<S: Stream> {
    shared: Domain<S>,
    connection: Box<Connection<EitherStream<S>>>,
}

impl<S: Stream> Usher<S> {
    /// To the workers of these domains. By the listeners from `resp_from` on nothing but RESP is
    /// spoken; `rules` says of each what holds of who comes by it.
    pub fn new(domains: Vec<Domain<S>>, resp_from: usize, rules: Vec<ListenerRules>) -> Usher<S> {
        Usher { domains, resp_from, rules }
    }

    /// Find the worker with the fewest connections, in the NUMA domain that has the fewest. `None`:
    /// there are too many connections; the client was told so.
    pub fn welcome(&self, guest: Finished<S>, now_seconds: u32) -> Option<Guest<S>> {
        let count = |shared: &&Domain<S>| {
            let workers = shared.workers.iter();
            workers.map(|worker| worker.connections.load(Relaxed)).sum::<usize>()
        };
        let shared = self.domains.iter().min_by_key(count)?;
        let plan = shared.plan.get();
        let is_resp = guest.listener >= self.resp_from && !is_planted(Bug::RespAloneForgotten);
        let dialect = shared.dialect_of(is_resp);
        let stream = EitherStream::Tls(guest.stream);
        // Who comes was counted at his address before his handshake.
        let (first, counted) = (WorkerId(0), Counted::Before);
        let taken = shared.take_in(&plan, first, stream, dialect, counted, now_seconds);
        let mut connection = taken?;
        self.rules[guest.listener].apply(&mut connection);
        Some(Guest { shared: shared.clone(), connection })
    }
}

impl<S: Stream> Guest<S> {
    /// Go into the mailbox of its worker, and wake that; given back while the mailbox is full.
    pub fn enter(self) -> Result<(), Guest<S>> {
        let Guest { shared, connection } = self;
        let home = &shared.workers[connection.home.index()];
        match home.mailbox.push(connection) {
            Ok(()) => {
                home.wake();
                Ok(())
            }
            Err(connection) => Err(Guest { shared, connection }),
        }
    }

    /// No worker takes it any more: it is closed, and counts no more.
    pub fn turn_away(self) {
        self.shared.turn_away(&self.connection);
    }
}

/// Counts who comes by where he comes from, from before his handshake on: one client that begins
/// handshakes and ends none keeps nobody else out. (Who is refused so is told nothing, since what
/// he could read would take the handshake.)
pub struct ByAddress {
    connections: Arc<Connections>,
    most: usize,
}

impl ByAddress {
    /// Among the connections of the server, of which an address may have so many.
    pub fn new(connections: Arc<Connections>, most: usize) -> ByAddress {
        ByAddress { connections, most }
    }
}

impl Census for ByAddress {
    fn enter(&self, peer: &str) -> bool {
        let ByAddress { connections, most } = self;
        let fits = connections.per_address.enter(peer, *most);
        if !fits {
            connections.rejected_by_address.fetch_add(1, Relaxed);
            log::trace!(peer; "connection refused: --connections-per-address {most} are open");
        }
        fits
    }

    fn leave(&self, peer: &str) {
        self.connections.per_address.leave(peer);
    }
}
