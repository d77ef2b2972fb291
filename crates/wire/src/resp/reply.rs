//! Writing replies. RESP2 and RESP3 differ in a few types only; who writes one of those says for
//! which.

use crate::reply::{CRLF, NUMBER_BYTES_MAX, Sink, put_i64, put_u64};

/// Which version a connection speaks: it begins with the second and may ask for the third.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Version {
    /// RESP2.
    #[default]
    Two,
    /// RESP3.
    Three,
}

/// Done.
pub const OK: &[u8] = b"+OK\r\n";

/// Longest line that [`put_bulk_head`] writes.
pub const BULK_HEAD_BYTES_MAX: usize = 1 + NUMBER_BYTES_MAX + 2;

fn put_line(sink: &mut impl Sink, kind: u8, text: &[u8]) {
    sink.put(&[kind]);
    // A newline would end the reply early: it becomes a space, as in Redis.
    for piece in text.split_inclusive(|byte| matches!(byte, b'\r' | b'\n')) {
        match piece {
            [before @ .., b'\r' | b'\n'] => {
                sink.put(before);
                sink.put(b" ");
            }
            piece => sink.put(piece),
        }
    }
    sink.put(CRLF);
}

/// Writes a simple string.
pub fn put_simple(sink: &mut impl Sink, text: &[u8]) {
    put_line(sink, b'+', text);
}

/// Writes an error: `ERR what is wrong`.
pub fn put_error(sink: &mut impl Sink, text: &[u8]) {
    put_line(sink, b'-', text);
}

/// Writes an integer.
#[inline]
pub fn put_integer(sink: &mut impl Sink, number: i64) {
    sink.put(b":");
    put_i64(sink, number);
    sink.put(CRLF);
}

/// Writes the head of a bulk string: its bytes and [`CRLF`] come next.
#[inline]
pub fn put_bulk_head(sink: &mut impl Sink, bytes: usize) {
    put_head(sink, b'$', bytes);
}

/// Writes a bulk string.
#[inline]
pub fn put_bulk(sink: &mut impl Sink, text: &[u8]) {
    put_bulk_head(sink, text.len());
    sink.put(text);
    sink.put(CRLF);
}

/// Writes that there is no such value.
#[inline]
pub fn put_null(sink: &mut impl Sink, version: Version) {
    sink.put(match version {
        Version::Two => b"$-1\r\n",
        Version::Three => b"_\r\n",
    });
}

/// Writes the head of an array: so many replies come next.
pub fn put_array_head(sink: &mut impl Sink, count: usize) {
    put_head(sink, b'*', count);
}

/// Writes the head of a map: so many pairs of replies come next.
pub fn put_map_head(sink: &mut impl Sink, version: Version, pairs: usize) {
    match version {
        Version::Two => put_head(sink, b'*', 2 * pairs),
        Version::Three => put_head(sink, b'%', pairs),
    }
}

/// Writes the head of a set: so many replies come next.
pub fn put_set_head(sink: &mut impl Sink, version: Version, count: usize) {
    match version {
        Version::Two => put_head(sink, b'*', count),
        Version::Three => put_head(sink, b'~', count),
    }
}

/// Writes a text that people read.
pub fn put_verbatim(sink: &mut impl Sink, version: Version, text: &[u8]) {
    const KIND: &[u8] = b"txt:";
    match version {
        Version::Two => put_bulk(sink, text),
        Version::Three => {
            put_head(sink, b'=', KIND.len() + text.len());
            sink.put(KIND);
            sink.put(text);
            sink.put(CRLF);
        }
    }
}

#[inline]
fn put_head(sink: &mut impl Sink, kind: u8, number: usize) {
    sink.put(&[kind]);
    put_u64(sink, number as u64);
    sink.put(CRLF);
}
