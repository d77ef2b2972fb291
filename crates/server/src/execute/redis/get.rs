//! `GET`, and what reads a value and changes its item in the same moment: `GETDEL`, `GETEX`, `SET`
//! with `GET`.

use super::anew::Anew;
use super::attempts::{Attempts, unchanged};
use super::{Asking, Expiry, TOO_MANY};
use crate::event_log::DeletedBy;
use crate::execute::get::Telling;
use crate::execute::{Context, Outcome, Transfer, transfer};
use laneway_store::{Entry, Got, ItemMeta, KeyHash, Moment};
use laneway_wire::reply::CRLF;
use laneway_wire::resp::reply::{Version, put_bulk, put_bulk_head, put_null};
use std::ops::Range;

fn head(meta: &ItemMeta, out: &mut Vec<u8>) {
    put_bulk_head(out, meta.value_bytes as usize);
}

impl Telling for Version {
    const TAIL: &'static [u8] = CRLF;

    #[inline]
    fn head(&self, _context: &Context<'_>, meta: &ItemMeta, out: &mut Vec<u8>) {
        head(meta, out);
    }

    fn miss(&self, out: &mut Vec<u8>) {
        put_null(out, *self);
    }

    fn too_many(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(TOO_MANY);
    }
}

/// `GET`
pub fn get(asking: &Asking<'_>, key: &[u8], hash: KeyHash, out: &mut Vec<u8>) -> Outcome {
    crate::execute::get::get(&asking.context, &asking.version, (key, hash), out)
}

/// Of a value of `length` bytes those from `start` to `end`, this one included; below 0 they count
/// from its end.
fn range_of((start, end): (i64, i64), length: usize) -> Range<usize> {
    let whole = length as i64;
    if length == 0 || (start < 0 && end < 0 && start > end) {
        return 0..0;
    }
    let from_front = |at: i64| if at < 0 { whole.saturating_add(at).max(0) } else { at };
    let (start, end) = (from_front(start), from_front(end).min(whole - 1));
    if start > end { 0..0 } else { start as usize..end as usize + 1 }
}

/// `GETRANGE`, `SUBSTR`: a part of a value.
pub fn get_range(
    asking: &Asking<'_>,
    key: &[u8],
    hash: KeyHash,
    range: (i64, i64),
    out: &mut Vec<u8>,
) -> Outcome {
    let context = &asking.context;
    let (start, sight) = (out.len(), context.sight());
    let (meta, value) = match context.store.get(hash, key, context.now, out, &mut |_, _| {}) {
        Got::Miss => {
            if let Some(outcome) = context.beyond_memory(hash, key) {
                return outcome;
            }
            context.tell_get(key, None);
            put_bulk(out, b"");
            return Outcome::Done;
        }
        Got::Copied(meta) => (meta, None),
        Got::Large(meta, value) => (meta, Some(value)),
    };
    let is_mine = context.reads(&meta);
    if !is_mine || context.is_hidden(hash, sight) {
        out.truncate(start);
        return if is_mine { Outcome::Kept } else { Outcome::Elsewhere };
    }
    context.tell_get(key, Some(&meta));
    let part = range_of(range, meta.value_bytes as usize);
    let Some(value) = value else {
        let part = out[start..][part].to_vec();
        out.truncate(start);
        put_bulk(out, &part);
        return Outcome::Done;
    };
    put_bulk_head(out, part.len());
    Outcome::Transfer(Transfer { value, part, tail: CRLF })
}

/// Reads the value there is, for the reply, and in the same moment does what `change` does, which
/// is given the value if it is small, and says whether it is done; else all begins again.
pub(super) fn get_and(
    asking: &Asking<'_>,
    key: &[u8],
    hash: KeyHash,
    out: &mut Vec<u8>,
    mut change: impl FnMut(Entry<'_>, Option<&ItemMeta>, Option<&[u8]>) -> bool,
) -> Outcome {
    let Asking { context, version, .. } = asking;
    let start = out.len();
    let mut attempts = Attempts::new();
    while attempts.again() {
        out.truncate(start);
        let (meta, value) = match context.store.get(hash, key, context.now, out, &mut head) {
            Got::Miss if context.has_forgotten() => return Outcome::Kept,
            Got::Miss => (None, None),
            Got::Copied(meta) => (Some(meta), None),
            Got::Large(meta, value) => (Some(meta), Some(value)),
        };
        if meta.is_some_and(|meta| !context.reads(&meta)) {
            out.truncate(start);
            return Outcome::Elsewhere;
        }
        let entry = context.enter(hash, key);
        let found = entry.meta();
        let is_same = match &meta {
            Some(meta) => unchanged(meta, found.as_ref()),
            None => found.is_none(),
        };
        if !is_same {
            continue;
        }
        let small = meta.filter(|_| value.is_none());
        let small = small.map(|meta| &out[out.len() - meta.value_bytes as usize..]);
        if !change(entry, found.as_ref(), small) {
            continue;
        }
        context.tell_get(key, meta.as_ref());
        match (meta, value) {
            (None, _) => put_null(out, *version),
            (Some(_), None) => out.extend_from_slice(CRLF),
            (Some(meta), Some(value)) => {
                head(&meta, out);
                return transfer(value, CRLF);
            }
        }
        return Outcome::Done;
    }
    out.truncate(start);
    out.extend_from_slice(TOO_MANY);
    Outcome::Done
}

/// `GETDEL`
pub fn get_and_delete(
    asking: &Asking<'_>,
    key: &[u8],
    hash: KeyHash,
    out: &mut Vec<u8>,
) -> Outcome {
    get_and(asking, key, hash, out, |mut entry, found, _| {
        entry.unlink();
        drop(entry);
        if let Some(item) = found {
            asking.context.log_delete(key, DeletedBy::Delete, item);
        }
        true
    })
}

/// `GETEX`
pub fn get_and_expire(
    asking: &Asking<'_>,
    key: &[u8],
    hash: KeyHash,
    expiry: Expiry,
    out: &mut Vec<u8>,
) -> Outcome {
    let now = asking.context.now;
    let end = match expiry {
        Expiry::Keep => return get(asking, key, hash, out),
        Expiry::Never => Moment::NEVER,
        Expiry::At(deadline) => deadline.from(now),
    };
    match end.is_over(now) {
        true => get_and_delete(asking, key, hash, out),
        false => get_and_end(asking, key, hash, end, out),
    }
}

/// The value, and the item ends then.
fn get_and_end(
    asking: &Asking<'_>,
    key: &[u8],
    hash: KeyHash,
    at: Moment,
    out: &mut Vec<u8>,
) -> Outcome {
    let (context, mut anew) = (&asking.context, Anew::default());
    get_and(asking, key, hash, out, |mut entry, found, value| {
        if anew.give(&mut entry, at) {
            return true;
        }
        drop(entry);
        let (Some(found), Some(value)) = (found, value) else { return false };
        anew.copy_of(context, key, (found, value), at);
        let mut entry = context.enter(hash, key);
        unchanged(found, entry.meta().as_ref()) && anew.give(&mut entry, at)
    })
}

#[cfg(test)]
mod tests {
    use super::range_of;

    #[test]
    fn ranges_are_those_of_redis() {
        for (range, length, part) in [
            ((0, 2), 5, 0..3),
            ((1, -1), 5, 1..5),
            ((-3, -2), 5, 2..4),
            ((-1, -3), 5, 0..0),
            ((3, 1), 5, 0..0),
            ((5, 9), 5, 0..0),
            ((4, 900), 5, 4..5),
            ((-900, 0), 5, 0..1),
            ((0, -900), 5, 0..1), // so it is there
            ((0, -1), 0, 0..0),
            ((i64::MIN, i64::MAX), 5, 0..5),
            ((i64::MAX, i64::MIN), 5, 0..0),
        ] {
            assert_eq!(range_of(range, length), part, "{range:?} of {length}");
        }
    }
}
