//! A store in a folder: `lock`, `log` and `ssd`, or paths of one's own for the two media.

use crate::checkpoint::superblock::{Front, Superblock};
use crate::media::disk::fresh::{Fresh, Making, make_folder, sync_folder_of};
use crate::media::disk::lock::{lock, lock_to_read, open};
use crate::media::disk::longer::Longer;
use crate::media::disk::real::FileDisk;
use crate::media::pm::Region;
use crate::media::pm::map::{MapRegion, Promise};
use crate::media::pm::wal::WalRegion;
use crate::recovery::grow::{is_own, may_ssd_grow, segments_most};
use crate::recovery::lost;
use crate::recovery::make::{must_be_blank, new_shape};
use crate::recovery::recover::{Media, Progress};
use crate::report::Report;
use crate::ssd::space::BLOCKS_MAX;
use crate::tier::Tier;
use crate::types::{BLOCK_BYTES, Error, Result, Settings, doing};
use crate::whole::fsck::{self, Findings};
use rustix::fs::OFlags;
use std::fs::{self, File};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Of a longer SSD nothing is used behind this: 16 TiB but for a block.
const SSD_BYTES_MAX: u64 = BLOCKS_MAX * BLOCK_BYTES as u64;

/// In the folder while what was copied is loaded into it.
pub(crate) const LOADING: &str = "load-not-finished";

/// What the log lies on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Backend {
    /// A file or device, written in groups.
    Wal,
    /// A file on a DAX file system of persistent memory.
    Dax,
    /// Any file, mapped: not durable when the power fails. For benchmarks.
    UnsafeVolatile,
}

/// Where a store lies and how large it is made.
#[derive(Debug, Clone)]
pub struct DirectorySettings {
    /// The folder; made if it is missing.
    pub path: PathBuf,
    /// The log; `log` in the folder if not given.
    pub pm_path: Option<PathBuf>,
    /// What the log lies on.
    pub backend: Backend,
    /// The log's size when it is made.
    pub pm_bytes: u64,
    /// Whether the log's file, where it is there and smaller, is made that long.
    pub pm_grows: bool,
    /// The SSD's file or device; `ssd` in the folder if not given.
    pub ssd_path: Option<PathBuf>,
    /// The SSD's size when it is made.
    pub ssd_bytes: u64,
    /// Whether the SSD's file, where it is there and smaller, is made that long.
    pub ssd_grows: bool,
    /// How the store behaves.
    pub settings: Settings,
}

impl DirectorySettings {
    /// A folder with a log of 256 MiB and an SSD of 4 GiB.
    pub fn new(path: impl Into<PathBuf>) -> DirectorySettings {
        DirectorySettings {
            path: path.into(),
            pm_path: None,
            backend: Backend::Wal,
            pm_bytes: 256 << 20,
            pm_grows: false,
            ssd_path: None,
            ssd_bytes: 4 << 30,
            ssd_grows: false,
            settings: Settings::default(),
        }
    }
}

impl DirectorySettings {
    /// Where the log and the SSD are.
    fn places(&self) -> (PathBuf, PathBuf) {
        let place = |path: &Option<PathBuf>, name| match path {
            Some(path) => path.clone(),
            None => self.path.join(name),
        };
        (place(&self.pm_path, "log"), place(&self.ssd_path, "ssd"))
    }

    /// Whether a path leads to a file or a device of the store itself, or to where a load marks the
    /// folder: whatever is made there would be taken for that mark.
    pub fn has(&self, path: &Path) -> bool {
        let id = |path: &Path| path.metadata().ok().map(|found| (found.dev(), found.ino()));
        let is = |one: &Path, other: &Path| id(one).is_some_and(|asked| id(other) == Some(asked));
        let (log, ssd) = self.places();
        let own = [log, ssd, self.path.join("lock")];
        let folder = match path.parent() {
            Some(folder) if folder.as_os_str().is_empty() => Path::new("."),
            folder => folder.unwrap_or(path),
        };
        let is_mark = path.file_name().is_some_and(|name| name == LOADING);
        own.iter().any(|own| is(path, own)) || is_mark && is(folder, &self.path)
    }

    fn must_exist(&self) -> Result<()> {
        let (_, ssd) = self.places();
        match ssd.exists() {
            true => Ok(()),
            false => {
                let path = ssd.display();
                Err(Error::Missing(format!("there is no store here: {path} is missing")))
            }
        }
    }

    /// What will be made: path, bytes, and the flag that says so.
    pub fn missing(&self) -> Result<Vec<(PathBuf, u64, &'static str)>> {
        let (log, ssd) = self.places();
        let pm_bytes = self.log_bytes()?;
        let all = [(ssd, self.ssd_bytes, "--ssd-size"), (log, pm_bytes, "--pm-size")];
        Ok(all.into_iter().filter(|(path, ..)| !is_made(path)).collect())
    }

    /// Makes the folder and those above it, where they are missing.
    pub fn make_folder(&self) -> Result<()> {
        make_folder(&self.path)
    }

    /// What is to be done about a load that did not come to its end, if there was one.
    fn half_loaded(&self) -> Option<String> {
        let mark = self.path.join(LOADING);
        mark.symlink_metadata().is_ok().then(|| {
            let (path, mark) = (self.path.display(), mark.display());
            format!(
                "a load into this folder did not come to its end, so not every item is there: do \
                 it again (laneway load {path}, with a larger --pm-size or --ssd-size if there was \
                 no room), or remove {mark} to go on with what is there"
            )
        })
    }

    /// Makes what is missing, all of it or nothing.
    fn make_missing(&self) -> Result<()> {
        let missing = self.missing()?;
        let (log, ssd) = self.places();
        if missing.iter().any(|(path, ..)| *path == ssd) {
            // A new store: what would be refused later is refused before anything is made.
            let pm_bytes = match is_made(&log) {
                true => self.region(|| FileDisk::open_read_only(&log))?.bytes(),
                false => self.pm_bytes,
            };
            let shape = new_shape(pm_bytes, &self.settings)?;
            Superblock::check_bytes(self.ssd_bytes)?;
            if SSD_BYTES_MAX < self.ssd_bytes {
                return Err(Error::Setting(format!(
                    "--ssd-size: {} bytes: must be at most {SSD_BYTES_MAX}, for a store has no \
                     more blocks",
                    self.ssd_bytes
                )));
            }
            if is_made(&log) {
                let region = self.region(|| FileDisk::open_read_only(&log))?;
                must_be_blank(&*region, &shape.0, None)?;
            }
        }
        let begin = missing.iter().map(|(path, bytes, flag)| Making::begin(path, *bytes, flag));
        for file in begin.collect::<Result<Vec<Making<'_>>>>()? {
            let is_log = file.path() == log;
            file.finish(if is_log { self.fresh_log() } else { Fresh::Reserved })?;
        }
        Ok(())
    }

    /// Makes the files longer that are to be, both or none. A device has the size that it has.
    fn lengthen(&self) -> Result<()> {
        if !self.pm_grows && !self.ssd_grows {
            return Ok(());
        }
        let (log, ssd) = self.places();
        let disk = FileDisk::open_read_only(&ssd)?;
        let Front::Store(superblock) = Superblock::read(&disk, &mut Vec::new())? else {
            return Ok(());
        };
        let region = self.region(|| FileDisk::open_read_only(&log))?;
        if !is_own(&*region, &superblock)? {
            return Ok(()); // what is wrong is told where the store is opened
        }
        // They are locked.
        drop((disk, region));
        let segment = u64::from(superblock.segment_bytes);
        let most = u64::from(segments_most(&superblock)?);
        let pm_bytes = (self.pm_bytes / segment).min(most) * segment;
        let ssd_bytes = self.ssd_bytes.min(SSD_BYTES_MAX);
        let ssd_bytes = ssd_bytes - ssd_bytes % BLOCK_BYTES as u64;
        let begin = |asked: bool, path: &Path, bytes: u64, flag: &str| match asked {
            true => Longer::begin(path, bytes, flag),
            false => Ok(None),
        };
        let ssd_grows = self.ssd_grows && may_ssd_grow(&superblock);
        let longer_ssd = begin(ssd_grows, &ssd, ssd_bytes, "--ssd-size")?;
        if let Some(file) = begin(self.pm_grows, &log, pm_bytes, "--pm-size")? {
            file.finish(self.fresh_log())?;
        }
        longer_ssd.map_or(Ok(()), |file| file.finish(Fresh::Reserved))
    }

    /// What is new in the log's file.
    fn fresh_log(&self) -> Fresh {
        if self.backend == Backend::Wal { Fresh::Zeroed } else { Fresh::Reserved }
    }

    /// The log's medium, which is there.
    fn region(&self, wal: impl FnOnce() -> Result<FileDisk>) -> Result<Arc<dyn Region>> {
        let (log, _) = self.places();
        Ok(match self.backend {
            Backend::Wal => Arc::new(WalRegion::new(Arc::new(wal()?))),
            Backend::Dax => Arc::new(MapRegion::open(&log, Promise::Durable)?),
            Backend::UnsafeVolatile => Arc::new(MapRegion::open(&log, Promise::Volatile)?),
        })
    }

    /// How large the log is to be made if it is missing: as the store on the SSD has it, and then
    /// only if that one's own log is known to be lost.
    fn log_bytes(&self) -> Result<u64> {
        let (log, ssd) = self.places();
        if is_made(&log) || !is_made(&ssd) {
            return Ok(self.pm_bytes);
        }
        let ssd = FileDisk::open_read_only(&ssd)?;
        let Front::Store(superblock) = Superblock::read(&ssd, &mut Vec::new())? else {
            return Ok(self.pm_bytes);
        };
        match self.settings.accept_lost_log && superblock.tree_segments == 0 {
            true => Ok(superblock.log_bytes()),
            false => Err(lost::missing(&log)),
        }
    }
}

/// An open store in a folder, locked against other processes.
pub struct Directory {
    tier: Tier,
    path: PathBuf,
    // Released after everything else.
    _lock: OwnedFd,
}

impl Directory {
    /// Opens the store, or makes it; not one that was being loaded and never was to its end.
    pub fn open(
        settings: &DirectorySettings,
        progress: Progress<'_>,
    ) -> Result<(Directory, Report)> {
        Directory::open_any(settings, progress, false)
    }

    /// Opens the store, or makes it, to load what was copied: until [`Directory::close_loaded`] it
    /// cannot be opened otherwise.
    pub fn open_to_load(
        settings: &DirectorySettings,
        progress: Progress<'_>,
    ) -> Result<(Directory, Report)> {
        Directory::open_any(settings, progress, true)
    }

    fn open_any(
        settings: &DirectorySettings,
        progress: Progress<'_>,
        is_to_load: bool,
    ) -> Result<(Directory, Report)> {
        settings.make_folder()?;
        let lock = lock_folder(&settings.path)?;
        let mark = settings.path.join(LOADING);
        let half_loaded = settings.half_loaded();
        let is_half = half_loaded.is_some();
        if is_to_load {
            doing("mark the folder", File::create(&mark).map(drop))?;
            sync_folder_of(&mark)?;
        } else if let Some(why) = half_loaded {
            return Err(Error::HalfLoaded(why));
        }
        Directory::open_locked(settings, progress, lock).inspect_err(|_| {
            if is_to_load && !is_half {
                let _ = fs::remove_file(&mark); // nothing was loaded
            }
        })
    }

    fn open_locked(
        settings: &DirectorySettings,
        progress: Progress<'_>,
        lock: OwnedFd,
    ) -> Result<(Directory, Report)> {
        settings.make_missing()?;
        settings.lengthen()?;
        let (pm_path, ssd_path) = settings.places();
        let region = settings.region(|| FileDisk::open(&pm_path))?;
        let media = Media { region, ssd: Arc::new(FileDisk::open(&ssd_path)?) };
        let (tier, report) = Tier::open(media, settings.settings, random_id(), progress)?;
        Ok((Directory { tier, path: settings.path.clone(), _lock: lock }, report))
    }

    /// Opens a store that is there; [`Error::Mismatch`] if there is none.
    pub fn open_existing(
        settings: &DirectorySettings,
        progress: Progress<'_>,
    ) -> Result<(Directory, Report)> {
        settings.must_exist()?;
        Directory::open(settings, progress)
    }

    /// Reads everything, writes nothing, and needs no right to write but to a log that is mapped;
    /// `progress` hears how far it is.
    pub fn check(settings: &DirectorySettings, progress: fsck::Progress<'_>) -> Result<Findings> {
        settings.must_exist()?;
        let _lock = lock_folder_to_read(&settings.path)?;
        let (pm_path, ssd_path) = settings.places();
        if !is_made(&pm_path) {
            return Err(lost::missing(&pm_path));
        }
        let region = settings.region(|| FileDisk::open_read_only(&pm_path))?;
        let media = Media { region, ssd: Arc::new(FileDisk::open_read_only(&ssd_path)?) };
        let findings = fsck::check_telling(media, settings.settings, progress)?;
        Ok(Findings { half_loaded: settings.half_loaded(), ..findings })
    }

    /// Drops what cannot be read and says what that is.
    pub fn repair(settings: &DirectorySettings, progress: fsck::Progress<'_>) -> Result<Findings> {
        let quiet = Settings { background: false, ..settings.settings };
        let settings = DirectorySettings { settings: quiet, ..settings.clone() };
        let (directory, report) = Directory::open_existing(&settings, &mut |done, total| {
            progress(fsck::Stage::Opening, done, total);
        })?;
        let Directory { tier, _lock, .. } = directory;
        fsck::repair_open(tier, report, progress)
    }

    /// The store, for who shares it, and the lock that keeps others out of the folder as long as it
    /// lives.
    pub fn into_parts(self) -> (Tier, FolderLock) {
        let Directory { tier, _lock, .. } = self;
        (tier, FolderLock { _held: _lock })
    }

    /// Makes a checkpoint and closes.
    pub fn close(self) -> Result<()> {
        self.tier.close()
    }

    /// As [`Directory::close`], of one that was opened to be loaded, and is.
    pub fn close_loaded(self) -> Result<()> {
        let Directory { tier, path, _lock } = self;
        tier.close()?;
        let mark = path.join(LOADING);
        doing("unmark the folder", fs::remove_file(&mark))?;
        sync_folder_of(&mark)
    }
}

/// Keeps other processes out of a store's folder.
pub struct FolderLock {
    _held: OwnedFd,
}

impl std::ops::Deref for Directory {
    type Target = Tier;

    fn deref(&self) -> &Tier {
        &self.tier
    }
}

/// Locks the folder against others, whatever media they were given.
fn lock_folder(folder: &Path) -> Result<OwnedFd> {
    let file = open(&folder.join("lock"), OFlags::RDWR | OFlags::CREATE)?;
    lock(&file, folder)?;
    Ok(file)
}

/// The same for who writes nothing: neither is the file made, which would be this user's and keep
/// the server's out, nor is a right to write asked for. Where a copy of the media lacks the file,
/// the locks of log and SSD keep others out.
fn lock_folder_to_read(folder: &Path) -> Result<Option<OwnedFd>> {
    match open(&folder.join("lock"), OFlags::RDONLY) {
        Err(Error::Io { source, .. }) if source.kind() == ErrorKind::NotFound => Ok(None),
        opened => {
            let file = opened?;
            lock_to_read(&file, folder)?;
            Ok(Some(file))
        }
    }
}

/// Whether there is a device, or a file with something in it.
fn is_made(path: &Path) -> bool {
    path.metadata().is_ok_and(|found| !found.is_file() || found.len() != 0)
}

fn random_id() -> u64 {
    // The standard library's own source of random keys.
    RandomState::new().build_hasher().finish()
}
