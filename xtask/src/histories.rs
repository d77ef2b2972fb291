//! Runs the linearizability check of hot keys longer than the tests do.

use crate::outcome::{Failure, Outcome, passed};
use crate::process;

pub const HELP: &str = "\
Check histories of hot keys under moves for linearizability, with as many operations as wanted.

usage: cargo xtask histories [--operations N] [--seed S]

  --operations N   operations of each kind of run (default 1000000)
  --seed S         first seed (default 1)

The same tests as `cargo test -p laneway-server --test hot histories`, which check fewer; built
for release. Also checks that the checker finds a planted bug.";

/// What is checked by default: about half a minute.
const OPERATIONS: u64 = 1_000_000;

pub fn main(mut parser: lexopt::Parser) -> Outcome {
    use lexopt::prelude::*;
    let (mut operations, mut seed) = (OPERATIONS, 1_u64);
    while let Some(argument) = parser.next()? {
        match argument {
            Long("operations") => operations = parser.value()?.parse()?,
            Long("seed") => seed = parser.value()?.parse()?,
            _ => return Err(Failure::Usage(argument.unexpected().to_string())),
        }
    }
    if operations < 1_000 {
        return Err(Failure::Usage(format!("--operations {operations}: must be at least 1000")));
    }
    let mut test = process::cargo();
    test.args(["test", "--release", "--quiet", "-p", "laneway-server", "--test", "hot"]);
    test.args(["--", "histor", "owner_that_does_not_look"]);
    test.env("LANEWAY_HISTORY_OPERATIONS", operations.to_string());
    test.env("LANEWAY_HISTORY_SEED", seed.to_string());
    process::run(&mut test)?;
    passed(format!("2 x {operations} operations from seed {seed} on are linearizable"))
}
