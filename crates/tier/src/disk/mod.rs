//! What holds blocks: a real file or device ([`real`]), or a simulated one that loses, tears and
//! refuses by seed ([`sim`]).
//!
//! A write may be short and is not durable before the next [`Disk::sync`] that succeeds. Offsets
//! and lengths are whole blocks; buffers are aligned to one ([`crate::bytes::Blocks`]).
//!
//! Reads and writes block the calling thread: the tier reads asynchronously through a pool of
//! threads ([`crate::Reads`]) and not through io_uring, because submitting to a ring is `unsafe`
//! for as long as the kernel holds the buffers, many container runtimes forbid it, and at a
//! device's 100 µs a thread hand-over of 5 µs is not what one waits for. The interface, submit and
//! complete, would be a ring's too.

pub mod real;
pub mod sim;

use std::io;

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
