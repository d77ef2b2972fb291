//! A measurement that is a program of its own: it prints one line of JSON, and figures point into
//! that. It runs where the servers run, pinned and scheduled as they are.

use super::Measured;
use super::definition::{Definition, RunDefinition};
use super::server::Places;
use std::process::{Command, Stdio};

/// Runs it to its end: its command, the flags that all runs share, its own.
pub fn measure(
    definition: &Definition,
    run: &RunDefinition,
    places: &Places,
) -> Result<Measured, String> {
    let line = [run.command.as_str(), &definition.load, &run.load].join(" ");
    let command = places.around(&line);
    let shown = || format!("{} ({})", run.name, line.trim_end());
    let output = Command::new(&command[0])
        .args(&command[1..])
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("{}: {error}", shown()))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{}: ended with {}\n{said}", shown(), output.status));
    }
    let told = String::from_utf8_lossy(&output.stdout);
    serde_json::from_str(told.trim()).map_err(|error| format!("{}: {error}: {told}", shown()))
}
