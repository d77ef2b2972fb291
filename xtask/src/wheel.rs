//! The Python client, `clients/python`: a package outside the workspace, which knows nothing of
//! Python. Its wheel is built by maturin, installed into an environment that has never seen its
//! sources, and tested there.
//!
//! maturin, pytest and pymemcache come from PyPI, pinned by version; they are kept below the target
//! folder, as is all that is built.

use crate::{Executable, Failure, Outcome, failed, flags, passed, process, python, skipped};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A suite that was not collected as a whole is no suite.
const TESTS_MIN: usize = 100;
/// The first whose stable ABI has the buffer protocol.
const PYTHON_MIN: &str = "(3, 11)";

pub fn main(parser: lexopt::Parser) -> Outcome {
    flags::none(parser)?;
    let asks = format!("import sys; sys.exit(sys.version_info < {PYTHON_MIN})");
    if !process::works(Command::new("python3").args(["-c", &asks])) {
        return skipped(format!("there is no python3 of {PYTHON_MIN} or later"));
    }
    let (status, told) = process::capture(cargo("fetch", None).arg("--locked"))?;
    if told.contains("because --locked was passed") {
        // Nothing that is absent here: what the client library depends on has changed.
        return failed(format!(
            "clients/python/Cargo.lock is not that of its manifests; `cargo update --workspace \
             --manifest-path clients/python/Cargo.toml` makes it so ({})",
            told.trim()
        ));
    }
    let unfetched =
        |why: String| Failure::Skipped(format!("what it takes cannot be fetched ({why})"));
    if !status.success() {
        return Err(unfetched(told.trim().to_owned()));
    }
    let environment = |name: &str, wanted: &str| {
        python::environment(name, &package().join(wanted)).map_err(unfetched)
    };
    let builds = environment("venv-wheel-build", "requirements-build.txt")?;
    let tests = environment("venv-wheel-test", "requirements-test.txt")?;
    process::run(cargo("fmt", None).arg("--check"))?;
    let clippy = ["--quiet", "--locked", "--no-deps", "--", "-D", "warnings"];
    process::run(cargo("clippy", Some(&builds)).args(clippy))?;
    let wheel = build(&builds)?;
    let mut install = Command::new(&tests);
    install.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]);
    process::run(install.args(["--no-index", "--no-deps", "--force-reinstall"]).arg(&wheel))?;
    test(&tests, Executable::laneway()?.path())
}

/// Where its sources lie.
fn package() -> PathBuf {
    process::root().join("clients").join("python")
}

/// A folder of its own: its profile is not the workspace's.
fn built() -> PathBuf {
    process::target_dir().join("wheel")
}

/// `cargo TASK` of the package, for this Python if the task builds something.
fn cargo(task: &str, python: Option<&Path>) -> Command {
    let mut command = process::cargo();
    command.env("CARGO_TARGET_DIR", built()).arg(task);
    command.arg("--manifest-path").arg(package().join("Cargo.toml"));
    if let Some(python) = python {
        command.env("PYO3_PYTHON", python);
    }
    command
}

/// The wheel, built anew.
fn build(python: &Path) -> Result<PathBuf, String> {
    let folder = process::scratch_dir("wheel")?.join("built");
    let _ = std::fs::remove_dir_all(&folder); // of an older version, or for another machine
    let mut maturin = Command::new(python);
    maturin.current_dir(package()).env("CARGO_TARGET_DIR", built());
    maturin.args(["-m", "maturin", "build", "--release", "--locked", "--quiet", "--interpreter"]);
    process::run(maturin.arg(python).arg("--out").arg(&folder))?;
    match process::named(&folder, ".whl")?.as_slice() {
        [wheel] => Ok(folder.join(format!("{wheel}.whl"))),
        wheels => Err(format!("maturin made {} wheels in {}", wheels.len(), folder.display())),
    }
}

/// Runs its tests, with the installed package alone: the folder of its sources is on no path.
fn test(python: &Path, server: &Path) -> Outcome {
    let server = server.canonicalize().map_err(|e| format!("{}: {e}", server.display()))?;
    let mut pytest = Command::new(python);
    pytest.current_dir(process::scratch_dir("wheel")?);
    pytest.env("LANEWAY_BIN", server).env("PYTHONDONTWRITEBYTECODE", "1");
    pytest.args(["-m", "pytest", "-q", "-rsfE", "-p", "no:cacheprovider", "--timeout", "300"]);
    match python::pytest(pytest.arg(package().join("tests")), TESTS_MIN)? {
        (good, 0) => passed(format!("the wheel is built and installed; its {good} tests pass")),
        (_, skipped) => failed(format!("{skipped} tests were skipped")),
    }
}
