//! The replies of one connection, in the order of its requests: a ring of slots that leaves from
//! the front. A slot holds bytes, a large value on its way out (a *transfer*, moved slice by
//! slice), or the place of a reply that somebody finishes later, while later replies wait behind
//! it.
//!
//! It knows no lane and no protocol. Sizes are bytes.

use laneway_store::{Pinned, meter};
use laneway_sync::planted::{Bug, is_planted};
use laneway_transport::Stream;
use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::ops::Range;

/// The place of a reply to come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ticket(u64);

enum Slot {
    Bytes {
        bytes: Vec<u8>,
        sent: usize,
    },
    /// Up to its byte `end`.
    Value {
        value: Pinned,
        sent: usize,
        end: usize,
    },
    Waiting(Ticket),
}

/// What one [`Output::send`] came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sent {
    /// Nothing is left.
    All,
    /// The budget is used up; there is more.
    Budget,
    /// The peer takes no more for now.
    Blocked,
    /// The front waits for its ticket to be finished.
    Waiting,
}

/// Pieces handed to the kernel by one call, at most.
const PIECES_MAX: usize = 8;

/// The memory of bytes that wait grows to a multiple of this, or of a power of two below it. Were
/// it doubled, a connection would hold more than its bound.
const GROWTH_BYTES: usize = 1 << 10;

/// Beyond so many, which is more than that bound, it is doubled all the same: a datagram's reply of
/// thousands of small values would else be copied anew with every few of them.
const GROWTH_BYTES_MAX: usize = 64 << 10;

/// The end of an [`Output`] at some time.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct End {
    slots: usize,
    /// Bytes in the last slot, if it has any.
    last: usize,
}

/// Replies that have not left yet.
#[derive(Default)]
pub struct Output {
    slots: VecDeque<Slot>,
    tickets: u64,
    /// Places whose reply is still to come.
    waiting: u32,
}

/// A piece of a reply.
pub enum Piece {
    /// Bytes.
    Bytes(Vec<u8>),
    /// A large value.
    Value(Pinned),
}

impl Output {
    /// A reply of bytes.
    pub fn of(bytes: Vec<u8>) -> Output {
        let mut output = Output::default();
        if !bytes.is_empty() {
            output.slots.push_back(Slot::Bytes { bytes, sent: 0 });
        }
        output
    }

    /// Whether every reply has left.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Replies by bytes, behind what is there.
    pub fn push_bytes(&mut self, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        meter::bytes(bytes.len());
        if let Some(Slot::Bytes { bytes: last, .. }) = self.slots.back_mut() {
            let length = last.len() + bytes.len();
            if last.capacity() < length && length <= GROWTH_BYTES_MAX {
                let step = GROWTH_BYTES.min(length.next_power_of_two());
                last.reserve_exact(length.next_multiple_of(step) - last.len());
            }
            last.extend_from_slice(bytes);
        } else {
            self.slots.push_back(Slot::Bytes { bytes: bytes.to_vec(), sent: 0 });
        }
    }

    /// A large value, behind what is there. It stays pinned until its last byte has left.
    pub fn push_value(&mut self, value: Pinned) {
        let whole = 0..value.value_bytes();
        self.push_part(value, whole);
    }

    /// The same of a part of it.
    pub fn push_part(&mut self, value: Pinned, part: Range<usize>) {
        self.slots.push_back(Slot::Value { value, sent: part.start, end: part.end });
    }

    /// Keep a place for a reply that is finished later.
    pub fn reserve(&mut self) -> Ticket {
        self.tickets += 1;
        self.waiting += 1;
        self.slots.push_back(Slot::Waiting(Ticket(self.tickets)));
        Ticket(self.tickets)
    }

    /// Keep the place no longer: the newest one, and nothing stands in it.
    pub fn give_up(&mut self, ticket: Ticket) {
        let last = self.slots.pop_back();
        assert!(matches!(last, Some(Slot::Waiting(t)) if t == ticket), "not the newest place");
        self.waiting -= 1;
        self.tickets -= 1; // nobody else has it
    }

    /// Whether a reply is still to come.
    #[inline]
    pub fn is_waiting(&self) -> bool {
        self.waiting > 0
    }

    /// How many replies there are from the first one on that is still to come: those behind it stay
    /// as long as it does.
    pub fn held_back(&self) -> u64 {
        let first = self.slots.iter().find_map(|slot| match slot {
            Slot::Waiting(Ticket(number)) => Some(*number),
            _ => None,
        });
        first.map_or(0, |first| self.tickets - first + 1)
    }

    /// Whether all that is here is still to come.
    pub fn has_places_only(&self) -> bool {
        self.slots.len() == self.waiting as usize
    }

    /// Where the next reply will begin, as long as nothing is sent.
    pub fn end(&self) -> End {
        let last = match self.slots.back() {
            Some(Slot::Bytes { bytes, .. }) => bytes.len(),
            _ => 0,
        };
        End { slots: self.slots.len(), last }
    }

    /// Forgets what was added since; nothing of it was sent.
    pub fn rewind(&mut self, to: End) {
        self.slots.truncate(to.slots);
        if let Some(Slot::Bytes { bytes, .. }) = self.slots.back_mut() {
            bytes.truncate(to.last);
        }
    }

    /// The reply in pieces, of which nothing has been sent yet.
    ///
    /// # Panics
    /// If a place waits to be filled: such a reply is not whole.
    pub fn into_pieces(self) -> impl Iterator<Item = Piece> {
        self.slots.into_iter().map(|slot| match slot {
            Slot::Bytes { bytes, .. } => Piece::Bytes(bytes),
            Slot::Value { value, sent, end } => {
                assert!((sent, end) == (0, value.value_bytes()), "only streams tell of parts");
                Piece::Value(value)
            }
            Slot::Waiting(_) => unreachable!("a reply with a place for another"),
        })
    }

    /// Fill the place of `ticket` with a whole reply, values included; false if there is no such
    /// place (the connection gave it up).
    pub fn finish_with(&mut self, ticket: Ticket, reply: Output) -> bool {
        let is_place = |slot: &Slot| matches!(slot, Slot::Waiting(t) if *t == ticket);
        let Some(at) = self.slots.iter().position(is_place) else { return false };
        self.waiting -= 1;
        let mut reply = reply.slots;
        if reply.len() == 1
            && let Some(slot) = reply.pop_front()
        {
            self.slots[at] = slot;
            return true;
        }
        let mut behind = self.slots.split_off(at);
        behind.pop_front();
        self.slots.extend(reply);
        self.slots.append(&mut behind);
        true
    }

    /// Fill the place of `ticket`; false if there is no such place (the connection gave it up).
    pub fn finish(&mut self, ticket: Ticket, reply: Vec<u8>) -> bool {
        let place =
            self.slots.iter_mut().find(|slot| matches!(slot, Slot::Waiting(t) if *t == ticket));
        let Some(slot) = place else { return false };
        *slot = Slot::Bytes { bytes: reply, sent: 0 };
        self.waiting -= 1;
        true
    }

    /// Hand at most about `budget` bytes to the peer, from the front, with one call per
    /// [`PIECES_MAX`] pieces.
    pub fn send(&mut self, stream: &mut impl Stream, budget: usize) -> io::Result<(Sent, usize)> {
        let mut total = 0;
        loop {
            self.drop_finished();
            if self.slots.is_empty() {
                return Ok((Sent::All, total));
            }
            if total >= budget {
                return Ok((Sent::Budget, total));
            }
            let mut pieces = [IoSlice::new(&[]); PIECES_MAX];
            let (count, wanted) = self.pieces(&mut pieces, budget - total);
            if count == 0 {
                return Ok((Sent::Waiting, total));
            }
            match stream.write(&pieces[..count]) {
                Ok(moved) => {
                    meter::bytes(moved);
                    self.advance(moved);
                    total += moved;
                    if moved < wanted {
                        return Ok((Sent::Blocked, total));
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Ok((Sent::Blocked, total));
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// The next pieces to send and their bytes in all.
    fn pieces<'a>(
        &'a self,
        pieces: &mut [IoSlice<'a>; PIECES_MAX],
        budget: usize,
    ) -> (usize, usize) {
        let (mut count, mut wanted) = (0, 0);
        for slot in &self.slots {
            let mut offset = match slot {
                Slot::Bytes { sent, .. } | Slot::Value { sent, .. } => *sent,
                Slot::Waiting(_) => return (count, wanted),
            };
            loop {
                if count == PIECES_MAX || wanted >= budget {
                    return (count, wanted);
                }
                let piece = match slot {
                    Slot::Bytes { bytes, .. } => &bytes[offset..],
                    Slot::Value { value, end, .. } if offset < *end => {
                        let piece = value.piece(offset);
                        &piece[..piece.len().min(end - offset)]
                    }
                    _ => &[],
                };
                if piece.is_empty() {
                    break;
                }
                let piece = &piece[..piece.len().min(budget - wanted)];
                pieces[count] = IoSlice::new(piece);
                count += 1;
                wanted += piece.len();
                offset += piece.len();
            }
        }
        (count, wanted)
    }

    fn advance(&mut self, mut moved: usize) {
        while moved > 0 {
            let (left, sent) = match self.slots.front_mut() {
                Some(Slot::Bytes { bytes, sent }) => (bytes.len() - *sent, sent),
                Some(Slot::Value { sent, end, .. }) => {
                    let dropped = usize::from(is_planted(Bug::LastByteDropped));
                    (*end - dropped - *sent, sent)
                }
                Some(Slot::Waiting(_)) | None => unreachable!("more was sent than there is"),
            };
            let step = left.min(moved);
            *sent += step;
            moved -= step;
            if step == left {
                self.slots.pop_front();
            }
        }
    }

    /// Finished replies may be empty, and so may be values.
    fn drop_finished(&mut self) {
        while let Some(slot) = self.slots.front() {
            let done = match slot {
                Slot::Bytes { bytes, sent } => *sent == bytes.len(),
                Slot::Value { sent, end, .. } => sent == end,
                Slot::Waiting(_) => false,
            };
            if !done {
                return;
            }
            self.slots.pop_front();
        }
    }

    /// Memory of the connection's own that they take, with what has left of a piece that has not
    /// left whole.
    pub fn memory_bytes(&self) -> usize {
        let memory = |slot: &Slot| match slot {
            Slot::Bytes { bytes, .. } => bytes.capacity(),
            _ => 0,
        };
        self.slots.iter().map(memory).sum()
    }

    /// Bytes waiting in memory of the connection's own (large values stay in the store).
    pub fn held_bytes(&self) -> usize {
        let held = |slot: &Slot| match slot {
            Slot::Bytes { bytes, sent } => bytes.len() - sent,
            _ => 0,
        };
        self.slots.iter().map(held).sum()
    }
}

#[cfg(test)]
mod tests;
