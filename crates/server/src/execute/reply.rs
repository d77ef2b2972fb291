//! Pieces that replies are made of.

use super::attempts::TOO_MANY;
use laneway_sync::planted::{Bug, is_planted};
use laneway_wire::MetaKey;
use laneway_wire::binary::Echo;
use laneway_wire::binary::reply::{Status, put};
use laneway_wire::reply::{Sink, put_flag, put_flag_bare};
use laneway_wire::scan::Tokens;

/// Append `line` unless the client wants no answer.
pub(super) fn unless(noreply: bool, line: &[u8], out: &mut Vec<u8>) {
    if !noreply || is_planted(Bug::NoreplyAnswered) {
        out.extend_from_slice(line);
    }
}

/// Append ` k` and the key as sent, and ` b` where it was sent as base64.
pub(super) fn meta_key(key: &MetaKey<'_>, out: &mut impl Sink) {
    put_flag_bare(out, b'k');
    out.put(key.token);
    if key.base64 {
        put_flag_bare(out, b'b');
    }
}

/// Append ` t` and the seconds left, -1 for ever.
pub(super) fn meta_time_left(seconds: Option<u32>, out: &mut impl Sink) {
    match seconds {
        Some(seconds) => put_flag(out, b't', seconds.into()),
        None => out.put(b" t-1"),
    }
}

/// Append what replies without an item return: the opaque and the key, in the order asked for.
pub(super) fn meta_echo(key: &MetaKey<'_>, flags: &[u8], out: &mut Vec<u8>) {
    for token in Tokens::new(flags) {
        match token[0] {
            b'O' => opaque(token, out),
            b'k' => meta_key(key, out),
            _ => {}
        }
    }
}

/// Append the opaque as sent.
pub(super) fn opaque(token: &[u8], out: &mut impl Sink) {
    out.put(b" ");
    out.put(token);
}

/// Append, by the binary protocol, that others changed the item all the time.
pub(super) fn binary_too_many(echo: Echo, out: &mut Vec<u8>) {
    put(out, echo, Status::Busy, b"", words_of(TOO_MANY));
}

/// An error of the text protocol without what its line begins and ends with.
pub(super) fn words_of(line: &[u8]) -> &[u8] {
    let line = line.strip_suffix(b"\r\n").unwrap_or(line);
    let begins = [&b"SERVER_ERROR "[..], b"CLIENT_ERROR ", b"ERROR "];
    begins.iter().find_map(|begin| line.strip_prefix(*begin)).unwrap_or(line)
}
