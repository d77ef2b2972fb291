//! From bytes to requests, and for each request: who serves it? For a write the size is in the
//! request; for a read it is found by looking the item up (Minos §3.1). Below the threshold: here
//! and now. At or above it the turn stops: the connection gets in line for slices, or moves.

use crate::core::Core;
use crate::durable::shared::EXECUTOR;
use crate::execute;
use crate::latency::Operation;
use crate::stream::connection::{Connection, Mode};
use crate::stream::protocol::{Protocol, Quota};
use crate::stream::step::{READ_BYTES, Step, Stop};
use crate::stream::streams::Streams;
use laneway_policy::pace::Way;
use laneway_policy::{Design, ItemBytes, Route, route};
use laneway_sync::planted::{Bug, is_planted};
use laneway_transport::Transport;
use laneway_wire::reply::NO_BINARY;
use laneway_wire::{Frame, KEY_BYTES_MAX, Malformed, Request, Then, parse};
use std::sync::Once;

/// The end of a value on the wire.
const VALUE_END: &[u8] = b"\r\n";

/// memcached's text protocol.
pub(crate) struct Text;

impl<T: Transport> Protocol<T> for Text {
    #[inline]
    fn step(
        streams: &mut Streams<T>,
        core: &mut Core<T>,
        connection: &mut Connection<T::Stream>,
        rest: &[u8],
        quota: &mut Quota,
    ) -> Step {
        let step = match &connection.mode {
            Mode::Requests => return streams.request(core, connection, rest, quota),
            Mode::Batches { .. } if is_planted(Bug::ReadOvertakes) && rest.starts_with(b"mg ") => {
                return streams.request(core, connection, rest, quota);
            }
            Mode::Batches { .. } => {
                let step = streams.batch(core, connection, rest);
                step.unwrap_or(Step::Stop(0, Stop::Ticket))
            }
            Mode::Keys { verb, exptime, line_bytes } => {
                let (verb, exptime, line_bytes) = (*verb, *exptime, *line_bytes);
                streams.keys(core, connection, verb, exptime, &rest[..line_bytes])
            }
            Mode::Body(_) => streams.body(core, connection, rest),
            Mode::BodyEnd(_) => streams.body_end(core, connection, rest),
            Mode::Swallow(bytes) => swallow(*bytes, connection, rest),
            Mode::Joining { .. } => Step::Stop(0, Stop::Large),
            Mode::Answering(_) => streams.answer_on(core, connection),
            Mode::Watching(_) => streams.watch_on(connection, rest),
            Mode::Resp(_) => unreachable!("it does not speak RESP"),
        };
        quota.begun += 1;
        step
    }
}

impl<T: Transport> Streams<T> {
    /// The request at the front of `rest`. If it is a `get`, those behind it that can be read with
    /// it are too: `quota` counts them.
    fn request(
        &mut self,
        core: &mut Core<T>,
        connection: &mut Connection<T::Stream>,
        rest: &[u8],
        quota: &mut Quota,
    ) -> Step {
        let frame = match parse(rest, &core.limits) {
            Ok(Some(frame)) => frame,
            Ok(None) => return Step::Stop(0, Stop::HalfLine),
            Err(malformed) => {
                quota.begun += 1;
                return self.malformed(core, connection, &malformed);
            }
        };
        let left = quota.left();
        quota.begun += 1;
        match &frame.request {
            Request::Get(get) => {
                let get = (get, frame.head_bytes);
                let (step, begun) = self.gets(core, connection, get, rest, left);
                quota.begun += begun - 1;
                step
            }
            Request::Store(store) => {
                self.store(core, connection, &frame, (store.key, store.value_bytes), rest)
            }
            Request::MetaSet(set) => {
                let mut scratch = [0; KEY_BYTES_MAX];
                let key = set.meta.key.bytes(&mut scratch);
                self.store(core, connection, &frame, (key, set.value_bytes), rest)
            }
            request => {
                let head = frame.head_bytes;
                if matches!(request, Request::MetaGet(_)) && head < rest.len() {
                    let row = self.meta_gets(core, connection, (request, head), rest, left);
                    if let Some((step, begun)) = row {
                        quota.begun += begun - 1;
                        return step;
                    }
                }
                self.plain(core, connection, request, (rest, head))
            }
        }
    }

    /// A request with a value behind it.
    fn store(
        &mut self,
        core: &mut Core<T>,
        connection: &mut Connection<T::Stream>,
        frame: &Frame<'_>,
        (key, value_bytes): (&[u8], usize),
        rest: &[u8],
    ) -> Step {
        let size = key.len() + value_bytes;
        let route = route(&core.plan, core.id, ItemBytes(size as u64));
        if matches!(route, Route::Hand(_)) && core.plan.design == Design::Lanes {
            return Step::Stop(0, Stop::Hand);
        }
        let head = frame.head_bytes;
        let whole = head + value_bytes + VALUE_END.len();
        if rest.len() < whole && whole <= READ_BYTES {
            return Step::Stop(0, Stop::Starved);
        }
        let joins = || execute::joins(&frame.request);
        let may_offer = || rest.len() == whole && core.offers.get() > 0 && !joins();
        let offer = || if may_offer() { core.offer(key, size as u64) } else { None };
        if rest.len() >= whole
            && let Some(to) = core.queue_for_store(key, joins, size as u64).or_else(offer)
        {
            if to == EXECUTOR
                && let Some(step) = self.batch(core, connection, rest)
            {
                return step;
            }
            return self.hand_request(core, connection, to, &rest[..whole], size as u64);
        }
        let context = core.context_for(key);
        if rest.len() >= whole {
            let body = execute::Body::of(&rest[head..whole]);
            let budget = core.slice_budget(Way::Copy);
            let joining =
                execute::store_slice(&context, &frame.request, body, budget, &mut self.out);
            core.count_hot(key, true);
            core.note_key(connection, key, size as u64);
            if let Some(joining) = joining {
                return join(connection, joining, size as u64, whole);
            }
            core.account(connection, Operation::Set, size as u64);
            return Step::Took(whole);
        }
        let Some(incoming) = execute::begin(&context, &frame.request, &mut self.out) else {
            connection.mode = Mode::Swallow((value_bytes + VALUE_END.len()) as u64);
            return Step::Took(head);
        };
        connection.mode = Mode::Body(Box::new(incoming));
        connection.large = core.receives_in_slices(route);
        // What came with the header goes in at once: from here on the value comes from the stream.
        self.body(core, connection, &rest[head..]).behind(head)
    }

    /// Bytes of a value that arrived with its header, or behind it.
    pub(crate) fn body(
        &mut self,
        core: &Core<T>,
        connection: &mut Connection<T::Stream>,
        rest: &[u8],
    ) -> Step {
        let Mode::Body(incoming) = &mut connection.mode else { return Step::Took(0) };
        let bytes = rest.len().min(incoming.draft().missing());
        let mut taken = 0;
        while taken < bytes {
            let ready = match incoming.draft().prepare() {
                Ok(None) => return Step::Stop(taken, Stop::Quota), // others come first
                Ok(Some(ready)) => ready.min(bytes - taken),
                Err(_) => 0,
            };
            if ready == 0 || incoming.draft().write(&rest[taken..taken + ready]).is_err() {
                self.refuse_body(core, connection);
                return Step::Took(taken);
            }
            taken += ready;
        }
        if incoming.draft().missing() == 0 {
            connection.body_is_whole();
            return Step::Took(bytes);
        }
        let stop = if connection.large { Stop::Large } else { Stop::Starved };
        Step::Stop(bytes, stop)
    }

    /// No memory for the rest of a value: say so, and swallow it.
    pub(crate) fn refuse_body(&mut self, core: &Core<T>, connection: &mut Connection<T::Stream>) {
        let Mode::Body(mut incoming) = std::mem::replace(&mut connection.mode, Mode::Requests)
        else {
            return;
        };
        let missing = incoming.draft().missing();
        let context = core.context_for(incoming.key());
        incoming.out_of_memory(&context, &mut self.out);
        connection.swallow_value(missing);
        connection.large = false;
        connection.unserved = true;
        core.charge_refused(connection);
    }

    /// The two bytes behind a streamed value.
    fn body_end(
        &mut self,
        core: &mut Core<T>,
        connection: &mut Connection<T::Stream>,
        rest: &[u8],
    ) -> Step {
        if rest.len() < VALUE_END.len() {
            return Step::Stop(0, Stop::Starved);
        }
        let Mode::BodyEnd(incoming) = std::mem::replace(&mut connection.mode, Mode::Requests)
        else {
            return Step::Took(0);
        };
        connection.large = false;
        let incoming = if rest.starts_with(VALUE_END) {
            match self.hand_body(core, connection, incoming) {
                Ok(Step::Stop(_, Stop::Ticket)) => {
                    return Step::Stop(VALUE_END.len(), Stop::Ticket);
                }
                Ok(step) => return step,
                Err(incoming) => incoming,
            }
        } else {
            incoming
        };
        core.count_hot(incoming.key(), true);
        let size = incoming.item_bytes();
        core.note_key(connection, incoming.key(), size);
        let context = core.context_for(incoming.key());
        let mut joining = None;
        if rest.starts_with(VALUE_END) {
            joining = incoming.finish_slice(&context, core.slice_budget(Way::Copy), &mut self.out);
        } else {
            incoming.abandon_bad_chunk(&context, &mut self.out);
        }
        if let Some(joining) = joining {
            return join(connection, joining, size, VALUE_END.len());
        }
        core.account(connection, Operation::Set, size);
        Step::Took(VALUE_END.len())
    }

    /// The client is wrong: tell it, and go on as memcached would.
    fn malformed(
        &mut self,
        core: &Core<T>,
        connection: &mut Connection<T::Stream>,
        what: &Malformed<'_>,
    ) -> Step {
        self.out.extend_from_slice(what.reply);
        core.counters().malformed.bump_owner();
        if what.reply == NO_BINARY {
            tell_of_binary(&connection.card.peer);
        }
        execute::refused_by_size(&core.context_of_malformed(what), what);
        match what.then {
            Then::Continue => {}
            Then::Swallow(_) if is_planted(Bug::RefusedValueRead) => {}
            Then::Swallow(bytes) => connection.mode = Mode::Swallow(bytes as u64),
            Then::Close => return Step::Stop(what.head_bytes, Stop::Close),
        }
        Step::Took(what.head_bytes)
    }
}

/// The rest of an `append` or `prepend` goes in slices, from here on.
pub(crate) fn join<S>(
    connection: &mut Connection<S>,
    joining: Box<execute::Joining>,
    size: u64,
    consumed: usize,
) -> Step {
    connection.mode = Mode::Joining { joining, size, arrived: connection.found_nanos };
    connection.large = true;
    Step::Stop(consumed, Stop::Large)
}

/// Whoever runs a client of the binary protocol sees its errors, and whoever runs the server why:
/// once, for a pool of such clients tries again and again.
#[cold]
fn tell_of_binary(peer: &str) {
    static TOLD: Once = Once::new();
    TOLD.call_once(|| {
        log::warn!(
            peer;
            "a client speaks the binary protocol and is refused (-B ascii): set it to the text \
             protocol"
        );
    });
    log::debug!(peer; "refused: the binary protocol");
}

pub(crate) fn swallow<S>(bytes: u64, connection: &mut Connection<S>, rest: &[u8]) -> Step {
    let taken = bytes.min(rest.len() as u64);
    if taken == bytes {
        connection.mode = Mode::Requests;
        return Step::Took(taken as usize);
    }
    connection.mode = Mode::Swallow(bytes - taken);
    Step::Stop(taken as usize, Stop::Starved)
}
