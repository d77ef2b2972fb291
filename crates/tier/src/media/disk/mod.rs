//! Block devices: a real file or device ([`real`]), or a simulated one that loses, tears and
//! refuses by seed ([`sim`]).
//!
//! A write may be short and is not durable before the next [`Disk::sync`] that succeeds. Offsets
//! and lengths are whole blocks; buffers are aligned to one ([`crate::media::bytes::Blocks`]).
//!
//! Reads and writes block the calling thread, several at once where a group or a scan has several
//! ([`read_each`], [`write_together`], by [`aio`] on files). Reads that nobody waits for go
//! through a pool of threads ([`crate::Reads`]): at a device's 100 µs a thread hand-over of 5 µs is
//! not what one waits for, and what is lent to the kernel never outlives a call.

mod aio;
mod ext4;
mod extents;
pub mod fresh;
pub mod lock;
pub mod longer;
pub mod real;
pub mod sim;
mod sticky;

pub(crate) use sticky::Sticky;

use aio::{Memory, Transfer, Unwatched, Watch};
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
    /// Steps of an index in persistent memory.
    Index,
}

impl Barrier {
    /// All of them.
    pub const ALL: [Barrier; 8] = [
        Barrier::Data,
        Barrier::Group,
        Barrier::Move,
        Barrier::Table,
        Barrier::Checkpoint,
        Barrier::Superblock,
        Barrier::Recovery,
        Barrier::Index,
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
    /// Makes all durable that was written before.
    fn sync(&self, why: Barrier) -> io::Result<()>;
    /// Whether a sync of `other` makes durable what will be written at this place: both lie behind
    /// one cache, and the write changes bytes in their places and nothing else.
    fn is_synced_by(&self, _other: &dyn Disk, _at: u64, _bytes: u64) -> bool {
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

/// Reads at several places at once, in any order, and shows each that was read, by its number,
/// while others are under way still; `meanwhile` is done once, as early as anything is under way.
/// What fails is not shown.
pub fn read_each(
    reads: &mut [Read<'_>],
    meanwhile: impl FnOnce(),
    show: impl FnMut(usize, &mut [u8]),
) {
    let mut watch = Watching { meanwhile: Some(meanwhile), show };
    let count = reads.len();
    let mut transfers = Vec::with_capacity(count);
    for Read { disk, at, into } in reads.iter_mut() {
        if let Some(file) = disk.file() {
            transfers.push(Transfer { file, at: *at, memory: Memory::Into(into) });
        }
    }
    // Those that are no files' have no queue.
    let whole = match transfers.len() == count {
        true => aio::together(&mut transfers, &mut watch),
        false => vec![false; count],
    };
    watch.under_way();
    let reads = reads.iter_mut().enumerate().zip(whole);
    for ((number, read), _) in reads.filter(|(_, whole)| !whole) {
        if read.disk.read_all(read.at, read.into).is_ok() {
            (watch.show)(number, read.into);
        }
    }
}

struct Watching<M, S> {
    meanwhile: Option<M>,
    show: S,
}

impl<M: FnOnce(), S: FnMut(usize, &mut [u8])> Watch for Watching<M, S> {
    fn under_way(&mut self) {
        if let Some(meanwhile) = self.meanwhile.take() {
            meanwhile();
        }
    }

    fn whole(&mut self, number: usize, memory: &mut Memory<'_>) {
        if let Memory::Into(into) = memory {
            (self.show)(number, into);
        }
    }
}

/// Writes at several places at once, in any order; durable after a sync of each disk.
pub fn write_together(writes: &[Write<'_>]) -> io::Result<()> {
    let mut transfers = Vec::with_capacity(writes.len());
    for &Write { disk, at, from } in writes {
        if let Some(file) = disk.file() {
            transfers.push(Transfer { file, at, memory: Memory::From(from) });
        }
    }
    // One alone is not worth a queue, and those that are no files' have none.
    let whole = match 1 < writes.len() && transfers.len() == writes.len() {
        true => aio::together(&mut transfers, &mut Unwatched),
        false => vec![false; writes.len()],
    };
    let left = writes.iter().zip(whole).filter(|(_, whole)| !whole);
    left.into_iter().try_for_each(|(write, _)| write.disk.write_all(write.at, write.from))
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::fd::AsFd;
    use std::sync::Mutex;

    /// Bytes, and a file that stands for them and is shorter, or takes no writes.
    struct Half {
        bytes: Mutex<Vec<u8>>,
        file: File,
        /// Transfers that were done one by one.
        alone: Mutex<Vec<u64>>,
    }

    impl Half {
        fn new(blocks: usize, file: File) -> Half {
            let bytes = (0..blocks * 4096).map(|at| (at / 4096) as u8).collect();
            Half { bytes: Mutex::new(bytes), file, alone: Mutex::default() }
        }
    }

    impl Disk for Half {
        fn bytes(&self) -> u64 {
            self.bytes.lock().unwrap().len() as u64
        }

        /// A block at a time.
        fn read_some(&self, at: u64, into: &mut [u8]) -> io::Result<usize> {
            self.alone.lock().unwrap().push(at / 4096);
            into[..4096].copy_from_slice(&self.bytes.lock().unwrap()[at as usize..][..4096]);
            Ok(4096)
        }

        fn write_some(&self, at: u64, from: &[u8]) -> io::Result<usize> {
            self.alone.lock().unwrap().push(at / 4096);
            self.bytes.lock().unwrap()[at as usize..][..4096].copy_from_slice(&from[..4096]);
            Ok(4096)
        }

        fn sync(&self, _why: Barrier) -> io::Result<()> {
            Ok(())
        }

        fn file(&self) -> Option<BorrowedFd<'_>> {
            Some(self.file.as_fd())
        }
    }

    fn memory_file(blocks: u64) -> File {
        let flags = rustix::fs::MemfdFlags::CLOEXEC;
        let file = File::from(rustix::fs::memfd_create("laneway-disk", flags).unwrap());
        file.set_len(blocks * 4096).unwrap();
        file
    }

    #[test]
    fn what_did_not_go_together_as_a_whole_is_done_alone() {
        // The file has three blocks of four: of a read of the last two it gives one.
        let disk = Half::new(4, memory_file(3));
        std::os::unix::fs::FileExt::write_all_at(
            &disk.file,
            &[0, 1, 2].map(|b| [b; 4096]).concat(),
            0,
        )
        .unwrap();
        let (mut first, mut second) = (vec![9; 4096], vec![9; 8192]);
        let mut reads = [
            Read { disk: &disk, at: 4096, into: &mut first },
            Read { disk: &disk, at: 8192, into: &mut second },
        ];
        let (mut begun, mut shown) = (0, Vec::new());
        read_each(&mut reads, || begun += 1, |number, into| shown.push((number, into.to_vec())));
        shown.sort_unstable();
        read_each(&mut [], || begun += 1, |_, _| unreachable!("nothing is read"));
        assert_eq!(begun, 2, "once each");
        assert_eq!(shown, [(0, first.clone()), (1, second.clone())]);
        assert!(first == [1; 4096] && second[..4096] == [2; 4096] && second[4096..] == [3; 4096]);
        assert!(disk.alone.lock().unwrap().ends_with(&[2, 3]), "the whole of it once more");
        // A file that takes no writes.
        let disk = Half::new(4, File::open("/dev/null").unwrap());
        let from = vec![7; 8192];
        let write = |at| Write { disk: &disk, at, from: &from };
        write_together(&[write(0), write(8192)]).unwrap();
        assert_eq!(*disk.alone.lock().unwrap(), [0, 1, 2, 3]);
        assert!(disk.bytes.lock().unwrap().iter().all(|&byte| byte == 7));
    }
}
