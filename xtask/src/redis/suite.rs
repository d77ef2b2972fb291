//! redis-py's own tests, those that tests-external/redis/suite.txt picks. `laneway_suite.py` beside
//! it tells pytest which of them must fail: one of these that passes is a failure, too.

use crate::{process, python};
use std::path::Path;
use std::process::Command;

/// Begins the list of tests that need not pass.
const FAILS: &str = "\n[fails]\n";

/// Runs the picked tests against the server at `port`; a line of what came out.
pub fn run(python: &Path, glue: &Path, port: u16) -> Result<String, String> {
    let text = process::read(glue.join("suite.txt"))?;
    let tests = |text: &str| -> Vec<String> {
        let lines = text.lines().filter(|line| line.contains("::"));
        lines.map(|line| format!("{line}\n")).collect()
    };
    let (passing, _) = text.split_once(FAILS).ok_or("suite.txt has no list of what fails")?;
    let suite = python::sources(python, "redis", &glue.join("sdist.txt"))?;
    let names = process::scratch_dir("redis")?.join("picked.txt");
    process::write(&names, tests(&text).concat())?;
    let mut command = Command::new(python);
    command.current_dir(suite).args(["-m", "pytest", "-c"]).arg(glue.join("pytest.ini"));
    command.args(["--rootdir", ".", "-p", "no:cacheprovider", "-q", "-rfE", "--tb=line"]);
    command.env("PYTHONPATH", glue).args(["-p", "laneway_suite"]);
    command.arg("--redis-url").arg(format!("redis://127.0.0.1:{port}/0"));
    command.arg(format!("@{}", names.display()));
    // One that is skipped does not pass.
    let (good, _) = python::pytest(&mut command, tests(passing).len())?;
    Ok(format!("{good} of redis-py's own tests, and others fail for known causes"))
}
