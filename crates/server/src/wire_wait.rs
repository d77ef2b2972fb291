//! A worker's part in knowing whether large replies wait for the wire: see [`crate::backlog`].

use crate::backlog::STREAMS_MIN;
use crate::clock::Clock;
use crate::connection::Connection;
use crate::worker::Worker;
use laneway_transport::{Stream, Token, Transport};

impl<T: Transport, C: Clock> Worker<T, C> {
    /// A large stream's peer takes nothing more for now.
    pub(crate) fn waits_for_peer(&mut self, token: Token, connection: &mut Connection<T::Stream>) {
        if connection.blocked_nanos == 0 {
            connection.blocked_nanos = self.clock.nanos().max(1);
            self.backlog.began.push_back((connection.blocked_nanos, token));
            self.backlog.waiting += 1;
        }
    }

    /// While the wire is full, how much of a large reply may wait in the kernel: its part of what
    /// the plan grants the worker. A slice at least, for peers that take nothing must not hold up
    /// those that do.
    pub(crate) fn limit_unsent(&mut self, connection: &mut Connection<T::Stream>) {
        let most = self.plan.large_unsent_bytes_max.map(|most| {
            let limited = self.backlog.limited + usize::from(connection.unsent_max.is_none());
            // Rounded, so that it does not change with every coming and going.
            (most.0 as usize / limited.next_power_of_two()).max(self.slice_budget())
        });
        self.leave_unsent(connection, most);
    }

    /// A stream leaves so much unsent at most from now on.
    pub(crate) fn leave_unsent(
        &mut self,
        connection: &mut Connection<T::Stream>,
        bytes_max: Option<usize>,
    ) {
        if connection.unsent_max == bytes_max {
            return;
        }
        self.backlog.limited -= usize::from(connection.unsent_max.is_some());
        self.backlog.limited += usize::from(bytes_max.is_some());
        connection.unsent_max = bytes_max;
        connection.stream.limit_unsent(bytes_max);
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
