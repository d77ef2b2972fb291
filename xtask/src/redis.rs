//! A client of Redis' against Laneway, and Valkey beside it.
//!
//! redis-py is pinned (tests-external/redis), fetched by pip once and kept below the target folder.
//! The random commands are drawn by a script that has no need of it.

use crate::outcome::{Outcome, failed, passed, skipped};
use crate::peers;
use crate::process;
use crate::server::{self, Executable};
use std::path::{Path, PathBuf};
use std::process::Command;

pub const HELP: &str = "\
Run redis-py against a freshly started Laneway, then send random commands to it and to Valkey,
whose replies must be the same but for what tests-external/redis/differential.py argues.

usage: cargo xtask redis [--server PROGRAM]

  --server PROGRAM   test this executable instead of a release build of Laneway

Fetches redis-py from PyPI through pip the first time; Valkey is taken where `cargo xtask peers`
has unpacked it, and its part is left out, and said to be, where it has not.";

/// Random commands of one seed, and the seeds.
const COMMANDS: &str = "20000";
const SEEDS: std::ops::Range<u32> = 1..4;

pub fn main(parser: lexopt::Parser) -> Outcome {
    let named = server::flag(parser)?;
    let python = match environment() {
        Ok(python) => python,
        Err(why) => return skipped(format!("redis-py could not be fetched: {why}")),
    };
    let server = Executable::named_or_laneway(named.as_deref())?.start("redis", &[])?;
    let port = server.address().port().to_string();
    let mut client = Command::new(&python);
    let (status, text) = process::capture(client.arg(glue().join("client.py")).arg(&port))?;
    print!("{text}");
    if !status.success() {
        return failed(format!("redis-py's script ended with {}", process::told(status)));
    }
    let mut told = vec![text.trim().to_owned()];
    match peers::program("valkey-server") {
        None => told.push("no Valkey to compare with: cargo xtask peers".to_owned()),
        Some(valkey) => {
            for seed in SEEDS {
                let mut compare = Command::new(&python);
                compare.arg(glue().join("differential.py")).arg(&port).arg(&valkey);
                compare.args([seed.to_string().as_str(), COMMANDS]);
                let (status, text) = process::capture(&mut compare)?;
                print!("{text}");
                if !status.success() {
                    let ended = process::told(status);
                    return failed(format!("seed {seed} of differential.py ended with {ended}"));
                }
            }
            told.push(format!("{COMMANDS} commands of {} seeds as Valkey's", SEEDS.len()));
        }
    }
    server.stop()?;
    passed(told.join(", "))
}

fn glue() -> PathBuf {
    process::root().join("tests-external").join("redis")
}

/// A virtual environment with the pinned package; its Python.
fn environment() -> Result<PathBuf, String> {
    let dir = process::target_dir().join("venv-redis");
    let (python, wanted) = (dir.join("bin").join("python"), glue().join("requirements.txt"));
    let installed = dir.join("laneway-requirements.txt");
    let text = read(&wanted)?;
    if python.is_file() && read(&installed).is_ok_and(|have| have == text) {
        return Ok(python);
    }
    process::run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&dir))?;
    let mut pip = Command::new(&python);
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]);
    process::run(pip.args(["--only-binary", ":all:", "-r"]).arg(&wanted))?;
    std::fs::write(&installed, text).map_err(|e| format!("{}: {e}", installed.display()))?;
    Ok(python)
}

fn read(path: &Path) -> Result<String, String> {
    std::fs::read_to_string(path).map_err(|e| format!("cannot read {}: {e}", path.display()))
}
