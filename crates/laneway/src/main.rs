//! The one binary. `laneway serve` is the server; `laneway bench` measures it, or any memcached.
//!
//! Called by the name `memcached`, or with a flag where a command should stand, it is the server at
//! once, so that it can be put in memcached's place.
#![forbid(unsafe_code)]

mod ask;
mod bench;
mod doctor;
mod flags;
mod logging;
mod process;
mod serve;
mod sim;
mod tier;

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

const HELP: &str = "\
Laneway: a memcached-compatible key-value server in which a small request never
waits behind a large one.

Usage: laneway COMMAND [FLAGS]

Commands:
  serve    run the server (all of memcached's flags work; laneway serve --help)
  bench    measure a server: laneway, memcached, redis (laneway bench --help)
  sim      what every design does on any number of cores (laneway sim --help)
  doctor   what this machine offers of the layers in the kernel, and what to do
  stats    ask a running server for its statistics (laneway stats lanes)
  fsck     check, and with --repair repair, the folder of serve --data-dir
  scan     list what such a folder holds, in key order
  dump     write all of it as one stream
  load     put the items of such a stream into a folder
  help     this text
  version  print the version

Try:
  laneway serve -m 1024              a server on port 11211 with 1 GiB for items
  laneway bench --help               what can be measured, with examples
  laneway stats lanes                what the lanes of a running server are doing

Called by the name memcached, or with a flag first (laneway -p 11211 -m 64), it
is `laneway serve`.
";

/// Exit status of a command line that makes no sense.
pub const STATUS_USAGE: u8 = 2;

fn main() -> ExitCode {
    let mut args = std::env::args_os();
    let name = args.next().unwrap_or_default();
    let args: Vec<OsString> = args.collect();
    let called = Path::new(&name).file_name().unwrap_or_default();
    if called == "memcached" {
        return serve::run("memcached", args);
    }
    let command = args.first().map(|word| word.to_string_lossy().into_owned());
    let rest = || args[1..].to_vec();
    if command.as_deref().is_some_and(|word| word != "serve" && !word.starts_with('-')) {
        process::end_when_nobody_reads();
    }
    match command.as_deref() {
        Some("serve") => serve::run("laneway", rest()),
        Some("stats") => ask::run(rest()),
        Some("doctor") => doctor::run(rest()),
        Some("bench") => bench::run(rest().into_iter()),
        Some("sim") => sim::run(rest().into_iter()),
        Some(tool @ ("fsck" | "scan" | "dump" | "load")) => tier::run(tool, rest()),
        None | Some("help" | "--help") => {
            print!("{HELP}");
            ExitCode::SUCCESS
        }
        Some("version" | "--version") => {
            println!("laneway {}", env!("CARGO_PKG_VERSION"));
            ExitCode::SUCCESS
        }
        Some(word) if word.starts_with('-') => serve::run("laneway", args),
        Some(word) => {
            eprintln!("laneway: no command is called {word}; laneway help lists them");
            ExitCode::from(STATUS_USAGE)
        }
    }
}
