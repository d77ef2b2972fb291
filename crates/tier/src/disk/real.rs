//! A file or a block device: O_DIRECT where the file system has it, RWF_DSYNC for a group,
//! fdatasync otherwise.

use super::{Barrier, Disk};
use crate::bytes::Blocks;
use crate::types::{BLOCK_BYTES, Error, Result, doing};
use rustix::fs::{AtFlags, FallocateFlags, FileType, Mode, OFlags, StatxFlags, fallocate, fstat};
use rustix::io::{Errno, ReadWriteFlags, pread, pwrite, pwritev2};
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
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
    cache: Option<u64>,
    in_place: bool,
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
        let cache = if direct { cache_of(&file) } else { None };
        let size = stat.st_size as u64;
        let mut disk = FileDisk { file, bytes: size, direct, cache, in_place: false };
        if FileType::from_raw_mode(stat.st_mode) == FileType::BlockDevice {
            let size = rustix::fs::seek(&disk.file, rustix::fs::SeekFrom::End(0));
            disk.bytes = doing("size of the device", size.map_err(Into::into))?;
        } else if disk.bytes == 0 && bytes != 0 {
            disk.grow(bytes, fresh)?;
        }
        disk.in_place = disk.cache.is_some() && has_no_holes(&disk.file, disk.bytes);
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

    fn is_synced_by(&self, other: &dyn Disk) -> bool {
        self.in_place && self.cache.is_some() && self.cache == other.cache()
    }

    fn cache(&self) -> Option<u64> {
        self.cache
    }

    fn file(&self) -> Option<BorrowedFd<'_>> {
        // Without O_DIRECT the kernel would carry transfers out one by one, as we do.
        self.direct.then(|| self.file.as_fd())
    }
}

/// The device whose cache fdatasync of this file empties as a whole. Told of ext4 alone: it writes
/// where the bytes were (others may write elsewhere and keep a map of it), and its fdatasync ends
/// with a flush of the device whatever it had to write. Not where it takes O_DIRECT for a wish
/// (`data=journal`, say), as statx tells.
fn cache_of(file: &OwnedFd) -> Option<u64> {
    const EXT4_MAGIC: u64 = 0xef53;
    let is_ext4 = rustix::fs::fstatfs(file).ok()?.f_type as u64 == EXT4_MAGIC;
    let wanted = StatxFlags::DIOALIGN;
    let told = rustix::fs::statx(file, "", AtFlags::EMPTY_PATH, wanted).ok()?;
    let is_direct = told.stx_mask & wanted.bits() != 0 && told.stx_dio_mem_align != 0;
    let device = u64::from(told.stx_dev_major) << 32 | u64::from(told.stx_dev_minor);
    (is_ext4 && is_direct).then_some(device)
}

/// Whether all of a file has its place on the device and was written there: else a write changes
/// the file system's map, too, which only a sync of this very file makes durable. Space that is
/// merely reserved is a hole here.
fn has_no_holes(file: &OwnedFd, bytes: u64) -> bool {
    rustix::fs::seek(file, rustix::fs::SeekFrom::Hole(0)).is_ok_and(|hole| hole == bytes)
}

/// A write cut off inside a block goes on at the block's start: O_DIRECT takes no other offset.
fn whole(bytes: usize) -> io::Result<usize> {
    match bytes - bytes % BLOCK_BYTES {
        0 => Err(io::Error::new(io::ErrorKind::StorageFull, "a write of less than a block")),
        whole => Ok(whole),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_written_as_a_whole_is_synced_by_its_neighbour() {
        let path =
            |name| std::env::temp_dir().join(format!("laneway-disk-{name}-{}", std::process::id()));
        let paths = ["zeroed", "reserved", "values"].map(path);
        const BYTES: u64 = 4 << 20;
        let open = |at: usize, fresh| FileDisk::open(&paths[at], BYTES, fresh).unwrap();
        let (zeroed, reserved) = (open(0, Fresh::Zeroed), open(1, Fresh::Reserved));
        let values = open(2, Fresh::Reserved);
        assert!(!reserved.is_synced_by(&values), "its blocks are not written yet");
        // On ext4 a zeroed file is; what other file systems do is not known.
        assert_eq!(zeroed.is_synced_by(&values), values.cache().is_some());
        let again = open(0, Fresh::Zeroed);
        assert_eq!(again.is_synced_by(&values), values.cache().is_some(), "after a restart, too");
        for path in &paths {
            std::fs::remove_file(path).unwrap();
        }
        let elsewhere = Path::new("/dev/shm").join(format!("laneway-disk-{}", std::process::id()));
        if let Ok(memory) = FileDisk::open(&elsewhere, BYTES, Fresh::Zeroed) {
            assert!(!zeroed.is_synced_by(&memory) && !memory.is_synced_by(&values));
            std::fs::remove_file(elsewhere).unwrap();
        }
    }
}
