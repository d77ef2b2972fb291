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

/// The crates that must be covered.
const CRATES: &[&str] = &["policy", "wire", "store", "sync", "tier", "server"];
/// What one of them must reach, in percent of its lines.
const CRATE_PERCENT_MIN: usize = 90;
/// A file below this is named.
const FILE_PERCENT_MIN: usize = 80;
/// The seeds that the simulation's CI run always begins with.
const SEEDS: &str = "100";

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
        return failed("cargo-llvm-cov is missing; cargo install cargo-llvm-cov --locked");
    }
    measure()?;
    judge(&without_tests(&read(&exported()?)))
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

/// Prints what was covered, by crate, and of files that have little; fails if a crate has.
fn judge(files: &BTreeMap<String, Lines>) -> Outcome {
    println!("\n{:<8} {:>7} {:>8} {:>6}", "crate", "lines", "covered", "%");
    let mut below = Vec::new();
    for name in CRATES {
        let ours = files.iter().filter(|(path, _)| path.split('/').nth(1) == Some(*name));
        let share = Share::of(ours.flat_map(|(_, lines)| lines.values()));
        println!("{name:<8} {:>7} {:>8} {:>6}", share.lines, share.covered, share.told());
        if share.is_below(CRATE_PERCENT_MIN) {
            below.push(format!("{name} {} %", share.told()));
        }
    }
    println!("\nfiles below {FILE_PERCENT_MIN} %:");
    for (path, lines) in files {
        let share = Share::of(lines.values());
        if share.is_below(FILE_PERCENT_MIN) {
            println!("{:>6} % of {:>4} lines  {path}", share.told(), share.lines);
        }
    }
    println!();
    match below.is_empty() {
        true => passed(format!("each of the six crates is at {CRATE_PERCENT_MIN} % or above")),
        false => failed(format!("below {CRATE_PERCENT_MIN} % of the lines: {}", below.join(", "))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let judged = |covered: usize| {
            let lines: Lines = (0..100).map(|line| (line, u64::from(line < covered))).collect();
            judge(&BTreeMap::from([("crates/wire/src/a.rs".to_owned(), lines)]))
        };
        assert!(judged(90).is_ok());
        let why = judged(89).expect_err("89 % passed").why();
        assert_eq!(why, "below 90 % of the lines: wire 89.0 %");
    }
}
