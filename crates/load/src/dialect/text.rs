//! memcached's text protocol, as a client: written and read by the grammar that the server uses
//! too.

use super::Line;
use crate::workload::KEY_BYTES;
use laneway_wire::answer::{Answer, parse_reply};
use laneway_wire::print::put_request;
use laneway_wire::{Get, GetVerb, Keys, Request, Store, StoreVerb};

/// Writes `get`.
pub fn get(key: &[u8; KEY_BYTES], out: &mut Vec<u8>) {
    let get = Get { verb: GetVerb::Get, exptime: 0, keys: Keys::new(key) };
    put_request(out, &Request::Get(get));
}

/// Writes the line of `set`: no client flags, no expiry.
pub fn set(key: &[u8; KEY_BYTES], value_bytes: u64, out: &mut Vec<u8>) {
    let set = Store {
        verb: StoreVerb::Set,
        key,
        flags: 0,
        exptime: 0,
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
        Answer::NotStored => Line::Refused(b"NOT_STORED"),
        answer if answer.is_error() => Line::Refused(line.trim_ascii_end()),
        _ => Line::Nonsense,
    }
}
