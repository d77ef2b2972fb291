//! Posts lists of work requests to queue pairs, with one doorbell for each list.
//!
//! [`Sender`] asks for a completion of one request in [`SIGNAL_EVERY`] (HERD §3.2.2, "selective
//! signaling"); what is short enough travels in the request itself ("inlining"). [`Receiver`] has
//! places for datagrams and gives them back in lists.
#![allow(unsafe_code)]

use super::card::{Address, Domain, Registered, Trouble, Writers, refused};
use super::ffi::{self, Completion};
use super::greeting::QKEY_MAX;
use super::pair::{Channel, Depths, Pair, Queue, draw};
use crate::layout::SLOT_BYTES;
use laneway_sync::words;
use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;

pub use super::inbox::{Came, ROUTE_BYTES};

/// Of how many work requests one says when it has completed.
pub const SIGNAL_EVERY: u64 = 32;
/// Completions taken by one call.
const POLL_BURST: usize = 64;

/// Where datagrams go.
pub struct Handle {
    domain: Arc<Domain>,
    handle: NonNull<ffi::AddressHandle>,
}

// SAFETY: the pointer belongs to no thread, and nobody writes what is behind it.
unsafe impl Send for Handle {}
// SAFETY: as above.
unsafe impl Sync for Handle {}

impl Handle {
    pub fn new(domain: &Arc<Domain>, to: &Address) -> Result<Handle, Trouble> {
        let card = domain.card();
        let mut path = card.path(to);
        // SAFETY: the domain is alive, the path ours.
        let handle = unsafe { (card.library.create_ah)(domain.domain.as_ptr(), &raw mut path) };
        let handle = NonNull::new(handle).ok_or_else(|| refused("an address"))?;
        Ok(Handle { domain: domain.clone(), handle })
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: a `Sender` has hold of the mailbox until what it sent there has completed, so
        // nothing under way names the handle.
        unsafe { (self.domain.card().library.destroy_ah)(self.handle.as_ptr()) };
    }
}

/// A work request in a list.
trait Listed {
    fn link(&mut self, pieces: *mut ffi::Piece, next: *mut Self);
}

impl Listed for ffi::SendRequest {
    fn link(&mut self, pieces: *mut ffi::Piece, next: *mut Self) {
        (self.pieces, self.next) = (pieces, next);
    }
}

impl Listed for ffi::ReceiveRequest {
    fn link(&mut self, pieces: *mut ffi::Piece, next: *mut Self) {
        (self.pieces, self.next) = (pieces, next);
    }
}

/// Makes a list of all requests, each with the piece of its number, and returns its first. The list
/// is good until somebody touches either.
fn list<R: Listed>(requests: &mut [R], pieces: &mut [ffi::Piece]) -> *mut R {
    assert_eq!(requests.len(), pieces.len(), "a piece for each request");
    let (count, first, pieces) = (requests.len(), requests.as_mut_ptr(), pieces.as_mut_ptr());
    for at in 0..count {
        let next = if at + 1 == count { std::ptr::null_mut() } else { first.wrapping_add(at + 1) };
        // SAFETY: `count` requests begin at `first`, and nobody else has hold of them.
        unsafe { &mut *first.add(at) }.link(pieces.wrapping_add(at), next);
    }
    first
}

/// A queue pair that sends from memory of its own.
pub struct Sender {
    pair: Pair,
    // Behind the pair.
    memory: Arc<Registered>,
    requests: Vec<ffi::SendRequest>,
    pieces: Vec<ffi::Piece>,
    depth: u64,
    /// Requests ever gathered, and ever completed.
    gathered: u64,
    completed: u64,
    /// The last that will say when it has.
    signalled: u64,
    /// Of how many requests one says so.
    signal_every: u64,
    /// How many ever did.
    completions: u64,
    /// Longest message that travels in its request.
    inline_bytes: usize,
    is_broken: bool,
    /// To whom something is under way, until the request of this number has completed. Behind the
    /// pair.
    held: VecDeque<(u64, Arc<Mailbox>)>,
}

// SAFETY: the lists point into each other only while a call posts them; the rest is `Send`.
unsafe impl Send for Sender {}

impl Sender {
    pub fn new(pair: Pair, memory: Arc<Registered>, depth: usize) -> Sender {
        Sender {
            inline_bytes: pair.inline_bytes,
            pair,
            memory,
            requests: Vec::with_capacity(depth),
            pieces: Vec::with_capacity(depth),
            depth: depth as u64,
            gathered: 0,
            completed: 0,
            signalled: 0,
            signal_every: SIGNAL_EVERY,
            completions: 0,
            is_broken: false,
            held: VecDeque::new(),
        }
    }

    /// One that sends datagrams, `depth` of them at a time, from places of [`SLOT_BYTES`]; and its
    /// key.
    pub fn of_datagrams(domain: &Arc<Domain>, depth: usize) -> Result<(Sender, u32), Trouble> {
        let queue = Queue::new(domain.card(), 2 * depth, None)?;
        let depths = Depths { sends: depth, receives: 1 };
        let pair = Pair::new(domain, None, &queue, &queue, &depths)?;
        let qkey = draw() & QKEY_MAX;
        pair.open_datagrams(qkey)?;
        let memory = Arc::new(Registered::new(domain, depth * SLOT_BYTES, Writers::Device)?);
        Ok((Sender::new(pair, memory, depth), qkey))
    }

    /// By which who takes its datagrams knows it.
    pub fn number(&self) -> u32 {
        self.pair.number()
    }

    /// Have one of so many requests say when it has completed, and nothing travel in its request
    /// unless it may: for who measures what these habits are worth.
    pub fn set_habits(&mut self, may_inline: bool, signal_every: u64) {
        self.inline_bytes = if may_inline { self.pair.inline_bytes } else { 0 };
        self.signal_every = signal_every;
    }

    /// Longest message that travels in its request.
    pub fn inline_bytes(&self) -> usize {
        self.inline_bytes
    }

    /// How many requests have said that they completed.
    pub fn completions(&self) -> u64 {
        self.completions
    }

    /// The memory that it sends from.
    pub fn memory(&self) -> &Registered {
        &self.memory
    }

    /// How many were gathered, and how many have certainly left.
    pub fn gathered(&self) -> u64 {
        self.gathered
    }

    pub fn completed(&self) -> u64 {
        self.completed
    }

    /// Whether `more` can be gathered, and `spare` behind them.
    pub fn has_room(&mut self, spare: usize) -> bool {
        let room = |sender: &Sender| {
            let under_way = sender.gathered - sender.completed;
            under_way + 1 + spare as u64 <= sender.depth
        };
        if !room(self) {
            self.poll();
        }
        room(self)
    }

    /// Whether something was gathered that is not posted.
    pub fn has_gathered(&self) -> bool {
        !self.requests.is_empty()
    }

    /// How many can be gathered now.
    pub fn room(&mut self) -> usize {
        self.poll();
        (self.depth - (self.gathered - self.completed)) as usize
    }

    /// Take in what has completed. False: the pair is broken.
    pub fn poll(&mut self) -> bool {
        let mut room = [Completion::default(); POLL_BURST];
        while !self.is_broken {
            let Ok(count) = self.pair.sends.poll(&mut room) else {
                self.is_broken = true;
                break;
            };
            self.completions += count as u64;
            for completion in &room[..count] {
                self.completed = self.completed.max(completion.id);
                self.is_broken |= completion.status != 0;
            }
            if count < room.len() {
                break;
            }
        }
        while self.held.front().is_some_and(|(number, _)| *number <= self.completed) {
            self.held.pop_front();
        }
        !self.is_broken
    }

    /// Gather one more: bytes `from` of the memory.
    fn gather(&mut self, from: Range<usize>, request: ffi::SendRequest) {
        assert!(from.start <= from.end && from.end <= self.memory.bytes(), "beyond the memory");
        assert!(self.gathered - self.completed < self.depth, "no room was asked for");
        self.gathered += 1;
        let mut flags = 0;
        if self.gathered - self.signalled >= self.signal_every {
            flags |= ffi::FLAG_SIGNALED;
            self.signalled = self.gathered;
        }
        // What a READ brings is not there yet.
        if from.len() <= self.inline_bytes && request.operation != ffi::OP_READ {
            flags |= ffi::FLAG_INLINE;
        }
        let address = self.memory.address() + from.start as u64;
        let (bytes, lkey) = (from.len() as u32, self.memory.lkey());
        self.pieces.push(ffi::Piece { address, bytes, lkey });
        let pieces_count = i32::from(bytes > 0);
        self.requests.push(ffi::SendRequest { id: self.gathered, pieces_count, flags, ..request });
    }

    /// Gather a WRITE of bytes `from` of the memory to `address` over there.
    pub fn write(&mut self, from: Range<usize>, address: u64, rkey: u32) {
        self.gather_at(ffi::OP_WRITE, from, (address, rkey));
    }

    /// Gather a READ of what is at `address` over there, into bytes `to` of the memory.
    pub fn read(&mut self, to: Range<usize>, address: u64, rkey: u32) {
        self.gather_at(ffi::OP_READ, to, (address, rkey));
    }

    fn gather_at(&mut self, operation: i32, here: Range<usize>, there: (u64, u32)) {
        let mut request = ffi::SendRequest { operation, ..ffi::SendRequest::EMPTY };
        (request.target.address, request.target.key) = there;
        self.gather(here, request);
    }

    /// Gather a SEND of bytes `from` of the memory. `to` is there until it has completed.
    pub fn send(&mut self, from: Range<usize>, to: &Arc<Mailbox>, immediate: u32) {
        let operation = ffi::OP_SEND_WITH_IMMEDIATE;
        let mut request = ffi::SendRequest { operation, ..ffi::SendRequest::EMPTY };
        request.immediate = immediate.to_be();
        request.target.address = to.handle.handle.as_ptr() as u64;
        (request.target.key, request.target.datagram_qkey) = (to.number, to.qkey);
        self.gather(from, request);
        // Of a run to one client the last is enough: requests complete in their order.
        match self.held.back_mut().filter(|(_, held)| Arc::ptr_eq(held, to)) {
            Some((number, _)) => *number = self.gathered,
            None => self.held.push_back((self.gathered, to.clone())),
        }
    }

    /// The same of these bytes behind each other, no more than [`SLOT_BYTES`]: the memory has a
    /// place of so many for each request that may be under way.
    pub fn send_copy<'a>(
        &mut self,
        to: &Arc<Mailbox>,
        immediate: u32,
        pieces: impl Iterator<Item = &'a [u8]>,
    ) {
        // Its place was last used by a send that has completed.
        let start = (self.gathered % self.depth) as usize * SLOT_BYTES;
        let mut end = start;
        for piece in pieces {
            words::write(self.memory.words(), end, piece);
            end += piece.len();
        }
        self.send(start..end, to, immediate);
    }

    /// Post what was gathered. False: the pair is broken, and of what was posted nobody knows what
    /// arrived.
    pub fn post(&mut self) -> bool {
        if self.has_gathered() && !self.is_broken {
            let first = list(&mut self.requests, &mut self.pieces);
            // SAFETY: the list is good, for both vectors stay as they are meanwhile. The pair is
            // alive; each piece lies in the memory, which `gather` has made sure of and `self`
            // keeps longer than the pair.
            let status = unsafe { ffi::post_send(self.pair.pair.as_ptr(), first) };
            self.is_broken |= status != 0;
        }
        self.requests.clear();
        self.pieces.clear();
        !self.is_broken
    }

    /// Begin anew with datagrams: nothing is under way.
    pub fn open_datagrams(&mut self, qkey: u32) -> Result<(), Trouble> {
        self.pair.open_datagrams(qkey)?;
        self.requests.clear();
        self.pieces.clear();
        // What had completed is taken first, or it would be taken for what comes.
        let mut room = [Completion::default(); POLL_BURST];
        while self.pair.sends.poll(&mut room).is_ok_and(|count| count > 0) {}
        self.is_broken = false;
        (self.completed, self.signalled) = (self.gathered, self.gathered);
        self.held.clear();
        Ok(())
    }
}

/// Somebody who takes datagrams.
pub struct Mailbox {
    /// How to get there.
    pub handle: Arc<Handle>,
    /// The queue pair.
    pub number: u32,
    /// What it asks of whoever sends.
    pub qkey: u32,
}

/// A queue pair with places for datagrams.
pub struct Receiver {
    pair: Pair,
    // Behind the pair.
    memory: Arc<Registered>,
    stride: usize,
    places: usize,
    /// Places to give back.
    free: Vec<usize>,
    requests: Vec<ffi::ReceiveRequest>,
    pieces: Vec<ffi::Piece>,
}

// SAFETY: as for `Sender`.
unsafe impl Send for Receiver {}

impl Receiver {
    /// One that takes what is sent under `qkey`, in so many places of `stride` bytes each. Whoever
    /// sleeps until something comes does it at `channel`.
    pub fn new(
        domain: &Arc<Domain>,
        channel: Option<Arc<Channel>>,
        qkey: u32,
        stride: usize,
        places: usize,
    ) -> Result<Receiver, Trouble> {
        assert!(stride.is_multiple_of(8), "places of {stride} bytes");
        let queue = Queue::new(domain.card(), places, channel)?;
        let depths = Depths { sends: 1, receives: places };
        let pair = Pair::new(domain, None, &queue, &queue, &depths)?;
        pair.open_datagrams(qkey)?;
        let memory = Arc::new(Registered::new(domain, places * stride, Writers::Device)?);
        let free = (0..places).collect();
        let (requests, pieces) = (Vec::with_capacity(places), Vec::with_capacity(places));
        let mut receiver = Receiver { pair, memory, stride, places, free, requests, pieces };
        receiver.give_back_all()?;
        Ok(receiver)
    }

    /// By which senders know it.
    pub fn number(&self) -> u32 {
        self.pair.number()
    }

    /// The queue that says what came.
    pub fn queue(&self) -> &Arc<Queue> {
        &self.pair.receives
    }

    /// Take what came, behind what is in `out`; a broken pair says so.
    pub fn poll(&mut self, out: &mut impl Extend<Came>) -> io::Result<()> {
        let mut room = [Completion::default(); POLL_BURST];
        let count = self.pair.receives.poll(&mut room)?;
        for completion in &room[..count] {
            let place = completion.id as usize;
            let with_word = completion.flags & ffi::WITH_IMMEDIATE != 0;
            let bytes = (completion.bytes as usize).checked_sub(ROUTE_BYTES);
            let fits = |bytes: &usize| with_word && *bytes <= self.stride - ROUTE_BYTES;
            match bytes.filter(fits) {
                _ if completion.status != 0 => {
                    return Err(io::Error::other("the receiving queue pair is broken"));
                }
                Some(bytes) => {
                    let immediate = u32::from_be(completion.immediate);
                    let has_route = completion.flags & ffi::WITH_ROUTE != 0;
                    let lid = (!has_route).then_some(completion.source_lid);
                    let number = completion.source;
                    out.extend([Came { place, bytes, immediate, number, lid }]);
                }
                None => self.free.push(place), // nobody who speaks with us sent this
            }
        }
        Ok(())
    }

    /// Copy a datagram behind what is in `out`; its place is free.
    pub fn take(&mut self, came: Came, out: &mut Vec<u8>) {
        let at = came.place * self.stride + ROUTE_BYTES;
        words::read_into(self.memory.words(), at, came.bytes, out);
        self.free.push(came.place);
    }

    /// Copy its route, [`ROUTE_BYTES`], behind what is in `out`.
    pub fn read_route(&self, came: &Came, out: &mut Vec<u8>) {
        words::read_into(self.memory.words(), came.place * self.stride, ROUTE_BYTES, out);
    }

    /// Begin anew with datagrams: every place is free, and what came and was not taken is lost.
    pub fn open_datagrams(&mut self, qkey: u32) -> Result<(), Trouble> {
        self.pair.open_datagrams(qkey)?;
        // As in `Sender::open_datagrams`.
        let mut room = [Completion::default(); POLL_BURST];
        while self.pair.receives.poll(&mut room).is_ok_and(|count| count > 0) {}
        self.free.clear();
        self.free.extend(0..self.places);
        self.give_back_all()
    }

    fn give_back_all(&mut self) -> Result<(), Trouble> {
        self.give_back().map_err(|why| Trouble::of("places for datagrams", why))
    }

    /// Give free places to the device.
    pub fn give_back(&mut self) -> io::Result<()> {
        if self.free.is_empty() {
            return Ok(());
        }
        self.requests.clear();
        self.pieces.clear();
        for place in self.free.drain(..) {
            let address = self.memory.address() + (place * self.stride) as u64;
            let bytes = self.stride as u32;
            self.pieces.push(ffi::Piece { address, bytes, lkey: self.memory.lkey() });
            self.requests.push(ffi::ReceiveRequest {
                id: place as u64,
                next: std::ptr::null_mut(),
                pieces: std::ptr::null_mut(),
                pieces_count: 1,
            });
        }
        let first = list(&mut self.requests, &mut self.pieces);
        // SAFETY: as in `Sender::post`; a place is given once and comes back by a completion, and
        // what is there is read as atomic words, whoever writes.
        let status = unsafe { ffi::post_receive(self.pair.pair.as_ptr(), first) };
        match status {
            0 => Ok(()),
            status => Err(io::Error::from_raw_os_error(status.abs())),
        }
    }
}
