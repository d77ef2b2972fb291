//! `laneway stats`: asks a running server for one family of its statistics and prints it. It works
//! with any memcached.

use crate::asking::whom::{self, Other, Whom};
use crate::asking::{Failure, Server};
use lexopt::ValueExt;
use std::ffi::OsString;
use std::process::ExitCode;

/// What `--help` prints; `{flags}` stands for those that say whom to ask.
pub const HELP: &str = "\
laneway stats: ask a running server for its statistics

Usage: laneway stats [--server HOST:PORT | --socket PATH] [FLAGS] [FAMILY]

Families: lanes      threshold, roles, and what each worker did
          latency    per operation, small and large apart, in microseconds
          buckets    the same as counts by bucket, which only grow
          large      requests that were slow or large lately, with their parts
          clients    who asks for how much
          kernel     what the programs in the kernel did
          udp        datagrams, and what was bad or dropped, by its cause
          shm rdma   clients in memory and over RDMA: verbs, losses, what was bad
          tls        handshakes, failures by cause, the certificate's end
          topology   ports and workers
          tier       what --data-dir keeps: log, SSD, refused writes, scrubs
          backup     how the last backup stands (laneway backup)
          hotkeys    keys that everybody asks for: how hot, how large, where
          balance    how evenly the workers are loaded
          settings items slabs sizes conns reset, as memcached has them
          (none)     the general statistics

Flags:
{flags}
Example: laneway stats lanes
";

/// Ask and print. Exit status 1 if the server cannot be asked or refuses.
pub fn run(args: Vec<OsString>) -> ExitCode {
    let mut family = Vec::new();
    let read = Whom::read(args, |other, _| match other {
        Other::Word(word) => {
            family.push(word.string()?);
            Ok(())
        }
        other => Err(other.unexpected()),
    });
    let whom = match whom::words("stats", HELP, read) {
        Ok(whom) => whom,
        Err(status) => return status,
    };
    let family = family.join(" ");
    let asked = Server::of(&whom)
        .and_then(|mut server| server.each_line(&family, |line| println!("{line}")));
    match asked {
        Ok(()) => return ExitCode::SUCCESS,
        Err(Failure::Unknown) => eprintln!(
            "laneway stats: {family}: the server has no such statistics; laneway stats --help \
             lists those that a server of Laneway's has"
        ),
        Err(failure) => eprintln!("laneway stats: {}", failure.told(&whom)),
    }
    ExitCode::FAILURE
}
