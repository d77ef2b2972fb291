//! The requests that one poll has taken out of its clients' slots, and the turns in which it takes
//! them.

use crate::contract::{Peer, Request};
use std::ops::Range;

/// Requests taken of one client before the next has its turn.
pub(crate) const TURN: usize = 4;

/// The requests of a poll.
#[derive(Debug, Default)]
pub(crate) struct Polled {
    /// Their bytes, one request behind the other.
    pub(crate) room: Vec<u8>,
    requests: Vec<(Peer, Range<usize>)>,
}

impl Polled {
    /// Forgets the poll before.
    pub(crate) fn clear(&mut self) {
        self.room.clear();
        self.requests.clear();
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.requests.len()
    }

    /// Takes what stands in the room from `start` on for a request of this client.
    pub(crate) fn add(&mut self, peer: Peer, start: usize) {
        self.requests.push((peer, start..self.room.len()));
    }

    /// One of them.
    pub(crate) fn request(&self, index: usize) -> Request<'_> {
        let (peer, bytes) = &self.requests[index];
        Request { peer: *peer, bytes: &self.room[bytes.clone()] }
    }
}

/// Has `take` take requests of one client after the other until there is a burst of them, or none
/// is left. `taken` are there already; `take` says how many are there behind it. It goes round by
/// round, so that a client with a full window does not keep the others waiting.
pub(crate) fn by_turns<T>(
    clients: &[T],
    burst: usize,
    mut taken: usize,
    mut take: impl FnMut(&T) -> usize,
) {
    // No more rounds than a burst: slots that are thrown away fill no burst.
    for _ in 0..burst.div_ceil(TURN) {
        let before = taken;
        for client in clients {
            if taken >= burst {
                break;
            }
            taken = take(client);
        }
        if taken == before || taken >= burst {
            break;
        }
    }
}
