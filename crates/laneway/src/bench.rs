//! `laneway bench`: the load generator and the studies made with it, which live in crates of their
//! own and know no server of ours.

use std::ffi::OsString;
use std::process::ExitCode;

/// Runs with these arguments, `bench` itself not among them.
pub fn run(args: impl Iterator<Item = OsString>) -> ExitCode {
    laneway_studies::command::main(args)
}
