//! `laneway bench`: the load generator, which lives in its own crate and knows no server of ours.

use std::ffi::OsString;
use std::process::ExitCode;

/// Runs with these arguments, `bench` itself not among them.
pub fn run(args: impl Iterator<Item = OsString>) -> ExitCode {
    laneway_load::command::main(args)
}
