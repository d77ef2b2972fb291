//! A worker's part in knowing whether large replies wait for the wire: see [`crate::backlog`].

use crate::backlog::STREAMS_MIN;
use crate::clock::Clock;
use crate::connection::Connection;
use crate::worker::Worker;
use laneway_transport::{Token, Transport};

impl<T: Transport, C: Clock> Worker<T, C> {
    /// A large stream's peer takes nothing more for now.
    pub(crate) fn waits_for_peer(&mut self, token: Token, connection: &mut Connection<T::Stream>) {
        if connection.blocked_nanos == 0 {
            connection.blocked_nanos = self.clock.nanos().max(1);
            self.backlog.began.push_back((connection.blocked_nanos, token));
            self.backlog.waiting += 1;
        }
    }

    /// A turn begins: count how long the worker has waited for the wire since the last one.
    pub(crate) fn count_backlog(&mut self, now: u64) {
        if let Some((since, most)) = self.backlog.since.take() {
            let waited = now.saturating_sub(since).min(most);
            self.lanes().tx_backed_up_nanos.add_owner(waited);
        }
        while let Some((began, token)) = self.backlog.began.front().copied() {
            if now.saturating_sub(began) < self.backlog.patience_nanos {
                break;
            }
            self.backlog.began.pop_front();
            if let Some(connection) = self.table.get_mut(token)
                && connection.blocked_nanos == began
            {
                self.backlog.goes_on(connection); // as far as the wire is concerned
            }
        }
    }

    /// A turn ends: whether the worker now waits for the wire. `now`: when it began.
    pub(crate) fn note_backlog(&mut self, now: u64) {
        let datagrams = self.udp.as_deref().is_some_and(|udp| udp.desk.waits_for_room());
        let streams = self.backlog.waiting >= STREAMS_MIN && self.large.is_empty();
        self.backlog.since = match (datagrams, streams) {
            (true, _) => Some((now, u64::MAX)),
            (false, true) => Some((now, self.backlog.patience_nanos)),
            (false, false) => None,
        };
    }
}
