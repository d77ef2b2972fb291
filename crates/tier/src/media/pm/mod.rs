//! The medium of the log: bytes in it survive a loss of power once they are written, flushed and
//! fenced.
//!
//! One interface, four backends: [`wal`] on a file or device, with the group as one synchronous
//! write (the default: there is no persistent memory to be bought any more); [`map`] for memory
//! mapped from a DAX file system or, volatile and for benchmarks only, from anywhere; [`sim`] for
//! tests. The log's format is the same on all of them.

pub mod map;
pub mod sim;
pub mod wal;

use crate::media::disk::{Barrier, Disk, Write, write_together};
use std::io::{self, IoSlice};
use std::ops::Range;

/// What a [`Region::write_with`] wrote.
#[derive(Debug, Default)]
pub struct Written {
    /// Its number, where the region counts.
    pub number: u64,
    /// The sync of the values makes it durable, too.
    pub is_served: bool,
}

/// Byte-addressed persistent memory, or what behaves like it.
///
/// What was written is read back at once. It is durable when a flush of it and then a fence have
/// returned; until then any part of it may be, in units of 8 bytes.
pub trait Region: Send + Sync {
    /// How many bytes there are.
    fn bytes(&self) -> u64;
    /// Reads all of `into`.
    fn read(&self, at: u64, into: &mut [u8]) -> io::Result<()>;
    /// Writes all of `from`.
    fn write(&self, at: u64, from: &[u8]) -> io::Result<()>;
    /// Writes all of the parts, one behind the other, as if they were one piece. Nothing behind
    /// them is needed: up to the end of a block that they begin there may be zeros afterwards, so
    /// that a block of the disk is not read to be written over.
    fn append(&self, at: u64, parts: &mut [IoSlice<'_>]) -> io::Result<()>;
    /// The word of 8 bytes at a multiple of 8; 0 where it cannot be read.
    fn load(&self, at: u64) -> u64 {
        let mut word = [0; 8];
        self.read(at, &mut word).map_or(0, |()| u64::from_le_bytes(word))
    }
    /// Stores the word of 8 bytes at a multiple of 8, as one, and behind all stores before it: of
    /// stores to one line a loss of power keeps the first few.
    fn store(&self, at: u64, word: u64) -> io::Result<()> {
        self.write(at, &word.to_le_bytes())
    }
    /// Begins to make a range durable.
    fn flush(&self, at: u64, bytes: u64) -> io::Result<()>;
    /// Everything flushed before is durable when this returns.
    fn fence(&self, why: Barrier) -> io::Result<()>;
    /// Writes what was flushed before to where a `sync` makes it durable, and these values, all of
    /// one disk, to that: at once where it is possible. One caller at a time.
    fn write_with(&self, values: &[Write<'_>]) -> io::Result<Written> {
        write_together(values)?;
        Ok(Written::default())
    }
    /// What a `write_with` wrote is durable when this returns, and what those before it did. If the
    /// sync of its values serves for it, that comes before. One caller at a time, in the order of
    /// the writes; the next may be written meanwhile.
    fn sync(&self, why: Barrier, _written: &Written) -> io::Result<()> {
        self.fence(why)
    }
    /// The disk that has its bytes at the same places, if reads wait for one: who reads many places
    /// reads them there, all at once.
    fn disk(&self) -> Option<&dyn Disk> {
        None
    }
    /// The blocks of these ranges that are newer than on [`Region::disk`], by place: to be asked
    /// for before it is read, as one may get there meanwhile.
    fn newer(&self, _ranges: &[Range<u64>]) -> Vec<(u64, Box<[u8]>)> {
        Vec::new()
    }
    /// Whether a read may wait for a device, so that a server must not do it between two requests.
    fn reads_wait(&self) -> bool;
    /// Bytes that went to the medium so far.
    fn written_bytes(&self) -> u64;
    /// The backend's name, as in `--pm-backend`.
    fn name(&self) -> &'static str;
}
