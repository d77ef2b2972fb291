//! The lane in the kernel and the way past its stack: their programs compiled by clang, taken by
//! this kernel's verifier, run on frames and in network namespaces that the tests make themselves.
//!
//! A crate's feature of its own, so the ordinary build and its tests need neither clang nor
//! privileges. What a machine lacks is said by the crate's probe, layer by layer; then this is
//! skipped, not passed.

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

const COMPILERS: [&str; 2] = ["clang-14", "clang"];
/// The loader, and the server that uses it, in the workspace: what lies below them is as it is
/// without this feature, and is neither checked nor built again.
const WITH_LANE: [&str; 3] = ["--workspace", "--features", "laneway-kernel/kernel,laneway/kernel"];
/// The programs and their loader.
const LOADER: [&str; 4] = ["-p", "laneway-kernel", "--features", "kernel"];
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
    let named = std::env::var_os("LANEWAY_CLANG").is_some();
    if !named && COMPILERS.iter().all(|name| process::find_program(name).is_none()) {
        return skipped("no clang here to compile BPF programs; `cargo xtask setup` installs it");
    }
    let mut clippy = process::cargo();
    clippy
        .args(["clippy", "--quiet", "--all-targets"])
        .args(WITH_LANE)
        .args(["--", "-D", "warnings"]);
    process::run(&mut clippy)?;
    let mut all_told = String::new();
    let server = [&WITH_LANE[..], &["--test", "kernel"]].concat();
    for tested in [&LOADER[..], &server[..]] {
        let mut tests = process::cargo();
        tests.args(["test", "--no-fail-fast"]).args(tested).args(["--", "--nocapture", &only]);
        tests.envs(longer.iter().map(|(name, count)| (name, count.to_string())));
        let (status, told) = process::capture(&mut tests)?;
        println!("{told}");
        if !status.success() {
            return failed("tests of the kernel lane failed");
        }
        all_told.push_str(&told);
    }
    let told = all_told;
    let mut lacks: Vec<&str> = told.lines().filter_map(|line| line.split(LACKS).nth(1)).collect();
    lacks.sort_unstable();
    lacks.dedup();
    match lacks.is_empty() {
        true => passed("programs verified, run on frames and between network namespaces"),
        false => skipped(lacks.join("; ")),
    }
}
