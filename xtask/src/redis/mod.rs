//! Runs clients of Redis' against Laneway, and Valkey beside it.
//!
//! redis-py is pinned (tests-external/redis), fetched by pip once and kept below the target folder.
//! The random commands are drawn by a script that has no need of it.

mod clients;
mod suite;

use crate::outcome::{Outcome, SKIPPED_PREFIX, passed, skipped};
use crate::{Executable, peers, process, python};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Random commands of one seed, and the seeds: a seed takes some four seconds.
const COMMANDS: &str = "20000";
const SEEDS: std::ops::Range<u32> = 1..4;

/// The suite has values of tens of megabytes.
const FLAGS: &[&str] = &["-m", "512", "-I", "64m"];

pub fn main(mut parser: lexopt::Parser) -> Outcome {
    let (mut clients, mut server) = (false, None);
    flags!(parser, {
        Long("clients") => clients = true,
        Long("server") => server = Some(PathBuf::from(parser.value()?)),
    });
    let executable = Executable::named_or_laneway(server.as_deref())?;
    if clients { run_clients(&executable) } else { run_python(&executable) }
}

fn run_clients(executable: &Executable) -> Outcome {
    let (glue, server) = (process::external("redis"), executable.start("redis-clients", FLAGS)?);
    let (ran, left_out) = clients::run(&glue, server.address().port())?;
    server.stop()?;
    if ran.is_empty() {
        return skipped(left_out.join("; "));
    }
    left_out.iter().for_each(|why| println!("{SKIPPED_PREFIX}{why}"));
    passed(ran.join(", "))
}

fn run_python(executable: &Executable) -> Outcome {
    let glue = process::external("redis");
    let environment = python::environment("venv-redis", &glue.join("requirements.txt"));
    let server = executable.start("redis", FLAGS)?;
    let port = server.address().port().to_string();
    let (mut told, mut missing) = (Vec::new(), Vec::new());
    match &environment {
        Err(why) => missing.push(format!("redis-py cannot be fetched from PyPI ({why})")),
        Ok(python) => {
            let told_by = script(Command::new(python).arg(glue.join("client.py")).arg(&port))?;
            told.push(told_by.trim().to_owned());
            told.push(suite::run(python, &glue, server.address().port())?);
        }
    }
    match peers::program("valkey-server") {
        None => missing.push("no Valkey to compare with: cargo xtask peers".to_owned()),
        Some(valkey) => {
            // It needs no package: any Python will do.
            let python = environment.as_deref().unwrap_or(Path::new("python3"));
            for seed in SEEDS {
                let mut compare = Command::new(python);
                compare.arg(glue.join("differential.py")).arg(&port).arg(&valkey);
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

/// Runs a script to its end, shows what it says, and returns it; fails if the script does.
fn script(command: &mut Command) -> Result<String, String> {
    let text = process::said(command)?;
    print!("{text}");
    Ok(text)
}
