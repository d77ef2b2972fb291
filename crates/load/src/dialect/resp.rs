//! RESP, Redis' protocol, as a client: just GET and SET.

use super::{Line, decimal, push_decimal};
use crate::workload::KEY_BYTES;

// Every key has the same length, so the lines in front of it are constants.
const _: () = assert!(KEY_BYTES == 8);

/// Writes `GET`.
pub fn get(key: &[u8; KEY_BYTES], out: &mut Vec<u8>) {
    out.extend_from_slice(b"*2\r\n$3\r\nGET\r\n$8\r\n");
    out.extend_from_slice(key);
    out.extend_from_slice(b"\r\n");
}

/// Writes `SET` up to its value.
pub fn set(key: &[u8; KEY_BYTES], value_bytes: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(b"*3\r\n$3\r\nSET\r\n$8\r\n");
    out.extend_from_slice(key);
    out.extend_from_slice(b"\r\n$");
    push_decimal(value_bytes, out);
    out.extend_from_slice(b"\r\n");
}

/// Reads a reply line, newline included.
pub fn line(line: &[u8]) -> Line<'_> {
    let line = line.trim_ascii_end();
    match line {
        b"+OK" => Line::Stored,
        b"$-1" => Line::Miss,
        [b'-', ..] => Line::Refused(line),
        [b'$', digits @ ..] => match decimal(digits) {
            Some(value_bytes) => Line::Value { value_bytes, key: None, ending: b"\r\n" },
            None => Line::Nonsense,
        },
        _ => Line::Nonsense,
    }
}
