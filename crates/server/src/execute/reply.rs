//! Pieces that replies are made of.

use laneway_sync::planted::{Bug, is_planted};
use laneway_wire::MetaKey;
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
