//! A file or a block device: O_DIRECT where the file system has it, made durable by fdatasync.

use super::ext4::cache_of;
use super::extents::are_written;
use super::lock::{lock, lock_to_read, open};
use super::{Barrier, Disk};
use crate::types::{BLOCK_BYTES, Error, Result, doing};
use rustix::fs::{Advice, FileType, OFlags, fadvise, fstat};
use rustix::io::{pread, pwrite};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

/// One file.
pub struct FileDisk {
    file: OwnedFd,
    bytes: u64,
    direct: bool,
    cache: Option<u64>,
}

impl FileDisk {
    /// Opens what is there, alone.
    pub fn open(path: &Path) -> Result<FileDisk> {
        Self::open_with(path, OFlags::RDWR, lock)
    }

    /// The same without the right to write, beside others who have none.
    pub fn open_read_only(path: &Path) -> Result<FileDisk> {
        Self::open_with(path, OFlags::RDONLY, lock_to_read)
    }

    fn open_with(
        path: &Path,
        flags: OFlags,
        lock: fn(&OwnedFd, &Path) -> Result<()>,
    ) -> Result<FileDisk> {
        let (file, direct) = match open(path, flags | OFlags::DIRECT) {
            // tmpfs before Linux 6.6 and some others have no O_DIRECT.
            Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::InvalidInput => {
                (open(path, flags)?, false)
            }
            opened => (opened?, true),
        };
        lock(&file, path)?;
        if !direct {
            // What a failed sync left in the page cache is on no medium: read that instead.
            doing(
                "drop cached pages",
                fadvise(&file, 0, None, Advice::DontNeed).map_err(Into::into),
            )?;
        }
        let stat = doing("fstat", fstat(&file).map_err(Into::into))?;
        let cache = if direct { cache_of(&file) } else { None };
        let mut disk = FileDisk { file, bytes: stat.st_size as u64, direct, cache };
        if FileType::from_raw_mode(stat.st_mode) == FileType::BlockDevice {
            let size = rustix::fs::seek(&disk.file, rustix::fs::SeekFrom::End(0));
            disk.bytes = doing("size of the device", size.map_err(Into::into))?;
        }
        disk.bytes -= disk.bytes % BLOCK_BYTES as u64;
        Ok(disk)
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
    use super::super::fresh::{Fresh, Making};
    use super::*;
    use crate::media::bytes::Blocks;
    use rustix::fs::{FallocateFlags, fallocate};

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
        let make = |path: &Path, fresh| {
            Making::begin(path, BYTES, "")?.finish(fresh)?;
            FileDisk::open(path)
        };
        let zeroed = make(&paths[0], Fresh::Zeroed).unwrap();
        let reserved = make(&paths[1], Fresh::Reserved).unwrap();
        let values = make(&paths[2], Fresh::Reserved).unwrap();
        // On an ext4 that is known it is; what other file systems do is not known.
        let is_known = values.cache().is_some();
        assert!(is_known || !is_on_plain_ext4(&values.file), "it must be on where it can be");
        let all_is = |log: &FileDisk| log.is_synced_by(&values, 0, BYTES);
        assert_eq!(all_is(&zeroed), is_known);
        assert!(matches!(FileDisk::open(&paths[0]), Err(Error::Locked(_))), "it is in use");
        assert!(matches!(FileDisk::open_read_only(&paths[0]), Err(Error::Locked(_))));
        drop(zeroed);
        let reads = [(); 2].map(|()| FileDisk::open_read_only(&paths[0]).unwrap());
        assert!(matches!(FileDisk::open(&paths[0]), Err(Error::Locked(_))), "it is being read");
        drop(reads);
        let zeroed = FileDisk::open(&paths[0]).unwrap();
        assert_eq!(all_is(&zeroed), is_known, "after a restart, too");
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
        if let Ok(memory) = make(&elsewhere, Fresh::Zeroed) {
            assert!(!zeroed.is_synced_by(&memory, 0, BLOCK));
            assert!(!memory.is_synced_by(&values, 0, BLOCK));
            std::fs::remove_file(elsewhere).unwrap();
        }
    }
}
