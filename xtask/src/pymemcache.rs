//! pymemcache's own integration tests, from its published source archive.
//!
//! The archive is pinned by hash and the Python packages by version (tests-external/pymemcache);
//! both are fetched by pip once and kept below the target folder.

use crate::{Executable, Outcome, flags, passed, process, python};
use std::process::Command;

/// What the suite of 4.0.0 holds besides its TLS tests, which it skips itself.
const TESTS_MIN: usize = 200;

pub fn main(parser: lexopt::Parser) -> Outcome {
    let server = flags::server(parser)?;
    let glue = process::external("pymemcache");
    let python = python::environment("venv", &glue.join("requirements.txt"))?;
    let suite = python::sources(&python, "pymemcache", &glue.join("sdist.txt"))?;
    let server = Executable::named_or_laneway(server.as_deref())?.start("pymemcache", &[])?;
    let port = server.address().port().to_string();
    let mut command = Command::new(python);
    command.current_dir(suite).arg("-m").arg("pytest").arg("-c").arg(glue.join("pytest.ini"));
    command.args(["--rootdir", ".", "-p", "no:cacheprovider", "-m", "integration", "-q", "-rsfE"]);
    command.args(["--server", "127.0.0.1", "--port", &port, "pymemcache/test/test_integration.py"]);
    let (good, aside) = python::pytest(&mut command, TESTS_MIN)?;
    server.stop()?;
    passed(format!("{good} of {good} pass, {aside} skipped by the suite itself"))
}
