//! Counts the verbs that one end has asked of its card, and their bytes, where it asks for them.
//!
//! Bytes are payload: what a verb carries of its caller's. Not counted: the headers of the wire and
//! the requests of READs, which carry none of it. A message that is written goes with its control
//! word, padded to words, for the receiver finds it by that; one that is sent goes as it is.

use super::design::Way;
use laneway_rdma::contract::Verbs;
use std::ops::Sub;

/// Bytes of a slot's control word, and of the words that messages are padded to.
const WORD_BYTES: usize = 8;

/// Counts of one end.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// Work requests posted; RECVs when they are posted, not when they are over.
    pub verbs: Verbs,
    /// Carried by its WRITEs and SENDs.
    pub bytes_sent: u64,
    /// Carried back by its READs.
    pub bytes_read: u64,
}

impl Tally {
    /// A message of so many bytes goes out.
    pub fn sent(&mut self, way: Way, bytes: usize) {
        let carried = match way {
            Way::Write => bytes.next_multiple_of(WORD_BYTES) + WORD_BYTES,
            Way::Send => bytes,
        };
        self.bytes_sent += carried as u64;
        match way {
            Way::Write => self.verbs.writes += 1,
            Way::Send => self.verbs.sends += 1,
        }
    }

    /// A message of the other end is made room for.
    pub fn awaited(&mut self, way: Way) {
        match way {
            Way::Write => {}
            Way::Send => self.verbs.receives += 1,
        }
    }

    /// A READ of so many bytes is over.
    pub fn read(&mut self, bytes: usize) {
        self.bytes_read += bytes as u64;
    }

    /// All work requests.
    pub fn posted(&self) -> u64 {
        self.on_the_wire() + self.verbs.receives
    }

    /// Those that make the other end's card do something, too: all but RECVs.
    pub fn on_the_wire(&self) -> u64 {
        self.verbs.writes + self.verbs.sends + self.verbs.reads
    }
}

/// Since an earlier tally.
impl Sub for Tally {
    type Output = Tally;

    fn sub(self, earlier: Tally) -> Tally {
        Tally {
            verbs: Verbs {
                writes: self.verbs.writes - earlier.verbs.writes,
                sends: self.verbs.sends - earlier.verbs.sends,
                receives: self.verbs.receives - earlier.verbs.receives,
                reads: self.verbs.reads - earlier.verbs.reads,
                rings: self.verbs.rings - earlier.verbs.rings,
            },
            bytes_sent: self.bytes_sent - earlier.bytes_sent,
            bytes_read: self.bytes_read - earlier.bytes_read,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_carries_its_control_word_and_what_is_sent_needs_a_recv() {
        let mut tally = Tally::default();
        tally.sent(Way::Write, 17);
        tally.awaited(Way::Write);
        assert_eq!((tally.bytes_sent, tally.posted(), tally.on_the_wire()), (32, 1, 1));
        let before = tally;
        tally.sent(Way::Send, 17);
        tally.awaited(Way::Send);
        let since = tally - before;
        assert_eq!((since.bytes_sent, since.posted(), since.on_the_wire()), (17, 2, 1));
    }
}
