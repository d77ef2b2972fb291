//! A server's memory on another host, written over RDMA (HERD's way, over [`laneway_rdma`]):
//! requests go into slots by WRITE, replies come as datagrams. What is too long for a slot is lent:
//! the server READs it out of memory of ours, or it is written into memory that the server granted;
//! and a long reply is written into memory that we lend, of which a notice tells. What finds no
//! room goes in frames, as over UDP, and frames that were lost are asked for as there.
//!
//! It knows no clock, and no request: the core's datagrams go in and out as they are.

use crate::core::Core;
use crate::waiting::Waiting;
use laneway_rdma::contract::{Lend, LongRequester, MESSAGE_BYTES_MAX, Posted};
use laneway_rdma::long::sealed_descriptor::SealedDescriptor;
use laneway_rdma::verbs::VerbsRequester;
use laneway_wire::udp::{HEADER_BYTES, Header, Kind};
use std::collections::BTreeMap;
use std::io;

/// Replies taken before time is looked at again.
const BURST: usize = 64;

/// A reply that the server has told of.
#[derive(Debug, Clone, Copy)]
struct Notice {
    queue: u16,
    id: u16,
    /// Of how many frames it would be.
    total: u16,
    sealed_descriptor: SealedDescriptor,
    /// How often it was looked for.
    looks: u32,
}

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
    told: Vec<Notice>,
    reply: Vec<u8>,
}

impl<V: LongRequester> Remote<V> {
    /// The client's side of a connection, with nothing under way.
    pub fn new(verbs: V) -> Remote<V> {
        Remote {
            verbs,
            lent: BTreeMap::new(),
            waiting: Waiting::default(),
            told: Vec::new(),
            reply: Vec::new(),
        }
    }

    /// The connection.
    pub fn verbs(&self) -> &V {
        &self.verbs
    }

    /// Sends everything that the core has to send now.
    pub fn send(&mut self, core: &mut Core, now_nanos: u64) -> io::Result<()> {
        self.end_loans(core);
        let mut waiting = std::mem::take(&mut self.waiting);
        let sent =
            waiting.send(core, now_nanos, |core, queue, bytes| self.post(core, queue, bytes));
        self.waiting = waiting;
        sent?;
        self.verbs.pump()
    }

    /// Lets go of what is lent for requests that have ended.
    fn end_loans(&mut self, core: &Core) {
        let verbs = &mut self.verbs;
        self.lent.retain(|id, _| {
            let is_wanted = core.is_under_way(*id);
            if !is_wanted {
                verbs.take_back(*id);
            }
            is_wanted
        });
    }

    /// Posts one datagram, or, if it is too long for a slot, where it lies. False: no room.
    fn post(&mut self, core: &mut Core, queue: u16, bytes: &[u8]) -> io::Result<bool> {
        if bytes.len() <= MESSAGE_BYTES_MAX {
            return posted(self.verbs.post_request(queue.into(), bytes));
        }
        // Before anything is lent.
        if !self.verbs.has_room(queue.into()) {
            return Ok(false);
        }
        let Some((header, message)) = Header::parse(bytes) else { return Ok(true) };
        let id = header.request_id;
        let lend = match self.lent.get(&id) {
            Some(sealed_descriptor) => self.verbs.lend_again(sealed_descriptor),
            None => self.verbs.lend(id, message),
        };
        match lend {
            Lend::Lent(sealed_descriptor) => {
                self.lent.insert(id, sealed_descriptor);
                let said = [&bytes[..HEADER_BYTES], &sealed_descriptor.to_bytes()].concat();
                posted(self.verbs.post_request(queue.into(), &said))
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
        let told = &mut self.told;
        let mut feed = |queue: usize, bytes: &[u8]| match notice(queue, bytes) {
            Some(notice) => {
                let Notice { queue, id, total, .. } = notice;
                if core.hear_notice(queue, id, total, now_nanos) {
                    told.push(notice);
                }
            }
            None => core.feed(queue as u16, bytes, now_nanos),
        };
        let count = self.verbs.poll_replies(BURST, &mut feed);
        self.open_replies(core, now_nanos);
        Ok(count == BURST)
    }

    /// Looks at what was told: its writes may come behind their notice, or never.
    fn open_replies(&mut self, core: &mut Core, now_nanos: u64) {
        let Remote { verbs, told, reply, .. } = self;
        told.retain_mut(|Notice { queue, id, total, sealed_descriptor, looks }| {
            *looks += 1;
            if *looks > LOOKS_AT_REPLY || !core.waits_for(*queue, *id) {
                return false;
            }
            reply.clear();
            let is_here = verbs.open_reply(sealed_descriptor, reply);
            if is_here {
                core.feed_long(*queue, *id, *total, reply, now_nanos);
            }
            !is_here
        });
    }
}

impl Remote {
    /// Waits until something has come, and at most so long; an error if the server is gone.
    pub fn wait(&mut self, nanos: u64) -> io::Result<()> {
        let is_untold = !self.told.is_empty();
        let sleep = self.waiting.sleep(nanos, is_untold, || self.verbs.has_reply());
        let Some(most) = sleep else { return Ok(()) };
        self.verbs.sleep(most)?;
        if !self.verbs.has_reply() && self.verbs.is_server_gone() {
            return Err(gone());
        }
        Ok(())
    }
}

/// What a datagram tells of a reply that lies elsewhere.
fn notice(queue: usize, bytes: &[u8]) -> Option<Notice> {
    let (header, said) = Header::parse(bytes).filter(|(header, _)| header.kind == Kind::Notice)?;
    let Header { request_id: id, total, .. } = header;
    Some(Notice {
        queue: queue as u16,
        id,
        total,
        sealed_descriptor: SealedDescriptor::parse(said)?,
        looks: 0,
    })
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
