//! Has a server copy its data folder while it is measured: by `laneway backup`, begun again as soon
//! as it has ended. Each has to end with a whole copy. Whether one was under way all the time the
//! server itself is asked, ten times a second; a run in which that is not so says nothing of
//! backups, and does not count.
//!
//! Whoever asks, and `laneway backup` itself, has the server's CPU where that has one alone: so
//! nobody takes the client's.
//!
//! The copies are removed behind the run: nobody who makes backups deletes them meanwhile. It knows
//! no latency.

use super::bench::whom;
use super::process::{command, printed};
use super::server::Server;
use super::{Attempt, Doubt, Measured, Options, measured_of};
use crate::admin;
use crate::connection::Target;
use crate::cpu;
use crate::dialect::Dialect;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

/// Time between two looks.
const EVERY: Duration = Duration::from_millis(100);
/// A run is one beside a backup if at least this share of the looks saw one. One that ends is
/// noticed by `laneway backup` a fifth of a second later.
const UNDER_WAY_SHARE_MIN: f64 = 0.9;

/// Makes a run with a backup under way from before its beginning to its end. Who asks for it stays
/// on `cpu`, if there is one.
pub fn meanwhile(
    options: &Options,
    server: &Server,
    round: usize,
    cpu: Option<usize>,
    act: impl FnOnce() -> Attempt,
) -> Attempt {
    let folder = server.backups.as_deref().ok_or("a server that we did not start has no copies")?;
    let mut command = vec![options.laneway.to_string_lossy().into_owned(), "backup".into()];
    command.extend(whom(&options.root, server));
    let (target, dialect) = (server.target.clone(), server.dialect);
    let copies = Copies { command, folder, round, cpu, target, dialect };
    let (begun, is_begun) = channel();
    let (running, ended) = channel();
    let (told, mut outcome) = thread::scope(|scope| {
        let keeper = scope.spawn(move || keep(&copies, begun, &ended));
        let done = is_begun.recv().is_ok().then(act); // or else the keeper says why not
        drop(running);
        let told = keeper.join().map_err(|_| "who asks for backups panicked".to_owned())??;
        Ok::<_, String>((told, done.ok_or("no backup was begun")??))
    })?;
    measured_of(&mut outcome)["backup"] = told.measured();
    Ok(match (outcome, told.void()) {
        (Ok(measured), Some(why)) => Err(Doubt { why, measured }),
        (outcome, _) => outcome,
    })
}

/// What came of the backups of a run.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
struct Told {
    /// Whole copies.
    done: u32,
    /// Bytes of them together.
    bytes: u64,
    /// How often the server was asked during the run.
    looks: u32,
    /// How often it said that a backup was under way.
    seen: u32,
}

impl Told {
    /// Why this was no run beside a backup, if it was none.
    fn void(&self) -> Option<String> {
        let Told { looks, seen, .. } = self;
        let is_beside = *seen > 0 && UNDER_WAY_SHARE_MIN * f64::from(*looks) <= f64::from(*seen);
        (!is_beside).then(|| format!("a backup was under way at {seen} of {looks} looks"))
    }

    fn measured(&self) -> Measured {
        let Told { done, bytes, looks, seen } = self;
        json!({
            "done": done,
            "mb": *bytes as f64 / 1e6 / f64::from((*done).max(1)),
            "looks": looks,
            "under_way_share": f64::from(*seen) / f64::from((*looks).max(1)),
        })
    }
}

/// Who is asked for copies, and where they lie.
struct Copies<'a> {
    /// The command, but for the name.
    command: Vec<String>,
    folder: &'a Path,
    round: usize,
    /// The CPU of whoever asks.
    cpu: Option<usize>,
    target: Target,
    dialect: Dialect,
}

impl Copies<'_> {
    fn name(&self, number: u32) -> String {
        format!("{}-{number}", self.round)
    }

    fn file(&self, number: u32) -> PathBuf {
        self.folder.join(self.name(number))
    }

    fn begin(&self, number: u32) -> Result<Child, String> {
        let mut command = command(&self.command);
        command.arg(self.name(number)).stdout(Stdio::null()).stderr(Stdio::piped());
        command.spawn().map_err(|error| format!("{}: {error}", self.command[0]))
    }

    /// Waits for the end of one; the bytes of the copy.
    fn end(&self, tool: Child, number: u32) -> Result<u64, String> {
        let shown = format!("{} {}", self.command.join(" "), self.name(number));
        printed(tool.wait_with_output(), &shown)?;
        let copy = std::fs::metadata(self.file(number));
        Ok(copy.map_err(|error| format!("{shown} left no copy: {error}"))?.len())
    }

    /// Whether the server says that a backup is under way. One that says nothing has none.
    fn is_under_way(&self) -> bool {
        let stats = admin::stats(&self.target, self.dialect, "backup").unwrap_or_default();
        stats.get("backup_state").is_some_and(|state| state == "running")
    }
}

/// Makes one copy after the other until the run has ended, and the last one whole; says when the
/// first one is under way.
fn keep(copies: &Copies<'_>, begun: Sender<()>, ended: &Receiver<()>) -> Result<Told, String> {
    // What this thread starts inherits its CPU.
    copies.cpu.map_or(Ok(()), cpu::pin)?;
    let (mut told, mut begun) = (Told::default(), Some(begun));
    let mut tool = copies.begin(0)?;
    loop {
        let is_over = ended.recv_timeout(EVERY) != Err(RecvTimeoutError::Timeout);
        let has_ended = tool.try_wait().map_err(|error| error.to_string())?.is_some();
        if is_over || has_ended {
            told.bytes += copies.end(tool, told.done)?;
            told.done += 1;
            if is_over {
                for file in (0..told.done).map(|number| copies.file(number)) {
                    let removed = std::fs::remove_file(&file);
                    removed.map_err(|error| format!("{}: {error}", file.display()))?;
                }
                return Ok(told);
            }
            tool = copies.begin(told.done)?;
        }
        let is_under_way = copies.is_under_way();
        // One that was over before anybody looked was begun, too: the looks tell what it is worth.
        if let Some(begun) = begun.take_if(|_| is_under_way || told.done > 0) {
            let _ = begun.send(());
        }
        if begun.is_none() {
            told.looks += 1;
            told.seen += u32::from(is_under_way);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_without_a_backup_under_way_is_void() {
        for (looks, seen, is_void) in
            [(0, 0, true), (80, 0, true), (80, 71, true), (80, 72, false), (80, 80, false)]
        {
            let told = Told { done: 2, bytes: 1_000_000_000, looks, seen };
            assert_eq!(told.void().is_some(), is_void, "{told:?}");
            assert_eq!(told.measured()["mb"], 500.0);
        }
        let told = Told { looks: 80, seen: 60, ..Told::default() };
        assert_eq!(told.void().as_deref(), Some("a backup was under way at 60 of 80 looks"));
        assert_eq!(told.measured()["under_way_share"], 0.75);
    }

    /// Why this command makes no copy, for which no load is begun beside it.
    fn kept(command: &[&str], cpu: Option<usize>) -> String {
        let nowhere = Path::new("/none/such");
        let copies = Copies {
            command: command.iter().map(|word| (*word).into()).collect(),
            folder: nowhere,
            round: 3,
            cpu,
            target: Target::Unix(nowhere.into()),
            dialect: Dialect::Text,
        };
        let ((begun, is_begun), (_running, ended)) = (channel(), channel());
        let why = keep(&copies, begun, &ended).expect_err("it makes no copy");
        assert!(is_begun.recv().is_err(), "no load is begun beside it");
        why
    }

    #[test]
    fn a_backup_that_fails_or_leaves_no_copy_fails_the_run() {
        for (tool, words) in [("false", "ended with"), ("true", "left no copy")] {
            let why = kept(&[tool], None);
            assert!(why.starts_with(&format!("{tool} 3-0 {words}")), "{why}");
        }
    }

    #[test]
    fn who_asks_for_a_backup_has_the_cpu_that_it_is_given_and_no_other() {
        let cpu = rustix::thread::sched_getcpu();
        // The name of the copy is a parameter of the script, which does not look at it.
        let script = "grep Cpus_allowed_list: /proc/self/status >&2; exit 1";
        let why = kept(&["sh", "-c", script], Some(cpu));
        assert!(why.ends_with(&format!("\nCpus_allowed_list:\t{cpu}\n")), "{why}");
    }
}
