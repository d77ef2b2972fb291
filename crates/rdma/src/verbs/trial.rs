//! HERD's microbenchmark of verbs (§3.2): work requests of one kind, inline or not, each of them
//! signalled or one in [`SIGNAL_EVERY`], from one queue pair to another. Every byte that arrives is
//! looked at.
//!
//! It departs from HERD, which has machines at both ends: here both are in one process and behind
//! one port. So it shows that a device carries a kind out, and how fast it does both halves of it.
//! It knows no clock: whoever waits is asked whether to go on.

use super::card::{Card, Domain, Place, Registered, Trouble, Writers, packet_bytes};
use super::pair::{Depths, Far, NUMBER_BITS, Pair, Queue, Service, draw};
use super::post::{Came, Handle, Mailbox, ROUTE_BYTES, Receiver, SIGNAL_EVERY, Sender};
use crate::contract::MESSAGE_BYTES_MAX;
use crate::layout::{LINE_BYTES, SLOT_BYTES};
use laneway_sync::words;
use std::fmt;
use std::io;
use std::sync::Arc;

/// Work requests that are posted together.
pub const BATCH: usize = SIGNAL_EVERY as usize;
/// Longest message.
pub const BYTES_MAX: usize = MESSAGE_BYTES_MAX;
/// Work requests under way to the device.
const DEPTH: usize = 2 * BATCH;
/// Places for datagrams, and bytes of each.
const PLACES: usize = 2 * BATCH;
const STRIDE: usize = (ROUTE_BYTES + SLOT_BYTES).next_multiple_of(LINE_BYTES);

/// What is asked of the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    /// WRITE, on an unreliable or a reliable connection.
    Write(Service),
    /// READ, on a reliable connection: others have none.
    Read,
    /// SEND of a datagram, which needs a RECV.
    Send,
}

impl fmt::Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Verb::Write(Service::Unreliable) => "WRITE, UC",
            Verb::Write(Service::Reliable) => "WRITE, RC",
            Verb::Write(Service::Datagrams) => "WRITE, UD", // no device has it, and nobody tries
            Verb::Read => "READ, RC",
            Verb::Send => "SEND, UD",
        })
    }
}

/// How it is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kind {
    /// What.
    pub verb: Verb,
    /// Whether messages travel in their requests.
    pub is_inline: bool,
    /// Whether each request says when it has completed, or one in [`SIGNAL_EVERY`].
    pub is_signalled: bool,
}

impl Kind {
    /// All of them. What a READ brings cannot travel in its request.
    pub fn all() -> Vec<Kind> {
        let write = Verb::Write;
        let verbs = [write(Service::Unreliable), write(Service::Reliable), Verb::Read, Verb::Send];
        let ways = [(true, true), (true, false), (false, true), (false, false)];
        let kinds = verbs.into_iter().flat_map(|verb| {
            ways.map(|(is_inline, is_signalled)| Kind { verb, is_inline, is_signalled })
        });
        kinds.filter(|kind| kind.verb != Verb::Read || !kind.is_inline).collect()
    }
}

/// What became of the messages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Told {
    /// How many were asked for.
    pub operations: u64,
    /// Completions that said so.
    pub completions: u64,
    /// Messages that came otherwise than they were sent.
    pub wrong: u64,
    /// Messages that did not come.
    pub lost: u64,
}

/// Where messages go.
enum Target {
    /// Memory, through the pair that is connected to the sender's.
    Memory { _pair: Pair, memory: Arc<Registered> },
    /// A queue pair that takes datagrams.
    Mailbox { receiver: Box<Receiver>, mailbox: Arc<Mailbox> },
}

/// Both ends of one kind.
pub struct Trial {
    kind: Kind,
    bytes: usize,
    // Before the target: who sends datagrams needs the address until they have left.
    sender: Sender,
    target: Target,
    /// Number of the first message of this batch.
    first: u64,
    told: Told,
}

/// Two pairs of a device, connected to each other.
fn connected(domain: &Arc<Domain>, verb: Verb) -> Result<(Pair, Pair), Trouble> {
    let service = match verb {
        Verb::Write(service) => service,
        _ => Service::Reliable,
    };
    let depths = Depths { sends: DEPTH, receives: 1 };
    let sends = Queue::new(domain.card(), 2 * DEPTH, None)?;
    let pair = || Pair::new(domain, Some(service), &sends, &sends, &depths);
    let (near, far) = (pair()?, pair()?);
    let psn = || draw() & ((1 << NUMBER_BITS) - 1);
    let (near_psn, far_psn) = (psn(), psn());
    let end = |pair: &Pair, psn| Far {
        address: domain.card().address(),
        mtu: domain.card().mtu(),
        number: pair.number(),
        psn,
    };
    near.connect(service, false, near_psn, &end(&far, far_psn))?;
    far.connect(service, verb == Verb::Read, far_psn, &end(&near, near_psn))?;
    Ok((near, far))
}

/// One that sends datagrams, and where they go.
fn datagrams(domain: &Arc<Domain>) -> Result<(Sender, Target), Trouble> {
    let (sender, qkey) = Sender::of_datagrams(domain, DEPTH)?;
    let receiver = Box::new(Receiver::new(domain, None, qkey, STRIDE, PLACES)?);
    let handle = Arc::new(Handle::new(domain, &domain.card().address())?);
    let mailbox = Arc::new(Mailbox { handle, number: receiver.number(), qkey });
    Ok((sender, Target::Mailbox { receiver, mailbox }))
}

impl Trial {
    /// Both ends, behind one port of a device; messages of so many bytes, [`BYTES_MAX`] at most.
    pub fn new(place: &Place, kind: Kind, bytes: usize) -> Result<Trial, Trouble> {
        assert!((1..=BYTES_MAX).contains(&bytes), "messages of {bytes} bytes");
        let card = Card::open(place)?;
        if kind.verb == Verb::Send && bytes > packet_bytes(card.mtu()) {
            let why = io::Error::from(io::ErrorKind::InvalidInput);
            return Err(Trouble::of("a datagram longer than the port's packets", why));
        }
        let domain = Domain::new(&card)?;
        let memory = |writers| Registered::new(&domain, BATCH * SLOT_BYTES, writers).map(Arc::new);
        let (mut sender, target) = match kind.verb {
            Verb::Send => datagrams(&domain)?,
            verb => {
                let (near, _pair) = connected(&domain, verb)?;
                let target = Target::Memory { _pair, memory: memory(Writers::RemoteReaders)? };
                (Sender::new(near, memory(Writers::Device)?, DEPTH), target)
            }
        };
        let signal_every = if kind.is_signalled { 1 } else { SIGNAL_EVERY };
        sender.set_habits(kind.is_inline, signal_every);
        if kind.is_inline && bytes > sender.inline_bytes() {
            return Err(Trouble::Inline(sender.inline_bytes(), bytes));
        }
        Ok(Trial { kind, bytes, sender, target, first: 0, told: Told::default() })
    }

    /// What became of everything so far.
    pub fn told(&self) -> Told {
        Told { completions: self.sender.completions(), ..self.told }
    }

    /// Put [`BATCH`] new messages where they come from, and nothing where they go to.
    pub fn prepare(&mut self) {
        let own = self.sender.memory().words();
        let (from, to) = match (&self.target, self.kind.verb) {
            (Target::Memory { memory, .. }, Verb::Read) => (memory.words(), Some(own)),
            (Target::Memory { memory, .. }, _) => (own, Some(memory.words())),
            (Target::Mailbox { .. }, _) => (own, None),
        };
        self.first += BATCH as u64;
        let (mut bytes, nothing) = (Vec::new(), vec![0; self.bytes]);
        for place in 0..BATCH {
            if let Some(to) = to {
                words::write(to, place * SLOT_BYTES, &nothing);
            }
            message(self.first + place as u64, self.bytes, &mut bytes);
            words::write(from, place * SLOT_BYTES, &bytes);
        }
    }

    /// Post a work request for each of them, all by one call, and wait until the device says that
    /// they are carried out, as long as `go_on` does.
    pub fn carry_out(&mut self, go_on: &mut dyn FnMut() -> bool) -> io::Result<()> {
        for place in 0..BATCH {
            let from = place * SLOT_BYTES..place * SLOT_BYTES + self.bytes;
            match &self.target {
                Target::Mailbox { mailbox, .. } => {
                    self.sender.send(from, mailbox, place as u32);
                }
                Target::Memory { memory, .. } => {
                    let address = memory.address() + from.start as u64;
                    match self.kind.verb {
                        Verb::Read => self.sender.read(from, address, memory.rkey()),
                        _ => self.sender.write(from, address, memory.rkey()),
                    }
                }
            }
        }
        if !self.sender.post() {
            return Err(broken());
        }
        self.told.operations += BATCH as u64;
        while self.sender.completed() < self.sender.gathered() {
            if !self.sender.poll() {
                return Err(broken());
            }
            if !go_on() {
                return Err(io::Error::other("work requests do not complete"));
            }
        }
        Ok(())
    }

    /// Look at every byte of what came, and wait for what has not, as long as `go_on` says so.
    pub fn look(&mut self, go_on: &mut dyn FnMut() -> bool) -> io::Result<()> {
        let to = match (&mut self.target, self.kind.verb) {
            (Target::Mailbox { receiver, .. }, _) => {
                let told = &mut self.told;
                return take_datagrams(receiver, self.first, self.bytes, told, go_on);
            }
            (Target::Memory { memory, .. }, Verb::Write(_)) => memory.words(),
            (Target::Memory { .. }, _) => self.sender.memory().words(),
        };
        let (mut bytes, nothing) = (Vec::new(), vec![0; self.bytes]);
        for place in 0..BATCH {
            message(self.first + place as u64, self.bytes, &mut bytes);
            let at = place * SLOT_BYTES;
            while !words::equal(to, at, &bytes) {
                if !go_on() {
                    let is_lost = words::equal(to, at, &nothing);
                    self.told.lost += u64::from(is_lost);
                    self.told.wrong += u64::from(!is_lost);
                    break;
                }
            }
        }
        Ok(())
    }
}

/// Takes a batch of datagrams, each of which says beside which of it it is.
fn take_datagrams(
    receiver: &mut Receiver,
    first: u64,
    bytes: usize,
    told: &mut Told,
    go_on: &mut dyn FnMut() -> bool,
) -> io::Result<()> {
    let mut came: Vec<Came> = Vec::new();
    while came.len() < BATCH && go_on() {
        receiver.poll(&mut came)?;
    }
    told.lost += BATCH.saturating_sub(came.len()) as u64;
    let (mut got, mut sent) = (Vec::new(), Vec::new());
    for came in came {
        got.clear();
        receiver.take(came, &mut got);
        message(first + u64::from(came.immediate), bytes, &mut sent);
        told.wrong += u64::from(got != sent);
    }
    receiver.give_back()
}

fn broken() -> io::Error {
    let why = "the connection is broken: a work request failed";
    io::Error::new(io::ErrorKind::ConnectionReset, why)
}

/// Bytes that differ from those of any other number, and of which none is 0.
fn message(number: u64, bytes: usize, out: &mut Vec<u8>) {
    let mut state = number.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    out.clear();
    out.extend((0..bytes).map(|_| {
        state = state.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
        ((state >> 33) as u8).max(1)
    }));
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_verb_is_tried_in_every_way_that_it_has() {
        let kinds = Kind::all();
        let of = |verb: Verb| kinds.iter().filter(|kind| kind.verb == verb).count();
        assert_eq!(of(Verb::Write(Service::Unreliable)), 4);
        assert_eq!((of(Verb::Write(Service::Reliable)), of(Verb::Read), of(Verb::Send)), (4, 2, 4));
        assert_eq!(kinds.len(), 14);
    }

    #[test]
    fn messages_differ_and_are_nowhere_empty() {
        let mut seen = BTreeSet::new();
        let mut bytes = Vec::new();
        for number in 1..1000 {
            message(number, 16, &mut bytes);
            assert!(bytes.len() == 16 && bytes.iter().all(|byte| *byte != 0));
            assert!(seen.insert(bytes.clone()), "{number}");
        }
    }
}
