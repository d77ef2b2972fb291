//! A file or a block device: O_DIRECT where the file system has it, RWF_DSYNC for a group,
//! fdatasync otherwise.

use super::{Barrier, Disk};
use crate::bytes::Blocks;
use crate::types::{BLOCK_BYTES, Error, Result, doing};
use rustix::fs::{FallocateFlags, FileType, Mode, OFlags, fallocate, fstat};
use rustix::io::{Errno, ReadWriteFlags, pread, pwrite, pwritev2};
use std::io::{self, IoSlice};
use std::os::fd::OwnedFd;
use std::path::Path;

/// What the fresh part of a file holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fresh {
    /// Reserved space. The first write of a block also writes the file system's map of it.
    Reserved,
    /// Written zeros, so that a synchronous write later is one write of the device.
    Zeroed,
}

/// One file.
pub struct FileDisk {
    file: OwnedFd,
    bytes: u64,
    direct: bool,
}

/// How much is zeroed in one write.
const ZERO_BYTES: usize = 1 << 20;

impl FileDisk {
    /// Opens `path`, making it `bytes` long if it is new. A block device keeps its own size.
    pub fn open(path: &Path, bytes: u64, fresh: Fresh) -> Result<FileDisk> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC;
        Self::open_with(path, flags, bytes, fresh)
    }

    /// Opens what is there, without the right to write.
    pub fn open_read_only(path: &Path) -> Result<FileDisk> {
        Self::open_with(path, OFlags::RDONLY | OFlags::CLOEXEC, 0, Fresh::Reserved)
    }

    fn open_with(path: &Path, flags: OFlags, bytes: u64, fresh: Fresh) -> Result<FileDisk> {
        let mode = Mode::RUSR | Mode::WUSR;
        let opened = rustix::fs::open(path, flags | OFlags::DIRECT, mode);
        let (file, direct) = match opened {
            // tmpfs before Linux 6.6 and some others have no O_DIRECT.
            Err(Errno::INVAL) => {
                (doing("open", rustix::fs::open(path, flags, mode).map_err(Into::into))?, false)
            }
            opened => (
                opened.map_err(|e| Error::Io {
                    what: "open a file of the store",
                    source: e.into(),
                })?,
                true,
            ),
        };
        let stat = doing("fstat", fstat(&file).map_err(Into::into))?;
        let mut disk = FileDisk { file, bytes: stat.st_size as u64, direct };
        if FileType::from_raw_mode(stat.st_mode) == FileType::BlockDevice {
            let size = rustix::fs::seek(&disk.file, rustix::fs::SeekFrom::End(0));
            disk.bytes = doing("size of the device", size.map_err(Into::into))?;
        } else if disk.bytes == 0 && bytes != 0 {
            disk.grow(bytes, fresh)?;
        }
        disk.bytes -= disk.bytes % BLOCK_BYTES as u64;
        Ok(disk)
    }

    fn grow(&mut self, bytes: u64, fresh: Fresh) -> Result<()> {
        let result = fallocate(&self.file, FallocateFlags::empty(), 0, bytes);
        doing("reserve the store's space", result.map_err(Into::into))?;
        self.bytes = bytes;
        if fresh == Fresh::Zeroed {
            let zeros = Blocks::zeroed(ZERO_BYTES);
            let mut at = 0;
            while at < bytes {
                let count = ZERO_BYTES.min((bytes - at) as usize);
                doing("zero the log", self.write_all(at, &zeros.as_slice()[..count]))?;
                at += count as u64;
            }
        }
        doing("sync a new file", self.sync(Barrier::Recovery))
    }

    /// Whether writes go round the page cache.
    pub fn is_direct(&self) -> bool {
        self.direct
    }
}

impl Disk for FileDisk {
    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn read_some(&self, at: u64, into: &mut [u8]) -> io::Result<usize> {
        Ok(pread(&self.file, into, at)?)
    }

    fn write_some(&self, at: u64, from: &[u8]) -> io::Result<usize> {
        whole(pwrite(&self.file, from, at)?)
    }

    fn write_durable(&self, at: u64, from: &[u8], _why: Barrier) -> io::Result<usize> {
        whole(pwritev2(&self.file, &[IoSlice::new(from)], at, ReadWriteFlags::DSYNC)?)
    }

    fn sync(&self, _why: Barrier) -> io::Result<()> {
        Ok(rustix::fs::fdatasync(&self.file)?)
    }
}

/// A write cut off inside a block goes on at the block's start: O_DIRECT takes no other offset.
fn whole(bytes: usize) -> io::Result<usize> {
    match bytes - bytes % BLOCK_BYTES {
        0 => Err(io::Error::new(io::ErrorKind::StorageFull, "a write of less than a block")),
        whole => Ok(whole),
    }
}
