//! A disk whose failed sync stays failed, whoever asked for it.
//!
//! Kernels and devices tell of writes that were lost once, to whoever syncs next; a group, a sort
//! table and a checkpoint sync the same file. So they do it one after the other, and after the
//! first failure nobody is told that it went well.

use super::{Barrier, Disk};
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex};

/// Another disk, with that.
pub struct Sticky {
    disk: Arc<dyn Disk>,
    failed: Mutex<Option<String>>,
}

impl Sticky {
    /// Over a disk of which no sync has failed.
    pub fn new(disk: Arc<dyn Disk>) -> Sticky {
        Sticky { disk, failed: Mutex::new(None) }
    }
}

impl Disk for Sticky {
    fn bytes(&self) -> u64 {
        self.disk.bytes()
    }

    fn read_some(&self, at: u64, into: &mut [u8]) -> io::Result<usize> {
        self.disk.read_some(at, into)
    }

    fn write_some(&self, at: u64, from: &[u8]) -> io::Result<usize> {
        self.disk.write_some(at, from)
    }

    fn sync(&self, why: Barrier) -> io::Result<()> {
        let mut failed = self.failed.lock().expect("nobody panics inside");
        if let Some(why) = &*failed {
            return Err(io::Error::other(format!("an earlier sync failed: {why}")));
        }
        self.disk.sync(why).inspect_err(|error| *failed = Some(error.to_string()))
    }

    fn is_synced_by(&self, other: &dyn Disk, at: u64, bytes: u64) -> bool {
        self.disk.is_synced_by(other, at, bytes)
    }

    fn cache(&self) -> Option<u64> {
        self.disk.cache()
    }

    fn file(&self) -> Option<BorrowedFd<'_>> {
        self.disk.file()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::media::disk::sim::{Faults, Power, SimDisk};

    #[test]
    fn a_failure_is_told_to_all_who_come_later() {
        let faults = Faults { sync_error_one_in: 1, ..Faults::default() };
        let disk = Arc::new(SimDisk::new(1 << 20, Power::new(u64::MAX), 1, faults));
        let sticky = Sticky::new(disk.clone());
        assert!(sticky.sync(Barrier::Checkpoint).is_err());
        disk.set_faults(Faults::default());
        assert!(disk.sync(Barrier::Data).is_ok(), "the disk has told it once");
        assert!(sticky.sync(Barrier::Data).is_err());
        let well = Sticky::new(disk);
        assert!(well.sync(Barrier::Data).is_ok() && well.sync(Barrier::Table).is_ok());
    }
}
