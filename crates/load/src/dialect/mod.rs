//! How a request is written and a reply is read: memcached's text protocol or Redis' RESP.
//!
//! Only what a load generator sends is known here. A reply is a line, perhaps a value behind it,
//! and a fixed ending behind that; both dialects fit this shape, so the connection's reader is
//! written once. This is a client's reading of the wire: it believes nothing (an unexpected line is
//! an error, never skipped) and copies nothing.

pub mod resp;
pub mod text;

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
    /// Writes a GET.
    pub fn get(self, key: &[u8], out: &mut Vec<u8>) {
        match self {
            Dialect::Text => text::get(key, out),
            Dialect::Resp => resp::get(key, out),
        }
    }

    /// Writes a GET of `count` keys.
    pub fn get_many<K: AsRef<[u8]>>(
        self,
        count: usize,
        keys: impl Iterator<Item = K>,
        out: &mut Vec<u8>,
    ) {
        match self {
            Dialect::Text => text::get_many(keys, out),
            Dialect::Resp => resp::get_many(count, keys, out),
        }
    }

    /// Writes a removal.
    pub fn delete(self, key: &[u8], out: &mut Vec<u8>) {
        match self {
            Dialect::Text => text::delete(key, out),
            Dialect::Resp => resp::delete(key, out),
        }
    }

    /// Writes a SET up to its value; [`Dialect::SET_ENDING`] follows the value. It lives `ttl_s`
    /// seconds, or for ever where that is 0.
    pub fn set(self, key: &[u8], value_bytes: u64, ttl_s: u32, out: &mut Vec<u8>) {
        match self {
            Dialect::Text => text::set(key, value_bytes, ttl_s, out),
            Dialect::Resp => resp::set(key, value_bytes, ttl_s, out),
        }
    }

    /// What follows the value of a SET, the same in both.
    pub const SET_ENDING: &'static [u8] = b"\r\n";

    /// Reads a reply line, given with its newline.
    pub fn line(self, line: &[u8]) -> Line<'_> {
        match self {
            Dialect::Text => text::line(line),
            Dialect::Resp => resp::line(line),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_read_as_the_protocols_say() {
        let key = b"0123abcd";
        for (dialect, set) in [
            (Dialect::Text, "set 0123abcd 0 60 12\r\n"),
            (Dialect::Resp, "*4\r\n$5\r\nSETEX\r\n$8\r\n0123abcd\r\n$2\r\n60\r\n$12\r\n"),
        ] {
            let mut out = Vec::new();
            dialect.set(key, 12, 60, &mut out);
            assert_eq!(out, set.as_bytes());
        }
        for (dialect, many, delete) in [
            (Dialect::Text, "get 0123abcd xyz\r\n", "delete 0123abcd\r\n"),
            (
                Dialect::Resp,
                "*3\r\n$4\r\nMGET\r\n$8\r\n0123abcd\r\n$3\r\nxyz\r\n",
                "*2\r\n$3\r\nDEL\r\n$8\r\n0123abcd\r\n",
            ),
        ] {
            let mut out = Vec::new();
            dialect.get_many(2, [&key[..], b"xyz"].into_iter(), &mut out);
            assert_eq!(out, many.as_bytes());
            out.clear();
            dialect.delete(key, &mut out);
            assert_eq!(out, delete.as_bytes());
        }
        for (dialect, get, set) in [
            (Dialect::Text, "get 0123abcd\r\n", "set 0123abcd 0 0 12\r\n"),
            (
                Dialect::Resp,
                "*2\r\n$3\r\nGET\r\n$8\r\n0123abcd\r\n",
                "*3\r\n$3\r\nSET\r\n$8\r\n0123abcd\r\n$12\r\n",
            ),
        ] {
            let mut out = Vec::new();
            dialect.get(key, &mut out);
            assert_eq!(out, get.as_bytes());
            out.clear();
            dialect.set(key, 12, 0, &mut out);
            assert_eq!(out, set.as_bytes());
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
