//! What can go wrong with a program, and what the operator can do about it.

use std::fmt;

/// Which call failed, why, and what would help.
#[derive(Debug)]
pub struct Error {
    what: String,
    why: String,
}

/// What to do about a build without the programs.
#[cfg(not(feature = "kernel"))]
pub(crate) const REBUILD: &str = "built without the feature `kernel`; build with `cargo build \
     --release --features kernel`, which needs clang (Debian: apt-get install clang)";

impl Error {
    /// What was asked for, and why it cannot be.
    pub fn said(what: impl Into<String>, why: impl Into<String>) -> Error {
        Error { what: what.into(), why: why.into() }
    }

    /// The programs are not in this build.
    #[cfg(not(feature = "kernel"))]
    pub(crate) fn absent(what: &str) -> Error {
        Error { what: what.to_string(), why: REBUILD.to_string() }
    }
}

#[cfg(feature = "kernel")]
impl Error {
    pub(crate) fn new(what: impl Into<String>, why: &dyn std::error::Error) -> Error {
        let mut told = why.to_string();
        let mut source = why.source();
        while let Some(inner) = source {
            let inner_told = inner.to_string();
            if !told.contains(&inner_told) {
                told = format!("{told}: {inner_told}");
            }
            source = inner.source();
        }
        Error { what: what.into(), why: told }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.what, self.why)
    }
}

impl std::error::Error for Error {}
