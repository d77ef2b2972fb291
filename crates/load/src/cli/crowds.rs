//! The flags of what changes while a run goes on.

use crate::arguments::number;
use crate::crowds::Crowds;
use lexopt::Parser;

/// Takes a flag's value, if the flag is one of these.
pub(super) fn flag(crowds: &mut Crowds, name: &str, parser: &mut Parser) -> Result<bool, String> {
    match name {
        "hot-shift" => crowds.shift_s = number(name, parser)?,
        "flash-share" => crowds.flash_share = number(name, parser)?,
        "flash-at" => crowds.flash_at_s = number(name, parser)?,
        "flash-for" => crowds.flash_for_s = number(name, parser)?,
        "write-keys" => crowds.write_keys = number(name, parser)?,
        "write-share" => crowds.write_share = number(name, parser)?,
        _ => return Ok(false),
    }
    Ok(true)
}
