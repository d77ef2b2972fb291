//! `cargo xtask test`: every layer of tests, one after the other, and a table of what came out.
//!
//! A step is a command line that one can also type; its output goes to a file, of which the end is
//! shown if it fails. Steps are not run side by side: some of them watch the machine's CPUs.
//! Knows nothing of what a step checks; only its status and its last line.

use crate::outcome::{EXIT_SKIPPED, Failure, Outcome, SKIPPED_PREFIX, Verdict};
use crate::process::{self, Guarded};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

pub const HELP: &str = "\
Run every layer of tests, installing what they need first; the last line counts the steps.

usage: cargo xtask test [--quick]

  --quick   only what needs no other program: format, clippy, tidy, unit and doc tests

A step that cannot run here is skipped and says why. A step that fails prints the command that
repeats it alone. Exit status 1 if any failed.";

/// No step may take longer. The longest compiles everything first: nine minutes on two CPUs of
/// which others take half. The whole should take 25 minutes.
const STEP_PATIENCE: Duration = Duration::from_secs(40 * 60);
/// How often a running step says that it is still running.
const HEARTBEAT: Duration = Duration::from_secs(30);
const LINES_SHOWN_MAX: usize = 60;

/// One step of the list.
struct Step {
    name: &'static str,
    /// What is typed after `cargo`.
    line: &'static str,
    /// Whether `--quick` runs it too.
    quick: bool,
    /// Further environment.
    environment: &'static [(&'static str, &'static str)],
}

impl Step {
    /// The whole line, environment and all.
    fn typed(&self) -> String {
        let settings = self.environment.iter().map(|(name, value)| format!("{name}='{value}' "));
        format!("{}cargo {}", settings.collect::<String>(), self.line)
    }
}

const fn step(name: &'static str, line: &'static str, quick: bool) -> Step {
    Step { name, line, quick, environment: &[] }
}

const STEPS: &[Step] = &[
    step("setup", "xtask setup", false),
    step("format", "fmt --all --check", true),
    step("clippy", "clippy --quiet --workspace --all-targets -- -D warnings", true),
    step("tidy", "xtask tidy", true),
    // The dev profile: assertions and overflow checks are on.
    step("tests", "test --workspace --all-targets --no-fail-fast", true),
    step("doc tests", "test --workspace --doc --no-fail-fast", true),
    Step {
        name: "documentation",
        line: "doc --quiet --workspace --no-deps --document-private-items",
        quick: true,
        environment: &[("RUSTDOCFLAGS", "-D warnings -A rustdoc::private-intra-doc-links")],
    },
    step("shared lines", "test -p laneway-store --features lines --test lines", true),
    step("vopr", "xtask vopr --ci", false),
    step("loom", "xtask loom", false),
    step("loom canaries", "xtask loom --canary", false),
    // Two minutes in all; a night is `cargo xtask fuzz --hours 8`.
    step("fuzz", "xtask fuzz text --seconds 20", false),
    step("fuzz meta commands", "xtask fuzz meta --seconds 10", false),
    step("fuzz RESP", "xtask fuzz resp --seconds 10", false),
    step("fuzz binary", "xtask fuzz binary --seconds 10", false),
    step("fuzz frames", "xtask fuzz udp_reassembly --seconds 15", false),
    step("fuzz shared memory", "xtask fuzz shm_region --seconds 15", false),
    step("fuzz RDMA's door", "xtask fuzz rdma_greeting --seconds 5", false),
    step("fuzz packets", "xtask fuzz xdp_packets --seconds 10", false),
    step("fuzz definitions", "xtask fuzz definitions --seconds 10", false),
    step("fuzz traces", "xtask fuzz traces --seconds 5", false),
    step("kernel lane", "xtask kernel", false),
    step("fuzz tier", "xtask fuzz tier_recovery --seconds 20", false),
    step("fuzz dumps", "xtask fuzz dump --seconds 10", false),
    step("tier bench", "xtask tier-bench", false),
    step("instructions", "xtask instructions", false),
    step("needless cost", "xtask instructions --canary", false),
    step("release build", "build --quiet --release --workspace", false),
    step("histories", "xtask histories --operations 200000", false),
    step("hot cost", "xtask hot-cost --check", false),
    step("peers", "xtask peers", false),
    step("replay", "xtask replay", false),
    step("replay binary", "xtask replay --binary", false),
    step("replay RESP", "xtask replay --resp", false),
    step("memccapable", "xtask memccapable", false),
    step("pymemcache", "xtask pymemcache", false),
    step("clients", "xtask clients", false),
    step("Python client", "xtask wheel", false),
    step("redis-py", "xtask redis", false),
    step("Redis' clients", "xtask redis --clients", false),
    step("package", "xtask package", false),
    step("cluster", "xtask cluster", false),
    step("sched-fifo", "xtask sched-fifo", false),
    step("faults", "xtask faults --quick", false),
    step("soak", "xtask soak --seconds 20 --workers 4", false),
];

/// How one step came out.
struct Row {
    name: &'static str,
    result: &'static str,
    took: Duration,
    note: String,
    /// What tests within the step say that they left out: `test: why`.
    skips: Vec<String>,
}

pub fn main(mut parser: lexopt::Parser) -> Outcome {
    let mut quick = false;
    while let Some(argument) = parser.next()? {
        match argument {
            lexopt::Arg::Long("quick") => quick = true,
            _ => return Err(Failure::Usage(argument.unexpected().to_string())),
        }
    }
    let began = Instant::now();
    let mut rows = Vec::new();
    for (index, step) in STEPS.iter().enumerate() {
        println!("[{:>2}/{}] {:<14} {}", index + 1, STEPS.len(), step.name, step.typed());
        rows.push(match quick && !step.quick {
            true => Row {
                name: step.name,
                result: "skipped",
                took: Duration::ZERO,
                note: "--quick leaves it out".into(),
                skips: Vec::new(),
            },
            false => run(step)?,
        });
        let row = &rows[rows.len() - 1];
        println!("        {} in {} {}", row.result, seconds(row.took), row.note);
    }
    summary(&rows, began.elapsed());
    println!("{}", verdict(&rows));
    let count = |result| rows.iter().filter(|row| row.result == result).count();
    match count("failed") {
        0 => Ok(Verdict::Passed(String::new())),
        _ => Err(Failure::Told),
    }
}

/// The last line: nothing that was skipped looks like a pass.
fn verdict(rows: &[Row]) -> String {
    let of = |result| rows.iter().filter(move |row| row.result == result);
    let names: Vec<&str> = of("skipped").map(|row| row.name).collect();
    let inside: usize = rows.iter().map(|row| row.skips.len()).sum();
    let skipped = match names.is_empty() {
        true => String::new(),
        false => format!(" ({})", names.join(", ")),
    };
    let tests = match inside {
        0 => String::new(),
        _ => format!(", {inside} tests skipped within steps"),
    };
    let (passed, failed) = (of("passed").count(), of("failed").count());
    format!("{passed} passed, {failed} failed, {} skipped{skipped}{tests}", names.len())
}

fn summary(rows: &[Row], took: Duration) {
    println!("\n{:<14} {:<8} {:>8}  note", "step", "result", "time");
    for row in rows {
        println!("{:<14} {:<8} {:>8}  {}", row.name, row.result, seconds(row.took), row.note);
    }
    println!("{:<14} {:<8} {:>8}", "all", "", seconds(took));
    let mut reasons: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for row in rows.iter().filter(|row| row.result == "skipped") {
        let reason = row.note.trim_start_matches(SKIPPED_PREFIX);
        reasons.entry(reason).or_default().push(row.name);
    }
    for (reason, names) in reasons {
        println!("skipped: {} ({reason})", names.join(", "));
    }
    for row in rows {
        row.skips.iter().for_each(|skip| println!("skipped within {}: {skip}", row.name));
    }
    println!();
}

fn seconds(duration: Duration) -> String {
    format!("{:.1} s", duration.as_secs_f64())
}

fn run(step: &Step) -> Result<Row, String> {
    let began = Instant::now();
    let log =
        process::scratch_dir("logs")?.join(format!("step-{}.log", step.name.replace(' ', "-")));
    let mut child = Guarded::start(&mut command(step)?, &log)?;
    let mut beat = began + HEARTBEAT;
    let status = loop {
        if let Some(status) = child.wait(HEARTBEAT.min(Duration::from_secs(1))) {
            break Some(status);
        }
        if STEP_PATIENCE < began.elapsed() {
            break None;
        }
        if beat < Instant::now() {
            beat += HEARTBEAT;
            println!("        {} {}", seconds(began.elapsed()), last_line(&log));
        }
    };
    drop(child);
    let text = std::fs::read_to_string(&log).unwrap_or_default();
    let result = match status.map(|status| (status.success(), status.code())) {
        Some((true, _)) => "passed",
        Some((false, Some(code))) if code == i32::from(EXIT_SKIPPED) => "skipped",
        _ => "failed",
    };
    let note = match result {
        "failed" => {
            explain(step, &log, &text, status.is_none());
            format!("again with: {}", step.typed())
        }
        // The last line of a task of ours is its verdict; that of another program may be anything.
        _ if step.line.starts_with("xtask ") => last_line(&log),
        _ => tested(&text).unwrap_or_default(),
    };
    // A step that is skipped as a whole says so itself.
    let skips = if result == "skipped" { Vec::new() } else { skips(&text) };
    Ok(Row { name: step.name, result, took: began.elapsed(), note, skips })
}

fn command(step: &Step) -> Result<Command, String> {
    let mut words = step.line.split(' ').peekable();
    let mut command = match words.next_if_eq(&"xtask") {
        // Ourselves and not `cargo xtask`: no second build of what is running.
        Some(_) => Command::new(std::env::current_exe().map_err(|e| e.to_string())?),
        None => process::cargo(),
    };
    command.args(words).current_dir(process::root()).envs(step.environment.iter().copied());
    // The output goes to a file: no colours, which cargo and rustfmt ask different things about.
    command.env("CARGO_TERM_COLOR", "never").env("TERM", "dumb");
    Ok(command)
}

fn explain(step: &Step, log: &Path, text: &str, late: bool) {
    let lines: Vec<&str> = text.lines().collect();
    let shown = &lines[lines.len().saturating_sub(LINES_SHOWN_MAX)..];
    println!("        ---- the end of {}", shortened(log));
    let failing = failing_tests(&lines);
    for line in &failing {
        println!("        | {line}");
    }
    // The end of the output says nothing more where the failed tests have been told one by one.
    for line in shown.iter().filter(|_| failing.is_empty()) {
        println!("        | {line}");
    }
    if late {
        println!("        | not finished after {} s", STEP_PATIENCE.as_secs());
    }
    println!("        ---- {} failed; again with: {}", step.name, step.typed());
}

/// What cargo's test runners tell of each failed test, wherever in the output.
fn failing_tests(lines: &[&str]) -> Vec<String> {
    const LINES_EACH_MAX: usize = 25;
    let mut told = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        if line.starts_with("---- ") && line.ends_with(" stdout ----") {
            let ends = |line: &&&str| line.starts_with("---- ") || **line == "failures:";
            let section = lines[at + 1..].iter().take_while(|line| !ends(line));
            told.push(line.to_string());
            told.extend(section.take(LINES_EACH_MAX).map(|line| line.to_string()));
        }
    }
    told
}

fn shortened(log: &Path) -> String {
    let root: PathBuf = process::root();
    log.strip_prefix(root).unwrap_or(log).display().to_string()
}

fn last_line(log: &Path) -> String {
    const CHARACTERS_MAX: usize = 100;
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let line = text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default();
    line.trim().chars().take(CHARACTERS_MAX).collect()
}

/// What tests that passed say they could not try here, each once.
fn skips(text: &str) -> Vec<String> {
    // Behind a runner's dots there may be no end of line.
    let told = text.lines().filter_map(|line| line.split_once(SKIPPED_PREFIX));
    let each: BTreeSet<&str> = told.map(|(_, why)| why.trim()).collect();
    each.into_iter().map(str::to_owned).collect()
}

/// The sum of what cargo's test runners say, if it was they who ran.
fn tested(text: &str) -> Option<String> {
    let mut sums = [0_u64; 3];
    let results = text.lines().filter_map(|line| line.strip_prefix("test result: "));
    let mut binaries = 0;
    for line in results {
        binaries += 1;
        let words: Vec<&str> = line.split_whitespace().collect();
        for (sum, word) in sums.iter_mut().zip(["passed;", "failed;", "ignored;"]) {
            let at = words.iter().position(|w| *w == word);
            *sum += at.and_then(|at| words[at - 1].parse::<u64>().ok()).unwrap_or(0);
        }
    }
    let [passed, failed, ignored] = sums;
    let told = format!("{passed} tests passed, {failed} failed, {ignored} ignored");
    (0 < binaries).then_some(told)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_results_of_several_test_binaries_are_added_up() {
        let text = "test result: ok. 12 passed; 0 failed; 0 ignored; 0 measured\nnoise\n\
                    test result: FAILED. 3 passed; 1 failed; 2 ignored; 0 measured\n";
        assert_eq!(tested(text).as_deref(), Some("15 tests passed, 1 failed, 2 ignored"));
        assert_eq!(tested("Finished in 3 s\n"), None);
    }

    #[test]
    fn what_is_skipped_is_told_and_counted_in_the_last_line() {
        let text = "..SKIPPED: region: no nodes\nok\nSKIPPED: region: no nodes\nSKIPPED: b: c\n";
        assert_eq!(skips(text), ["b: c", "region: no nodes"]);
        let row = |name, result, skips| Row {
            name,
            result,
            took: Duration::ZERO,
            note: String::new(),
            skips,
        };
        let rows = [
            row("tests", "passed", skips(text)),
            row("peers", "skipped", Vec::new()),
            row("loom", "failed", Vec::new()),
        ];
        let told = "1 passed, 1 failed, 1 skipped (peers), 2 tests skipped within steps";
        assert_eq!(verdict(&rows), told);
        assert_eq!(verdict(&rows[2..]), "0 passed, 1 failed, 0 skipped");
    }

    #[test]
    fn a_failed_test_is_told_wherever_it_stands() {
        let lines =
            ["ok", "failures:", "", "---- a::b stdout ----", "why", "failures:", "    a::b", "ok"];
        assert_eq!(failing_tests(&lines), ["---- a::b stdout ----", "why"]);
    }

    #[test]
    fn every_step_is_a_line_that_can_be_typed() {
        for step in STEPS {
            let words: Vec<&str> = step.line.split(' ').collect();
            assert!(words.iter().all(|word| !word.is_empty()), "{}", step.line);
            if words[0] == "xtask" {
                let known = crate::SUBCOMMANDS.iter().any(|s| s.name == words[1]);
                assert!(known, "{} is no task", words[1]);
            }
        }
    }
}
