//! `set`, `add`, `replace`, `append`, `prepend`, `cas` and `ms`.
//!
//! A value either lies whole in the input ([`store_whole`]) or streams in behind its header
//! ([`begin`], [`Incoming`]): then it goes straight into the item's own memory, except for `append`
//! and `prepend`, whose item cannot be laid out before the old value is known; their values are
//! gathered in a buffer that grows as bytes arrive.

mod answer;
mod binary;
mod complete;
mod incoming;
mod join;
mod resp;
mod telling;

pub use binary::{
    adds_binary, begin_binary, refuse_added_binary, refuse_binary, store_binary_slice,
    store_binary_whole, stores_blindly,
};
pub use incoming::{Incoming, Landed, Landing};
pub use join::{Joining, Spot};
pub use resp::{begin_resp, join_slice, join_whole};

use super::{Context, Outcome, expires_at, reply};
use crate::event_log::{Stored, StoredBy};
use answer::AnswerOwned;
use complete::{Fate, complete};
use join::{Bytes, Join};
use laneway_store::{KeyHash, Moment, Refused};
use laneway_wire::reply::{
    BAD_DATA_CHUNK, CRLF, EXISTS, NO_MEMORY_STORING, NOT_FOUND, NOT_STORED, STORED, TOO_LARGE,
    put_flag,
};
use laneway_wire::scan::Tokens;
use laneway_wire::{KEY_BYTES_MAX, Malformed, MetaKey, MetaSet, MetaSetMode, Request, StoreVerb};
use telling::Telling;

/// A value as it lies whole in the input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Body<'a> {
    value: &'a [u8],
    /// Whether `\r\n` ends it.
    is_ended: bool,
}

impl<'a> Body<'a> {
    /// The value in `bytes`, the two that end it included.
    pub fn of(bytes: &'a [u8]) -> Self {
        let (value, end) = bytes.split_at(bytes.len().saturating_sub(CRLF.len()));
        Body { value, is_ended: end == CRLF }
    }
}

/// When to store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Condition {
    Always,
    Absent,
    Present,
    /// The item's CAS id is this one. With `or_older`, a lower one stores too, and marks stale.
    Cas {
        id: u64,
        or_older: bool,
    },
}

/// Where the value goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// It is the item's value.
    Whole(Condition),
    /// It is added to the value there is, if the CAS id is this one. With `vivify`, an item made
    /// of it alone is stored where there is none.
    Joined { spot: Spot, cas: Option<u64>, vivify: Option<Moment> },
}

/// How to store a value: everything but key and value.
#[derive(Debug, Clone, Copy)]
struct How {
    place: Place,
    flags: u32,
    expires: Moment,
    cas_explicit: Option<u64>,
}

impl How {
    /// The end to begin the item with: one with room for every full second where the end is known
    /// only with the item that it replaces.
    const fn begun(&self) -> Moment {
        match self.place {
            Place::Whole(Condition::Cas { or_older: true, .. }) => Moment::LATER.rounded_up(),
            _ => self.expires,
        }
    }

    /// How this is logged.
    fn stored_by(&self) -> StoredBy {
        match self.place {
            Place::Whole(Condition::Always) => StoredBy::Set,
            Place::Whole(Condition::Absent) => StoredBy::Add,
            Place::Whole(Condition::Present) => StoredBy::Replace,
            Place::Whole(Condition::Cas { .. }) => StoredBy::Cas,
            Place::Joined { spot: Spot::Behind, .. } => StoredBy::Append,
            Place::Joined { spot: Spot::Before, .. } => StoredBy::Prepend,
            Place::Joined { spot: Spot::At(_), .. } => StoredBy::Set,
        }
    }
}

/// How to answer.
#[derive(Clone, Copy)]
enum Answer<'a> {
    Text { noreply: bool },
    Meta { key: MetaKey<'a>, flags: &'a [u8], quiet: bool },
    Binary(Telling),
    Resp,
}

/// The key of a request that takes a value; of others, nothing.
pub fn key_of_store<'s, 'a: 's>(
    request: &Request<'a>,
    scratch: &'s mut [u8; KEY_BYTES_MAX],
) -> &'s [u8] {
    match request {
        Request::Store(store) => store.key,
        Request::MetaSet(set) => set.meta.key.bytes(scratch),
        _ => &[],
    }
}

/// Bytes of the value that follows a request's line, if one does.
pub fn value_bytes(request: &Request<'_>) -> Option<usize> {
    match request {
        Request::Store(store) => Some(store.value_bytes),
        Request::MetaSet(set) => Some(set.value_bytes),
        _ => None,
    }
}

/// The same with the two bytes that end it; of other requests, none.
pub fn value_behind(request: &Request<'_>) -> usize {
    value_bytes(request).map_or(0, |bytes| bytes + CRLF.len())
}

/// Whether a request needs to know the item there is: all but a plain set and those about no item.
pub fn looks_at_old(request: &Request<'_>) -> bool {
    match request {
        Request::Store(store) => store.verb != StoreVerb::Set,
        Request::MetaSet(set) => {
            set.meta.flags.set_mode != MetaSetMode::Set || set.meta.flags.cas_compare.is_some()
        }
        _ => true,
    }
}

/// Whether a request with this value stores only where there is no item.
pub fn adds(request: &Request<'_>, body: Body<'_>) -> bool {
    let adds = match request {
        Request::Store(store) => store.verb == StoreVerb::Add,
        Request::MetaSet(set) => set.meta.flags.set_mode == MetaSetMode::Add,
        _ => false,
    };
    adds && body.is_ended
}

/// Answers such a request where there is an item, be it in memory or not.
pub fn refuse_added(
    context: &Context<'_>,
    request: &Request<'_>,
    body: Body<'_>,
    out: &mut Vec<u8>,
) {
    let mut scratch = [0; KEY_BYTES_MAX];
    let (key, how, answer) = read(context, request, &mut scratch);
    answer_fate(context, (key, &how), &answer, Fate::Unmet, body.value.len(), out);
}

/// Whether a request joins its bytes to those of an item that there is, which may be large.
pub fn joins(request: &Request<'_>) -> bool {
    match request {
        Request::Store(store) => matches!(store.verb, StoreVerb::Append | StoreVerb::Prepend),
        Request::MetaSet(set) => {
            matches!(set.meta.flags.set_mode, MetaSetMode::Append | MetaSetMode::Prepend)
        }
        _ => false,
    }
}

/// A store whose value lies whole in the input: [`Outcome::Done`], or [`Outcome::Kept`].
///
/// # Panics
/// If the request takes no value.
pub fn store_whole(
    context: &Context<'_>,
    request: &Request<'_>,
    body: Body<'_>,
    out: &mut Vec<u8>,
) -> Outcome {
    match store_by(context, request, body, usize::MAX, out) {
        Ok(None) => Outcome::Done,
        Ok(Some(_)) => unreachable!("all of it was asked for"),
        Err(Forgotten) => Outcome::Kept,
    }
}

/// The same for a worker; of an `append` or `prepend` only about `budget` bytes are copied now, and
/// what is returned goes on with it.
///
/// # Panics
/// If the request takes no value.
pub fn store_slice(
    context: &Context<'_>,
    request: &Request<'_>,
    body: Body<'_>,
    budget: usize,
    out: &mut Vec<u8>,
) -> Option<Box<Joining>> {
    match store_by(context, request, body, budget, out) {
        Ok(joining) => joining,
        Err(Forgotten) => unreachable!("only what the executor executes is asked again"),
    }
}

/// Nothing was done: memory has forgotten the item, and the tier has it.
struct Forgotten;

fn store_by(
    context: &Context<'_>,
    request: &Request<'_>,
    body: Body<'_>,
    budget: usize,
    out: &mut Vec<u8>,
) -> Result<Option<Box<Joining>>, Forgotten> {
    let mut scratch = [0; KEY_BYTES_MAX];
    let (key, how, answer) = read(context, request, &mut scratch);
    if !body.is_ended {
        bad_chunk(context, &answer, out);
        return Ok(None);
    }
    store_bytes(context, (key, how, answer), body.value, budget, out)
}

/// Store `bytes` so; of what is joined about `budget` bytes are copied now.
fn store_bytes(
    context: &Context<'_>,
    (key, how, answer): (&[u8], How, Answer<'_>),
    bytes: &[u8],
    budget: usize,
    out: &mut Vec<u8>,
) -> Result<Option<Box<Joining>>, Forgotten> {
    let hash = context.store.hash(key);
    let fate = if let Some(mut join) = Join::of(&how, bytes) {
        match join.advance(context, key, hash, &how, budget) {
            Some(fate) => fate,
            None => {
                let (begun, added) = (join.parted(), Bytes::Own(bytes.to_vec()));
                let answer = AnswerOwned::of(&answer);
                return Ok(Some(Joining::new((key, hash), how, answer, begun, added)));
            }
        }
    } else {
        let draft = context.draft(key, how.flags, how.begun(), bytes.len());
        match draft.and_then(|mut draft| draft.write(bytes).map(|()| draft)) {
            Ok(draft) => {
                complete(context, key, hash, &how, draft, bytes.len()).map_err(|_| Forgotten)?
            }
            Err(refused) => {
                refuse(context, key, hash, &how, &answer, refused, out);
                return Ok(None);
            }
        }
    };
    if fate == Fate::Forgotten {
        return Err(Forgotten);
    }
    answer_fate(context, (key, &how), &answer, fate, bytes.len(), out);
    Ok(None)
}

/// Begin a store whose value will be streamed: called when the header is parsed. `None`: it is
/// refused, and answered; the value is to be swallowed.
///
/// # Panics
/// If the request takes no value.
pub fn begin(context: &Context<'_>, request: &Request<'_>, out: &mut Vec<u8>) -> Option<Incoming> {
    let mut scratch = [0; KEY_BYTES_MAX];
    let read = read(context, request, &mut scratch);
    begin_bytes(context, read, value_bytes(request).expect("`read` took it"), out)
}

/// Begin to receive so many bytes.
fn begin_bytes(
    context: &Context<'_>,
    (key, how, answer): (&[u8], How, Answer<'_>),
    value_bytes: usize,
    out: &mut Vec<u8>,
) -> Option<Incoming> {
    let hash = context.store.hash(key);
    let landing = match how.place {
        Place::Joined { .. } => Landing::buffer(context.store.charge(), value_bytes),
        Place::Whole(_) => {
            let draft = context.store.draft(key, how.flags, how.begun(), value_bytes);
            match draft {
                Ok(draft) => Landing::Draft(draft, value_bytes),
                Err(refused) => {
                    refuse(context, key, hash, &how, &answer, refused, out);
                    return None;
                }
            }
        }
    };
    Some(Incoming::new(key, hash, how, &answer, landing))
}

/// A request that the parser refused: if it was a store, for its size, count it; and drop the old
/// item where there is one to drop, so that no stale value stays behind. One that is kept durably
/// stays.
pub fn refused_by_size(context: &Context<'_>, what: &Malformed<'_>) {
    if what.unlink.is_some() || what.reply == TOO_LARGE {
        context.counters.store_too_large.bump_owner();
    }
    if let Some(key) = &what.unlink {
        let mut scratch = [0; KEY_BYTES_MAX];
        let key = key.bytes(&mut scratch);
        context.log_store(key, (Stored::TooLarge, StoredBy::Set), Moment::NEVER, 0);
        if !context.refuses_without_loss() {
            unlink(context, key, context.store.hash(key));
        }
    }
}

/// No `\r\n` stands where the value's length says: say so and store nothing. Meta requests hear of
/// errors even where they are quiet.
fn bad_chunk(context: &Context<'_>, answer: &Answer<'_>, out: &mut Vec<u8>) {
    context.counters.cmd_set.bump_owner();
    reply::unless(matches!(answer, Answer::Text { noreply: true }), BAD_DATA_CHUNK, out);
}

fn unlink(context: &Context<'_>, key: &[u8], hash: KeyHash) {
    let mut entry = context.enter(hash, key);
    if entry.meta().is_some() {
        entry.unlink();
    }
}

/// What the request says.
fn read<'s, 'a: 's>(
    context: &Context<'_>,
    request: &Request<'a>,
    scratch: &'s mut [u8; KEY_BYTES_MAX],
) -> (&'s [u8], How, Answer<'a>) {
    match request {
        Request::Store(store) => {
            let place = match store.verb {
                StoreVerb::Set => Place::Whole(Condition::Always),
                StoreVerb::Add => Place::Whole(Condition::Absent),
                StoreVerb::Replace => Place::Whole(Condition::Present),
                StoreVerb::Cas(id) => Place::Whole(Condition::Cas { id, or_older: false }),
                StoreVerb::Append => Place::Joined { spot: Spot::Behind, cas: None, vivify: None },
                StoreVerb::Prepend => Place::Joined { spot: Spot::Before, cas: None, vivify: None },
            };
            let expires = expires_at(store.exptime, context.now);
            let how = How { place, flags: store.flags, expires, cas_explicit: None };
            (store.key, how, Answer::Text { noreply: store.noreply })
        }
        Request::MetaSet(set) => {
            let flags = &set.meta.flags;
            let answer =
                Answer::Meta { key: set.meta.key, flags: flags.tokens, quiet: flags.quiet };
            (set.meta.key.bytes(scratch), read_meta(context, set), answer)
        }
        _ => unreachable!("this request takes no value"),
    }
}

fn read_meta(context: &Context<'_>, set: &MetaSet<'_>) -> How {
    let flags = &set.meta.flags;
    let vivify = flags.vivify.map(|exptime| expires_at(exptime, context.now));
    // A compare makes `cas` of set and replace; add ignores it.
    let compared = |otherwise| match flags.cas_compare {
        Some(id) => Condition::Cas { id, or_older: flags.invalidate },
        None => otherwise,
    };
    let joined = |spot| {
        let cas = flags.cas_compare.filter(|&id| id != 0);
        Place::Joined { spot, cas, vivify }
    };
    let place = match flags.set_mode {
        MetaSetMode::Set => Place::Whole(compared(Condition::Always)),
        MetaSetMode::Replace => Place::Whole(compared(Condition::Present)),
        MetaSetMode::Add => Place::Whole(Condition::Absent),
        MetaSetMode::Append => joined(Spot::Behind),
        MetaSetMode::Prepend => joined(Spot::Before),
    };
    How {
        place,
        flags: flags.client_flags.unwrap_or(0),
        expires: expires_at(flags.exptime.unwrap_or(0), context.now),
        cas_explicit: flags.cas_explicit.filter(|&id| id != 0), // 0: as if not given
    }
}

/// Count a refusal and answer it; where the client set a value that we cannot take, drop the old
/// one, so that no stale value stays behind.
fn refuse(
    context: &Context<'_>,
    key: &[u8],
    hash: KeyHash,
    how: &How,
    answer: &Answer<'_>,
    refused: Refused,
    out: &mut Vec<u8>,
) {
    context.log_store(key, (refused.into(), how.stored_by()), how.expires, 0);
    if matches!(answer, Answer::Resp) {
        return resp::put_refused(context, refused, out);
    }
    context.count_refused(refused);
    let line = match refused {
        Refused::TooLarge => TOO_LARGE,
        Refused::OutOfMemory => NO_MEMORY_STORING,
    };
    let is_set = match answer {
        Answer::Text { .. } => how.place == Place::Whole(Condition::Always),
        Answer::Binary(telling) => telling.is_set(),
        Answer::Meta { .. } | Answer::Resp => true,
    };
    if is_set && !context.refuses_without_loss() {
        unlink(context, key, hash);
    }
    match answer {
        Answer::Binary(telling) => telling.put_refused(refused, out),
        Answer::Text { noreply } => reply::unless(*noreply, line, out),
        Answer::Meta { .. } | Answer::Resp => out.extend_from_slice(line),
    }
}

/// Count and log what became of a store, and answer. `value_bytes`: of what the client sent.
fn answer_fate(
    context: &Context<'_>,
    (key, how): (&[u8], &How),
    answer: &Answer<'_>,
    fate: Fate,
    value_bytes: usize,
    out: &mut Vec<u8>,
) {
    context.counters.cmd_set.bump_owner();
    if context.logs_stores() {
        log_fate(context, (key, how), &fate, value_bytes);
    }
    if matches!(how.place, Place::Whole(Condition::Cas { .. })) {
        let counters = context.counters;
        match fate {
            Fate::Done { .. } => counters.cas_hits.bump_owner(),
            Fate::Missing => counters.cas_misses.bump_owner(),
            Fate::Exists => counters.cas_badval.bump_owner(),
            _ => {}
        }
    }
    match answer {
        Answer::Text { noreply } => reply::unless(*noreply, text_line(&fate), out),
        Answer::Meta { key, flags, quiet } => {
            context.counters.cmd_meta.bump_owner();
            if *quiet && matches!(fate, Fate::Done { .. }) {
                return;
            }
            meta_line(context, key, flags, &fate, value_bytes, out);
        }
        Answer::Binary(telling) => telling.put_fate(context, how, &fate, out),
        Answer::Resp => resp::put_fate(&fate, out),
    }
}

#[cold]
#[inline(never)]
fn log_fate(context: &Context<'_>, (key, how): (&[u8], &How), fate: &Fate, value_bytes: usize) {
    let (stored, stored_bytes) = fate.logged(value_bytes);
    context.log_store(key, (stored, how.stored_by()), how.expires, stored_bytes as u64);
}

fn text_line(fate: &Fate) -> &'static [u8] {
    match fate {
        Fate::Done { .. } => STORED,
        Fate::Exists => EXISTS,
        Fate::Missing => NOT_FOUND,
        Fate::Unmet => NOT_STORED,
        Fate::TooMany => super::attempts::TOO_MANY,
        Fate::Forgotten => unreachable!("it is not answered"),
    }
}

fn meta_line(
    context: &Context<'_>,
    key: &MetaKey<'_>,
    flags: &[u8],
    fate: &Fate,
    value_bytes: usize,
    out: &mut Vec<u8>,
) {
    // An id and a size of what was stored; of what was refused, no id and its own size.
    let (status, seq, value_bytes) = match *fate {
        Fate::Done { seq, value_bytes } => (b"HD", seq, value_bytes),
        Fate::Exists => (b"EX", 0, value_bytes),
        Fate::Missing => (b"NF", 0, value_bytes),
        Fate::Unmet => (b"NS", 0, value_bytes),
        Fate::TooMany => return out.extend_from_slice(super::attempts::TOO_MANY),
        Fate::Forgotten => unreachable!("it is not answered"),
    };
    out.extend_from_slice(status);
    for token in Tokens::new(flags) {
        match token[0] {
            b'O' => reply::opaque(token, out),
            b'k' => reply::meta_key(key, out),
            b'c' => put_flag(out, b'c', if context.settings.cas_enabled { seq } else { 0 }),
            b's' => put_flag(out, b's', value_bytes as u64),
            _ => {}
        }
    }
    out.extend_from_slice(CRLF);
}
