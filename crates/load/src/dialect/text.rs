//! memcached's text protocol, as a client.

use super::{Line, decimal, push_decimal};
use crate::workload::KEY_BYTES;

/// Writes `get`.
pub fn get(key: &[u8; KEY_BYTES], out: &mut Vec<u8>) {
    out.extend_from_slice(b"get ");
    out.extend_from_slice(key);
    out.extend_from_slice(b"\r\n");
}

/// Writes the line of `set`: no client flags, no expiry.
pub fn set(key: &[u8; KEY_BYTES], value_bytes: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(b"set ");
    out.extend_from_slice(key);
    out.extend_from_slice(b" 0 0 ");
    push_decimal(value_bytes, out);
    out.extend_from_slice(b"\r\n");
}

/// Reads a reply line.
pub fn line(line: &[u8]) -> Line<'_> {
    match line {
        b"END" => Line::Miss,
        b"STORED" => Line::Stored,
        [b'V', b'A', b'L', b'U', b'E', b' ', rest @ ..] => value(rest),
        b"ERROR" | b"NOT_STORED" => Line::Refused(line),
        _ if line.starts_with(b"SERVER_ERROR") || line.starts_with(b"CLIENT_ERROR") => {
            Line::Refused(line)
        }
        _ => Line::Nonsense,
    }
}

/// Reads `key flags bytes`.
fn value(rest: &[u8]) -> Line<'_> {
    let mut words = rest.split(|&byte| byte == b' ');
    let (Some(key), Some(flags), Some(bytes), None) =
        (words.next(), words.next(), words.next(), words.next())
    else {
        return Line::Nonsense;
    };
    match (decimal(flags), decimal(bytes)) {
        (Some(_), Some(value_bytes)) => {
            Line::Value { value_bytes, key: Some(key), ending: b"\r\nEND\r\n" }
        }
        _ => Line::Nonsense,
    }
}
