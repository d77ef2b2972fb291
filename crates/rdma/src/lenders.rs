//! Long messages in shared memory: a request is copied out of memory that its client lends, and a
//! long reply is written into other memory of its region, of which a notice tells. Each side copies
//! it once, and no card loses any of it: what is told of is there as long as its place is
//! ([`crate::region::Region::place`]).

use crate::contract::{DESCRIPTOR_BYTES, Descriptor, Lenders, Lent, Moved, Peer, Placed};
use crate::long::rendezvous::KEEP_NANOS;
use crate::long::sealed_descriptor::PIECE_BYTES;
use crate::region::{Region, Registry, add};
use crate::reply_places::ReplyPlace;
use std::io::IoSlice;
use std::sync::Arc;

/// Claims and places for all workers.
#[derive(Debug, Clone)]
pub struct RingLenders {
    registry: Arc<Registry>,
}

impl RingLenders {
    /// Of everybody in `registry`.
    pub fn new(registry: Arc<Registry>) -> RingLenders {
        RingLenders { registry }
    }
}

impl Lenders for RingLenders {
    fn bytes(&self, said: &[u8]) -> Option<usize> {
        Descriptor::parse(said).map(|descriptor| descriptor.bytes as usize)
    }

    fn claim(&self, peer: Peer, said: &[u8]) -> Option<Box<dyn Lent>> {
        let descriptor = Descriptor::parse(said)?;
        let claimed = self.registry.client(peer).filter(|region| region.claim(descriptor));
        let counts = &self.registry.shared;
        add(if claimed.is_some() { &counts.loans_claimed } else { &counts.loans_refused }, 1);
        let lent = OnLoan {
            region: claimed?,
            registry: self.registry.clone(),
            loan: descriptor.loan as usize,
            offset: descriptor.offset as usize,
            bytes: descriptor.bytes as usize,
        };
        Some(Box::new(lent))
    }

    fn place(&self, peer: Peer, id: u16, bytes: usize, now: u64) -> Option<Box<dyn Placed>> {
        let region = self.registry.client(peer).filter(|region| region.has_places())?;
        let counts = &self.registry.shared;
        let (place, expired) = region.place(id, bytes, now);
        add(&counts.places_expired, expired);
        let Some(place) = place else {
            add(&counts.replies_unplaced, 1);
            return None;
        };
        let registry = self.registry.clone();
        Some(Box::new(InPlace { region, registry, place, bytes, written: 0, is_told: false }))
    }

    fn taken(&self, peer: Peer, id: u16) {
        if let Some(region) = self.registry.client(peer) {
            region.has_taken(id);
        }
    }
}

/// Memory on loan.
struct OnLoan {
    region: Arc<Region>,
    registry: Arc<Registry>,
    loan: usize,
    offset: usize,
    bytes: usize,
}

impl Lent for OnLoan {
    fn bytes(&self) -> usize {
        self.bytes
    }

    fn read(&mut self, offset: usize, bytes: usize, out: &mut Vec<u8>) -> Moved {
        assert!(offset <= self.bytes && bytes <= self.bytes - offset, "beyond what was lent");
        self.region.read_lent(self.offset + offset, bytes, out);
        add(&self.registry.shared.verbs_read, 1);
        Moved::Done
    }
}

impl Drop for OnLoan {
    fn drop(&mut self) {
        self.region.end_loan(self.loan);
    }
}

/// A reply on its way into its place.
struct InPlace {
    region: Arc<Region>,
    registry: Arc<Registry>,
    place: ReplyPlace,
    bytes: usize,
    written: usize,
    is_told: bool,
}

impl Placed for InPlace {
    fn write(&mut self, pieces: &[IoSlice<'_>]) -> Moved {
        let bytes: usize = pieces.iter().map(|piece| piece.len()).sum();
        assert!(bytes <= PIECE_BYTES && bytes <= self.bytes - self.written, "beyond its place");
        if !self.region.write_reply(self.place, self.written, pieces) {
            return Moved::Gone;
        }
        self.written += bytes;
        add(&self.registry.shared.verbs_write, 1);
        Moved::Done
    }

    fn notice(&mut self, now_nanos: u64) -> Option<[u8; DESCRIPTOR_BYTES]> {
        assert_eq!(self.written, self.bytes, "told before it was written");
        if !self.region.tell_reply(self.place, now_nanos, KEEP_NANOS) {
            return None;
        }
        if !std::mem::replace(&mut self.is_told, true) {
            add(&self.registry.shared.notices, 1);
        }
        let ReplyPlace { place, number, offset } = self.place;
        let (loan, offset, bytes) = (place as u32, offset as u64, self.bytes as u32);
        Some(Descriptor { loan, number, offset, bytes }.to_bytes())
    }
}

impl Drop for InPlace {
    fn drop(&mut self) {
        if !self.is_told {
            self.region.let_go_of_reply(self.place);
            add(&self.registry.shared.replies_unplaced, 1);
        }
    }
}
