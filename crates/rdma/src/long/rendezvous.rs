//! This is the server's side of one client's long messages. It moves them slice by slice, over any
//! kind of carrier.
//!
//! Workers share it and *try* the lock of what carries: who finds it taken comes again. Those of
//! the two ledgers, of places and of what is being read, are held for a look: a lock that somebody
//! has for a slice is no answer to the question whether a message was read. One slice is on its way
//! in and a few are on their way out at a time, so what a client can hold here is their memory. A
//! client that takes no notice loses its place by time; what it lent is its own, so nobody else's
//! bytes lie where a late write could reach them.

use super::ledger::{Ledger, Place};
use super::sealed_descriptor::{PIECE_BYTES, SEALED_DESCRIPTOR_BYTES, SealedDescriptor, Sealing};
use crate::contract::{Lent, Moved, Placed};
use crate::region::{add, counts, try_lock};
use laneway_sync::prim::AtomicU64;
use std::collections::VecDeque;
use std::io::IoSlice;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How long a client may leave a reply in the memory it lent: as long as the server keeps one.
pub const KEEP_NANOS: u64 = 2_000_000_000;
/// Messages of one client that are read at a time.
const READING_MAX: usize = 64;
/// The last that came whole, which are not read again. Whoever asks for one more often than it is
/// worth sends frames.
const WHOLE_MAX: usize = 128;

counts! {
    /// Pieces of replies written into memory that clients lend: verbs of the kind WRITE.
    verbs_write,
    /// Pieces of requests read out of memory that clients lend: verbs of the kind READ.
    verbs_read,
    /// Replies that lie where their client was told.
    notices,
    /// Long replies for which there was no room there, or that lost it, or for which the card was
    /// at something else: they went in frames.
    replies_unplaced,
    /// Places whose client did not say in time that it had taken the reply.
    places_expired,
    /// Long requests begun to be read.
    loans_claimed,
    /// Those that lie nowhere, or are being read already, or were.
    loans_refused,
    /// Those that were not as they were sealed: their client was asked for frames.
    loans_torn,
    /// Clients whose connection broke under a long message: they lied, or were gone.
    clients_cut_off,
    /// Clients that were granted memory for their long requests.
    grants,
    /// Clients that wished for it in vain: theirs go in frames.
    grants_refused,
}

/// What moves bytes between the server and one client's memory. One that is broken stays so.
pub trait Carrier: Send {
    /// Begin to write `pieces`, at most [`PIECE_BYTES`], at offset `at` of the memory that the
    /// client lends for replies. They were copied when this returns.
    fn write(&mut self, at: usize, pieces: &[IoSlice<'_>]) -> Moved;
    /// Begin to read `bytes`, at most [`PIECE_BYTES`], from offset `at` of where the client's
    /// requests lie. Nothing else is being read.
    fn begin_read(&mut self, at: usize, bytes: usize) -> Moved;
    /// What was begun to be read last, behind what is in `out`, once it is here.
    fn end_read(&mut self, out: &mut Vec<u8>) -> Moved;
    /// Whether a read costs a verb.
    fn reads_by_verb(&self) -> bool;
}

/// Who waits for what is being read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fetch {
    Nothing,
    /// The message of this number.
    Of(u64),
    /// Nobody any more.
    Unwanted,
}

struct Inner<C> {
    carrier: C,
    fetch: Fetch,
    scratch: Vec<u8>,
}

/// Numbers of messages that are being read, and of those that were.
#[derive(Default)]
struct Claims {
    reading: Vec<u64>,
    whole: VecDeque<u64>,
}

/// See the module's page.
pub struct RendezvousBuffer<C> {
    inner: Mutex<Inner<C>>,
    replies: Mutex<Ledger>,
    claims: Mutex<Claims>,
    requests_bytes: usize,
    counts: Arc<Counts>,
}

impl<C: Carrier + 'static> RendezvousBuffer<C> {
    /// Of a client that lends `replies_bytes` for replies, and whose requests lie in
    /// `requests_bytes`; each may be 0.
    pub fn new(
        carrier: C,
        replies_bytes: usize,
        requests_bytes: usize,
        counts: Arc<Counts>,
    ) -> Arc<RendezvousBuffer<C>> {
        let replies = Mutex::new(Ledger::new(replies_bytes));
        let (fetch, scratch) = (Fetch::Nothing, Vec::new());
        let inner = Mutex::new(Inner { carrier, fetch, scratch });
        let claims = Mutex::default();
        Arc::new(RendezvousBuffer { inner, replies, claims, requests_bytes, counts })
    }

    fn replies(&self) -> MutexGuard<'_, Ledger> {
        self.replies.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn claims(&self) -> MutexGuard<'_, Claims> {
        self.claims.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn count(&self, count: impl Fn(&Counts) -> &AtomicU64) {
        add(count(&self.counts), 1);
    }

    /// Room for the reply to request `id`, of so many bytes. `None`: it goes in frames.
    pub fn place(self: &Arc<Self>, id: u16, bytes: usize, now: u64) -> Option<Box<dyn Placed>> {
        let mut replies = self.replies();
        if replies.bytes() == 0 {
            return None;
        }
        let expired = replies.expired();
        let place = replies.take(id, bytes, now, KEEP_NANOS);
        add(&self.counts.places_expired, replies.expired() - expired);
        drop(replies);
        let Some(place) = place else {
            self.count(|counts| &counts.replies_unplaced);
            return None;
        };
        let sealing = Sealing::new(place.number);
        let rendezvous = self.clone();
        Some(Box::new(Placing { rendezvous, place, bytes, written: 0, sealing, is_told: false }))
    }

    /// The client has taken the reply to request `id`, or wants it no more.
    pub fn taken(&self, id: u16) {
        self.replies().give_back(id);
    }

    /// Begin to read what `sealed_descriptor` says, if it was not read before; or `again`, where
    /// what came of it is not known any more.
    pub fn claim(
        self: &Arc<Self>,
        sealed_descriptor: SealedDescriptor,
        again: bool,
    ) -> Option<Box<dyn Lent>> {
        let fits = sealed_descriptor.bytes > 0 && sealed_descriptor.fits(self.requests_bytes);
        let claimed = fits && self.claims().claim(sealed_descriptor.number, again);
        if !claimed {
            self.count(|counts| &counts.loans_refused);
            return None;
        }
        self.count(|counts| &counts.loans_claimed);
        let (rendezvous, sealing) = (self.clone(), Sealing::new(sealed_descriptor.number));
        Some(Box::new(Loan { rendezvous, sealed_descriptor, read: 0, begun: 0, sealing }))
    }
}

impl Claims {
    fn claim(&mut self, number: u64, again: bool) -> bool {
        let was_read = !again && self.whole.contains(&number);
        let is_known = self.reading.contains(&number) || was_read;
        let is_new = self.reading.len() < READING_MAX && !is_known;
        if is_new {
            self.reading.push(number);
            self.whole.retain(|whole| *whole != number);
        }
        is_new
    }

    fn end(&mut self, number: u64, is_whole: bool) {
        self.reading.retain(|reading| *reading != number);
        if is_whole {
            self.whole.truncate(WHOLE_MAX - 1);
            self.whole.push_front(number);
        }
    }
}

impl<C: Carrier> Inner<C> {
    /// Begin to read for message `number`.
    fn begin(&mut self, number: u64, at: usize, bytes: usize) -> Moved {
        match self.fetch {
            Fetch::Of(_) => return Moved::Later,
            Fetch::Nothing => {}
            Fetch::Unwanted => {
                self.scratch.clear();
                let moved = self.carrier.end_read(&mut self.scratch);
                if moved != Moved::Done {
                    return moved;
                }
                self.fetch = Fetch::Nothing;
            }
        }
        let moved = self.carrier.begin_read(at, bytes);
        if moved == Moved::Done {
            self.fetch = Fetch::Of(number);
        }
        moved
    }
}

/// A reply on its way into its client's memory.
struct Placing<C: Carrier + 'static> {
    rendezvous: Arc<RendezvousBuffer<C>>,
    place: Place,
    bytes: usize,
    written: usize,
    sealing: Sealing,
    is_told: bool,
}

impl<C: Carrier> Placed for Placing<C> {
    fn write(&mut self, pieces: &[IoSlice<'_>]) -> Moved {
        let bytes: usize = pieces.iter().map(|piece| piece.len()).sum();
        assert!(bytes <= PIECE_BYTES && bytes <= self.bytes - self.written, "beyond its place");
        let Some(mut inner) = try_lock(&self.rendezvous.inner) else { return Moved::Later };
        // Under the first lock: who has the place next writes behind what is written now.
        if !self.rendezvous.replies().holds(self.place.number) {
            return Moved::Gone;
        }
        let moved = inner.carrier.write(self.place.offset + self.written, pieces);
        drop(inner);
        if moved == Moved::Done {
            pieces.iter().for_each(|piece| self.sealing.add(piece));
            self.written += bytes;
            self.rendezvous.count(|counts| &counts.verbs_write);
        }
        moved
    }

    fn notice(&mut self, now_nanos: u64) -> Option<[u8; SEALED_DESCRIPTOR_BYTES]> {
        assert_eq!(self.written, self.bytes, "told before it was written");
        if !self.rendezvous.replies().renew(self.place.number, now_nanos, KEEP_NANOS) {
            return None;
        }
        self.is_told = true;
        self.rendezvous.count(|counts| &counts.notices);
        let Place { number, offset } = self.place;
        let (offset, bytes, seal) = (offset as u32, self.bytes as u32, self.sealing.seal());
        Some(SealedDescriptor { number, seal, offset, bytes }.to_bytes())
    }
}

impl<C: Carrier> Drop for Placing<C> {
    fn drop(&mut self) {
        if !self.is_told {
            self.rendezvous.replies().give_back_number(self.place.number);
            self.rendezvous.count(|counts| &counts.replies_unplaced);
        }
    }
}

/// A request on its way in.
struct Loan<C: Carrier + 'static> {
    rendezvous: Arc<RendezvousBuffer<C>>,
    sealed_descriptor: SealedDescriptor,
    read: usize,
    /// Bytes that are being read.
    begun: usize,
    sealing: Sealing,
}

impl<C: Carrier> Loan<C> {
    fn is_whole(&self) -> bool {
        self.read == self.sealed_descriptor.bytes as usize
            && self.sealing.seal() == self.sealed_descriptor.seal
    }
}

impl<C: Carrier> Lent for Loan<C> {
    fn bytes(&self) -> usize {
        self.sealed_descriptor.bytes as usize
    }

    fn read(&mut self, offset: usize, bytes: usize, out: &mut Vec<u8>) -> Moved {
        assert_eq!(offset, self.read, "it is read from its front on");
        assert!(bytes > 0 && bytes <= PIECE_BYTES && bytes <= self.bytes() - offset);
        let Some(mut inner) = try_lock(&self.rendezvous.inner) else { return Moved::Later };
        if self.begun == 0 {
            let at = self.sealed_descriptor.offset as usize + offset;
            match inner.begin(self.sealed_descriptor.number, at, bytes) {
                Moved::Done => self.begun = bytes,
                other => return other,
            }
            if inner.carrier.reads_by_verb() {
                self.rendezvous.count(|counts| &counts.verbs_read);
            }
        }
        let start = out.len();
        let moved = inner.carrier.end_read(out);
        if moved == Moved::Done {
            inner.fetch = Fetch::Nothing;
            drop(inner);
            self.sealing.add(&out[start..]);
            self.read += std::mem::take(&mut self.begun);
        }
        moved
    }

    fn is_right(&self) -> bool {
        let is_right = self.is_whole();
        if !is_right {
            self.rendezvous.count(|counts| &counts.loans_torn);
        }
        is_right
    }
}

impl<C: Carrier> Drop for Loan<C> {
    fn drop(&mut self) {
        if self.begun > 0 {
            // Held for one copy of a slice at most.
            let inner = self.rendezvous.inner.lock();
            let mut inner = inner.unwrap_or_else(PoisonError::into_inner);
            if inner.fetch == Fetch::Of(self.sealed_descriptor.number) {
                inner.fetch = Fetch::Unwanted;
            }
        }
        // Last: whoever reads this message next finds nothing of ours under its number.
        self.rendezvous.claims().end(self.sealed_descriptor.number, self.is_whole());
    }
}

#[cfg(test)]
mod tests;
