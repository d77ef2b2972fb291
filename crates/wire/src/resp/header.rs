//! Parses the first line of an array or a bulk string: its type and its length.

use super::{BULK_BYTES_MAX, Broken, HEADER_BYTES_MAX, integer};
use crate::scan::find;

/// The number in the header at the front of `input`, behind its first byte, and the bytes of the
/// header; `Ok(None)` where it has not arrived whole, an error where it has no end or no number.
#[inline]
pub(super) fn header(input: &[u8]) -> Result<Option<(i64, usize)>, HeaderError> {
    match *input {
        [_, one @ b'0'..=b'9', b'\r', b'\n', ..] => Ok(Some((digits(&[one]), 4))),
        [_, ten @ b'1'..=b'9', one @ b'0'..=b'9', b'\r', b'\n', ..] => {
            Ok(Some((digits(&[ten, one]), 5)))
        }
        _ => longer_header(input),
    }
}

/// The number that is written so, of digits alone.
#[inline]
fn digits(text: &[u8]) -> i64 {
    text.iter().fold(0, |number, digit| number * 10 + i64::from(digit - b'0'))
}

/// What is not one of the short ones, as those of most requests are: names, keys.
fn longer_header(input: &[u8]) -> Result<Option<(i64, usize)>, HeaderError> {
    let seen = &input[..input.len().min(HEADER_BYTES_MAX)];
    let Some(newline) = find(seen, b'\n') else {
        let is_endless = seen.len() == HEADER_BYTES_MAX;
        return if is_endless { Err(HeaderError::Endless) } else { Ok(None) };
    };
    let number = seen[1..newline].strip_suffix(b"\r").and_then(integer);
    number.map(|number| Some((number, newline + 1))).ok_or(HeaderError::NoNumber)
}

/// What is wrong with a header.
pub(super) enum HeaderError {
    Endless,
    NoNumber,
}

/// The length in the header of a bulk string at the front of `input`, and the header's own.
#[inline]
pub(super) fn bulk_header(input: &[u8]) -> Result<Option<(usize, usize)>, Broken> {
    match input.first() {
        None => return Ok(None),
        Some(b'$') => {}
        Some(&byte) => return Err(Broken::NoBulk(byte)),
    }
    match header(input) {
        Ok(None) => Ok(None),
        Ok(Some((bytes, head_bytes))) => {
            let bytes = usize::try_from(bytes).ok().filter(|bytes| *bytes <= BULK_BYTES_MAX);
            Ok(Some((bytes.ok_or(Broken::BulkLength)?, head_bytes)))
        }
        Err(HeaderError::Endless) => Err(Broken::BulkHeader),
        Err(HeaderError::NoNumber) => Err(Broken::BulkLength),
    }
}
