//! Command lines of tasks that take one word or none.

use crate::outcome::Failure;

/// Fails if there is any word.
pub fn none(mut parser: lexopt::Parser) -> Result<(), Failure> {
    parser.next()?.map_or(Ok(()), |argument| Err(argument.unexpected().into()))
}

/// Whether `--name` is there; fails if there is any other word.
pub fn switch(mut parser: lexopt::Parser, name: &str) -> Result<bool, Failure> {
    let mut is_there = false;
    while let Some(argument) = parser.next()? {
        match argument {
            lexopt::Arg::Long(word) if word == name => is_there = true,
            _ => return Err(argument.unexpected().into()),
        }
    }
    Ok(is_there)
}
