//! A message that holds whole requests: each is parsed where it lies, dispatched as over TCP, and
//! answered by a message of its own, as memcached does. Requests of one datagram do not wait for
//! each other's replies.
//!
//! Small requests are executed into the batch; everything else becomes a [`Job`], for whoever the
//! plan says, be it this worker. Departs from TCP: the sizes of a multiget are summed before
//! anything of it is done (Minos §3.1), since its reply is one message.

use super::gather::is_long;
use super::guard::FRAME_COST_BYTES;
use super::state::{At, Desk, From, JoiningFrom};
use crate::clock::Clock;
use crate::dispatch::operation;
use crate::durable::shared::KEEPER;
use crate::execute::{self, Body, Context, Outcome};
use crate::forward;
use crate::handoff::{Job, Origin};
use crate::latency::Operation;
use crate::output::Output;
use crate::udp::answers::Once;
use crate::udp::reply::Reply;
use crate::worker::Worker;
use laneway_policy::{ItemBytes, Route, WorkerTarget, route};
use laneway_store::meter;
use laneway_transport::Transport;
use laneway_wire::limits::BINARY_REQUEST;
use laneway_wire::reply::{BAD_DATA_CHUNK, CRLF, END};
use laneway_wire::udp::{FRAME_BYTES_MAX, Kind};
use laneway_wire::{Frame, Get, KEY_BYTES_MAX, Malformed, Request, Then, parse};
use std::cell::Cell;
use std::sync::Arc;

/// The reply to several requests that together are longer than what is served at once.
const TOO_LONG_TOGETHER: &[u8] =
    b"SERVER_ERROR too long for several requests in one message, send them apart\r\n";

/// Requests served of one message.
pub const REQUESTS_PER_MESSAGE: usize = 128;

/// Large items that something is joined to, slice by slice, at a time; of more, all at once.
const JOININGS_MAX: usize = 64;

/// What a reply that no frames can carry is answered by instead.
const REPLY_TOO_LONG: &[u8] = b"SERVER_ERROR reply too long for UDP\r\n";

/// What one request came to.
enum Next {
    /// So many bytes were taken, and its reply stands in the batch.
    Took(usize),
    /// So many bytes were taken; the reply comes from elsewhere.
    Gone(usize),
    /// The same, and it was much work: nothing behind it is served.
    Last(usize),
    /// Its reply, if there is one, stands in the batch; nothing behind it is a request.
    Stop,
}

impl<T: Transport, C: Clock> Worker<T, C> {
    /// Serve the requests of one message. `digest`: of all of its bytes; asked for only where it is
    /// carried out once.
    pub(crate) fn message(
        &mut self,
        desk: &mut Desk,
        at: At<'_>,
        mut from: From,
        digest: u64,
        payload: &[u8],
    ) {
        let queue = from.queue();
        if is_passed_over(at, payload) {
            return;
        }
        if from.once && !self.is_first(desk, at, &mut from, digest) {
            return;
        }
        let mut rest = payload;
        for _ in 0..REQUESTS_PER_MESSAGE {
            if rest.is_empty() {
                return;
            }
            if is_passed_over(at, rest) {
                return;
            }
            if desk.batches[queue].is_over_budget() {
                at.counts.requests_over_budget.add_owner(1);
                if from.once {
                    at.shared.given_up(from.to.queue, &from.key(), from.arrived_nanos);
                }
                return;
            }
            desk.batches[queue].begin();
            match self.one(desk, at, &mut from, rest) {
                Next::Took(bytes) => {
                    self.end_reply(desk, at, &mut from);
                    rest = &rest[bytes..];
                }
                Next::Gone(bytes) => rest = &rest[bytes..],
                Next::Last(bytes) => {
                    self.end_reply(desk, at, &mut from);
                    rest = &rest[bytes..];
                    break;
                }
                Next::Stop => return self.end_reply(desk, at, &mut from),
            }
        }
        if !rest.is_empty() {
            at.counts.requests_beyond_limit.add_owner(1);
        }
    }

    /// Refuse a message of several requests that is too long to be served at once: none of them is
    /// carried out.
    pub(super) fn too_long(
        &mut self,
        desk: &mut Desk,
        at: At<'_>,
        mut from: From,
        digest: u64,
        front: &[u8],
    ) {
        if is_passed_over(at, front) || (from.once && !self.is_first(desk, at, &mut from, digest)) {
            return;
        }
        at.counts.requests_beyond_limit.add_owner(1);
        self.answer(desk, at, &mut from, TOO_LONG_TOGETHER);
    }

    /// Whether a request that is to be carried out once has not been; if it has, it is answered.
    pub(super) fn is_first(
        &mut self,
        desk: &mut Desk,
        at: At<'_>,
        from: &mut From,
        digest: u64,
    ) -> bool {
        match at.shared.once(from.to.queue, &from.key(), digest, from.arrived_nanos) {
            Once::Go => return true,
            Once::UnderWay => at.counts.repeats_under_way.add_owner(1),
            Once::Answered(reply) => {
                at.counts.repeats_answered.add_owner(1);
                from.once = false;
                self.answer(desk, at, from, &reply);
            }
        }
        false
    }

    /// A small reply that is known already.
    pub(super) fn answer(&mut self, desk: &mut Desk, at: At<'_>, from: &mut From, reply: &[u8]) {
        let batch = &mut desk.batches[from.queue()];
        batch.begin();
        batch.out().extend_from_slice(reply);
        self.end_reply(desk, at, from);
    }

    /// The request in front.
    fn one(&mut self, desk: &mut Desk, at: At<'_>, from: &mut From, rest: &[u8]) -> Next {
        let frame = match parse(rest, &self.limits) {
            Ok(Some(frame)) => frame,
            Ok(None) => {
                at.counts.half_requests.add_owner(1);
                return Next::Stop;
            }
            Err(malformed) => return self.refuse(desk, from, &malformed, rest),
        };
        let Frame { request, head_bytes } = &frame;
        let value_bytes = value_bytes(request);
        let whole = head_bytes + value_bytes.map_or(0, |bytes| bytes + CRLF.len());
        if whole > rest.len() {
            at.counts.size_mismatches.add_owner(1);
            if !is_quiet(request) {
                desk.batches[from.queue()].out().extend_from_slice(BAD_DATA_CHUNK);
            }
            return Next::Stop;
        }
        let bytes = &rest[..whole];
        let mut scratch = [0; KEY_BYTES_MAX];
        let key = execute::key_of_store(request, &mut scratch);
        let size = value_bytes.map_or(0, |bytes| key.len() + bytes);
        let size = ItemBytes(size as u64);
        if let Some(next) = self.unseen(desk, at, from, request, bytes, size) {
            return next;
        }
        at.counts.requests.add_owner(1);
        match request {
            Request::Get(get) => self.get(desk, at, from, get, bytes),
            Request::Store(_) | Request::MetaSet(_) => {
                self.count_hot(key, true);
                let out = desk.batches[from.queue()].out();
                let touched = Cell::new(0);
                let body = Body::of(&bytes[*head_bytes..]);
                let _alone = self.shared.put_locks.enter(|| self.shared.store.hash(key));
                let full = desk.joinings.len() >= JOININGS_MAX;
                let budget = if full { usize::MAX } else { self.slice_budget() };
                let context = self.context_for(&touched, key);
                if let Some(joining) = execute::store_slice(&context, request, body, budget, out) {
                    desk.batches[from.queue()].abandon();
                    desk.joinings.push_back(JoiningFrom { from: *from, size: size.0, joining });
                    return Next::Gone(whole);
                }
                self.tally(desk, from, Operation::Set, size.0);
                Next::Took(whole)
            }
            request => self.plain_request(desk, at, from, request, bytes),
        }
    }

    /// Before anything is looked up: a large value, and under some designs any request, is somebody
    /// else's, or at least not for now.
    fn unseen(
        &mut self,
        desk: &mut Desk,
        at: At<'_>,
        from: &mut From,
        request: &Request<'_>,
        bytes: &[u8],
        size: ItemBytes,
    ) -> Option<Next> {
        let mut scratch = [0; KEY_BYTES_MAX];
        let to = match request {
            _ if !self.hands_unseen => None,
            // Its keys may be of several domains, and its reply is one message.
            Request::Get(get) if self.has_domains() && get.keys.clone().nth(1).is_some() => None,
            // A multiget is one message: it goes where its first key goes.
            Request::Get(get) => {
                let first = get.keys.rest().split(|byte| *byte == b' ').find(|key| !key.is_empty());
                self.queue_for(first.unwrap_or_default(), forward::writes(get.verb), 0)
            }
            request @ (Request::Store(_) | Request::MetaSet(_)) => {
                let key = execute::key_of_store(request, &mut scratch);
                self.queue_for_store(key, || execute::joins(request), size.0)
            }
            request => self.queue_for_unseen(request),
        };
        if let Some(to) = to {
            return Some(self.give(desk, at, from, bytes, size, to));
        }
        let is_elsewhere = size >= self.plan.threshold;
        is_elsewhere.then(|| self.not_here(desk, at, from, bytes, size))
    }

    fn route_of(&self, size: ItemBytes) -> Route {
        route(&self.plan, self.id, size)
    }

    /// A request that is not executed into the batch: for another worker, or for the large lane of
    /// this one.
    fn not_here(
        &mut self,
        desk: &mut Desk,
        at: At<'_>,
        from: &mut From,
        bytes: &[u8],
        size: ItemBytes,
    ) -> Next {
        if let Route::Hand(to) = self.route_of(size) {
            return self.give(desk, at, from, bytes, size, to);
        }
        if let Some(next) = self.withhold(desk, at, from, bytes) {
            return next;
        }
        let Some(job) = job_of(desk, at, from, bytes, size) else {
            return Next::Gone(bytes.len());
        };
        at.counts.requests.add_owner(1);
        if let Some(job) = self.gather_here(desk, at, job)
            && let Some(finished) = self.perform(job)
        {
            self.finish_datagram(desk, at, finished);
        }
        Next::Gone(bytes.len())
    }

    /// Put a request into a queue.
    fn give(
        &mut self,
        desk: &mut Desk,
        at: At<'_>,
        from: &mut From,
        bytes: &[u8],
        size: ItemBytes,
        to: WorkerTarget,
    ) -> Next {
        if let Some(next) = self.withhold(desk, at, from, bytes) {
            return next;
        }
        let Some(job) = job_of(desk, at, from, bytes, size) else {
            return Next::Gone(bytes.len());
        };
        match self.enqueue(to, job) {
            Ok(()) => at.counts.requests_handed_over.add_owner(1),
            Err(_) => {
                at.counts.requests_queue_full.add_owner(1);
                at.shared.given_up(from.to.queue, &from.key(), from.arrived_nanos);
            }
        }
        Next::Gone(bytes.len())
    }

    /// Whoever has not proved its address is not served elsewhere, where nobody counts what it may
    /// be sent: it is given its cookie.
    fn withhold(
        &mut self,
        desk: &mut Desk,
        at: At<'_>,
        from: &mut From,
        bytes: &[u8],
    ) -> Option<Next> {
        if at.shared.guard.believes(&from.to.peer, from.arrived_nanos) {
            return None;
        }
        if from.once {
            // Not carried out: it is asked again once the cookie has come back.
            at.shared.given_up(from.to.queue, &from.key(), from.arrived_nanos);
        }
        self.send_cookie(desk, at, from);
        Some(Next::Gone(bytes.len()))
    }

    /// A `get`: all keys here and now, or, if it is large, none.
    fn get(
        &mut self,
        desk: &mut Desk,
        at: At<'_>,
        from: &mut From,
        get: &Get<'_>,
        bytes: &[u8],
    ) -> Next {
        let mut keys = get.keys;
        let is_single = keys.next().is_some() && keys.next().is_none();
        if is_long(get) {
            // Not even their sizes are looked up here and now: so many are large work anyway.
            return self.not_here(desk, at, from, bytes, self.plan.threshold);
        }
        if !is_single {
            let size = self.size_of_all(get);
            if size >= self.plan.threshold {
                return self.not_here(desk, at, from, bytes, size);
            }
        }
        let expires = execute::expires_at(get.exptime, self.now_seconds);
        let large_from = if is_single { self.plan.threshold.0 } else { u64::MAX };
        for key in get.keys {
            let hash = desk.ahead.hash(&self.shared.store, key);
            let touched = Cell::new(0);
            let context = Context { large_from, ..self.context_for(&touched, key) };
            let out = desk.batches[from.queue()].out();
            match execute::get_key(&context, get.verb, expires, key, hash, out) {
                Outcome::Elsewhere => {
                    return self.not_here(desk, at, from, bytes, ItemBytes(touched.get()));
                }
                Outcome::Kept => {
                    return self.give(desk, at, from, bytes, ItemBytes(touched.get()), KEEPER);
                }
                Outcome::Transfer(rest) => {
                    rest.value.copy_into(out); // in pieces, but of the small lane
                    out.extend_from_slice(rest.tail);
                }
                _ => {}
            }
            self.count_hot(key, forward::writes(get.verb));
            self.tally(desk, from, Operation::Get, touched.get());
        }
        desk.batches[from.queue()].out().extend_from_slice(END);
        Next::Took(bytes.len())
    }

    fn size_of_all(&self, get: &Get<'_>) -> ItemBytes {
        let touched = Cell::new(0);
        let size = |key: &[u8]| {
            let store = self.context_for(&touched, key).store;
            let meta = store.peek(store.hash(key), key, self.now_seconds);
            meta.map_or(0, |meta| u64::from(meta.key_bytes) + u64::from(meta.value_bytes))
        };
        ItemBytes(get.keys.map(size).sum())
    }

    /// A request without a value that is no `get`.
    fn plain_request(
        &mut self,
        desk: &mut Desk,
        at: At<'_>,
        from: &mut From,
        request: &Request<'_>,
        bytes: &[u8],
    ) -> Next {
        let touched = Cell::new(0);
        let context = Context { large_from: self.plan.threshold.0, ..self.context(&touched) };
        let out = desk.batches[from.queue()].out();
        match execute::command(&context, request, out) {
            Outcome::Done => {}
            Outcome::Again => out.extend_from_slice(execute::TRY_AGAIN),
            Outcome::Elsewhere => {
                return self.not_here(desk, at, from, bytes, ItemBytes(touched.get()));
            }
            Outcome::Kept => {
                return self.give(desk, at, from, bytes, ItemBytes(touched.get()), KEEPER);
            }
            Outcome::Transfer(rest) => {
                rest.value.copy_into(out);
                out.extend_from_slice(rest.tail);
            }
            Outcome::Close => return Next::Stop,
            Outcome::Shutdown { graceful: _ } => {
                self.shared.request_stop();
                return Next::Stop;
            }
            Outcome::FlushAt(when) => self.shared.flush_at(when),
            Outcome::Stats(question) => {
                if let Some(next) = self.withhold(desk, at, from, bytes) {
                    return next;
                }
                let answer = self.answer_question(&question);
                desk.batches[from.queue()].out().extend_from_slice(&answer);
                self.tally(desk, from, operation(request), touched.get());
                return Next::Last(bytes.len());
            }
            Outcome::Verbosity(level) => self.shared.set_verbosity(level),
        }
        self.count_hot_request(request);
        self.tally(desk, from, operation(request), touched.get());
        Next::Took(bytes.len())
    }

    /// The client is wrong: tell it, and go on as over TCP, as far as the message goes.
    fn refuse(&mut self, desk: &mut Desk, from: &From, what: &Malformed<'_>, rest: &[u8]) -> Next {
        desk.batches[from.queue()].out().extend_from_slice(what.reply);
        execute::refused_by_size(&self.context_of_malformed(&Cell::new(0), what), what);
        match what.then {
            Then::Continue => Next::Took(what.head_bytes),
            Then::Swallow(bytes) => Next::Took(rest.len().min(what.head_bytes + bytes)),
            Then::Close => Next::Stop,
        }
    }

    /// Count a request; its latency is recorded when the batch has left.
    fn tally(&self, desk: &mut Desk, from: &From, operation: Operation, size: u64) {
        let (row, _) = self.count(operation, size);
        desk.tallies[from.queue()].add(row, from.arrived_nanos);
    }

    /// The reply that stands in the batch is whole.
    pub(super) fn end_reply(&mut self, desk: &mut Desk, at: At<'_>, from: &mut From) {
        let queue = from.queue();
        let batch = &mut desk.batches[queue];
        let bytes = batch.reply().len();
        if from.once {
            at.shared.answered(from.to.queue, &from.key(), batch.reply(), from.arrived_nanos);
        }
        if bytes == 0 {
            return batch.abandon();
        }
        if !desk.is_sampled() {
            at.counts.replies_not_sampled.add_owner(1);
            return desk.batches[queue].abandon();
        }
        let batch = &mut desk.batches[queue];
        let cost = bytes.div_ceil(FRAME_BYTES_MAX) * FRAME_COST_BYTES + bytes;
        let believed = || at.shared.guard.believes(&from.to.peer, from.arrived_nanos);
        if cost > from.allowance && !believed() {
            return self.send_cookie(desk, at, from);
        }
        from.allowance = from.allowance.saturating_sub(cost);
        if bytes > FRAME_BYTES_MAX {
            // Frames may be lost: the reply is kept, to send them again.
            meter::bytes(bytes);
            let mut reply = Reply::of(Output::of(batch.reply().to_vec()));
            let now = from.arrived_nanos;
            if reply.hold(&at.shared.buffers) {
                at.shared.keep_reply(from.to.queue, from.key(), Arc::new(reply), bytes, now);
            } else {
                at.shared.forget_reply(from.to.queue, &from.key());
            }
            at.counts.replies_of_many.add_owner(1);
            if desk.place_batched(from) {
                at.counts.replies.add_owner(1);
                return desk.soil(queue);
            }
        }
        let batch = &mut desk.batches[queue];
        if batch.end(from.to.peer, from.to.request_id, Kind::Data).is_none() {
            batch.abandon();
            return self.answer_too_long(desk, at, from);
        }
        at.counts.replies.add_owner(1);
        desk.soil(queue);
    }

    /// No number of frames can carry the reply: say so instead.
    pub(super) fn answer_too_long(&mut self, desk: &mut Desk, at: At<'_>, from: &mut From) {
        at.counts.replies_too_long.add_owner(1);
        self.answer(desk, at, from, REPLY_TOO_LONG);
    }

    /// Instead of the reply that stands in the batch: the cookie, or nothing, if even that is too
    /// much for what was asked.
    pub(super) fn send_cookie(&mut self, desk: &mut Desk, at: At<'_>, from: &mut From) {
        let queue = from.queue();
        let batch = &mut desk.batches[queue];
        batch.clear_reply();
        at.shared.guard.put_cookie(&from.to.peer, batch.out());
        let cost = FRAME_COST_BYTES + batch.reply().len();
        if cost > from.allowance {
            at.counts.unproved_unanswered.add_owner(1);
            return batch.abandon();
        }
        from.allowance -= cost;
        at.counts.cookies_sent.add_owner(1);
        batch.end(from.to.peer, from.to.request_id, Kind::Cookie);
        desk.soil(queue);
    }
}

/// A request that somebody else carries out, or that goes in turns; its reply is not of this batch.
/// `None`: there is no room for it.
fn job_of(desk: &mut Desk, at: At<'_>, from: &From, bytes: &[u8], size: ItemBytes) -> Option<Job> {
    desk.batches[from.queue()].abandon();
    let held = at.shared.buffers.hold(bytes.len());
    if held.is_none() {
        at.counts.messages_no_room.add_owner(1);
        at.shared.given_up(from.to.queue, &from.key(), from.arrived_nanos);
        return None;
    }
    meter::bytes(bytes.len());
    let origin = Origin::Datagram(from.to);
    Some(Job { held, ..Job::request(bytes.to_vec(), size, from.arrived_nanos, origin) })
}

/// Whether this is nothing that a client of ours sends, and is counted.
fn is_passed_over(at: At<'_>, bytes: &[u8]) -> bool {
    let reply = is_reply(bytes);
    let count = if reply { &at.counts.replies_received } else { &at.counts.binary_requests };
    let is = reply || is_binary(bytes);
    if is {
        count.add_owner(1);
    }
    is
}

/// The length of the value that follows a request's line, if one does.
pub(super) fn value_bytes(request: &Request<'_>) -> Option<usize> {
    match request {
        Request::Store(store) => Some(store.value_bytes),
        Request::MetaSet(set) => Some(set.value_bytes),
        _ => None,
    }
}

/// Whether a line begins as replies do: with a capital letter or a digit, as every reply does and
/// no request. Answering it by `ERROR`, as a stream would be, lets one datagram with a false source
/// run between two servers for ever, each taking the other's error for a request.
fn is_reply(line: &[u8]) -> bool {
    line.first().is_some_and(|first| first.is_ascii_uppercase() || first.is_ascii_digit())
}

/// Whether a request of the binary protocol is next: dropped, as a datagram answers nobody who does
/// not speak as we do.
fn is_binary(line: &[u8]) -> bool {
    line.first() == Some(&BINARY_REQUEST)
}

/// Whether the client wants no answer, not even to what cannot be read to its end.
fn is_quiet(request: &Request<'_>) -> bool {
    matches!(request, Request::Store(store) if store.noreply)
}
