//! Moves long messages over one client's connection, from the server's side. It writes replies into
//! memory that the client lends; it READs requests out of memory that the client lends, or copies
//! them out of memory that the server granted. All of it goes by pieces.
//!
//! Some pieces are on their way out at a time and one on its way in, through memory of our own: a
//! reply lies in the store, which no device knows. A device that refuses one breaks the connection:
//! its client lied, or is gone, and is shown the door.

use super::card::{Domain, Registered, Trouble, Writers};
use super::greeting::Span;
use super::pair::Pair;
use super::post::Sender;
use crate::contract::Moved;
use crate::long::rendezvous::{Carrier, Counts};
use crate::long::sealed_descriptor::PIECE_BYTES;
use crate::long::stage::Stage;
use crate::region::add;
use laneway_sync::words;
use rustix::net::{Shutdown, shutdown};
use std::io::IoSlice;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

/// Work requests under way: pieces out, one in, and one to spare.
pub const DEPTH: usize = 34;
/// What may be on its way out: four of the longest pieces, or many short replies of a burst.
const OUT_BYTES: usize = 4 * PIECE_BYTES;
/// Where what is read comes to, behind what leaves.
const READ_AT: usize = OUT_BYTES;
/// Memory of each client's long messages on their way.
pub const STAGE_BYTES: usize = OUT_BYTES + PIECE_BYTES;

/// Memory of the server's that a client may write its requests into. Its share of what is granted
/// in all comes back when it ends.
pub struct Granted {
    memory: Arc<Registered>,
    bytes: usize,
    all: Arc<AtomicUsize>,
}

impl Granted {
    /// `bytes`, unless `all` that is granted would be more than `most`.
    pub fn new(
        domain: &Arc<Domain>,
        bytes: usize,
        all: &Arc<AtomicUsize>,
        most: usize,
    ) -> Option<Self> {
        let fits = |granted: usize| granted.checked_add(bytes).filter(|granted| *granted <= most);
        all.fetch_update(Relaxed, Relaxed, fits).ok()?;
        match Registered::new(domain, bytes, Writers::Remote) {
            Ok(memory) => Some(Granted { memory: Arc::new(memory), bytes, all: all.clone() }),
            Err(_) => {
                all.fetch_sub(bytes, Relaxed);
                None
            }
        }
    }

    /// What its client is told.
    pub fn span(&self) -> Span {
        let (address, rkey) = (self.memory.address(), self.memory.rkey());
        Span { address, rkey, bytes: self.bytes as u32 }
    }
}

impl Drop for Granted {
    fn drop(&mut self) {
        self.all.fetch_sub(self.bytes, Relaxed);
    }
}

/// Where a client's long requests lie.
pub enum Source {
    /// Nowhere: they come in frames.
    Nowhere,
    /// In its own memory, which is READ.
    Theirs(Span),
    /// In ours.
    Ours(Granted),
}

impl Source {
    /// How much memory that is.
    pub fn bytes(&self) -> usize {
        match self {
            Source::Nowhere => 0,
            Source::Theirs(span) => span.bytes as usize,
            Source::Ours(granted) => granted.bytes,
        }
    }
}

/// What is being read.
enum Reading {
    Nothing,
    /// So many bytes come by request number so and so.
    Theirs(usize, u64),
    /// These.
    Ours(usize, usize),
}

/// See the module's page.
pub struct Carry {
    sender: Sender,
    // Behind the pair: what the client writes its requests into.
    #[expect(dead_code, reason = "the device writes it as long as there is the pair")]
    slots: Arc<Registered>,
    replies: Span,
    source: Source,
    stage: Stage,
    reading: Reading,
    /// What the client's place hangs on.
    door: Option<Arc<OwnedFd>>,
    counts: Arc<Counts>,
}

impl Carry {
    /// By `pair`, to a client who lends `replies`.
    pub fn new(
        domain: &Arc<Domain>,
        pair: Pair,
        slots: Arc<Registered>,
        (replies, source): (Span, Source),
        door: Arc<OwnedFd>,
        counts: Arc<Counts>,
    ) -> Result<Carry, Trouble> {
        let is_used = replies.bytes > 0 || source.bytes() > 0;
        let bytes = if is_used { STAGE_BYTES } else { 1 };
        let memory = Arc::new(Registered::new(domain, bytes, Writers::Device)?);
        let mut sender = Sender::new(pair, memory, DEPTH);
        sender.set_habits(false, 1);
        Ok(Carry {
            sender,
            slots,
            replies,
            source,
            stage: Stage::new(OUT_BYTES),
            reading: Reading::Nothing,
            door: Some(door),
            counts,
        })
    }

    /// The connection is broken: the client is shown the door, once.
    fn broke(&mut self) -> Moved {
        if let Some(door) = self.door.take() {
            add(&self.counts.clients_cut_off, 1);
            // One that is closed already needs no more.
            let _ = shutdown(&door, Shutdown::Both);
        }
        Moved::Gone
    }

    fn post(&mut self) -> Moved {
        if self.sender.post() { Moved::Done } else { self.broke() }
    }
}

impl Carrier for Carry {
    fn write(&mut self, at: usize, pieces: &[IoSlice<'_>]) -> Moved {
        if !self.sender.poll() {
            return self.broke();
        }
        if !self.sender.has_room(1) {
            return Moved::Later;
        }
        let bytes = pieces.iter().map(|piece| piece.len()).sum();
        let (number, completed) = (self.sender.gathered() + 1, self.sender.completed());
        let Some(start) = self.stage.take(bytes, number, completed) else { return Moved::Later };
        let mut end = start;
        for piece in pieces {
            words::write(self.sender.memory().words(), end, piece);
            end += piece.len();
        }
        let address = self.replies.address + at as u64;
        self.sender.write(start..end, address, self.replies.rkey);
        self.post()
    }

    fn begin_read(&mut self, at: usize, bytes: usize) -> Moved {
        let span = match &self.source {
            Source::Nowhere => return Moved::Gone,
            Source::Ours(_) => {
                self.reading = Reading::Ours(at, bytes);
                return Moved::Done;
            }
            Source::Theirs(span) => *span,
        };
        if !self.sender.poll() {
            return self.broke();
        }
        if !self.sender.has_room(0) {
            return Moved::Later;
        }
        self.sender.read(READ_AT..READ_AT + bytes, span.address + at as u64, span.rkey);
        self.reading = Reading::Theirs(bytes, self.sender.gathered());
        self.post()
    }

    fn end_read(&mut self, out: &mut Vec<u8>) -> Moved {
        match (&self.reading, &self.source) {
            (Reading::Ours(at, bytes), Source::Ours(granted)) => {
                words::read_into(granted.memory.words(), *at, *bytes, out);
            }
            (Reading::Theirs(bytes, number), _) => {
                if !self.sender.poll() {
                    return self.broke();
                }
                if *number > self.sender.completed() {
                    return Moved::Later;
                }
                words::read_into(self.sender.memory().words(), READ_AT, *bytes, out);
            }
            (Reading::Nothing | Reading::Ours(..), _) => return Moved::Gone,
        }
        self.reading = Reading::Nothing;
        Moved::Done
    }

    fn reads_by_verb(&self) -> bool {
        matches!(self.source, Source::Theirs(_))
    }
}
