//! Bytes on their way behind a vector: room is made once, then pieces are put there without the
//! vector's own questions at each, and all of them become part of it at the end, or none.
//!
//! Who formats a reply around a value that may turn out torn drops it, and the vector is as it was.
//! Sizes are bytes.
#![allow(unsafe_code)]

use crate::prim::{AtomicU64, Ordering::Relaxed};

/// Bytes in a word.
const WORD: usize = 8;

/// Room beyond what was asked for: more than a piece has may be written behind it.
pub const SLACK: usize = SHORT;

/// A piece up to this length can be put as so many bytes.
pub const SHORT: usize = 16;

/// Pieces behind a vector, part of it once they are [kept](Appending::keep).
pub struct Appending<'a> {
    out: &'a mut Vec<u8>,
    /// Where the next piece goes: all bytes of the vector's memory before it were written.
    at: usize,
    /// Where the room ends.
    end: usize,
}

impl<'a> Appending<'a> {
    /// Make room for `room` bytes behind `out`.
    #[inline]
    pub fn new(out: &'a mut Vec<u8>, room: usize) -> Appending<'a> {
        out.reserve(room + SLACK);
        let at = out.len();
        Appending { out, at, end: at + room }
    }

    /// Where a piece of `len` bytes ends.
    ///
    /// # Panics
    /// If no room was made for it.
    #[inline(always)]
    fn end_of(&self, len: usize) -> usize {
        assert!(len <= self.end - self.at, "more than room was made for");
        self.at + len
    }

    /// Put a piece.
    ///
    /// # Panics
    /// If no room was made for it.
    #[inline(always)]
    pub fn put(&mut self, piece: &[u8]) {
        let end = self.end_of(piece.len());
        // SAFETY: `at..end` ends at `self.end` at most, for which `new` made room, and nothing has
        // shrunk the vector since: `self` borrows it. The piece cannot overlap memory that `self`
        // borrows mutably.
        unsafe {
            let to = self.out.as_mut_ptr().add(self.at);
            to.copy_from_nonoverlapping(piece.as_ptr(), piece.len());
        }
        self.at = end;
    }

    /// Put the first `len` bytes of `piece`: all of it is copied, which takes one step.
    ///
    /// # Panics
    /// If no room was made for them, or there are not so many.
    #[inline(always)]
    pub fn put_short(&mut self, piece: &[u8; SHORT], len: usize) {
        assert!(len <= SHORT, "a piece has no more");
        let end = self.end_of(len);
        // SAFETY: `at` is `end` at most, and behind `self.end` there is room for `SHORT` bytes. The
        // piece cannot overlap memory that `self` borrows mutably.
        unsafe {
            self.out.as_mut_ptr().add(self.at).cast::<[u8; SHORT]>().write_unaligned(*piece);
        }
        self.at = end;
    }

    /// Put the `len` bytes that `words` hold from `offset` on. Other threads may be writing them:
    /// what is put may be torn.
    ///
    /// # Panics
    /// If no room was made for it, or the range is outside the words.
    #[inline]
    pub fn put_words(&mut self, words: &[AtomicU64], offset: usize, len: usize) {
        let end = self.end_of(len);
        if len == 0 {
            return;
        }
        let words = &words[offset / WORD..(offset + len).div_ceil(WORD)];
        let skip = offset % WORD;
        if skip == 0 {
            // SAFETY: `len.div_ceil(8)` words are written from `at` on, less than 8 bytes more
            // than `len`: up to `end + 7`, for which `new` made room.
            unsafe { copy(words, self.out.as_mut_ptr().add(self.at)) };
        } else if WORD <= self.at {
            self.put_behind(words, skip);
        } else {
            self.put_shifted(words, skip, len);
        }
        self.at = end;
    }

    /// The words as they lie, so that the first `skip` bytes of the first one fall upon what stands
    /// before the piece: these are taken from there.
    #[inline]
    fn put_behind(&mut self, words: &[AtomicU64], skip: usize) {
        let bits = 8 * skip as u32;
        // SAFETY: 8 bytes lie before `at`, and all of them were written. Words go from `at - skip`
        // on, and end less than 8 bytes behind the piece, for which `new` made room.
        unsafe {
            let to = self.out.as_mut_ptr().add(self.at - skip);
            let before = self.out.as_ptr().add(self.at - WORD).cast::<u64>().read_unaligned();
            let first = u64::from_le(words[0].load(Relaxed)) >> bits << bits;
            let first = first | u64::from_le(before) >> (u64::BITS - bits);
            to.cast::<u64>().write_unaligned(first.to_le());
            copy(&words[1..], to.add(WORD));
        }
    }

    /// The same where nothing stands before the piece: each eight bytes lie in two words.
    fn put_shifted(&mut self, words: &[AtomicU64], skip: usize, len: usize) {
        let (low, high) = (8 * skip as u32, 8 * (WORD - skip) as u32);
        let load = |word: &AtomicU64| u64::from_le(word.load(Relaxed));
        let mut word = load(&words[0]);
        for i in 0..len.div_ceil(WORD) {
            let next = words.get(i + 1).map_or(0, load);
            let eight = (word >> low | next << high).to_le();
            // SAFETY: less than 8 bytes more than `len` are written from `at` on, for which `new`
            // made room.
            unsafe {
                self.out.as_mut_ptr().add(self.at + i * WORD).cast::<u64>().write_unaligned(eight)
            };
            word = next;
        }
    }

    /// Make all pieces part of the vector.
    #[inline]
    pub fn keep(self) {
        // SAFETY: `at` is within the capacity, and all bytes before it were written: those of the
        // vector, and every piece since.
        unsafe { self.out.set_len(self.at) }
    }
}

/// Copy words to `to`, which need not be aligned.
///
/// # Safety
/// The memory from `to` on is the caller's alone, for as many bytes as the words have.
#[inline(always)]
unsafe fn copy(words: &[AtomicU64], to: *mut u8) {
    let mut to = to.cast::<u64>();
    let (fours, rest) = words.as_chunks::<4>();
    for [a, b, c, d] in fours {
        // SAFETY: the caller's: as many words are written as there are.
        unsafe {
            to.write_unaligned(a.load(Relaxed));
            to.add(1).write_unaligned(b.load(Relaxed));
            to.add(2).write_unaligned(c.load(Relaxed));
            to.add(3).write_unaligned(d.load(Relaxed));
            to = to.add(4);
        }
    }
    for word in rest {
        // SAFETY: as above.
        unsafe {
            to.write_unaligned(word.load(Relaxed));
            to = to.add(1);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn pieces_stand_behind_the_vector_in_their_order_whatever_their_places() {
        let bytes: Vec<u8> = (0..80).map(|i: u8| i.wrapping_mul(41)).collect();
        for before in 0..20 {
            for offset in 0..17 {
                for len in 0..bytes.len().min(12 * 8 - 17) {
                    let mut around = [0xff; 12 * WORD];
                    around[offset..][..len].copy_from_slice(&bytes[..len]);
                    let words = around.as_chunks().0.iter();
                    let source: Vec<_> =
                        words.map(|&word| AtomicU64::new(u64::from_le_bytes(word))).collect();
                    let head = vec![b'h'; before];
                    let mut out = head.clone();
                    let mut appending = Appending::new(&mut out, len + 5);
                    appending.put_short(b"a234567812345678", 1);
                    appending.put(b"");
                    appending.put_words(&source, offset, len);
                    appending.put(b"tail");
                    appending.keep();
                    let expected = [&head[..], b"a", &bytes[..len], b"tail"].concat();
                    assert_eq!(out, expected, "behind {before}, offset {offset}, len {len}");
                }
            }
        }
    }

    #[test]
    fn what_is_not_kept_was_never_there() {
        let mut out = b"as it was".to_vec();
        Appending::new(&mut out, 100).put(b"something else");
        assert_eq!(out, b"as it was");
    }

    #[test]
    #[should_panic(expected = "more than room was made for")]
    fn a_piece_without_room_panics() {
        let mut out = Vec::with_capacity(1000);
        let mut appending = Appending::new(&mut out, 4);
        appending.put(b"four");
        appending.put(b"1");
    }

    #[test]
    #[should_panic(expected = "more than room was made for")]
    fn words_without_room_panic() {
        let words = [AtomicU64::new(0), AtomicU64::new(0)];
        Appending::new(&mut Vec::new(), 4).put_words(&words, 3, 5);
    }
}
