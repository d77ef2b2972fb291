//! The part of persistent memory that a tree lies in: words, and what makes them durable.
//!
//! Words are stored in the order of the program, and a line of memory goes out as it is at some
//! instant; so of the stores to one line a loss of power keeps the first few, and of two lines
//! either may be kept without the other until one was flushed and fenced (FAST&FAIR §3).

use crate::media::disk::Barrier;
use crate::media::pm::Region;
use crate::types::LINE_BYTES;
use std::io;
use std::sync::Arc;

const WORD: u64 = 8;
/// A line.
pub const LINE: u64 = LINE_BYTES as u64;

/// What is made durable before what. A test takes each away, at all places that have it (a cell's
/// bytes, the mention of it and their fence are one step), and has to find a loss.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// A new tree, before it is used.
    Format,
    /// A cell, and the mention of it, before an entry leads there.
    Cell,
    /// A line of a node, before the shift goes on in the next.
    Shift,
    /// The end of a node's entries, before one is put in front of it.
    End,
    /// An entry, before the operation is over.
    Entry,
    /// A new node, before another leads there.
    Node,
    /// The way to a new sibling, before its entries go from where they were.
    Sibling,
    /// The end of the node that was split.
    Cut,
    /// A new root.
    Root,
    /// The mark that mentions are missing, before one is.
    Overflow,
    /// Up to where the tree holds the log, before a checkpoint relies on it.
    Position,
    /// What a process that ended left in a cache, before anything is built on it.
    Found,
}

/// Bytes of a region from a place on.
#[derive(Clone)]
pub struct Part {
    region: Arc<dyn Region>,
    base: u64,
    bytes: u64,
    /// The step that is missing.
    #[cfg(test)]
    pub missing: Option<Step>,
}

impl Part {
    /// `bytes` bytes from `base` on, both whole lines.
    pub fn new(region: Arc<dyn Region>, base: u64, bytes: u64) -> Part {
        assert!(base.is_multiple_of(LINE) && bytes.is_multiple_of(LINE), "lines are whole");
        Part {
            region,
            base,
            bytes,
            #[cfg(test)]
            missing: None,
        }
    }

    /// How many bytes there are.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The word at an offset.
    pub fn load(&self, at: u64) -> u64 {
        assert!(at < self.bytes, "whoever follows a pointer looks at it first");
        self.region.load(self.base + at)
    }

    /// Stores a word, after all that were stored before.
    pub fn store(&self, at: u64, word: u64) -> io::Result<()> {
        assert!(at < self.bytes, "only what was given out is written");
        self.region.store(self.base + at, word)
    }

    /// Reads bytes.
    pub fn read(&self, at: u64, bytes: usize) -> Vec<u8> {
        let skip = (at % WORD) as usize;
        let mut out = Vec::with_capacity(skip + bytes + WORD as usize);
        for word in (at - skip as u64..at + bytes as u64).step_by(WORD as usize) {
            out.extend_from_slice(&self.load(word).to_le_bytes());
        }
        out.truncate(skip + bytes);
        out.drain(..skip);
        out
    }

    /// Writes bytes that nothing leads to yet.
    pub fn write(&self, at: u64, from: &[u8]) -> io::Result<()> {
        self.region.write(self.base + at, from)
    }

    /// Starts the way out of a range.
    pub fn flush(&self, at: u64, bytes: u64, step: Step) -> io::Result<()> {
        match self.is_missing(step) {
            true => Ok(()),
            false => self.region.flush(self.base + at, bytes),
        }
    }

    /// All that was flushed is durable when this returns.
    pub fn fence(&self, step: Step) -> io::Result<()> {
        match self.is_missing(step) {
            true => Ok(()),
            false => self.region.fence(Barrier::Index),
        }
    }

    /// Both, for the line of a word.
    pub fn persist(&self, at: u64, step: Step) -> io::Result<()> {
        self.flush(at - at % LINE, LINE, step)?;
        self.fence(step)
    }

    #[cfg(test)]
    fn is_missing(&self, step: Step) -> bool {
        self.missing == Some(step)
    }

    #[cfg(not(test))]
    fn is_missing(&self, _step: Step) -> bool {
        false
    }
}
