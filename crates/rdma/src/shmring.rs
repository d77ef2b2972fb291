//! The kind over shared memory: the server's handle for one worker, and the client's.
//!
//! The client sleeps by a futex on a word of its region, the server's workers by what their
//! transport sleeps by, of which each region's doorbells are a part: a worker also has streams to
//! wait for, and a futex cannot be waited for together with them. (So a departure from a futex on
//! both sides; the doorbell *words* spare the call while the worker is awake.)

use crate::contract::{
    Descriptor, Lenders, MESSAGE_BYTES_MAX, Peer, Posted, Request, Requester, Responder, Verbs,
};
use crate::layout::{LOANS_MAX, Terms};
use crate::lenders::RingLenders;
use crate::long::ledger::{self, Ledger, Place};
use crate::mapped::Mapped;
use crate::polled::{Polled, TURN, by_turns};
use crate::region::{Look, Region, Registry, add};
use laneway_sync::append::SLACK;
use laneway_sync::place;
use laneway_sync::planted::{Bug, is_planted};
use laneway_sync::prim::AtomicU64;
use laneway_sync::slot::{self, Control, Loan, Taken};
use laneway_sync::words;
use rustix::fs::Timespec;
use rustix::io::Errno;
use rustix::net::RecvFlags;
use rustix::thread::futex;
use std::io::{self, IoSlice};
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

const _: () = assert!(LOANS_MAX <= ledger::PLACES_MAX);

/// One worker's handle.
pub struct RingResponder {
    registry: Arc<Registry>,
    /// Of the table that `clients` is a copy of.
    version: u64,
    clients: Vec<Option<Arc<Region>>>,
    worker: usize,
    /// Whose turn it is, by lane.
    turn: Vec<usize>,
    /// The places of a poll.
    places: Vec<usize>,
    /// Looks into slots.
    looks: u64,
    requests: Polled,
    /// Clients that were replied to since the last pump.
    replied: Vec<u16>,
}

impl RingResponder {
    /// Worker number `worker` of those in `registry`.
    pub fn new(registry: Arc<Registry>, worker: usize) -> RingResponder {
        let lanes = registry.terms().lanes;
        assert!(worker < lanes, "worker {worker} of {lanes}");
        RingResponder {
            registry,
            version: 0,
            clients: Vec::new(),
            worker,
            turn: vec![0; lanes],
            places: Vec::new(),
            looks: 0,
            requests: Polled::default(),
            replied: Vec::new(),
        }
    }

    fn follow(&mut self) {
        let version = self.registry.version();
        if version != self.version {
            self.version = version;
            self.clients = self.registry.clients();
        }
    }

    /// How often it has looked into a slot.
    pub fn looks(&self) -> u64 {
        self.looks
    }

    /// At most [`TURN`] requests of one client.
    fn take_of(&mut self, region: &Region, queue: usize, burst: usize) {
        let counts = &self.registry.counts[self.worker];
        for _ in 0..TURN.min(burst - self.requests.len()) {
            let start = self.requests.room.len();
            self.looks += 1;
            match region.take(queue, &mut self.requests.room) {
                Look::Request => {
                    self.requests.add(region.peer(), start);
                    add(&counts.requests, 1);
                }
                Look::Stale => add(&counts.stale, 1),
                Look::Impossible => add(&counts.impossible, 1),
                Look::Nothing => return,
            }
        }
    }
}

impl Responder for RingResponder {
    fn queues(&self) -> usize {
        self.registry.terms().lanes
    }

    fn poll_slots(&mut self, queue: usize, burst: usize) -> usize {
        self.follow();
        self.requests.clear();
        let (clients, mut places) =
            (std::mem::take(&mut self.clients), std::mem::take(&mut self.places));
        places.clear();
        places.extend(self.registry.active(self.worker, queue).walk(self.turn[queue]));
        by_turns(&places, burst, 0, |place| {
            if let Some(Some(region)) = clients.get(*place) {
                self.take_of(region, queue, burst);
            }
            self.requests.len()
        });
        // Behind whoever came first, so that each is first in turn.
        if let Some(first) = places.first() {
            self.turn[queue] = (first + 1) % clients.len().max(1);
        }
        (self.clients, self.places) = (clients, places);
        self.requests.len()
    }

    fn request(&self, index: usize) -> Request<'_> {
        self.requests.request(index)
    }

    fn reply(&mut self, peer: Peer, queue: usize, pieces: &[IoSlice<'_>], spare: usize) -> Posted {
        self.follow();
        let region = self.clients.get(usize::from(peer.client)).and_then(Option::as_ref);
        let posted = match region.filter(|region| region.peer() == peer) {
            Some(region) => region.reply(self.worker, queue, pieces, spare),
            None => Posted::Gone,
        };
        let counts = &self.registry.counts[self.worker];
        match posted {
            Posted::Done => {
                add(&counts.verbs_send, 1);
                if !self.replied.contains(&peer.client) {
                    self.replied.push(peer.client);
                }
            }
            Posted::Full => {
                self.registry.blocked(self.worker).add(usize::from(peer.client));
                add(&counts.replies_without_room, 1);
            }
            Posted::Gone => add(&counts.replies_to_nobody, 1),
        }
        posted
    }

    fn pump(&mut self) -> io::Result<()> {
        for client in self.replied.drain(..) {
            let region = self.clients.get(usize::from(client)).and_then(Option::as_ref);
            if region.is_some_and(|region| region.wake_client()) {
                add(&self.registry.counts[self.worker].clients_woken, 1);
            }
        }
        Ok(())
    }

    fn tidy(&mut self) {
        if !is_planted(Bug::RegionKept) {
            self.follow();
        }
    }

    fn lenders(&self) -> Box<dyn Lenders> {
        Box::new(RingLenders::new(self.registry.clone()))
    }
}

/// What a client is given.
pub struct Given {
    /// Its region.
    pub map: Mapped,
    /// How that is laid out.
    pub terms: Terms,
    /// One for each lane.
    pub doorbells: Vec<OwnedFd>,
    /// It is a client as long as this is open.
    pub door: OwnedFd,
}

/// Memory that this client has lent, or may.
#[derive(Debug, Clone, Default)]
struct Block {
    /// The loan's number; 0 of none.
    number: u64,
    /// Whoever lent it needs it no more; it is free once its reader is through.
    is_over: bool,
}

/// The client's handle. Its region is gone when it is dropped.
pub struct RingRequester {
    map: Mapped,
    terms: Terms,
    doorbells: Vec<OwnedFd>,
    /// By lane: the next request's number.
    requests: Vec<u32>,
    /// By worker: the next reply's.
    replies: Vec<u32>,
    /// Lanes that were posted to since the last pump, and workers whose replies were taken.
    posted: Vec<usize>,
    taken: Vec<usize>,
    /// Whose replies are looked at first.
    turn: usize,
    room: Vec<u8>,
    blocks: Vec<Block>,
    /// Who of these has which memory.
    places: Ledger,
    numbers: u64,
    verbs: Verbs,
    /// What keeps the server knowing us.
    door: OwnedFd,
}

impl RingRequester {
    /// A client with what it was given.
    pub fn new(given: Given) -> RingRequester {
        let Given { map, terms, doorbells, door } = given;
        RingRequester {
            map,
            terms,
            doorbells,
            requests: vec![1; terms.lanes],
            replies: vec![1; terms.lanes],
            posted: Vec::new(),
            taken: Vec::new(),
            turn: 0,
            room: Vec::new(),
            blocks: vec![Block::default(); terms.loans],
            places: Ledger::new(terms.bulk_bytes),
            numbers: 0,
            verbs: Verbs::default(),
            door,
        }
    }

    /// What the server gave.
    pub fn terms(&self) -> Terms {
        self.terms
    }

    fn loan_word(&self, loan: usize) -> &AtomicU64 {
        &self.map.words()[self.terms.loan(loan)]
    }

    /// Put a long message where the server may read it. `None`: there is no room now; for one
    /// longer than the terms' `bulk_bytes` there never is.
    pub fn lend(&mut self, message: &[u8]) -> Option<Descriptor> {
        self.lend_pieces(&[message])
    }

    /// The same of a message in pieces.
    pub fn lend_pieces(&mut self, pieces: &[&[u8]]) -> Option<Descriptor> {
        self.sweep();
        let length: usize = pieces.iter().map(|piece| piece.len()).sum();
        let bytes = u32::try_from(length).ok().filter(|bytes| *bytes > 0)?;
        let loan = self.blocks.iter().position(|block| block.number == 0)?;
        let Place { offset, .. } = self.places.take(loan as u16, length, 0, u64::MAX)?;
        self.numbers += 1;
        let number = self.numbers;
        let mut at = offset;
        for piece in pieces {
            words::write(&self.map.words()[self.terms.bulk()], at, piece);
            at += piece.len();
        }
        slot::offer(self.loan_word(loan), number);
        self.blocks[loan] = Block { number, is_over: false };
        Some(Descriptor { loan: loan as u32, number, offset: offset as u64, bytes })
    }

    /// Lend the same message again, if its last reader is through with it: a request is repeated.
    pub fn lend_again(&mut self, descriptor: Descriptor) -> Descriptor {
        let loan = descriptor.loan as usize;
        if slot::loan(self.loan_word(loan)) != Loan::Ended {
            return descriptor; // whoever reads it, or will, need not begin anew
        }
        self.numbers += 1;
        self.blocks[loan].number = self.numbers;
        slot::offer(self.loan_word(loan), self.numbers);
        Descriptor { number: self.numbers, ..descriptor }
    }

    /// The message is needed no more: it was answered, or given up. Its memory is free once nobody
    /// reads it.
    pub fn take_back(&mut self, descriptor: Descriptor) {
        self.blocks[descriptor.loan as usize].is_over = true;
        self.sweep();
    }

    fn sweep(&mut self) {
        for loan in 0..self.blocks.len() {
            let Block { is_over, number, .. } = self.blocks[loan];
            if !is_over {
                continue;
            }
            let word = self.loan_word(loan);
            if slot::loan(word) == Loan::Ended || slot::take_back(word, number) {
                self.blocks[loan] = Block::default();
                self.places.give_back(loan as u16);
            }
        }
    }

    /// The long reply that a notice tells of, where it lies. `None`: it lies nowhere, or not any
    /// more.
    pub fn open_reply(&self, said: Descriptor) -> Option<LyingReply<'_>> {
        let end = said.offset.checked_add(said.bytes.into())?;
        let fits = (said.loan as usize) < self.terms.places && end <= self.terms.reply_bytes as u64;
        // The server is not hostile, but may have been killed in the middle of anything.
        if !fits || said.number == 0 {
            return None;
        }
        let words = self.map.words();
        let (memory, word) =
            (&words[self.terms.long_replies()], &words[self.terms.place(said.loan as usize)]);
        place::is_told(word, said.number).then_some(LyingReply { memory, word, said })
    }

    /// Whether the server is writing the long reply to request `id` into its place. It may have
    /// told of it, or let go of it, meanwhile.
    pub fn is_writing(&self, id: u16) -> bool {
        let words = self.map.words();
        let is_of = |place| words[self.terms.writing(place)].load(Relaxed) == u64::from(id) + 1;
        (0..self.terms.places).any(is_of)
    }

    /// Whether the next slot of a lane is free.
    pub fn has_room(&self, queue: usize) -> bool {
        slot::is_free(&self.map.words()[self.terms.request(queue, self.requests[queue])])
    }

    /// Whether the server has ended, or sent us away.
    pub fn is_server_gone(&self) -> bool {
        has_ended(&self.door)
    }

    /// Whether a reply is there.
    pub fn has_reply(&self) -> bool {
        let there = |worker: usize| {
            slot::is_taken(&self.map.words()[self.terms.reply(worker, self.replies[worker])])
        };
        (0..self.terms.lanes).any(there)
    }

    /// Sleep until there is a reply, and at most so long.
    pub fn sleep(&self, most: Duration) -> io::Result<()> {
        let word = self.map.sleep_word();
        slot::fall_asleep(word);
        if self.has_reply() {
            slot::wake_up(word);
            return Ok(());
        }
        let most = Timespec::try_from(most).ok();
        let woken = futex::wait(word, futex::Flags::empty(), 1, most.as_ref());
        slot::wake_up(word);
        match woken {
            // The sleep has an end: time is up, a signal came, or the word had changed.
            Ok(()) | Err(Errno::TIMEDOUT | Errno::INTR | Errno::AGAIN) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn take_reply(&mut self, worker: usize, take: &mut dyn FnMut(usize, &[u8])) -> bool {
        let expected = self.replies[worker];
        let slot = &self.map.words()[self.terms.reply(worker, expected)];
        if !slot::is_taken(slot) {
            return false;
        }
        self.room.clear();
        let control = match slot::take(slot, &mut self.room) {
            Taken::Empty => return false,
            Taken::Message(control) => control,
            Taken::Impossible(_) => Control { sequence: 0, note: 0, bytes: 0 },
        };
        slot::free(slot);
        // The server is not hostile, but may have been killed in the middle of anything.
        if control.sequence == expected {
            self.replies[worker] = slot::next(expected);
            self.verbs.receives += 1;
            take(usize::from(control.note), &self.room);
        }
        if !self.taken.contains(&worker) {
            self.taken.push(worker);
        }
        true
    }

    fn ring(&mut self, lane: usize, bell: usize) -> io::Result<()> {
        if !slot::must_ring(&self.map.words()[bell]) {
            return Ok(());
        }
        self.verbs.rings += 1;
        match rustix::io::write(&self.doorbells[lane], &1u64.to_ne_bytes()) {
            Ok(_) | Err(Errno::AGAIN | Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// A long reply where the server wrote it. It may be written over at any moment, if its client does
/// not say for a while that it has it: whoever has read asks [`LyingReply::is_there`].
pub struct LyingReply<'a> {
    memory: &'a [AtomicU64],
    word: &'a AtomicU64,
    said: Descriptor,
}

impl LyingReply<'_> {
    /// How long it is.
    pub fn bytes(&self) -> usize {
        self.said.bytes as usize
    }

    /// A copy of some of it.
    ///
    /// # Panics
    /// If it does not reach so far.
    pub fn copied(&self, range: Range<usize>) -> Vec<u8> {
        assert!(range.end <= self.bytes(), "beyond its end");
        let mut out = Vec::with_capacity(range.len() + SLACK);
        let from = self.said.offset as usize + range.start;
        // In front of a vector bytes go one by one that begin within a word: no more than these.
        let first = (from.next_multiple_of(8) - from).min(range.len());
        words::read_into(self.memory, from, first, &mut out);
        words::read_into(self.memory, from + first, range.len() - first, &mut out);
        out
    }

    /// The same into `out`: as much as that has, from `from` on.
    ///
    /// # Panics
    /// If it does not reach so far.
    pub fn copy(&self, from: usize, out: &mut [u8]) {
        assert!(from <= self.bytes() && out.len() <= self.bytes() - from, "beyond its end");
        words::read_to(self.memory, self.said.offset as usize + from, out);
    }

    /// Behind the last byte: whether all that was copied was of this reply.
    pub fn is_there(&self) -> bool {
        place::is_told_still(self.word, self.said.number)
    }
}

/// Whether the other side of a connection has ended it.
pub(crate) fn has_ended(connection: impl AsFd) -> bool {
    let mut room = [0; 1];
    let flags = RecvFlags::DONTWAIT | RecvFlags::PEEK;
    match rustix::net::recv(connection, &mut room, flags) {
        Ok((count, _)) => count == 0,
        Err(Errno::AGAIN | Errno::INTR) => false,
        Err(_) => true,
    }
}

impl Requester for RingRequester {
    fn queues(&self) -> usize {
        self.terms.lanes
    }

    fn post_request(&mut self, queue: usize, message: &[u8]) -> Posted {
        assert!(message.len() <= MESSAGE_BYTES_MAX, "a request of {} bytes", message.len());
        let sequence = self.requests[queue];
        let slot = &self.map.words()[self.terms.request(queue, sequence)];
        if !slot::is_free(slot) {
            return Posted::Full;
        }
        let control = Control { sequence, note: 0, bytes: message.len() as u16 };
        slot::write(slot, control, [message]);
        self.requests[queue] = slot::next(sequence);
        self.verbs.writes += 1;
        if !self.posted.contains(&queue) {
            self.posted.push(queue);
        }
        Posted::Done
    }

    fn poll_replies(&mut self, burst: usize, take: &mut dyn FnMut(usize, &[u8])) -> usize {
        let mut count = 0;
        for number in 0..self.terms.lanes {
            let worker = (self.turn + number) % self.terms.lanes;
            while count < burst && self.take_reply(worker, take) {
                count += 1;
            }
        }
        self.turn = (self.turn + 1) % self.terms.lanes;
        count
    }

    fn pump(&mut self) -> io::Result<()> {
        while let Some(lane) = self.posted.pop() {
            self.ring(lane, self.terms.bell(lane))?;
        }
        while let Some(worker) = self.taken.pop() {
            self.ring(worker, self.terms.room_bell(worker))?;
        }
        Ok(())
    }

    fn verbs(&self) -> Verbs {
        self.verbs
    }
}
