//! Builds and runs the whole-server simulation (`crates/vopr`), with its meter of work and its
//! planted bugs compiled in.

use crate::{Failure, Outcome, failed, features, passed, process};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

/// The seeds that CI always runs.
const FIXED: u64 = 100;
/// Those that change with the day of the week.
const DAILY: u64 = 1_000;
/// Between the first seeds of two days.
const DAY_STRIDE: u64 = 100_000;
const DAY_SECONDS: u64 = 86_400;
const WEEK_DAYS: u64 = 7;
/// The runs that found the planted bugs. `--planted --hints crates/vopr/hints.txt`, and then the
/// same with `--regressions`, writes it anew.
const HINTS: &str = "crates/vopr/hints.txt";

pub fn main(mut parser: lexopt::Parser) -> Outcome {
    let arguments: Vec<_> = parser.raw_args()?.collect();
    if arguments.iter().any(|argument| argument == "--ci") {
        if arguments.len() > 1 {
            return Err(Failure::Usage("--ci goes with nothing else".into()));
        }
        return ci();
    }
    let mut run = Command::new(built()?);
    run.args(arguments).current_dir(process::root()).stdin(Stdio::null());
    match run.status().map_err(|error| format!("laneway-vopr: {error}"))?.code() {
        Some(0) => passed(""),
        Some(2) => Err(Failure::Usage("see above".into())),
        // It has printed each seed with the command that repeats it.
        _ => Err(Failure::Told),
    }
}

/// A copy of the simulation as the tests are built: unoptimised enough to assert, with meter and
/// bugs. While the copy runs, others may build.
fn built() -> Result<PathBuf, String> {
    let mut build = process::cargo();
    // Features are those of all packages that are named, and of their tests where one is built: so
    // all of it is there where the tests have been built. With a test cargo builds the programs of
    // its package; no other package has one of this name.
    build.args(["test", "--no-run", "--quiet", "--workspace", "--features", features::tested()]);
    build.args(["--test", "vopr"]);
    process::run(&mut build)?;
    let (name, folder) = ("laneway-vopr", process::scratch_dir("vopr")?);
    let (from, to) = (process::target_dir().join("debug").join(name), folder.join(name));
    // One that still runs cannot be written, but another can take its place.
    let copy = folder.join(format!("{name}.new"));
    let copied = std::fs::copy(&from, &copy).and_then(|_| std::fs::rename(&copy, &to));
    copied.map_err(|error| format!("{}: {error}", from.display()))?;
    Ok(to)
}

fn ci() -> Outcome {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let day = seconds / DAY_SECONDS % WEEK_DAYS;
    let (fixed, daily) = (FIXED.to_string(), DAILY.to_string());
    let first = ((day + 1) * DAY_STRIDE).to_string();
    // What found the planted bugs last finds most of them again at once. Where none have been
    // looked for, as on a clean checkout, it is what found them when `HINTS` was written.
    let hints = process::scratch_dir("vopr")?.join("hints.txt");
    if !hints.exists() {
        let copied = std::fs::copy(process::root().join(HINTS), &hints);
        copied.map_err(|error| format!("{HINTS}: {error}"))?;
    }
    let hints = hints.display().to_string();
    let parts: [&[&str]; 4] = [
        &["--regressions", "--hints", &hints],
        &["--seed", "1", "--seeds", &fixed],
        &["--seed", &first, "--seeds", &daily],
        &["--planted", "--seeds", &daily, "--hints", &hints],
    ];
    let built = built()?;
    let mut notes = Vec::new();
    for part in parts {
        let (status, text) = process::capture(Command::new(&built).args(part))?;
        print!("{text}");
        let last = text.lines().last().unwrap_or_default().to_owned();
        if !status.success() {
            return failed(last);
        }
        notes.push(last);
    }
    passed(notes.join("; "))
}
