//! Runs a benchmark of bench/definitions in adjacent pairs; the runner itself is in crates/load.

use crate::outcome::{Failure, Outcome, passed};
use crate::process;
use crate::readme;
use laneway_load::pairs;
use std::process::ExitCode;

pub const HELP: &str = "\
Run a benchmark in adjacent pairs; print ratio, bound, spread and verdict.

usage: cargo xtask bench ID [--check] [--pairs N] [--no-record]
       cargo xtask bench --list

  ID           one of those that --list shows; their definitions are bench/definitions/ID.toml
  --check      exit with 1 if a bound is missed (default: only say so)
  --pairs N    rounds, where not as many as the definition says
  --no-record  do not append the result to bench/record
  --list       the benchmarks and what each is about

Builds the release binary first. Takes minutes, wants an otherwise idle machine, and is no part
of CI.";

pub fn main(mut parser: lexopt::Parser) -> Outcome {
    use lexopt::prelude::*;
    let mut options = pairs::Options::new(&process::root());
    options.laneway = process::target_dir().join("release").join("laneway");
    options.check = false;
    let (mut id, mut list) = (None, false);
    while let Some(argument) = parser.next()? {
        match argument {
            Long("check") => options.check = true,
            Long("pairs") => options.pairs = Some(parser.value()?.parse()?),
            Long("no-record") => options.record = false,
            Long("list") => list = true,
            Value(name) if id.is_none() => id = Some(name.string()?),
            _ => return Err(Failure::Usage(argument.unexpected().to_string())),
        }
    }
    let known = pairs::list(&options.root)?;
    if list {
        for (id, about) in &known {
            println!("{id:<20} {about}");
        }
        return passed("");
    }
    let Some(id) = id.filter(|id| known.iter().any(|(name, _)| name == id)) else {
        return Err(Failure::Usage(
            "name a benchmark; `cargo xtask bench --list` shows them".into(),
        ));
    };
    if options.pairs == Some(0) {
        return Err(Failure::Usage("--pairs 0: must be at least 1".into()));
    }
    let features = pairs::definition::read(&options.root, &id)?.features;
    let mut build = process::cargo();
    build.args(["build", "--release", "--quiet", "-p", "laneway", "--features", &features]);
    process::run(&mut build)?;
    if pairs::needs_examples(&options.root, &id)? {
        let example =
            ["build", "--release", "--quiet", "-p", "laneway-store", "--example", "index"];
        process::run(process::cargo().args(example))?;
    }
    // The runner has told its figures and its verdict already.
    let ended = pairs::main(&id, &options);
    if options.record && readme::update()? {
        println!("README's table is new: commit it with the record");
    }
    match ended == ExitCode::SUCCESS {
        true => passed(""),
        false => Err(Failure::Told),
    }
}
