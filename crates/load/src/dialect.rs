//! How a request is written and a reply is read: memcached's text protocol, by the grammar that the
//! server uses too, or Redis' RESP, written by what the server writes its replies with.
//!
//! Only what a load generator sends is known here. A reply is a line, perhaps a value behind it,
//! and a fixed ending behind that; both dialects fit this shape, so the connection's reader is
//! written once. This is a client's reading of the wire: it believes nothing (an unexpected line is
//! an error, never skipped) and copies nothing.

use laneway_wire::answer::{Answer, parse_reply};
use laneway_wire::print::put_request;
use laneway_wire::resp::reply::{put_array_head, put_bulk, put_bulk_head};
use laneway_wire::scan::number_u64;
use laneway_wire::{Delete, Request, Store, StoreVerb};
use serde::{Deserialize, Serialize};

/// The language spoken with the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Dialect {
    /// memcached's text protocol.
    #[default]
    Text,
    /// The Redis serialization protocol, version 2.
    Resp,
}

/// What a reply line says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Line<'a> {
    /// A value of so many bytes follows, and then exactly this.
    Value {
        /// Bytes of the value.
        value_bytes: u64,
        /// The key that the line names, where the dialect repeats it.
        key: Option<&'a [u8]>,
        /// What ends the reply.
        ending: &'static [u8],
    },
    /// The key is not there.
    Miss,
    /// The value was stored.
    Stored,
    /// The key is gone now, or was not there.
    Deleted,
    /// Replies to so many keys follow.
    Many(u64),
    /// The server refused, in its own words.
    Refused(&'a [u8]),
    /// Not a line of this dialect.
    Nonsense,
}

impl Dialect {
    /// Writes a GET of `count` keys.
    pub fn get<K: AsRef<[u8]>>(
        self,
        count: usize,
        keys: impl Iterator<Item = K>,
        out: &mut Vec<u8>,
    ) {
        if self == Dialect::Resp {
            put_array_head(out, count + 1);
            put_bulk(out, if count == 1 { &b"GET"[..] } else { b"MGET" });
            return keys.for_each(|key| put_bulk(out, key.as_ref()));
        }
        out.extend_from_slice(b"get");
        for key in keys {
            out.push(b' ');
            out.extend_from_slice(key.as_ref());
        }
        out.extend_from_slice(b"\r\n");
    }

    /// Writes a removal.
    pub fn delete(self, key: &[u8], out: &mut Vec<u8>) {
        match self {
            Dialect::Text => put_request(out, &Request::Delete(Delete { key, noreply: false })),
            Dialect::Resp => {
                put_array_head(out, 2);
                put_bulk(out, b"DEL");
                put_bulk(out, key);
            }
        }
    }

    /// Writes a SET up to its value; [`Dialect::SET_ENDING`] follows the value. It lives `ttl_s`
    /// seconds, or for ever where that is 0.
    pub fn set(self, key: &[u8], value_bytes: u64, ttl_s: u32, out: &mut Vec<u8>) {
        let bytes = value_bytes as usize;
        if self == Dialect::Text {
            let (verb, exptime) = (StoreVerb::Set, i64::from(ttl_s));
            let set = Store { verb, key, flags: 0, exptime, value_bytes: bytes, noreply: false };
            return put_request(out, &Request::Store(set));
        }
        let verb: &[u8] = if ttl_s == 0 { b"SET" } else { b"SETEX" };
        put_array_head(out, if ttl_s == 0 { 3 } else { 4 });
        put_bulk(out, verb);
        put_bulk(out, key);
        if ttl_s > 0 {
            put_bulk(out, ttl_s.to_string().as_bytes());
        }
        put_bulk_head(out, bytes);
    }

    /// What follows the value of a SET, the same in both.
    pub const SET_ENDING: &'static [u8] = b"\r\n";

    /// Reads a reply line, given with its newline.
    pub fn line(self, line: &[u8]) -> Line<'_> {
        if self == Dialect::Text {
            return text_line(line);
        }
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
}

fn text_line(line: &[u8]) -> Line<'_> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_written_as_the_protocols_say() {
        let resp = "*3\r\n$4\r\nMGET\r\n$1\r\na\r\n$2\r\nbc\r\n\
                    *4\r\n$5\r\nSETEX\r\n$1\r\na\r\n$2\r\n60\r\n$12\r\n";
        for (dialect, text) in
            [(Dialect::Text, "get a bc\r\nset a 0 60 12\r\n"), (Dialect::Resp, resp)]
        {
            let mut out = Vec::new();
            dialect.get(2, ["a", "bc"].into_iter(), &mut out);
            dialect.set(b"a", 12, 60, &mut out);
            assert_eq!(String::from_utf8_lossy(&out), text);
        }
    }

    #[test]
    fn reply_lines_read_as_the_protocols_say() {
        let text = |value_bytes, key| Line::Value { value_bytes, key, ending: b"\r\nEND\r\n" };
        let resp = |value_bytes| Line::Value { value_bytes, key: None, ending: b"\r\n" };
        for (dialect, line, expected) in [
            (Dialect::Text, "VALUE k 0 12", text(12, Some(b"k" as &[u8]))),
            (Dialect::Text, "VALUE k 7 0", text(0, Some(b"k" as &[u8]))),
            (Dialect::Text, "END", Line::Miss),
            (Dialect::Text, "STORED", Line::Stored),
            (Dialect::Text, "ERROR", Line::Refused(b"ERROR")),
            (Dialect::Text, "SERVER_ERROR no", Line::Refused(b"SERVER_ERROR no")),
            (Dialect::Text, "CLIENT_ERROR no", Line::Refused(b"CLIENT_ERROR no")),
            (Dialect::Text, "NOT_STORED", Line::Refused(b"NOT_STORED")),
            (Dialect::Text, "DELETED", Line::Deleted),
            (Dialect::Text, "NOT_FOUND", Line::Deleted),
            (Dialect::Resp, ":0", Line::Deleted),
            (Dialect::Resp, "*50", Line::Many(50)),
            (Dialect::Resp, "*-1", Line::Nonsense),
            (Dialect::Text, "VALUE k 0", Line::Nonsense),
            (Dialect::Text, "VALUE k 0 x", Line::Nonsense),
            (Dialect::Text, "", Line::Nonsense),
            (Dialect::Resp, "$12", resp(12)),
            (Dialect::Resp, "$-1", Line::Miss),
            (Dialect::Resp, "+OK", Line::Stored),
            (Dialect::Resp, "-ERR no", Line::Refused(b"-ERR no")),
            (Dialect::Resp, "$x", Line::Nonsense),
            (Dialect::Resp, ":1", Line::Deleted),
            (Dialect::Resp, ":2", Line::Nonsense),
        ] {
            assert_eq!(dialect.line(format!("{line}\r\n").as_bytes()), expected, "{line}");
        }
    }
}
