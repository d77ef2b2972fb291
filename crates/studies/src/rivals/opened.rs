//! Memory that a server writes and its clients READ, over shared memory. It is atomic words: a READ
//! that meets a write may be torn between any two of them, as one by a card may be between cache
//! lines, and its reader finds out by checksums alone. Records keep their order: who READs one of
//! them finds those that were written before it, in what it READs then.
//!
//! The server can be stopped between any two words that it writes ([`Opened::hold`]): that is how a
//! test catches it halfway. Whoever may READ here might also write, which a card forbids; so both
//! ends are to be of one program, and no door hands such memory out.

use laneway_rdma::contract::{Posted, Verbs};
use laneway_rdma::layout::HEAD_BYTES;
use laneway_rdma::mapped::{self, Mapped};
use laneway_sync::prim::Ordering::{Acquire, Release};
use laneway_sync::prim::fence;
use laneway_sync::words;
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

/// A client's way to memory that the server has opened to it: READs, of which the server's CPU
/// knows nothing. No request of Laneway's takes it. It belongs to one thread.
pub trait Reader {
    /// Ask for `bytes` bytes from `address` on, as they are some time from now. They come with
    /// `tag`.
    fn post_read(&mut self, tag: u64, address: u64, bytes: usize) -> Posted;
    /// Take at most `burst` READs that are over: the tag, and what was read; nothing of a place
    /// that is not within the opened memory. Returns how many there were.
    fn poll_reads(&mut self, burst: usize, take: &mut dyn FnMut(u64, Option<&[u8]>)) -> usize;
}

/// Bytes of what is written at once.
const WORD_BYTES: usize = 8;

/// The server's side.
#[derive(Debug)]
pub struct Opened {
    map: Arc<Mapped>,
    /// Words that are written and not yet there, each with its place; none are held if `None`.
    held: Option<VecDeque<(usize, [u8; WORD_BYTES])>>,
}

impl Opened {
    /// So many bytes, all zero.
    pub fn new(bytes: usize) -> io::Result<Opened> {
        let whole = bytes.checked_next_multiple_of(HEAD_BYTES);
        let whole = whole.and_then(|bytes| bytes.max(HEAD_BYTES).checked_add(HEAD_BYTES));
        let whole = whole.ok_or_else(|| io::Error::other(format!("{bytes} bytes are too many")))?;
        let memory = mapped::create(whole, whole)?;
        Ok(Opened { map: Arc::new(Mapped::of(&memory, whole)?), held: None })
    }

    /// How much it is, in whole pages.
    pub fn bytes(&self) -> usize {
        self.map.words().len() * WORD_BYTES
    }

    /// A client's side.
    pub fn reader(&self) -> RingReader {
        let (posted, room) = (VecDeque::new(), Vec::new());
        RingReader { map: self.map.clone(), posted, room, verbs: Verbs::default() }
    }

    /// Write `bytes`, and zeroes up to the next word, at a multiple of 8.
    ///
    /// # Panics
    /// If that is not within the memory.
    pub fn write(&mut self, at: usize, bytes: &[u8]) {
        assert!(at.is_multiple_of(WORD_BYTES), "words begin at multiples of 8, not at {at}");
        // (A) pairs with (B): an item that moves is in its new place before it leaves the old.
        fence(Release);
        for (number, bytes) in bytes.chunks(WORD_BYTES).enumerate() {
            let mut word = [0; WORD_BYTES];
            word[..bytes.len()].copy_from_slice(bytes);
            let at = at + number * WORD_BYTES;
            match &mut self.held {
                Some(held) => held.push_back((at, word)),
                None => words::write(self.map.words(), at, &word),
            }
        }
    }

    /// From now on what is written is kept back.
    pub fn hold(&mut self) {
        self.held.get_or_insert_default();
    }

    /// Let so many of the words kept back through, in their order. Returns how many are left.
    pub fn let_through(&mut self, count: usize) -> usize {
        let Some(held) = &mut self.held else { return 0 };
        for (at, word) in held.drain(..count.min(held.len())) {
            fence(Release); // (A)
            words::write(self.map.words(), at, &word);
        }
        held.len()
    }

    /// Let all through, and keep nothing back any more.
    pub fn release(&mut self) {
        self.let_through(usize::MAX);
        self.held = None;
    }
}

/// The client's side.
#[derive(Debug)]
pub struct RingReader {
    map: Arc<Mapped>,
    posted: VecDeque<(u64, u64, usize)>,
    room: Vec<u8>,
    verbs: Verbs,
}

impl RingReader {
    /// What was asked so far.
    pub fn verbs(&self) -> Verbs {
        self.verbs
    }

    /// Copy, if all of it is there.
    fn copy(&mut self, address: u64, bytes: usize) -> Option<&[u8]> {
        let words = self.map.words();
        let address = usize::try_from(address).ok()?;
        if address.checked_add(bytes)? > words.len() * WORD_BYTES {
            return None;
        }
        self.room.clear();
        words::read_into(words, address, bytes, &mut self.room);
        // (B) pairs with (A): whoever saw a record overwritten sees in the next READ what was
        // written before.
        fence(Acquire);
        Some(&self.room)
    }
}

impl Reader for RingReader {
    fn post_read(&mut self, tag: u64, address: u64, bytes: usize) -> Posted {
        self.posted.push_back((tag, address, bytes));
        self.verbs.reads += 1;
        Posted::Done
    }

    fn poll_reads(&mut self, burst: usize, take: &mut dyn FnMut(u64, Option<&[u8]>)) -> usize {
        let count = burst.min(self.posted.len());
        for _ in 0..count {
            let Some((tag, address, bytes)) = self.posted.pop_front() else { break };
            take(tag, self.copy(address, bytes));
        }
        count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(reader: &mut RingReader, address: u64, bytes: usize) -> Option<Vec<u8>> {
        assert_eq!(reader.post_read(1, address, bytes), Posted::Done);
        let mut got = None;
        assert_eq!(reader.poll_reads(9, &mut |_, bytes| got = bytes.map(<[u8]>::to_vec)), 1);
        got
    }

    #[test]
    fn what_is_written_is_read_and_nothing_beyond_the_end() {
        let mut opened = Opened::new(5000).expect("memory");
        assert_eq!(opened.bytes(), 8192);
        opened.write(8184, b"the end");
        let mut reader = opened.reader();
        assert_eq!(read(&mut reader, 8185, 7), Some(b"he end\0".to_vec()));
        let beyond =
            [(8185, 8), (8193, 0), (u64::MAX, 1), (u64::MAX, 0), (0, usize::MAX), (8, 8185)];
        for (address, bytes) in beyond {
            assert_eq!(read(&mut reader, address, bytes), None, "{bytes} bytes from {address}");
        }
        assert_eq!(reader.verbs().reads, 7);
    }

    #[test]
    fn what_is_held_comes_through_word_by_word_and_in_order() {
        let mut opened = Opened::new(64).expect("memory");
        let mut reader = opened.reader();
        opened.hold();
        opened.write(0, b"one word and more");
        opened.write(0, b"another");
        assert_eq!(read(&mut reader, 0, 8), Some(vec![0; 8]));
        assert_eq!(opened.let_through(2), 2);
        assert_eq!(read(&mut reader, 0, 17), Some(b"one word and mor\0".to_vec()));
        opened.release();
        assert_eq!(read(&mut reader, 0, 17), Some(b"another\0 and more".to_vec()));
        opened.write(8, b"at once");
        assert_eq!(
            (read(&mut reader, 8, 7), opened.let_through(1)),
            (Some(b"at once".to_vec()), 0)
        );
    }

    #[test]
    #[should_panic(expected = "out of range")]
    fn the_server_writes_within_its_memory() {
        Opened::new(64).expect("memory").write(4096, b"x");
    }

    #[test]
    fn more_memory_than_there_is_is_an_error() {
        assert!(Opened::new(usize::MAX).is_err());
        assert!(Opened::new(usize::MAX - HEAD_BYTES).is_err());
    }
}
