//! `laneway sim run`: the command. What an axis is and what its values may be is
//! [`crate::sweep`].

use crate::arguments::{text, whole};
use crate::report;
use crate::row::{self, Row};
use crate::study::{Effort, Study};
use crate::sweep::{self, Sweep};
use laneway_load::arguments::carry_out;
use lexopt::prelude::*;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

const HELP: &str = "\
Runs any point, or every combination of several values: p99, backlog and whether they are steady.

Usage: laneway sim run [--AXIS VALUE[,VALUE...]]... [--sweep FILE.toml] [--json|--csv]

  --sweep FILE           TOML: axis = value, or axis = [value, ...], names with underscores;
                         a flag that is given as well counts instead
  --json, --csv          a row a point with all columns, on standard output, instead of a table
  --out DIR              run.json, a row as each point ends, and run.csv; the same command goes on
                         where one that was broken off has stopped
  --schema               the JSON Schema of a row, on standard output
  --seed N, --threads N  the first seed (1); threads (as many as there are CPUs)

Axes, and the units of their values:
";

#[derive(Debug)]
struct Flags {
    sweep: Sweep,
    seed: u64,
    threads: usize,
    json: bool,
    csv: bool,
    out: Option<PathBuf>,
    schema: bool,
}

/// Runs with these arguments, `run` itself not among them.
pub fn main(args: impl Iterator<Item = OsString>) -> ExitCode {
    let help = format!("{HELP}{}", sweep::help());
    carry_out("sim run", &help, parse(args.collect()), |flags| run(&flags).map(|()| true))
}

fn parse(args: Vec<OsString>) -> Result<Option<Flags>, String> {
    let cpus = std::thread::available_parallelism().map_or(1, |count| count.get());
    let sweep = Sweep::default();
    let mut flags =
        Flags { sweep, seed: 1, threads: cpus, json: false, csv: false, out: None, schema: false };
    let mut file = None;
    let mut parser = lexopt::Parser::from_args(args);
    while let Some(arg) = parser.next().map_err(|error| error.to_string())? {
        match arg {
            Long("help") | Short('h') => return Ok(None),
            Long("schema") => flags.schema = true,
            Long("json") => flags.json = true,
            Long("csv") => flags.csv = true,
            Long("seed") => flags.seed = whole(&mut parser, "--seed", 0, 1 << 40)?,
            Long("threads") => flags.threads = whole(&mut parser, "--threads", 1, 1024)?,
            Long("out") => flags.out = Some(text(&mut parser, "--out")?.into()),
            Long("sweep") => file = Some(text(&mut parser, "--sweep")?),
            Long(name) if Sweep::knows(name) => {
                let name = name.to_owned();
                flags.sweep.set(&name, &text(&mut parser, &format!("--{name}"))?)?;
            }
            Long(name) => return Err(format!("--{name}: no such flag of run")),
            Short(name) => return Err(format!("-{name}: no such flag of run")),
            Value(word) => return Err(format!("{}: run takes flags only", word.to_string_lossy())),
        }
    }
    if let Some(path) = file {
        flags.sweep.read_file(&path)?;
    }
    flags.sweep.points()?;
    Ok(Some(flags))
}

fn run(flags: &Flags) -> Result<(), String> {
    if flags.schema {
        print!("{}", sweep::SCHEMA_TEXT);
        return Ok(());
    }
    let study = Study::new(Effort::Quick, flags.seed, flags.threads);
    let rows: Vec<Row> = flags.sweep.run(&study, flags.out.as_deref())?;
    match (flags.json, flags.csv) {
        (true, _) => print!("{}", report::json_lines(&rows)),
        (false, true) => print!("{}", row::csv(&rows)),
        (false, false) => print!("{}", row::table(&rows)),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Option<Flags>, String> {
        parse(line.split_whitespace().map(OsString::from).collect())
    }

    #[test]
    fn what_cannot_be_says_flag_value_and_limit() {
        for (line, words) in [
            ("--wurst 3", "--wurst: no such flag of run"),
            ("minos-fig2", "minos-fig2: run takes flags only"),
            ("--load 1.5", "--load 1.5: must be a number from"),
            ("--threads 0", "--threads 0: must be a whole number from 1 to 1024"),
            ("--sweep /no/such/file", "--sweep /no/such/file"),
            ("--design sho --workers 1", "--design sho: needs --workers 2 or more"),
        ] {
            let error = parsed(line).expect_err(line);
            assert!(error.contains(words), "{line}: {error}");
        }
    }

    #[test]
    fn every_axis_is_a_flag_and_in_the_help() {
        let flags = parsed("--design minos,lanes --load 0.5 --seed 3 --json").expect("fits");
        let flags = flags.expect("a run");
        assert_eq!((flags.seed, flags.json), (3, true));
        assert_eq!(flags.sweep.points().expect("few").len(), 2);
        assert!(parsed("--help").expect("help").is_none());
        assert!(sweep::help().lines().all(|line| line.starts_with("  --") && line.len() <= 100));
    }
}
