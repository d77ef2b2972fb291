//! A connection of a server with users, before it has said who it is. In memcached's protocol the
//! first request is `set` with any key, and `user password` as its value; everything else is
//! answered `CLIENT_ERROR unauthenticated`. In its binary protocol it is SASL ([`super::sasl`]). In
//! RESP it is `AUTH`, or `HELLO` with `AUTH`;
//! everything else is `NOAUTH`. Nothing else is parsed, nothing long is kept, and whoever is
//! refused [`REFUSED_MAX`] times is let go.
//!
//! Whoever has not said who it is for [`SECONDS_MAX`] is closed, whatever it sends, or else a byte
//! now and then would hold a connection for ever.
//!
//! Departs from memcached 1.6.45: it answers each of several such requests that come together
//! (memcached the last of them), and closes at last.

use super::gate::{Door, Verdict};
use super::heard::Heard;
use super::sasl;
use crate::access::recognise::{Beside, Recognised, recognise};
use crate::core::Core;
use crate::resp::request::{is_of_browser, refusal};
use crate::resp::session::{Said, auth, hello};
use crate::resp::state::{Dialect, Session, Spoken, Unproven};
use crate::resp::table::Command;
use crate::stream::connection::Connection;
use crate::stream::step::Stop;
use crate::stream::streams::Streams;
use laneway_sync::planted::{Bug, is_planted};
use laneway_transport::Transport;
use laneway_wire::login::{Login, TooLong, login};
use laneway_wire::resp::reply::{OK, put_simple};
use laneway_wire::resp::{Args, Scan, Scanned, transcribe};

/// Refused requests of one connection.
pub const REFUSED_MAX: u32 = 16;
/// How long a connection may take to say who it is, from its beginning or from `RESET`.
pub const SECONDS_MAX: u32 = 10;
/// Redis' bounds for who has not said who he is.
const ARGUMENTS_MAX: u32 = 10;
const BULK_BYTES_MAX: usize = 16 << 10;

const STORED: &[u8] = b"STORED\r\n";
const UNAUTHENTICATED: &[u8] = b"CLIENT_ERROR unauthenticated\r\n";
const FAILURE: &[u8] = b"CLIENT_ERROR authentication failure\r\n";
const BAD_FORM: &[u8] = b"CLIENT_ERROR bad authentication token format\r\n";
const BAD_END: &[u8] = b"CLIENT_ERROR bad command line termination\r\n";
const LIMITED: &[u8] =
    b"CLIENT_ERROR too many wrong passwords from this address; try again later\r\n";
const NO_AUTH: &[u8] = b"-NOAUTH Authentication required.\r\n";
const MANY_ARGUMENTS: &[u8] = b"-ERR Protocol error: unauthenticated multibulk length\r\n";
const LONG_ARGUMENT: &[u8] = b"-ERR Protocol error: unauthenticated bulk length\r\n";

/// What the input came to.
pub enum Outcome {
    /// More is needed.
    More,
    /// It is let go.
    Close,
    /// From here on it speaks this.
    Proven(Dialect),
}

impl Unproven {
    /// Judge what has arrived; `beside` is what may be spoken beside memcached's text. Returns the
    /// bytes that are done with.
    pub fn hear(
        &mut self,
        input: &[u8],
        (door, beside): (&Door<'_>, Beside),
        out: &mut Vec<u8>,
    ) -> (usize, Outcome) {
        let mut at = 0;
        loop {
            let rest = &input[at..];
            if let Spoken::Undecided = self.spoken {
                self.spoken = match recognise(rest, beside) {
                    Recognised::Unclear => return (at, Outcome::More),
                    Recognised::Memcached => Spoken::Memcached,
                    Recognised::Binary => Spoken::Binary { begun: false },
                    Recognised::Resp => Spoken::Resp(Box::default()),
                };
            }
            let heard = match &mut self.spoken {
                Spoken::Resp(session) => resp(session, rest, door, out),
                Spoken::Binary { begun } => sasl::hear(begun, rest, door, out),
                Spoken::Undecided | Spoken::Memcached => text(rest, door, out),
            };
            match heard {
                Heard::More => return (at, Outcome::More),
                Heard::Close => return (input.len(), Outcome::Close),
                Heard::Nothing(bytes) => at += bytes,
                Heard::Refused(bytes) => {
                    at += bytes;
                    self.refused += 1;
                    if self.refused == REFUSED_MAX {
                        return (input.len(), Outcome::Close);
                    }
                }
                Heard::Proven(bytes) => {
                    let dialect = match std::mem::replace(&mut self.spoken, Spoken::Undecided) {
                        Spoken::Resp(session) => Dialect::Resp(session),
                        Spoken::Binary { .. } => Dialect::Binary,
                        Spoken::Undecided | Spoken::Memcached => Dialect::Memcached,
                    };
                    return (at + bytes, Outcome::Proven(dialect));
                }
            }
        }
    }
}

/// memcached's protocol.
fn text(rest: &[u8], door: &Door<'_>, out: &mut Vec<u8>) -> Heard {
    let mut wrong = |words: &[u8]| {
        door.counters.auth_malformed.bump_owner();
        out.extend_from_slice(words);
    };
    match login(rest) {
        Ok(None) => Heard::More,
        Err(TooLong::Line) | Ok(Some(Login::Quit)) => Heard::Close,
        // Where the next request begins is far away.
        Err(TooLong::Value) => {
            wrong(BAD_FORM);
            Heard::Close
        }
        Ok(Some(Login::Nothing(bytes))) => Heard::Nothing(bytes),
        Ok(Some(Login::BadEnd(bytes))) => {
            wrong(BAD_END);
            Heard::Refused(bytes)
        }
        Ok(Some(Login::NoPassword(bytes))) => {
            wrong(BAD_FORM);
            Heard::Refused(bytes)
        }
        Ok(Some(Login::Other(bytes))) => {
            door.counters.auth_missing.bump_owner();
            out.extend_from_slice(UNAUTHENTICATED);
            Heard::Refused(bytes)
        }
        Ok(Some(Login::Pair { user, password, bytes })) => {
            let (heard, words) = match door.attempt(user, password) {
                Verdict::Right => (Heard::Proven(bytes), STORED),
                Verdict::Wrong => (Heard::Refused(bytes), FAILURE),
                Verdict::Limited => (Heard::Close, LIMITED),
            };
            out.extend_from_slice(words);
            heard
        }
    }
}

/// RESP.
fn resp(session: &mut Session, rest: &[u8], door: &Door<'_>, out: &mut Vec<u8>) -> Heard {
    if rest.is_empty() {
        return Heard::More;
    }
    let scanned = session.scan.advance(rest);
    if !matches!(scanned, Ok(Scanned::More)) {
        let announced = session.scan.announced();
        session.scan = Scan::default();
        return match scanned {
            Ok(Scanned::Whole(..)) if announced > ARGUMENTS_MAX => refuse(MANY_ARGUMENTS, out),
            Ok(Scanned::Whole(args, bytes)) => command(session, args, bytes, door, out),
            Ok(Scanned::Inline(line, bytes)) => inline(session, line, bytes, door, out),
            Ok(Scanned::Nothing(bytes)) => Heard::Nothing(bytes),
            Ok(Scanned::More) => Heard::More,
            Err(broken) => {
                broken.put(out);
                Heard::Close
            }
        };
    }
    let is_long = session.scan.pending(rest).is_some_and(|one| one.bytes > BULK_BYTES_MAX);
    match () {
        () if session.scan.announced() > ARGUMENTS_MAX => refuse(MANY_ARGUMENTS, out),
        () if is_long || rest.len() > 2 * BULK_BYTES_MAX => refuse(LONG_ARGUMENT, out),
        () => Heard::More,
    }
}

fn refuse(words: &[u8], out: &mut Vec<u8>) -> Heard {
    out.extend_from_slice(words);
    Heard::Close
}

/// A request that was written in line, of so many bytes.
fn inline(
    session: &mut Session,
    line: &[u8],
    bytes: usize,
    door: &Door<'_>,
    out: &mut Vec<u8>,
) -> Heard {
    let mut array = Vec::new();
    if transcribe(line, &mut array).is_err() {
        laneway_wire::resp::Broken::Quotes.put(out);
        return Heard::Close;
    }
    match Scan::default().advance(&array) {
        Ok(Scanned::Whole(args, _)) => command(session, args, bytes, door, out),
        _ => Heard::Nothing(bytes), // an empty line
    }
}

fn command(
    session: &mut Session,
    args: Args<'_>,
    bytes: usize,
    door: &Door<'_>,
    out: &mut Vec<u8>,
) -> Heard {
    let mut behind = args;
    let name = behind.next().unwrap_or_default();
    let spec = match refusal(name, args, behind) {
        Ok(spec) => spec,
        Err(_) if is_of_browser(name) => return Heard::Close,
        Err(words) => {
            out.extend_from_slice(&words);
            return Heard::Refused(bytes);
        }
    };
    let said = match spec.command {
        Command::Auth => auth(Some(door), behind, out),
        Command::Hello => hello(Some(door), false, (session, door.number), behind, out),
        Command::Reset => {
            *session = Session::default();
            put_simple(out, b"RESET");
            return Heard::Refused(bytes); // a loop of them ends
        }
        Command::Quit => {
            out.extend_from_slice(OK);
            return Heard::Close;
        }
        _ => {
            door.counters.auth_missing.bump_owner();
            out.extend_from_slice(NO_AUTH);
            return Heard::Refused(bytes);
        }
    };
    match said {
        Said::Proven => Heard::Proven(bytes),
        Said::Refused => Heard::Refused(bytes),
        Said::Limited => Heard::Close,
    }
}

impl<S> Connection<S> {
    /// Whether it has not said who it is, and had the time to. Whoever has begun anew (`RESET`) has
    /// it from the first time that this is asked.
    pub(crate) fn is_late(&mut self, now_seconds: u32) -> bool {
        if !matches!(self.dialect, Dialect::Unproven(_)) {
            return false;
        }
        let since = *self.unproven_since.get_or_insert(now_seconds);
        now_seconds.saturating_sub(since) > SECONDS_MAX
    }
}

impl<T: Transport> Streams<T> {
    /// Serve what stands in `input`, of who has not said who he is. Returns the bytes consumed and
    /// why it stopped.
    #[cold]
    #[inline(never)]
    pub(crate) fn consume_unproven(
        &mut self,
        core: &Core<T>,
        connection: &mut Connection<T::Stream>,
        input: &[u8],
    ) -> (usize, Stop) {
        let beside = core.shared.settings.beside();
        let Connection { dialect, card, .. } = connection;
        let (Dialect::Unproven(unproven), Some(door)) = (dialect, core.door(card)) else {
            unreachable!("only a server with users has such connections")
        };
        if is_planted(Bug::PasswordUnasked) && unproven.refused > 0 {
            connection.dialect = Dialect::Memcached;
            return (0, Stop::Quota);
        }
        let (taken, outcome) = unproven.hear(input, (&door, beside), &mut self.out);
        let stop = match outcome {
            Outcome::More => Stop::Starved,
            Outcome::Close => Stop::Close,
            Outcome::Proven(dialect) => {
                if let Dialect::Resp(session) = &dialect {
                    connection.card.set_name(&session.name);
                }
                connection.dialect = dialect;
                connection.unproven_since = None;
                // What stands behind it has a turn of its own.
                if taken == input.len() { Stop::Starved } else { Stop::Quota }
            }
        };
        (taken, stop)
    }
}

#[cfg(test)]
mod tests;
