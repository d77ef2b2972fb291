//! Where items are kept durably: `--data-dir` and what belongs to it, checked.

use super::scrub;
use crate::flags::{self, Flags};
use laneway_policy::Design;
use laneway_server::boot::{self, Opened};
use laneway_server::durable::DurableSettings;
use laneway_server::durable::copier::BackupSettings;
use laneway_server::durable::shared::Recovery;
use laneway_tier::{
    BLOCK_BYTES, Backend, DirectorySettings, Durability, Error, IndexKind, MigrateBy, PIECE_BYTES,
    Report, WhenFull,
};
use nix::errno::Errno;
use nix::unistd::{AccessFlags, eaccess};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The longest `--durability interval`, milliseconds.
const INTERVAL_MS_MAX: u64 = 60_000;
/// Reading threads by default: as many reads as an SSD likes to see at once.
const READ_THREADS: usize = 8;
const READ_THREADS_MAX: usize = 256;
/// The shortest value that is compressed by default: one of three blocks may gain one.
const COMPRESS_FROM_BYTES: u64 = 8 << 10;
/// What a backup writes a second by default: little beside what an SSD can do.
const BACKUP_BYTES_PER_SECOND: u64 = 64 << 20;
/// What helps where a file system is mounted read-only, for all or for a unit alone.
const MOUNT_IT: &str = "have it mounted to be written to, and name it in ReadWritePaths= of a unit \
                        that has ProtectSystem=";
/// How often a long start says how far it is.
const PROGRESS_MS: u128 = 1000;
/// Problems that a start tells one by one: an item each, there may be millions.
const PROBLEMS_TOLD: usize = 10;

/// Flags that mean nothing without `--data-dir`.
const PARTS: &str = "\
    pm pm-backend pm-index pm-size ssd ssd-size split-bytes compress compress-from durability \
    migrate-by migrate-rate when-full read-threads backup-dir backup-rate scrub-every scrub-rate \
    unsafe-volatile-pm pad-groups accept-lost-log";

/// Those of them that are for a server alone, and for no tool for its folder: those that a tool
/// would pass over, and the one by which it would drop items.
pub const OF_SERVER: &str = "\
    durability migrate-rate when-full read-threads backup-dir backup-rate scrub-every scrub-rate";

/// The settings, or none without `--data-dir`.
pub fn settings(flags: &Flags, design: Design) -> Result<Option<DurableSettings>, String> {
    let Some(mut directory) = directory(flags)? else {
        let why = "nothing is kept durably; say --data-dir DIR too";
        return flags::refuse(flags, PARTS, why).map(|()| None);
    };
    directory.pm_grows = flags.pm_bytes.is_some();
    directory.ssd_grows = flags.ssd_bytes.is_some();
    if design != Design::Lanes {
        return Err(format!(
            "--data-dir: is served by --design lanes only, not by {design}; leave one of them out"
        ));
    }
    if flags.no_evictions {
        return Err("--data-dir: memory is a cache over the folder and must evict; leave -M out, \
                    nothing is lost by eviction"
            .into());
    }
    let interval = interval(flags.durability.as_deref())?;
    directory.settings.durability =
        if interval.is_some() { Durability::Interval } else { Durability::Ack };
    let read_threads = flags.read_threads.unwrap_or(READ_THREADS);
    if !(1..=READ_THREADS_MAX).contains(&read_threads) {
        return Err(format!("--read-threads {read_threads}: must be from 1 to {READ_THREADS_MAX}"));
    }
    let backup = backup(flags)?;
    let scrub = scrub::settings(flags)?;
    let migrate_rate = flags.migrate_rate.unwrap_or(0);
    Ok(Some(DurableSettings { directory, interval, read_threads, backup, migrate_rate, scrub }))
}

/// Where backups go; none without a folder for them.
fn backup(flags: &Flags) -> Result<Option<BackupSettings>, String> {
    let Some(folder) = flags.backup_dir.as_ref().map(PathBuf::from) else {
        let why = "no backup can be asked for; say --backup-dir DIR too";
        return flags::refuse(flags, "backup-rate", why).map(|()| None);
    };
    if !folder.is_dir() {
        let folder = folder.display();
        return Err(format!("--backup-dir {folder}: there is no such folder; make it first"));
    }
    let own = |path: &Path| path.canonicalize().ok();
    if flags.data_dir.as_ref().is_some_and(|data| own(Path::new(data)) == own(&folder)) {
        let folder = folder.display();
        return Err(format!(
            "--backup-dir {folder}: the data folder is no place for copies of it; name another"
        ));
    }
    let bytes_per_second = flags.backup_rate.unwrap_or(BACKUP_BYTES_PER_SECOND);
    Ok(Some(BackupSettings { folder, bytes_per_second }))
}

/// Whether backups can be made there, by the user that the server has become. The first one would
/// find it out otherwise, which may be the one that is needed.
pub fn check_backup_folder(flags: &Flags) -> Result<(), String> {
    let Some(folder) = flags.backup_dir.as_ref().map(Path::new) else { return Ok(()) };
    eaccess(folder, AccessFlags::W_OK | AccessFlags::X_OK).map_err(|error| {
        let folder = folder.display();
        let way_out = match error {
            Errno::EROFS => MOUNT_IT,
            _ => "give the folder to that user",
        };
        format!(
            "--backup-dir {folder}: the server's user cannot make a file there: {error}; \
             {way_out}, or name another"
        )
    })
}

/// Where the store is and how it is made; none without a folder.
pub fn directory(flags: &Flags) -> Result<Option<DirectorySettings>, String> {
    let Some(folder) = &flags.data_dir else { return Ok(None) };
    let mut directory = DirectorySettings::new(PathBuf::from(folder));
    directory.pm_path = flags.pm.as_ref().map(PathBuf::from);
    directory.ssd_path = flags.ssd.as_ref().map(PathBuf::from);
    directory.backend = match flags.pm_backend.as_deref() {
        None | Some("wal") => Backend::Wal,
        Some("dax") => Backend::Dax,
        Some("emu") if flags.volatile_pm => Backend::UnsafeVolatile,
        Some("emu") => {
            return Err("--pm-backend emu: loses everything with the power; for benchmarks say \
                        --unsafe-volatile-pm too, or leave it out for wal"
                .into());
        }
        Some(other) => {
            return Err(format!(
                "--pm-backend {other}: must be wal (a file or device, the default), dax \
                 (persistent memory) or emu"
            ));
        }
    };
    directory.settings.index = index(flags.pm_index.as_deref(), directory.backend)?;
    directory.pm_bytes = flags.pm_bytes.unwrap_or(directory.pm_bytes);
    directory.ssd_bytes = flags.ssd_bytes.unwrap_or(directory.ssd_bytes);
    if let Some(text) = &flags.split {
        let settings = &mut directory.settings;
        match text.as_str() {
            "inf" => settings.split_bytes = usize::MAX,
            "auto" => settings.split_adapts = true,
            text => {
                let told = |error: String| format!("--split-bytes {error}, or inf, or auto");
                settings.split_bytes = flags::bytes(text).map_err(told)? as usize;
            }
        }
    }
    if flags.pad_groups && directory.backend != Backend::Wal {
        return Err(
            "--pad-groups: is for a log that is written in blocks, and this one is mapped; \
                    leave it out, or take --pm-backend wal"
                .into(),
        );
    }
    directory.settings.compress_from = compress_from(flags)?;
    directory.settings.pad_groups = flags.pad_groups;
    directory.settings.accept_lost_log = flags.accept_lost_log;
    directory.settings.migrate_by = match flags.migrate_by.as_deref() {
        None => None,
        Some("age") => Some(MigrateBy::Age),
        Some("hotness") => Some(MigrateBy::Hotness),
        Some(other) => {
            return Err(format!(
                "--migrate-by {other}: must be age (the default) or hotness (the default with \
                 --when-full evict)"
            ));
        }
    };
    directory.settings.when_full = match flags.when_full.as_deref() {
        None | Some("refuse") => WhenFull::Refuse,
        Some("evict") => WhenFull::Evict,
        Some(other) => {
            return Err(format!(
                "--when-full {other}: must be refuse (a write finds the SSD full and is told so, \
                 the default) or evict (cold items are dropped for it)"
            ));
        }
    };
    Ok(Some(directory))
}

/// Which index; none for the one that the store has.
fn index(text: Option<&str>, backend: Backend) -> Result<Option<IndexKind>, String> {
    match text {
        None => Ok(None),
        Some("btree") => Ok(Some(IndexKind::BTree)),
        Some("fair") if backend == Backend::Wal => Err(
            "--pm-index fair: is changed in place in persistent memory, word by word, and needs \
                 --pm-backend dax; leave it out on wal"
                .into(),
        ),
        Some("fair") => Ok(Some(IndexKind::Fair)),
        Some(other) => Err(format!(
            "--pm-index {other}: must be btree (in memory, the default) or fair (in persistent \
             memory)"
        )),
    }
}

/// The length from which on values are compressed; `None`: none is.
fn compress_from(flags: &Flags) -> Result<Option<usize>, String> {
    match flags.compress.as_deref() {
        None | Some("off") => {
            let why = "nothing is compressed; say --compress lz4 too";
            flags::refuse(flags, "compress-from", why).map(|()| None)
        }
        Some("lz4") => match flags.compress_from.unwrap_or(COMPRESS_FROM_BYTES) {
            bytes if bytes < PIECE_BYTES as u64 => Ok(Some(bytes as usize)),
            bytes => Err(format!(
                "--compress-from {bytes}: must be below {PIECE_BYTES}, for longer values are \
                 stored as they are; leave it out for {COMPRESS_FROM_BYTES}"
            )),
        },
        Some(other) => Err(format!("--compress {other}: must be off (the default) or lz4")),
    }
}

fn interval(text: Option<&str>) -> Result<Option<Duration>, String> {
    let Some(text) = text.filter(|text| *text != "ack") else { return Ok(None) };
    let milliseconds = text.strip_prefix("interval:").and_then(|number| number.parse().ok());
    match milliseconds {
        Some(number @ 1..=INTERVAL_MS_MAX) => Ok(Some(Duration::from_millis(number))),
        _ => Err(format!(
            "--durability {text}: must be ack (a write is durable when it is answered, the \
             default) or interval:MS with MS from 1 to {INTERVAL_MS_MAX} (a crash loses that much)"
        )),
    }
}

/// Opens the store, telling how far it is where that takes a while.
pub fn open(settings: DurableSettings) -> Result<Opened, String> {
    let directory = settings.directory.clone();
    let folder = directory.path.display();
    let (started, mut told_ms) = (Instant::now(), 0);
    let mut progress = |done: u64, total: u64| {
        let now_ms = started.elapsed().as_millis();
        if told_ms + PROGRESS_MS <= now_ms {
            told_ms = now_ms;
            let percent = done * 100 / total.max(1);
            log::info!("{folder}: {percent} % of {} MiB replayed", total >> 20);
        }
    };
    // First: nothing is said to be made in a folder that cannot be.
    directory.make_folder().map_err(|error| place(&directory, &error))?;
    for (path, bytes, flag) in directory.missing().unwrap_or_default() {
        log::info!("{folder}: makes {}, {} MiB ({flag})", path.display(), bytes >> 20);
    }
    let opened = boot::open(settings, &mut progress).map_err(|error| place(&directory, &error))?;
    let Recovery { report, took_ms } = opened.recovery();
    for problem in report.problems.iter().take(PROBLEMS_TOLD) {
        log::error!("{folder}: {problem}; laneway fsck {folder} says more");
    }
    if let Some(more @ 1..) = report.problems.len().checked_sub(PROBLEMS_TOLD) {
        log::error!("{folder}: {more} problems more; laneway fsck {folder} tells all");
    }
    if directory.settings.accept_lost_log && !report.log_is_new {
        log::warn!(
            "{folder}: --accept-lost-log was not needed: no log was lost. Leave it out, or the \
             next start accepts a loss that nobody has looked at"
        );
    }
    if let Some(grown) = grown(report) {
        log::info!("{folder}: {grown}");
    }
    for kept in sizes_kept(&directory, report) {
        log::warn!("{folder}: {kept}");
    }
    match report.is_new {
        true => log::info!("{folder}: made"),
        false => log::info!(
            "{folder}: {} items, found in {took_ms} ms ({} MiB of checkpoint, {} MiB of \
             log)",
            report.items,
            report.checkpoint_bytes >> 20,
            report.replayed_bytes >> 20
        ),
    }
    Ok(opened)
}

/// How the store has grown just now, if it has.
pub fn grown(report: &Report) -> Option<String> {
    let (from, has) = (report.grown_from?, report.sizes);
    let grown = [("the log", from.log, has.log), ("the SSD", from.ssd, has.ssd)]
        .into_iter()
        .filter(|(_, from, has)| from != has)
        .map(|(medium, from, has)| format!("{medium} from {} to {} MiB", from >> 20, has >> 20))
        .collect::<Vec<String>>();
    Some(format!("has grown: {}", grown.join(", ")))
}

/// The sizes that were asked for in vain: the store keeps its own.
pub fn sizes_kept(directory: &DirectorySettings, report: &Report) -> Vec<String> {
    let has = report.sizes;
    let log = ("--pm-size", directory.pm_bytes, has.log, directory.settings.segment_bytes);
    let ssd = ("--ssd-size", directory.ssd_bytes, has.ssd, BLOCK_BYTES as u32);
    let all = [(directory.pm_grows, log), (directory.ssd_grows, ssd)];
    // A new store on devices is as large as these are, whatever is asked for; and one whose log is
    // lost grows at the next start.
    let is_as_it_was = !report.is_new && !report.log_is_new;
    let asked = all.into_iter().filter(|(is_asked, _)| *is_asked && is_as_it_was);
    let kept = asked.filter_map(|(_, (flag, bytes, has, unit))| {
        let (bytes_mib, has_mib) = (bytes >> 20, has >> 20);
        if bytes < has {
            return Some(format!(
                "{flag}: {bytes_mib} MiB is less than the {has_mib} MiB that the store has and \
                 keeps: it grows and never shrinks. To make it smaller: laneway dump, a new \
                 folder, laneway load"
            ));
        }
        (has + u64::from(unit) <= bytes).then(|| {
            format!(
                "{flag}: the store keeps its {has_mib} MiB, and does not grow to {bytes_mib} MiB: \
                 what lies on a device is no larger than that, a log has as many segments as its \
                 headers have room to list, an SSD has 16 TiB at most, and with --pm-index fair a \
                 log does not grow. To make it larger: laneway dump, a new folder, laneway load"
            )
        })
    });
    kept.collect()
}

/// An error of the tier as a sentence that says where and the way out.
pub fn place(directory: &DirectorySettings, error: &Error) -> String {
    let folder = directory.path.display();
    match error {
        Error::Locked(path) => format!(
            "--data-dir {folder}: another process has this store open ({path} is in use): stop \
             that one, or choose another folder, --pm and --ssd"
        ),
        Error::Corrupt(_) => {
            format!("--data-dir {folder}: {error}; laneway fsck {folder} says more")
        }
        Error::Io { source, .. } if source.kind() == ErrorKind::PermissionDenied => format!(
            "--data-dir {folder}: {error}; it, and what --pm and --ssd name, must belong to the \
             user who opens it: chown -R it, or choose another folder"
        ),
        Error::Io { source, .. } if source.kind() == ErrorKind::ReadOnlyFilesystem => {
            format!("--data-dir {folder}: {error}; {MOUNT_IT}; laneway fsck checks it as it is")
        }
        Error::Dump(what) => what.clone(),
        error => format!("--data-dir {folder}: {error}"),
    }
}
