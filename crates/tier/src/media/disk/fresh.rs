//! Makes a store's folder and its files. A new file is there whole or not at all: an interrupted
//! start must not leave a smaller one, which the next would take for what was meant.

use super::lock::{lock, open};
use crate::media::bytes::Blocks;
use crate::types::{Error, Result, doing};
use rustix::fs::{FallocateFlags, OFlags, fallocate, fdatasync, fstat, ftruncate, stat};
use rustix::io::{Errno, pwrite};
use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// What the fresh part of a file holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fresh {
    /// Reserved space. The first write of a block also writes the file system's map of it.
    Reserved,
    /// Written zeros, so that a synchronous write later is one write of the device.
    Zeroed,
}

/// How much is zeroed in one write.
const ZERO_BYTES: usize = 1 << 20;

/// A file that is being made, under another name. Dropped, it was never there.
pub struct Making<'a> {
    path: &'a Path,
    /// What that is behind symbolic links.
    target: PathBuf,
    temporary: PathBuf,
    file: OwnedFd,
    bytes: u64,
}

impl<'a> Making<'a> {
    /// Reserves `bytes` for `path`; `flag` is where whoever asks has them from.
    pub fn begin(path: &'a Path, bytes: u64, flag: &str) -> Result<Making<'a>> {
        if path.starts_with("/dev") && !path.starts_with("/dev/shm") {
            return Err(Error::Setting(format!("{}: there is no such device", path.display())));
        }
        // Behind a symbolic link: to be named over the link it would lie where the link is.
        let target = match path.read_link() {
            Ok(_) => fs::canonicalize(path).map_err(|source| {
                let path = path.display();
                Error::Setting(format!(
                    "{path}: the symbolic link leads to nothing: {source}; mount what it leads \
                     to, make that file empty (truncate --size 0), or remove the link"
                ))
            })?,
            Err(_) => path.to_owned(),
        };
        let mut temporary = target.as_os_str().to_owned();
        temporary.push(".making");
        let temporary = PathBuf::from(temporary);
        let told = |errno: Errno| {
            let (path, mib, source) = (path.display(), bytes >> 20, io::Error::from(errno));
            let way_out = way_out(errno, flag);
            Error::Setting(format!("{path}: {mib} MiB cannot be reserved: {source}; {way_out}"))
        };
        let file = open(&temporary, OFlags::RDWR | OFlags::CREATE)?;
        own(&file, &temporary)?;
        let making = Making { path, target, temporary, file, bytes };
        // What an interrupted start has left of it.
        doing("empty a new file", ftruncate(&making.file, 0).map_err(Into::into))?;
        fallocate(&making.file, FallocateFlags::empty(), 0, bytes).map_err(told)?;
        Ok(making)
    }

    /// What it will be.
    pub fn path(&self) -> &Path {
        self.path
    }

    /// The file is there, durable and whole.
    pub fn finish(self, fresh: Fresh) -> Result<()> {
        if fresh == Fresh::Zeroed {
            write_zeros(&self.file, 0..self.bytes)?;
        }
        doing("sync a new file", fdatasync(&self.file).map_err(Into::into))?;
        doing("name a new file", fs::rename(&self.temporary, &self.target))?;
        sync_folder_of(&self.target)
    }
}

impl Drop for Making<'_> {
    fn drop(&mut self) {
        // Gone by this name where it was finished.
        let _ = fs::remove_file(&self.temporary);
    }
}

/// What helps where no room can be reserved, for who has the size by this flag.
fn way_out(errno: Errno, flag: &str) -> String {
    match errno {
        // Of no size.
        Errno::OPNOTSUPP | Errno::NOSYS => "this file system cannot reserve any: have it on \
                                            another, such as ext4 or xfs, or on a device"
            .into(),
        _ => format!("{flag} makes it smaller"),
    }
}

/// Writes zeros, which are durable with the next sync.
pub fn write_zeros(file: &OwnedFd, bytes: Range<u64>) -> Result<()> {
    let zeros = Blocks::zeroed(ZERO_BYTES);
    let mut at = bytes.start;
    while at < bytes.end {
        let count = ZERO_BYTES.min((bytes.end - at) as usize);
        let written = pwrite(file, &zeros.as_slice()[..count], at);
        at += doing("zero the log", written.map_err(Into::into))? as u64;
    }
    Ok(())
}

/// Locks a file that is to be made. Between the opening and the lock somebody else may have made
/// and named it: then it is theirs, and is not touched.
pub fn own(file: &OwnedFd, temporary: &Path) -> Result<()> {
    lock(file, temporary)?;
    let ours = doing("look at a new file", fstat(file).map_err(Into::into))?;
    match stat(temporary) {
        Ok(named) if (named.st_dev, named.st_ino) == (ours.st_dev, ours.st_ino) => Ok(()),
        _ => Err(Error::Locked(temporary.display().to_string())),
    }
}

/// Makes a folder and those above it, and has them found again after a loss of power.
pub fn make_folder(folder: &Path) -> Result<()> {
    if folder.as_os_str().is_empty() || folder.is_dir() {
        return Ok(());
    }
    folder.parent().map_or(Ok(()), make_folder)?;
    match fs::create_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && folder.is_dir() => {}
        // Nobody else can make it either; what helps is that of every file there.
        Err(source) if source.kind() == io::ErrorKind::ReadOnlyFilesystem => {
            let told = format!("{}: {source}", folder.display());
            let source = io::Error::new(source.kind(), told);
            return Err(Error::Io { what: "make the store's folder", source });
        }
        Err(source) => {
            return Err(Error::Setting(format!(
                "{}: this folder cannot be made: {source}; make it first (mkdir -p) for the user \
                 who opens the store, have the folder above it writable for that user, or name \
                 another folder",
                folder.display()
            )));
        }
        Ok(()) => {}
    }
    sync_folder_of(folder)
}

/// What was made or named there is found again only once its folder is durable.
pub fn sync_folder_of(path: &Path) -> Result<()> {
    let folder = match path.parent() {
        Some(folder) if folder.as_os_str().is_empty() => Path::new("."),
        Some(folder) => folder,
        None => return Ok(()),
    };
    doing("sync the store's folder", File::open(folder).and_then(|folder| folder.sync_all()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_file_is_there_whole_or_not_at_all() {
        let folder = std::env::temp_dir().join(format!("laneway-fresh-{}", std::process::id()));
        let deep = folder.join("a/b");
        make_folder(&deep).unwrap();
        make_folder(&deep).unwrap();
        let path = deep.join("ssd");
        let left = || fs::read_dir(&deep).unwrap().count();
        fs::write(folder.join("file"), []).unwrap();
        let told = make_folder(&folder.join("file/below")).unwrap_err().to_string();
        let whose = format!("{}: this folder cannot be made: ", folder.join("file").display());
        assert!(told.starts_with(&whose) && told.contains("mkdir -p"), "{told}");
        // What a start that was interrupted has left.
        fs::write(deep.join("ssd.making"), [7; 9000]).unwrap();
        let making = Making::begin(&path, 8192, "--ssd-size").unwrap();
        assert!(!path.exists());
        assert!(matches!(Making::begin(&path, 8192, "--ssd-size"), Err(Error::Locked(_))));
        drop(making);
        assert_eq!(left(), 0, "given up, it was never there");
        Making::begin(&path, 8192, "--ssd-size").unwrap().finish(Fresh::Zeroed).unwrap();
        assert_eq!(fs::read(&path).unwrap(), [0; 8192]);
        let error = Making::begin(&deep.join("log"), 1 << 60, "--pm-size").err().unwrap();
        let told = error.to_string();
        assert!(
            told.contains("MiB") && told.contains("--pm-size") && told.contains("log"),
            "{told}"
        );
        assert_eq!(left(), 1, "what finds no room leaves nothing behind");
        let device = Making::begin(Path::new("/dev/no-such-disk"), 8192, "--pm-size").err();
        assert!(device.unwrap().to_string().contains("no such device"));
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn no_smaller_size_is_advised_where_a_file_system_reserves_none() {
        assert_eq!(way_out(Errno::NOSPC, "--pm-size"), "--pm-size makes it smaller");
        for errno in [Errno::OPNOTSUPP, Errno::NOSYS] {
            let told = way_out(errno, "--pm-size");
            assert!(told.contains("on another") && !told.contains("--pm-size"), "{told}");
        }
    }

    #[test]
    fn a_file_that_another_start_has_made_and_named_meanwhile_is_left_alone() {
        let folder = std::env::temp_dir().join(format!("laneway-twice-{}", std::process::id()));
        make_folder(&folder).unwrap();
        let (path, temporary) = (folder.join("ssd"), folder.join("ssd.making"));
        let making = Making::begin(&path, 8192, "--ssd-size").unwrap();
        let second = open(&temporary, OFlags::RDWR | OFlags::CREATE).unwrap();
        making.finish(Fresh::Zeroed).unwrap();
        assert!(matches!(own(&second, &temporary), Err(Error::Locked(_))));
        let third = open(&temporary, OFlags::RDWR | OFlags::CREATE).unwrap();
        assert!(matches!(own(&second, &temporary), Err(Error::Locked(_))), "it is another file");
        own(&third, &temporary).unwrap();
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_new_file_behind_a_symbolic_link_is_where_the_link_leads() {
        let folder = std::env::temp_dir().join(format!("laneway-link-{}", std::process::id()));
        let far = folder.join("far");
        make_folder(&far).unwrap();
        let (link, target) = (folder.join("log"), far.join("log"));
        std::os::unix::fs::symlink("far/log", &link).unwrap();
        let told = Making::begin(&link, 8192, "--pm-size").err().unwrap().to_string();
        assert!(told.contains("link") && told.contains("leads to nothing"), "{told}");
        assert_eq!(fs::read_dir(&far).unwrap().count(), 0);
        fs::write(&target, []).unwrap();
        Making::begin(&link, 8192, "--pm-size").unwrap().finish(Fresh::Zeroed).unwrap();
        assert!(link.is_symlink(), "the link is as it was");
        assert_eq!(fs::read(&target).unwrap(), [0; 8192]);
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 2);
        fs::remove_dir_all(folder).unwrap();
    }
}
