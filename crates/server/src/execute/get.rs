//! `get`, `gets`, `gat`, `gats`.

use super::attempts::{Attempts, TOO_MANY, unchanged};
use super::{Context, Outcome, expires_at, transfer};
use laneway_store::{Got, ItemMeta, KeyHash, UnixSeconds};
use laneway_wire::reply::{CRLF, END, put_value_head};
use laneway_wire::{Get, GetVerb};

const fn returns_cas(verb: GetVerb) -> bool {
    matches!(verb, GetVerb::Gets | GetVerb::Gats)
}

const fn touches(verb: GetVerb) -> bool {
    matches!(verb, GetVerb::Gat | GetVerb::Gats)
}

/// One key of a `get`, `gets`, `gat` or `gats`: a value, or nothing where there is none. Writes no
/// `END`: the caller goes through the keys, since a large value in their middle makes the rest wait
/// for its transfer. `expires` is the new expiry of `gat` and `gats`, from [`expires_at`].
pub fn get_key(
    context: &Context<'_>,
    verb: GetVerb,
    expires: UnixSeconds,
    key: &[u8],
    hash: KeyHash,
    out: &mut Vec<u8>,
) -> Outcome {
    if touches(verb) {
        return get_and_touch(context, verb, expires, key, hash, out);
    }
    #[cfg(feature = "needless-allocation")]
    std::hint::black_box(Vec::<u8>::with_capacity(key.len()));
    let counters = context.counters;
    let (start, sight) = (out.len(), context.sight());
    let mut head = |meta: &ItemMeta, out: &mut Vec<u8>| head(context, verb, key, meta, out);
    let (meta, value) = match context.store.get(hash, key, context.now, out, &mut head) {
        Got::Miss => {
            if let Some(outcome) = context.beyond_memory(hash, key) {
                return outcome;
            }
            counters.cmd_get.bump_owner();
            counters.get_misses.bump_owner();
            return Outcome::Done;
        }
        Got::Copied(meta) => (meta, None),
        Got::Large(meta, value) => (meta, Some(value)),
    };
    if !context.reads(&meta) {
        out.truncate(start);
        return Outcome::Elsewhere;
    }
    if context.is_hidden(hash, sight) {
        out.truncate(start);
        return Outcome::Kept;
    }
    counters.cmd_get.bump_owner();
    counters.get_hits.bump_owner();
    let Some(value) = value else {
        out.extend_from_slice(CRLF);
        return Outcome::Done;
    };
    head(&meta, out);
    transfer(value)
}

fn head(context: &Context<'_>, verb: GetVerb, key: &[u8], meta: &ItemMeta, out: &mut Vec<u8>) {
    let cas = returns_cas(verb).then(|| context.cas(meta));
    put_value_head(out, key, meta.flags, meta.value_bytes as usize, cas);
}

fn get_and_touch(
    context: &Context<'_>,
    verb: GetVerb,
    expires: UnixSeconds,
    key: &[u8],
    hash: KeyHash,
    out: &mut Vec<u8>,
) -> Outcome {
    let start = out.len();
    let mut attempts = Attempts::new();
    while attempts.again() {
        out.truncate(start);
        let mut head = |meta: &ItemMeta, out: &mut Vec<u8>| head(context, verb, key, meta, out);
        let (meta, value) = match context.store.get(hash, key, context.now, out, &mut head) {
            Got::Miss => {
                if let Some(outcome) = context.beyond_memory(hash, key) {
                    return outcome;
                }
                context.counters.cmd_touch.bump_owner();
                context.counters.touch_misses.bump_owner();
                return Outcome::Done;
            }
            Got::Copied(meta) => (meta, None),
            Got::Large(meta, value) => (meta, Some(value)),
        };
        if !context.reads(&meta) {
            out.truncate(start);
            return Outcome::Elsewhere;
        }
        let mut entry = context.enter(hash, key);
        if !unchanged(&meta, entry.meta().as_ref()) {
            continue;
        }
        entry.set_expires(expires);
        drop(entry);
        context.counters.cmd_touch.bump_owner();
        context.counters.touch_hits.bump_owner();
        let Some(value) = value else {
            out.extend_from_slice(CRLF);
            return Outcome::Done;
        };
        head(&meta, out);
        return transfer(value);
    }
    out.truncate(start);
    out.extend_from_slice(TOO_MANY);
    Outcome::Done
}

/// All keys and the `END`, large values copied.
pub(super) fn get_whole(context: &Context<'_>, get: &Get<'_>, out: &mut Vec<u8>) -> Outcome {
    let start = out.len();
    let expires = expires_at(get.exptime, context.now);
    for key in get.keys {
        let hash = context.store.hash(key);
        match get_key(context, get.verb, expires, key, hash, out) {
            Outcome::Transfer(rest) => {
                rest.value.copy_into(out);
                out.extend_from_slice(rest.tail);
            }
            elsewhere @ (Outcome::Elsewhere | Outcome::Kept) => {
                out.truncate(start);
                return elsewhere;
            }
            _ => {}
        }
    }
    out.extend_from_slice(END);
    Outcome::Done
}
