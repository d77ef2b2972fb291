//! The Redis serialization protocol (RESP2 and RESP3): requests in, replies out, without copying a
//! key or a value.
//!
//! A request is an array of bulk strings, `*2\r\n$3\r\nGET\r\n$1\r\nk\r\n`, or an *inline command*,
//! which is a line of words. The length of every argument stands before it, so [`Scan`] tells the
//! size of a value before the value has arrived; but the options of a `SET` stand behind its value.
//! Whoever lets a large value stream to its place therefore reads the request in three steps: a
//! [`Scan`] up to the value ([`Scan::pending`]), the value, and a [`Scan::behind`] it for the rest.
//! [`Skip`] passes over what is left of a request that was refused.
//!
//! The words of the errors are those of Redis 7. It departs from Redis: a bulk string that is not
//! closed by `\r\n` is an error (Redis does not look), a header without its end is refused after
//! [`HEADER_BYTES_MAX`] bytes, and a request has at most [`ARGUMENTS_MAX`] arguments.
//!
//! It knows no command, no clock, no connection. Sizes are bytes.

mod args;
mod header;
mod inline;
pub mod reply;
mod scan;
mod skip;

pub use args::Args;
pub use inline::{Unbalanced, transcribe};
pub use scan::{Pending, Scan, Scanned};
pub use skip::Skip;

use crate::reply::Sink;

/// Longest inline command (Redis: `PROTO_INLINE_MAX_SIZE`).
pub const INLINE_BYTES_MAX: usize = 64 << 10;

/// Longest bulk string that a request may declare (Redis: `proto-max-bulk-len`, 512 MiB).
pub const BULK_BYTES_MAX: usize = 512 << 20;

/// Most arguments of a request, its name included (Redis before 7: the same).
pub const ARGUMENTS_MAX: u32 = 1 << 20;

/// Longest header of an array or a bulk string, newline included: a type, a number of 64 bits.
pub const HEADER_BYTES_MAX: usize = 1 + crate::reply::NUMBER_BYTES_MAX + 2;

/// The bytes behind a bulk string.
pub const BULK_END: &[u8] = b"\r\n";

/// The client does not speak the protocol: what it is told before its connection is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Broken {
    /// An array's header has no end.
    ArrayHeader,
    /// An array's length is no number, or too large a one.
    ArrayLength,
    /// A bulk string's header has no end.
    BulkHeader,
    /// A bulk string's length is no number, or too large a one.
    BulkLength,
    /// A bulk string should begin, and this byte stands there.
    NoBulk(u8),
    /// No `\r\n` stands behind a bulk string.
    BulkEnd,
    /// An inline command has no end.
    Inline,
    /// A quote of an inline command is not closed.
    Quotes,
}

impl Broken {
    /// Writes the error.
    pub fn put(self, sink: &mut impl Sink) {
        let words: &[u8] = match self {
            Broken::ArrayHeader => b"too big mbulk count string",
            Broken::ArrayLength => b"invalid multibulk length",
            Broken::BulkHeader => b"too big bulk count string",
            Broken::BulkLength => b"invalid bulk length",
            Broken::NoBulk(_) => b"expected '$', got '",
            Broken::BulkEnd => b"expected CRLF behind a bulk string",
            Broken::Inline => b"too big inline request",
            Broken::Quotes => b"unbalanced quotes in request",
        };
        sink.put(b"-ERR Protocol error: ");
        sink.put(words);
        if let Broken::NoBulk(byte) = self {
            let is_line_end = matches!(byte, b'\r' | b'\n');
            sink.put(&[if is_line_end { b' ' } else { byte }, b'\'']);
        }
        sink.put(b"\r\n");
    }
}

/// A number as Redis writes it, and no other way: no plus sign, no zero before other digits, no
/// space.
#[inline]
pub fn integer(text: &[u8]) -> Option<i64> {
    let (is_negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    let number = match digits {
        [b'0'] if !is_negative => return Some(0),
        [b'1'..=b'9', ..] => digits.iter().try_fold(0u64, |number, &digit| {
            let digit = digit.wrapping_sub(b'0');
            if digit > 9 {
                return None;
            }
            number.checked_mul(10)?.checked_add(u64::from(digit))
        })?,
        _ => return None,
    };
    match is_negative {
        false => i64::try_from(number).ok(),
        true => 0i64.checked_sub_unsigned(number),
    }
}
