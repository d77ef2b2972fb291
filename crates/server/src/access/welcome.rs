//! Every new connection comes by here: it is counted, and assigned to a home worker.

use crate::access::per_address::Counted;
use crate::event_log::Parting;
use crate::resp::state::Dialect;
use crate::shared::{Shared, TooMany};
use crate::stream::connection::Connection;
use laneway_policy::{CorePlan, WorkerId};
use laneway_transport::Stream;
use laneway_wire::reply::{TOO_MANY_CONNECTIONS, TOO_MANY_CONNECTIONS_OF_ADDRESS};
use std::io::IoSlice;
use std::sync::atomic::Ordering::Relaxed;

/// Redis' words for it.
const TOO_MANY_CLIENTS: &[u8] = b"-ERR max number of clients reached\r\n";
const TOO_MANY_OF_ADDRESS: &[u8] = b"-ERR max number of clients of this address reached\r\n";

impl<S: Stream> Shared<S> {
    /// Take a new connection in. Its home is the small worker that has the fewest, or `otherwise`
    /// where there is none. `None`: it was told that there are too many, and closed.
    pub fn take_in(
        &self,
        plan: &CorePlan,
        otherwise: WorkerId,
        mut stream: S,
        dialect: Dialect,
        counted: Counted,
        now_seconds: u32,
    ) -> Option<Box<Connection<S>>> {
        let most = (self.settings.connections_max, self.settings.connections_per_address);
        let names = (stream.peer(), stream.local());
        let sums = |client| self.client_sums(client);
        let card = match self.connections.enter(most, names, counted, now_seconds, sums) {
            Ok(card) => card,
            Err(why) => {
                // One small write into an empty socket buffer; whether it arrives is the peer's
                // affair.
                let words = match (why, dialect.is_resp()) {
                    (TooMany::InAll, true) => TOO_MANY_CLIENTS,
                    (TooMany::InAll, false) => TOO_MANY_CONNECTIONS,
                    (TooMany::OfAddress, true) => TOO_MANY_OF_ADDRESS,
                    (TooMany::OfAddress, false) => TOO_MANY_CONNECTIONS_OF_ADDRESS,
                };
                let _ = stream.write(&[IoSlice::new(words)]);
                let limit = match why {
                    TooMany::InAll => format!("-c {}", most.0),
                    TooMany::OfAddress => format!("--connections-per-address {}", most.1),
                };
                log::trace!(peer = &*stream.peer(); "connection refused: {limit} are open");
                return None;
            }
        };
        let fewest = |id: &WorkerId| self.workers[id.index()].connections.load(Relaxed);
        let home = plan.small_ids().min_by_key(fewest).unwrap_or(otherwise);
        self.workers[home.index()].connections.fetch_add(1, Relaxed);
        let (connection, peer) = (card.number, &*card.peer);
        log::trace!(connection, peer, worker = home.index(); "connection opened");
        let mut connection = Connection::new(stream, dialect, home, card);
        connection.unproven_since = Some(now_seconds);
        Some(connection)
    }

    /// Forget a connection that no worker has.
    pub(crate) fn turn_away(&self, connection: &Connection<S>) {
        self.connections.leave(&connection.card, Parting::Normal);
        self.workers[connection.home.index()].connections.fetch_sub(1, Relaxed);
    }
}
