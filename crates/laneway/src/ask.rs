//! `laneway stats`: asks a running server for one family of its statistics and prints it. Works
//! with any memcached.

use crate::STATUS_USAGE;
use lexopt::{Arg, Parser, ValueExt};
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::time::Duration;

const HELP: &str = "\
laneway stats: ask a running server for its statistics

Usage: laneway stats [--server HOST:PORT | --socket PATH] [FAMILY]

Families: lanes      threshold, roles, and what each worker did
          latency    per operation, small and large apart, in microseconds
          kernel     what the programs in the kernel did
          shm rdma   clients in memory and over RDMA: verbs, losses, what was bad
          topology   ports and workers
          hotkeys    keys that everybody asks for: how hot, how large, where
          balance    how evenly the workers are loaded
          settings items slabs sizes conns reset, as memcached has them
          (none)     the general statistics

Example: laneway stats lanes
";

/// How long a server may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// Ask and print. Exit status 1 if the server cannot be asked or refuses.
pub fn run(args: Vec<OsString>) -> ExitCode {
    let (mut server, mut socket, mut family) = ("127.0.0.1:11211".to_owned(), None, Vec::new());
    let mut parser = Parser::from_args(args);
    let mut read = || -> Result<bool, lexopt::Error> {
        while let Some(arg) = parser.next()? {
            match arg {
                Arg::Long("server") | Arg::Short('s') => server = parser.value()?.string()?,
                Arg::Long("socket") => socket = Some(parser.value()?),
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
    let question = format!("stats {}\r\n", family.join(" "));
    let answered = match &socket {
        Some(path) => UnixStream::connect(path).and_then(|stream| {
            stream.set_read_timeout(Some(PATIENCE))?;
            ask(stream, question.trim_start())
        }),
        None => TcpStream::connect(&server).and_then(|stream| {
            stream.set_read_timeout(Some(PATIENCE))?;
            ask(stream, question.trim_start())
        }),
    };
    match answered {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            let place = socket.map_or(server, |path| path.to_string_lossy().into_owned());
            eprintln!(
                "laneway stats: {place} cannot be asked: {error}; is a server running there?"
            );
            ExitCode::FAILURE
        }
    }
}

/// Print the lines of the answer; whether it was one.
fn ask<S: Read + Write>(mut stream: S, question: &str) -> std::io::Result<bool> {
    stream.write_all(question.as_bytes())?;
    for line in BufReader::new(stream).lines() {
        let line = line?;
        match line.as_str() {
            "END" | "RESET" | "OK" => return Ok(true),
            "ERROR" => {
                eprintln!(
                    "laneway stats: {}: the server has no such statistics; laneway stats --help \
                     lists Laneway's",
                    question.trim().trim_start_matches("stats ")
                );
                return Ok(false);
            }
            line if line.contains("ERROR") => {
                eprintln!("laneway stats: the server says {line}");
                return Ok(false);
            }
            line => println!("{}", line.strip_prefix("STAT ").unwrap_or(line)),
        }
    }
    Err(std::io::ErrorKind::UnexpectedEof.into())
}
