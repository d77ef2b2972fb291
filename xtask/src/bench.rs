//! Runs a benchmark of bench/definitions in adjacent pairs; the runner itself is in crates/load.

use crate::outcome::{Outcome, failed};

pub const HELP: &str = "\
Run a benchmark in adjacent pairs and print ratio, bound, spread and verdict.

usage: cargo xtask bench ID --check [--pairs N]
       cargo xtask bench --list";

pub fn main(_parser: lexopt::Parser) -> Outcome {
    failed("crates/load has no pair runner yet")
}
