//! Folders of a run's own, gone when it ends. One that was killed leaves its own behind; the next
//! run removes those whose process is no more.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Folders made so far.
static MADE: AtomicU32 = AtomicU32::new(0);
const NAME: &str = "laneway-tier-bench-";
/// The kernel counts a file's blocks in these, whatever the file system's are.
const STAT_BLOCK_BYTES: u64 = 512;

/// A folder that is removed when dropped.
pub struct Folder(PathBuf);

impl Folder {
    /// Below `parent`, which is there.
    pub fn new(parent: &Path) -> Result<Folder, String> {
        let failed = |error: io::Error| format!("--dir {}: {error}", parent.display());
        for entry in fs::read_dir(parent).map_err(failed)?.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let id = name.strip_prefix(NAME).and_then(|rest| rest.split('-').next());
            let id = id.and_then(|id| id.parse::<u32>().ok());
            if id.is_some_and(|id| !Path::new(&format!("/proc/{id}")).exists()) {
                let _ = fs::remove_dir_all(entry.path()); // somebody else may be doing the same
            }
        }
        let count = MADE.fetch_add(1, Relaxed); // a count, of this process alone
        let path = parent.join(format!("{NAME}{}-{count}", std::process::id()));
        fs::create_dir(&path).map_err(failed)?;
        Ok(Folder(path))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// What its files take of the disk.
    pub fn bytes(&self) -> u64 {
        bytes_below(&self.0)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.0) {
            eprintln!("{} stays behind: {error}", self.0.display());
        }
    }
}

fn bytes_below(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let of = |entry: fs::DirEntry| match entry.metadata() {
        Ok(data) if data.is_dir() => bytes_below(&entry.path()),
        Ok(data) => data.blocks() * STAT_BLOCK_BYTES,
        Err(_) => 0, // it was removed meanwhile
    };
    entries.map(of).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_goes_with_its_run_and_those_of_the_dead_go_too() {
        let parent = std::env::temp_dir().join(format!("laneway-folders-{}", std::process::id()));
        // No process has this number: it is beyond the kernel's highest.
        let left = parent.join(format!("{NAME}{}-0", u32::MAX));
        let stranger = parent.join("somebody-elses");
        fs::create_dir_all(&left).expect("made");
        fs::create_dir_all(&stranger).expect("made");
        let folder = Folder::new(&parent).expect("made");
        fs::create_dir(folder.path().join("inner")).expect("made");
        fs::write(folder.path().join("inner/file"), vec![1; 10_000]).expect("written");
        assert!(folder.path().is_dir() && stranger.is_dir() && !left.exists());
        let path = folder.path().to_owned();
        drop(folder);
        assert!(!path.exists());
        fs::remove_dir_all(parent).expect("removed");
    }
}
