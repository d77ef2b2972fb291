//! The client's side: it writes requests into the server's memory, or sends them to a worker, and
//! takes replies as datagrams.

use super::card::Registered;
use super::greeting::Span;
use super::outbound::Outbound;
use super::pair::Service;
use super::parts::Joiner;
use super::post::{Came, Receiver, Sender};
use super::request_ring::{Bounds, Credit, PART, told_of};
use crate::contract::{Lend, LongRequester, MESSAGE_BYTES_MAX, Posted, Requester, Verbs};
use crate::layout::HEAD_BYTES;
use crate::long::ledger::Ledger;
use crate::long::sealed_descriptor::{PIECE_BYTES, SealedDescriptor};
use crate::shmring::has_ended;
use laneway_sync::words;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{Shutdown, shutdown};
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::net::TcpStream;
use std::time::Duration;

/// Requests under way to the card.
pub(super) const DEPTH: usize = 128;

/// WRITEs of one long request, at most: half of what may be under way. So much, 2 MiB, goes ahead
/// of a small request of the same client that is posted behind it; of nobody else's.
const PIECES_MAX: usize = DEPTH / 2;

/// Where long requests lie.
pub(super) enum Requests {
    Nowhere,
    /// In memory of ours, which the server READs.
    Ours(Registered),
    /// In memory of the server's, written from behind our slots.
    Theirs(Span),
}

/// The client's handle. The server lets go of it when it is dropped.
pub struct VerbsRequester {
    bounds: Bounds,
    service: Service,
    sender: Sender,
    receiver: Receiver,
    // Behind the pair: what the server may write and read by it.
    replies: Option<Registered>,
    requests: Requests,
    /// Who of our requests has which place there.
    places: Ledger,
    outbound: Outbound,
    /// By lane.
    credits: Vec<Credit>,
    /// What came and was not taken.
    came: VecDeque<Came>,
    new: Vec<Came>,
    room: Vec<u8>,
    /// Replies that come in parts.
    joiner: Joiner,
    is_broken: bool,
    verbs: Verbs,
    /// What keeps the server knowing us.
    door: TcpStream,
}

impl fmt::Debug for VerbsRequester {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VerbsRequester").field("bounds", &self.bounds).finish_non_exhaustive()
    }
}

impl Requests {
    /// How much memory they have.
    fn bytes(&self) -> usize {
        match self {
            Requests::Nowhere => 0,
            Requests::Ours(memory) => memory.bytes(),
            Requests::Theirs(span) => span.bytes as usize,
        }
    }

    /// How much of it lies behind our slots.
    pub(super) fn behind(&self) -> usize {
        if let Requests::Theirs(span) = self { span.bytes as usize } else { 0 }
    }
}

impl VerbsRequester {
    pub(super) fn new(
        bounds: Bounds,
        service: Service,
        (sender, outbound, receiver): (Sender, Outbound, Receiver),
        (replies, requests): (Option<Registered>, Requests),
        door: TcpStream,
    ) -> VerbsRequester {
        VerbsRequester {
            bounds,
            service,
            sender,
            receiver,
            replies,
            places: Ledger::new(requests.bytes()),
            requests,
            outbound,
            credits: vec![Credit::default(); bounds.lanes],
            came: VecDeque::new(),
            new: Vec::new(),
            room: Vec::new(),
            joiner: Joiner::default(),
            is_broken: false,
            verbs: Verbs::default(),
            door,
        }
    }

    /// How the server's memory is laid out.
    pub fn bounds(&self) -> Bounds {
        self.bounds
    }

    /// How requests are carried: as it was asked for, or as the server chose.
    pub fn service(&self) -> Service {
        self.service
    }

    /// Whether a reply is there.
    pub fn has_reply(&mut self) -> bool {
        self.look();
        !self.came.is_empty() || self.is_broken
    }

    fn look(&mut self) {
        let is_broken = self.receiver.poll(&mut self.new).is_err() || !self.sender.poll();
        self.is_broken |= is_broken;
        self.came.extend(self.new.drain(..));
    }

    /// Whether the server has ended, or sent us away, or the device is broken.
    pub fn is_server_gone(&self) -> bool {
        self.is_broken || has_ended(&self.door)
    }

    /// Sleep until there is a reply, and at most so long.
    pub fn sleep(&mut self, most: Duration) -> io::Result<()> {
        let queue = self.receiver.queue();
        let Some(channel) = queue.channel.clone() else { return Ok(()) };
        queue.arm()?;
        if self.has_reply() {
            return Ok(());
        }
        let most = Timespec::try_from(most).ok();
        let descriptor = channel.descriptor();
        let mut descriptors = [PollFd::from_borrowed_fd(descriptor, PollFlags::IN)];
        match poll(&mut descriptors, most.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        channel.clear();
        Ok(())
    }

    /// How many more requests a lane takes now, however long.
    pub fn room(&mut self, lane: usize) -> usize {
        let room = self.credits[lane].room(&self.bounds).min(self.sender.room());
        room / self.outbound.count(MESSAGE_BYTES_MAX)
    }

    /// How many it takes at most.
    pub fn window(&self) -> usize {
        self.bounds.window / self.outbound.count(MESSAGE_BYTES_MAX)
    }

    /// There was less room in a lane than somebody wants, once more: the server may have said that
    /// there is, and was not heard. Now and then it is asked.
    pub fn want_room(&mut self, lane: usize) {
        let credit = &mut self.credits[lane];
        let is_time = match self.outbound {
            Outbound::Slots { .. } => credit.was_full(),
            Outbound::Datagrams { .. } => credit.was_full_again(),
        };
        if is_time {
            self.ask(lane);
        }
    }

    /// Where the server's memory for our requests begins, how long it is, and by which key it is
    /// written; no bytes where there is none.
    pub fn slots(&self) -> (u64, u64, u32) {
        let Outbound::Slots { address, rkey } = self.outbound else { return (0, 0, 0) };
        (address, self.bounds.bytes().next_multiple_of(HEAD_BYTES) as u64, rkey)
    }

    /// The same of what the server granted for our long requests; no bytes where it granted none.
    pub fn granted(&self) -> (u64, u64, u32) {
        let Requests::Theirs(span) = self.requests else { return (0, 0, 0) };
        (span.address, span.bytes.into(), span.rkey)
    }

    /// Write a word to any address by any key, as who is hostile would: whoever tests a device sees
    /// it refused where it is not ours. Over RC the connection is broken then.
    pub fn write_anywhere(&mut self, address: u64, rkey: u32) {
        if self.sender.has_room(0) {
            self.sender.write(0..8, address, rkey);
        }
    }

    /// Let go of the memory that was lent, as who is hostile would: whoever tests a device sees it
    /// refuse the server, who breaks the connection for it.
    pub fn take_away(&mut self) {
        self.replies = None;
        self.requests = Requests::Nowhere;
    }

    /// Send under another key, as who is hostile would; which one it was. Whoever tests a device
    /// sees that nothing arrives.
    pub fn replace_key(&mut self, qkey: u32) -> u32 {
        self.outbound.replace_key(qkey)
    }

    /// Send so many empty datagrams to a lane, with numbers that nobody may send, as who is hostile
    /// would: whoever tests a server sees it close the door.
    pub fn flood(&mut self, lane: usize, count: usize) {
        for _ in 0..count {
            if self.sender.has_room(0) {
                let number = self.credits[lane].next.wrapping_add(2 * self.bounds.window as u32);
                self.outbound.ask(&mut self.sender, &self.bounds, lane, number);
            }
        }
    }

    /// Leave, and go on sending as one who was never greeted would.
    pub fn shut_door(&self) -> io::Result<()> {
        Ok(shutdown(&self.door, Shutdown::Both)?)
    }

    /// Ask the server how many of a lane it took.
    pub fn ask(&mut self, lane: usize) {
        if self.sender.has_room(0) {
            let next = self.credits[lane].next;
            self.outbound.ask(&mut self.sender, &self.bounds, lane, next);
            self.count(1);
        }
    }

    fn count(&mut self, posted: usize) {
        match self.outbound {
            Outbound::Slots { .. } => self.verbs.writes += posted as u64,
            Outbound::Datagrams { .. } => self.verbs.sends += posted as u64,
        }
    }
}

impl Requester for VerbsRequester {
    fn queues(&self) -> usize {
        self.bounds.lanes
    }

    fn post_request(&mut self, queue: usize, message: &[u8]) -> Posted {
        assert!(message.len() <= MESSAGE_BYTES_MAX, "a request of {} bytes", message.len());
        if self.is_broken {
            return Posted::Gone;
        }
        let count = self.outbound.count(message.len());
        if self.credits[queue].room(&self.bounds) < count {
            self.want_room(queue);
            return Posted::Full;
        }
        if !self.sender.has_room(count - 1) {
            return Posted::Full;
        }
        let place = (queue, self.credits[queue].next);
        self.outbound.gather(&mut self.sender, &self.bounds, place, message);
        (0..count).for_each(|_| self.credits[queue].posted());
        self.count(count);
        Posted::Done
    }

    fn poll_replies(&mut self, burst: usize, take: &mut dyn FnMut(usize, &[u8])) -> usize {
        self.look();
        let mut count = 0;
        while count < burst
            && let Some(came) = self.came.pop_front()
        {
            self.room.clear();
            self.receiver.take(came, &mut self.room);
            let lane = told_of(came.immediate);
            if lane >= self.bounds.lanes {
                continue;
            }
            self.verbs.receives += 1;
            self.credits[lane].hear(came.immediate);
            let message = match came.immediate & PART {
                0 => Some(&self.room[..]).filter(|message| !message.is_empty()),
                _ => self.joiner.take(&self.room),
            };
            if let Some(message) = message {
                count += 1;
                take(lane, message);
            }
        }
        self.is_broken |= self.receiver.give_back().is_err();
        count
    }

    fn pump(&mut self) -> io::Result<()> {
        self.is_broken |= !self.sender.post();
        if self.is_broken {
            let why = "the connection over RDMA is broken";
            return Err(io::Error::new(io::ErrorKind::ConnectionReset, why));
        }
        Ok(())
    }

    fn verbs(&self) -> Verbs {
        self.verbs
    }
}

impl LongRequester for VerbsRequester {
    fn has_room(&mut self, queue: usize) -> bool {
        let has_room = self.room(queue) > 0;
        if !has_room && !self.is_broken {
            self.want_room(queue);
        }
        has_room || self.is_broken
    }

    fn lent_bytes_max(&self) -> usize {
        match self.requests {
            Requests::Theirs(_) => self.places.bytes().min(PIECES_MAX * PIECE_BYTES),
            _ => self.places.bytes(),
        }
    }

    fn lend(&mut self, name: u16, message: &[u8]) -> Lend {
        if message.len() > self.lent_bytes_max() {
            return Lend::NoRoom;
        }
        if self.lacks_room(message.len()) {
            return Lend::Later;
        }
        let Some(place) = self.places.take(name, message.len(), 0, u64::MAX) else {
            return Lend::NoRoom;
        };
        let behind = self.bounds.bytes();
        match &self.requests {
            Requests::Nowhere => return Lend::NoRoom,
            Requests::Ours(memory) => words::write(memory.words(), place.offset, message),
            Requests::Theirs(_) => {
                words::write(self.sender.memory().words(), behind + place.offset, message);
            }
        }
        let sealed_descriptor = SealedDescriptor::of(place.number, place.offset as u32, message);
        self.write_lent(&sealed_descriptor);
        Lend::Lent(sealed_descriptor)
    }

    fn lend_again(&mut self, sealed_descriptor: &SealedDescriptor) -> Lend {
        if self.lacks_room(sealed_descriptor.bytes as usize) {
            return Lend::Later;
        }
        self.write_lent(sealed_descriptor);
        Lend::Lent(*sealed_descriptor)
    }

    fn take_back(&mut self, name: u16) {
        self.places.give_back(name);
    }

    fn open_reply(&self, sealed_descriptor: &SealedDescriptor, out: &mut Vec<u8>) -> bool {
        let memory = self.replies.as_ref();
        memory.is_some_and(|memory| sealed_descriptor.open(memory.words(), out))
    }
}

impl VerbsRequester {
    /// Whether its WRITEs, and the one of its slot, find no places now.
    fn lacks_room(&mut self, bytes: usize) -> bool {
        let is_written = matches!(self.requests, Requests::Theirs(_));
        is_written && self.sender.room() <= bytes.div_ceil(PIECE_BYTES)
    }

    fn write_lent(&mut self, sealed_descriptor: &SealedDescriptor) {
        let Requests::Theirs(span) = self.requests else { return };
        let (from, bytes) = (sealed_descriptor.offset as usize, sealed_descriptor.bytes as usize);
        for at in (from..from + bytes).step_by(PIECE_BYTES) {
            let end = (at + PIECE_BYTES).min(from + bytes);
            let behind = self.bounds.bytes();
            let address = span.address + at as u64;
            self.sender.write(behind + at..behind + end, address, span.rkey);
            self.verbs.writes += 1;
        }
    }
}
