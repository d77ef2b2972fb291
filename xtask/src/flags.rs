//! How the command lines of tasks are read.

use crate::outcome::Failure;

/// Reads the words of a task, each by its arm of a match; any other is refused.
macro_rules! flags {
    ($parser:ident, { $($arms:tt)* }) => {{
        use lexopt::prelude::*;
        while let Some(argument) = $parser.next()? {
            match argument {
                $($arms)*
                _ => return Err(argument.unexpected().into()),
            }
        }
    }};
}

/// Fails if there is any word.
pub fn none(mut parser: lexopt::Parser) -> Result<(), Failure> {
    parser.next()?.map_or(Ok(()), |argument| Err(argument.unexpected().into()))
}

/// Whether `--name` is there; fails if there is any other word.
pub fn switch(mut parser: lexopt::Parser, name: &str) -> Result<bool, Failure> {
    let mut is_there = false;
    flags!(parser, { Long(word) if word == name => is_there = true, });
    Ok(is_there)
}

/// What `--server PROGRAM` names, of a task that has no other flag.
pub fn server(mut parser: lexopt::Parser) -> Result<Option<std::path::PathBuf>, Failure> {
    let mut server = None;
    flags!(parser, { Long("server") => server = Some(parser.value()?.into()), });
    Ok(server)
}
