//! This is the one binary. `laneway serve` is the server; `laneway bench` measures it, or any
//! memcached.
//!
//! Called by the name `memcached`, or with a flag where a command should stand, it is the server at
//! once, so that it can be put in memcached's place.
#![forbid(unsafe_code)]

mod ask;
mod asking;
mod backup;
mod bench;
mod built;
mod commands;
mod doctor;
mod flags;
mod logging;
mod ping;
mod process;
mod serve;
mod sim;
mod tier;
mod top;

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

/// Exit status of a command line that makes no sense.
pub const STATUS_USAGE: u8 = 2;

fn main() -> ExitCode {
    process::end_when_output_fails();
    let mut args = std::env::args_os();
    let name = args.next().unwrap_or_default();
    let args: Vec<OsString> = args.collect();
    let called = Path::new(&name).file_name().unwrap_or_default();
    if called == "memcached" {
        return serve::run("memcached", args);
    }
    let command = args.first().map(|word| word.to_string_lossy().into_owned());
    let rest = || args[1..].to_vec();
    match command.as_deref() {
        Some("serve") => serve::run("laneway", rest()),
        Some("stats") => ask::run(rest()),
        Some("top") => top::run(rest()),
        Some("ping") => ping::run(rest()),
        Some("backup") => backup::run(rest()),
        Some("doctor") => doctor::run(rest()),
        Some("bench") => bench::run(rest().into_iter()),
        Some("sim") => sim::run(rest().into_iter()),
        Some(tool @ ("fsck" | "compact" | "scan" | "dump" | "load")) => tier::run(tool, rest()),
        Some("completions") => commands::completions(&rest()),
        Some("man") => commands::man(&rest()),
        None | Some("help" | "--help") => {
            print!("{}", commands::help());
            ExitCode::SUCCESS
        }
        Some("version" | "--version") => {
            println!("laneway {}", env!("CARGO_PKG_VERSION"));
            if args.get(1).is_some_and(|word| word == "-v" || word == "--verbose") {
                println!("{}", built::told());
            }
            ExitCode::SUCCESS
        }
        Some(word) if word.starts_with('-') => serve::run("laneway", args),
        Some(word) => {
            eprintln!("laneway: {}", commands::unknown(word));
            ExitCode::from(STATUS_USAGE)
        }
    }
}
