//! The rule by which the server decides whether large replies wait for the wire. The plan must know
//! it, since more large workers only make a full wire fuller (`policy::cores::ExtraGrant`). What a
//! single worker observes is in `wire_wait`.
//!
//! Datagrams wait when a send buffer is full. A stream waits when its peer takes nothing more, but
//! then the peer may simply not be reading; so streams count only while several wait at once, the
//! worker has no other slice to move, and none of them has stood still for long. A wire that is
//! full lets each of them go on every few milliseconds.
//!
//! Once the wire is called full, a stream leaves no more unsent than the plan grants it, and stops
//! sooner than its kernel would; that proves nothing, so such a stream does not count. The policy
//! tries again after a while, without the limit.
//!
//! Times are nanoseconds.

use crate::clock::nanos_of;
use crate::stream::connection::Connection;
use laneway_transport::{Stream, Token};
use std::collections::VecDeque;
use std::time::Duration;

/// Of an epoch, the share after which a stream that stands still is its peer's affair.
const PATIENCE_SHARE: u32 = 8;
/// And the longest that may be: whoever begins to wait is remembered for so long, which with an
/// epoch of a day would be hours of the beginnings of all large replies.
const PATIENCE_NANOS_MAX: u64 = 1_000_000_000;
/// Of an epoch, the share for which a worker must have waited for the wire to be full. More than
/// peers that all stop reading at once can make up.
const NOTABLE_SHARE: u32 = 4;
const _: () = assert!(NOTABLE_SHARE < PATIENCE_SHARE);
/// Streams that wait at once before the wire is blamed.
pub const STREAMS_MIN: usize = 2;

/// For how long of an epoch a worker must have waited before the wire is called full.
pub fn notable_nanos(epoch_nanos: u64) -> u64 {
    epoch_nanos / u64::from(NOTABLE_SHARE)
}

/// What one worker knows of it.
pub struct Backlog {
    /// How long a stream may stand still and count.
    pub(crate) patience_nanos: u64,
    /// Large streams that began to wait, oldest first, and when; some have gone on since.
    pub(crate) began: VecDeque<(u64, Token)>,
    /// How many of them wait still.
    pub(crate) waiting: usize,
    /// Large streams that are told to leave little unsent.
    pub(crate) limited: usize,
    /// The worker waits for the wire since then, and for so long at most, unless it says so again.
    pub(crate) since: Option<(u64, u64)>,
}

impl Backlog {
    /// Nothing waits. Plans are made once in `epoch`.
    pub fn new(epoch: Duration) -> Backlog {
        let patience_nanos = nanos_of(epoch / PATIENCE_SHARE).min(PATIENCE_NANOS_MAX);
        Backlog { patience_nanos, began: VecDeque::new(), waiting: 0, limited: 0, since: None }
    }

    /// A stream leaves so much unsent at most from now on.
    pub fn leave_unsent<S: Stream>(
        &mut self,
        connection: &mut Connection<S>,
        bytes_max: Option<usize>,
    ) {
        if connection.unsent_max == bytes_max {
            return;
        }
        self.limited -= usize::from(connection.unsent_max.is_some());
        self.limited += usize::from(bytes_max.is_some());
        connection.unsent_max = bytes_max;
        connection.stream.limit_unsent(bytes_max);
    }

    /// A large stream that waited goes on, or is gone.
    pub fn goes_on<S>(&mut self, connection: &mut Connection<S>) {
        if std::mem::take(&mut connection.blocked_nanos) != 0 {
            self.waiting -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patience_is_a_share_of_the_epoch_and_a_second_at_most() {
        for (epoch_millis, patience_nanos) in
            [(1, 125_000), (1_000, 125_000_000), (86_400_000, PATIENCE_NANOS_MAX)]
        {
            let backlog = Backlog::new(Duration::from_millis(epoch_millis));
            assert_eq!(backlog.patience_nanos, patience_nanos);
        }
    }
}
