//! What the command lines of `laneway bench` share: a flag's value, and the end of one that makes
//! no sense.

use lexopt::{Parser, ValueExt};
use std::fmt::Display;
use std::io::Write;
use std::ops::RangeInclusive;
use std::process::ExitCode;
use std::str::FromStr;

const USAGE_EXIT: u8 = 2;

/// The value of flag `name`, as text.
pub fn text(name: &str, parser: &mut Parser) -> Result<String, String> {
    let value = parser.value().map_err(|_| format!("--{name}: needs a value"))?;
    value.string().map_err(|_| format!("--{name}: the value is not text"))
}

/// The value of flag `name`, as a number.
pub fn number<T: FromStr>(name: &str, parser: &mut Parser) -> Result<T, String> {
    let value = text(name, parser)?;
    value.parse().map_err(|_| format!("--{name} {value}: not a number of the kind wanted"))
}

/// Refuses a value of flag `name` outside of what it takes.
pub fn within<T: PartialOrd + Display>(
    name: &str,
    value: T,
    range: RangeInclusive<T>,
) -> Result<(), String> {
    match range.contains(&value) {
        true => Ok(()),
        false => Err(format!("--{name} {value}: must be in {}..={}", range.start(), range.end())),
    }
}

/// Carries out `laneway COMMAND`, whose flags are read: prints its help where nothing else is asked
/// for, and tells a flag that makes no sense, or what went wrong. It may come to its end without
/// being good.
pub fn carry_out<T>(
    command: &str,
    help: &str,
    flags: Result<Option<T>, String>,
    carry_out: impl FnOnce(T) -> Result<bool, String>,
) -> ExitCode {
    let flags = match flags {
        Ok(Some(flags)) => flags,
        Ok(None) => {
            // Whoever closed the pipe has read enough.
            let _ = std::io::stdout().write_all(help.as_bytes());
            return ExitCode::SUCCESS;
        }
        Err(message) => {
            eprintln!("laneway {command}: {message}\ntry laneway {command} --help");
            return ExitCode::from(USAGE_EXIT);
        }
    };
    match carry_out(flags) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(message) => {
            eprintln!("laneway {command}: {message}");
            ExitCode::FAILURE
        }
    }
}
