//! Where a flag was given: on the command line, in the environment, or in a file.

use std::fmt;

/// A place.
#[derive(Debug, Clone, PartialEq)]
pub enum Origin {
    /// Typed, as this.
    CommandLine(String),
    /// A variable of this name.
    Environment(String),
    /// A file, and the line in it.
    File(String, usize),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::CommandLine(flag) => f.write_str(flag),
            Origin::Environment(variable) => f.write_str(variable),
            Origin::File(file, line) => write!(f, "{file}:{line}"),
        }
    }
}
