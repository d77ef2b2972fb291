//! The file that a backup goes to: under the name with `.part` behind it while it is written, by
//! its own name once it is whole and durable.

use crate::media::disk::fresh::{own, sync_folder_of};
use crate::media::disk::lock::open;
use crate::types::{Error, Result, doing};
use rustix::fs::{Advice, CWD, OFlags, RenameFlags, fadvise, fdatasync, renameat_with};
use rustix::io::Errno;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// The longest name.
const NAME_BYTES_MAX: usize = 200;
/// Written bytes after which the file is synced: what waits in the kernel's memory is bounded, and
/// a disk that is full is heard of soon.
const SYNC_BYTES: u64 = 8 << 20;

/// What a backup is written to.
pub trait Target: Write + Send {
    /// All was written: makes it durable, and known by its name.
    fn finish(self: Box<Self>) -> Result<()>;
}

/// A file that is being written. Dropped, it was never there.
pub struct TargetFile {
    path: PathBuf,
    part: PathBuf,
    file: File,
    bytes: u64,
    synced_bytes: u64,
}

/// Whether a backup may be called this: letters, digits, and `.`, `-`, `_` between them.
pub fn is_name(name: &str) -> bool {
    let is_inner = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    let begins = name.starts_with(|c: char| c.is_ascii_alphanumeric());
    // What a data folder has in it, should somebody have backups made there.
    let is_taken = ["lock", "log", "ssd", crate::media::directory::LOADING].contains(&name);
    begins
        && !is_taken
        && name.len() <= NAME_BYTES_MAX
        && name.chars().all(is_inner)
        && !name.ends_with(".part")
}

impl TargetFile {
    /// A file of this name in a folder that is there.
    pub fn create(folder: &Path, name: &str) -> Result<TargetFile> {
        if !is_name(name) {
            return Err(Error::Backup(format!(
                "{name}: a backup is called by letters, digits, '.', '-' and '_', without a folder"
            )));
        }
        let path = folder.join(name);
        if path.symlink_metadata().is_ok() {
            return Err(is_there(&path));
        }
        let part = folder.join(format!("{name}.part"));
        remove_left(&part)?;
        // Of its own making: whose one that is there already is, who may read it, and by which
        // other names, nobody knows here.
        let file = open(&part, OFlags::RDWR | OFlags::CREATE | OFlags::EXCL).map_err(told)?;
        own(&file, &part)?;
        Ok(TargetFile { path, part, file: file.into(), bytes: 0, synced_bytes: 0 })
    }

    /// Gives it its own name; `sync_folder` has that found again after a loss of power.
    fn name(&self, sync_folder: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
        match renameat_with(CWD, &self.part, CWD, &self.path, RenameFlags::NOREPLACE) {
            Ok(()) => {}
            Err(Errno::EXIST) => return Err(is_there(&self.path)),
            // Some file systems cannot do both at once.
            Err(Errno::INVAL | Errno::NOSYS) if self.path.symlink_metadata().is_ok() => {
                return Err(is_there(&self.path));
            }
            Err(Errno::INVAL | Errno::NOSYS) => {
                doing("name a backup", fs::rename(&self.part, &self.path))?;
            }
            Err(errno) => return doing("name a backup", Err(errno.into())),
        }
        sync_folder(&self.path).inspect_err(|_| {
            // It is told to have come to nothing, so there is none.
            let _ = fs::remove_file(&self.path);
        })
    }

    fn sync(&mut self) -> io::Result<()> {
        fdatasync(&self.file)?;
        // Nobody reads it soon; what is read soon shall stay in the kernel's memory.
        let _ = fadvise(&self.file, 0, None, Advice::DontNeed);
        self.synced_bytes = self.bytes;
        Ok(())
    }
}

impl Write for TargetFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes)?;
        self.bytes += written as u64;
        if self.synced_bytes + SYNC_BYTES <= self.bytes {
            self.sync()?;
        }
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.sync()
    }
}

impl Target for TargetFile {
    fn finish(mut self: Box<Self>) -> Result<()> {
        doing("sync a backup", self.sync())?;
        self.name(sync_folder_of)
    }
}

impl Drop for TargetFile {
    fn drop(&mut self) {
        // Gone by this name where it was finished.
        let _ = fs::remove_file(&self.part);
    }
}

/// An error of a file that cannot be made, with what helps where the folder became read-only.
fn told(error: Error) -> Error {
    match error {
        Error::Io { source, .. } if source.kind() == io::ErrorKind::ReadOnlyFilesystem => {
            Error::Backup(format!("{source}; have the folder of backups mounted to be written to"))
        }
        error => error,
    }
}

/// Removes what an interrupted backup has left by this name, unless it is somebody's who writes it.
fn remove_left(part: &Path) -> Result<()> {
    let found = match part.symlink_metadata() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        found => doing("look for a backup's file", found)?,
    };
    if !found.is_file() {
        let part = part.display();
        return Err(Error::Backup(format!(
            "{part}: is there and is no file that a backup has left; remove it, or choose another \
             name"
        )));
    }
    // To write, though nothing is: who only reads a file on NFS may not have it alone.
    let left = open(part, OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK)?;
    own(&left, part)?;
    doing("remove what a backup has left", fs::remove_file(part))
}

fn is_there(path: &Path) -> Error {
    Error::Backup(format!("{}: is there already, and stays; choose another name", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    fn folder(name: &str) -> PathBuf {
        let name = format!("laneway-backup-{name}-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        fs::create_dir_all(&folder).unwrap();
        folder
    }

    fn names(folder: &Path) -> Vec<String> {
        let found = fs::read_dir(folder).unwrap();
        found.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    #[test]
    fn a_backup_has_its_name_once_it_is_whole() {
        let folder = folder("whole");
        fs::write(folder.join("day.part"), [7; 9000]).unwrap(); // of one that was interrupted
        let mut target = Box::new(TargetFile::create(&folder, "day").unwrap());
        target.write_all(b"all").unwrap();
        assert_eq!(names(&folder), ["day.part"]);
        assert!(matches!(TargetFile::create(&folder, "day"), Err(Error::Locked(_))));
        target.finish().unwrap();
        assert_eq!(names(&folder), ["day"]);
        assert_eq!(fs::read(folder.join("day")).unwrap(), b"all");
        // Nothing is written over, nor what came by this name meanwhile.
        let told = TargetFile::create(&folder, "day").err().unwrap().to_string();
        assert!(told.contains("is there already"), "{told}");
        let late = Box::new(TargetFile::create(&folder, "night").unwrap());
        fs::write(folder.join("night"), b"other").unwrap();
        assert!(late.finish().unwrap_err().to_string().contains("is there already"));
        assert_eq!(fs::read(folder.join("night")).unwrap(), b"other");
        drop(TargetFile::create(&folder, "given-up").unwrap());
        let mut left = names(&folder);
        left.sort();
        assert_eq!(left, ["day", "night"]);
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn what_lies_there_lends_a_backup_neither_its_mode_nor_its_other_names() {
        let folder = folder("left");
        let (part, other) = (folder.join("day.part"), folder.join("other"));
        fs::write(&part, b"of somebody").unwrap();
        fs::set_permissions(&part, fs::Permissions::from_mode(0o666)).unwrap();
        fs::hard_link(&part, &other).unwrap();
        let mut target = Box::new(TargetFile::create(&folder, "day").unwrap());
        target.write_all(b"all").unwrap();
        target.finish().unwrap();
        let made = fs::metadata(folder.join("day")).unwrap();
        assert_eq!((made.mode() & 0o777, made.nlink()), (0o600, 1));
        assert_eq!(fs::read(&other).unwrap(), b"of somebody");
        // Only a file is removed for it.
        fs::create_dir(folder.join("night.part")).unwrap();
        let told = TargetFile::create(&folder, "night").err().unwrap().to_string();
        assert!(told.contains("night.part") && told.contains("remove it"), "{told}");
        assert!(folder.join("night.part").is_dir());
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn one_that_is_told_to_have_failed_is_not_there() {
        let folder = folder("unsynced");
        let target = TargetFile::create(&folder, "day").unwrap();
        let told = target.name(|_| Err(Error::Backup("no".into()))).unwrap_err().to_string();
        assert_eq!(told, "no");
        drop(target);
        assert_eq!(names(&folder), [""; 0]);
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_name_leads_to_no_other_folder() {
        let folder = folder("names");
        for name in ["", ".", "..", "a/b", "../a", "/a", ".a", "a.part", "a b", "a\0", "ä"] {
            assert!(TargetFile::create(&folder, name).is_err(), "{name:?}");
        }
        assert!(!is_name(&"a".repeat(NAME_BYTES_MAX + 1)));
        std::os::unix::fs::symlink("elsewhere", folder.join("link.part")).unwrap();
        assert!(TargetFile::create(&folder, "link").is_err());
        assert_eq!(names(&folder), ["link.part"]);
        for name in ["a", "2026-11-25T22.dump", "a_b-c.d"] {
            assert!(is_name(name), "{name}");
        }
        fs::remove_dir_all(folder).unwrap();
    }
}
