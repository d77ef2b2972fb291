//! A measurement that is a program of its own: it prints one line of JSON, and figures point into
//! that. It runs where the servers run, pinned and scheduled as they are.

use super::Measured;
use super::definition::{Definition, RunDefinition};
use super::process::{command, printed};
use super::server::Places;

/// Runs it to its end: its command, the flags that all runs share, its own.
pub fn measure(
    definition: &Definition,
    run: &RunDefinition,
    places: &Places,
) -> Result<Measured, String> {
    let line = [run.command.as_str(), &definition.load, &run.load].join(" ");
    let shown = format!("{} ({})", run.name, line.trim_end());
    let told = printed(command(&places.around(&line)).output(), &shown)?;
    serde_json::from_str(told.trim()).map_err(|error| format!("{shown}: {error}: {told}"))
}
