//! Debian's `memccapable`: libmemcached's conformance tests of the ASCII protocol (`-a`) and of the
//! binary one (`-b`).
//!
//! Its lines are read as well as its status: an empty run would also end with 0.

use crate::{Executable, Failure, Outcome, failed, flags, passed, process};
use std::path::Path;
use std::process::Command;

pub const HELP: &str = "\
Run libmemcached's `memccapable -a` and `memccapable -b` against a freshly started Laneway; all
tests must pass. Where
`cargo xtask peers` has unpacked today's memcached, the command tells what the suite says of it.

usage: cargo xtask memccapable [--server PROGRAM]

  --server PROGRAM   test this executable instead of Laneway, such as memcached";

/// A part of the suite.
struct Part {
    flag: &'static str,
    /// What its lines begin with.
    begins: &'static str,
    /// The tests that memccapable 1.1.4 has of it; Debian stable's memcached (1.6.18) passes them
    /// all.
    tests_min: usize,
}

const PARTS: [Part; 2] = [
    Part { flag: "-a", begins: "ascii ", tests_min: 27 },
    Part { flag: "-b", begins: "binary ", tests_min: 27 },
];

pub fn main(parser: lexopt::Parser) -> Outcome {
    let server = flags::server(parser)?;
    let Some(program) = process::find_program("memccapable") else {
        return failed("memccapable is not installed: `cargo xtask setup` installs it");
    };
    let subject = Executable::named_or_laneway(server.as_deref())?;
    let mut notes = Vec::new();
    for part in &PARTS {
        notes.push(check(part, &program, &subject, server.is_none())?);
    }
    passed(notes.join("; "))
}

/// Runs a part against the subject, and for comparison against today's memcached.
fn check(
    part: &Part,
    program: &Path,
    subject: &Executable,
    compares: bool,
) -> Result<String, Failure> {
    let Part { flag, tests_min, .. } = part;
    let (good, bad) = suite(part, program, subject)?;
    if 0 < bad || good < *tests_min {
        let told =
            format!("{flag}: {good} tests pass, {bad} do not, at least {tests_min} expected");
        return Err(Failure::Failed(told));
    }
    let mut note = format!("{flag}: {good} of {good} tests pass");
    // What the suite says of today's memcached shows what its tests are worth. It is no verdict:
    // 1.6.45 passes over words behind a `delete`'s key that the suite, of 2011, wants refused.
    if compares {
        note.push_str(&match Executable::newest_memcached() {
            Some(newest) => {
                let (version, (passing, _)) = (newest.version()?, suite(part, program, &newest)?);
                format!(", {version}: {passing} of {good} pass")
            }
            None => ", today's memcached is not here, see `cargo xtask peers`".into(),
        });
    }
    Ok(note)
}

/// Runs a part against a server of its own: how many tests passed, and how many did not.
fn suite(part: &Part, program: &Path, subject: &Executable) -> Result<(usize, usize), Failure> {
    let server = subject.start("memccapable", &[])?;
    let port = server.address().port().to_string();
    let mut command = Command::new(program);
    let args = ["-h", "127.0.0.1", "-p", &port, part.flag, "-v", "-t", "10"];
    let (status, text) = process::capture(command.args(args))?;
    print!("{text}");
    let (good, bad) = count(part, &text);
    server.stop()?;
    // A test that fails breaks its own line, and the next one's: the status has the last word.
    let unseen = usize::from(!status.success() && bad == 0);
    Ok((good, bad + unseen))
}

fn count(part: &Part, text: &str) -> (usize, usize) {
    let tests = text.lines().filter(|line| line.starts_with(part.begins));
    let (good, bad): (Vec<&str>, Vec<&str>) = tests.partition(|line| line.contains("[pass]"));
    (good.len(), bad.len())
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_failed_line_is_counted_whatever_the_status_says() {
        let text = "ascii set        [pass]\nascii get        [FAIL]\nAll tests passed\n";
        assert_eq!(super::count(&super::PARTS[0], text), (1, 1));
    }
}
