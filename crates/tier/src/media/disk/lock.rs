//! Files and devices of a store, which nobody else may open meanwhile: two processes that write one
//! log or SSD destroy it, whatever folders they were given.

use crate::types::{Error, Result};
use rustix::fs::{FileType, FlockOperation, Mode, OFlags, flock, stat};
use rustix::io::Errno;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

/// Opens a file, or a device that nobody has mounted.
pub fn open(path: &Path, flags: OFlags) -> Result<OwnedFd> {
    let is_device = stat(path)
        .is_ok_and(|found| FileType::from_raw_mode(found.st_mode) == FileType::BlockDevice);
    // Of a device this asks for it alone; of a file it would ask that there be none.
    let alone = if is_device { OFlags::EXCL } else { OFlags::empty() };
    let mode = Mode::RUSR | Mode::WUSR;
    match rustix::fs::open(path, flags | alone | OFlags::CLOEXEC, mode) {
        Err(Errno::BUSY) => Err(Error::Locked(path.display().to_string())),
        opened => opened.map_err(|errno| told("open a file of the store", path, errno)),
    }
}

fn told(what: &'static str, path: &Path, errno: Errno) -> Error {
    let source = io::Error::from(errno);
    let told = format!("{}: {source}", path.display());
    Error::Io { what, source: io::Error::new(source.kind(), told) }
}

/// Locks an open file against everybody who asks, until it is closed.
pub fn lock(file: &OwnedFd, path: &Path) -> Result<()> {
    lock_by(FlockOperation::NonBlockingLockExclusive, file, path)
}

/// The same against all but those who read as well. On some network file systems, as NFS, nobody
/// may have a file alone who has not opened it to write.
pub fn lock_to_read(file: &OwnedFd, path: &Path) -> Result<()> {
    lock_by(FlockOperation::NonBlockingLockShared, file, path)
}

fn lock_by(operation: FlockOperation, file: &OwnedFd, path: &Path) -> Result<()> {
    match flock(file, operation) {
        // Some file systems know no locks; who uses them has the folder's.
        Ok(()) | Err(Errno::NOTSUP | Errno::NOSYS | Errno::NOLCK) => Ok(()),
        Err(Errno::WOULDBLOCK) => Err(Error::Locked(path.display().to_string())),
        Err(errno) => Err(told("lock a file of the store", path, errno)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_who_read_have_a_file_together_and_who_writes_has_it_alone() {
        let path = std::env::temp_dir().join(format!("laneway-locks-{}", std::process::id()));
        let [writes, also_writes] = [(); 2].map(|()| open(&path, OFlags::RDWR | OFlags::CREATE));
        let [reads, also_reads] = [(); 2].map(|()| open(&path, OFlags::RDONLY).unwrap());
        let (writes, also_writes) = (writes.unwrap(), also_writes.unwrap());
        lock_to_read(&reads, &path).unwrap();
        lock_to_read(&also_reads, &path).unwrap();
        assert!(matches!(lock(&writes, &path), Err(Error::Locked(_))));
        drop((reads, also_reads));
        lock(&writes, &path).unwrap();
        assert!(matches!(lock(&also_writes, &path), Err(Error::Locked(_))));
        let reads = open(&path, OFlags::RDONLY).unwrap();
        assert!(matches!(lock_to_read(&reads, &path), Err(Error::Locked(_))));
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn only_a_lock_of_somebody_else_is_told_as_one() {
        let path = std::env::temp_dir().join(format!("laneway-lock-{}", std::process::id()));
        let file = open(&path, OFlags::RDWR | OFlags::CREATE).unwrap();
        lock(&file, &path).unwrap();
        let second = open(&path, OFlags::RDWR).unwrap();
        assert!(matches!(lock(&second, &path), Err(Error::Locked(_))));
        // Of such a descriptor the kernel says EBADF.
        let unopened = open(&path, OFlags::PATH).unwrap();
        let told = lock(&unopened, &path).unwrap_err();
        assert!(matches!(told, Error::Io { .. }), "{told}");
        assert!(told.to_string().contains("laneway-lock-"), "{told}");
        std::fs::remove_file(path).unwrap();
    }
}
