//! Where results go: standard output, and files. A file is written under its name with `.part`
//! behind it, and takes its name once it is whole and durable: whatever interrupts that, the file
//! that was there before stays. What is no regular file, such as a pipe, is written to as it is.

use rustix::fs::OFlags;
use std::fs::{self, File, TryLockError};
use std::io::{self, IsTerminal, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// The mode of a file that its owner alone may read and write.
pub const MODE_OWNER: u32 = 0o600;
/// The mode of a file that whoever the umask lets may read and write.
pub const MODE_UMASK: u32 = 0o666;

/// What became of output that may have fewer readers than lines: a pipe whose reader has gone, as
/// behind `head`, is no failure; a disk that is full is one.
pub fn unless_closed(told: io::Result<()>) -> io::Result<()> {
    match told {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        told => told,
    }
}

/// Writes to standard output all that its reader wants.
pub fn print(text: impl AsRef<[u8]>) -> Result<(), String> {
    let mut out = io::stdout().lock();
    let told = out.write_all(text.as_ref()).and_then(|()| out.flush());
    unless_closed(told).map_err(|error| format!("standard output: {error}"))
}

/// Shows a line in the place of the one before, if standard error is a terminal.
pub(crate) fn draw(line: &str) {
    let mut terminal = io::stderr();
    if terminal.is_terminal() {
        // One that went away is no reason to stop.
        let _ = write!(terminal, "\r{line}\x1b[K");
    }
}

/// Shows a table, and writes the same as data to the file that `--json` names. Where that is `-`,
/// for standard output, the table goes to standard error.
pub fn show(table: &str, json: Option<(&Path, &str)>) -> Result<(), String> {
    let Some((path, text)) = json else { return print(table) };
    if path.as_os_str() == "-" {
        // The data is what was asked for.
        let _ = io::stderr().write_all(table.as_bytes());
        return print(text);
    }
    // A file that cannot be written takes nothing along of what is shown.
    let shown = print(table);
    replace(path, text).map_err(|error| format!("--json {}: {error}", path.display()))?;
    shown
}

/// Finds out whether a file could be written, before the work is done whose results it is to have.
/// The file that is there stays as it is.
pub(crate) fn look(path: &Path) -> io::Result<()> {
    if is_written_as_it_is(path) {
        // Not opened: the reader of a pipe would take that end for the end of all.
        return match fs::metadata(path)?.is_dir() {
            true => Err(io::ErrorKind::IsADirectory.into()),
            false => Ok(()),
        };
    }
    NewFile::create(path, MODE_UMASK).map(drop)
}

/// Writes a file, in the place of the one that is there.
pub(crate) fn replace(path: &Path, text: impl AsRef<[u8]>) -> io::Result<()> {
    let mut file = NewFile::create(path, MODE_UMASK)?;
    file.write_all(text.as_ref())?;
    file.finish()
}

/// A file on its way. Dropped before [`NewFile::finish`], it was never there.
pub struct NewFile {
    file: File,
    /// The name that it will have, and that of today; none where it is written to as it is.
    names: Option<(PathBuf, PathBuf)>,
}

impl NewFile {
    /// Begins a file that will be called `path`, with this mode, whatever that of the file is which
    /// is there by now.
    pub fn create(path: &Path, mode: u32) -> io::Result<NewFile> {
        if is_written_as_it_is(path) {
            // Behind what others have written to the same descriptor.
            let file = File::options().append(true).open(path)?;
            return Ok(NewFile { file, names: None });
        }
        // Where a symbolic link leads: the link stays as it is.
        let target = match path.read_link() {
            Ok(_) => fs::canonicalize(path)?,
            Err(_) => path.to_owned(),
        };
        let mut part = target.clone().into_os_string();
        part.push(".part");
        let part = PathBuf::from(part);
        remove_left(&part)?;
        // Of its own making: who has the one open that was left, nobody knows here.
        let file = File::options().write(true).create_new(true).mode(mode).open(&part)?;
        own(&file, &part)?;
        Ok(NewFile { file, names: Some((target, part)) })
    }

    /// All was written: makes it durable, and known by its name.
    pub fn finish(mut self) -> io::Result<()> {
        if let Some((target, part)) = &self.names {
            self.file.sync_all()?;
            fs::rename(part, target)?;
            let synced = sync_folder_of(target);
            self.names = None;
            return synced;
        }
        Ok(())
    }
}

impl Write for NewFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if let Some((_, part)) = &self.names {
            let _ = fs::remove_file(part);
        }
    }
}

/// What is no regular file; and one that is named by a descriptor, such as /dev/stdout: who holds
/// that would be left with the old file.
fn is_written_as_it_is(path: &Path) -> bool {
    let is_device = path.starts_with("/dev") && !path.starts_with("/dev/shm");
    is_device || path.starts_with("/proc") || fs::metadata(path).is_ok_and(|found| !found.is_file())
}

/// Removes what an interrupted command has left by this name, unless somebody still writes it.
fn remove_left(part: &Path) -> io::Result<()> {
    let found = match part.symlink_metadata() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        found => found?,
    };
    if !found.is_file() {
        let part = part.display();
        return Err(io::Error::other(format!("{part} is there and is no file; remove it")));
    }
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits() as i32;
    // To write, though nothing is: who only reads a file on NFS may not have it alone.
    let left = File::options().write(true).custom_flags(flags).open(part)?;
    own(&left, part)?;
    fs::remove_file(part)
}

/// Locks a file that has this name. Between the opening and the lock somebody else may have made
/// another one, which is theirs.
fn own(file: &File, part: &Path) -> io::Result<()> {
    let taken = || io::Error::other(format!("{} is written by another process", part.display()));
    // A file system without locks has one writer at a time, as far as is known.
    if let Err(TryLockError::WouldBlock) = file.try_lock() {
        return Err(taken());
    }
    let ours = file.metadata()?;
    match part.symlink_metadata() {
        Ok(named) if (named.dev(), named.ino()) == (ours.dev(), ours.ino()) => Ok(()),
        _ => Err(taken()),
    }
}

/// What was named in a folder is found again after a loss of power only once the folder is durable.
fn sync_folder_of(path: &Path) -> io::Result<()> {
    let folder = match path.parent() {
        Some(folder) if folder.as_os_str().is_empty() => Path::new("."),
        Some(folder) => folder,
        None => return Ok(()),
    };
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(name: &str) -> PathBuf {
        let name = format!("laneway-output-{name}-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).expect("made");
        folder
    }

    fn names(folder: &Path) -> Vec<String> {
        let found = fs::read_dir(folder).expect("it is there").flatten();
        found.map(|entry| entry.file_name().into_string().expect("plain")).collect()
    }

    fn read(path: &Path) -> String {
        fs::read_to_string(path).expect("there")
    }

    #[test]
    fn the_old_file_stays_until_the_new_one_is_whole() {
        let folder = folder("whole");
        let path = folder.join("day");
        fs::write(&path, b"yesterday's").expect("written");
        let mut given_up = NewFile::create(&path, MODE_OWNER).expect("it can be made");
        given_up.write_all(b"half").expect("written");
        assert_eq!(read(&path), "yesterday's");
        let told = NewFile::create(&path, MODE_OWNER).err().expect("it is being written");
        assert!(told.to_string().contains("day.part is written by another process"), "{told}");
        drop(given_up);
        assert_eq!(names(&folder), ["day"]);
        assert_eq!(read(&path), "yesterday's");
        // What a kill has left.
        fs::write(folder.join("day.part"), [7; 9000]).expect("written");
        let mut whole = NewFile::create(&path, MODE_OWNER).expect("it can be made");
        whole.write_all(b"today's").expect("written");
        whole.finish().expect("it can be named");
        assert_eq!(names(&folder), ["day"]);
        assert_eq!(read(&path), "today's");
        fs::remove_dir_all(folder).expect("ours");
    }

    #[test]
    fn a_new_file_is_where_a_link_leads() {
        let folder = folder("link");
        let (path, link) = (folder.join("day"), folder.join("link"));
        fs::write(&path, b"old").expect("written");
        std::os::unix::fs::symlink("day", &link).expect("made");
        let mut new = NewFile::create(&link, MODE_OWNER).expect("it can be made");
        new.write_all(b"new").expect("written");
        new.finish().expect("it can be named");
        assert!(link.is_symlink(), "the link is as it was");
        assert_eq!(read(&path), "new");
        fs::remove_dir_all(folder).expect("ours");
    }

    #[test]
    fn a_look_at_a_file_leaves_all_as_it_is() {
        let folder = folder("look");
        let path = folder.join("run.json");
        look(&path).expect("it can be made");
        assert_eq!(names(&folder), [""; 0]);
        replace(&path, "{}").expect("it can be made");
        look(&path).expect("it can be replaced");
        assert_eq!(read(&path), "{}");
        assert_eq!(names(&folder), ["run.json"]);
        look(&folder).expect_err("a folder");
        look(&folder.join("none/run.json")).expect_err("in no folder");
        fs::remove_dir_all(folder).expect("ours");
    }
}
