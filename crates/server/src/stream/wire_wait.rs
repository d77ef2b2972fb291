//! Each worker observes here whether its large streams or its datagrams wait for the wire, and
//! notes since when. The rule, and what the plan reads of it, are in [`crate::stream::backlog`].

use crate::core::Core;
use crate::stream::backlog::STREAMS_MIN;
use crate::stream::connection::Connection;
use crate::stream::streams::Streams;
use laneway_policy::pace::Way;
use laneway_transport::{Token, Transport};

impl<T: Transport> Streams<T> {
    /// A large stream's peer takes nothing more for now.
    pub(crate) fn waits_for_peer(
        &mut self,
        core: &Core<T>,
        token: Token,
        connection: &mut Connection<T::Stream>,
    ) {
        if connection.blocked_nanos == 0 {
            connection.blocked_nanos = core.clock.nanos().max(1);
            self.backlog.began.push_back((connection.blocked_nanos, token));
            self.backlog.waiting += 1;
        }
    }

    /// While the wire is full, how much of a large reply may wait in the kernel: its part of what
    /// the plan grants the worker. A slice at least, for peers that take nothing must not hold up
    /// those that do.
    pub(crate) fn bound_unsent(&mut self, core: &Core<T>, connection: &mut Connection<T::Stream>) {
        let most = core.plan.large_unsent_bytes_max.map(|most| {
            let limited = self.backlog.limited + usize::from(connection.unsent_max.is_none());
            // Rounded, so that it does not change with every coming and going.
            (most.0 as usize / limited.next_power_of_two()).max(core.slice_budget(Way::Send))
        });
        self.backlog.leave_unsent(connection, most);
    }

    /// A turn begins: count how long the worker has waited for the wire since the last one.
    pub(crate) fn count_backlog(&mut self, core: &Core<T>, now: u64) {
        if let Some((since, most)) = self.backlog.since.take() {
            let waited = now.saturating_sub(since).min(most);
            core.lanes().tx_backed_up_nanos.add_owner(waited);
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

    /// A turn ends: whether the worker now waits for the wire; `datagrams`: they do. `now`: when it
    /// began.
    pub(crate) fn note_backlog(&mut self, datagrams: bool, now: u64) {
        let streams = self.backlog.waiting >= STREAMS_MIN && self.large.is_empty();
        self.backlog.since = match (datagrams, streams) {
            (true, _) => Some((now, u64::MAX)),
            (false, true) => Some((now, self.backlog.patience_nanos)),
            (false, false) => None,
        };
    }
}
