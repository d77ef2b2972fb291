//! RESP, Redis' protocol, as a client: just GET, MGET, SET and DEL.

use super::{Line, decimal, push_decimal};

/// Writes `GET`.
pub fn get(key: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(b"*2\r\n$3\r\nGET");
    push_word(key, out);
    out.extend_from_slice(b"\r\n");
}

/// Writes `MGET`.
pub fn get_many<K: AsRef<[u8]>>(count: usize, keys: impl Iterator<Item = K>, out: &mut Vec<u8>) {
    out.push(b'*');
    push_decimal(count as u64 + 1, out);
    out.extend_from_slice(b"\r\n$4\r\nMGET");
    keys.for_each(|key| push_word(key.as_ref(), out));
    out.extend_from_slice(b"\r\n");
}

/// Writes `DEL`.
pub fn delete(key: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(b"*2\r\n$3\r\nDEL");
    push_word(key, out);
    out.extend_from_slice(b"\r\n");
}

/// The next word and its length, behind the end of the line before.
fn push_word(word: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(b"\r\n$");
    push_decimal(word.len() as u64, out);
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(word);
}

/// Writes `SET`, or `SETEX` where it expires, up to its value.
pub fn set(key: &[u8], value_bytes: u64, ttl_s: u32, out: &mut Vec<u8>) {
    if ttl_s == 0 {
        out.extend_from_slice(b"*3\r\n$3\r\nSET");
        push_word(key, out);
    } else {
        out.extend_from_slice(b"*4\r\n$5\r\nSETEX");
        push_word(key, out);
        push_word(ttl_s.to_string().as_bytes(), out);
    }
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
        b":0" | b":1" => Line::Deleted,
        [b'*', digits @ ..] => decimal(digits).map_or(Line::Nonsense, Line::Many),
        [b'-', ..] => Line::Refused(line),
        [b'$', digits @ ..] => match decimal(digits) {
            Some(value_bytes) => Line::Value { value_bytes, key: None, ending: b"\r\n" },
            None => Line::Nonsense,
        },
        _ => Line::Nonsense,
    }
}
