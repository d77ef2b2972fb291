//! Requests of a connection that another worker executes: which, and in what pieces. A request
//! without a value goes as its line, one with a value as its line and the value, one whose value
//! streams in as the finished draft. Of a multiget those keys go together that go to one queue.
//!
//! What is handed over is consumed only when it lies in its queue: a full queue leaves everything
//! as it was, for the next turn. `lanes` moves whole connections instead, see [`crate::lanes`].

use crate::clock::Clock;
use crate::connection::{Connection, Mode};
use crate::durable::shared::KEEPER;
use crate::execute::Incoming;
use crate::handoff::Work;
use crate::receive::{Step, Stop};
use crate::stats::{self, Question};
use crate::worker::Worker;
use laneway_policy::route::hands_unseen;
use laneway_policy::{Asked, Design, ItemBytes, Route, WorkerTarget, hand, route};
use laneway_store::meter;
use laneway_sync::planted::{Bug, is_planted};
use laneway_transport::Transport;
use laneway_wire::{GetVerb, KEY_BYTES_MAX, Keys, Meta, Request};

/// Keys of a multiget that one job looks up.
const KEYS_PER_JOB: usize = 64;

/// The most that the keeper is to bring into memory for one reply: values in a reply stay there
/// until they have left.
const KEPT_BYTES_MAX: u64 = 256 << 10;

/// A multiget that is being served: what is left of its line begins at some key.
#[derive(Debug, Clone, Copy)]
pub(crate) struct KeysLeft<'a> {
    pub(crate) verb: GetVerb,
    pub(crate) exptime: i64,
    /// The rest of the line, newline included.
    pub(crate) line: &'a [u8],
    /// The same without its end.
    pub(crate) text: &'a [u8],
    /// Where in it the next key begins.
    pub(crate) at: usize,
}

impl<T: Transport, C: Clock> Worker<T, C> {
    /// Whether requests of this worker's connections may have to be handed over: those of some
    /// size, and those of which no size is known.
    pub(crate) fn rules(&self) -> (bool, bool) {
        let elsewhere = |size| matches!(route(&self.plan, self.id, size), Route::Hand(_));
        let sizes = elsewhere(self.plan.threshold) || elsewhere(ItemBytes(u64::MAX));
        let unseen = hands_unseen(&self.plan) || self.shared.durable.get().is_some();
        (sizes, unseen || self.has_domains())
    }

    /// The queue for a request for `key`, if not here and now. `size`: of its item, 0 if unknown.
    pub(crate) fn queue_for(&self, key: &[u8], writes: bool, size: u64) -> Option<WorkerTarget> {
        if writes && self.shared.durable.get().is_some() {
            return Some(KEEPER);
        }
        if !self.hands_unseen && (!self.hands_over || size == 0) {
            return None;
        }
        if let Some(abroad) = self.abroad(key) {
            return Some(abroad);
        }
        let owner = match self.plan.design {
            Design::Hkh => self.owner_of(key),
            _ => self.id, // no other design asks whose key it is
        };
        let size = (size > 0).then_some(ItemBytes(size));
        hand(&self.plan, self.id, &Asked { owner, writes, size })
    }

    /// The queue for a request that stores. Whoever executes a job does so in one step, so what
    /// joins bytes to another domain's item, which may be large, is done here, slice by slice.
    pub(crate) fn queue_for_store(
        &self,
        key: &[u8],
        joins: impl Fn() -> bool,
        size: u64,
    ) -> Option<WorkerTarget> {
        let is_mine = |to| Self::is_abroad(to) && joins() && !is_planted(Bug::JoinedAbroad);
        self.queue_for(key, true, size).filter(|to| !is_mine(*to))
    }

    /// The queue for a request without a value, before anybody has looked its item up.
    pub(crate) fn queue_for_unseen(&self, request: &Request<'_>) -> Option<WorkerTarget> {
        if !self.hands_unseen {
            return None;
        }
        if self.shared.durable.get().is_some() && is_keepers(request) {
            return Some(KEEPER);
        }
        let mut scratch = [0; KEY_BYTES_MAX];
        let (key, writes) = key_of(request, &mut scratch)?;
        self.queue_for(key, writes, 0)
    }

    /// Hand the first `bytes` of `input` over: a whole request.
    pub(crate) fn hand_request(
        &mut self,
        connection: &mut Connection<T::Stream>,
        to: WorkerTarget,
        request: &[u8],
        size: u64,
        arrived: u64,
    ) -> Step {
        meter::bytes(request.len());
        let work = Work::Request { bytes: request.to_vec(), ends: true };
        match self.hand_over(connection, to, work, ItemBytes(size), arrived) {
            Ok(()) => Step::Stop(request.len(), Stop::Ticket),
            Err(_) => Step::Stop(0, Stop::Quota),
        }
    }

    /// A request that turned out to be for another worker to serve: a large one, which nothing was
    /// done for yet. In `lanes` its connection moves; else it is handed over.
    pub(crate) fn elsewhere(
        &mut self,
        connection: &mut Connection<T::Stream>,
        request: &[u8],
        size: u64,
        arrived: u64,
    ) -> Step {
        if self.plan.design == Design::Lanes {
            return Step::Stop(0, Stop::Hand);
        }
        let to = self.queue_for_size(size);
        self.hand_request(connection, to, request, size, arrived)
    }

    /// The queue for an item of the large lane. Its own, where the plan serves it here after all.
    pub(crate) fn queue_for_size(&self, size: u64) -> WorkerTarget {
        self.queue_for(&[], false, size).unwrap_or(WorkerTarget::Worker(self.id))
    }

    /// Hand keys of a multiget over, from the next one on: at most `most`, and as many as go to the
    /// same queue.
    pub(crate) fn hand_keys(
        &mut self,
        connection: &mut Connection<T::Stream>,
        to: WorkerTarget,
        left: KeysLeft<'_>,
        most: usize,
        size: u64,
        arrived: u64,
    ) -> Step {
        let KeysLeft { verb, exptime, line, text, at } = left;
        let writes = writes(verb);
        let mut keys = Keys::new(&text[at..]);
        let mut end = at;
        let mut kept_bytes = 0;
        for taken in 0..most.min(KEYS_PER_JOB) {
            let mut next = keys;
            let Some(key) = next.next() else { break };
            kept_bytes += self.kept_bytes(key, to);
            if taken > 0 && (!self.goes_along(key, writes, to) || KEPT_BYTES_MAX < kept_bytes) {
                break;
            }
            keys = next;
            end = text.len() - keys.rest().len();
        }
        let ends = keys.next().is_none();
        let mut bytes = verb_words(verb, exptime);
        bytes.extend_from_slice(&text[at..end]);
        bytes.extend_from_slice(b"\r\n");
        let work = Work::Request { bytes, ends };
        let handed = self.hand_over(connection, to, work, ItemBytes(size), arrived);
        let (taken, stop) = match handed {
            Ok(()) if ends => {
                connection.mode = Mode::Requests;
                return Step::Stop(line.len(), Stop::Ticket);
            }
            Ok(()) => (end, Stop::Ticket),
            Err(_) => (at, Stop::Quota),
        };
        connection.mode = Mode::Keys { verb, exptime, line_bytes: line.len() - taken };
        Step::Stop(taken, stop)
    }

    /// What the keeper has to bring into memory for a key that it is given.
    fn kept_bytes(&self, key: &[u8], to: WorkerTarget) -> u64 {
        let durable = self.shared.durable.get().filter(|_| to == KEEPER);
        let bytes = durable.and_then(|durable| durable.veil.value_bytes(key, self.now_seconds));
        bytes.unwrap_or(0)
    }

    /// Whether a key of a multiget goes where the one before it goes.
    fn goes_along(&self, key: &[u8], writes: bool, to: WorkerTarget) -> bool {
        if to != KEEPER || writes {
            return self.queue_for(key, writes, 0) == Some(to);
        }
        let store = &self.shared.store;
        store.peek(store.hash(key), key, self.now_seconds).is_none()
    }

    /// A value that streamed in is whole: to whom does storing it belong? Gives it back if here.
    pub(crate) fn hand_body(
        &mut self,
        connection: &mut Connection<T::Stream>,
        incoming: Box<Incoming>,
        arrived: u64,
    ) -> Result<Step, Box<Incoming>> {
        let size = incoming.item_bytes();
        let to = self.queue_for_store(incoming.key(), || incoming.joins(), size);
        let Some(to) = to else { return Err(incoming) };
        let work = Work::Body(incoming);
        match self.hand_over(connection, to, work, ItemBytes(size), arrived) {
            Ok(()) => Ok(Step::Stop(0, Stop::Ticket)),
            Err(Work::Body(incoming)) => {
                connection.mode = Mode::BodyEnd(incoming);
                Ok(Step::Stop(0, Stop::Quota))
            }
            Err(Work::Request { .. }) => unreachable!("what comes back is what was given"),
        }
    }
}

/// Whether a request that changes no item is the keeper's all the same: it is about all of them, or
/// about what memory does not know.
fn is_keepers(request: &Request<'_>) -> bool {
    match request {
        Request::FlushAll { .. } | Request::MetaDebug(_) => true,
        Request::Stats(words) => stats::question(words) == Ok(Question::Tier),
        _ => false,
    }
}

/// The key of a request without a value, and whether the request may change its item. `None` for
/// those that are about no key, and for multigets, whose keys are asked for one by one.
pub(crate) fn key_of<'s, 'a: 's>(
    request: &Request<'a>,
    scratch: &'s mut [u8; KEY_BYTES_MAX],
) -> Option<(&'s [u8], bool)> {
    Some(match request {
        Request::Delete(delete) => (delete.key, true),
        Request::Arith(arith) => (arith.key, true),
        Request::Touch(touch) => (touch.key, true),
        Request::MetaDelete(meta) | Request::MetaArith(meta) => (meta.key.bytes(scratch), true),
        Request::MetaGet(meta) => (meta.key.bytes(scratch), meta_get_writes(meta)),
        Request::MetaDebug(meta) => (meta.key.bytes(scratch), false),
        _ => return None,
    })
}

fn meta_get_writes(meta: &Meta<'_>) -> bool {
    let flags = &meta.flags;
    flags.exptime.is_some() || flags.vivify.is_some() || flags.recache.is_some()
}

/// Whether a `get` of this verb changes its items.
pub(crate) fn writes(verb: GetVerb) -> bool {
    matches!(verb, GetVerb::Gat | GetVerb::Gats)
}

/// The beginning of a line that asks for keys, up to the first of them.
pub(crate) fn verb_words(verb: GetVerb, exptime: i64) -> Vec<u8> {
    match verb {
        GetVerb::Get => b"get ".to_vec(),
        GetVerb::Gets => b"gets ".to_vec(),
        GetVerb::Gat => format!("gat {exptime} ").into_bytes(),
        GetVerb::Gats => format!("gats {exptime} ").into_bytes(),
    }
}
