//! How a task ends, and each of its parts: passed with a note, skipped with a reason, or failed.
//!
//! Three kinds that are never mixed: a skip is said and counted apart, so that a machine that lacks
//! something never looks like one where everything passed.

/// Exit status of a task that could not run here; automake's convention.
pub const EXIT_SKIPPED: u8 = 77;
/// Begins the last line of a task that could not run here.
pub const SKIPPED_PREFIX: &str = "SKIPPED: ";

/// Why a task did not pass.
#[derive(Debug, PartialEq, Eq)]
pub enum Failure {
    /// The command line is wrong.
    Usage(String),
    /// It could not run here.
    Skipped(String),
    /// What was checked does not hold.
    Failed(String),
    /// As `Failed`, and the task has already printed why.
    Told,
}

/// What every task returns, and many of their parts: what there is to say, in one line.
pub type Outcome = Result<String, Failure>;

impl Failure {
    /// The words of it.
    pub fn why(self) -> String {
        match self {
            Failure::Usage(why) | Failure::Skipped(why) | Failure::Failed(why) => why,
            Failure::Told => String::new(),
        }
    }
}

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

/// Passed, with its note.
pub fn passed(note: impl Into<String>) -> Outcome {
    Ok(note.into())
}

/// Skipped, with its reason.
pub fn skipped<T>(reason: impl Into<String>) -> Result<T, Failure> {
    Err(Failure::Skipped(reason.into()))
}

/// Failed, with its reason.
pub fn failed<T>(message: impl Into<String>) -> Result<T, Failure> {
    Err(Failure::Failed(message.into()))
}
