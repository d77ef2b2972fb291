//! Coverage-guided fuzzing on stable Rust: libFuzzer with the compiler's own coverage pass.
//!
//! `fuzz/` is a package of its own, outside the workspace, because its build needs flags that no
//! other build has. A run that saw no coverage fails: it would be random input, not fuzzing.

use crate::{Failure, Outcome, passed, process};
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::path::{Path, PathBuf};
use std::process::Command;

const SECONDS_DEFAULT: u64 = 30;
/// What is kept of a target's corpus, at most.
const KEPT_BYTES_MAX: u64 = 6 << 10;
const KEPT_FILES_MAX: usize = 40;
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
    keep: bool,
    input: Option<PathBuf>,
}

pub fn main(mut parser: lexopt::Parser) -> Outcome {
    let seed = u64::from(RandomState::new().hash_one(0) as u32);
    let mut options =
        Options { target: None, seconds: SECONDS_DEFAULT, seed, keep: false, input: None };
    let mut hours: Option<f64> = None;
    flags!(parser, {
        Long("seconds") => options.seconds = parser.value()?.parse()?,
        Long("hours") => hours = Some(parser.value()?.parse()?),
        Long("seed") => options.seed = parser.value()?.parse()?,
        Long("keep") => options.keep = true,
        Long("input") => options.input = Some(parser.value()?.into()),
        Value(name) if options.target.is_none() => options.target = Some(name.string()?),
    });
    let targets = targets()?;
    let chosen: Vec<&String> = match &options.target {
        Some(name) => targets.iter().filter(|t| *t == name).collect(),
        None => targets.iter().collect(),
    };
    if chosen.is_empty() || (options.input.is_some() && chosen.len() != 1) {
        return Err(Failure::Usage(format!("name one target of: {}", targets.join(", "))));
    }
    if let Some(hours) = hours {
        options.seconds = (hours * 3600.0 / chosen.len() as f64) as u64;
    }
    if options.seconds == 0 {
        return Err(Failure::Usage("each target must have a second or more".into()));
    }
    let mut notes = Vec::new();
    for target in chosen {
        let program = build(target)?;
        notes.push(match &options.input {
            Some(input) => replay(target, &program, input)?,
            None => fuzz(target, &program, &options)?,
        });
        if options.keep {
            notes.push(keep(target, &program)?);
        }
    }
    passed(notes.join("; "))
}

fn folder() -> PathBuf {
    process::root().join("fuzz")
}

fn targets() -> Result<Vec<String>, String> {
    let text = process::read(folder().join("Cargo.toml"))?;
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
    let text = process::printed(Command::new("rustc").arg("-vV"))?;
    let line = text.lines().find_map(|line| line.strip_prefix("host: "));
    line.map(String::from).ok_or_else(|| "`rustc -vV` names no host".into())
}

fn fuzz(target: &str, program: &Path, options: &Options) -> Result<String, Failure> {
    let made = |name: &str| -> Result<PathBuf, String> {
        let dir = folder().join(name).join(target);
        process::make_dir(&dir)?;
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
        let Options { seconds, seed, .. } = options;
        println!("the whole run: cargo xtask fuzz {target} --seconds {seconds} --seed {seed}");
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

/// Choose inputs of the corpus that reach what all of it reaches, and keep the smallest of them as
/// seeds.
fn keep(target: &str, program: &Path) -> Result<String, Failure> {
    let wrong = |path: &Path, error: std::io::Error| format!("{}: {error}", path.display());
    let seeds = folder().join("seeds").join(target);
    let chosen = process::scratch_dir(&format!("fuzz-{target}"))?;
    for old in files(&chosen)? {
        std::fs::remove_file(&old.1).map_err(|e| wrong(&old.1, e))?;
    }
    process::make_dir(&seeds)?;
    let mut command = Command::new(program);
    command.current_dir(folder()).arg("-set_cover_merge=1").arg(&chosen);
    command.args([folder().join("corpus").join(target), seeds.clone()]);
    let (status, text) = process::capture(&mut command)?;
    if !status.success() {
        println!("{}", tail(&text));
        return Err(Failure::Failed(format!("{target}'s corpus cannot be minimized")));
    }
    let named = |path: &Path| path.file_name().unwrap_or_default().to_owned();
    let there = files(&seeds)?;
    let mut bytes: u64 = there.iter().map(|(bytes, _)| bytes).sum();
    let mut count = there.len();
    for (more, path) in files(&chosen)? {
        let to = seeds.join(named(&path));
        if to.exists() || bytes + more > KEPT_BYTES_MAX || count == KEPT_FILES_MAX {
            continue;
        }
        std::fs::copy(&path, &to).map_err(|e| wrong(&to, e))?;
        (bytes, count) = (bytes + more, count + 1);
    }
    Ok(format!("{target}: {count} seeds of {bytes} bytes"))
}

/// The files of a folder, the smallest first, with their lengths.
fn files(folder: &Path) -> Result<Vec<(u64, PathBuf)>, String> {
    let wrong = |error: std::io::Error| format!("{}: {error}", folder.display());
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(wrong)? {
        let entry = entry.map_err(wrong)?;
        files.push((entry.metadata().map_err(wrong)?.len(), entry.path()));
    }
    files.sort();
    Ok(files)
}

fn replay(target: &str, program: &Path, input: &Path) -> Result<String, Failure> {
    process::run(Command::new(program).arg(input))?;
    Ok(format!("{target} takes {} without a crash", input.display()))
}

/// The last lines of libFuzzer's output, where a crash is told.
fn tail(text: &str) -> String {
    process::tail(text, 60).join("\n")
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
    fn the_last_coverage_line_and_the_final_count_are_read_and_none_is_no_run() {
        let found = Found { executions: 900_001, edges: 210, features: 640 };
        assert_eq!(Found::read(TEXT), Some(found));
        assert_eq!(Found::read(&TEXT.replace("cov: 210", "cov: 0")), None);
        assert_eq!(Found::read("stat::number_of_executed_units: 5\n"), None);
    }
}
