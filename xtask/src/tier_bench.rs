//! The comparison of durable stores, `bench/tier`, and the probe of io_uring, `bench/io-probe`:
//! built, tested and linted here, because they are packages of their own outside the workspace.
//! What they compare with is nobody else's dependency.

use crate::{Failure, Outcome, flags, passed, process, setup};
use std::process::Command;

/// How definitions call it.
pub const PROGRAM: &str = "{release}/tier-ycsb";
const MANIFEST: &str = "bench/tier/Cargo.toml";
const MANIFESTS: [&str; 2] = [MANIFEST, "bench/io-probe/Cargo.toml"];

pub fn main(parser: lexopt::Parser) -> Outcome {
    flags::none(parser)?;
    for manifest in MANIFESTS {
        process::run(cargo("fmt", manifest).arg("--check"))?;
        let clippy = ["--quiet", "--no-deps", "--all-targets", "--", "-D", "warnings"];
        process::run(cargo("clippy", manifest).args(clippy))?;
        process::run(cargo("test", manifest).arg("--quiet"))?;
    }
    passed("the programs outside the workspace are formatted, clean and tested")
}

/// Builds it for release, and installs RocksDB.
pub fn build() -> Result<(), Failure> {
    setup::provide("librocksdb-dev")?;
    Ok(process::run(cargo("build", MANIFEST).args(["--quiet", "--release"]))?)
}

/// `cargo TASK` of such a package, into our own target folder.
fn cargo(task: &str, manifest: &str) -> Command {
    let mut command = process::cargo();
    command.env("CARGO_TARGET_DIR", process::target_dir());
    command.args([task, "--manifest-path", manifest]);
    command
}
