//! Clients of memcached's binary protocol, python-binary-memcached and pylibmc, by a script of ours
//! (tests-external/binary), which verifies what it gets back: once as they come, and once against a
//! server with users, where they say who they are by SASL.

use crate::outcome::{Failure, Outcome, passed};
use crate::process;
use crate::python;
use crate::server::{self, Executable};
use std::path::{Path, PathBuf};
use std::process::Command;

pub const HELP: &str = "\
Run clients of the binary protocol against a freshly started Laneway, without and with users.

usage: cargo xtask binary-clients [--server PROGRAM]

  --server PROGRAM   test this executable instead of Laneway, such as memcached (without users)

Fetches python-binary-memcached and pylibmc from PyPI through pip the first time.";

const USER: &str = "app";
const PASSWORD: &str = "a long one";

pub fn main(parser: lexopt::Parser) -> Outcome {
    let server = server::flag(parser)?;
    let python = python::environment("venv-binary", &glue().join("requirements.txt"))?;
    let subject = Executable::named_or_laneway(server.as_deref())?;
    let mut count = clients(&python, &subject, &[], &[])?;
    if !subject.is_memcached() {
        let users = process::scratch_dir("binary")?.join("users");
        std::fs::write(&users, format!("{USER}:{PASSWORD}\n")).map_err(|e| e.to_string())?;
        let users = users.to_string_lossy();
        count += clients(&python, &subject, &["-S", "-Y", &users], &[USER, PASSWORD])?;
    }
    passed(format!("{count} scripts end well"))
}

/// Runs the script against a server of its own with these flags; how many clients it ends well for.
fn clients(
    python: &Path,
    subject: &Executable,
    flags: &[&str],
    user: &[&str],
) -> Result<usize, Failure> {
    let server = subject.start("binary-clients", flags)?;
    let port = server.address().port().to_string();
    let mut command = Command::new(python);
    let (status, text) =
        process::capture(command.arg(glue().join("clients.py")).arg(port).args(user))?;
    print!("{text}");
    server.stop()?;
    match status.success() {
        true => Ok(text.lines().filter(|line| line.ends_with(": passed")).count()),
        false => {
            let told = text.lines().last().unwrap_or_default();
            let status = process::told(status);
            Err(Failure::Failed(format!("the script ended with {status}: {told}")))
        }
    }
}

fn glue() -> PathBuf {
    process::root().join("tests-external").join("binary")
}
