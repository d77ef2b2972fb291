//! `cargo xtask coverage`: which lines of the product's core the tests run, by crate.
//!
//! Counts lines, by cargo-llvm-cov (source-based coverage of LLVM). A line of a test proves nothing
//! by being run, so test files are left out by their path, and test modules inside files by tidy's
//! reading of the source. It says which lines nobody runs; whether a line that is run is also
//! checked is the matter of planted bugs (`cargo xtask vopr --planted`), canaries and reviews. Not
//! part of CI: it builds everything a second time.

use crate::tidy::code::{Code, is_test_path};
use crate::{Outcome, failed, flags, passed, process};
use std::collections::{BTreeMap, BTreeSet};

pub const HELP: &str = "\
Measure which lines of policy, wire, store, sync, tier and server the tests run.

usage: cargo xtask coverage

Which lines nothing ran `cargo llvm-cov report --show-missing-lines` tells, tests among them.

Counted is what these run: the tests of the six crates, those of crates/laneway (they start the real
binary), and the hundred fixed seeds of the whole-server simulation. Not counted, neither as lines
nor as covered: tests, whether a file or a module inside one. Not seen: loom models, doc tests,
fuzzing, a process that is killed, code that is not compiled in (the feature `kernel`), and some
functions of a line or two that other crates alone call, which rustc compiles into their callers
(llvm-cov's \"mismatched data\"): what is told is a lower bound.

Prints a table by crate and the files below 80 %. Exit status 1 if one of the six is below 90 %,
or if cargo-llvm-cov is missing. Takes a quarter of an hour on two CPUs. Not part of CI.";

/// The crates that must be covered.
const CRATES: &[&str] = &["policy", "wire", "store", "sync", "tier", "server"];
/// What one of them must reach, in percent of its lines.
const CRATE_PERCENT_MIN: usize = 90;
/// A file below this is named.
const FILE_PERCENT_MIN: usize = 80;
/// The seeds that the simulation's CI run always begins with.
const SEEDS: &str = "100";

/// What to type where the tool is missing. It says itself where LLVM's are.
const INSTALL: &str = "cargo install cargo-llvm-cov --locked";

/// The lines of one file: how many times each was run, by number from 1.
type Lines = BTreeMap<usize, u64>;

/// Lines and how many of them were run.
#[derive(Clone, Copy, Default, Debug, PartialEq)]
struct Share {
    lines: usize,
    covered: usize,
}

impl Share {
    /// Of lines, by how many times each was run.
    fn of<'a>(counts: impl Iterator<Item = &'a u64>) -> Share {
        counts.fold(Share::default(), |Share { lines, covered }, count| Share {
            lines: lines + 1,
            covered: covered + usize::from(0 < *count),
        })
    }

    fn is_below(self, percent: usize) -> bool {
        self.covered * 100 < percent * self.lines
    }

    /// In percent with one decimal, rounded down, so that 89.99 % is not shown as 90.
    fn told(self) -> String {
        let tenths = (self.covered * 1_000).checked_div(self.lines).unwrap_or(1_000);
        format!("{}.{}", tenths / 10, tenths % 10)
    }
}

pub fn main(parser: lexopt::Parser) -> Outcome {
    flags::none(parser)?;
    if !process::works(process::cargo().args(["llvm-cov", "--version"])) {
        return failed(format!("cargo-llvm-cov is missing: `{INSTALL}` installs it"));
    }
    measure()?;
    let files = without_tests(&read(&exported()?));
    let crates = by_crate(&files);
    print_crates(&crates);
    print_files(&files);
    verdict(&crates)
}

/// Builds with counters and runs everything that counts.
fn measure() -> Result<(), String> {
    // What an earlier build left would be counted too, with the counters of other code.
    process::run(process::cargo().args(["llvm-cov", "clean", "--workspace"]))?;
    let mut tests = process::cargo();
    tests.args(["llvm-cov", "test", "--no-report", "--tests"]);
    for name in CRATES {
        tests.args(["-p", &format!("laneway-{name}")]);
    }
    // Servers write their counters from within: a sandbox would refuse that.
    process::run(tests.args(["-p", "laneway"]).env("LANEWAY_SANDBOX", "off"))?;
    let mut seeds = process::cargo();
    seeds.args(["llvm-cov", "run", "--no-report", "-p", "laneway-vopr"]);
    process::run(seeds.args(["--", "--seed", "1", "--seeds", SEEDS]))
}

/// What was counted, in lcov's format.
fn exported() -> Result<String, String> {
    let path = process::scratch_dir("coverage")?.join("lines.lcov");
    let mut report = process::cargo();
    report.args(["llvm-cov", "report", "--lcov", "--output-path"]).arg(&path);
    process::run(&mut report)?;
    process::read(&path)
}

/// The lines of the files below the root, by path from there.
fn read(lcov: &str) -> BTreeMap<String, Lines> {
    let root = format!("{}/", process::root().display());
    let mut files: BTreeMap<String, Lines> = BTreeMap::new();
    let mut path = None;
    for record in lcov.lines() {
        if let Some(file) = record.strip_prefix("SF:") {
            path = file.strip_prefix(&root).map(str::to_owned);
        } else if let (Some(path), Some(data)) = (&path, record.strip_prefix("DA:"))
            && let Some((line, count)) = data.split_once(',')
            && let (Ok(line), Ok(count)) = (line.parse(), count.parse::<u64>())
        {
            let lines = files.entry(path.clone()).or_default();
            *lines.entry(line).or_default() += count;
        }
    }
    files
}

/// The sources of the six crates, without the lines of tests.
fn without_tests(files: &BTreeMap<String, Lines>) -> BTreeMap<String, Lines> {
    let sources = CRATES.iter().map(|name| format!("crates/{name}/src/")).collect::<Vec<_>>();
    let ours = files.iter().filter(|(path, _)| sources.iter().any(|dir| path.starts_with(dir)));
    let codes = ours
        .map(|(path, lines)| {
            let text = std::fs::read_to_string(process::root().join(path)).unwrap_or_default();
            (path, lines, Code::of(path, &text))
        })
        .collect::<Vec<_>>();
    let apart: BTreeSet<String> =
        codes.iter().flat_map(|(path, _, code)| test_files(path, code)).collect();
    let mut kept = BTreeMap::new();
    for (path, lines, code) in codes {
        let counts = |line: &usize| !code.is_test(*line);
        if !is_test_path(path) && !apart.contains(path) {
            let lines = lines.iter().filter(|(line, _)| counts(line));
            kept.insert(path.clone(), lines.map(|(line, count)| (*line, *count)).collect());
        }
    }
    kept
}

/// The files of the modules that `path` declares for its tests alone: `#[cfg(test)] mod explore;`.
fn test_files(path: &str, code: &Code) -> Vec<String> {
    let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
    let folder = match name {
        "lib.rs" | "main.rs" | "mod.rs" => folder.to_owned(),
        _ => path.trim_end_matches(".rs").to_owned(),
    };
    let declared = |text: &str| {
        let name = text.trim().strip_prefix("mod ")?.strip_suffix(';')?;
        Some(format!("{folder}/{name}.rs"))
    };
    let tests = code.lines().filter(|(line, _)| code.is_test(*line));
    tests.filter_map(|(_, text)| declared(text)).collect()
}

fn by_crate(files: &BTreeMap<String, Lines>) -> BTreeMap<&'static str, Share> {
    let share = |name: &&'static str| {
        let ours = files.iter().filter(|(path, _)| path.split('/').nth(1) == Some(*name));
        (*name, Share::of(ours.flat_map(|(_, lines)| lines.values())))
    };
    CRATES.iter().map(share).collect()
}

fn print_crates(crates: &BTreeMap<&str, Share>) {
    println!("\n{:<8} {:>7} {:>8} {:>6}", "crate", "lines", "covered", "%");
    for name in CRATES {
        let share = crates[name];
        println!("{name:<8} {:>7} {:>8} {:>6}", share.lines, share.covered, share.told());
    }
}

fn print_files(files: &BTreeMap<String, Lines>) {
    let shares = files.iter().map(|(path, lines)| (path, Share::of(lines.values())));
    let below = shares.filter(|(_, share)| share.is_below(FILE_PERCENT_MIN)).collect::<Vec<_>>();
    if below.is_empty() {
        return println!("\nno file is below {FILE_PERCENT_MIN} %\n");
    }
    println!("\nfiles below {FILE_PERCENT_MIN} %:");
    for (path, share) in below {
        println!("{:>6} % of {:>4} lines  {path}", share.told(), share.lines);
    }
    println!();
}

fn verdict(crates: &BTreeMap<&'static str, Share>) -> Outcome {
    let below = crates.iter().filter(|(_, share)| share.is_below(CRATE_PERCENT_MIN));
    let below = below.map(|(name, share)| format!("{name} {} %", share.told())).collect::<Vec<_>>();
    match below.is_empty() {
        true => passed(format!("each of the six crates is at {CRATE_PERCENT_MIN} % or above")),
        false => failed(format!("below {CRATE_PERCENT_MIN} % of the lines: {}", below.join(", "))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::Failure;

    #[test]
    fn counts_of_one_line_are_added_and_foreign_files_are_left_out() {
        let root = process::root();
        let lcov = format!(
            "SF:{0}/crates/wire/src/a.rs\nDA:1,2\nDA:2,0\nend_of_record\n\
             SF:/elsewhere/b.rs\nDA:1,7\nend_of_record\n\
             SF:{0}/crates/wire/src/a.rs\nDA:2,3\nDA:4,0\nend_of_record\n",
            root.display()
        );
        let files = read(&lcov);
        assert_eq!(files.keys().collect::<Vec<_>>(), ["crates/wire/src/a.rs"]);
        let lines = &files["crates/wire/src/a.rs"];
        assert_eq!(*lines, BTreeMap::from([(1, 2), (2, 3), (4, 0)]));
        assert_eq!(Share::of(lines.values()), Share { lines: 3, covered: 2 });
    }

    #[test]
    fn a_module_declared_for_tests_is_a_test_file() {
        let text = "mod a;\n#[cfg(test)]\nmod explore;\n";
        let declared = |path| test_files(path, &Code::of(path, text));
        assert_eq!(declared("crates/x/src/lib.rs"), ["crates/x/src/explore.rs"]);
        assert_eq!(declared("crates/x/src/y.rs"), ["crates/x/src/y/explore.rs"]);
    }

    #[test]
    fn a_share_is_rounded_down_and_compared_exactly_and_one_below_the_limit_fails() {
        let share = Share { lines: 10_000, covered: 8_999 };
        assert_eq!(share.told(), "89.9");
        assert!(share.is_below(90));
        assert!(!Share { lines: 10, covered: 9 }.is_below(90));
        assert!(!Share::default().is_below(90), "a crate without lines lacks none");
        // A crate below the limit is named.
        let share = |covered| Share { lines: 100, covered };
        assert!(verdict(&BTreeMap::from([("wire", share(90))])).is_ok());
        let Err(Failure::Failed(why)) = verdict(&BTreeMap::from([("wire", share(89))])) else {
            panic!("89 % passed");
        };
        assert_eq!(why, "below 90 % of the lines: wire 89.0 %");
    }
}
