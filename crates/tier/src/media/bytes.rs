//! Little-endian numbers in and out of byte strings; buffers that O_DIRECT accepts.
//!
//! A [`Reader`] answers `None` past the end: what is read here may be damaged.

use crate::types::BLOCK_BYTES;
use std::sync::{Mutex, MutexGuard};

/// Walks over bytes that may be damaged.
pub struct Reader<'a> {
    left: &'a [u8],
}

impl<'a> Reader<'a> {
    /// From the front of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { left: bytes }
    }

    /// The next `count` bytes.
    pub fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, left) = self.left.split_at_checked(count)?;
        self.left = left;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    /// One byte.
    pub fn u8(&mut self) -> Option<u8> {
        self.array::<1>().map(|a| a[0])
    }

    /// Two bytes.
    pub fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    /// Four bytes.
    pub fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    /// Eight bytes.
    pub fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    /// How many are left.
    pub fn len(&self) -> usize {
        self.left.len()
    }
}

/// Appends bytes and numbers.
pub trait Put {
    /// These bytes.
    fn put(&mut self, bytes: &[u8]);
    /// One byte.
    fn put_u8(&mut self, value: u8) {
        self.put(&[value]);
    }
    /// Two bytes.
    fn put_u16(&mut self, value: u16) {
        self.put(&value.to_le_bytes());
    }
    /// Four bytes.
    fn put_u32(&mut self, value: u32) {
        self.put(&value.to_le_bytes());
    }
    /// Eight bytes.
    fn put_u64(&mut self, value: u64) {
        self.put(&value.to_le_bytes());
    }
}

impl Put for Vec<u8> {
    fn put(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}

/// Writes over the front, and is what lies behind it from then on, as with [`std::io::Write`].
impl Put for &mut [u8] {
    fn put(&mut self, bytes: &[u8]) {
        let (front, left) = std::mem::take(self).split_at_mut(bytes.len());
        front.copy_from_slice(bytes);
        *self = left;
    }
}

/// Zeroed bytes that begin at a multiple of [`BLOCK_BYTES`], as O_DIRECT asks.
#[derive(Default)]
pub struct Blocks {
    memory: Vec<u8>,
    begin: usize,
    bytes: usize,
}

impl Blocks {
    /// Room for `bytes`, rounded up to whole blocks.
    pub fn zeroed(bytes: usize) -> Blocks {
        let bytes = bytes.next_multiple_of(BLOCK_BYTES);
        let memory = vec![0; bytes + BLOCK_BYTES];
        let begin = memory.as_ptr().align_offset(BLOCK_BYTES);
        Blocks { memory, begin, bytes }
    }

    /// How long it may become without more memory.
    fn room(&self) -> usize {
        self.memory.len() - self.begin
    }

    /// The bytes.
    pub fn as_slice(&self) -> &[u8] {
        &self.memory[self.begin..self.begin + self.bytes]
    }

    /// The bytes, to be written.
    #[allow(clippy::should_implement_trait, reason = "as a slice has it, of one type alone")]
    pub fn as_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.begin..self.begin + self.bytes]
    }
}

/// Buffers that are used again: the kernel zeroes fresh memory page by page as it is first touched,
/// and an allocator gives what is large back to it at once.
pub struct Spare {
    kept: Mutex<Vec<Blocks>>,
    /// No more than so many.
    most: usize,
}

impl Spare {
    /// Keeps so many buffers at most.
    pub fn new(most: usize) -> Spare {
        Spare { kept: Mutex::default(), most }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Blocks>> {
        self.kept.lock().expect("nobody panics inside")
    }

    /// Room for `bytes`, rounded up to whole blocks. What lies there is not zeroed.
    pub fn take(&self, bytes: usize) -> Blocks {
        let bytes = bytes.next_multiple_of(BLOCK_BYTES);
        let mut kept = self.lock();
        let has_room = |(_, spare): &(usize, &Blocks)| bytes <= spare.room();
        let least = kept.iter().enumerate().filter(has_room).min_by_key(|(_, spare)| spare.room());
        match least.map(|(at, _)| at) {
            Some(at) => Blocks { bytes, ..kept.swap_remove(at) },
            None => {
                drop(kept);
                Blocks::zeroed(bytes)
            }
        }
    }

    /// Keeps a buffer, the largest ones where there are too many.
    pub fn give(&self, blocks: Blocks) {
        let mut kept = self.lock();
        if kept.len() < self.most {
            return kept.push(blocks);
        }
        if let Some(least) = kept.iter_mut().min_by_key(|spare| spare.room())
            && least.room() < blocks.room()
        {
            *least = blocks;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_buffer_that_has_room_is_used_again_and_the_largest_are_kept() {
        let spare = Spare::new(2);
        assert_eq!(spare.take(1).as_slice(), [0; BLOCK_BYTES], "there is none yet");
        let given = [1, 3, 2].map(|blocks| Blocks::zeroed(blocks * BLOCK_BYTES));
        let [_, three, two] = given.each_ref().map(|blocks| blocks.as_slice().as_ptr());
        given.into_iter().for_each(|blocks| spare.give(blocks));
        let mut taken = [BLOCK_BYTES + 1, 1].map(|bytes| spare.take(bytes));
        let places = taken.each_ref().map(|blocks| blocks.as_slice().as_ptr());
        assert_eq!(places, [two, three]);
        let lengths = taken.each_mut().map(|blocks| blocks.as_mut().len());
        assert_eq!(lengths, [2 * BLOCK_BYTES, BLOCK_BYTES]);
        assert!(spare.lock().is_empty());
    }
}
