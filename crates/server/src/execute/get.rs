//! `get`, `gets`, `gat`, `gats`.

use super::anew::end_seen;
use super::attempts::{Attempts, TOO_MANY};
use super::{Context, Outcome, expires_at, transfer};
use laneway_store::{Got, ItemMeta, KeyHash, Moment};
use laneway_wire::reply::{CRLF, END, put_value_head};
use laneway_wire::{Get, GetVerb};

const fn returns_cas(verb: GetVerb) -> bool {
    matches!(verb, GetVerb::Gets | GetVerb::Gats)
}

const fn touches(verb: GetVerb) -> bool {
    matches!(verb, GetVerb::Gat | GetVerb::Gats)
}

/// How a value is told, or that there is none.
pub(super) trait Telling {
    /// What stands behind a value.
    const TAIL: &'static [u8];
    /// Put what stands before it.
    fn head(&self, context: &Context<'_>, meta: &ItemMeta, out: &mut Vec<u8>);
    /// Say that there is no item.
    fn miss(&self, out: &mut Vec<u8>);
    /// Say that others changed it all the time.
    fn too_many(&self, out: &mut Vec<u8>);
}

/// memcached's text.
struct Text<'a> {
    verb: GetVerb,
    key: &'a [u8],
}

impl Telling for Text<'_> {
    const TAIL: &'static [u8] = CRLF;

    #[inline]
    fn head(&self, context: &Context<'_>, meta: &ItemMeta, out: &mut Vec<u8>) {
        let cas = returns_cas(self.verb).then(|| context.cas(meta));
        put_value_head(out, self.key, meta.flags, meta.value_bytes as usize, cas);
    }

    /// The `END` says it.
    #[inline]
    fn miss(&self, _out: &mut Vec<u8>) {}

    fn too_many(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(TOO_MANY);
    }
}

/// One key of a `get`, `gets`, `gat` or `gats`: a value, or nothing where there is none. Writes no
/// `END`: the caller goes through the keys, since a large value in their middle makes the rest wait
/// for its transfer. `expires` is the new expiry of `gat` and `gats`, from [`expires_at`].
pub fn get_key(
    context: &Context<'_>,
    verb: GetVerb,
    expires: Moment,
    key: &[u8],
    hash: KeyHash,
    out: &mut Vec<u8>,
) -> Outcome {
    let text = Text { verb, key };
    if touches(verb) {
        return get_and_touch(context, &text, (key, hash), expires, out);
    }
    get(context, &text, (key, hash), out)
}

/// The value of a key, or that there is none.
#[inline]
pub(super) fn get<T: Telling>(
    context: &Context<'_>,
    telling: &T,
    (key, hash): (&[u8], KeyHash),
    out: &mut Vec<u8>,
) -> Outcome {
    let (start, sight) = (out.len(), context.sight());
    let mut head = |meta: &ItemMeta, out: &mut Vec<u8>| telling.head(context, meta, out);
    let (meta, value) = match context.store.get(hash, key, context.now, out, &mut head) {
        Got::Miss => {
            if let Some(outcome) = context.beyond_memory(hash, key) {
                return outcome;
            }
            context.tell_get(key, None);
            telling.miss(out);
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
    context.tell_get(key, Some(&meta));
    let Some(value) = value else {
        out.extend_from_slice(T::TAIL);
        return Outcome::Done;
    };
    head(&meta, out);
    transfer(value, T::TAIL)
}

/// The same, and the item expires then.
pub(super) fn get_and_touch<T: Telling>(
    context: &Context<'_>,
    telling: &T,
    (key, hash): (&[u8], KeyHash),
    expires: Moment,
    out: &mut Vec<u8>,
) -> Outcome {
    let start = out.len();
    let mut attempts = Attempts::new();
    while attempts.again() {
        out.truncate(start);
        let mut head = |meta: &ItemMeta, out: &mut Vec<u8>| telling.head(context, meta, out);
        let (meta, value) = match context.store.get(hash, key, context.now, out, &mut head) {
            Got::Miss => {
                if let Some(outcome) = context.beyond_memory(hash, key) {
                    return outcome;
                }
                context.tell_touch(key, None);
                telling.miss(out);
                return Outcome::Done;
            }
            Got::Copied(meta) => (meta, None),
            Got::Large(meta, value) => (meta, Some(value)),
        };
        if !context.reads(&meta) {
            out.truncate(start);
            return Outcome::Elsewhere;
        }
        if !end_seen(context, (key, hash), &meta, expires, |_| ()) {
            continue;
        }
        context.tell_touch(key, Some(&meta));
        let Some(value) = value else {
            out.extend_from_slice(T::TAIL);
            return Outcome::Done;
        };
        head(&meta, out);
        return transfer(value, T::TAIL);
    }
    out.truncate(start);
    telling.too_many(out);
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
