//! memcached's text protocol, as a client: written and read by the grammar that the server uses
//! too.

use super::Line;
use laneway_wire::answer::{Answer, parse_reply};
use laneway_wire::print::put_request;
use laneway_wire::{Delete, Get, GetVerb, Keys, Request, Store, StoreVerb};

/// Writes `get`.
pub fn get(key: &[u8], out: &mut Vec<u8>) {
    let get = Get { verb: GetVerb::Get, exptime: 0, keys: Keys::new(key) };
    put_request(out, &Request::Get(get));
}

/// Writes `get` of several keys.
pub fn get_many<K: AsRef<[u8]>>(keys: impl Iterator<Item = K>, out: &mut Vec<u8>) {
    out.extend_from_slice(b"get");
    for key in keys {
        out.push(b' ');
        out.extend_from_slice(key.as_ref());
    }
    out.extend_from_slice(b"\r\n");
}

/// Writes `delete`.
pub fn delete(key: &[u8], out: &mut Vec<u8>) {
    put_request(out, &Request::Delete(Delete { key, noreply: false }));
}

/// Writes the line of `set`: no client flags.
pub fn set(key: &[u8], value_bytes: u64, ttl_s: u32, out: &mut Vec<u8>) {
    let set = Store {
        verb: StoreVerb::Set,
        key,
        flags: 0,
        exptime: i64::from(ttl_s),
        value_bytes: value_bytes as usize,
        noreply: false,
    };
    put_request(out, &Request::Store(set));
}

/// Reads a reply line, newline included.
pub fn line(line: &[u8]) -> Line<'_> {
    let Ok(Some(frame)) = parse_reply(line) else { return Line::Nonsense };
    match frame.answer {
        Answer::Value(value) => Line::Value {
            value_bytes: value.value_bytes as u64,
            key: Some(value.key),
            ending: b"\r\nEND\r\n",
        },
        Answer::End => Line::Miss,
        Answer::Stored => Line::Stored,
        Answer::Deleted | Answer::NotFound => Line::Deleted,
        Answer::NotStored => Line::Refused(b"NOT_STORED"),
        answer if answer.is_error() => Line::Refused(line.trim_ascii_end()),
        _ => Line::Nonsense,
    }
}
