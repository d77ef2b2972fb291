//! Debian's `memccapable -a`: libmemcached's conformance tests of the ASCII protocol.
//!
//! Its lines are read as well as its status: an empty run would also end with 0.

use crate::outcome::{Failure, Outcome, failed, passed};
use crate::process;
use crate::server::{self, Executable};
use std::path::Path;
use std::process::Command;

pub const HELP: &str = "\
Run libmemcached's `memccapable -a` against a freshly started Laneway; all tests must pass. Where
`cargo xtask peers` has unpacked today's memcached, the command tells what the suite says of it.

usage: cargo xtask memccapable [--server PROGRAM]

  --server PROGRAM   test this executable instead of Laneway, such as memcached";

/// The tests that memccapable 1.1.4 has with `-a`; Debian stable's memcached (1.6.18) passes them
/// all.
const TESTS_MIN: usize = 27;

pub fn main(parser: lexopt::Parser) -> Outcome {
    let server = server::flag(parser)?;
    let Some(program) = process::find_program("memccapable") else {
        return failed("memccapable is not installed: `cargo xtask setup` installs it");
    };
    let subject = Executable::named_or_laneway(server.as_deref())?;
    let (good, bad) = suite(&program, &subject)?;
    if 0 < bad || good < TESTS_MIN {
        let told = format!("{good} tests pass, {bad} do not, at least {TESTS_MIN} expected");
        return Err(Failure::Failed(told));
    }
    let mut note = format!("{good} of {good} tests pass");
    // What the suite says of today's memcached shows what its tests are worth. It is no verdict:
    // 1.6.45 passes over words behind a `delete`'s key that the suite, of 2011, wants refused.
    if server.is_none() {
        note.push_str(&match Executable::newest_memcached() {
            Some(newest) => {
                let (version, (good, _)) = (newest.version()?, suite(&program, &newest)?);
                format!("; {version}: {good} of {TESTS_MIN} pass")
            }
            None => "; today's memcached is not here, see `cargo xtask peers`".into(),
        });
    }
    passed(note)
}

/// Runs the suite against a server of its own: how many tests passed, and how many did not.
fn suite(program: &Path, subject: &Executable) -> Result<(usize, usize), Failure> {
    let server = subject.start("memccapable", &[])?;
    let port = server.address().port().to_string();
    let mut command = Command::new(program);
    let (status, text) =
        process::capture(command.args(["-h", "127.0.0.1", "-p", &port, "-a", "-v", "-t", "10"]))?;
    print!("{text}");
    let (good, bad) = count(&text);
    server.stop()?;
    // A test that fails breaks its own line, and the next one's: the status has the last word.
    let unseen = usize::from(!status.success() && bad == 0);
    Ok((good, bad + unseen))
}

fn count(text: &str) -> (usize, usize) {
    let tests = text.lines().filter(|line| line.starts_with("ascii "));
    let (good, bad): (Vec<&str>, Vec<&str>) = tests.partition(|line| line.contains("[pass]"));
    (good.len(), bad.len())
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_failed_line_is_counted_whatever_the_status_says() {
        let text = "ascii set        [pass]\nascii get        [FAIL]\nAll tests passed\n";
        assert_eq!(super::count(text), (1, 1));
    }
}
