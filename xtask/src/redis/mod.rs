//! Runs clients of Redis' against Laneway, and Valkey beside it.
//!
//! redis-py is pinned (tests-external/redis), fetched by pip once and kept below the target folder.
//! The random commands are drawn by a script that has no need of it.

mod clients;
mod suite;

use crate::outcome::{Failure, Outcome, SKIPPED_PREFIX, passed, skipped};
use crate::peers;
use crate::process;
use crate::python;
use crate::server::Executable;
use std::path::{Path, PathBuf};
use std::process::Command;

pub const HELP: &str = "\
Run redis-py, by a script and by its own tests, against a freshly started Laneway; then send random
commands to it and to Valkey, whose replies must agree.

usage: cargo xtask redis [--server PROGRAM]
       cargo xtask redis --clients [--only TEXT] [--server PROGRAM]

  --clients          run the other clients instead, each by its script in
                     tests-external/redis/clients
  --only TEXT        only clients whose name contains TEXT
  --server PROGRAM   test this executable instead of a release build of Laneway

tests-external/redis/suite.txt tells which of redis-py's tests must pass, and
tests-external/redis/differential.py which replies may differ from Valkey's.

Fetches redis-py from PyPI through pip the first time; Valkey is taken where `cargo xtask peers`
has unpacked it. What one of the two is missing for is left out, the rest runs, and the task ends as
skipped. A client whose tools (go, node, npm, libhiredis-dev, a JDK of 17 with Maven, what
`cargo xtask peers` unpacks) are not here, or which cannot be fetched, is left out by name; if all
are, the task is skipped.";

/// Random commands of one seed, and the seeds: a seed takes some four seconds.
const COMMANDS: &str = "20000";
const SEEDS: std::ops::Range<u32> = 1..4;

/// The suite has values of tens of megabytes.
const FLAGS: &[&str] = &["-m", "512", "-I", "64m"];

struct Options {
    clients: bool,
    only: String,
    server: Option<PathBuf>,
}

impl Options {
    fn read(mut parser: lexopt::Parser) -> Result<Options, Failure> {
        let mut options = Options { clients: false, only: String::new(), server: None };
        flags!(parser, {
            Long("clients") => options.clients = true,
            Long("only") => options.only = parser.value()?.string()?,
            Long("server") => options.server = Some(parser.value()?.into()),
        });
        if !options.only.is_empty() && !options.clients {
            return Err(Failure::Usage("--only: names clients, and needs --clients".into()));
        }
        Ok(options)
    }
}

pub fn main(parser: lexopt::Parser) -> Outcome {
    let options = Options::read(parser)?;
    let executable = Executable::named_or_laneway(options.server.as_deref())?;
    if options.clients { run_clients(&executable, &options.only) } else { run_python(&executable) }
}

fn run_clients(executable: &Executable, only: &str) -> Outcome {
    let server = executable.start("redis-clients", FLAGS)?;
    let (ran, left_out) = clients::run(&glue(), server.address().port(), only)?;
    server.stop()?;
    match (ran.is_empty(), left_out.is_empty()) {
        (true, true) => Err(Failure::Usage(format!("--only {only}: no client is called so"))),
        (true, false) => skipped(left_out.join("; ")),
        (false, _) => {
            left_out.iter().for_each(|why| println!("{SKIPPED_PREFIX}{why}"));
            passed(ran.join(", "))
        }
    }
}

fn run_python(executable: &Executable) -> Outcome {
    let environment = python::environment("venv-redis", &glue().join("requirements.txt"));
    let server = executable.start("redis", FLAGS)?;
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
    let text = process::said(command)?;
    print!("{text}");
    Ok(text)
}
