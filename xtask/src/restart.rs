//! How long a server with a data folder takes from its start to the first request that it serves,
//! and how long `laneway fsck` takes for all of it.
//!
//! A folder of many gigabytes is filled; then a server is started on it, killed behind some writes
//! and started again, stopped and started again, each time with cold caches. The bound that is
//! asserted: 2 s, and besides as long as the medium takes to read the log behind the newest
//! checkpoint, at the rate that is measured here. That of `fsck` is twice as long as so many bytes
//! take to read in order. All of them are read for that, before it and behind it: where a virtual
//! machine's host has a cache, the rate of the first ones, which were just read, is that cache's.
//!
//! `cargo xtask bench restart` records all of it: `--json`, a flag for that alone, prints one line
//! of JSON and leaves the verdict to the definition. So all that is told meanwhile goes to standard
//! error.

use crate::client::{Client, number};
use crate::{Executable, Failure, Folder, Outcome, Server, Value, failed, passed, process, random};
use fastrand::Rng;
use laneway_tier::{Backend, Blocks, Directory, DirectorySettings, IndexKind, ItemMeta};
use rustix::fs::OFlags;
use serde_json::json;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

const SIZE_BYTES: u64 = 10 << 30;
const SIZE_BYTES_MIN: u64 = 32 << 20;
/// What a start may take besides reading the log.
const START_BOUND: Duration = Duration::from_secs(2);
/// What `fsck` may take, in times that its items take to read; it opens the store, too, so that it
/// may take as long as a start.
const CHECK_OF_READING_MAX: f64 = 2.0;
const LOG_BYTES: u64 = 256 << 20;
/// What an item takes of a tree in persistent memory: its cell, and its share of nodes.
const TREE_ITEM_BYTES: u64 = 192;
const MEMORY: &str = "/dev/shm/laneway-restart-pm";
/// What is written before the kill: less than what a checkpoint is made after, so that all of it is
/// still to be read.
const REWRITTEN_BYTES: u64 = 24 << 20;
/// What an even and an odd item hold.
const VALUE_BYTES: [usize; 2] = [256, 4096];
const ITEM_BYTES: u64 = (VALUE_BYTES[0] + VALUE_BYTES[1]) as u64 / 2;
/// Starts of each kind.
const STARTS: usize = 5;
/// Items of a group.
const BATCH: u64 = 256;
const FILLERS: u64 = 4;
/// Items that are looked at after a start.
const LOOKS: usize = 500;
/// Which these are.
const SEED: u64 = 1;
const READ_BYTES: usize = 1 << 20;
/// What is read after a start for the rate.
const READ_BYTES_MAX: u64 = 256 << 20;
/// A stop writes a checkpoint of the whole index.
const STOP_PATIENCE: Duration = Duration::from_secs(120);
const CACHE_DROPPER: &str = "/proc/sys/vm/drop_caches";

/// Which index is asked for; persistent memory is then emulated in [`MEMORY`]. Without `--pm-index`
/// the log is on the disk, as by default.
struct Memory {
    index: Option<IndexKind>,
}

impl Memory {
    fn bytes(&self, items: u64) -> u64 {
        match self.index {
            // A tree takes half, about two and a half lines for each item.
            Some(IndexKind::Fair) => 2 * (LOG_BYTES + items * TREE_ITEM_BYTES),
            _ => LOG_BYTES,
        }
    }

    fn backend(&self) -> Backend {
        if self.index.is_some() { Backend::UnsafeVolatile } else { Backend::Wal }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if self.index.is_some() {
            let _ = fs::remove_file(MEMORY); // it may never have been made
        }
    }
}

pub fn main(mut parser: lexopt::Parser) -> Outcome {
    let (mut size_bytes, mut server, mut pm_index) = (SIZE_BYTES, None, None);
    let mut is_json = false;
    flags!(parser, {
        Long("size") => size_bytes = bytes(&parser.value()?.string()?)?,
        Long("server") => server = Some(PathBuf::from(parser.value()?)),
        Long("pm-index") => pm_index = Some(index(&parser.value()?.string()?)?),
        Long("json") => is_json = true,
    });
    if size_bytes < SIZE_BYTES_MIN {
        let least = SIZE_BYTES_MIN >> 20;
        return Err(Failure::Usage(format!("--size {size_bytes}: must be at least {least}m")));
    }
    let executable = Executable::named_or_laneway(server.as_deref())?;
    let removed = Folder::make("restart")?;
    let folder = PathBuf::from(removed.file(""));
    let (memory, items) = (Memory { index: pm_index }, size_bytes / ITEM_BYTES);
    let rig = Rig { executable, folder: &folder, memory, items, size_bytes, is_json };
    rig.run()
}

fn index(text: &str) -> Result<IndexKind, Failure> {
    let kinds = [IndexKind::BTree, IndexKind::Fair];
    let found = kinds.into_iter().find(|kind| kind.name() == text);
    found.ok_or_else(|| Failure::Usage(format!("--pm-index {text}: must be btree or fair")))
}

/// `10g`, as the server's own flags have it.
fn bytes(text: &str) -> Result<u64, Failure> {
    let units = [("k", 10), ("m", 20), ("g", 30), ("", 0)];
    let parts = units.iter().find_map(|(unit, shift)| Some((text.strip_suffix(*unit)?, *shift)));
    let bytes =
        parts.and_then(|(digits, shift)| digits.parse::<u64>().ok()?.checked_mul(1 << shift));
    bytes.ok_or_else(|| Failure::Usage(format!("--size {text}: a number, or one with k, m or g")))
}

/// The size of the SSD's file for so many bytes of items: checkpoints, and room to migrate, too.
fn ssd_bytes(size_bytes: u64) -> u64 {
    size_bytes.saturating_add(size_bytes / 4).saturating_add(512 << 20)
}

struct Rig<'a> {
    executable: Executable,
    folder: &'a Path,
    memory: Memory,
    items: u64,
    size_bytes: u64,
    /// Whether what was measured is told as JSON.
    is_json: bool,
}

/// How one start went.
#[derive(Clone, Copy)]
struct Start {
    took: Duration,
    bound: Duration,
}

impl Start {
    fn measured(self) -> serde_json::Value {
        let [took, bound] = [self.took, self.bound].map(|time| time.as_secs_f64());
        json!({ "seconds": took, "bound_seconds": bound, "of_bound": took / bound })
    }
}

/// How all of one kind went, by the time they took.
struct Starts(Vec<Start>);

impl Starts {
    fn median(&self) -> Start {
        self.0[self.0.len() / 2]
    }

    fn told(&self, when: &str) -> String {
        let Start { took, bound } = self.median();
        let [least, took, most, bound] =
            [self.0[0].took, took, self.0[self.0.len() - 1].took, bound]
                .map(|time| time.as_secs_f64());
        format!("{when} {took:.2} s [{least:.2}..{most:.2}] (bound {bound:.2})")
    }
}

impl Rig<'_> {
    fn run(&self) -> Outcome {
        self.fill()?;
        let mut random = random::stream(SEED, 0);
        let (server, filled) = self.starts("filled", 0, &mut random)?;
        let rewritten = (REWRITTEN_BYTES / ITEM_BYTES).min(self.items / 2);
        self.rewrite(&server, rewritten)?;
        drop(server); // by SIGKILL
        let (server, killed) = self.starts("killed", rewritten, &mut random)?;
        server.stop_within(STOP_PATIENCE)?;
        let (server, stopped) = self.starts("stopped", rewritten, &mut random)?;
        server.stop_within(STOP_PATIENCE)?;
        let starts = [("filled", filled), ("killed", killed), ("stopped", stopped)];
        let told = starts.iter().map(|(when, starts)| starts.told(when));
        let mut told = format!(
            "{} MiB, from the start to the first request served: {}",
            self.size_bytes >> 20,
            told.collect::<Vec<_>>().join(", ")
        );
        let holds = |start: Start| start.took <= start.bound;
        let mut all_hold = starts.iter().all(|(_, starts)| holds(starts.median()));
        let check = self.memory.index.is_none().then(|| self.check()).transpose()?;
        if let Some((check, _)) = check {
            all_hold &= holds(check);
            let [took, bound] = [check.took, check.bound].map(|time| time.as_secs_f64());
            told.push_str(&format!("; fsck of all of it {took:.2} s (bound {bound:.2})"));
        }
        if self.is_json {
            eprintln!("{told}");
            return passed(self.measured(&starts, check).to_string()); // who asked has the bounds
        }
        if all_hold { passed(told) } else { failed(told) }
    }

    /// What the figures of `cargo xtask bench restart` point into.
    fn measured(
        &self,
        starts: &[(&str, Starts)],
        check: Option<(Start, Duration)>,
    ) -> serde_json::Value {
        let mut measured = json!({ "items": self.items, "bytes": self.size_bytes });
        for (when, starts) in starts {
            measured[*when] = starts.median().measured();
        }
        if let Some((check, reading)) = check {
            measured["fsck"] = check.measured();
            let of_reading = check.took.as_secs_f64() / reading.as_secs_f64();
            measured["fsck"]["of_reading"] = of_reading.into();
        }
        measured
    }

    /// Puts the items into the folder, with as many writes at a time as there are threads.
    fn fill(&self) -> Result<(), String> {
        let began = Instant::now();
        let mut settings = DirectorySettings::new(self.folder);
        settings.pm_bytes = self.memory.bytes(self.items);
        settings.ssd_bytes = ssd_bytes(self.size_bytes);
        settings.backend = self.memory.backend();
        if self.memory.index.is_some() {
            settings.pm_path = Some(MEMORY.into());
            settings.settings.index = self.memory.index;
        }
        let told = |error: laneway_tier::Error| format!("filling the folder: {error}");
        let (store, _) = Directory::open(&settings, &mut |_, _| {}).map_err(told)?;
        let next = AtomicU64::new(0);
        let fill = || -> Result<(), String> {
            let mut bytes = Vec::new();
            loop {
                // A ticket for a batch; nothing else hangs on the order.
                let first = next.fetch_add(BATCH, Relaxed);
                if self.items <= first {
                    return Ok(());
                }
                for item in first..(first + BATCH).min(self.items) {
                    bytes.clear();
                    value(item, 0).write(&mut bytes);
                    let key = key(item);
                    // As a server would number them: never 0.
                    let meta = ItemMeta { cas: item + 1, ..ItemMeta::default() };
                    store.submit_put(key.as_bytes(), &bytes, meta, None).map_err(told)?;
                }
                store.commit().map_err(told)?;
            }
        };
        std::thread::scope(|scope| {
            let fillers: Vec<_> = (0..FILLERS).map(|_| scope.spawn(fill)).collect();
            fillers.into_iter().try_for_each(|filler| filler.join().expect("a filler panics"))
        })?;
        store.close().map_err(told)?;
        let (items, took) = (self.items, began.elapsed().as_secs_f64());
        eprintln!("{items} items, {} MiB, written in {took:.0} s", self.size_bytes >> 20);
        Ok(())
    }

    fn start(&self) -> Result<Server, String> {
        let folder = self.folder.display().to_string();
        let ssd = format!("{}m", ssd_bytes(self.size_bytes) >> 20);
        let log = format!("{}m", self.memory.bytes(self.items) >> 20);
        let mut flags =
            vec!["--data-dir", &folder, "--ssd-size", &ssd, "--pm-size", &log, "-m", "512"];
        if let Some(index) = self.memory.index {
            let emulated = ["--pm-backend", "emu", "--unsafe-volatile-pm", "--pm", MEMORY];
            flags.extend(emulated.into_iter().chain(["--pm-index", index.name()]));
        }
        self.executable.start("restart", &flags)
    }

    /// Writes the first items again; all of them are durable when this returns.
    fn rewrite(&self, server: &Server, items: u64) -> Result<(), String> {
        let mut client = Client::connect(server.address())?;
        let mut out = Vec::new();
        for first in (0..items).step_by(BATCH as usize) {
            out.clear();
            for item in first..(first + BATCH).min(items) {
                let value = value(item, 1);
                let head = format!("ms {} {} q\r\n", key(item), value.length);
                out.extend_from_slice(head.as_bytes());
                value.write(&mut out);
                out.extend_from_slice(b"\r\n");
            }
            // Only failures are answered, and this, behind all of them.
            out.extend_from_slice(b"mn\r\n");
            client.send(&out)?;
            client.expect("MN")?;
        }
        Ok(())
    }

    /// Checks the folder, which no server has open, with cold caches. It returns beside that how
    /// long as many bytes as the items have take to be read in order.
    fn check(&self) -> Result<(Start, Duration), String> {
        let before = self.read_in_order()?;
        eprintln!(
            "as many bytes as the items have, in order: {:.2} s; now fsck",
            before.as_secs_f64()
        );
        drop_caches();
        let began = Instant::now();
        let mut fsck = Command::new(self.executable.path());
        let said = process::said(fsck.arg("fsck").arg(self.folder))?;
        let took = began.elapsed();
        eprint!("{said}");
        let behind = self.read_in_order()?;
        eprintln!("fsck: {:.2} s; then in order {:.2} s", took.as_secs_f64(), behind.as_secs_f64());
        let reading = (before + behind) / 2;
        let bound = reading.mul_f64(CHECK_OF_READING_MAX).max(START_BOUND);
        Ok((Start { took, bound }, reading))
    }

    /// How long as many bytes of the SSD's file as the items have take to be read.
    fn read_in_order(&self) -> Result<Duration, String> {
        let rate = read_rate(&self.folder.join("ssd"), self.size_bytes)?;
        Ok(Duration::from_secs_f64(self.size_bytes as f64 / rate))
    }

    /// Some starts, each behind a SIGKILL to the one before, which wrote nothing; the last runs.
    fn starts(
        &self,
        when: &str,
        rewritten: u64,
        random: &mut Rng,
    ) -> Result<(Server, Starts), String> {
        let (mut server, first) = self.start_cold(when, rewritten, random)?;
        let mut starts = vec![first];
        while starts.len() < STARTS {
            drop(server);
            let (next, start) = self.start_cold(when, rewritten, random)?;
            server = next;
            starts.push(start);
        }
        starts.sort_by_key(|start| start.took);
        Ok((server, Starts(starts)))
    }

    /// Starts with cold caches, and looks at what is there. Items below `rewritten` are newer.
    fn start_cold(
        &self,
        when: &str,
        rewritten: u64,
        random: &mut Rng,
    ) -> Result<(Server, Start), String> {
        let cold = drop_caches();
        let began = Instant::now();
        let server = self.start()?;
        let mut client = Client::connect(server.address())?;
        let item = random.u64(..self.items);
        look(&mut client, item, rewritten)?;
        let took = began.elapsed();
        let stats = client.stats("tier")?;
        let number = |name: &str| number(&stats, name);
        let (items, problems) = (number("recovery_items")?, number("recovery_problems")?);
        if (items, problems) != (self.items, 0) {
            return Err(format!("{when}: {items} of {} items, {problems} problems", self.items));
        }
        for _ in 0..LOOKS {
            look(&mut client, random.u64(..self.items), rewritten)?;
        }
        let read_bytes = READ_BYTES_MAX.min(self.size_bytes / 2);
        let rate = read_rate(&self.folder.join("ssd"), read_bytes)?;
        let (log, tables) = (number("recovery_replayed_bytes")?, number("recovery_table_bytes")?);
        let bound = START_BOUND + Duration::from_secs_f64((log + tables) as f64 / rate);
        eprintln!(
            "{when}: first request served after {:.2} s, bound {:.2} s ({} MiB of log and {} of \
             sort tables behind the checkpoint, read at {:.0} MB/s); recovery {} ms, {} MiB of \
             checkpoint, {} entries of the index read; page cache {}",
            took.as_secs_f64(),
            bound.as_secs_f64(),
            log >> 20,
            tables >> 20,
            rate / 1e6,
            number("recovery_ms")?,
            number("recovery_checkpoint_bytes")? >> 20,
            number("recovery_entries_read")?,
            if cold { "dropped" } else { "warm (not root)" }
        );
        Ok((server, Start { took, bound }))
    }
}

/// Keys in no order, as keys are: what is written in one go lies apart in the index.
fn key(item: u64) -> String {
    const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
    format!("item-{:016x}", item.wrapping_mul(ODD))
}

fn value(item: u64, version: u64) -> Value {
    Value { key: item, version, length: VALUE_BYTES[(item % 2) as usize] }
}

fn look(client: &mut Client, item: u64, rewritten: u64) -> Result<(), String> {
    let value = value(item, u64::from(item < rewritten));
    let told = |why: String| format!("{}: {why}", key(item));
    client.send(format!("mg {} v\r\n", key(item)).as_bytes())?;
    client.expect(&format!("VA {}", value.length)).map_err(told)?;
    client.body(value.length, |bytes| value.is(bytes)).map_err(told)
}

/// Empties the page cache, where we may. What the store reads goes round it anyway, the server's
/// own pages do not.
fn drop_caches() -> bool {
    const PAGES_AND_INODES: &str = "3";
    rustix::process::geteuid().is_root() && fs::write(CACHE_DROPPER, PAGES_AND_INODES).is_ok()
}

/// Bytes a second of a file's first `bytes`, read as the store reads: in order, past the page
/// cache. A running server keeps its files locked, which is no reason not to read one.
fn read_rate(path: &Path, bytes: u64) -> Result<f64, String> {
    let told = |error: io::Error| format!("cannot read {}: {error}", path.display());
    let file = open_past_the_cache(path).map_err(told)?;
    let there = file.metadata().map_err(told)?.len();
    let mut buffer = Blocks::zeroed(READ_BYTES);
    let pieces = (bytes.min(there) / READ_BYTES as u64).max(1);
    let began = Instant::now();
    for piece in 0..pieces {
        file.read_exact_at(buffer.as_mut(), piece * READ_BYTES as u64).map_err(told)?;
    }
    Ok((pieces * READ_BYTES as u64) as f64 / began.elapsed().as_secs_f64())
}

fn open_past_the_cache(path: &Path) -> io::Result<File> {
    let direct = OFlags::DIRECT.bits() as i32;
    match File::options().read(true).custom_flags(direct).open(path) {
        // tmpfs before Linux 6.6 and some others have no O_DIRECT.
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => File::open(path),
        opened => opened,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use laneway_load::pairs::{Round, definition, statistics::judge_what_is_there};
    use laneway_tier::disk::real::FileDisk;

    #[test]
    fn sizes_have_one_suffix_or_none() {
        assert_eq!(bytes("10g").unwrap(), SIZE_BYTES);
        assert_eq!((bytes("200m").unwrap(), bytes("4096").unwrap()), (200 << 20, 4096));
        for wrong in ["", "g", "10gg", "1.5g", "10t", "-1", "99999999999g"] {
            assert!(matches!(bytes(wrong), Err(Failure::Usage(_))), "{wrong}");
        }
    }

    #[test]
    fn every_figure_of_the_benchmark_is_in_what_a_round_measures() {
        let start = |took| Start { took: Duration::from_secs(took), bound: Duration::from_secs(4) };
        let starts = ["filled", "killed", "stopped"]
            .map(|when| (when, Starts(vec![start(1), start(3), start(5)])));
        let rig = Rig {
            executable: Executable::inside("laneway"),
            folder: Path::new(""),
            memory: Memory { index: None },
            items: 7,
            size_bytes: 9,
            is_json: false,
        };
        let measured = rig.measured(&starts, Some((start(6), Duration::from_secs(3))));
        assert_eq!(measured["killed"]["of_bound"], 0.75);
        assert_eq!(measured["fsck"]["of_reading"], 2.0);
        let definition = definition::read(&process::root(), "restart").expect("it is there");
        let round = Round::from([("restart".to_owned(), measured)]);
        let judged = judge_what_is_there(&definition.figures, &[round]);
        assert_eq!(judged.len(), definition.figures.len());
    }

    #[test]
    fn a_rate_is_measured_on_a_file_that_a_server_has_locked() {
        let path = std::env::temp_dir().join(format!("laneway-rate-{}", std::process::id()));
        fs::write(&path, vec![1; 2 * READ_BYTES]).unwrap();
        let store = FileDisk::open(&path).unwrap();
        assert!(FileDisk::open_read_only(&path).is_err(), "it has the file alone");
        let rate = read_rate(&path, u64::MAX).unwrap();
        drop(store);
        fs::remove_file(&path).unwrap();
        assert!(0.0 < rate && rate.is_finite());
        assert!(read_rate(&path, u64::MAX).unwrap_err().contains("cannot read"));
    }
}
