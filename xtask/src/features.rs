//! Which Cargo features are built for what. All tests are built with one set, so that no crate is
//! compiled for several; what a user builds without a flag has none, and is asked here what it says
//! of those that it has not.

use crate::flags;
use crate::outcome::{Outcome, failed, passed};
use crate::process::{self, Guarded};
use crate::server::Executable;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

pub const HELP: &str = "\
Ask the release binary without Cargo features what it says of those that it has not.

usage: cargo xtask features

Each flag and command that needs a feature must be refused with the feature's name and the line that
builds it, and with the status that its kind of error has.";

/// Everything, for which clang is needed; and of the simulation its meter of work and its bugs, of
/// which none is there until it is planted.
const ALL: &str = "laneway/full,laneway-client/rdma,laneway-vopr/meter,laneway-vopr/planted";
/// All that needs no clang.
const WITHOUT_CLANG: &str =
    "laneway/research,laneway-client/rdma,laneway-vopr/meter,laneway-vopr/planted";
/// What a release has: what needs nothing to build, and nothing to run until it is asked for.
pub const RELEASED: &str = "rdma";
const COMPILERS: [&str; 2] = ["clang-14", "clang"];
/// A binary that takes longer serves, though it should not.
const PATIENCE: Duration = Duration::from_secs(60);

/// What is typed, the exit status, and words of what is said.
const ASKED: &[(&str, i32, &[&str])] = &[
    ("--version -v", 0, &["features: none"]),
    (
        "serve -p -1 -l 127.0.0.1 -U -1 --kernel-lane lo",
        71,
        &["--kernel-lane: built without the feature `kernel`", "--features kernel"],
    ),
    // What else they need is not asked for first.
    (
        "serve --kernel-lane lo",
        71,
        &["--kernel-lane: built without the feature `kernel`", "--features kernel"],
    ),
    (
        "serve -p -1 -l 127.0.0.1 -U -1 --steer",
        71,
        &["--steer: built without the feature `kernel`", "--features kernel"],
    ),
    (
        "serve --af-xdp lo",
        71,
        &["--af-xdp: built without the feature `af-xdp`", "--features af-xdp"],
    ),
    (
        "serve --af-xdp-busy-poll",
        71,
        &["--af-xdp-busy-poll: built without the feature `af-xdp`", "--features af-xdp"],
    ),
    (
        "doctor kernel",
        1,
        &[
            "feature kernel: not built in; cargo build --release --features kernel",
            "feature af-xdp: not built in; cargo build --release --features af-xdp",
            "feature rdma: not built in; cargo build --release --features rdma",
            "feature research: not built in; cargo build --release --features research",
        ],
    ),
    (
        "serve -p -1 -l 127.0.0.1 --rdma rxe0",
        71,
        &["--rdma: built without the feature `rdma`", "--features rdma"],
    ),
    (
        "serve --print-config --kernel-lane lo",
        71,
        &["--kernel-lane: built without the feature `kernel`", "--features kernel"],
    ),
    ("bench verbs", 2, &["built without the feature `research`", "--features research"]),
    ("sim minos-fig2", 2, &["built without the feature `research`", "--features research"]),
    ("sim all", 2, &["built without the feature `research`", "--features research"]),
    ("sim --help", 0, &["plan", "scale", "--features research"]),
];

/// The set that all tests are built with.
pub fn tested() -> &'static str {
    if has_clang() { ALL } else { WITHOUT_CLANG }
}

/// Whether BPF programs can be compiled.
pub fn has_clang() -> bool {
    let is_named = std::env::var_os("LANEWAY_CLANG").is_some();
    is_named || COMPILERS.iter().any(|name| process::find_program(name).is_some())
}

pub fn main(parser: lexopt::Parser) -> Outcome {
    flags::none(parser)?;
    let binary = Executable::laneway()?;
    let log = process::scratch_dir("features")?.join("said.log");
    for (line, status, words) in ASKED {
        let (ended, said) = ask(binary.path(), line, &log)?;
        if ended != Some(*status) {
            return failed(format!("laneway {line}: status {ended:?}, not {status}: {said}"));
        }
        if let Some(word) = words.iter().find(|word| !said.contains(**word)) {
            return failed(format!("laneway {line}: does not say {word:?}: {said}"));
        }
    }
    passed(format!("{} lines are answered or refused as they should be", ASKED.len()))
}

/// How it ended, if it did, and all that it said.
fn ask(binary: &Path, line: &str, log: &Path) -> Result<(Option<i32>, String), String> {
    let mut command = Command::new(binary);
    command.args(line.split(' '));
    let mut child = Guarded::start(&mut command, log)?;
    let ended = child.wait(PATIENCE);
    drop(child);
    let said = process::read(log)?;
    Ok((ended.and_then(|status| status.code()), said))
}
