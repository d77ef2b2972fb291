//! Values of flags, as all commands of `laneway sim` take them.

use crate::sweep;

/// The value of a flag, as text.
pub(crate) fn text(parser: &mut lexopt::Parser, flag: &str) -> Result<String, String> {
    let value = parser.value().map_err(|error| error.to_string())?;
    value.into_string().map_err(|_| format!("{flag}: its value is not text"))
}

/// A whole number from `low` to `high`.
pub(crate) fn whole<T: TryFrom<u64>>(
    parser: &mut lexopt::Parser,
    flag: &str,
    low: u64,
    high: u64,
) -> Result<T, String> {
    let value = text(parser, flag)?;
    sweep::whole(&value, low, high).map_err(|error| format!("{flag} {value}: {error}"))
}

/// Any number from `low` to `high`.
pub(crate) fn number(
    parser: &mut lexopt::Parser,
    flag: &str,
    low: f64,
    high: f64,
) -> Result<f64, String> {
    let value = text(parser, flag)?;
    sweep::number(&value, low, high).map_err(|error| format!("{flag} {value}: {error}"))
}
