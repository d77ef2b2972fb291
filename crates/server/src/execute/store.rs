//! `set`, `add`, `replace`, `append`, `prepend`, `cas` and `ms`.
//!
//! A value either lies whole in the input ([`store_whole`]) or streams in behind its header
//! ([`begin`], [`Incoming`]): then it goes straight into the item's own memory, except for `append`
//! and `prepend`, whose item cannot be laid out before the old value is known; their values are
//! gathered in a buffer that grows as bytes arrive.

mod complete;
mod incoming;

pub use incoming::{Body, Incoming};

use super::{Context, expires_at, reply};
use complete::{Fate, Value, complete};
use laneway_store::{KeyHash, Refused, UnixSeconds};
use laneway_wire::reply::{
    BAD_DATA_CHUNK, CRLF, EXISTS, NO_MEMORY_STORING, NOT_FOUND, NOT_STORED, STORED, TOO_LARGE,
    put_flag,
};
use laneway_wire::scan::Tokens;
use laneway_wire::{KEY_BYTES_MAX, MetaKey, MetaSet, MetaSetMode, Request, StoreVerb};

/// The reply to a store that was refused when its header was seen. The connection sends it, and
/// swallows the value that follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refusal {
    /// What to send now; empty where the client wants no answer.
    pub reply: &'static [u8],
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
    Joined { behind: bool, cas: Option<u64>, vivify: Option<UnixSeconds> },
}

/// How to store a value: everything but key and value.
#[derive(Debug, Clone, Copy)]
struct How {
    place: Place,
    flags: u32,
    expires: UnixSeconds,
    cas_explicit: Option<u64>,
}

/// How to answer.
#[derive(Clone, Copy)]
enum Answer<'a> {
    Text { noreply: bool },
    Meta { key: MetaKey<'a>, flags: &'a [u8], quiet: bool },
}

/// A store whose value lies whole in the input: `body` is the value without its `\r\n`.
///
/// # Panics
/// If the request takes no value, or `body` is not as long as it says.
pub fn store_whole(context: &Context<'_>, request: &Request<'_>, body: &[u8], out: &mut Vec<u8>) {
    let mut scratch = [0; KEY_BYTES_MAX];
    let (key, how, answer) = read(context, request, &mut scratch);
    let hash = context.store.hash(key);
    let value = match how.place {
        Place::Joined { .. } => Value::Bytes(body),
        Place::Whole(_) => {
            let draft = context.store.draft(key, how.flags, how.expires, body.len(), context.now);
            match draft.and_then(|mut draft| draft.write(body).map(|()| draft)) {
                Ok(draft) => Value::Draft(draft, body.len()),
                Err(refused) => {
                    let line = refuse(context, key, hash, &how, &answer, refused);
                    return out.extend_from_slice(line);
                }
            }
        }
    };
    finish(context, key, hash, &how, &answer, value, out);
}

/// Begin a store whose value will be streamed: called when the header is parsed.
///
/// # Panics
/// If the request takes no value.
pub fn begin(context: &Context<'_>, request: &Request<'_>) -> Result<Incoming, Refusal> {
    let mut scratch = [0; KEY_BYTES_MAX];
    let (key, how, answer) = read(context, request, &mut scratch);
    let hash = context.store.hash(key);
    let value_bytes = match request {
        Request::Store(store) => store.value_bytes,
        Request::MetaSet(set) => set.value_bytes,
        _ => unreachable!("`read` took it"),
    };
    let body = match how.place {
        Place::Joined { .. } => Body::buffer(value_bytes),
        Place::Whole(_) => {
            let draft = context.store.draft(key, how.flags, how.expires, value_bytes, context.now);
            match draft {
                Ok(draft) => Body::Draft(draft, value_bytes),
                Err(refused) => {
                    let reply = refuse(context, key, hash, &how, &answer, refused);
                    return Err(Refusal { reply });
                }
            }
        }
    };
    Ok(Incoming::new(key, hash, how, &answer, body))
}

/// A `set` or `ms` that the parser refused for its size: count it, and drop the old item of that
/// key, so that no stale value stays behind.
pub fn refused_by_size(context: &Context<'_>, key: Option<MetaKey<'_>>) {
    context.counters.store_too_large.bump_owner();
    if let Some(key) = key {
        let mut scratch = [0; KEY_BYTES_MAX];
        let key = key.bytes(&mut scratch);
        unlink(context, key, context.store.hash(key));
    }
}

/// A store whose value lies whole in the input, but without a `\r\n` where its length says: say so
/// and store nothing. Meta requests hear of errors even where they are quiet.
pub fn bad_chunk(context: &Context<'_>, request: &Request<'_>, out: &mut Vec<u8>) {
    context.counters.cmd_set.bump_owner();
    let noreply = matches!(request, Request::Store(store) if store.noreply);
    reply::unless(noreply, BAD_DATA_CHUNK, out);
}

fn unlink(context: &Context<'_>, key: &[u8], hash: KeyHash) {
    let mut entry = context.store.enter(hash, key, context.now);
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
                StoreVerb::Append => Place::Joined { behind: true, cas: None, vivify: None },
                StoreVerb::Prepend => Place::Joined { behind: false, cas: None, vivify: None },
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
    let joined = |behind| {
        let cas = flags.cas_compare.filter(|&id| id != 0);
        Place::Joined { behind, cas, vivify }
    };
    let place = match flags.set_mode {
        MetaSetMode::Set => Place::Whole(compared(Condition::Always)),
        MetaSetMode::Replace => Place::Whole(compared(Condition::Present)),
        MetaSetMode::Add => Place::Whole(Condition::Absent),
        MetaSetMode::Append => joined(true),
        MetaSetMode::Prepend => joined(false),
    };
    How {
        place,
        flags: flags.client_flags.unwrap_or(0),
        expires: expires_at(flags.exptime.unwrap_or(0), context.now),
        cas_explicit: flags.cas_explicit,
    }
}

/// Count a refusal; where the client set a value that we cannot take, drop the old one, so that no
/// stale value stays behind. Returns what the client is told.
fn refuse(
    context: &Context<'_>,
    key: &[u8],
    hash: KeyHash,
    how: &How,
    answer: &Answer<'_>,
    refused: Refused,
) -> &'static [u8] {
    let line = match refused {
        Refused::TooLarge => {
            context.counters.store_too_large.bump_owner();
            TOO_LARGE
        }
        Refused::OutOfMemory => {
            context.counters.store_no_memory.bump_owner();
            NO_MEMORY_STORING
        }
    };
    match answer {
        Answer::Text { noreply } => {
            if how.place == Place::Whole(Condition::Always) {
                unlink(context, key, hash);
            }
            if *noreply { b"" } else { line }
        }
        Answer::Meta { .. } => {
            unlink(context, key, hash);
            line
        }
    }
}

/// Store a complete value and answer.
fn finish(
    context: &Context<'_>,
    key: &[u8],
    hash: KeyHash,
    how: &How,
    answer: &Answer<'_>,
    value: Value<'_>,
    out: &mut Vec<u8>,
) {
    let value_bytes = value.value_bytes();
    let fate = complete(context, key, hash, how, value, out);
    context.counters.cmd_set.bump_owner();
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
    }
}

fn text_line(fate: &Fate) -> &'static [u8] {
    match fate {
        Fate::Done { .. } => STORED,
        Fate::Exists => EXISTS,
        Fate::Missing => NOT_FOUND,
        Fate::Unmet => NOT_STORED,
        Fate::TooMany => super::attempts::TOO_MANY,
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
