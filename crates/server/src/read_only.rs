//! What a connection may not ask that came by a read-only port (`-l readonly:ADDRESS`): whatever
//! changes an item, or the server. It is refused in the words of its protocol, the value behind it
//! is read over, and the connection goes on. (RESP has its commands in a table that says which of
//! them write: `resp::request`.)
//!
//! Such a connection is served without what is for many requests together, rows of `get`s and
//! batches of the durable executor, so that each of its requests passes here.

use crate::binary::value::pass_over;
use crate::connection::{Connection, Mode};
use crate::core::Core;
use crate::requests::{key_of, writes};
use crate::stats::{self, Question};
use crate::step::Step;
use crate::streams::Streams;
use laneway_sync::planted::{Bug, is_planted};
use laneway_transport::Transport;
use laneway_wire::binary::reply::{Status, put_error};
use laneway_wire::limits::VALUE_END_BYTES;
use laneway_wire::{Frame, KEY_BYTES_MAX, Request, binary};

/// The text protocol's words, those of meta commands too.
const READ_ONLY: &[u8] = b"CLIENT_ERROR this port is read-only\r\n";

impl<T: Transport> Streams<T> {
    /// Refuse the request at the front of the input, if a read-only connection may not ask it.
    #[cold]
    pub(crate) fn refuse_write(
        &mut self,
        core: &Core<T>,
        connection: &mut Connection<T::Stream>,
        frame: &Frame<'_>,
    ) -> Option<Step> {
        let refused = judge(&frame.request).filter(|_| !is_planted(Bug::ReadOnlyWrites))?;
        core.counters().refused_read_only.bump_owner();
        if !refused.quiet {
            self.out.extend_from_slice(READ_ONLY);
        }
        if let Some(value_bytes) = refused.value_bytes {
            connection.mode = Mode::Swallow((value_bytes + VALUE_END_BYTES) as u64);
        }
        Some(Step::Took(frame.head_bytes))
    }

    /// The same by the binary protocol.
    #[cold]
    pub(crate) fn refuse_binary_write(
        &mut self,
        core: &Core<T>,
        connection: &mut Connection<T::Stream>,
        frame: &binary::Frame<'_>,
    ) -> Option<Step> {
        if !changes(&frame.request) {
            return None;
        }
        core.counters().refused_read_only.bump_owner();
        put_error(&mut self.out, frame.echo, Status::NotSupported);
        Some(pass_over(connection, frame))
    }
}

/// A request that is refused.
struct Refused {
    /// Its client wants no reply, and would take one for that to its next request.
    quiet: bool,
    /// The length of the value behind it, where it has one.
    value_bytes: Option<usize>,
}

/// `None`: it changes nothing.
fn judge(request: &Request<'_>) -> Option<Refused> {
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
        Request::Stats(_) | Request::Shutdown(_) | Request::Admin(_) => false,
        Request::FlushAll { noreply, .. }
        | Request::Verbosity { noreply, .. }
        | Request::MemoryLimit { noreply, .. } => *noreply,
    };
    Some(Refused { quiet, value_bytes })
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
