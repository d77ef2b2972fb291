//! A file or a block device: O_DIRECT where the file system has it, made durable by fdatasync.

use super::ext4::cache_of;
use super::extents::are_written;
use super::{Barrier, Disk};
use crate::bytes::Blocks;
use crate::types::{BLOCK_BYTES, Error, Result, doing};
use rustix::fs::{FallocateFlags, FileType, Mode, OFlags, fallocate, fstat};
use rustix::io::{Errno, pread, pwrite};
use std::io;
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
        let mut disk = FileDisk { file, bytes: size, direct, cache };
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

    fn sync(&self, _why: Barrier) -> io::Result<()> {
        Ok(rustix::fs::fdatasync(&self.file)?)
    }

    fn is_synced_by(&self, other: &dyn Disk, at: u64, bytes: u64) -> bool {
        // Asked of the file system each time: somebody may have punched a hole since.
        self.cache.is_some()
            && self.cache == other.cache()
            && are_written(self.file.as_fd(), at, bytes)
    }

    fn cache(&self) -> Option<u64> {
        self.cache
    }

    fn file(&self) -> Option<BorrowedFd<'_>> {
        // Without O_DIRECT the kernel would carry transfers out one by one, as we do.
        self.direct.then(|| self.file.as_fd())
    }
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

    /// Whether a file is on an ext4 of which, by its mount alone, one flush must be known to serve
    /// all files: nothing in its options but what is named here, a journal of its own, and a kernel
    /// that tells of O_DIRECT (since Linux 6.1).
    fn is_on_plain_ext4(file: &OwnedFd) -> bool {
        const PLAIN: &str = "rw relatime noatime discard errors=remount-ro data=ordered barrier";
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let release = read("/proc/sys/kernel/osrelease");
        let mut numbers = release.split(['.', '-']).map_while(|part| part.parse::<u32>().ok());
        let is_new = Some((6, 1)) <= numbers.next().zip(numbers.next());
        let device = fstat(file).unwrap().st_dev;
        let device = format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device));
        let mounts = read("/proc/self/mountinfo");
        let of_it = mounts.lines().find_map(|line| {
            let (place, rest) = line.split_once(" - ext4 /dev/")?;
            (place.split(' ').nth(2) == Some(&device)).then(|| rest.split_once(' ')).flatten()
        });
        let Some((name, options)) = of_it else { return false };
        let is_plain = |option: &str| {
            PLAIN.split(' ').any(|plain| plain == option) || option.starts_with("res")
        };
        let journals = std::fs::read_dir("/proc/fs/jbd2").into_iter().flatten().flatten();
        let own = format!("{name}-8"); // the inode that mke2fs gives it
        let has_own = journals.into_iter().any(|journal| *journal.file_name() == *own);
        let task = read(&format!("/sys/fs/ext4/{name}/journal_task"));
        is_new && options.split(',').all(is_plain) && (has_own || task.trim() == "<none>")
    }

    #[test]
    fn only_what_was_written_is_synced_by_its_neighbour() {
        let path =
            |name| std::env::temp_dir().join(format!("laneway-disk-{name}-{}", std::process::id()));
        let paths = ["zeroed", "reserved", "values"].map(path);
        const BYTES: u64 = 4 << 20;
        const BLOCK: u64 = BLOCK_BYTES as u64;
        let open = |at: usize, fresh| FileDisk::open(&paths[at], BYTES, fresh).unwrap();
        let (zeroed, reserved) = (open(0, Fresh::Zeroed), open(1, Fresh::Reserved));
        let values = open(2, Fresh::Reserved);
        // On an ext4 that is known it is; what other file systems do is not known.
        let is_known = values.cache().is_some();
        assert!(is_known || !is_on_plain_ext4(&values.file), "it must be on where it can be");
        let all_is = |log: &FileDisk| log.is_synced_by(&values, 0, BYTES);
        assert_eq!(all_is(&zeroed), is_known);
        assert_eq!(all_is(&open(0, Fresh::Zeroed)), is_known, "after a restart, too");
        assert!(!zeroed.is_synced_by(&values, BYTES, BLOCK), "beyond the end");
        assert!(!all_is(&reserved), "its blocks are not written yet");
        // Pages of it in the cache, of which SEEK_HOLE says that they were.
        assert_eq!(std::fs::read(&paths[1]).unwrap().len() as u64, BYTES);
        assert!(!all_is(&reserved), "nor if they were read");
        reserved.write_all(BLOCK, Blocks::zeroed(2 * BLOCK_BYTES).as_slice()).unwrap();
        reserved.sync(Barrier::Group).unwrap();
        assert_eq!(reserved.is_synced_by(&values, BLOCK, 2 * BLOCK), is_known);
        assert!(!reserved.is_synced_by(&values, 0, 2 * BLOCK), "half of it");
        assert!(!reserved.is_synced_by(&values, 2 * BLOCK, 2 * BLOCK), "half of it");
        let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        if fallocate(&zeroed.file, hole, 1 << 20, BLOCK).is_ok() {
            assert!(!all_is(&zeroed), "a hole was punched");
            assert_eq!(zeroed.is_synced_by(&values, 0, 1 << 20), is_known, "before it");
            assert!(!zeroed.is_synced_by(&values, 1 << 20, BLOCK));
        }
        for path in &paths {
            std::fs::remove_file(path).unwrap();
        }
        let elsewhere = Path::new("/dev/shm").join(format!("laneway-disk-{}", std::process::id()));
        if let Ok(memory) = FileDisk::open(&elsewhere, BYTES, Fresh::Zeroed) {
            assert!(!zeroed.is_synced_by(&memory, 0, BLOCK));
            assert!(!memory.is_synced_by(&values, 0, BLOCK));
            std::fs::remove_file(elsewhere).unwrap();
        }
    }
}
