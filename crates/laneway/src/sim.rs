//! `laneway sim`: the simulator, which lives in its own crate and knows the policies alone.

use std::ffi::OsString;
use std::process::ExitCode;

/// Runs with these arguments, `sim` itself not among them.
pub fn run(args: impl Iterator<Item = OsString>) -> ExitCode {
    laneway_sim::cli::main(args)
}
