//! Who a client is, by SASL in memcached's binary protocol (its `-S`): the mechanism is PLAIN
//! (RFC 4616), and the users are those of `-Y`. Before that the version and the list of mechanisms
//! are told, and the connection may be closed; everything else is `Auth failure.` and ends the
//! connection, as in memcached.
//!
//! Departs from memcached: `QUIT` is answered; a message of more than [`MESSAGE_BYTES_MAX`] bytes
//! is an error at once; an authorization identity other than the user's own is refused, since
//! nobody may act for another.

use super::gate::{Door, Verdict};
use super::heard::Heard;
use crate::execute::VERSION;
use laneway_wire::binary::reply::{Status, put, put_done, put_error};
use laneway_wire::binary::{Frame, Request, parse};

/// The mechanisms.
const MECHANISMS: &[u8] = b"PLAIN";
/// Longest message of PLAIN: three texts of 255 bytes, and the zeroes between them.
pub const MESSAGE_BYTES_MAX: usize = 3 * 255 + 2;

/// Judge the request at the front of `rest`. `begun`: the mechanism has begun without a message,
/// which comes in a step of its own.
pub(super) fn hear(begun: &mut bool, rest: &[u8], door: &Door<'_>, out: &mut Vec<u8>) -> Heard {
    let frame = match parse(rest) {
        Ok(Some(frame)) => frame,
        Ok(None) => return Heard::More,
        Err(broken) => {
            door.counters.auth_malformed.bump_owner();
            broken.put(out);
            return Heard::Close;
        }
    };
    let bytes = frame.bytes();
    match frame.request {
        Request::Sasl { goes_on, mechanism } => {
            if frame.value_bytes > MESSAGE_BYTES_MAX {
                door.counters.auth_malformed.bump_owner();
                put_error(out, frame.echo, Status::Invalid);
                return Heard::Close;
            }
            let Some(message) = rest[frame.head_bytes..].get(..frame.value_bytes) else {
                return Heard::More;
            };
            let is_known = mechanism == MECHANISMS && (!goes_on || *begun);
            *begun = false;
            if !is_known {
                return refuse(&frame, door, out);
            }
            if message.is_empty() && !goes_on {
                *begun = true;
                put(out, frame.echo, Status::GoesOn, b"", b"");
                return Heard::Refused(bytes); // a loop of them ends
            }
            plain(&frame, message, door, out)
        }
        Request::SaslList => {
            put(out, frame.echo, Status::Done, b"", MECHANISMS);
            Heard::Refused(bytes)
        }
        Request::Version => {
            put(out, frame.echo, Status::Done, b"", VERSION.as_bytes());
            Heard::Refused(bytes)
        }
        Request::Quit => {
            if !frame.quiet {
                put_done(out, frame.echo, 0);
            }
            Heard::Close
        }
        _ => {
            door.counters.auth_missing.bump_owner();
            put_error(out, frame.echo, Status::Refused);
            Heard::Close
        }
    }
}

/// What is not PLAIN, or not as it has to be.
fn refuse(frame: &Frame<'_>, door: &Door<'_>, out: &mut Vec<u8>) -> Heard {
    door.counters.auth_malformed.bump_owner();
    put_error(out, frame.echo, Status::Refused);
    Heard::Refused(frame.bytes())
}

/// A message of PLAIN: for whom he acts, the user, the password.
fn plain(frame: &Frame<'_>, message: &[u8], door: &Door<'_>, out: &mut Vec<u8>) -> Heard {
    let mut parts = message.splitn(3, |byte| *byte == 0);
    let (Some(whom), Some(user), Some(password)) = (parts.next(), parts.next(), parts.next())
    else {
        return refuse(frame, door, out);
    };
    if !whom.is_empty() && whom != user {
        return refuse(frame, door, out);
    }
    match door.attempt(user, password) {
        Verdict::Right => {
            put(out, frame.echo, Status::Done, b"", b"Authenticated");
            Heard::Proven(frame.bytes())
        }
        Verdict::Wrong => {
            put_error(out, frame.echo, Status::Refused);
            Heard::Refused(frame.bytes())
        }
        Verdict::Limited => {
            put_error(out, frame.echo, Status::Refused);
            Heard::Close
        }
    }
}
