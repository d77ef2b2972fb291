//! `laneway bench`: whether a line means a study. All other lines are the load generator's.

use crate::experiment::{self, Experiment};
use crate::verbs;
use std::ffi::OsString;
use std::process::ExitCode;

/// Runs `laneway bench` with these arguments, the program's name and `bench` not among them.
pub fn main(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let arguments: Vec<OsString> = arguments.collect();
    let first = arguments.first().map(|word| word.to_string_lossy().into_owned());
    let rest = || arguments[1..].to_vec();
    match first.as_deref() {
        Some("adapt") => experiment::adapt::main(rest()),
        Some("verbs") => verbs::main(rest()),
        name => match name.and_then(Experiment::named) {
            Some(experiment) => experiment::main(experiment, rest()),
            None => laneway_load::command::main(arguments.into_iter()),
        },
    }
}
