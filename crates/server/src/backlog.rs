//! Whether large replies wait for the wire: what the plan must know, for more large workers make a
//! full wire only fuller (`policy::cores::ExtraGrant`).
//!
//! Datagrams wait when a send buffer is full. A stream waits when its peer takes nothing more, but
//! then the peer may simply not be reading; so streams count only while several wait at once, the
//! worker has no other slice to move, and none of them has stood still for long. A wire that is
//! full lets each of them go on every few milliseconds.
//!
//! Times are nanoseconds.

use crate::clock::Clock;
use crate::connection::Connection;
use crate::worker::Worker;
use laneway_transport::{Token, Transport};
use std::collections::VecDeque;
use std::time::Duration;

/// Of an epoch, the share after which a stream that stands still is its peer's affair.
const PATIENCE_SHARE: u32 = 8;
/// Of an epoch, the share for which a worker must have waited for the wire to be full. More than
/// peers that all stop reading at once can make up.
const NOTABLE_SHARE: u32 = 4;
const _: () = assert!(NOTABLE_SHARE < PATIENCE_SHARE);
/// Streams that wait at once before the wire is blamed.
const STREAMS_MIN: usize = 2;

/// For how long of an epoch a worker must have waited before the wire is called full.
pub fn notable_nanos(epoch_nanos: u64) -> u64 {
    epoch_nanos / u64::from(NOTABLE_SHARE)
}

/// What one worker knows of it.
pub struct Backlog {
    /// How long a stream may stand still and count.
    patience_nanos: u64,
    /// Large streams that began to wait, oldest first, and when; some have gone on since.
    began: VecDeque<(u64, Token)>,
    /// How many of them wait still.
    waiting: usize,
    /// The worker waits for the wire since then, and for so long at most, unless it says so again.
    since: Option<(u64, u64)>,
}

impl Backlog {
    /// Nothing waits. Plans are made once in `epoch`.
    pub fn new(epoch: Duration) -> Backlog {
        let patience_nanos = (epoch / PATIENCE_SHARE).as_nanos();
        let patience_nanos = u64::try_from(patience_nanos).unwrap_or(u64::MAX);
        Backlog { patience_nanos, began: VecDeque::new(), waiting: 0, since: None }
    }

    /// A large stream that waited goes on, or is gone.
    pub fn goes_on<S>(&mut self, connection: &mut Connection<S>) {
        if std::mem::take(&mut connection.blocked_nanos) != 0 {
            self.waiting -= 1;
        }
    }
}

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
