//! Requests in flight on one socket: request ids, what came of each, and which are given up.
//!
//! An id is free again when its request has ended. The id of a request that was given up rests for
//! a while, so that a reply that comes late is told from the reply to another request. It knows no
//! socket; time is an argument, in nanoseconds.

use super::Counts;
use super::reply::{Reply, Taken};
use crate::connection::{Completion, Context, Request};
use laneway_wire::udp::Header;
use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;

/// How long the id of a request that was given up is not used again: longer than any server keeps a
/// reply back.
const REST_NS: u64 = 5_000_000_000;

// Nearly all are waiting, and none is made anew for each request: a box would only cost.
#[expect(clippy::large_enum_variant)]
#[derive(Debug)]
enum Slot {
    Waiting { request: Request, peer: SocketAddr, reply: Reply, serial: u64 },
    Resting,
}

/// The requests of one socket.
#[derive(Debug, Default)]
pub struct Flight {
    slots: HashMap<u16, Slot>,
    next: u16,
    /// Requests without an end yet.
    pub waiting: usize,
    /// When each request was sent, its id and serial number, oldest first; those that have ended
    /// are passed over, as the serial number tells.
    sent_ns: VecDeque<(u64, u16, u64)>,
    resting: VecDeque<(u64, u16)>,
    serial: u64,
}

impl Flight {
    /// Takes a free id for a request to `peer`; `None` where all 65 536 are in use.
    pub fn begin(&mut self, request: Request, peer: SocketAddr, now_ns: u64) -> Option<u16> {
        let id = (0..=u16::MAX)
            .map(|ahead| self.next.wrapping_add(ahead))
            .find(|id| !self.slots.contains_key(id))?;
        self.next = id.wrapping_add(1);
        self.serial += 1;
        let (reply, serial) = (Reply::default(), self.serial);
        self.slots.insert(id, Slot::Waiting { request, peer, reply, serial });
        self.sent_ns.push_back((now_ns, id, self.serial));
        self.waiting += 1;
        Some(id)
    }

    /// Takes a datagram that came from `from`, its header read; the request it ended, if it ended
    /// one.
    pub fn take(
        &mut self,
        context: Context<'_>,
        from: Option<SocketAddr>,
        header: Header,
        payload: &[u8],
        counts: &mut Counts,
    ) -> Option<Completion> {
        let (request, reply) = match self.slots.get_mut(&header.request_id) {
            // A reply leaves the socket that the request came to, or it is nobody's.
            Some(Slot::Waiting { request, peer, reply, .. }) if from == Some(*peer) => {
                (request, reply)
            }
            Some(Slot::Resting) => {
                counts.after_timeout += 1;
                return None;
            }
            _ => {
                counts.stray += 1;
                return None;
            }
        };
        match reply.take(context, request, header, payload) {
            Taken::More => {}
            Taken::Duplicate => counts.duplicates += 1,
            Taken::Impossible => counts.impossible += 1,
            Taken::Ended(outcome) => {
                let request = *request;
                self.slots.remove(&header.request_id);
                self.waiting -= 1;
                return Some(Completion { request, outcome });
            }
        }
        None
    }

    /// Gives up what was sent at or before `sent_by_ns`, and lets ids go that have rested enough.
    pub fn expire(&mut self, sent_by_ns: u64, now_ns: u64, mut lost: impl FnMut(&Request, u16)) {
        while let Some(&(at_ns, id, serial)) = self.sent_ns.front()
            && at_ns <= sent_by_ns
        {
            self.sent_ns.pop_front();
            match self.slots.get(&id) {
                Some(Slot::Waiting { request, serial: own, .. }) if *own == serial => {
                    lost(request, id)
                }
                _ => continue,
            }
            self.slots.insert(id, Slot::Resting);
            self.resting.push_back((now_ns, id));
            self.waiting -= 1;
        }
        while let Some(&(since_ns, id)) = self.resting.front()
            && now_ns.saturating_sub(since_ns) >= REST_NS
        {
            self.resting.pop_front();
            self.slots.remove(&id);
        }
    }

    /// Calls `each` with every request that has no end.
    pub fn for_each_waiting(&self, mut each: impl FnMut(&Request)) {
        for slot in self.slots.values() {
            if let Slot::Waiting { request, .. } = slot {
                each(request);
            }
        }
    }
}
