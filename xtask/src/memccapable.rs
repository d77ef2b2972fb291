//! Debian's `memccapable`: libmemcached's conformance tests of the ASCII protocol (`-a`) and of the
//! binary one (`-b`).
//!
//! Its lines are read as well as its status: an empty run would also end with 0.

use crate::{Executable, Failure, Outcome, failed, flags, passed, process};
use std::path::Path;
use std::process::Command;

/// The parts of the suite: their flags, and what their lines begin with.
const PARTS: [(&str, &str); 2] = [("-a", "ascii "), ("-b", "binary ")];
/// The tests that memccapable 1.1.4 has of each; Debian's memcached (1.6.18) passes them all.
const TESTS_MIN: usize = 27;

pub fn main(parser: lexopt::Parser) -> Outcome {
    let server = flags::server(parser)?;
    let Some(program) = process::find_program("memccapable") else {
        return failed("memccapable is not installed: `cargo xtask setup` installs it");
    };
    let subject = Executable::named_or_laneway(server.as_deref())?;
    let notes = PARTS.map(|part| check(part, &program, &subject)).into_iter();
    passed(notes.collect::<Result<Vec<String>, Failure>>()?.join("; "))
}

/// Runs a part against a server of its own.
fn check(
    (flag, begins): (&str, &str),
    program: &Path,
    subject: &Executable,
) -> Result<String, Failure> {
    let server = subject.start("memccapable", &[])?;
    let port = server.address().port().to_string();
    let mut command = Command::new(program);
    let args = ["-h", "127.0.0.1", "-p", &port, flag, "-v", "-t", "10"];
    let (status, text) = process::capture(command.args(args))?;
    print!("{text}");
    let (good, bad) = count(begins, &text);
    server.stop()?;
    // A test that fails breaks its own line, and the next one's: the status has the last word.
    match status.success() && bad == 0 && TESTS_MIN <= good {
        true => Ok(format!("{flag}: {good} of {good} tests pass")),
        false => Err(Failure::Failed(format!(
            "{flag}: {good} tests pass, {bad} do not, at least {TESTS_MIN} expected; {}",
            process::told(status)
        ))),
    }
}

fn count(begins: &str, text: &str) -> (usize, usize) {
    let tests = text.lines().filter(|line| line.starts_with(begins));
    let (good, bad): (Vec<&str>, Vec<&str>) = tests.partition(|line| line.contains("[pass]"));
    (good.len(), bad.len())
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_failed_line_is_counted_whatever_the_status_says() {
        let text = "ascii set        [pass]\nascii get        [FAIL]\nAll tests passed\n";
        assert_eq!(super::count("ascii ", text), (1, 1));
    }
}
