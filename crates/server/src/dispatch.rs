//! From bytes to requests, and for each request: who serves it? For a write the size is in the
//! request; for a read it is found by looking the item up (Minos §3.1). Below the threshold: here
//! and now. At or above it the turn stops: the connection gets in line for slices, or moves.

use crate::clock::Clock;
use crate::connection::{Connection, Mode};
use crate::durable::shared::KEEPER;
use crate::durable::veil::Veiled;
use crate::execute::{self, Context, Outcome};
use crate::latency::{self, Operation};
use crate::receive::{OUT_BYTES_PER_TURN, REQUESTS_PER_TURN, Step, Stop};
use crate::worker::{READ_BYTES, Worker};
use laneway_policy::route::lane;
use laneway_policy::share::REQUESTS_BESIDE_LARGE;
use laneway_policy::{Design, ItemBytes, Lane, Route, route};
use laneway_store::meter;
use laneway_sync::planted::{Bug, is_planted};
use laneway_transport::Transport;
use laneway_wire::reply::NO_BINARY;
use laneway_wire::{Frame, KEY_BYTES_MAX, Malformed, Request, Then, parse};
use std::cell::Cell;
use std::sync::Once;

/// The end of a value on the wire.
const VALUE_END: &[u8] = b"\r\n";

impl<T: Transport, C: Clock> Worker<T, C> {
    /// Serve what stands in `input`; replies go to the worker's reply buffer. Returns the bytes
    /// consumed and why it stopped.
    pub(crate) fn consume(
        &mut self,
        connection: &mut Connection<T::Stream>,
        input: &[u8],
        arrived: u64,
    ) -> (usize, Stop) {
        let mut at = 0;
        // Between two slices of what is large there is less, of each connection.
        let most = if self.large.is_empty() { REQUESTS_PER_TURN } else { REQUESTS_BESIDE_LARGE };
        // The rest of a value, or a visitor's first request, says nothing of how its client sends.
        let begins = matches!(connection.mode, Mode::Requests) && connection.visit.is_none();
        let mut requests = 0;
        let stop = loop {
            if requests == most || self.out.len() >= OUT_BYTES_PER_TURN {
                self.counters().conn_yields.bump_owner();
                break Stop::Quota;
            }
            let rest = &input[at..];
            let step = match &connection.mode {
                Mode::Requests if rest.is_empty() => break Stop::Starved,
                Mode::Requests => self.request(connection, rest, (most, &mut requests), arrived),
                Mode::Keys { verb, exptime, line_bytes } => {
                    let (verb, exptime, line_bytes) = (*verb, *exptime, *line_bytes);
                    self.keys(connection, verb, exptime, &rest[..line_bytes], arrived)
                }
                Mode::Body(_) => self.body(connection, rest),
                Mode::BodyEnd(_) => self.body_end(connection, rest, arrived),
                Mode::Swallow(bytes) => swallow(*bytes, connection, rest),
                Mode::Joining { .. } => Step::Stop(0, Stop::Large),
                Mode::Answering(_) => self.answer_on(connection),
            };
            requests += 1;
            match step {
                Step::Took(bytes) => at += bytes,
                Step::Stop(bytes, stop) => {
                    at += bytes;
                    break stop;
                }
            }
        };
        if begins {
            connection.pipelined = requests > 1;
        }
        self.had.0 += u32::from(requests > 0);
        self.had.1 += requests as u32;
        (at, stop)
    }

    /// The request at the front of `rest`. If it is a `get`, those behind it that can be read with
    /// it are too: `requests` counts them, and stays below `most`.
    fn request(
        &mut self,
        connection: &mut Connection<T::Stream>,
        rest: &[u8],
        (most, requests): (usize, &mut usize),
        arrived: u64,
    ) -> Step {
        let frame = match parse(rest, &self.limits) {
            Ok(Some(frame)) => frame,
            Ok(None) => return Step::Stop(0, Stop::HalfLine),
            Err(malformed) => return self.malformed(connection, &malformed),
        };
        match &frame.request {
            Request::Get(get) => {
                let (most, get) = (most - *requests, (get, frame.head_bytes));
                let (step, begun) = self.gets(connection, get, rest, most, arrived);
                *requests += begun - 1; // the caller counts one
                step
            }
            Request::Store(store) => {
                self.store(connection, &frame, store.key, store.value_bytes, rest, arrived)
            }
            Request::MetaSet(set) => {
                let mut scratch = [0; KEY_BYTES_MAX];
                let key = set.meta.key.bytes(&mut scratch);
                self.store(connection, &frame, key, set.value_bytes, rest, arrived)
            }
            request => {
                let head = frame.head_bytes;
                if matches!(request, Request::MetaGet(_)) && head < rest.len() {
                    let left = most - *requests;
                    let row = self.meta_gets(connection, (request, head), rest, left, arrived);
                    if let Some((step, begun)) = row {
                        *requests += begun - 1;
                        return step;
                    }
                }
                self.plain(connection, request, &rest[..head], arrived)
            }
        }
    }

    /// A request without a value behind it.
    pub(crate) fn plain(
        &mut self,
        connection: &mut Connection<T::Stream>,
        request: &Request<'_>,
        line: &[u8],
        arrived: u64,
    ) -> Step {
        let head = line.len();
        if let Some(to) = self.queue_for_unseen(request) {
            return self.hand_request(connection, to, line, 0, arrived);
        }
        let touched = Cell::new(0);
        let mut out = std::mem::take(&mut self.out);
        let outcome = execute::command(&self.context(&touched), request, &mut out);
        self.out = out;
        if matches!(outcome, Outcome::Kept) {
            return self.hand_request(connection, KEEPER, line, touched.get(), arrived);
        }
        if matches!(outcome, Outcome::Elsewhere) {
            return self.elsewhere(connection, line, touched.get(), arrived);
        }
        if matches!(outcome, Outcome::Again) {
            return Step::Stop(0, Stop::Quota); // others come first
        }
        self.count_hot_request(request);
        self.account(connection, operation(request), touched.get(), arrived);
        self.conclude(connection, outcome, head, true)
    }

    /// The next step of the answer that a connection is given; others come before the one after.
    fn answer_on(&mut self, connection: &mut Connection<T::Stream>) -> Step {
        if let Mode::Answering(answer) = &mut connection.mode
            && self.shared.answer_step(answer, self.now_seconds, &mut self.out)
        {
            connection.mode = Mode::Requests;
        }
        Step::Stop(0, Stop::Quota)
    }

    /// What an outcome asks for besides its reply.
    fn conclude(
        &mut self,
        connection: &mut Connection<T::Stream>,
        outcome: Outcome,
        consumed: usize,
        last: bool,
    ) -> Step {
        match outcome {
            Outcome::Done => {}
            Outcome::Elsewhere | Outcome::Kept => return Step::Stop(0, Stop::Hand),
            Outcome::Again => return Step::Stop(0, Stop::Quota),
            Outcome::Transfer(transfer) => {
                self.begin_transfer(connection, transfer, last);
                return Step::Stop(consumed, Stop::Large);
            }
            Outcome::Close => return Step::Stop(consumed, Stop::Close),
            Outcome::Shutdown { graceful: _ } => {
                self.shared.request_stop();
                return Step::Stop(consumed, Stop::Close);
            }
            Outcome::FlushAt(at) => self.shared.flush_at(at),
            Outcome::Stats(question) => {
                if let Some(answer) = self.shared.long_answer(&question, connection.card.number) {
                    connection.mode = Mode::Answering(Box::new(answer));
                    return Step::Stop(consumed, Stop::Quota);
                }
                let reply = self.answer_question(&question);
                self.out.extend_from_slice(&reply);
                return Step::Stop(consumed, Stop::Quota); // it was much work: others come first
            }
            Outcome::Verbosity(level) => self.shared.set_verbosity(level),
        }
        Step::Took(consumed)
    }

    /// The head of the reply is in `out`; the value follows it, and what stands behind the value.
    pub(crate) fn begin_transfer(
        &mut self,
        connection: &mut Connection<T::Stream>,
        transfer: execute::Transfer,
        last: bool,
    ) {
        connection.output.push_bytes(&self.out);
        self.out.clear();
        connection.large = self.plan.slice_bytes.is_some();
        connection.output.push_value(transfer.value);
        connection.output.push_bytes(transfer.tail);
        if let (true, Mode::Keys { line_bytes: 0, .. }) = (last, &connection.mode) {
            connection.output.push_bytes(b"END\r\n");
            connection.mode = Mode::Requests;
        }
    }

    /// A request with a value behind it.
    fn store(
        &mut self,
        connection: &mut Connection<T::Stream>,
        frame: &Frame<'_>,
        key: &[u8],
        value_bytes: usize,
        rest: &[u8],
        arrived: u64,
    ) -> Step {
        let size = key.len() + value_bytes;
        let route = route(&self.plan, self.id, ItemBytes(size as u64));
        if matches!(route, Route::Hand(_)) && self.plan.design == Design::Lanes {
            return Step::Stop(0, Stop::Hand);
        }
        let head = frame.head_bytes;
        let whole = head + value_bytes + VALUE_END.len();
        if rest.len() < whole && whole <= READ_BYTES {
            return Step::Stop(0, Stop::Starved);
        }
        let joins = || execute::joins(&frame.request);
        let may_offer = || rest.len() == whole && self.offers.get() > 0 && !joins();
        let offer = || if may_offer() { self.offer(key, size as u64) } else { None };
        if rest.len() >= whole
            && let Some(to) = self.queue_for_store(key, joins, size as u64).or_else(offer)
        {
            return self.hand_request(connection, to, &rest[..whole], size as u64, arrived);
        }
        let touched = Cell::new(0);
        let mut out = std::mem::take(&mut self.out);
        let context = self.context_for(&touched, key);
        if rest.len() >= whole {
            let body = execute::Body::of(&rest[head..whole]);
            let alone = self.shared.put_locks.enter(|| self.shared.store.hash(key));
            let budget = self.slice_budget();
            let joining = execute::store_slice(&context, &frame.request, body, budget, &mut out);
            drop(alone);
            self.out = out;
            self.count_hot(key, true);
            if let Some(joining) = joining {
                return join(connection, joining, size as u64, arrived, whole);
            }
            self.account(connection, Operation::Set, size as u64, arrived);
            return Step::Took(whole);
        }
        match execute::begin(&context, &frame.request, &mut out) {
            Some(incoming) => {
                connection.mode = Mode::Body(Box::new(incoming));
                connection.large = self.receives_in_slices(route);
            }
            None => connection.mode = Mode::Swallow((value_bytes + VALUE_END.len()) as u64),
        }
        self.out = out;
        if !matches!(connection.mode, Mode::Body(_)) {
            return Step::Took(head);
        }
        // What came with the header goes in at once: from here on the value comes from the stream.
        match self.body(connection, &rest[head..]) {
            Step::Took(bytes) => Step::Took(head + bytes),
            Step::Stop(bytes, stop) => Step::Stop(head + bytes, stop),
        }
    }

    /// Bytes of a value that arrived with its header, or behind it.
    fn body(&mut self, connection: &mut Connection<T::Stream>, rest: &[u8]) -> Step {
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
                self.refuse_body(connection);
                return Step::Took(taken);
            }
            taken += ready;
        }
        if incoming.draft().missing() == 0 {
            self.body_is_whole(connection);
            return Step::Took(bytes);
        }
        let stop = if connection.large { Stop::Large } else { Stop::Starved };
        Step::Stop(bytes, stop)
    }

    /// No memory for the rest of a value: say so, and swallow it.
    pub(crate) fn refuse_body(&mut self, connection: &mut Connection<T::Stream>) {
        let Mode::Body(mut incoming) = std::mem::replace(&mut connection.mode, Mode::Requests)
        else {
            return;
        };
        let rest = incoming.draft().missing() + VALUE_END.len();
        let touched = Cell::new(0);
        let mut out = std::mem::take(&mut self.out);
        let context = self.context_for(&touched, incoming.key());
        incoming.out_of_memory(&context, &mut out);
        self.out = out;
        connection.mode = Mode::Swallow(rest as u64);
        connection.large = false;
        connection.unserved = true;
    }

    /// The two bytes behind a streamed value.
    fn body_end(
        &mut self,
        connection: &mut Connection<T::Stream>,
        rest: &[u8],
        arrived: u64,
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
            match self.hand_body(connection, incoming, arrived) {
                Ok(Step::Stop(_, Stop::Ticket)) => {
                    return Step::Stop(VALUE_END.len(), Stop::Ticket);
                }
                Ok(step) => return step,
                Err(incoming) => incoming,
            }
        } else {
            incoming
        };
        self.count_hot(incoming.key(), true);
        let size = incoming.item_bytes();
        let touched = Cell::new(0);
        let mut out = std::mem::take(&mut self.out);
        let context = self.context_for(&touched, incoming.key());
        let mut joining = None;
        if rest.starts_with(VALUE_END) {
            let alone = self.shared.put_locks.enter(|| incoming.hash());
            joining = incoming.finish_slice(&context, self.slice_budget(), &mut out);
            drop(alone);
        } else {
            incoming.abandon_bad_chunk(&context, &mut out);
        }
        self.out = out;
        if let Some(joining) = joining {
            return join(connection, joining, size, arrived, VALUE_END.len());
        }
        self.account(connection, Operation::Set, size, arrived);
        Step::Took(VALUE_END.len())
    }

    /// The client is wrong: tell it, and go on as memcached would.
    fn malformed(&mut self, connection: &mut Connection<T::Stream>, what: &Malformed<'_>) -> Step {
        self.out.extend_from_slice(what.reply);
        if what.reply == NO_BINARY {
            tell_of_binary(&connection.card.peer);
        }
        let touched = Cell::new(0);
        execute::refused_by_size(&self.context_of_malformed(&touched, what), what);
        match what.then {
            Then::Continue => {}
            Then::Swallow(_) if is_planted(Bug::RefusedValueRead) => {}
            Then::Swallow(bytes) => connection.mode = Mode::Swallow(bytes as u64),
            Then::Close => return Step::Stop(what.head_bytes, Stop::Close),
        }
        Step::Took(what.head_bytes)
    }

    /// Count a request that was served here.
    pub(crate) fn account(
        &mut self,
        connection: &mut Connection<T::Stream>,
        operation: Operation,
        size: u64,
        arrived: u64,
    ) {
        let (row, large) = self.count(operation, size);
        connection.tally.add(row, arrived);
        if let Some(visit) = &mut connection.visit {
            if large { visit.large_served() } else { visit.small_served() }
        }
    }

    /// Count a request that was served here; returns the row of its latency, and whether it was
    /// large.
    pub(crate) fn count(&self, operation: Operation, size: u64) -> (usize, bool) {
        meter::keys(1);
        let here = &self.shared.workers[self.id.index()];
        let size = ItemBytes(size);
        let large = size.0 > 0 && lane(&self.plan, size) == Lane::Large;
        if size.0 > 0 {
            here.record_size_owner(size, self.shared.settings.policy.profile_sample);
        }
        here.lanes.packets.add_owner(size.packets().0);
        if large {
            here.lanes.requests_large.add_owner(1);
        } else {
            here.lanes.requests_small.add_owner(1);
        }
        (latency::row(operation, large), large)
    }

    /// What commands are executed in. Items that a large worker serves are elsewhere's to read.
    pub(crate) fn context<'a>(&'a self, touched: &'a Cell<u64>) -> Context<'a> {
        Context {
            store: &self.shared.store,
            others: self.shared.other_stores(),
            hand: Some(&self.hand),
            now: self.now_seconds,
            counters: self.counters(),
            settings: &self.execute_settings,
            touched,
            large_from: if self.hands_over { self.plan.threshold.0 } else { u64::MAX },
            veil: self.shared.durable.get().map(|durable| Veiled::Worker(&durable.veil)),
        }
    }
}

/// The rest of an `append` or `prepend` goes in slices, from here on.
fn join<S>(
    connection: &mut Connection<S>,
    joining: Box<execute::Joining>,
    size: u64,
    arrived: u64,
    consumed: usize,
) -> Step {
    connection.mode = Mode::Joining { joining, size, arrived };
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
            "a client speaks the binary protocol and is refused: set it to the text protocol"
        );
    });
    log::debug!(peer; "refused: the binary protocol");
}

fn swallow<S>(bytes: u64, connection: &mut Connection<S>, rest: &[u8]) -> Step {
    let taken = bytes.min(rest.len() as u64);
    if taken == bytes {
        connection.mode = Mode::Requests;
        return Step::Took(taken as usize);
    }
    connection.mode = Mode::Swallow(bytes - taken);
    Step::Stop(taken as usize, Stop::Starved)
}

/// Which kind of operation a request is.
pub(crate) fn operation(request: &Request<'_>) -> Operation {
    match request {
        Request::Get(_) | Request::MetaGet(_) => Operation::Get,
        Request::Store(_) | Request::MetaSet(_) => Operation::Set,
        Request::Delete(_) | Request::MetaDelete(_) => Operation::Delete,
        Request::Arith(_) | Request::MetaArith(_) => Operation::Arith,
        Request::Touch(_) => Operation::Touch,
        _ => Operation::Other,
    }
}
