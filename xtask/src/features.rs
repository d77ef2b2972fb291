//! Which Cargo features are built for what. All tests are built with one set, so that no crate is
//! compiled for several; what a user builds without a flag has none, and is asked here what it says
//! of those that it has not.

use crate::{Executable, Guarded, Outcome, flags, passed, process};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

pub const HELP: &str = "\
Ask the release binary without Cargo features what it says of those that it has not.

usage: cargo xtask features

Each flag and command that needs a feature must be refused with the feature's name and the line that
builds it, and with the status that its kind of error has.";

/// Everything, for which clang is needed; and of the simulation its meter of work and its bugs, of
/// which none is there until it is planted. `full` has the kernel's programs in it; they are named
/// for who tests that crate alone.
const ALL: &str = "laneway/full,laneway-kernel/kernel,laneway-client/rdma,laneway-vopr/meter,\
                   laneway-vopr/planted";
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
        "doctor kernel",
        1,
        &[
            "feature kernel: not built in; cargo build --release --features kernel",
            "feature af-xdp: not built in; cargo build --release --features af-xdp",
            "feature rdma: not built in; cargo build --release --features rdma",
            "feature research: not built in; cargo build --release --features research",
        ],
    ),
    ("bench verbs", 2, &["built without the feature `research`", "--features research"]),
    ("sim minos-fig2", 2, &["built without the feature `research`", "--features research"]),
    ("sim all", 2, &["built without the feature `research`", "--features research"]),
    ("sim --help", 0, &["plan", "scale", "--features research"]),
];
/// What is typed, and which flag of it is refused for want of which feature.
const REFUSED: &[(&str, &str, &str)] = &[
    ("serve -p -1 -l 127.0.0.1 -U -1 --kernel-lane lo", "--kernel-lane", "kernel"),
    // What else they need is not asked for first.
    ("serve --kernel-lane lo", "--kernel-lane", "kernel"),
    ("serve -p -1 -l 127.0.0.1 -U -1 --steer", "--steer", "kernel"),
    ("serve --af-xdp lo", "--af-xdp", "af-xdp"),
    ("serve --af-xdp-busy-poll", "--af-xdp-busy-poll", "af-xdp"),
    ("serve -p -1 -l 127.0.0.1 --rdma rxe0", "--rdma", "rdma"),
    ("serve --print-config --kernel-lane lo", "--kernel-lane", "kernel"),
];
const REFUSED_STATUS: i32 = 71;

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
    let expect = |line: &str, status: i32, words: &[&str]| -> Result<(), String> {
        let (ended, said) = ask(binary.path(), line, &log)?;
        if ended != Some(status) {
            return Err(format!("laneway {line}: status {ended:?}, not {status}: {said}"));
        }
        let unsaid = words.iter().find(|word| !said.contains(**word));
        unsaid.map_or(Ok(()), |word| Err(format!("laneway {line}: does not say {word:?}: {said}")))
    };
    ASKED.iter().try_for_each(|(line, status, words)| expect(line, *status, words))?;
    for (line, flag, feature) in REFUSED {
        let words = [
            format!("{flag}: built without the feature `{feature}`"),
            format!("--features {feature}"),
        ];
        expect(line, REFUSED_STATUS, &[words[0].as_str(), words[1].as_str()])?;
    }
    let lines = ASKED.len() + REFUSED.len();
    passed(format!("{lines} lines are answered or refused as they should be"))
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
