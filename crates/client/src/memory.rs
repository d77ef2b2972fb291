//! Memory that a server on the same host shares with this client (HERD's way, over
//! [`laneway_rdma`]): requests are written into slots, replies taken out of others, and what is too
//! long for a slot is lent. One request is one write here and one message back.
//!
//! Knows no clock, and no request: the core's datagrams go in and out as they are.

use crate::core::Core;
use laneway_rdma::contract::{Descriptor, MESSAGE_BYTES_MAX, Posted, Requester};
use laneway_rdma::shmring::RingRequester;
use laneway_wire::udp::{HEADER_BYTES, Header};
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::time::Duration;

/// Replies taken before time is looked at again.
const BURST: usize = 64;
/// Looks for a reply before the CPU is given away, and how often it is, before sleeping.
const LOOKS: u32 = 64;
const YIELDS: u32 = 16;
/// The longest sleep: behind it, whether the server is still there.
const SLEEP_MAX: Duration = Duration::from_millis(100);
/// The longest while something waits for room: the server does not say when there is some.
const SLEEP_FOR_ROOM: Duration = Duration::from_millis(1);

/// The link between a [`Core`] and the server in memory, for whoever has a loop of their own.
pub struct Memory {
    ring: RingRequester,
    /// What is lent, by the id of its request.
    lent: BTreeMap<u16, Descriptor>,
    /// What found no room, with its queue.
    waiting: VecDeque<(u16, Vec<u8>)>,
    out: Vec<u8>,
}

impl Memory {
    /// The client's side of a region, with nothing under way.
    pub fn new(ring: RingRequester) -> Memory {
        Memory { ring, lent: BTreeMap::new(), waiting: VecDeque::new(), out: Vec::new() }
    }

    /// The region.
    pub fn ring(&self) -> &RingRequester {
        &self.ring
    }

    /// Sends everything that the core has to send now.
    pub fn send(&mut self, core: &mut Core, now_nanos: u64) -> io::Result<()> {
        self.end_loans(core);
        while let Some((queue, bytes)) = self.waiting.pop_front() {
            if is_over(core, &bytes) {
                continue;
            }
            if !self.post(queue, &bytes)? {
                self.waiting.push_front((queue, bytes));
                return self.ring.pump();
            }
        }
        let mut out = std::mem::take(&mut self.out);
        while let Some(departure) = core.transmit(now_nanos, &mut out) {
            if !self.post(departure.queue, &out)? {
                self.waiting.push_back((departure.queue, std::mem::take(&mut out)));
                break;
            }
        }
        self.out = out;
        self.ring.pump()
    }

    /// Lets go of what is lent for requests that have ended.
    fn end_loans(&mut self, core: &Core) {
        let ring = &mut self.ring;
        self.lent.retain(|id, descriptor| {
            let is_wanted = core.is_under_way(*id);
            if !is_wanted {
                ring.take_back(*descriptor);
            }
            is_wanted
        });
    }

    /// Posts one datagram, or, if it is too long for a slot, where it lies. False: no room.
    fn post(&mut self, queue: u16, bytes: &[u8]) -> io::Result<bool> {
        let queue = usize::from(queue);
        if bytes.len() <= MESSAGE_BYTES_MAX {
            return posted(self.ring.post_request(queue, bytes));
        }
        // Before anything is lent.
        if !self.ring.has_room(queue) {
            return Ok(false);
        }
        let Some((header, message)) = Header::parse(bytes) else { return Ok(true) };
        let id = header.request_id;
        let descriptor = match self.lent.get(&id) {
            Some(descriptor) => self.ring.lend_again(*descriptor),
            None => match self.ring.lend(message) {
                Some(descriptor) => descriptor,
                None => return Ok(false),
            },
        };
        self.lent.insert(id, descriptor);
        let said = [&bytes[..HEADER_BYTES], &descriptor.to_bytes()].concat();
        posted(self.ring.post_request(queue, &said))
    }

    /// Waits until something has come, and at most so long; an error if the server is gone.
    pub fn wait(&mut self, nanos: u64) -> io::Result<()> {
        // The core may have something to send at once, but there is no room for it.
        let nanos = match self.waiting.is_empty() {
            true => nanos,
            false => nanos.max(SLEEP_FOR_ROOM.as_nanos() as u64),
        };
        for look in 0..LOOKS + YIELDS {
            if nanos == 0 || self.ring.has_reply() {
                return Ok(());
            }
            if look < LOOKS { std::hint::spin_loop() } else { std::thread::yield_now() }
        }
        let most = if self.waiting.is_empty() { SLEEP_MAX } else { SLEEP_FOR_ROOM };
        self.ring.sleep(Duration::from_nanos(nanos).min(most))?;
        if !self.ring.has_reply() && self.ring.is_server_gone() {
            return Err(gone());
        }
        Ok(())
    }

    /// Feeds the core what has come. Whether there may be more.
    pub fn receive(&mut self, core: &mut Core, now_nanos: u64) -> io::Result<bool> {
        let mut feed = |queue: usize, bytes: &[u8]| core.feed(queue as u16, bytes, now_nanos);
        let count = self.ring.poll_replies(BURST, &mut feed);
        self.ring.pump()?;
        Ok(count == BURST)
    }
}

/// Whether a request that waited to be lent was given up meanwhile.
fn is_over(core: &Core, bytes: &[u8]) -> bool {
    let is_long = bytes.len() > MESSAGE_BYTES_MAX;
    is_long && Header::parse(bytes).is_some_and(|(header, _)| !core.is_under_way(header.request_id))
}

fn posted(posted: Posted) -> io::Result<bool> {
    match posted {
        Posted::Done => Ok(true),
        Posted::Full => Ok(false),
        Posted::Gone => Err(gone()),
    }
}

fn gone() -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionReset, "the server behind the shared memory is gone")
}
