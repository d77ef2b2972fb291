//! A file of a store that is made longer: that long, or as long as it was.
//!
//! Room is reserved behind its end first. Its length, which is what a start goes by, changes once
//! all of that is there. Zeros that are written move it as they come: a start that was killed then
//! has left it somewhat longer, and the next takes it as it is.

use super::fresh::{Fresh, write_zeros};
use super::lock::{lock, open};
use crate::types::{Error, Result, doing};
use rustix::fs::{FallocateFlags, OFlags, fallocate, fdatasync, fstat, ftruncate};
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

/// A file that is being made longer. Dropped, it is as long as it was.
pub struct Longer {
    file: OwnedFd,
    before: u64,
    bytes: u64,
    is_done: bool,
}

impl Longer {
    /// Reserves what a file lacks of `bytes`, for which whoever asks has `flag`; nothing where it
    /// lacks none, and of what is no file.
    pub fn begin(path: &Path, bytes: u64, flag: &str) -> Result<Option<Longer>> {
        if !path.metadata().is_ok_and(|found| found.is_file() && found.len() < bytes) {
            return Ok(None);
        }
        let file = open(path, OFlags::RDWR)?;
        lock(&file, path)?;
        let stat = doing("fstat", fstat(&file).map_err(Into::into))?;
        let longer = Longer { file, before: stat.st_size as u64, bytes, is_done: false };
        let more = bytes.saturating_sub(longer.before);
        let keep = FallocateFlags::KEEP_SIZE;
        fallocate(&longer.file, keep, longer.before, more).map_err(|errno| {
            let (path, mib, source) = (path.display(), more >> 20, io::Error::from(errno));
            Error::Setting(format!(
                "{path}: {mib} MiB more cannot be reserved: {source}; nothing was changed, and \
                 without {flag} the store keeps its size"
            ))
        })?;
        Ok(Some(longer))
    }

    /// The file is that long, durable when this returns.
    pub fn finish(mut self, fresh: Fresh) -> Result<()> {
        if fresh == Fresh::Zeroed {
            write_zeros(&self.file, self.before..self.bytes)?;
        }
        doing("make a file longer", ftruncate(&self.file, self.bytes).map_err(Into::into))?;
        doing("sync a longer file", fdatasync(&self.file).map_err(Into::into))?;
        self.is_done = true;
        Ok(())
    }
}

impl Drop for Longer {
    fn drop(&mut self) {
        if !self.is_done {
            // What is reserved behind its end goes, too.
            let _ = ftruncate(&self.file, self.before);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn a_file_is_made_longer_as_a_whole_or_stays_as_it_was() {
        let path = std::env::temp_dir().join(format!("laneway-longer-{}", std::process::id()));
        fs::write(&path, [7; 8192]).unwrap();
        let begin = |bytes| Longer::begin(&path, bytes, "--ssd-size");
        for bytes in [0, 4096, 8192] {
            assert!(begin(bytes).unwrap().is_none(), "{bytes}: it is that long");
        }
        assert!(Longer::begin(Path::new("/dev/null"), 4096, "--ssd-size").unwrap().is_none());
        let length = || path.metadata().unwrap().len();
        let blocks = || path.metadata().unwrap().blocks();
        let before = blocks();
        let told = begin(1 << 60).err().unwrap().to_string();
        assert!(told.contains("MiB more") && told.contains("without --ssd-size"), "{told}");
        assert_eq!(length(), 8192);
        let given_up = begin(4 << 20).unwrap().unwrap();
        assert!(matches!(begin(4 << 20), Err(Error::Locked(_))), "it is in use");
        assert_eq!(length(), 8192, "it is not longer yet");
        drop(given_up);
        assert_eq!(length(), 8192);
        assert!(blocks() < before + 1024, "what was reserved behind its end is still there");
        for (fresh, bytes) in [(Fresh::Reserved, 1 << 20), (Fresh::Zeroed, (2 << 20) + 4096)] {
            begin(bytes).unwrap().unwrap().finish(fresh).unwrap();
            let held = fs::read(&path).unwrap();
            assert_eq!(held.len() as u64, bytes);
            assert!(held[..8192] == [7; 8192] && held[8192..].iter().all(|byte| *byte == 0));
        }
        fs::remove_file(&path).unwrap();
    }
}
