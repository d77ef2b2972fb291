//! pymemcache's own integration tests, from its published source archive.
//!
//! The archive is pinned by hash and the Python packages by version (tests-external/pymemcache);
//! both are fetched by pip once and kept below the target folder.

use crate::outcome::{Outcome, failed, passed};
use crate::process;
use crate::server::{self, Executable};
use std::path::{Path, PathBuf};
use std::process::Command;

pub const HELP: &str = "\
Run pymemcache's integration tests against a freshly started Laneway; all must pass.

usage: cargo xtask pymemcache [--server PROGRAM]

  --server PROGRAM   test this executable instead of Laneway, such as memcached

Fetches its source archive and pytest from PyPI through pip the first time.";

/// What the suite of 4.0.0 holds besides its TLS tests, which it skips itself.
const TESTS_MIN: usize = 200;

pub fn main(parser: lexopt::Parser) -> Outcome {
    let server = server::flag(parser)?;
    let python = environment()?;
    let suite = suite(&python)?;
    let server = Executable::named_or_laneway(server.as_deref())?.start("pymemcache", &[])?;
    let port = server.address().port().to_string();
    let mut command = Command::new(python);
    command.current_dir(suite).arg("-m").arg("pytest").arg("-c").arg(glue().join("pytest.ini"));
    command.args(["--rootdir", ".", "-p", "no:cacheprovider", "-m", "integration", "-q", "-rsfE"]);
    command.args(["--server", "127.0.0.1", "--port", &port, "pymemcache/test/test_integration.py"]);
    let (status, text) = process::capture(&mut command)?;
    print!("{text}");
    server.stop()?;
    let last = text.lines().rev().find(|line| line.contains(" passed")).unwrap_or_default();
    let count = |word: &str| count(last, word);
    let (good, aside) = (count("passed"), count("skipped"));
    match status.success() && TESTS_MIN <= good {
        true => passed(format!("{good} of {good} pass, {aside} skipped by the suite itself")),
        false => failed(format!("pytest ended with {}: {last}", process::told(status))),
    }
}

fn glue() -> PathBuf {
    process::root().join("tests-external").join("pymemcache")
}

/// The number before `word` in pytest's last line.
fn count(line: &str, word: &str) -> usize {
    let words: Vec<&str> = line.split_whitespace().collect();
    let at = words.iter().position(|w| w.trim_end_matches(',') == word);
    at.and_then(|at| words.get(at.checked_sub(1)?)?.parse().ok()).unwrap_or(0)
}

/// A virtual environment with the pinned packages; its Python.
fn environment() -> Result<PathBuf, String> {
    let dir = process::target_dir().join("venv");
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

/// The unpacked source archive.
fn suite(python: &Path) -> Result<PathBuf, String> {
    let pinned = glue().join("sdist.txt");
    let text = read(&pinned)?;
    let version = text.lines().find_map(|line| line.strip_prefix("pymemcache=="));
    let version = version.and_then(|rest| rest.split_whitespace().next());
    let name = format!("pymemcache-{}", version.ok_or("sdist.txt names no pymemcache==VERSION")?);
    let dir = process::scratch_dir("pymemcache")?;
    let unpacked = dir.join(&name);
    if unpacked.join("pymemcache/test/test_integration.py").is_file() {
        return Ok(unpacked);
    }
    let mut pip = Command::new(python);
    pip.args(["-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]);
    pip.args(["--no-binary", ":all:", "--require-hashes", "-r"]).arg(&pinned);
    process::run(pip.arg("--dest").arg(&dir))?;
    let archive = dir.join(format!("{name}.tar.gz"));
    process::run(Command::new(python).args(["-m", "tarfile", "-e"]).arg(archive).arg(&dir))?;
    Ok(unpacked)
}

fn read(path: &Path) -> Result<String, String> {
    std::fs::read_to_string(path).map_err(|e| format!("cannot read {}: {e}", path.display()))
}

#[cfg(test)]
mod tests {
    #[test]
    fn counts_are_read_from_the_last_line_of_pytest() {
        let line = "3 failed, 197 passed, 6 skipped in 3.78s";
        assert_eq!(super::count(line, "passed"), 197);
        assert_eq!(super::count(line, "skipped"), 6);
        assert_eq!(super::count("no tests ran in 0.01s", "passed"), 0);
    }
}
