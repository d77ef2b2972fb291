//! Mentions of every cell and node that came or went since a checkpoint: a ring of words.
//!
//! A mention says where to look, and nothing more: whether a cell is in the tree, the tree says. So
//! it may be there for what did not come to pass, and only has to be durable before what it is for.
//! A word holds a tag of the lap it was written in; the first of another lap is the end.

use super::part::{LINE, Part, Step};
use std::io;

const WORD: u64 = 8;
/// What is wiped at once.
const CLEAR_BYTES: usize = 1 << 16;
/// A start looks at so many in a second or less: each is somewhere else in memory, some 10 us.
const MENTIONS_MANY: u64 = 1 << 16;
const TAG_SHIFT: u32 = 48;
const NODE_BIT: u64 = 1 << 47;

/// What changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mention {
    /// The cell at this offset.
    Cell(u64),
    /// The node at this offset.
    Node(u64),
}

impl Mention {
    fn word(self, tag: u64) -> u64 {
        let place = match self {
            Mention::Cell(at) => at / LINE,
            Mention::Node(at) => (at / LINE) | NODE_BIT,
        };
        tag << TAG_SHIFT | place
    }
}

/// The ring.
pub struct Journal {
    start: u64,
    words: u64,
    /// The number of the next mention; mentions are never numbered again.
    next: u64,
    /// The first one that the newest checkpoint does not have.
    kept: u64,
    /// Some are missing since then.
    is_over: bool,
    /// The same of a checkpoint that is being made.
    pending: Option<u64>,
    is_pending_over: bool,
}

/// What has to be known before a mention is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fits {
    /// There is room.
    Yes,
    /// Nobody will ask for it.
    NotNeeded,
    /// There is none: the newest checkpoint will have to do without.
    No,
}

impl Journal {
    /// A ring of `bytes` bytes, the next mention of it being number `next`.
    pub fn new(start: u64, bytes: u64, next: u64) -> Journal {
        let words = bytes / WORD;
        let (is_over, pending, is_pending_over) = (false, None, false);
        Journal { start, words, next, kept: next, is_over, pending, is_pending_over }
    }

    fn place(&self, number: u64) -> (u64, u64) {
        // Never 0, which is what memory holds at first.
        let tag = (number / self.words) % 0xffff + 1;
        (self.start + number % self.words * WORD, tag)
    }

    /// The number of the first mention that the newest checkpoint does not have.
    pub fn kept(&self) -> u64 {
        self.kept
    }

    /// Whether mentions are missing since the newest checkpoint.
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    /// Whether a checkpoint would be well now: a start has much to look at, or the ring is half
    /// full.
    pub fn is_long(&self) -> bool {
        // A checkpoint has a bit for each line of the tree: in a larger one it pays later.
        let many = MENTIONS_MANY.max(self.words / 256).min(self.words / 2);
        self.is_over || many < self.next - self.kept
    }

    /// Whether so many more fit.
    pub fn fits(&self, count: u64) -> Fits {
        let first = match (self.is_over, self.pending) {
            (false, _) => self.kept,
            (true, Some(pending)) if !self.is_pending_over => pending,
            (true, _) => return Fits::NotNeeded,
        };
        if self.next - first + count <= self.words { Fits::Yes } else { Fits::No }
    }

    /// From now on mentions are missing: for the newest checkpoint; or, where they were already,
    /// for the one that is being made, too. Says whether that is so.
    pub fn give_up(&mut self) -> bool {
        self.is_pending_over |= self.is_over;
        self.is_over = true;
        self.is_pending_over
    }

    /// A checkpoint is being made that has all so far. Mentions go on whatever was missing.
    pub fn snapshot(&mut self) -> u64 {
        self.pending = Some(self.next);
        self.is_pending_over = false;
        self.next
    }

    /// It is the newest now. Says whether no mention is missing since.
    pub fn keep(&mut self) -> bool {
        if let Some(number) = self.pending.take() {
            self.kept = number;
            self.is_over = self.is_pending_over;
        }
        !self.is_over
    }

    /// Wipes the ring, durable when this returns: the numbers of mentions that nobody has read are
    /// given again.
    pub fn clear(&self, part: &Part) -> io::Result<()> {
        let bytes = self.words * WORD;
        for at in (self.start..self.start + bytes).step_by(CLEAR_BYTES) {
            let piece = (self.start + bytes - at).min(CLEAR_BYTES as u64);
            part.write(at, &vec![0; piece as usize])?;
            part.flush(at, piece, Step::Format)?;
        }
        part.fence(Step::Format)
    }

    /// Writes a mention, durable with the next fence.
    pub fn put(&mut self, part: &Part, mention: Mention) -> io::Result<()> {
        let (at, tag) = self.place(self.next);
        part.store(at, mention.word(tag))?;
        part.flush(at - at % LINE, LINE, Step::Cell)?;
        self.next += 1;
        Ok(())
    }

    /// All mentions from the ring's first one on, of a checkpoint that has none of them; appends go
    /// on behind.
    pub fn read(&mut self, part: &Part) -> Vec<Mention> {
        let mut found = Vec::new();
        while (found.len() as u64) < self.words {
            let (at, tag) = self.place(self.next);
            let word = part.load(at);
            if word >> TAG_SHIFT != tag {
                break;
            }
            let place = (word & (NODE_BIT - 1)) * LINE;
            found.push(match word & NODE_BIT {
                0 => Mention::Cell(place),
                _ => Mention::Node(place),
            });
            self.next += 1;
        }
        found
    }
}
