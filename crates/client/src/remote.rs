//! A server's memory on another host, written over RDMA (HERD's way, over [`laneway_rdma`]):
//! requests go into slots by WRITE, replies come as datagrams. What is too long for a slot is lent:
//! the server READs it out of memory of ours, or it is written into memory that the server granted;
//! and a long reply is written into memory that we lend, of which a notice tells. What finds no
//! room goes in frames, as over UDP, and frames that were lost are asked for as there. Where the
//! server has very many clients requests are sent as datagrams, and whatever is long is frames.
//!
//! It knows no clock, and no request: the core's datagrams go in and out as they are.

use crate::core::Core;
use crate::told::Told;
use crate::waiting::{Waiting, end_loans, lent_id, posted};
use laneway_rdma::contract::{Lend, LongRequester};
use laneway_rdma::long::sealed_descriptor::SealedDescriptor;
use laneway_rdma::verbs::VerbsRequester;
use laneway_wire::udp::HEADER_BYTES;
use std::collections::BTreeMap;
use std::io;

/// Replies taken before time is looked at again.
const BURST: usize = 64;

/// How often a reply is looked for that was told and has not come: then its frames will. Each look
/// reads all of it.
const LOOKS_AT_REPLY: u32 = 64;

/// The link between a [`Core`] and a server over RDMA, for whoever has a loop of their own.
pub struct Remote<V = VerbsRequester> {
    verbs: V,
    /// What is lent, by the id of its request.
    lent: BTreeMap<u16, SealedDescriptor>,
    waiting: Waiting,
    /// Replies that have not come as their notices say.
    told: Told<SealedDescriptor>,
    reply: Vec<u8>,
    /// What is lent, in one piece.
    message: Vec<u8>,
}

impl<V: LongRequester> Remote<V> {
    /// The client's side of a connection, with nothing under way.
    pub fn new(verbs: V) -> Remote<V> {
        Remote {
            verbs,
            lent: BTreeMap::new(),
            waiting: Waiting::default(),
            told: Told::new(LOOKS_AT_REPLY),
            reply: Vec::new(),
            message: Vec::new(),
        }
    }

    /// The connection.
    pub fn verbs(&self) -> &V {
        &self.verbs
    }

    /// Sends everything that the core has to send now.
    pub fn send(&mut self, core: &mut Core, now_nanos: u64) -> io::Result<()> {
        end_loans(&mut self.lent, core, |id, _| self.verbs.take_back(id));
        let mut waiting = std::mem::take(&mut self.waiting);
        let sent =
            waiting.send(core, now_nanos, |core, queue, bytes| self.post(core, queue, bytes));
        self.waiting = waiting;
        sent?;
        self.verbs.pump()
    }

    /// Posts one datagram, and lends the request of which it says so. False: no room.
    fn post(&mut self, core: &mut Core, queue: u16, bytes: &[u8]) -> io::Result<bool> {
        let Some(id) = lent_id(bytes) else {
            return posted(self.verbs.post_request(queue.into(), bytes), gone);
        };
        // Before anything is lent.
        if !self.verbs.has_room(queue.into()) {
            return Ok(false);
        }
        let lend = match self.lent.get(&id) {
            Some(sealed_descriptor) => self.verbs.lend_again(sealed_descriptor),
            None => {
                let Some(pieces) = core.lent_message(id) else { return Ok(true) };
                self.message.clear();
                pieces.iter().for_each(|piece| self.message.extend_from_slice(piece));
                self.verbs.lend(id, &self.message)
            }
        };
        match lend {
            Lend::Lent(sealed_descriptor) => {
                self.lent.insert(id, sealed_descriptor);
                let said = [&bytes[..HEADER_BYTES], &sealed_descriptor.to_bytes()].concat();
                posted(self.verbs.post_request(queue.into(), &said), gone)
            }
            Lend::Later => Ok(false),
            Lend::NoRoom => {
                core.send_in_frames(id);
                Ok(true)
            }
        }
    }

    /// Feeds the core what has come. Whether there may be more.
    pub fn receive(&mut self, core: &mut Core, now_nanos: u64) -> io::Result<bool> {
        let Remote { verbs, told, reply, .. } = self;
        let mut hear = |queue: usize, bytes: &[u8]| {
            told.hear(core, (queue, bytes), now_nanos, SealedDescriptor::parse);
        };
        let count = verbs.poll_replies(BURST, &mut hear);
        // Its writes may come behind a notice, or never.
        told.open(core, |core, notice| {
            reply.clear();
            let is_here = verbs.open_reply(&notice.said, reply);
            if is_here {
                core.feed_long(notice.queue, notice.id, notice.total, reply, now_nanos);
            }
            is_here
        });
        Ok(count == BURST)
    }
}

impl Remote {
    /// Waits until something has come, and at most so long; an error if the server is gone.
    pub fn wait(&mut self, nanos: u64) -> io::Result<()> {
        let is_untold = self.told.is_any();
        let sleep = self.waiting.sleep(nanos, is_untold, || self.verbs.has_reply());
        let Some(most) = sleep else { return Ok(()) };
        self.verbs.sleep(most)?;
        if !self.verbs.has_reply() && self.verbs.is_server_gone() {
            return Err(gone());
        }
        Ok(())
    }
}

fn gone() -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionReset, "the server over RDMA is gone")
}
