//! `laneway ping`: whether a server answers, by its exit status, for health checks of containers
//! and scripts. It works with any memcached.

use crate::asking::whom::{self, Other, Whom};
use crate::asking::{Server, VERSION, WANTS_PASSWORD};
use std::ffi::OsString;
use std::io::{self, Write};
use std::process::ExitCode;

/// What `--help` prints; `{flags}` stands for those that say whom to ask.
pub const HELP: &str = "\
laneway ping: ask a running server whether it answers

Usage: laneway ping [--server HOST:PORT | --socket PATH] [FLAGS]

{flags}
Exit status 0 if it answers, also where it says that it wants a password first;
1 if nothing answers within 10 seconds, or it turns the connection away.

Example: laneway ping --server 127.0.0.1:11211
";

/// Ask, and say what came.
pub fn run(args: Vec<OsString>) -> ExitCode {
    let read = Whom::read(args, |other, _| match other {
        Other::Word(word) => {
            let word = word.to_string_lossy();
            Err(format!("{word}: a server is named by --server or --socket").into())
        }
        other => Err(other.unexpected()),
    });
    let whom = match whom::words("ping", HELP, read) {
        Ok(whom) => whom,
        Err(status) => return status,
    };
    let answer = Server::of(&whom).and_then(|mut server| server.version());
    let place = &whom.place;
    let why = match answer {
        Ok(line) if line == WANTS_PASSWORD || line.starts_with(VERSION) => {
            // The status is about the server, whatever becomes of the line, as in a full log.
            let _ = writeln!(io::stdout(), "{place} answers: {line}");
            return ExitCode::SUCCESS;
        }
        Ok(line) => format!("{place} serves nobody, or is no memcached: it says {line}"),
        Err(failure) => failure.told(&whom),
    };
    let _ = writeln!(io::stderr(), "laneway ping: {why}"); // the same
    ExitCode::FAILURE
}
