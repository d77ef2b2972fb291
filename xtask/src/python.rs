//! Pinned Python packages, and suites out of their published source archives.
//!
//! pip fetches both once; they are kept below the target folder. A suite's `requirements.txt` pins
//! packages by version, its `sdist.txt` the archive by hash.

use crate::process::{self, read};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A virtual environment called `name` with the packages of `wanted`; its Python.
pub fn environment(name: &str, wanted: &Path) -> Result<PathBuf, String> {
    let dir = process::target_dir().join(name);
    let python = dir.join("bin").join("python");
    let installed = dir.join("laneway-requirements.txt");
    let text = read(wanted)?;
    if python.is_file() && read(&installed).is_ok_and(|have| have == text) {
        return Ok(python);
    }
    process::run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&dir))?;
    let mut pip = Command::new(&python);
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]);
    process::run(pip.args(["--only-binary", ":all:", "-r"]).arg(wanted))?;
    process::write(&installed, text)?;
    Ok(python)
}

/// The unpacked source archive of `package`, which the file `pinned` gives as `package==VERSION`.
pub fn sources(python: &Path, package: &str, pinned: &Path) -> Result<PathBuf, String> {
    let text = read(pinned)?;
    let version = text.lines().find_map(|line| line.strip_prefix(&format!("{package}==")));
    let version = version.and_then(|rest| rest.split_whitespace().next());
    let version =
        version.ok_or_else(|| format!("{} names no {package}==VERSION", pinned.display()))?;
    let name = format!("{package}-{version}");
    let dir = process::scratch_dir(package)?;
    let (unpacked, whole) = (dir.join(&name), dir.join(format!("{name}.whole")));
    if whole.is_file() {
        return Ok(unpacked);
    }
    let mut pip = Command::new(python);
    pip.args(["-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]);
    pip.args(["--no-binary", ":all:", "--require-hashes", "-r"]).arg(pinned);
    process::run(pip.arg("--dest").arg(&dir))?;
    let archive = dir.join(format!("{name}.tar.gz"));
    process::run(Command::new(python).args(["-m", "tarfile", "-e"]).arg(archive).arg(&dir))?;
    process::write(&whole, "")?;
    Ok(unpacked)
}

/// Runs a suite by pytest and shows what it says: how many of its tests passed, and how many were
/// skipped. An error unless all others passed, and so many at least.
pub fn pytest(command: &mut Command, tests_min: usize) -> Result<(usize, usize), String> {
    let (status, text) = process::capture(command)?;
    print!("{text}");
    let last = text.lines().rev().find(|line| line.contains(" passed")).unwrap_or_default();
    let good = count(last, "passed");
    match status.success() && tests_min <= good {
        true => Ok((good, count(last, "skipped"))),
        false => Err(format!("pytest ended with {}: {last}", process::told(status))),
    }
}

/// The number before `word` in pytest's last line.
fn count(line: &str, word: &str) -> usize {
    let words: Vec<&str> = line.split_whitespace().collect();
    let at = words.iter().position(|w| w.trim_end_matches(',') == word);
    at.and_then(|at| words.get(at.checked_sub(1)?)?.parse().ok()).unwrap_or(0)
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
