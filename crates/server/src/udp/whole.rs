//! A message of several frames is whole: it is served as any message is; a large value goes into
//! its item slice by slice.

use super::shared::LINE_BYTES_MAX;
use super::state::{At, From, Storing, UdpWorker};
use crate::core::Core;
use crate::execute;
use laneway_policy::ItemBytes;
use laneway_store::meter;
use laneway_transport::Transport;
use laneway_wire::reply::CRLF;
use laneway_wire::udp::frames::Message;
use laneway_wire::udp::reassembly::Whole;
use laneway_wire::{Frame, KEY_BYTES_MAX, Malformed, Then, parse};

/// Bytes of a message that is served at once: the longest line, and small values.
const AT_ONCE_BYTES_MAX: usize = LINE_BYTES_MAX + (64 << 10);

/// Where the first request of a message ends: with its value, as far as it says how long that is.
fn end_of_first(parsed: &Result<Option<Frame<'_>>, Malformed<'_>>) -> usize {
    match parsed {
        Ok(Some(frame)) => frame.head_bytes + execute::value_behind(&frame.request),
        // It has no end where the longest line would have one.
        Ok(None) => 0,
        Err(malformed) => match malformed.then {
            Then::Continue => malformed.head_bytes,
            Then::Swallow(bytes) => malformed.head_bytes + bytes,
            Then::Close => usize::MAX,
        },
    }
}

impl UdpWorker {
    /// A message is whole.
    pub(super) fn is_whole<T: Transport>(
        &mut self,
        core: &mut Core<T>,
        at: At<'_>,
        from: From,
        whole: Whole,
    ) {
        let parsed = parse(whole.piece(0), &core.limits);
        let is_long = AT_ONCE_BYTES_MAX < whole.message_bytes();
        if is_long && end_of_first(&parsed) < whole.message_bytes() {
            self.too_long(at, from, whole.digest(), whole.piece(0));
            return self.let_go(core, whole);
        }
        let head = match parsed {
            Ok(Some(frame)) => execute::value_bytes(&frame.request).map(|bytes| (frame, bytes)),
            _ => None,
        };
        let exact = |head: usize, value: usize| head + value + CRLF.len() == whole.message_bytes();
        match head {
            Some((frame, value_bytes)) if exact(frame.head_bytes, value_bytes) => {
                let mut scratch = [0; KEY_BYTES_MAX];
                let key = execute::key_of_store(&frame.request, &mut scratch);
                let size = key.len() + value_bytes;
                let size = ItemBytes(size as u64);
                // What is too long to be served at once goes the same way, small as it may count.
                if size >= core.plan.threshold || is_long {
                    let head_bytes = frame.head_bytes;
                    return self.large_value(core, at, from, whole, head_bytes);
                }
            }
            _ => {}
        }
        let digest = whole.digest();
        // What ends far behind is a value that is shorter than it says.
        let bytes = whole.front(AT_ONCE_BYTES_MAX);
        meter::bytes(bytes.len());
        self.message(core, at, from, digest, &bytes);
        drop(bytes);
        self.let_go(core, whole);
    }

    /// A message of at least so many bytes is longer than any that is put together: it is answered
    /// all the same, if the first request's line stands in its `front`. What is refused for its
    /// length takes the old item away as it does over a stream, and once.
    pub(super) fn is_too_long<T: Transport>(
        &mut self,
        core: &mut Core<T>,
        at: At<'_>,
        from: From,
        front: &[u8],
        bytes_least: usize,
    ) {
        let parsed = parse(front, &core.limits);
        let digest = at.shared.digest(0, front);
        match &parsed {
            Ok(None) => {} // nobody knows what it was to be
            Err(_) if bytes_least <= end_of_first(&parsed) => {
                self.message(core, at, from, digest, front);
            }
            Ok(Some(_)) | Err(_) => self.too_long(at, from, digest, front),
        }
    }

    /// A large value: into its item, slice by slice. Whose item it is executes it then.
    fn large_value<T: Transport>(
        &mut self,
        core: &mut Core<T>,
        at: At<'_>,
        mut from: From,
        message: Whole,
        head_bytes: usize,
    ) {
        if !self.is_first(at, &mut from, message.digest(), || false) {
            return self.let_go(core, message);
        }
        if !self.may_store(message.message_bytes()) {
            at.has_no_room(&from.to, from.arrived_nanos);
            return self.let_go(core, message);
        }
        let incoming = {
            let Ok(Some(frame)) = parse(message.piece(0), &core.limits) else { return };
            let batch = &mut self.batches[from.queue()];
            batch.begin();
            let mut scratch = [0; KEY_BYTES_MAX];
            let key = execute::key_of_store(&frame.request, &mut scratch);
            execute::begin(&core.context_for(key), &frame.request, batch.out())
        };
        match incoming {
            Some(incoming) => {
                self.batches[from.queue()].abandon();
                let incoming = Box::new(incoming);
                self.storing_bytes += message.memory_bytes();
                self.storing.push_back(Storing { from, message, at: head_bytes, incoming });
            }
            None => {
                at.counts.requests.add_owner(1);
                self.end_reply(at, &mut from); // refused, and says so
                self.let_go(core, message);
            }
        }
    }

    /// Give a message back. One that was lent lies in one piece, however long it is, into which the
    /// next one may be copied.
    pub(super) fn let_go<T: Transport>(&mut self, core: &Core<T>, message: Whole) {
        let store = &core.shared.store;
        message.into_pieces().into_iter().for_each(|piece| self.spare.keep(store, piece));
    }
}
