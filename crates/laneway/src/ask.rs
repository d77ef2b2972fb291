//! `laneway stats`: asks a running server for one family of its statistics and prints it. Works
//! with any memcached.

use crate::STATUS_USAGE;
use crate::asking::{Failure, Place, Server};
use lexopt::{Arg, Parser, ValueExt};
use std::ffi::OsString;
use std::process::ExitCode;

const HELP: &str = "\
laneway stats: ask a running server for its statistics

Usage: laneway stats [--server HOST:PORT | --socket PATH] [--login FILE] [FAMILY]

FILE has USER:PASSWORD in its first line, for a server that asks for them (serve -Y).

Families: lanes      threshold, roles, and what each worker did
          latency    per operation, small and large apart, in microseconds
          buckets    the same as counts by bucket, which only grow
          clients    who asks for how much
          kernel     what the programs in the kernel did
          shm rdma   clients in memory and over RDMA: verbs, losses, what was bad
          topology   ports and workers
          hotkeys    keys that everybody asks for: how hot, how large, where
          balance    how evenly the workers are loaded
          settings items slabs sizes conns reset, as memcached has them
          (none)     the general statistics

Example: laneway stats lanes
";

/// Ask and print. Exit status 1 if the server cannot be asked or refuses.
pub fn run(args: Vec<OsString>) -> ExitCode {
    let (mut place, mut family, mut login) = (Place::default(), Vec::new(), None);
    let mut parser = Parser::from_args(args);
    let mut read = || -> Result<bool, lexopt::Error> {
        while let Some(arg) = parser.next()? {
            match arg {
                Arg::Long("server") | Arg::Short('s') => {
                    place = Place::Tcp(parser.value()?.string()?);
                }
                Arg::Long("socket") => place = Place::Unix(parser.value()?),
                Arg::Long("login") => login = Some(parser.value()?),
                Arg::Long("help") | Arg::Short('h') => return Ok(false),
                Arg::Value(word) => family.push(word.string()?),
                arg => return Err(arg.unexpected()),
            }
        }
        Ok(true)
    };
    match read() {
        Ok(true) => {}
        Ok(false) => {
            print!("{HELP}");
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            eprintln!("laneway stats: {error}; see laneway stats --help");
            return ExitCode::from(STATUS_USAGE);
        }
    }
    let family = family.join(" ");
    let asked = Server::of(&place, login.as_deref())
        .and_then(|mut server| server.each_line(&family, |line| println!("{line}")));
    match asked {
        Ok(()) => return ExitCode::SUCCESS,
        Err(Failure::Unknown) => eprintln!(
            "laneway stats: {family}: the server has no such statistics; laneway stats --help \
             lists Laneway's"
        ),
        Err(failure) => eprintln!("laneway stats: {}", failure.told(&place)),
    }
    ExitCode::FAILURE
}
