//! The client's side: it writes requests into the server's memory, or sends them to a worker, and
//! takes replies as datagrams.

use super::card::{Card, Domain, Place, Registered, Trouble, Writers};
use super::greeting::{Heard, Hello, LINE_BYTES_MAX, Mailboxes, QKEY_MAX, Span, Welcome};
use super::outbound::{self, Outbound};
use super::pair::{Channel, Depths, Far, NUMBER_BITS, Pair, Queue, Service, draw};
use super::parts::Joiner;
use super::post::{Came, Post, ROUTE_BYTES, Receiver, Sender};
use super::request_ring::{Bounds, Credit, PART, told_of};
use crate::contract::{Lend, LongRequester, MESSAGE_BYTES_MAX, Posted, Requester, Verbs};
use crate::layout::{BULK_BYTES_MAX, HEAD_BYTES, LINE_BYTES, SLOT_BYTES};
use crate::long::ledger::Ledger;
use crate::long::sealed_descriptor::{PIECE_BYTES, SealedDescriptor};
use crate::remote::Lending;
use laneway_sync::words;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{RecvFlags, Shutdown, recv, shutdown};
use std::collections::VecDeque;
use std::fmt;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

/// Requests under way to the card.
const DEPTH: usize = 128;
/// Places for replies: a large value comes in many at once.
const PLACES: usize = 1024;
/// Bytes of each.
const STRIDE: usize = (ROUTE_BYTES + SLOT_BYTES).next_multiple_of(LINE_BYTES);
/// How long a client waits for the server's line.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// WRITEs of one long request, at most: half of what may be under way. So much, 2 MiB, goes ahead
/// of a small request of the same client that is posted behind it; of nobody else's.
const PIECES_MAX: usize = DEPTH / 2;

/// What is left of the memory that may be locked when some is lent: slots of some twenty workers.
const SPARE_BYTES: usize = 1 << 20;

/// Where long requests lie.
enum Requests {
    Nowhere,
    /// In memory of ours, which the server READs.
    Ours(Registered),
    /// In memory of the server's, written from behind our slots.
    Theirs(Span),
}

/// The client's handle. The server lets go of it when it is dropped.
pub struct VerbsRequester {
    bounds: Bounds,
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

fn other(trouble: Trouble) -> io::Error {
    io::Error::other(trouble)
}

/// Become a client of the server whose door is `stream`.
pub fn enter(
    stream: TcpStream,
    place: &Place,
    service: Service,
    lending: Lending,
) -> io::Result<VerbsRequester> {
    let mut requester = match service {
        Service::Datagrams => greet_mailroom(stream, place)?,
        Service::Unreliable | Service::Reliable => greet(stream, place, service, lending)?,
    };
    // The server sends away who does not write for a while: it may be nobody.
    requester.ask(0);
    requester.pump()?;
    Ok(requester)
}

/// Say hello, and connect to what the server answers.
fn greet(
    mut stream: TcpStream,
    place: &Place,
    service: Service,
    lending: Lending,
) -> io::Result<VerbsRequester> {
    let card = Card::open(place).map_err(other)?;
    let domain = Domain::new(&card).map_err(other)?;
    let sends = Queue::new(&card, 2 * DEPTH, None).map_err(other)?;
    let depths = Depths { sends: DEPTH, receives: 1 };
    let pair = Pair::new(&domain, Some(service), &sends, &sends, &depths).map_err(other)?;
    let (receiver, qkey) = receiver(&domain)?;
    let far = Far {
        address: card.address(),
        mtu: card.mtu(),
        number: pair.number(),
        psn: draw() & ((1 << NUMBER_BITS) - 1),
    };
    let spare = Registered::new(&domain, SPARE_BYTES, Writers::Device).ok();
    let lending = if spare.is_some() { lending } else { Lending::NOTHING };
    let replies = lent(&domain, lending.replies_bytes, Writers::Remote);
    let (ours, wished_bytes) = match service {
        Service::Reliable => (lent(&domain, lending.requests_bytes, Writers::Readers), 0),
        _ => (None, lending.requests_bytes.min(BULK_BYTES_MAX)),
    };
    drop(spare);
    let wish = Span { bytes: wished_bytes as u32, ..Span::default() };
    let hello = Hello {
        service,
        far,
        replies_number: receiver.number(),
        replies_qkey: qkey,
        replies: replies.as_ref().map_or(Span::default(), span),
        requests: ours.as_ref().map_or(wish, span),
    };
    let welcome = say(&mut stream, &hello, Welcome::hear)?;
    let Welcome { bounds, far: theirs, slots_address, slots_rkey, grant } = welcome;
    let grant = Span { bytes: grant.bytes.min(wished_bytes as u32), ..grant }; // so much is locked
    let requests = match ours {
        Some(ours) => Requests::Ours(ours),
        None if grant.bytes > 0 => Requests::Theirs(grant),
        None => Requests::Nowhere,
    };
    let (memory, requests) = staged(&domain, bounds.bytes(), requests)?;
    match service {
        Service::Reliable => pair.connect_readers(far.psn, &theirs),
        _ => pair.connect(service, far.psn, &theirs),
    }
    .map_err(other)?;
    let ways = Ways {
        sender: Sender::new(pair, Arc::new(memory), DEPTH),
        outbound: Outbound::Slots { address: slots_address, rkey: slots_rkey },
        receiver,
    };
    Ok(VerbsRequester::new(bounds, ways, (replies, requests), stream))
}

/// Say hello, and send to what the server answers. Nothing is lent: long messages go in frames.
fn greet_mailroom(mut stream: TcpStream, place: &Place) -> io::Result<VerbsRequester> {
    let card = Card::open(place).map_err(other)?;
    let domain = Domain::new(&card).map_err(other)?;
    let (sender, number) = outbound::sender(&domain, DEPTH).map_err(other)?;
    let (receiver, replies_qkey) = receiver(&domain)?;
    let hello = Hello {
        service: Service::Datagrams,
        far: Far { address: card.address(), mtu: card.mtu(), number, psn: 0 },
        replies_number: receiver.number(),
        replies_qkey,
        replies: Span::default(),
        requests: Span::default(),
    };
    let theirs = say(&mut stream, &hello, Mailboxes::hear)?;
    let outbound = Outbound::to(&domain, &theirs).map_err(other)?;
    let ways = Ways { sender, outbound, receiver };
    Ok(VerbsRequester::new(theirs.bounds, ways, (None, Requests::Nowhere), stream))
}

/// What both directions go by.
struct Ways {
    sender: Sender,
    outbound: Outbound,
    receiver: Receiver,
}

/// Memory to lend, if there is to be some and so much may be locked.
fn lent(domain: &Arc<Domain>, bytes: usize, writers: Writers) -> Option<Registered> {
    let bytes = bytes.min(BULK_BYTES_MAX);
    (bytes > 0).then(|| Registered::new(domain, bytes, writers).ok()).flatten()
}

/// Memory for so many bytes of slots, and behind them for what is written elsewhere of `requests`,
/// if so much may be locked.
fn staged(
    domain: &Arc<Domain>,
    slots_bytes: usize,
    requests: Requests,
) -> io::Result<(Registered, Requests)> {
    let behind = requests.behind();
    match Registered::new(domain, slots_bytes + behind, Writers::Device) {
        Ok(memory) => Ok((memory, requests)),
        Err(_) if behind > 0 => {
            let memory = Registered::new(domain, slots_bytes, Writers::Device).map_err(other)?;
            Ok((memory, Requests::Nowhere))
        }
        Err(trouble) => Err(other(trouble)),
    }
}

fn span(memory: &Registered) -> Span {
    let bytes = memory.bytes().min(BULK_BYTES_MAX) as u32;
    Span { address: memory.address(), rkey: memory.rkey(), bytes }
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
    fn behind(&self) -> usize {
        if let Requests::Theirs(span) = self { span.bytes as usize } else { 0 }
    }
}

/// What takes replies, and its key.
fn receiver(domain: &Arc<Domain>) -> io::Result<(Receiver, u32)> {
    let card = domain.card();
    let channel = Arc::new(Channel::new(card).map_err(other)?);
    let queue = Queue::new(card, PLACES, Some(channel)).map_err(other)?;
    let depths = Depths { sends: 1, receives: PLACES };
    let pair = Pair::new(domain, None, &queue, &queue, &depths).map_err(other)?;
    let memory = Registered::new(domain, PLACES * STRIDE, Writers::Device).map_err(other)?;
    let qkey = draw() & QKEY_MAX;
    pair.open_datagrams(qkey).map_err(other)?;
    Ok((Receiver::new(pair, Arc::new(memory), STRIDE, PLACES)?, qkey))
}

/// Say hello. What the server answers.
fn say<T>(
    stream: &mut TcpStream,
    hello: &Hello,
    hear: impl Fn(&[u8]) -> Heard<T>,
) -> io::Result<T> {
    stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
    stream.set_write_timeout(Some(ANSWER_TIMEOUT))?;
    stream.write_all(hello.to_string().as_bytes())?;
    let (mut said, mut room) = (Vec::new(), [0; LINE_BYTES_MAX]);
    loop {
        match hear(&said) {
            Heard::Whole(answer) => return Ok(answer),
            Heard::Nonsense(why) => return Err(io::Error::other(why)),
            Heard::More => {}
        }
        match stream.read(&mut room) {
            Ok(0) => return Err(io::Error::other("the server said nothing more")),
            Ok(count) => said.extend_from_slice(&room[..count]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

impl VerbsRequester {
    fn new(
        bounds: Bounds,
        ways: Ways,
        (replies, requests): (Option<Registered>, Requests),
        door: TcpStream,
    ) -> VerbsRequester {
        let Ways { sender, outbound, receiver } = ways;
        VerbsRequester {
            bounds,
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
        let mut room = [0; 1];
        let flags = RecvFlags::DONTWAIT | RecvFlags::PEEK;
        match recv(&self.door, &mut room, flags) {
            _ if self.is_broken => true,
            Ok((count, _)) => count == 0,
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => false,
            Err(_) => true,
        }
    }

    /// Sleep until there is a reply, and at most so long.
    pub fn sleep(&mut self, most: Duration) -> io::Result<()> {
        let queue = self.receiver.queue();
        let Some(channel) = queue.channel.clone() else { return Ok(()) };
        queue.arm()?;
        if self.has_reply() {
            return Ok(());
        }
        let most = Timespec {
            tv_sec: most.as_secs().min(i64::MAX as u64) as i64,
            tv_nsec: most.subsec_nanos().into(),
        };
        let descriptor = channel.descriptor();
        let mut descriptors = [PollFd::from_borrowed_fd(descriptor, PollFlags::IN)];
        match poll(&mut descriptors, Some(&most)) {
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
        if self.sender.post() == Post::Broken {
            self.is_broken = true;
        }
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
