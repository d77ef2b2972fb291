//! RESP, Redis' protocol, as a client: just GET, MGET, SET and DEL, written by what the server
//! writes its replies with.

use super::Line;
use laneway_wire::resp::reply::{put_array_head, put_bulk, put_bulk_head};
use laneway_wire::scan::number_u64;

/// Writes `GET`.
pub fn get(key: &[u8], out: &mut Vec<u8>) {
    put_words(&[b"GET", key], out);
}

/// Writes `MGET`.
pub fn get_many<K: AsRef<[u8]>>(count: usize, keys: impl Iterator<Item = K>, out: &mut Vec<u8>) {
    put_array_head(out, count + 1);
    put_bulk(out, b"MGET");
    keys.for_each(|key| put_bulk(out, key.as_ref()));
}

/// Writes `DEL`.
pub fn delete(key: &[u8], out: &mut Vec<u8>) {
    put_words(&[b"DEL", key], out);
}

fn put_words(words: &[&[u8]], out: &mut Vec<u8>) {
    put_array_head(out, words.len());
    words.iter().for_each(|word| put_bulk(out, word));
}

/// Writes `SET`, or `SETEX` where it expires, up to its value.
pub fn set(key: &[u8], value_bytes: u64, ttl_s: u32, out: &mut Vec<u8>) {
    if ttl_s == 0 {
        put_array_head(out, 3);
        put_bulk(out, b"SET");
        put_bulk(out, key);
    } else {
        put_array_head(out, 4);
        put_bulk(out, b"SETEX");
        put_bulk(out, key);
        put_bulk(out, ttl_s.to_string().as_bytes());
    }
    put_bulk_head(out, value_bytes as usize);
}

/// Reads a reply line, newline included.
pub fn line(line: &[u8]) -> Line<'_> {
    let line = line.trim_ascii_end();
    match line {
        b"+OK" => Line::Stored,
        b"$-1" => Line::Miss,
        b":0" | b":1" => Line::Deleted,
        [b'*', digits @ ..] => number_u64(digits).map_or(Line::Nonsense, Line::Many),
        [b'-', ..] => Line::Refused(line),
        [b'$', digits @ ..] => match number_u64(digits) {
            Some(value_bytes) => Line::Value { value_bytes, key: None, ending: b"\r\n" },
            None => Line::Nonsense,
        },
        _ => Line::Nonsense,
    }
}
