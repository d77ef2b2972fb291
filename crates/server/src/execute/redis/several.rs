//! Commands that change several keys: `MSETNX`, `RENAME`, `RENAMENX`. They are executed where
//! nobody else changes anything meanwhile ([`crate::resp::scratch`]), one key after the other.

use super::keys::look;
use super::{Asking, OUT_OF_MEMORY, TOO_LARGE};
use crate::execute::Context;
use laneway_store::{Draft, Got, Moment, Refused, Store};
use laneway_wire::resp::Args;
use laneway_wire::resp::reply::{OK, put_integer};

const NO_KEY: &[u8] = b"-ERR no such key\r\n";

/// Executes `MSETNX` of these pairs.
pub fn set_all_absent(asking: &Asking<'_>, pairs: Args<'_>, out: &mut Vec<u8>) {
    let context = &asking.context;
    context.counters.cmd_set.add_owner(u64::from(pairs.left() / 2));
    let mut keys = pairs.step_by(2);
    if keys.any(|key| matches!(look(asking, key), Ok(Some(_)))) {
        return put_integer(out, 0);
    }
    let (mut drafts, mut pairs) = (Vec::new(), pairs);
    while let (Some(key), Some(value)) = (pairs.next(), pairs.next()) {
        match drafted(context, key, value, (0, Moment::NEVER)) {
            Ok(draft) => drafts.push((key, draft)),
            Err(words) => return out.extend_from_slice(words),
        }
    }
    for (key, draft) in drafts {
        context.enter(context.store.hash(key), key).publish(draft, None);
    }
    put_integer(out, 1);
}

/// Executes `RENAME`, or `RENAMENX` where `only_absent` is set: the item keeps its value, its end
/// and its client flags.
pub fn rename(
    asking: &Asking<'_>,
    (from, to): (&[u8], &[u8]),
    only_absent: bool,
    out: &mut Vec<u8>,
) {
    let context = &asking.context;
    let (store, mut value) = (context.store, Vec::new());
    let meta = match store.peek_value(store.hash(from), from, context.now, &mut value) {
        Got::Miss => return out.extend_from_slice(NO_KEY),
        Got::Copied(meta) => meta,
        Got::Large(meta, pinned) => {
            pinned.copy_into(&mut value);
            meta
        }
    };
    context.touched.set((from.len() + value.len()) as u64);
    if only_absent && matches!(look(asking, to), Ok(Some(_))) {
        return put_integer(out, 0);
    }
    if from != to {
        let mut draft = match drafted(context, to, &value, (meta.flags, meta.expires)) {
            Ok(draft) => draft,
            Err(words) => return out.extend_from_slice(words),
        };
        draft.set_marks(meta.stale, meta.token_sent);
        context.enter(store.hash(to), to).publish(draft, None);
        context.enter(store.hash(from), from).unlink();
    }
    match only_absent {
        true => put_integer(out, 1),
        false => out.extend_from_slice(OK),
    }
}

/// An item to be, whole, with these client flags and this end; or what is told instead.
fn drafted<'a>(
    context: &Context<'a>,
    key: &[u8],
    value: &[u8],
    (flags, expires): (u32, Moment),
) -> Result<Draft<&'a Store>, &'static [u8]> {
    let draft = context.draft(key, flags, expires, value.len());
    draft.and_then(|mut draft| draft.write(value).map(|()| draft)).map_err(
        |refused| match refused {
            Refused::TooLarge => TOO_LARGE,
            Refused::OutOfMemory => OUT_OF_MEMORY,
        },
    )
}
