//! Which Cargo features are built for what. All tests are built with one set, so that no crate is
//! compiled for several; what a user builds without a flag has none, and is asked here what it says
//! of those that it has not.

use crate::{Executable, Guarded, Outcome, failed, flags, passed, process};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

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

/// What is asked of it, as `lines.toml` has it.
#[derive(Deserialize)]
struct Line {
    typed: String,
    status: i32,
    says: Vec<String>,
}

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
    let text = include_str!("features/lines.toml");
    let lines: BTreeMap<String, Vec<Line>> = toml::from_str(text).expect("lines");
    for Line { typed, status, says } in &lines["line"] {
        let (ended, said) = ask(binary.path(), typed, &log)?;
        if ended != Some(*status) {
            return failed(format!("laneway {typed}: status {ended:?}, not {status}: {said}"));
        }
        if let Some(words) = says.iter().find(|words| !said.contains(words.as_str())) {
            return failed(format!("laneway {typed}: does not say {words:?}: {said}"));
        }
    }
    passed(format!("{} lines are answered or refused as they should be", lines["line"].len()))
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
