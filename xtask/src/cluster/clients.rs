//! Clients that spread keys by themselves, run by tests-external/cluster/clients.py.

use crate::process;
use crate::python;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;

/// Their names, as the script has them.
pub const CLIENTS: [&str; 2] = ["pymemcache", "pylibmc"];

fn glue() -> PathBuf {
    process::root().join("tests-external").join("cluster")
}

/// A Python that has them; or why there is none.
pub fn python() -> Result<PathBuf, String> {
    python::environment("venv-cluster", &glue().join("requirements.txt"))
}

/// Store all keys over these servers, or read them: how many were stored, or found.
pub fn run(
    python: &PathBuf,
    client: &str,
    what: &str,
    servers: &[SocketAddr],
) -> Result<u64, String> {
    let mut command = Command::new(python);
    command.arg(glue().join("clients.py")).args([client, what]);
    command.args(servers.iter().map(SocketAddr::to_string));
    let (status, said) = process::capture(&mut command)?;
    let count = said.trim().parse().ok().filter(|_| status.success());
    count.ok_or_else(|| format!("{client}, {what}: {}: {}", process::told(status), said.trim()))
}
