//! Clients of Redis' against Laneway, and Valkey beside it.
//!
//! redis-py is pinned (tests-external/redis), fetched by pip once and kept below the target folder.
//! The random commands are drawn by a script that has no need of it.

mod suite;

use crate::outcome::{Outcome, passed, skipped};
use crate::peers;
use crate::process;
use crate::python;
use crate::server::{self, Executable};
use std::path::{Path, PathBuf};
use std::process::Command;

pub const HELP: &str = "\
Run redis-py, by a script and by its own tests, against a freshly started Laneway; then send random
commands to it and to Valkey, whose replies must agree.

usage: cargo xtask redis [--server PROGRAM]

  --server PROGRAM   test this executable instead of a release build of Laneway

tests-external/redis/suite.txt tells which of redis-py's tests must pass, and
tests-external/redis/differential.py which replies may differ from Valkey's.

Fetches redis-py from PyPI through pip the first time; Valkey is taken where `cargo xtask peers`
has unpacked it. What one of the two is missing for is left out, the rest runs, and the task ends as
skipped.";

/// Random commands of one seed, and the seeds: a seed takes some four seconds.
const COMMANDS: &str = "20000";
const SEEDS: std::ops::Range<u32> = 1..4;

/// The suite has values of tens of megabytes.
const FLAGS: &[&str] = &["-m", "512", "-I", "64m"];

pub fn main(parser: lexopt::Parser) -> Outcome {
    let named = server::flag(parser)?;
    let environment = python::environment("venv-redis", &glue().join("requirements.txt"));
    let server = Executable::named_or_laneway(named.as_deref())?.start("redis", FLAGS)?;
    let port = server.address().port().to_string();
    let (mut told, mut missing) = (Vec::new(), Vec::new());
    match &environment {
        Err(why) => missing.push(format!("redis-py cannot be fetched from PyPI ({why})")),
        Ok(python) => {
            let told_by = script(Command::new(python).arg(glue().join("client.py")).arg(&port))?;
            told.push(told_by.trim().to_owned());
            told.push(suite::run(python, &glue(), server.address().port())?);
        }
    }
    match peers::program("valkey-server") {
        None => missing.push("no Valkey to compare with: cargo xtask peers".to_owned()),
        Some(valkey) => {
            // It needs no package: any Python will do.
            let python = environment.as_deref().unwrap_or(Path::new("python3"));
            for seed in SEEDS {
                let mut compare = Command::new(python);
                compare.arg(glue().join("differential.py")).arg(&port).arg(&valkey);
                script(compare.args([seed.to_string().as_str(), COMMANDS]))?;
            }
            told.push(format!("{COMMANDS} commands of {} seeds as Valkey's", SEEDS.len()));
        }
    }
    server.stop()?;
    let told = told.join(", ");
    match missing.is_empty() {
        true => passed(told),
        false => skipped(format!("{}; {told}", missing.join("; "))),
    }
}

fn glue() -> PathBuf {
    process::root().join("tests-external").join("redis")
}

/// Runs a script to its end, shows what it says, and returns it; fails if the script does.
fn script(command: &mut Command) -> Result<String, String> {
    let (status, text) = process::capture(command)?;
    print!("{text}");
    match status.success() {
        true => Ok(text),
        false => Err(format!("`{}` ended with {}", process::typed(command), process::told(status))),
    }
}
