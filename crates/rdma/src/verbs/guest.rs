//! One client of a server over RDMA: how its requests come, where its replies go, and what it has
//! of the server's.

use super::card::Registered;
use super::carry::Carry;
use super::inbox::{Correspondent, Correspondents, Source};
use super::parts;
use super::post::Mailbox;
use super::request_ring::RequestRing;
use crate::contract::Peer;
use crate::long::rendezvous::RendezvousBuffer;
use crate::region::Look;
use rustix::net::{Shutdown, shutdown};
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

/// How a client's requests come.
pub(super) enum Way {
    /// By WRITE into slots.
    Slots {
        /// Has the queue pair that takes what the client writes.
        rendezvous: Arc<RendezvousBuffer<Carry>>,
        memory: Arc<Registered>,
        request_ring: RequestRing,
    },
    /// By SEND: from where its device says that they come, and what is known of it.
    Datagrams(Source, Arc<Correspondent>),
}

/// One client.
pub struct Guest {
    pub(super) peer: Peer,
    pub(super) way: Way,
    pub(super) mailbox: Arc<Mailbox>,
    /// Longest packet that gets there.
    pub(super) packet_bytes: usize,
    /// What its place hangs on, once more.
    pub(super) door: Arc<OwnedFd>,
    pub(super) gone: AtomicBool,
    /// From where it said hello.
    pub(super) from: Option<IpAddr>,
    /// How much it was granted.
    pub(super) granted_bytes: usize,
}

impl Guest {
    /// Whose this is.
    pub fn peer(&self) -> Peer {
        self.peer
    }

    /// Whether it is gone.
    pub fn is_gone(&self) -> bool {
        self.gone.load(Relaxed)
    }

    /// Whether it writes its requests into slots. Who does not sends them
    /// ([`super::mailroom`]).
    pub fn has_slots(&self) -> bool {
        matches!(self.way, Way::Slots { .. })
    }

    /// Whether the next slot of a lane holds something, at a glance, or may soon.
    #[inline]
    pub fn has_request(&self, lane: usize) -> bool {
        let Way::Slots { memory, request_ring, .. } = &self.way else { return false };
        request_ring.has_request(memory.words(), lane)
    }

    /// What moves its long messages, where somebody does.
    pub(super) fn rendezvous(&self) -> Option<&Arc<RendezvousBuffer<Carry>>> {
        let Way::Slots { rendezvous, .. } = &self.way else { return None };
        Some(rendezvous)
    }

    /// How many SENDs a reply to it takes.
    pub(super) fn sends(&self, reply_bytes: usize) -> usize {
        parts::count(reply_bytes, self.packet_bytes)
    }

    /// The next request out of a slot of a lane.
    pub(super) fn take(&self, lane: usize, far: bool, out: &mut Vec<u8>) -> (Look, u32) {
        let Way::Slots { memory, request_ring, .. } = &self.way else { return (Look::Nothing, 0) };
        request_ring.take(memory.words(), lane, far, out)
    }

    pub(super) fn tell(&self, lane: usize) -> u32 {
        match &self.way {
            Way::Slots { request_ring, .. } => request_ring.tell(lane),
            Way::Datagrams(_, correspondent) => correspondent.tell(lane),
        }
    }

    pub(super) fn is_to_be_told(&self, lane: usize, far: bool) -> bool {
        match &self.way {
            Way::Slots { memory, request_ring, .. } => {
                request_ring.is_to_be_told(memory.words(), lane, far)
            }
            Way::Datagrams(_, correspondent) => correspondent.is_to_be_told(lane),
        }
    }

    /// It does what no client does: the door sees its end.
    pub(super) fn cut_off(&self) {
        // One that is closed already needs no more.
        let _ = shutdown(&self.door, Shutdown::Both);
    }

    /// Whether it has used its place.
    pub(super) fn is_proven(&self) -> bool {
        match &self.way {
            Way::Slots { request_ring, .. } => request_ring.is_used(),
            Way::Datagrams(_, correspondent) => correspondent.is_heard(),
        }
    }

    /// From where its datagrams come, if it sends some.
    pub(super) fn sender(&self) -> Option<Source> {
        let Way::Datagrams(source, _) = &self.way else { return None };
        Some(*source)
    }

    /// Whether somebody still has hold of what is its.
    pub(super) fn is_held(guest: &Arc<Guest>) -> bool {
        // The guest first: who has none gets no rendezvous buffer anew.
        Arc::strong_count(guest) > 1
            || guest.rendezvous().is_some_and(|rendezvous| Arc::strong_count(rendezvous) > 1)
    }
}

/// `before` has left a place that `now` has: those of `known` are the ones that send datagrams.
pub(super) fn exchange(known: &mut Correspondents, before: Option<&Guest>, now: Option<&Guest>) {
    if let Some(Way::Datagrams(source, left)) = before.map(|guest| &guest.way)
        // Somebody else may have come from there since, in another place.
        && known.get(source).is_some_and(|there| Arc::ptr_eq(there, left))
    {
        known.remove(source);
    }
    if let Some(Way::Datagrams(source, correspondent)) = now.map(|guest| &guest.way) {
        known.insert(*source, correspondent.clone());
    }
}
