//! Runs the linearizability check of hot keys longer than the tests do.

use crate::features;
use crate::outcome::{Failure, Outcome, passed};
use crate::process;

pub const HELP: &str = "\
Check histories of hot keys under moves for linearizability, with as many operations as wanted.

usage: cargo xtask histories [--operations N] [--seed S] [--dev]

  --operations N   operations of each kind of run (default 1000000)
  --seed S         first seed (default 1)
  --dev            as `cargo test --workspace` builds them: slower, and every assertion is on

The same tests as `cargo test -p laneway-server --test hot histories`, which check fewer; built
for release unless --dev says otherwise. Also checks that the checker finds a planted bug.";

/// What is checked by default: about half a minute.
const OPERATIONS: u64 = 1_000_000;

pub fn main(mut parser: lexopt::Parser) -> Outcome {
    use lexopt::prelude::*;
    let (mut operations, mut seed, mut dev) = (OPERATIONS, 1_u64, false);
    while let Some(argument) = parser.next()? {
        match argument {
            Long("operations") => operations = parser.value()?.parse()?,
            Long("seed") => seed = parser.value()?.parse()?,
            Long("dev") => dev = true,
            _ => return Err(Failure::Usage(argument.unexpected().to_string())),
        }
    }
    if operations < 1_000 {
        return Err(Failure::Usage(format!("--operations {operations}: must be at least 1000")));
    }
    let mut test = process::cargo();
    // Features are those of all packages that are named: with the whole workspace they are those
    // of its tests, whose build serves here, too.
    let built: &[&str] = match dev {
        true => &["--workspace", "--features", features::tested()],
        false => &["--release", "-p", "laneway-server"],
    };
    test.args(["test", "--quiet"]).args(built).args(["--test", "hot"]);
    test.args(["--", "histor", "owner_that_does_not_look"]);
    test.env("LANEWAY_HISTORY_OPERATIONS", operations.to_string());
    test.env("LANEWAY_HISTORY_SEED", seed.to_string());
    process::run(&mut test)?;
    passed(format!("2 x {operations} operations from seed {seed} on are linearizable"))
}
