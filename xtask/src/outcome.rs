//! How a task ends: passed with a note, skipped with a reason, or failed.
//!
//! Three kinds that are never mixed: a skip is said and counted apart, so that a machine that lacks
//! something never looks like one where everything passed.

/// Exit status of a task that could not run here; automake's convention.
pub const EXIT_SKIPPED: u8 = 77;
/// Begins the last line of a task that could not run here.
pub const SKIPPED_PREFIX: &str = "SKIPPED: ";

/// What a task that did not fail has to say, in one line.
pub enum Verdict {
    /// It ran and everything held.
    Passed(String),
    /// It could not run here, and why.
    Skipped(String),
}

/// Why a task did not pass.
#[derive(Debug)]
pub enum Failure {
    /// The command line is wrong.
    Usage(String),
    /// What was checked does not hold.
    Failed(String),
    /// As `Failed`, and the task has already printed why.
    Told,
}

/// What every task returns.
pub type Outcome = Result<Verdict, Failure>;

/// What a part of a task says: a note, or why it cannot be tried here.
pub type Tried = Result<Result<String, String>, Failure>;

impl From<String> for Failure {
    fn from(message: String) -> Failure {
        Failure::Failed(message)
    }
}

impl From<lexopt::Error> for Failure {
    fn from(error: lexopt::Error) -> Failure {
        Failure::Usage(error.to_string())
    }
}

/// A passed verdict with its note.
pub fn passed(note: impl Into<String>) -> Outcome {
    Ok(Verdict::Passed(note.into()))
}

/// A skipped verdict with its reason.
pub fn skipped(reason: impl Into<String>) -> Outcome {
    Ok(Verdict::Skipped(reason.into()))
}

/// A failed outcome with its reason.
pub fn failed(message: impl Into<String>) -> Outcome {
    Err(Failure::Failed(message.into()))
}
