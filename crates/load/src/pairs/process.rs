//! Starts the programs of a comparison, and tells how those that end have ended.

use std::io;
use std::process::{Command, Output, Stdio};

/// A command of these words, which has nothing to read.
pub(super) fn command(words: &[String]) -> Command {
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).stdin(Stdio::null());
    command
}

/// What a command has printed that ended well. An error calls it as it is `shown`.
pub(super) fn printed(output: io::Result<Output>, shown: &str) -> Result<String, String> {
    let output = output.map_err(|error| format!("{shown}: {error}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{shown} ended with {}\n{said}", output.status));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
