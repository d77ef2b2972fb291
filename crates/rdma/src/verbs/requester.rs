//! The client's side: it writes requests into the server's memory, and takes replies as datagrams.

use super::card::{Card, Place, Registered, Trouble, Writers};
use super::greeting::{Heard, Hello, LINE_BYTES_MAX, QKEY_MAX, Welcome};
use super::pair::{Channel, Depths, Far, NUMBER_BITS, Pair, Queue, Service, draw};
use super::post::{Came, Post, ROUTE_BYTES, Receiver, Sender};
use super::yard::{Bounds, Credit, control, told_of};
use crate::contract::{MESSAGE_BYTES_MAX, Posted, Requester, Verbs};
use crate::layout::{HEAD_BYTES, LINE_BYTES, SLOT_BYTES, SLOT_WORDS};
use laneway_sync::prim::Ordering::Relaxed;
use laneway_sync::{slot, words};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{RecvFlags, recv};
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

/// The client's handle. The server lets go of it when it is dropped.
pub struct VerbsRequester {
    bounds: Bounds,
    sender: Sender,
    receiver: Receiver,
    slots_address: u64,
    slots_rkey: u32,
    /// By lane.
    credits: Vec<Credit>,
    /// What came and was not taken.
    came: VecDeque<Came>,
    new: Vec<Came>,
    room: Vec<u8>,
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
pub fn enter(mut stream: TcpStream, place: &Place, service: Service) -> io::Result<VerbsRequester> {
    let card = Card::open(place).map_err(other)?;
    let sends = Queue::new(&card, 2 * DEPTH, None).map_err(other)?;
    let depths = Depths { sends: DEPTH, receives: 1 };
    let pair = Pair::new(&card, Some(service), &sends, &sends, &depths).map_err(other)?;
    let (receiver, qkey) = receiver(&card)?;
    let far = Far {
        address: card.address(),
        mtu: card.mtu(),
        number: pair.number(),
        psn: draw() & ((1 << NUMBER_BITS) - 1),
    };
    let hello = Hello { service, far, replies_number: receiver.number(), replies_qkey: qkey };
    stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
    stream.set_write_timeout(Some(ANSWER_TIMEOUT))?;
    stream.write_all(hello.to_string().as_bytes())?;
    let Welcome { bounds, far: theirs, slots_address, slots_rkey } = answer(&mut stream)?;
    let memory = Registered::new(&card, bounds.bytes(), Writers::Device).map_err(other)?;
    pair.connect(service, far.psn, &theirs).map_err(other)?;
    Ok(VerbsRequester {
        bounds,
        sender: Sender::new(pair, Arc::new(memory), DEPTH),
        receiver,
        slots_address,
        slots_rkey,
        credits: vec![Credit::default(); bounds.lanes],
        came: VecDeque::new(),
        new: Vec::new(),
        room: Vec::new(),
        is_broken: false,
        verbs: Verbs::default(),
        door: stream,
    })
}

/// What takes replies, and its key.
fn receiver(card: &Arc<Card>) -> io::Result<(Receiver, u32)> {
    let channel = Arc::new(Channel::new(card).map_err(other)?);
    let queue = Queue::new(card, PLACES, Some(channel)).map_err(other)?;
    let depths = Depths { sends: 1, receives: PLACES };
    let pair = Pair::new(card, None, &queue, &queue, &depths).map_err(other)?;
    let memory = Registered::new(card, PLACES * STRIDE, Writers::Device).map_err(other)?;
    let qkey = draw() & QKEY_MAX;
    pair.open_datagrams(qkey).map_err(other)?;
    Ok((Receiver::new(pair, Arc::new(memory), STRIDE, PLACES)?, qkey))
}

/// The server's line.
fn answer(stream: &mut TcpStream) -> io::Result<Welcome> {
    let (mut said, mut room) = (Vec::new(), [0; LINE_BYTES_MAX]);
    loop {
        match Welcome::hear(&said) {
            Heard::Whole(welcome) => return Ok(welcome),
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

    /// How many more requests a lane takes now.
    pub fn room(&mut self, lane: usize) -> usize {
        self.credits[lane].room(&self.bounds).min(self.sender.room())
    }

    /// There was less room in a lane than somebody wants, once more: the server may have said that
    /// there is, and was not heard. Now and then it is asked.
    pub fn want_room(&mut self, lane: usize) {
        if self.credits[lane].was_full() {
            self.ask(lane);
        }
    }

    /// Write a word behind the memory that the server gave, as who is hostile would: whoever tests
    /// a device sees it refused. Over RC the connection is broken then.
    pub fn write_outside(&mut self) {
        if self.sender.has_room(0) {
            let outside = self.bounds.bytes().next_multiple_of(HEAD_BYTES) as u64;
            self.sender.write(0..8, self.slots_address + outside, self.slots_rkey);
        }
    }

    /// Write a word by which the server is asked how many of a lane it took.
    fn ask(&mut self, lane: usize) {
        if self.sender.has_room(0) {
            let word = self.bounds.ask(lane);
            self.sender.memory().words()[word].store(1, Relaxed);
            let at = 8 * word;
            self.sender.write(at..at + 8, self.slots_address + at as u64, self.slots_rkey);
            self.verbs.writes += 1;
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
        if !self.credits[queue].has_room(&self.bounds) {
            self.want_room(queue);
            return Posted::Full;
        }
        if !self.sender.has_room(0) {
            return Posted::Full;
        }
        let number = self.credits[queue].next;
        // The same place here as over there: what was written from it last was taken, so it left.
        let place = self.bounds.slot(queue, number);
        let begins = slot::begins(SLOT_WORDS, message.len());
        let memory = &self.sender.memory().words()[place.clone()];
        words::write(memory, begins, message);
        let word = control(number, message.len()).pack().to_le();
        memory[SLOT_WORDS - 1].store(word, Relaxed);
        let from = 8 * place.start + begins..8 * place.end;
        let address = self.slots_address + from.start as u64;
        self.sender.write(from, address, self.slots_rkey);
        self.credits[queue].posted();
        self.verbs.writes += 1;
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
            if !self.room.is_empty() {
                count += 1;
                take(lane, &self.room);
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
