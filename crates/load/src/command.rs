//! `laneway bench`: which of the load generator's commands a line means.

use crate::{cli, compare, floor};
use std::ffi::OsString;
use std::process::ExitCode;

/// Runs `laneway bench` with these arguments, the program's name and `bench` not among them.
pub fn main(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let arguments: Vec<OsString> = arguments.collect();
    let first = arguments.first().map(|word| word.to_string_lossy().into_owned());
    let first = first.unwrap_or_default();
    if first == "compare" {
        return compare::main(arguments[1..].to_vec());
    }
    if first == "floor" {
        return floor::flags::main(arguments[1..].to_vec());
    }
    cli::main(arguments)
}
