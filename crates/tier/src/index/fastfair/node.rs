//! A node: sorted entries of 16 bytes in one run of lines, changed in place by stores of 8 bytes
//! (FAST&FAIR §3.1, "FAST").
//!
//! An entry is a key's first 8 bytes and a pointer; the rest of the key is where the pointer leads.
//! It counts if its pointer is not the one to its left. So a shift copies pointer first, then key:
//! a copy does not count until the original is overwritten, by one store. A loss of power between
//! any two leaves at most one entry that does not count, and every reader passes over it.

use super::part::{LINE, Part, Step};
use std::io;

/// Lines of a node. Fewer in unit tests, so that few keys make several levels.
pub const NODE_LINES: u64 = if cfg!(test) { 4 } else { 8 };
/// Bytes of a node.
pub const NODE_BYTES: u64 = NODE_LINES * LINE;
const ENTRY_BYTES: u64 = 16;
/// Entries of a node.
pub const ENTRIES: usize = ((NODE_BYTES - LINE) / ENTRY_BYTES) as usize;
/// To the left of a leaf's first entry. No pointer: those are multiples of a line.
const LEAF_LEFT: u64 = 1;
const MAGIC: u64 = 0x4e4f_4445_0000_0000; // "NODE", and the level below

const LEVEL_AT: u64 = 0;
const SIBLING_AT: u64 = 8;
const LOW_AT: u64 = 16;
const LEFT_AT: u64 = 24;
const LOW_PREFIX_AT: u64 = 32;

/// An entry that counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Entry {
    /// Its place in the node.
    pub index: usize,
    /// The first 8 bytes of its key.
    pub prefix: u64,
    /// To its cell, or its child.
    pub pointer: u64,
}

/// What a node is made with.
#[derive(Debug, Clone, Default)]
pub struct Image {
    /// 0 for leaves.
    pub level: u64,
    /// The next node of its level.
    pub sibling: u64,
    /// The cell of its lowest key; 0 for the first of its level.
    pub low: u64,
    /// That key's first 8 bytes.
    pub low_prefix: u64,
    /// The child below all entries; leaves have none.
    pub left: Option<u64>,
    /// In order.
    pub entries: Vec<(u64, u64)>,
}

impl Image {
    /// Writes it where nothing leads to yet, and starts its way out.
    pub fn write(&self, part: &Part, at: u64) -> io::Result<()> {
        let mut words = vec![0; NODE_BYTES as usize / 8];
        let mut set = |at: u64, word| words[at as usize / 8] = word;
        set(LEVEL_AT, MAGIC | self.level);
        set(SIBLING_AT, self.sibling);
        set(LOW_AT, self.low);
        set(LEFT_AT, self.left.unwrap_or(LEAF_LEFT));
        set(LOW_PREFIX_AT, self.low_prefix);
        for (index, &(prefix, pointer)) in self.entries.iter().enumerate() {
            set(key_at(index), prefix);
            set(pointer_at(index), pointer);
        }
        let bytes: Vec<u8> = words.iter().flat_map(|word: &u64| word.to_le_bytes()).collect();
        part.write(at, &bytes)?;
        part.flush(at, NODE_BYTES, Step::Node)
    }
}

const fn key_at(index: usize) -> u64 {
    LINE + index as u64 * ENTRY_BYTES
}

const fn pointer_at(index: usize) -> u64 {
    key_at(index) + 8
}

/// Whether an entry is the first of its line.
fn begins_line(index: usize) -> bool {
    key_at(index).is_multiple_of(LINE)
}

/// The node at an offset.
#[derive(Clone, Copy)]
pub struct Node<'a> {
    part: &'a Part,
    /// Where it lies.
    pub at: u64,
}

impl<'a> Node<'a> {
    /// `at` lies in the heap with all of the node; `None` if there is none.
    pub fn of(part: &'a Part, at: u64) -> Option<Node<'a>> {
        let is_node = part.load(at + LEVEL_AT) & !0xff == MAGIC;
        is_node.then_some(Node { part, at })
    }

    /// Its level; 0 for a leaf.
    pub fn level(self) -> u64 {
        self.part.load(self.at + LEVEL_AT) & 0xff
    }

    /// The next of its level; 0 for none.
    pub fn sibling(self) -> u64 {
        self.part.load(self.at + SIBLING_AT)
    }

    /// The cell of its lowest key; 0 for the first of its level.
    pub fn low(self) -> u64 {
        self.part.load(self.at + LOW_AT)
    }

    /// That key's first 8 bytes.
    pub fn low_prefix(self) -> u64 {
        self.part.load(self.at + LOW_PREFIX_AT)
    }

    /// The child below all entries; in a leaf no pointer.
    pub fn left(self) -> u64 {
        self.part.load(self.at + LEFT_AT)
    }

    fn pointer(self, index: usize) -> u64 {
        self.part.load(self.at + pointer_at(index))
    }

    fn set(self, index: usize, prefix: u64, pointer: u64) -> io::Result<()> {
        self.part.store(self.at + key_at(index), prefix)?;
        self.part.store(self.at + pointer_at(index), pointer)
    }

    fn persist(self, index: usize, step: Step) -> io::Result<()> {
        self.part.persist(self.at + key_at(index), step)
    }

    /// What is to the left of an entry.
    fn before(self, index: usize) -> u64 {
        index.checked_sub(1).map_or_else(|| self.left(), |index| self.pointer(index))
    }

    /// The entries that count, in order.
    pub fn entries(self) -> impl Iterator<Item = Entry> + 'a {
        let mut before = self.left();
        let pointers = (0..ENTRIES).map(move |index| (index, self.pointer(index)));
        pointers.take_while(|(_, pointer)| *pointer != 0).filter_map(move |(index, pointer)| {
            let counts = pointer != before;
            before = pointer;
            let prefix = self.part.load(self.at + key_at(index));
            counts.then_some(Entry { index, prefix, pointer })
        })
    }

    /// How many places are taken, by entries that count or do not.
    fn count(self) -> usize {
        (0..ENTRIES).take_while(|&index| self.pointer(index) != 0).count()
    }

    /// Whether there is no place left. Where all entries count.
    pub fn is_full(self) -> bool {
        self.count() == ENTRIES
    }

    /// Puts an entry at its place. All entries count, and there is room.
    pub fn insert(self, at: usize, prefix: u64, pointer: u64) -> io::Result<()> {
        let count = self.count();
        let behind = count + 1;
        if behind < ENTRIES && self.pointer(behind) != 0 {
            // What a split left behind would become entries.
            self.part.store(self.at + pointer_at(behind), 0)?;
            if begins_line(behind) {
                self.persist(behind, Step::End)?;
            }
        }
        for index in (at..count).rev() {
            let moved = self.part.load(self.at + key_at(index));
            self.part.store(self.at + pointer_at(index + 1), self.pointer(index))?;
            self.part.store(self.at + key_at(index + 1), moved)?;
            if begins_line(index + 1) {
                self.persist(index + 1, Step::Shift)?;
            }
        }
        self.part.store(self.at + pointer_at(at), self.before(at))?;
        self.set(at, prefix, pointer)?;
        self.persist(at, Step::Entry)
    }

    /// Leads an entry elsewhere.
    pub fn update(self, at: usize, pointer: u64) -> io::Result<()> {
        self.part.store(self.at + pointer_at(at), pointer)?;
        self.persist(at, Step::Entry)
    }

    /// Takes an entry out. All entries count.
    pub fn remove(self, at: usize) -> io::Result<()> {
        self.part.store(self.at + pointer_at(at), self.before(at))?;
        self.close(at)
    }

    /// Closes the gap of an entry that does not count.
    fn close(self, at: usize) -> io::Result<()> {
        let count = self.count();
        for index in at..count - 1 {
            let moved = self.part.load(self.at + key_at(index + 1));
            self.set(index, moved, self.pointer(index + 1))?;
            if begins_line(index + 1) {
                self.persist(index, Step::Shift)?;
            }
        }
        self.part.store(self.at + pointer_at(count - 1), 0)?;
        self.persist(count - 1, Step::Entry)
    }

    /// Ends what a loss of power interrupted, so that all entries count.
    pub fn mend(self) -> io::Result<()> {
        let idle = |node: Node<'_>| {
            (0..node.count()).find(|&index| node.pointer(index) == node.before(index))
        };
        while let Some(index) = idle(self) {
            self.close(index)?;
        }
        Ok(())
    }

    /// Ends the entries before one.
    pub fn cut(self, at: usize) -> io::Result<()> {
        self.part.store(self.at + pointer_at(at), 0)?;
        self.persist(at, Step::Cut)
    }

    /// Leads to a new sibling.
    pub fn link(self, sibling: u64) -> io::Result<()> {
        self.part.store(self.at + SIBLING_AT, sibling)?;
        self.part.persist(self.at, Step::Sibling)
    }
}
