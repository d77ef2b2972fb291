//! What holds blocks: a real file or device ([`real`]), or a simulated one that loses, tears and
//! refuses by seed ([`sim`]).
//!
//! A write may be short and is not durable before the next [`Disk::sync`] that succeeds. Offsets
//! and lengths are whole blocks; buffers are aligned to one ([`crate::bytes::Blocks`]).
//!
//! Reads and writes block the calling thread, several at once where a group or a scan has several
//! ([`read_together`], [`write_together`], by [`aio`] on files). Reads that nobody waits for go
//! through a pool of threads ([`crate::Reads`]): at a device's 100 µs a thread hand-over of 5 µs is
//! not what one waits for, and what is lent to the kernel never outlives a call.

mod aio;
pub mod real;
pub mod sim;

use aio::{Memory, Transfer};
use std::io;
use std::os::fd::BorrowedFd;

/// Why a sync, a flush or a fence is there. Devices do not care; the tests take one kind away at a
/// time and must notice, and the statistics count them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Barrier {
    /// A large value before the record that points at it.
    Data,
    /// A group of records before it is acknowledged.
    Group,
    /// What a migration appended, before the place it came from is used again.
    Move,
    /// A sort table before the record that names it.
    Table,
    /// A checkpoint before the superblock that names it.
    Checkpoint,
    /// A superblock before what only its predecessor needs is freed.
    Superblock,
    /// What recovery found, before it is served.
    Recovery,
}

impl Barrier {
    /// All of them.
    pub const ALL: [Barrier; 7] = [
        Barrier::Data,
        Barrier::Group,
        Barrier::Move,
        Barrier::Table,
        Barrier::Checkpoint,
        Barrier::Superblock,
        Barrier::Recovery,
    ];
}

/// Blocks with a volatile cache in front.
pub trait Disk: Send + Sync {
    /// How many bytes there are.
    fn bytes(&self) -> u64;
    /// Reads at least one byte and says how many.
    fn read_some(&self, at: u64, into: &mut [u8]) -> io::Result<usize>;
    /// Writes at least one block and says how many bytes.
    fn write_some(&self, at: u64, from: &[u8]) -> io::Result<usize>;
    /// As `write_some`, and durable when it returns.
    fn write_durable(&self, at: u64, from: &[u8], why: Barrier) -> io::Result<usize> {
        let written = self.write_some(at, from)?;
        self.sync(why)?;
        Ok(written)
    }
    /// Makes all durable that was written before.
    fn sync(&self, why: Barrier) -> io::Result<()>;
    /// Whether a sync of `other` makes durable what was written here before: both lie behind one
    /// cache, and writes here change bytes in their places and nothing else.
    fn is_synced_by(&self, _other: &dyn Disk) -> bool {
        false
    }
    /// What cache a sync of this disk empties as a whole, if that is known.
    fn cache(&self) -> Option<u64> {
        None
    }
    /// The file behind it, if it is one: transfers of several disks can then go together.
    fn file(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Reads all of `into`.
    fn read_all(&self, at: u64, into: &mut [u8]) -> io::Result<()> {
        let mut done = 0;
        while done < into.len() {
            match self.read_some(at + done as u64, &mut into[done..]) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(bytes) => done += bytes,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Writes all of `from`.
    fn write_all(&self, at: u64, from: &[u8]) -> io::Result<()> {
        written(from, |done| self.write_some(at + done as u64, &from[done..]))
    }

    /// Writes all of `from`, durable when it returns.
    fn write_all_durable(&self, at: u64, from: &[u8], why: Barrier) -> io::Result<()> {
        written(from, |done| self.write_durable(at + done as u64, &from[done..], why))
    }
}

/// Bytes to be read from a disk.
pub struct Read<'a> {
    /// The disk.
    pub disk: &'a dyn Disk,
    /// Where.
    pub at: u64,
    /// All of this is read.
    pub into: &'a mut [u8],
}

/// Bytes to be written to a disk.
#[derive(Clone, Copy)]
pub struct Write<'a> {
    /// The disk.
    pub disk: &'a dyn Disk,
    /// Where.
    pub at: u64,
    /// All of this is written.
    pub from: &'a [u8],
}

/// Reads at several places at once, in any order.
pub fn read_together(reads: &mut [Read<'_>]) -> io::Result<()> {
    let count = reads.len();
    let mut transfers = Vec::with_capacity(count);
    for Read { disk, at, into } in reads.iter_mut() {
        if let Some(file) = disk.file() {
            transfers.push(Transfer { file, at: *at, memory: Memory::Into(into) });
        }
    }
    let whole = carried_out(&mut transfers, count);
    let left = reads.iter_mut().zip(whole).filter(|(_, whole)| !whole);
    left.into_iter().try_for_each(|(read, _)| read.disk.read_all(read.at, read.into))
}

/// Writes at several places at once, in any order; durable after a sync of each disk.
pub fn write_together(writes: &[Write<'_>]) -> io::Result<()> {
    let mut transfers = Vec::with_capacity(writes.len());
    for &Write { disk, at, from } in writes {
        if let Some(file) = disk.file() {
            transfers.push(Transfer { file, at, memory: Memory::From(from) });
        }
    }
    let whole = carried_out(&mut transfers, writes.len());
    let left = writes.iter().zip(whole).filter(|(_, whole)| !whole);
    left.into_iter().try_for_each(|(write, _)| write.disk.write_all(write.at, write.from))
}

/// Of `count` transfers, which are done. One alone is not worth a queue, and those that are no
/// files' have none: what is not done is done one after the other.
fn carried_out(transfers: &mut [Transfer<'_>], count: usize) -> Vec<bool> {
    match 1 < count && transfers.len() == count {
        true => aio::together(transfers),
        false => vec![false; count],
    }
}

/// Repeats a write until nothing is left.
fn written(from: &[u8], mut write: impl FnMut(usize) -> io::Result<usize>) -> io::Result<()> {
    let mut done = 0;
    while done < from.len() {
        match write(done) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(bytes) => done += bytes,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
