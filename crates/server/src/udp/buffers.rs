//! Memory that datagrams take beside the store's: messages that are not whole or not stored yet,
//! requests and frames on their way between workers, replies that are under way or kept. One
//! account for all workers, with a bound: what finds no room in it is thrown away and counted, as a
//! network would.
//!
//! Replies and values count what was copied; what is pinned lies in the store, within its limit.
//! Sizes are bytes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Room for all workers, beside that for the two longest messages.
const BUFFER_BYTES_MIN: u64 = 64 << 20;

/// The last of it is kept for what goes on with messages that have begun: frames on their way
/// between workers, requests that have become whole, replies. Were it full of halves of messages,
/// none of them would ever become whole.
const BUFFER_BYTES_KEPT: u64 = 4 << 20;

/// The account.
#[derive(Debug)]
pub struct Buffers {
    /// A count beside the memory it counts: nothing is read by its means.
    held: AtomicU64,
    most: u64,
}

impl Buffers {
    /// With room for what small messages need, and for two of the longest.
    pub fn new(message_bytes_max: usize) -> Arc<Buffers> {
        let most = BUFFER_BYTES_MIN + 2 * message_bytes_max as u64;
        Arc::new(Buffers { held: AtomicU64::new(0), most })
    }

    /// Room for so many bytes, until it is dropped; `None` if there is none.
    pub fn hold(self: &Arc<Self>, bytes: usize) -> Option<Held> {
        let mut held = self.nothing();
        held.grow(bytes).then_some(held)
    }

    /// Room for nothing yet.
    pub fn nothing(self: &Arc<Self>) -> Held {
        Held { of: self.clone(), bytes: 0 }
    }

    /// Whether so many bytes of a message that begins would fit.
    pub fn has_room_to_open(&self, bytes: usize) -> bool {
        self.held() + bytes as u64 + BUFFER_BYTES_KEPT <= self.most
    }

    /// Bytes held now.
    pub fn held(&self) -> u64 {
        self.held.load(Relaxed)
    }

    /// Bytes held at most.
    pub fn most(&self) -> u64 {
        self.most
    }
}

/// Room for bytes that somebody has.
#[derive(Debug)]
pub struct Held {
    of: Arc<Buffers>,
    bytes: u64,
}

impl Held {
    /// Room for so many more. False, and nothing has changed, where there is none.
    pub fn grow(&mut self, more: usize) -> bool {
        let more = more as u64;
        if self.of.held.fetch_add(more, Relaxed) + more > self.of.most {
            self.of.held.fetch_sub(more, Relaxed);
            return false;
        }
        self.bytes += more;
        true
    }

    /// So many it is now, whatever the bound: of what is bounded by its own owner.
    pub fn set(&mut self, bytes: usize) {
        if bytes as u64 == self.bytes {
            return; // asked each turn by each worker, of a line that all of them share
        }
        self.of.held.fetch_add(bytes as u64, Relaxed);
        self.of.held.fetch_sub(self.bytes, Relaxed);
        self.bytes = bytes as u64;
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.of.held.fetch_sub(self.bytes, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_account_is_full_at_its_bound_and_empty_when_all_is_dropped() {
        let buffers = Buffers::new(1 << 20);
        let most = (BUFFER_BYTES_MIN as usize) + (2 << 20);
        let mut one = buffers.hold(most - 10).expect("there is room");
        assert!(buffers.hold(11).is_none() && !one.grow(11));
        let two = buffers.hold(10).expect("just enough");
        assert!(!buffers.has_room_to_open(0) && buffers.held() == buffers.most());
        one.set(5);
        assert_eq!(buffers.held(), 15);
        let begins = most - (BUFFER_BYTES_KEPT as usize) - 15;
        assert!(buffers.has_room_to_open(begins) && !buffers.has_room_to_open(begins + 1));
        drop((one, two));
        assert_eq!(buffers.held(), 0);
    }
}
