//! What the command lines of this crate share: a flag's value, and the end of one that makes no
//! sense.

use lexopt::{Parser, ValueExt};
use std::process::ExitCode;
use std::str::FromStr;

const USAGE_EXIT: u8 = 2;

/// The value of flag `name`, as text.
pub(crate) fn text(name: &str, parser: &mut Parser) -> Result<String, String> {
    let value = parser.value().map_err(|_| format!("--{name}: needs a value"))?;
    value.string().map_err(|_| format!("--{name}: the value is not text"))
}

/// The value of flag `name`, as a number.
pub(crate) fn number<T: FromStr>(name: &str, parser: &mut Parser) -> Result<T, String> {
    let value = text(name, parser)?;
    value.parse().map_err(|_| format!("--{name} {value}: not a number of the kind wanted"))
}

/// Tells what is wrong with the command line of `laneway COMMAND`.
pub(crate) fn usage(command: &str, message: &str) -> ExitCode {
    eprintln!("laneway {command}: {message}\ntry laneway {command} --help");
    ExitCode::from(USAGE_EXIT)
}
