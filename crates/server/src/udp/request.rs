//! A message that holds whole requests: each is parsed where it lies, dispatched as over TCP, and
//! answered by a message of its own, as memcached does. Requests of one datagram do not wait for
//! each other's replies.
//!
//! Small requests are executed into the batch; everything else becomes a [`Job`], for whoever the
//! plan says, be it this worker. Departs from TCP: the sizes of a multiget are summed before
//! anything of it is done (Minos §3.1), since its reply is one message.

use super::deliver::hand_over;
use super::gather::is_long;
use super::passed_over::is_passed_over;
use super::state::{At, From, JoiningFrom, UdpWorker};
use crate::core::Core;
use crate::durable::shared::EXECUTOR;
use crate::execute::{self, Body, Context, Outcome, put_miss};
use crate::jobs::handoff::{Job, Origin};
use crate::latency::{self, Operation};
use crate::request::requests::{only_reads, operation, writes};
use crate::request::sought::Simple;
use laneway_policy::pace::Way;
use laneway_policy::{Design, ItemBytes, Route, WorkerTarget, route};
use laneway_store::{GROUP, Sought, meter};
use laneway_transport::Transport;
use laneway_wire::reply::{BAD_DATA_CHUNK, END};
use laneway_wire::{Frame, Get, KEY_BYTES_MAX, Limits, Malformed, Meta, Request, Then, parse};

/// The reply to `backup`, which ends with the connection that asked.
const BACKUP_BY_STREAM: &[u8] =
    b"CLIENT_ERROR a backup belongs to a connection; ask over a stream\r\n";
/// The reply to `watch`, which has no end.
const WATCH_BY_STREAM: &[u8] = b"CLIENT_ERROR watch needs a stream\r\n";
/// The reply to `client_rate` and `client_bytes`: with a forged source a stranger could slow
/// everybody down.
const LIMIT_BY_STREAM: &[u8] = b"CLIENT_ERROR a limit of clients is set over a stream\r\n";
/// The reply to several requests that together are longer than what is served at once.
const TOO_LONG_TOGETHER: &[u8] =
    b"SERVER_ERROR too long for several requests in one message, send them apart\r\n";

/// Requests served of one message.
pub const REQUESTS_PER_MESSAGE: usize = 128;

/// Large items that something is joined to, slice by slice, at a time; what is more is thrown away.
const JOININGS_MAX: usize = 64;

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

/// Whether a message has requests that only read, and nothing else, as far as it is served.
fn all_only_read(mut rest: &[u8], limits: &Limits) -> bool {
    for _ in 0..REQUESTS_PER_MESSAGE {
        match parse(rest, limits) {
            Ok(Some(frame)) if only_reads(&frame.request) => rest = &rest[frame.head_bytes..],
            _ => return rest.is_empty(),
        }
    }
    true
}

impl<T: Transport> Core<T> {
    fn size_of_all(&self, get: &Get<'_>) -> ItemBytes {
        let size = |key: &[u8]| {
            let store = self.context_for(key).store;
            let meta = store.peek(store.hash(key), key, self.now);
            meta.map_or(0, |meta| meta.item_bytes())
        };
        ItemBytes(get.keys.map(size).sum())
    }
}

impl UdpWorker {
    /// Serve the requests of one message. `digest`: of all of its bytes; asked for only where it is
    /// carried out once.
    pub(crate) fn message<T: Transport>(
        &mut self,
        core: &mut Core<T>,
        at: At<'_>,
        mut from: From,
        digest: u64,
        payload: &[u8],
    ) {
        let queue = from.queue();
        core.asker = 0;
        if is_passed_over(at, payload) {
            return;
        }
        let is_harmless = || all_only_read(payload, &core.limits);
        if from.once && !self.is_first(at, &mut from, digest, is_harmless) {
            return;
        }
        let (mut rest, mut may_come_apart) = (payload, from.once);
        for _ in 0..REQUESTS_PER_MESSAGE {
            if rest.is_empty() {
                return;
            }
            if is_passed_over(at, rest) {
                return;
            }
            if self.batches[queue].is_over_budget() {
                at.counts.requests_over_budget.add_owner(1);
                if from.once {
                    at.shared.given_up(from.to.queue, &from.key(), from.arrived_nanos);
                }
                return;
            }
            self.batches[queue].begin();
            match self.one(core, at, &mut from, rest) {
                Next::Took(bytes) => {
                    self.end_reply(at, &mut from);
                    rest = &rest[bytes..];
                }
                Next::Gone(bytes) => {
                    rest = &rest[bytes..];
                    // All of it comes again or nothing: this request is not to be carried out
                    // twice where one behind it finds no room, nor one behind it where this does.
                    // Asked once: what holds for the first that goes holds for those behind it.
                    let is_asked = std::mem::take(&mut may_come_apart) && !rest.is_empty();
                    if is_asked
                        && !all_only_read(payload, &core.limits)
                        && !at.shared.goes_on(from.to.queue, &from.key(), from.arrived_nanos)
                    {
                        return;
                    }
                }
                Next::Last(bytes) => {
                    self.end_reply(at, &mut from);
                    rest = &rest[bytes..];
                    break;
                }
                Next::Stop => return self.end_reply(at, &mut from),
            }
        }
        if !rest.is_empty() {
            at.counts.requests_beyond_limit.add_owner(1);
        }
    }

    /// Refuse a message of several requests that is too long to be served at once: none of them is
    /// carried out.
    pub(super) fn too_long(&mut self, at: At<'_>, mut from: From, digest: u64, front: &[u8]) {
        if is_passed_over(at, front)
            || (from.once && !self.is_first(at, &mut from, digest, || true))
        {
            return;
        }
        at.counts.requests_beyond_limit.add_owner(1);
        self.answer(at, &mut from, TOO_LONG_TOGETHER);
    }

    /// The request in front.
    fn one<T: Transport>(
        &mut self,
        core: &mut Core<T>,
        at: At<'_>,
        from: &mut From,
        rest: &[u8],
    ) -> Next {
        let frame = match parse(rest, &core.limits) {
            Ok(Some(frame)) => frame,
            Ok(None) => {
                at.counts.half_requests.add_owner(1);
                return Next::Stop;
            }
            Err(malformed) => return self.refuse(core, from, &malformed, rest),
        };
        let Frame { request, head_bytes } = &frame;
        let value_bytes = execute::value_bytes(request);
        let whole = head_bytes + execute::value_behind(request);
        if whole > rest.len() {
            at.counts.size_mismatches.add_owner(1);
            if !is_quiet(request) {
                self.batches[from.queue()].out().extend_from_slice(BAD_DATA_CHUNK);
            }
            return Next::Stop;
        }
        let bytes = &rest[..whole];
        let mut scratch = [0; KEY_BYTES_MAX];
        let key = execute::key_of_store(request, &mut scratch);
        let size = value_bytes.map_or(0, |bytes| key.len() + bytes);
        let size = ItemBytes(size as u64);
        if let Some(next) = self.unseen(core, at, from, request, bytes, size) {
            return next;
        }
        let next = match request {
            Request::Get(get) => self.get(core, at, from, get, bytes),
            Request::Store(_) | Request::MetaSet(_) => {
                core.count_hot(key, true);
                let out = self.batches[from.queue()].out();
                let body = Body::of(&bytes[*head_bytes..]);
                let budget = core.slice_budget(Way::Copy);
                let context = core.context_for(key);
                if let Some(joining) = execute::store_slice(&context, request, body, budget, out) {
                    self.batches[from.queue()].abandon();
                    self.join_later(at, JoiningFrom { from: *from, size: size.0, joining });
                    return Next::Gone(whole);
                }
                self.tally(core, from, Operation::Set, size.0);
                Next::Took(whole)
            }
            request => self.plain_request(core, at, from, request, bytes),
        };
        // What has gone was counted by where it went.
        at.counts.requests.add_owner(u64::from(!matches!(next, Next::Gone(_))));
        next
    }

    /// Goes on with a large item in turns, if not too many do so already.
    pub(super) fn join_later(&mut self, at: At<'_>, joining: JoiningFrom) {
        if self.joinings.len() < JOININGS_MAX {
            at.counts.requests.add_owner(1);
            self.joinings.push_back(joining);
        } else {
            at.has_no_room(&joining.from.to, joining.from.arrived_nanos);
        }
    }

    /// Before anything is looked up: a large value, and under some designs any request, is somebody
    /// else's, or at least not for now.
    fn unseen<T: Transport>(
        &mut self,
        core: &mut Core<T>,
        at: At<'_>,
        from: &mut From,
        request: &Request<'_>,
        bytes: &[u8],
        size: ItemBytes,
    ) -> Option<Next> {
        let mut scratch = [0; KEY_BYTES_MAX];
        let to = match request {
            _ if !core.hands_unseen => None,
            // Its keys may be of several domains, and its reply is one message.
            Request::Get(get) if core.has_domains() && get.keys.clone().nth(1).is_some() => None,
            // A multiget is one message: it goes where its first key goes.
            Request::Get(get) => {
                let first = get.keys.rest().split(|byte| *byte == b' ').find(|key| !key.is_empty());
                core.queue_for(first.unwrap_or_default(), writes(get.verb), 0)
            }
            request @ (Request::Store(_) | Request::MetaSet(_)) => {
                let key = execute::key_of_store(request, &mut scratch);
                core.queue_for_store(key, || execute::joins(request), size.0)
            }
            request => core.queue_for_unseen(request),
        };
        if let Some(to) = to {
            return Some(self.give(core, at, from, bytes, size, to));
        }
        // A job is one step, and looks in the memory of its own domain. What is joined to an item,
        // which may be large or another domain's, is done here, slice by slice.
        let slices = core.plan.design == Design::Lanes || core.has_domains();
        let is_elsewhere = size >= core.plan.threshold && !(slices && execute::joins(request));
        is_elsewhere.then(|| self.not_here(core, at, from, bytes, size))
    }

    /// A request that is not executed into the batch: for another worker, or for the large lane of
    /// this one.
    fn not_here<T: Transport>(
        &mut self,
        core: &mut Core<T>,
        at: At<'_>,
        from: &mut From,
        bytes: &[u8],
        size: ItemBytes,
    ) -> Next {
        if let Route::Hand(to) = route(&core.plan, core.id, size) {
            return self.give(core, at, from, bytes, size, to);
        }
        let Some(job) = self.job_of(at, from, bytes, size) else {
            return Next::Gone(bytes.len());
        };
        at.counts.requests.add_owner(1);
        if let Some(job) = self.gather_here(core, at, job)
            && let Some(finished) = core.perform(job)
        {
            self.finish_datagram(core, at, finished);
        }
        Next::Gone(bytes.len())
    }

    /// Put a request into a queue.
    fn give<T: Transport>(
        &mut self,
        core: &mut Core<T>,
        at: At<'_>,
        from: &mut From,
        bytes: &[u8],
        size: ItemBytes,
        to: WorkerTarget,
    ) -> Next {
        let Some(job) = self.job_of(at, from, bytes, size) else {
            return Next::Gone(bytes.len());
        };
        hand_over(core, at, to, job);
        Next::Gone(bytes.len())
    }

    /// Whoever has not proved its address is not served elsewhere, where nobody counts what it may
    /// be sent: it is given its cookie. True: it was.
    fn withhold(&mut self, at: At<'_>, from: &mut From) -> bool {
        if at.shared.guard.believes(&from.to.peer, from.arrived_nanos) {
            return false;
        }
        if from.once {
            // Not carried out: it is asked again once the cookie has come back.
            at.shared.given_up(from.to.queue, &from.key(), from.arrived_nanos);
        }
        self.send_cookie(at, from);
        true
    }

    /// A request that somebody else carries out, or that goes in turns; its reply is not of this
    /// batch. `None`: its sender is to prove its address first, or there is no room for it.
    fn job_of(
        &mut self,
        at: At<'_>,
        from: &mut From,
        bytes: &[u8],
        size: ItemBytes,
    ) -> Option<Job> {
        if self.withhold(at, from) {
            return None;
        }
        self.batches[from.queue()].abandon();
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

    /// A `get`: all keys here and now, or, if it is large, none.
    fn get<T: Transport>(
        &mut self,
        core: &mut Core<T>,
        at: At<'_>,
        from: &mut From,
        get: &Get<'_>,
        bytes: &[u8],
    ) -> Next {
        let mut simple = Simple::default();
        let mut keys = get.keys;
        if let Some(key) = keys.next().filter(|_| keys.rest().is_empty()) {
            let ahead = self.ahead.number(key);
            if ahead.is_none() {
                self.ahead.clear();
                let store = &core.shared.store;
                store.seek_one(&mut core.group, store.hash(key));
            }
            let asked = (get, key, ahead.unwrap_or(0));
            let large_from = core.plan.threshold.0;
            if let Some(next) =
                self.one_key(core, at, from, asked, (bytes, large_from), &mut simple)
            {
                return next;
            }
        } else if let Some(next) = self.several_keys(core, at, from, get, bytes, &mut simple) {
            return next;
        }
        self.tally_simple(core, from, &simple);
        self.batches[from.queue()].out().extend_from_slice(END);
        Next::Took(bytes.len())
    }

    /// Several keys: read together, but only if their answers together are no large reply. Returns
    /// what becomes of the whole request, if its answer comes from elsewhere.
    #[inline(never)]
    fn several_keys<T: Transport>(
        &mut self,
        core: &mut Core<T>,
        at: At<'_>,
        from: &mut From,
        get: &Get<'_>,
        bytes: &[u8],
        simple: &mut Simple,
    ) -> Option<Next> {
        if is_long(get) {
            // Not even their sizes are looked up here and now: so many are large work anyway.
            return Some(self.not_here(core, at, from, bytes, core.plan.threshold));
        }
        let cold: u64 = get.keys.map(|key| core.cold_bytes(key)).sum();
        if cold > 0 {
            // The executor begins with the first key: of none before is anything counted or told.
            return Some(self.give(core, at, from, bytes, ItemBytes(cold), EXECUTOR));
        }
        let (mut keys, mut texts) = (get.keys, [&[][..]; GROUP]);
        let size = core.size_of_all(get);
        if size >= core.plan.threshold {
            return Some(self.not_here(core, at, from, bytes, size));
        }
        self.ahead.clear();
        loop {
            let found = keys.take_into(&mut texts);
            let texts = &texts[..found];
            if found == 0 {
                return None;
            }
            core.shared.store.seek(&mut core.group, texts);
            for (number, key) in texts.iter().enumerate() {
                let asked = (get, *key, number);
                let next = self.one_key(core, at, from, asked, (bytes, u64::MAX), simple);
                if next.is_some() {
                    return next;
                }
            }
        }
    }

    /// One key, which has this number in the group. Returns what becomes of the whole request, if
    /// its answer comes from elsewhere.
    #[inline]
    fn one_key<T: Transport>(
        &mut self,
        core: &mut Core<T>,
        at: At<'_>,
        from: &mut From,
        (get, key, number): (&Get<'_>, &[u8], usize),
        (bytes, large_from): (&[u8], u64),
        simple: &mut Simple,
    ) -> Option<Next> {
        match core.sought(get.verb, number, key, self.batches[from.queue()].out()) {
            Sought::Copied(bytes) => core.note_hit(simple, key, bytes),
            Sought::Miss => core.note_miss(simple, key),
            Sought::Otherwise => {
                let asked = (get, key, number);
                return self.other_key(core, at, from, asked, (bytes, large_from));
            }
        }
        None
    }

    /// A key that is no small item, or not simply this worker's to answer.
    fn other_key<T: Transport>(
        &mut self,
        core: &mut Core<T>,
        at: At<'_>,
        from: &mut From,
        (get, key, number): (&Get<'_>, &[u8], usize),
        (bytes, large_from): (&[u8], u64),
    ) -> Option<Next> {
        let expires = execute::expires_at(get.exptime, core.now);
        let context = Context { large_from, ..core.context_for(key) };
        let out = self.batches[from.queue()].out();
        let hash = core.group.hash(number);
        let outcome = execute::get_key(&context, get.verb, expires, key, hash, out);
        let size = ItemBytes(core.touched.get());
        match outcome {
            Outcome::Elsewhere => return Some(self.not_here(core, at, from, bytes, size)),
            Outcome::Kept => return Some(self.give(core, at, from, bytes, size, EXECUTOR)),
            Outcome::Transfer(rest) => {
                rest.value.copy_into(out); // in pieces, but of the small lane
                out.extend_from_slice(rest.tail);
            }
            _ => {}
        }
        core.count_hot(key, writes(get.verb));
        self.tally(core, from, Operation::Get, size.0);
        None
    }

    /// An `mg` that asks for no more than to read its item, if that was looked at ahead and is
    /// small, or missing.
    fn meta_ahead<T: Transport>(
        &mut self,
        core: &mut Core<T>,
        from: &From,
        meta: &Meta<'_>,
    ) -> Option<()> {
        let key = meta.key.token;
        let number = self.ahead.number(key)?;
        let mut simple = Simple::default();
        let out = self.batches[from.queue()].out();
        match core.meta_sought(meta, number, key, out) {
            Sought::Copied(bytes) => core.note_hit(&mut simple, key, bytes),
            Sought::Miss => {
                put_miss(meta, out);
                core.note_miss(&mut simple, key);
            }
            Sought::Otherwise => return None,
        }
        simple.metas = 1;
        self.tally_simple(core, from, &simple);
        Some(())
    }

    /// A request without a value that is no `get`.
    fn plain_request<T: Transport>(
        &mut self,
        core: &mut Core<T>,
        at: At<'_>,
        from: &mut From,
        request: &Request<'_>,
        bytes: &[u8],
    ) -> Next {
        if let Request::MetaGet(meta) = request
            && self.meta_ahead(core, from, meta).is_some()
        {
            return Next::Took(bytes.len());
        }
        let context = Context { large_from: core.plan.threshold.0, ..core.context() };
        let out = self.batches[from.queue()].out();
        let outcome = execute::command(&context, request, out);
        let size = ItemBytes(core.touched.get());
        match outcome {
            Outcome::Done => {}
            Outcome::Again => out.extend_from_slice(execute::TRY_AGAIN),
            Outcome::Elsewhere => return self.not_here(core, at, from, bytes, size),
            Outcome::Kept => return self.give(core, at, from, bytes, size, EXECUTOR),
            Outcome::Transfer(rest) => {
                rest.value.copy_into(out);
                out.extend_from_slice(rest.tail);
            }
            Outcome::Close => return Next::Stop,
            Outcome::Shutdown { graceful: _ } => {
                core.shared.request_stop();
                return Next::Stop;
            }
            Outcome::FlushAt(when) => core.shared.flush_at(when),
            Outcome::Stats(question) => {
                if self.withhold(at, from) {
                    return Next::Gone(bytes.len());
                }
                let answer = core.answer_question(&question);
                self.batches[from.queue()].out().extend_from_slice(&answer);
                self.tally(core, from, operation(request), size.0);
                return Next::Last(bytes.len());
            }
            Outcome::Backup(_) => out.extend_from_slice(BACKUP_BY_STREAM),
            Outcome::Tier(asked) => out.extend_from_slice(core.shared.answer_tier(asked)),
            Outcome::ClientLimit(..) => out.extend_from_slice(LIMIT_BY_STREAM),
            Outcome::Watch(_) => out.extend_from_slice(WATCH_BY_STREAM),
            Outcome::Verbosity(level) => core.shared.set_verbosity(level),
        }
        core.count_hot_request(request);
        self.tally(core, from, operation(request), size.0);
        Next::Took(bytes.len())
    }

    /// The client is wrong: tell it, and go on as over TCP, as far as the message goes.
    fn refuse<T: Transport>(
        &mut self,
        core: &mut Core<T>,
        from: &From,
        what: &Malformed<'_>,
        rest: &[u8],
    ) -> Next {
        self.batches[from.queue()].out().extend_from_slice(what.reply);
        core.counters().malformed.bump_owner();
        execute::refused_by_size(&core.context_of_malformed(what), what);
        match what.then {
            Then::Continue => Next::Took(what.head_bytes),
            Then::Swallow(bytes) => Next::Took(rest.len().min(what.head_bytes + bytes)),
            Then::Close => Next::Stop,
        }
    }

    /// Count what was answered simply; its latency is recorded when the batch has left.
    fn tally_simple<T: Transport>(&mut self, core: &Core<T>, from: &From, simple: &Simple) {
        if simple.requests() == 0 {
            return;
        }
        core.count_simple(simple);
        let row = latency::row(Operation::Get, false);
        self.tallies[from.queue()].add_many(row, simple.requests() as u16, from.arrived_nanos);
    }

    /// Count a request; its latency is recorded when the batch has left.
    fn tally<T: Transport>(
        &mut self,
        core: &Core<T>,
        from: &From,
        operation: Operation,
        size: u64,
    ) {
        core.tally_request(&mut self.tallies[from.queue()], operation, size, from.arrived_nanos);
    }
}

/// Whether the client wants no answer, not even to what cannot be read to its end.
fn is_quiet(request: &Request<'_>) -> bool {
    matches!(request, Request::Store(store) if store.noreply)
}
