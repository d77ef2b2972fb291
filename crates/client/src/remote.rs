//! A server's memory on another host, written over RDMA (HERD's way, over [`laneway_rdma`]):
//! requests go into slots by WRITE, replies come as datagrams. What is too long for a slot goes in
//! frames, as over UDP, and frames that were lost are asked for as there.
//!
//! Knows no clock, and no request: the core's datagrams go in and out as they are.

use crate::core::Core;
use laneway_rdma::contract::{Posted, Requester};
use laneway_rdma::verbs::VerbsRequester;
use std::collections::VecDeque;
use std::io;
use std::time::Duration;

/// Replies taken before time is looked at again.
const BURST: usize = 64;
/// Looks for a reply before the CPU is given away, and how often it is, before sleeping.
const LOOKS: u32 = 64;
const YIELDS: u32 = 16;
/// The longest sleep: behind it, whether the server is still there.
const SLEEP_MAX: Duration = Duration::from_millis(100);
/// The longest while something waits for room: whoever tells of room may have been lost.
const SLEEP_FOR_ROOM: Duration = Duration::from_millis(1);

/// The link between a [`Core`] and a server over RDMA, for whoever has a loop of their own.
pub struct Remote {
    verbs: VerbsRequester,
    /// What found no room, with its queue.
    waiting: VecDeque<(u16, Vec<u8>)>,
    out: Vec<u8>,
}

impl Remote {
    /// The client's side of a connection, with nothing under way.
    pub fn new(verbs: VerbsRequester) -> Remote {
        Remote { verbs, waiting: VecDeque::new(), out: Vec::new() }
    }

    /// The connection.
    pub fn verbs(&self) -> &VerbsRequester {
        &self.verbs
    }

    /// Sends everything that the core has to send now.
    pub fn send(&mut self, core: &mut Core, now_nanos: u64) -> io::Result<()> {
        while let Some((queue, datagram)) = self.waiting.pop_front() {
            if !posted(self.verbs.post_request(queue.into(), &datagram))? {
                self.waiting.push_front((queue, datagram));
                return self.verbs.pump();
            }
        }
        let mut out = std::mem::take(&mut self.out);
        while self.waiting.is_empty()
            && let Some(departure) = core.transmit(now_nanos, &mut out)
        {
            for datagram in out.chunks(departure.segment_bytes.max(1)) {
                let queue = departure.queue;
                let waits = !self.waiting.is_empty()
                    || !posted(self.verbs.post_request(queue.into(), datagram))?;
                if waits {
                    self.waiting.push_back((queue, datagram.to_vec()));
                }
            }
        }
        self.out = out;
        self.verbs.pump()
    }

    /// Waits until something has come, and at most so long; an error if the server is gone.
    pub fn wait(&mut self, nanos: u64) -> io::Result<()> {
        // The core may have something to send at once, but there is no room for it.
        let nanos = match self.waiting.is_empty() {
            true => nanos,
            false => nanos.max(SLEEP_FOR_ROOM.as_nanos() as u64),
        };
        for look in 0..LOOKS + YIELDS {
            if nanos == 0 || self.verbs.has_reply() {
                return Ok(());
            }
            if look < LOOKS { std::hint::spin_loop() } else { std::thread::yield_now() }
        }
        let most = if self.waiting.is_empty() { SLEEP_MAX } else { SLEEP_FOR_ROOM };
        self.verbs.sleep(Duration::from_nanos(nanos).min(most))?;
        if !self.verbs.has_reply() && self.verbs.is_server_gone() {
            return Err(gone());
        }
        Ok(())
    }

    /// Feeds the core what has come. Whether there may be more.
    pub fn receive(&mut self, core: &mut Core, now_nanos: u64) -> io::Result<bool> {
        let mut feed = |queue: usize, bytes: &[u8]| core.feed(queue as u16, bytes, now_nanos);
        let count = self.verbs.poll_replies(BURST, &mut feed);
        Ok(count == BURST)
    }
}

fn posted(posted: Posted) -> io::Result<bool> {
    match posted {
        Posted::Done => Ok(true),
        Posted::Full => Ok(false),
        Posted::Gone => Err(gone()),
    }
}

fn gone() -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionReset, "the server over RDMA is gone")
}
