//! What a connection may not ask that came by a read-only port (`-l readonly:ADDRESS`): whatever
//! changes an item, or the server. It is refused in the words of its protocol, the value behind it
//! is read over, and the connection goes on. (RESP has its commands in a table that says which of
//! them write: `resp::request`. A read that marks its item is executed without the mark: see
//! [`crate::execute::Context`].)
//!
//! Such a connection is served without what is for many requests together, rows of `get`s and
//! batches of the durable executor, so that each of its requests passes here. Others never do.

use crate::binary::consume::Binary;
use crate::binary::value::pass_over;
use crate::core::Core;
use crate::event_log::asked;
use crate::request::dispatch::Text;
use crate::request::requests::{key_of, writes};
use crate::stats::{self, Question};
use crate::stream::connection::{Connection, Mode};
use crate::stream::protocol::{Protocol, Quota};
use crate::stream::step::Step;
use crate::stream::streams::Streams;
use laneway_sync::planted::{Bug, is_planted};
use laneway_transport::Transport;
use laneway_wire::binary::reply::{Status, put_error};
use laneway_wire::limits::VALUE_END_BYTES;
use laneway_wire::{KEY_BYTES_MAX, Limits, Malformed, Request, Then, binary, parse};

/// The text protocol's words, those of meta commands too.
const READ_ONLY: &[u8] = b"CLIENT_ERROR this port is read-only\r\n";

/// memcached's text protocol at such a port.
pub(crate) struct ReadOnlyText;

impl<T: Transport> Protocol<T> for ReadOnlyText {
    fn step(
        streams: &mut Streams<T>,
        core: &mut Core<T>,
        connection: &mut Connection<T::Stream>,
        rest: &[u8],
        quota: &mut Quota,
    ) -> Step {
        if matches!(connection.mode, Mode::Requests)
            && let Some(refused) = judge(rest, &core.limits)
            && !is_planted(Bug::ReadOnlyWrites)
        {
            quota.begun += 1;
            core.counters().refused_read_only.bump_owner();
            if !refused.quiet {
                streams.out.extend_from_slice(READ_ONLY);
            }
            if refused.behind > 0 {
                connection.mode = Mode::Swallow(refused.behind as u64);
            }
            return Step::Took(refused.head_bytes);
        }
        alone(quota, |quota| Text::step(streams, core, connection, rest, quota))
    }
}

/// memcached's binary protocol at such a port.
pub(crate) struct ReadOnlyBinary;

impl<T: Transport> Protocol<T> for ReadOnlyBinary {
    fn step(
        streams: &mut Streams<T>,
        core: &mut Core<T>,
        connection: &mut Connection<T::Stream>,
        rest: &[u8],
        quota: &mut Quota,
    ) -> Step {
        if matches!(connection.mode, Mode::Requests)
            && let Ok(Some(frame)) = binary::parse(rest)
            && changes(&frame.request)
        {
            quota.begun += 1;
            core.counters().refused_read_only.bump_owner();
            put_error(&mut streams.out, frame.echo, Status::NotSupported);
            return pass_over(connection, &frame);
        }
        alone(quota, |quota| Binary::step(streams, core, connection, rest, quota))
    }
}

/// One step with room for one request: what stands behind it is judged before it is served.
fn alone(quota: &mut Quota, step: impl FnOnce(&mut Quota) -> Step) -> Step {
    let mut one = Quota { begun: quota.begun, ..Quota::of(quota.begun + 1) };
    let step = step(&mut one);
    quota.begun = one.begun;
    step
}

/// A request that is refused.
struct Refused {
    /// Its client wants no reply, and would take one for that to its next request.
    quiet: bool,
    /// Bytes of its line.
    head_bytes: usize,
    /// Bytes of the value behind it, with their end.
    behind: usize,
}

/// The request at the front of `rest`, if it is refused.
fn judge(rest: &[u8], limits: &Limits) -> Option<Refused> {
    match parse(rest, limits) {
        Ok(Some(frame)) => {
            let (quiet, value_bytes) = judge_request(&frame.request)?;
            let behind = value_bytes.map_or(0, |bytes| bytes + VALUE_END_BYTES);
            Some(Refused { quiet, head_bytes: frame.head_bytes, behind })
        }
        // A value that is too long would take the item before it away.
        Err(Malformed { reply, head_bytes, then: Then::Swallow(behind), unlink: Some(_) }) => {
            Some(Refused { quiet: reply.is_empty(), head_bytes, behind })
        }
        Ok(None) | Err(_) => None,
    }
}

/// `None`: it changes nothing. Else whether its client wants no reply, and the length of the value
/// behind it.
fn judge_request(request: &Request<'_>) -> Option<(bool, Option<usize>)> {
    let mut value_bytes = None;
    let quiet = match request {
        Request::Get(get) if writes(get.verb) => false,
        Request::Get(_) | Request::MetaNoop | Request::Version | Request::Quit => return None,
        Request::Store(store) => {
            value_bytes = Some(store.value_bytes);
            store.noreply
        }
        Request::MetaSet(set) => {
            value_bytes = Some(set.value_bytes);
            false
        }
        Request::Arith(arith) => arith.noreply,
        Request::Delete(delete) => delete.noreply,
        Request::Touch(touch) => touch.noreply,
        Request::MetaGet(_)
        | Request::MetaDebug(_)
        | Request::MetaDelete(_)
        | Request::MetaArith(_) => {
            let (_, changes) = key_of(request, &mut [0; KEY_BYTES_MAX])?;
            if !changes {
                return None;
            }
            false
        }
        Request::Stats(words) if !changes_statistics(words) => return None,
        Request::Admin(line) if stats::asked_dump(line).is_some() => return None,
        Request::Admin(line) if asked::asked(line).is_some() => return None,
        Request::Stats(_) | Request::Shutdown(_) | Request::Admin(_) => false,
        Request::FlushAll { noreply, .. }
        | Request::Verbosity { noreply, .. }
        | Request::MemoryLimit { noreply, .. } => *noreply,
    };
    Some((quiet, value_bytes))
}

fn changes_statistics(words: &[u8]) -> bool {
    matches!(stats::question(words), Ok(Question::Reset | Question::Detail(_)))
}

/// Whether a request of the binary protocol changes an item, or the server.
fn changes(request: &binary::Request<'_>) -> bool {
    use binary::Request::{
        Arith, Delete, Flush, Get, Join, Noop, Quit, Sasl, SaslList, Stat, Store, Touch, Unknown,
        Verbosity, Version,
    };
    match request {
        Get(get) => get.touch.is_some(),
        Stat { name } => changes_statistics(name),
        Store(_) | Join { .. } | Arith(_) | Delete { .. } | Touch { .. } | Flush { .. } => true,
        Verbosity { .. } => true,
        Noop | Version | Quit | SaslList | Sasl { .. } | Unknown => false,
    }
}
