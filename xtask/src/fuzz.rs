//! Coverage-guided fuzzing on stable Rust: libFuzzer with the compiler's own coverage pass.
//!
//! `fuzz/` is a package of its own, outside the workspace, because its build needs flags that no
//! other build has. A run that saw no coverage fails: it would be random input, not fuzzing.

use crate::outcome::{Failure, Outcome, passed};
use crate::process;
use std::path::{Path, PathBuf};
use std::process::Command;

pub const HELP: &str = "\
Fuzz the parsers for a while; a crash prints its input's file and how to see it again.

usage: cargo xtask fuzz [TARGET] [--seconds 30] [--seed N] [--input FILE]

  TARGET         one of fuzz/'s targets (default: every one, each for the given time)
  --seconds N    how long to run each target (default 30)
  --seed N       libFuzzer's seed (default 1; the corpus found so far also steers a run)
  --input FILE   run TARGET on this one input and stop";

const SECONDS_DEFAULT: u64 = 30;
const SEED_DEFAULT: u64 = 1;
/// One input may take this long: inputs are small, so a slower one is a bug.
const INPUT_SECONDS_MAX: &str = "-timeout=60";
const RESIDENT_MB_MAX: &str = "-rss_limit_mb=2048";

/// What `cargo fuzz` passes on nightly, without the sanitizer that only nightly has.
const COVERAGE_FLAGS: &str = "--cfg fuzzing -Cpasses=sancov-module \
    -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
    -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares \
    -Cdebug-assertions -Coverflow-checks -Ccodegen-units=1";

struct Options {
    target: Option<String>,
    seconds: u64,
    seed: u64,
    input: Option<PathBuf>,
}

pub fn main(mut parser: lexopt::Parser) -> Outcome {
    use lexopt::prelude::*;
    let mut options =
        Options { target: None, seconds: SECONDS_DEFAULT, seed: SEED_DEFAULT, input: None };
    while let Some(argument) = parser.next()? {
        match argument {
            Long("seconds") => options.seconds = parser.value()?.parse()?,
            Long("seed") => options.seed = parser.value()?.parse()?,
            Long("input") => options.input = Some(parser.value()?.into()),
            Value(name) if options.target.is_none() => options.target = Some(name.string()?),
            _ => return Err(Failure::Usage(argument.unexpected().to_string())),
        }
    }
    let targets = targets()?;
    let chosen: Vec<&String> = match &options.target {
        Some(name) => targets.iter().filter(|t| *t == name).collect(),
        None => targets.iter().collect(),
    };
    if chosen.is_empty() || (options.input.is_some() && chosen.len() != 1) {
        return Err(Failure::Usage(format!("name one target of: {}", targets.join(", "))));
    }
    let mut notes = Vec::new();
    for target in chosen {
        let program = build(target)?;
        notes.push(match &options.input {
            Some(input) => replay(target, &program, input)?,
            None => fuzz(target, &program, &options)?,
        });
    }
    passed(notes.join("; "))
}

fn folder() -> PathBuf {
    process::root().join("fuzz")
}

fn targets() -> Result<Vec<String>, String> {
    let path = folder().join("Cargo.toml");
    let text =
        std::fs::read_to_string(&path).map_err(|e| format!("cannot read fuzz/Cargo.toml: {e}"))?;
    let manifest: toml::Table = text.parse().map_err(|e| format!("fuzz/Cargo.toml: {e}"))?;
    let bins = manifest.get("bin").and_then(|b| b.as_array()).cloned().unwrap_or_default();
    let name = |bin: &toml::Value| Some(bin.get("name")?.as_str()?.to_string());
    Ok(bins.iter().filter_map(name).collect())
}

fn build(target: &str) -> Result<PathBuf, String> {
    let host = host()?;
    let dir = process::target_dir().join("fuzz");
    let mut command = process::cargo();
    command.env("RUSTFLAGS", COVERAGE_FLAGS).env("CARGO_TARGET_DIR", &dir);
    command.args(["build", "--release", "--quiet", "--manifest-path", "fuzz/Cargo.toml"]);
    // With a target named, build scripts and macros are left without the coverage flags.
    command.args(["--target", &host, "--bin", target]);
    process::run(&mut command)?;
    Ok(dir.join(host).join("release").join(target))
}

fn host() -> Result<String, String> {
    let (_, text) = process::capture(Command::new("rustc").arg("-vV"))?;
    let line = text.lines().find_map(|line| line.strip_prefix("host: "));
    line.map(String::from).ok_or_else(|| "`rustc -vV` names no host".into())
}

fn fuzz(target: &str, program: &Path, options: &Options) -> Result<String, Failure> {
    let made = |name: &str| -> Result<PathBuf, String> {
        let dir = folder().join(name).join(target);
        std::fs::create_dir_all(&dir).map_err(|e| format!("cannot make {}: {e}", dir.display()))?;
        Ok(dir)
    };
    let (corpus, artifacts) = (made("corpus")?, made("artifacts")?);
    let mut command = Command::new(program);
    command.current_dir(folder());
    command.arg(format!("-max_total_time={}", options.seconds));
    command.arg(format!("-seed={}", options.seed));
    command.arg(format!("-artifact_prefix={}/", artifacts.display()));
    command.args([INPUT_SECONDS_MAX, RESIDENT_MB_MAX, "-print_final_stats=1"]);
    let dictionary = folder().join(format!("{target}.dict"));
    if dictionary.is_file() {
        command.arg(format!("-dict={}", dictionary.display()));
    }
    command.arg(&corpus);
    let seeds = folder().join("seeds").join(target);
    if seeds.is_dir() {
        command.arg(seeds);
    }
    println!("fuzz: {target} for {} s, seed {}", options.seconds, options.seed);
    let (status, text) = process::capture(&mut command)?;
    if !status.success() {
        println!("{}", tail(&text));
        if let Some(artifact) = artifact(&text) {
            println!("again with: cargo xtask fuzz {target} --input {artifact}");
        }
        return Err(Failure::Failed(format!("{target} ended with {}", process::told(status))));
    }
    let Some(found) = Found::read(&text) else {
        println!("{}", tail(&text));
        return Err(Failure::Failed(format!("{target} saw no coverage")));
    };
    Ok(format!(
        "{target}: {} executions, {} edges and {} features covered",
        found.executions, found.edges, found.features
    ))
}

fn replay(target: &str, program: &Path, input: &Path) -> Result<String, Failure> {
    process::run(Command::new(program).arg(input))?;
    Ok(format!("{target} takes {} without a crash", input.display()))
}

/// The last lines of libFuzzer's output, where a crash is told.
fn tail(text: &str) -> String {
    const LINES_MAX: usize = 60;
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(LINES_MAX)..].join("\n")
}

fn artifact(text: &str) -> Option<&str> {
    text.lines().find_map(|line| line.split("Test unit written to ").nth(1)).map(str::trim)
}

/// The figures of a finished run.
#[derive(Debug, PartialEq)]
struct Found {
    executions: u64,
    edges: u64,
    features: u64,
}

impl Found {
    fn read(text: &str) -> Option<Found> {
        let after = |line: &str, word: &str| -> Option<u64> {
            line.split(word).nth(1)?.split_whitespace().next()?.parse().ok()
        };
        let executions = text.lines().find_map(|l| after(l, "stat::number_of_executed_units:"))?;
        let covered = text.lines().rev().find(|l| l.contains(" cov: ") && l.contains(" ft: "))?;
        let (edges, features) = (after(covered, " cov: ")?, after(covered, " ft: ")?);
        (0 < edges && 0 < executions).then_some(Found { executions, edges, features })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "INFO: Loaded 1 modules\n#2\tINITED cov: 12 ft: 13 corp: 1/1b\n\
        #524288\tpulse  cov: 210 ft: 640 corp: 95/1203b lim: 4096 exec/s: 262144 rss: 60Mb\n\
        stat::number_of_executed_units: 900001\n";

    #[test]
    fn the_last_coverage_line_and_the_final_count_are_read() {
        let found = Found { executions: 900_001, edges: 210, features: 640 };
        assert_eq!(Found::read(TEXT), Some(found));
    }

    #[test]
    fn a_run_without_coverage_is_no_run() {
        assert_eq!(Found::read(&TEXT.replace("cov: 210", "cov: 0")), None);
        assert_eq!(Found::read("stat::number_of_executed_units: 5\n"), None);
    }
}
