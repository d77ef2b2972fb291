//! `laneway backup`: has a running server copy its data folder, and tells how far it is; or checks
//! such a copy.

use crate::STATUS_USAGE;
use crate::asking::whom::{self, Other, Whom};
use crate::asking::{Failure, Family, Server};
use laneway_tier::dump::Stream;
use lexopt::ValueExt;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufReader, IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

/// What `--help` prints; `{flags}` stands for those that say whom to ask.
pub const HELP: &str = "\
laneway backup: copy what a running server keeps durably, while it serves

Usage: laneway backup [--server HOST:PORT | --socket PATH] [FLAGS] NAME
       laneway backup --check FILE

The server writes the copy to the file NAME in the folder that it was given by
serve --backup-dir, on its own machine, no faster than serve --backup-rate says.
The copy is what the server held at the instant it began: every write that was
answered before is in it, and none that was asked for afterwards.

Until it is whole and durable the file is called NAME.part. Whoever ends this
command ends the backup, and the file is removed; so does a server that is not
heard of for two minutes. A file that is there already is never written over.

FILE is checked from its first byte to its last, with --check; no server need
run. laneway load DIR --input FILE puts it into a new folder.

{flags}
Exit status: 0 the copy is whole; 1 it is not, or not every item could be read;
2 the command line makes no sense.
";

/// How often the server is asked how far it is.
const TICK: Duration = Duration::from_millis(200);
/// Ticks after which it is told again to who does not look at a terminal.
const TICKS_TOLD: u32 = 50;
/// Silences of ten seconds after which the server is given up, and its backup with it. One whose
/// machine is halted for a snapshot or moved to another host goes on behind that.
const SILENCES_MAX: u32 = 12;

struct Words {
    whom: Whom,
    name: Option<String>,
    check: Option<PathBuf>,
}

/// Run it.
pub fn run(args: Vec<OsString>) -> ExitCode {
    let words = match whom::words("backup", HELP, read(args)) {
        Ok(words) => words,
        Err(status) => return status,
    };
    let done = match (&words.check, &words.name) {
        (Some(path), None) => check(path),
        (None, Some(name)) => copy(&words, name).map_err(|failure| failure.told(&words.whom)),
        _ => {
            eprintln!("laneway backup: say one NAME, or --check FILE; see laneway backup --help");
            return ExitCode::from(STATUS_USAGE);
        }
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(told) => {
            tell(&format!("laneway backup: {told}\n"));
            ExitCode::FAILURE
        }
    }
}

/// To standard error. A terminal or a log that went away ends no backup, and changes no status.
fn tell(text: &str) {
    let _ = write!(io::stderr(), "{text}");
}

/// The result, to standard output. The status tells the same, also to who reads no line.
fn tell_result(line: &str) {
    let _ = writeln!(io::stdout(), "{line}");
}

/// None where help is wanted.
fn read(args: Vec<OsString>) -> Result<Option<Words>, lexopt::Error> {
    let (mut name, mut check) = (None, None);
    let whom = Whom::read(args, |other, parser| {
        match other {
            Other::Flag("check") => check = Some(parser.value()?.into()),
            Other::Word(word) if name.is_none() => name = Some(word.string()?),
            other => return Err(other.unexpected()),
        }
        Ok(())
    })?;
    Ok(whom.map(|whom| Words { whom, name, check }))
}

fn check(path: &PathBuf) -> Result<bool, String> {
    let told = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let file = File::open(path).map_err(|error| told(&error))?;
    let mut stream = Stream::open(BufReader::new(file)).map_err(|error| told(&error))?;
    let items = stream.verify().map_err(|error| told(&error))?;
    tell_result(&format!("{}: {items} items, whole and undamaged", path.display()));
    Ok(true)
}

/// Whether all of it was copied.
fn copy(words: &Words, name: &str) -> Result<bool, Failure> {
    // Its own line, and no second one.
    if name.contains(|c: char| c.is_ascii_control() || c == ' ') {
        return Err(Failure::Refused(format!("nothing: {name:?} is no name of a backup")));
    }
    let mut server = Server::of(&words.whom)?;
    match server.line_for(&format!("backup start {name}"))?.as_str() {
        "OK" => {}
        "ERROR" => return Err(Failure::Refused("that it knows no backups".into())),
        line => return Err(Failure::Refused(line.to_owned())),
    }
    server.be_patient(SILENCES_MAX);
    let is_seen = io::stderr().is_terminal();
    let mut ticks = 0;
    loop {
        let told = server.family("backup")?;
        if let Some(end) = end(name, &told) {
            if is_seen && ticks > 0 {
                tell("\n");
            }
            return Ok(end.unwrap_or_else(|why| {
                tell(&format!("laneway backup: {why}\n"));
                false
            }));
        }
        match is_seen {
            true => tell(&format!("\r{}", progress(&told))),
            false if ticks % TICKS_TOLD == TICKS_TOLD - 1 => {
                tell(&format!("{}\n", progress(&told)));
            }
            false => {}
        }
        ticks += 1;
        thread::sleep(TICK);
    }
}

fn progress(told: &Family) -> String {
    let number = |name: &str| told.number(name) as u64;
    let (items, all) = (number("backup_items"), number("backup_items_at_start"));
    let percent = (items * 100).checked_div(all).unwrap_or(0).min(100);
    let mib = number("backup_bytes") >> 20;
    format!("{percent:3} %: {items} of {all} items, {mib} MiB")
}

/// How the backup of this name has ended, if it has: whether all of it was copied.
fn end(name: &str, told: &Family) -> Option<Result<bool, String>> {
    let text = |name: &str| told.text(name).unwrap_or_default();
    // Nothing was begun: the rest is about the backup before.
    if text("backup_refused") == name {
        return Some(Err(format!("{name}: {}", text("backup_refused_error"))));
    }
    // Told at every look: one that ended since the last may have been followed by another.
    if text("backup_name") != name {
        return Some(Err(format!(
            "{name}: it has ended, and how is not known here, for the server tells of {} by now; \
             its log says more, and a file {name} in its folder is whole",
            text("backup_name")
        )));
    }
    match text("backup_state") {
        "running" => None,
        "done" => Some(Ok(is_all_of(name, told))),
        _ => Some(Err(format!("{name}: {}", text("backup_error")))),
    }
}

/// Tells what was copied, and whether that is all.
fn is_all_of(name: &str, told: &Family) -> bool {
    let text = |name: &str| told.text(name).unwrap_or_default();
    let lost = told.number("backup_items_lost");
    let (items, bytes) = (text("backup_items"), text("backup_bytes"));
    if lost > 0.0 {
        tell(&format!(
            "laneway backup: {lost} items are damaged in the server's folder and not in the copy; \
             the server's log names them\n"
        ));
    }
    tell_result(&format!("{name}: {items} items, {bytes} bytes"));
    lost == 0.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_backup_is_never_taken_for_ones_own() {
        let told = |name: &str, state: &str| {
            Family::of(&format!("backup_name {name}\nbackup_state {state}\nbackup_error why"))
        };
        assert_eq!(end("day", &told("day", "running")), None);
        assert_eq!(end("day", &told("day", "done")), Some(Ok(true)));
        assert_eq!(end("day", &told("day", "failed")), Some(Err("day: why".into())));
        for state in ["running", "done", "failed"] {
            let why = end("day", &told("night", state)).unwrap().unwrap_err();
            assert!(why.contains("day: it has ended") && why.contains("night"), "{why}");
        }
        for before in ["day", "night"] {
            let refused = "backup_refused day\nbackup_refused_error it is there";
            let told = format!("backup_name {before}\nbackup_state done\n{refused}");
            assert_eq!(end("day", &Family::of(&told)), Some(Err("day: it is there".into())));
        }
    }

    #[test]
    fn progress_is_told_where_items_are_more_than_there_were_or_none() {
        for (items, all, expected) in [
            ("5", "10", " 50 %: 5 of 10 items, 3 MiB"),
            ("12", "10", "100 %: 12 of 10 items, 3 MiB"),
            ("0", "0", "  0 %: 0 of 0 items, 3 MiB"),
        ] {
            let told = format!("backup_items {items}\nbackup_items_at_start {all}");
            let told = Family::of(&format!("{told}\nbackup_bytes 3145728"));
            assert_eq!(progress(&told), expected);
        }
    }
}
