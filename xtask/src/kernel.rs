//! The lane in the kernel and the way past its stack: their programs compiled by clang, taken by
//! this kernel's verifier, run on frames and in network namespaces that the tests make themselves.
//!
//! A feature of its own, so the ordinary build needs neither clang nor privileges. The crate's
//! probe says what a machine lacks, layer by layer; then this is skipped, not passed.

use crate::features;
use crate::outcome::{Failure, Outcome, failed, passed, skipped};
use crate::process;
use lexopt::ValueExt;

pub const HELP: &str = "\
Build the kernel lane's BPF programs, lint their loader, and test both.

usage: cargo xtask kernel [NAME] [--torn READS] [--fuzz FRAMES]

  NAME           only the tests whose name contains NAME
  --torn READS   only the hunts for torn reads, and their control, with so many reads each
                 (10000000 take some minutes)
  --fuzz FRAMES  only the comparison with the server's parser, on so many random frames

Needs clang (14 or newer), iproute2, Linux 6.6 with CONFIG_XDP_SOCKETS, and CAP_BPF,
CAP_NET_ADMIN, CAP_PERFMON, CAP_NET_RAW and CAP_SYS_ADMIN (for the tests' network namespaces):
root has them. Without them it says what is
missing and is skipped.";

/// Where the tests of the programs are, a file each.
const TESTS: &str = "crates/kernel/tests";
/// The test of the server over them.
const TEST_OF_SERVER: &str = "kernel";
/// How the crate's tests begin a line that says what this machine lacks.
const LACKS: &str = "SKIPPED: ";

pub fn main(mut parser: lexopt::Parser) -> Outcome {
    let mut only = String::new();
    let mut longer = Vec::new();
    while let Some(argument) = parser.next()? {
        match argument {
            lexopt::Arg::Value(name) => only = name.to_string_lossy().into_owned(),
            lexopt::Arg::Long("torn") => {
                longer.push(("LANEWAY_TORN_READS", parser.value()?.parse::<u64>()?));
                only = "torn".into();
            }
            lexopt::Arg::Long("fuzz") => {
                longer.push(("LANEWAY_FUZZ_FRAMES", parser.value()?.parse::<u64>()?));
                only = "parser".into();
            }
            _ => return Err(Failure::Usage(argument.unexpected().to_string())),
        }
    }
    if !features::has_clang() {
        return skipped("no clang here to compile BPF programs; `cargo xtask setup` installs it");
    }
    let set = ["--workspace", "--features", features::tested()];
    let mut clippy = process::cargo();
    clippy.args(["clippy", "--quiet", "--all-targets"]).args(set).args(["--", "-D", "warnings"]);
    process::run(&mut clippy)?;
    let mut tests = process::cargo();
    tests.args(["test", "--no-fail-fast"]).args(set);
    // The unit tests of the loader and the server run with all others: the set of features is the
    // same, so nothing is compiled for these alone.
    let mut names = process::named(&process::root().join(TESTS), ".rs")?;
    names.push(TEST_OF_SERVER.to_owned());
    tests.args(names.iter().flat_map(|name| ["--test", name.as_str()]));
    tests.args(["--", "--nocapture", &only]);
    tests.envs(longer.iter().map(|(name, count)| (name, count.to_string())));
    let (status, told) = process::capture(&mut tests)?;
    println!("{told}");
    if !status.success() {
        return failed("tests of the kernel lane failed");
    }
    let mut lacks: Vec<&str> = told.lines().filter_map(|line| line.split(LACKS).nth(1)).collect();
    lacks.sort_unstable();
    lacks.dedup();
    match lacks.is_empty() {
        true => passed("programs verified, run on frames and between network namespaces"),
        false => skipped(lacks.join("; ")),
    }
}
