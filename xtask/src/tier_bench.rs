//! The comparison of durable stores, `bench/tier`: built, tested and linted here, because it is a
//! package of its own outside the workspace. Its rivals are nobody else's dependencies.

use crate::outcome::{Failure, Outcome, passed};
use crate::process;
use crate::setup;
use std::process::Command;

pub const HELP: &str = "\
Check the program that compares durable stores: format, clippy, tests.

usage: cargo xtask tier-bench

It is a package of its own (bench/tier), so `cargo test --workspace` does not know it. To compare,
run `cargo xtask bench tier-synced`, tier-unsynced, tier-split, tier-boundary or
tier-latency.";

/// How definitions call it.
pub const PROGRAM: &str = "{release}/tier-ycsb";
const MANIFEST: &str = "bench/tier/Cargo.toml";

pub fn main(mut parser: lexopt::Parser) -> Outcome {
    if let Some(argument) = parser.next()? {
        return Err(Failure::Usage(argument.unexpected().to_string()));
    }
    process::run(cargo("fmt").arg("--check"))?;
    process::run(cargo("clippy").args(["--quiet", "--no-deps", "--all-targets"]).args(DENY))?;
    process::run(cargo("test").arg("--quiet"))?;
    passed("the program that compares durable stores is formatted, clean and tested")
}

const DENY: [&str; 3] = ["--", "-D", "warnings"];

/// Builds it for release, and installs RocksDB.
pub fn build() -> Result<(), Failure> {
    setup::provide_rocksdb()?;
    Ok(process::run(cargo("build").args(["--quiet", "--release"]))?)
}

/// `cargo TASK` of that package, into our own target folder.
fn cargo(task: &str) -> Command {
    let mut command = process::cargo();
    command.env("CARGO_TARGET_DIR", process::target_dir());
    command.args([task, "--manifest-path", MANIFEST]);
    command
}
