//! One lane's datagrams, whoever sent them: whose each is, and whether its sender may send it.
//!
//! A place for a datagram is everybody's, and a datagram that finds none is lost without a word. So
//! a client has a window, far smaller than its share of the places would be: the server tells it
//! with every reply how many of its datagrams were taken, and it sends no more than the window
//! beyond that. Each datagram says its number. One that is lost is passed over as soon as a later
//! one is here; whoever waits for an answer to it asks again. Where nothing later comes the client
//! *asks*, by an empty datagram with the number that its next one will have.
//!
//! Who sends another number than it may, or what a server sends, is hostile: it is thrown away, and
//! who goes on is cut off at the door ([`Mail::Flood`]). What comes of somebody who is in no table
//! is thrown away, too. (FaSST, OSDI '16 §4, has rings of RECVs for known peers, and nobody
//! hostile.)
//!
//! It knows no card: where datagrams come from is a [`Ring`].

use super::parts::{self, Joiner};
use super::request_ring::{PART, REQUEST, TOLD_MASK};
use crate::contract::{MESSAGE_BYTES_MAX, Peer};
use crate::door::network_of;
use crate::remote::Bounds;
use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::sync::{Arc, Mutex, PoisonError};

/// Bytes before a datagram's own, where its route stands, whether it has one or not.
pub const ROUTE_BYTES: usize = 40;
/// Numbers of datagrams that are no more than so far behind another are older than it.
const HALF: u32 = TOLD_MASK.div_ceil(2);
/// Strikes between two requests that a client may send: more, and it is cut off.
const STRIKES_MAX: u32 = 64;
/// For an *ask* that is answered: whoever is, and never sends anything, is no client.
const STRIKES_ASK: u32 = 1;

/// Through which port a datagram came into the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Port {
    /// One of the same subnet, by its number there.
    Local(u16),
    /// One with an address.
    Global([u8; 16]),
}

impl Port {
    /// The network that it is in, as a door has it of whoever comes.
    pub fn network(&self) -> Option<IpAddr> {
        match self {
            Port::Local(_) => None,
            Port::Global(gid) => Some(network_of(Ipv6Addr::from(*gid).to_canonical())),
        }
    }
}

/// Who sent a datagram: the device itself says it, so no user of another queue pair can pretend to
/// be this one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Source {
    /// By which port.
    pub port: Port,
    /// By which queue pair.
    pub number: u32,
}

/// A datagram that came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Came {
    /// Where it lies.
    pub place: usize,
    /// Its length.
    pub bytes: usize,
    /// What was said beside.
    pub immediate: u32,
    /// The queue pair that sent it.
    pub number: u32,
    /// The port that did; nothing where its route says it.
    pub lid: Option<u16>,
}

/// The port that a route names: with RoCE v2 over IPv4 the route is a header of IPv4 in the last 20
/// bytes, and else one of IPv6, whose layout is InfiniBand's own.
pub fn port_of(route: &[u8], is_v4: bool) -> Port {
    let mut gid = [0; 16];
    if is_v4 {
        gid[10..12].fill(0xff);
        gid[12..].copy_from_slice(&route[32..36]);
    } else {
        gid.copy_from_slice(&route[8..24]);
    }
    Port::Global(gid)
}

/// Whether an address of a port is one of IPv4.
pub fn is_v4(gid: &[u8; 16]) -> bool {
    gid[..10] == [0; 10] && gid[10..12] == [0xff; 2]
}

/// What is said beside a request, or an *ask*, of such a number.
pub fn request(number: u32) -> u32 {
    (number & TOLD_MASK) | REQUEST
}

/// The datagrams of a message: what is said beside each, and its bytes in two pieces. They are
/// number so and so of a lane, and those behind it. `serial` counts the messages in parts.
pub fn datagrams<'a>(
    (lane, number): (usize, u32),
    serial: &mut u32,
    message: &'a [u8],
    packet_bytes: usize,
) -> impl Iterator<Item = (u32, Option<[u8; 8]>, &'a [u8])> {
    let is_whole = parts::count(message.len(), packet_bytes) == 1;
    *serial = serial.wrapping_add(u32::from(!is_whole));
    let whole = is_whole.then_some((None, message)).into_iter();
    let cut = (!is_whole).then(|| parts::cut(*serial, lane, message)).into_iter().flatten();
    let all = whole.chain(cut.map(|(head, bytes)| (Some(head), bytes)));
    (0..).zip(all).map(move |(more, (head, bytes))| {
        let part = if head.is_some() { PART } else { 0 };
        (request(number.wrapping_add(more)) | part, head, bytes)
    })
}

/// Places for datagrams.
pub trait Ring: Send {
    /// What came, behind what is in `out`. The place of what says nothing beside is free. An error:
    /// nothing comes any more.
    fn poll(&mut self, out: &mut VecDeque<Came>) -> io::Result<()>;
    /// Who sent it.
    fn source(&mut self, came: &Came) -> Source;
    /// Copy it behind what is in `out`; its place is free.
    fn take(&mut self, came: Came, out: &mut Vec<u8>);
    /// Have the next come to the free places.
    fn give_back(&mut self) -> io::Result<()>;
    /// Begin anew: what was under way is lost. An error: nothing comes, and nothing says so.
    fn begin_anew(&mut self) -> io::Result<()>;
}

/// What a datagram is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mail {
    /// A request, behind what the caller gave.
    Request,
    /// Nothing to carry out: a part of a request, or an *ask*.
    Nothing,
    /// Thrown away: longer than a request is.
    Impossible,
    /// Thrown away: no request, or another number than its sender may send now.
    Unwanted,
    /// The same, of somebody who goes on and on. It is told once.
    Flood,
    /// Thrown away: of somebody whom nobody knows.
    Stranger,
}

/// A datagram that was looked at.
#[derive(Debug)]
pub struct Opened<'a> {
    /// What it is.
    pub mail: Mail,
    /// Whose.
    pub who: Option<&'a Arc<Correspondent>>,
    /// Datagrams of the same sender before it that were lost.
    pub lost: u32,
}

/// One lane, as far as one client sends to it.
#[derive(Debug, Default)]
struct Lane {
    /// How many datagrams were taken or lost: the number of the next.
    taken: AtomicU32,
    /// How many the client was told of.
    told: AtomicU32,
    asks: AtomicBool,
    joiner: Mutex<Joiner>,
}

/// A client that sends datagrams.
#[derive(Debug)]
pub struct Correspondent {
    peer: Peer,
    window: u32,
    lanes: Vec<Lane>,
    strikes: AtomicU32,
    is_heard: AtomicBool,
}

impl Correspondent {
    /// Of whom nothing has come.
    pub fn new(peer: Peer, bounds: Bounds) -> Correspondent {
        Correspondent {
            peer,
            window: bounds.window as u32,
            lanes: (0..bounds.lanes).map(|_| Lane::default()).collect(),
            strikes: AtomicU32::new(0),
            is_heard: AtomicBool::new(false),
        }
    }

    /// Who it is.
    pub fn peer(&self) -> Peer {
        self.peer
    }

    /// Whether it has ever sent what it may.
    pub fn is_heard(&self) -> bool {
        self.is_heard.load(Relaxed)
    }

    /// How many datagrams of a lane were taken, told to it now.
    pub fn tell(&self, lane: usize) -> u32 {
        let Lane { taken, told, .. } = &self.lanes[lane];
        let taken = taken.load(Acquire); // (T) pairs with (U): their places were copied before
        // Workers tell at the same time: what was told is never less than it was.
        let is_more = |told: u32| (taken.wrapping_sub(told) & TOLD_MASK < HALF).then_some(taken);
        let _ = told.fetch_update(Relaxed, Relaxed, is_more);
        taken
    }

    /// Whether it is to be told: it asks, or half of its window was taken since it was.
    pub fn is_to_be_told(&self, lane: usize) -> bool {
        let Lane { taken, told, asks, .. } = &self.lanes[lane];
        let since = taken.load(Relaxed).wrapping_sub(told.load(Relaxed)) & TOLD_MASK;
        asks.swap(false, Relaxed) || since >= self.window.div_ceil(2)
    }

    /// What its next datagram of a lane is, and how many were lost before it. One worker at a time
    /// has the lane.
    fn judge(&self, lane: &Lane, came: &Came) -> (Mail, u32) {
        // What was told is never more than what was taken, which nobody else changes.
        let (told, taken) = (lane.told.load(Relaxed), lane.taken.load(Relaxed));
        let room = self.window.saturating_sub(taken.wrapping_sub(told) & TOLD_MASK);
        let ahead = came.immediate.wrapping_sub(taken) & TOLD_MASK;
        let is_ask = came.bytes == 0;
        let is_reply = came.immediate & REQUEST != REQUEST;
        if is_reply || ahead >= room + u32::from(is_ask) {
            let strikes = STRIKES_MAX / self.window.div_ceil(2);
            return (self.strike(strikes.max(1), Mail::Unwanted), 0);
        }
        self.is_heard.store(true, Relaxed);
        let next = taken.wrapping_add(ahead).wrapping_add(u32::from(!is_ask));
        lane.taken.store(next & TOLD_MASK, Release); // (U)
        if is_ask {
            // While a server is slow several come, and all of them get one answer.
            let asks_already = lane.asks.swap(true, Relaxed);
            let strikes = if asks_already { 0 } else { STRIKES_ASK };
            return (self.strike(strikes, Mail::Nothing), ahead);
        }
        self.strikes.store(0, Relaxed);
        (Mail::Request, ahead)
    }

    fn strike(&self, strikes: u32, mail: Mail) -> Mail {
        let before = self.strikes.fetch_add(strikes, Relaxed);
        // Once: what comes behind it finds more already.
        let is_out = before <= STRIKES_MAX && before + strikes > STRIKES_MAX;
        if is_out { Mail::Flood } else { mail }
    }

    /// The request whose last part lies behind `start` in `out`, in its place; or nothing. A part
    /// that says another lane is thrown away: a hostile client has one message under way in a lane,
    /// as the others do.
    fn join(&self, lane: usize, start: usize, out: &mut Vec<u8>) -> Mail {
        if parts::worker(&out[start..]) != Some(lane) {
            return Mail::Nothing;
        }
        let mut joiner = self.lanes[lane].joiner.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(whole) = joiner.take(&out[start..]) else { return Mail::Nothing };
        out.truncate(start);
        out.extend_from_slice(whole);
        Mail::Request
    }
}

/// Everybody who may send datagrams.
pub type Correspondents = HashMap<Source, Arc<Correspondent>>;

/// A lane's datagrams.
#[derive(Debug)]
pub struct Inbox<R> {
    ring: R,
    /// What came and was not taken.
    came: VecDeque<Came>,
    /// Times that the ring broke.
    broken: u64,
    /// It has, and does not begin anew.
    is_deaf: bool,
    /// Times that it did not.
    refused: u64,
    /// Times that it was asked what has come.
    polls: u64,
}

impl<R: Ring> Inbox<R> {
    /// With what comes to `ring`.
    pub fn new(ring: R) -> Inbox<R> {
        Inbox { ring, came: VecDeque::new(), broken: 0, is_deaf: false, refused: 0, polls: 0 }
    }

    fn break_off(&mut self) {
        self.came.clear();
        self.broken += 1;
        self.begin_anew();
    }

    fn begin_anew(&mut self) {
        self.is_deaf = self.ring.begin_anew().is_err();
        self.refused += u64::from(self.is_deaf);
    }

    /// Whether nothing comes, since it broke and did not begin anew.
    pub fn is_deaf(&self) -> bool {
        self.is_deaf
    }

    /// Where it did not begin anew try again. Now and then: it costs the device's attention.
    pub fn hear_again(&mut self) {
        if self.is_deaf {
            self.begin_anew();
        }
    }

    /// Whether something is here.
    pub fn has_some(&mut self) -> bool {
        if self.came.is_empty() && !self.is_deaf {
            self.polls += 1;
            if self.ring.poll(&mut self.came).is_err() {
                self.break_off();
            }
            // What is nobody's message left its place, and nobody looks at it.
            if self.came.is_empty() {
                self.give_back();
            }
        }
        !self.came.is_empty()
    }

    /// Look at the next datagram of lane `lane`, if there is one. A request is copied behind what
    /// is in `out`.
    pub fn next<'a>(
        &mut self,
        lane: usize,
        known: &'a Correspondents,
        out: &mut Vec<u8>,
    ) -> Option<Opened<'a>> {
        if !self.has_some() {
            return None;
        }
        let came = self.came.pop_front()?;
        let who = known.get(&self.ring.source(&came));
        let start = out.len();
        self.ring.take(came, out);
        let (mut mail, mut lost) = (Mail::Stranger, 0);
        if let Some(who) = who {
            (mail, lost) = who.judge(&who.lanes[lane], &came);
            if mail == Mail::Request && came.immediate & PART != 0 {
                mail = who.join(lane, start, out);
            }
        }
        if mail == Mail::Request && out.len() - start > MESSAGE_BYTES_MAX {
            mail = Mail::Impossible;
        }
        if mail != Mail::Request {
            out.truncate(start);
        }
        Some(Opened { mail, who, lost })
    }

    /// Have the next come to the places of what was looked at. After every batch.
    pub fn give_back(&mut self) {
        if !self.is_deaf && self.ring.give_back().is_err() {
            self.break_off();
        }
    }

    /// Times that the ring broke, since the last call.
    pub fn take_broken(&mut self) -> u64 {
        std::mem::take(&mut self.broken)
    }

    /// Times that it did not begin anew, since the last call.
    pub fn take_refused(&mut self) -> u64 {
        std::mem::take(&mut self.refused)
    }

    /// Times that the ring was asked what has come, since the last call.
    pub fn take_polls(&mut self) -> u64 {
        std::mem::take(&mut self.polls)
    }
}

#[cfg(test)]
mod tests;
