//! `get`s that wait together leave together, as one request of several keys: one packet.
//!
//! A carrier is a request of the core's own that stands in their place. Its reply is taken apart by
//! the names of the keys in it: what it does not name is missing. Where no reply comes in time, or
//! one that helps nobody, each of those it carried goes by itself, as a request that is sent again
//! does; a reply that comes later still answers those that wait. A carrier is gone when the last of
//! them is answered or given up.
//!
//! A reply is one message, and a server may be long about a long one: so no more are put together
//! than one datagram has held the values of lately.

use super::Core;
use super::pending::{Cargo, Pending};
use crate::answer::{self, Answer};
use crate::request::Request;
use laneway_wire::udp::{FRAME_BYTES_MAX, Message};

/// Longest line: what the server's lane in the kernel reads of a datagram.
const LINE_BYTES_MAX: usize = 1008;
/// What of a line is no key and no space before one.
const LINE_BYTES: usize = b"get\r\n".len();
/// What stands around key and value in a reply, about.
const HEAD_BYTES: usize = b"VALUE  0 100\r\n\r\n".len();

/// How long what is found is, lately: the longest, forgotten by an eighth with each that is found.
#[derive(Default)]
pub(super) struct Lengths(usize);

impl Lengths {
    /// An item was found whose key and value are so long.
    pub(super) fn found(&mut self, bytes: usize) {
        self.0 = (self.0 - self.0 / 8).max(bytes + HEAD_BYTES);
    }

    /// How many of them one datagram holds.
    fn fit(&self) -> usize {
        FRAME_BYTES_MAX / self.0.max(1)
    }
}

impl Core {
    /// Puts a carrier in the place of the `get`s that wait in front, if there are several.
    pub(super) fn gather(&mut self, now_nanos: u64) {
        // In memory a request costs no packet.
        let costs = self.topology.lent_bytes_max().is_none();
        if !costs || self.waiting.len() < 2 || self.ids.ready_nanos() > now_nanos {
            return;
        }
        let most = self.settings.get_keys_max.min(self.lengths.fit());
        let mut of: Vec<(u64, Vec<u8>)> = Vec::new();
        let (mut taken, mut line_bytes) = (0, LINE_BYTES);
        for (place, serial) in self.waiting.iter().enumerate() {
            let Some(pending) = self.pending.get(serial) else { continue }; // it has ended
            let key = pending.request.key();
            line_bytes += 1 + key.len();
            let fits = of.len() < most && line_bytes <= LINE_BYTES_MAX;
            let first = of.first().map_or(key, |(_, first)| first.as_slice());
            if !fits || !pending.may_be_carried() || !self.topology.go_together(first, key) {
                break;
            }
            of.push((*serial, key.to_vec()));
            taken = place + 1;
        }
        if of.len() > 1 {
            self.waiting.drain(..taken);
            self.carry(of);
        }
    }

    fn carry(&mut self, of: Vec<(u64, Vec<u8>)>) {
        self.serial += 1;
        let carrier = self.serial;
        let mut head = b"get".to_vec();
        let mut deadline_nanos = 0_u64;
        for (serial, key) in &of {
            head.push(b' ');
            head.extend_from_slice(key);
            if let Some(pending) = self.pending.get_mut(serial) {
                pending.carrier = Some(carrier);
                pending.sends += 1;
                pending.tries += 1;
                deadline_nanos = deadline_nanos.max(pending.deadline_nanos);
            }
        }
        head.extend_from_slice(b"\r\n");
        self.counts.gathered += of.len() as u64;
        // It goes where the first key goes.
        let request = Request::get(of[0].1.as_slice());
        let mut pending =
            Pending::new(request, head, 1, self.topology.is_extended(), deadline_nanos);
        pending.cargo = Some(Cargo { left: of.len(), of, parted: false });
        self.timers.insert((deadline_nanos, carrier));
        self.pending.insert(carrier, pending);
        self.carriers += 1;
        self.waiting.push_front(carrier);
    }

    /// What a carrier carries goes by itself from now on, as the window has room: it had one place
    /// for all of them. False: it is none.
    pub(super) fn part(&mut self, serial: u64) -> bool {
        let Some(pending) = self.pending.get_mut(&serial) else { return false };
        let was_under_way = pending.is_under_way();
        let Some(cargo) = &mut pending.cargo else { return false };
        if !std::mem::replace(&mut cargo.parted, true) {
            self.under_way -= usize::from(was_under_way);
            for (carried, _) in cargo.of.iter().rev() {
                self.waiting.push_front(*carried);
            }
        }
        self.set_timer(serial, u64::MAX);
        true
    }

    /// One of those that a carrier carried has ended.
    pub(super) fn unload(&mut self, carrier: u64, is_answered: bool, now_nanos: u64) {
        let pending = self.pending.get_mut(&carrier);
        let Some(cargo) = pending.and_then(|pending| pending.cargo.as_mut()) else { return };
        cargo.left -= 1;
        if cargo.left == 0 {
            self.let_go(carrier, is_answered, now_nanos);
        }
    }

    /// The whole reply to a carrier, or what only looks like one.
    pub(super) fn deliver<M: Message + ?Sized>(&mut self, serial: u64, reply: &M, now_nanos: u64) {
        let Some(pending) = self.pending.get_mut(&serial) else { return };
        let Some(cargo) = &mut pending.cargo else { return };
        let is_asked = |key: &[u8]| cargo.of.iter().any(|(_, asked)| asked == key);
        match answer::read_several(reply, is_asked) {
            Ok(Some(mut found)) => {
                let carried = std::mem::take(&mut cargo.of);
                self.window.answered();
                let mut left = carried.as_slice();
                while let Some(((serial, key), behind)) = left.split_first() {
                    left = behind;
                    let is_last = behind.iter().all(|(_, other)| other != key);
                    let value = if is_last { found.remove(key) } else { found.get(key).cloned() };
                    let answer = value.map_or(Answer::Missing, Answer::Value);
                    self.complete(*serial, Ok(answer), now_nanos);
                }
            }
            // Whom it means, only each by itself can find out.
            Ok(None) => {
                self.part(serial);
            }
            Err(answer::Mismatch) => {
                pending.heard = None;
                self.counts.garbled += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_value_is_remembered_for_a_while() {
        let mut lengths = Lengths::default();
        assert!(lengths.fit() > 100, "nothing is known yet");
        lengths.found(50);
        let short = lengths.fit();
        assert!((16..30).contains(&short), "{short}");
        lengths.found(500_000);
        assert_eq!(lengths.fit(), 0);
        let found = (1..).find(|_| {
            lengths.found(50);
            lengths.fit() == short
        });
        assert!(found.is_some_and(|found| (40..100).contains(&found)), "{found:?}");
    }
}
