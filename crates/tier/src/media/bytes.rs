//! Little-endian numbers in and out of byte strings; buffers that O_DIRECT accepts.
//!
//! A [`Reader`] answers `None` past the end: what is read here may be damaged.

use crate::types::BLOCK_BYTES;

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

/// Appends numbers.
pub trait Put {
    /// One byte.
    fn put_u8(&mut self, value: u8);
    /// Two bytes.
    fn put_u16(&mut self, value: u16);
    /// Four bytes.
    fn put_u32(&mut self, value: u32);
    /// Eight bytes.
    fn put_u64(&mut self, value: u64);
}

impl Put for Vec<u8> {
    fn put_u8(&mut self, value: u8) {
        self.push(value);
    }
    fn put_u16(&mut self, value: u16) {
        self.extend_from_slice(&value.to_le_bytes());
    }
    fn put_u32(&mut self, value: u32) {
        self.extend_from_slice(&value.to_le_bytes());
    }
    fn put_u64(&mut self, value: u64) {
        self.extend_from_slice(&value.to_le_bytes());
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

    /// The bytes.
    pub fn as_slice(&self) -> &[u8] {
        &self.memory[self.begin..self.begin + self.bytes]
    }

    /// The bytes, to be written.
    pub fn as_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.begin..self.begin + self.bytes]
    }
}
