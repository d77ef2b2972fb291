//! `cargo xtask test`: every layer of tests, two steps beside each other, and a table of what came
//! out.
//!
//! A step is a command line that one can also type; its output goes to a file, of which the end is
//! shown if it fails. All that is printed is printed here, by one thread, whole: what a step says
//! does not mix with what another says. Many steps have one thread, or wait for a client; so two
//! of them share two CPUs, and what cannot bear that says so in the list.
//! Nobody here begins a process group of its own: Ctrl-C reaches the steps and what they started.
//! It knows nothing of what a step checks; only its status and its last line.

mod changed;
mod list;
mod order;
mod report;

use crate::outcome::{EXIT_SKIPPED, Failure, Outcome, passed};
use crate::{Guarded, features, process};
use changed::Change;
use list::{STEPS, Step};
use order::State;
use report::{Row, failing_tests, seconds, skips, summary, tested, verdict};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

/// No step may take longer. The longest compiles everything first: nine minutes on two CPUs of
/// which others take half.
const STEP_PATIENCE: Duration = Duration::from_secs(40 * 60);
/// How often a running step says that it is still running.
const HEARTBEAT: Duration = Duration::from_secs(30);
const LINES_SHOWN_MAX: usize = 60;
/// Steps that run beside each other unless `--jobs` says otherwise: each may build, which takes
/// all CPUs, and a gigabyte for each of them.
const JOBS_MAX: usize = 2;

impl Step {
    /// The whole line, environment and all, where this is typed after `cargo`.
    fn typed(&self, line: &str) -> String {
        let settings = self.environment.iter().map(|(name, value)| format!("{name}='{value}' "));
        format!("{}cargo {line}", settings.collect::<String>())
    }

    /// What its lines begin with: its place in the list and its name.
    fn head(&self, at: usize) -> String {
        format!("[{:>2}/{}] {:<14}", at + 1, STEPS.len(), self.name)
    }
}

/// What is typed after `cargo` for a step, or why it is left out.
type Line = Result<String, String>;

pub fn main(mut parser: lexopt::Parser) -> Outcome {
    let cpus = std::thread::available_parallelism().map_or(1, |number| number.get());
    let (mut quick, mut changed, mut base) = (false, false, None);
    let mut jobs = cpus.min(JOBS_MAX);
    flags!(parser, {
        Long("quick") => quick = true,
        Long("changed") => changed = true,
        Long("jobs") => jobs = parser.value()?.parse()?,
        Value(commit) if base.is_none() => base = Some(commit.string()?),
    });
    if jobs == 0 {
        return Err(Failure::Usage("--jobs 0: must be at least 1, or nothing would run".into()));
    }
    if let Some(commit) = base.as_ref().filter(|_| !quick && !changed) {
        let why = "a commit goes with --changed or --quick; without them all steps run";
        return Err(Failure::Usage(format!("{commit}: {why}")));
    }
    let began = Instant::now();
    let change = match quick || changed {
        true => Some(Change::since(base.as_deref(), changed)?),
        false => None,
    };
    let rows = run_all(jobs, &plan(quick, change))?;
    summary(&rows, began.elapsed());
    println!("{}", verdict(&rows));
    match rows.iter().any(|row| row.result == "failed") {
        false => passed(""),
        true => Err(Failure::Told),
    }
}

/// What is typed for a step where nothing is left out: every crate is built with the one set of
/// features that all tests are built with.
fn of_whole(step: &Step) -> String {
    let whole = format!("--workspace --features {}", features::tested());
    step.line.replace("--workspace", &whole)
}

/// A line for each step.
fn plan(quick: bool, change: Option<Change>) -> Vec<Line> {
    // Whoever has changed nothing wants to know how all of it is.
    let change = change.filter(|change| !(quick && change.is_empty()));
    let line = |step: &Step| match &change {
        _ if quick && !step.quick => Err("--quick leaves it out".to_owned()),
        None => Ok(of_whole(step)),
        Some(change) => change.line(step).ok_or_else(|| "nothing that it tests changed".to_owned()),
    };
    STEPS.iter().map(line).collect()
}

/// Runs the steps of a plan; a row of each, in their order.
fn run_all(jobs: usize, plan: &[Line]) -> Result<Vec<Row>, String> {
    let left_out = |(step, line): (&'static Step, &Line)| skipped(step, line);
    let mut rows: Vec<Option<Row>> = STEPS.iter().zip(plan).map(left_out).collect();
    let state = |row: &Option<Row>| if row.is_some() { State::Ended } else { State::Waiting };
    let mut states: Vec<State> = rows.iter().map(state).collect();
    let mut running: Vec<Running> = Vec::new();
    while states.contains(&State::Waiting) || !running.is_empty() {
        while let Some(at) = order::next(&STEPS, &states, jobs) {
            let line = plan[at].clone()?;
            println!("{} {}", STEPS[at].head(at), STEPS[at].typed(&line));
            running.push(Running::start(at, line)?);
            states[at] = State::Running;
        }
        assert!(!running.is_empty(), "a step waits for one that never ends: {states:?}");
        std::thread::sleep(process::POLL_INTERVAL);
        let mut index = 0;
        while index < running.len() {
            match running[index].status() {
                None => index += 1,
                Some(status) => {
                    let over = running.swap_remove(index);
                    let (at, row) = (over.at, over.row(status));
                    let took = seconds(row.took);
                    println!("{} {} in {took} {}", STEPS[at].head(at), row.result, row.note);
                    states[at] = State::Ended;
                    rows[at] = Some(row);
                }
            }
        }
    }
    Ok(rows.into_iter().flatten().collect())
}

/// The row of a step that is left out.
fn skipped(step: &'static Step, line: &Line) -> Option<Row> {
    let note = line.clone().err()?;
    let (took, skips) = (Duration::ZERO, Vec::new());
    Some(Row { name: &step.name, result: "skipped", took, note, skips })
}

/// A step that runs; ended with all that it started when this is dropped.
struct Running {
    at: usize,
    /// What is typed after `cargo`.
    line: String,
    child: Guarded,
    log: PathBuf,
    began: Instant,
    beat: Instant,
}

impl Running {
    fn start(at: usize, line: String) -> Result<Running, String> {
        let step = &STEPS[at];
        let name = format!("step-{}.log", step.name.replace(' ', "-"));
        let log = process::scratch_dir("logs")?.join(name);
        let child = Guarded::start(&mut command(step, &line)?, &log)?;
        let began = Instant::now();
        Ok(Running { at, line, child, log, began, beat: began + HEARTBEAT })
    }

    /// How it ended, if it has: inside, nothing if it takes too long. Says now and then that it
    /// still runs.
    fn status(&mut self) -> Option<Option<ExitStatus>> {
        if let Some(status) = self.child.ended() {
            return Some(Some(status));
        }
        if STEP_PATIENCE < self.began.elapsed() {
            return Some(None);
        }
        if self.beat < Instant::now() {
            self.beat += HEARTBEAT;
            let (name, so_far) = (&STEPS[self.at].name, seconds(self.began.elapsed()));
            println!("        {name}: {so_far} {}", last_line(&self.log));
        }
        None
    }

    /// What it came to. Tells a failure at once.
    fn row(self, status: Option<ExitStatus>) -> Row {
        let Running { at, line, child, log, began, .. } = self;
        let (step, took) = (&STEPS[at], began.elapsed());
        let typed = step.typed(&line);
        drop(child);
        let text = std::fs::read_to_string(&log).unwrap_or_default();
        let result = match status.map(|status| (status.success(), status.code())) {
            Some((true, _)) => "passed",
            Some((false, Some(code))) if code == i32::from(EXIT_SKIPPED) => "skipped",
            _ => "failed",
        };
        let note = match result {
            "failed" => {
                explain(&step.name, &typed, &log, &text, status.is_none());
                format!("again with: {typed}")
            }
            // The last line of a task of ours is its verdict; that of another program may be
            // anything.
            _ if line.starts_with("xtask ") => last_line(&log),
            _ => tested(&text).unwrap_or_default(),
        };
        // A step that is skipped as a whole says so itself.
        let skips = if result == "skipped" { Vec::new() } else { skips(&text) };
        Row { name: &step.name, result, took, note, skips }
    }
}

fn command(step: &Step, line: &str) -> Result<Command, String> {
    let mut words = line.split(' ').peekable();
    let mut command = match words.next_if_eq(&"xtask") {
        // Ourselves and not `cargo xtask`: no second build of what is running.
        Some(_) => Command::new(std::env::current_exe().map_err(|e| e.to_string())?),
        None => process::cargo(),
    };
    command.args(words).current_dir(process::root()).envs(&step.environment);
    // The output goes to a file: no colours, which cargo and rustfmt ask different things about.
    command.env("CARGO_TERM_COLOR", "never").env("TERM", "dumb");
    Ok(command)
}

fn explain(name: &str, typed: &str, log: &Path, text: &str, late: bool) {
    let path = log.strip_prefix(process::root()).unwrap_or(log);
    println!("        ---- the end of {}", path.display());
    let failing = failing_tests(&text.lines().collect::<Vec<_>>());
    // The end of the output says nothing more where the failed tests have been told one by one.
    let shown = match failing.is_empty() {
        true => process::tail(text, LINES_SHOWN_MAX),
        false => failing.iter().map(String::as_str).collect(),
    };
    shown.iter().for_each(|line| println!("        | {line}"));
    if late {
        println!("        | not finished after {} s", STEP_PATIENCE.as_secs());
    }
    println!("        ---- {name} failed; again with: {typed}");
}

fn last_line(log: &Path) -> String {
    const CHARACTERS_MAX: usize = 100;
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let line = text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default();
    line.trim().chars().take(CHARACTERS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_flag_all_steps_are_run_and_quick_runs_what_needs_no_other_program() {
        let run = |quick| -> Vec<&str> {
            let lines = plan(quick, None);
            let run = STEPS.iter().zip(&lines).filter(|(_, line)| line.is_ok());
            run.map(|(step, _)| step.name.as_str()).collect()
        };
        assert_eq!(run(false).len(), STEPS.len());
        let quick = run(true);
        assert!(quick.contains(&"tests") && !quick.contains(&"setup"), "{quick:?}");
        let row = skipped(&STEPS[0], &plan(true, None)[0]).expect("setup is left out");
        assert_eq!((row.result, row.note.as_str()), ("skipped", "--quick leaves it out"));
    }
}
