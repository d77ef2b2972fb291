//! `laneway ping`: whether a server answers, by its exit status, for health checks of containers
//! and scripts. Works with any memcached.

use crate::STATUS_USAGE;
use crate::asking::{Place, Server};
use lexopt::{Arg, Parser, ValueExt};
use std::ffi::OsString;
use std::process::ExitCode;

const HELP: &str = "\
laneway ping: ask a running server whether it answers

Usage: laneway ping [--server HOST:PORT | --socket PATH]

Exit status 0 if it answers, also where it says that it wants a password first;
1 if nothing answers within 10 seconds, or it turns the connection away.

Example: laneway ping --server 127.0.0.1:11211
";

/// What a server says to who has not told a password (`-Y`).
const WANTS_PASSWORD: &str = "CLIENT_ERROR unauthenticated";

/// Ask, and say what came.
pub fn run(args: Vec<OsString>) -> ExitCode {
    let place = match place(args) {
        Ok(Some(place)) => place,
        Ok(None) => {
            print!("{HELP}");
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            eprintln!("laneway ping: {error}; see laneway ping --help");
            return ExitCode::from(STATUS_USAGE);
        }
    };
    let answer = Server::of(&place, None).and_then(|mut server| Ok(server.version()?));
    match answer {
        Ok(line) if line == WANTS_PASSWORD || line.starts_with("VERSION ") => {
            println!("{place} answers: {line}");
            ExitCode::SUCCESS
        }
        Ok(line) => {
            eprintln!("laneway ping: {place} serves nobody, or is no memcached: it says {line}");
            ExitCode::FAILURE
        }
        Err(failure) => {
            eprintln!("laneway ping: {}", failure.told(&place));
            ExitCode::FAILURE
        }
    }
}

/// Where to ask; none where help is wanted.
fn place(args: Vec<OsString>) -> Result<Option<Place>, lexopt::Error> {
    let mut place = Place::default();
    let mut parser = Parser::from_args(args);
    while let Some(arg) = parser.next()? {
        match arg {
            Arg::Long("server") | Arg::Short('s') => place = Place::Tcp(parser.value()?.string()?),
            Arg::Long("socket") => place = Place::Unix(parser.value()?),
            Arg::Long("help") | Arg::Short('h') => return Ok(None),
            Arg::Value(word) => {
                let word = word.to_string_lossy();
                return Err(format!("{word}: a server is named by --server or --socket").into());
            }
            arg => return Err(arg.unexpected()),
        }
    }
    Ok(Some(place))
}
