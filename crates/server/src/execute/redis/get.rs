//! `GET`, and what reads a value and changes its item in the same moment: `GETDEL`, `GETEX`, `SET`
//! with `GET`.

use super::attempts::{Attempts, unchanged};
use super::{Asking, Expiry, TOO_MANY};
use crate::execute::{Outcome, transfer};
use laneway_store::{Entry, Got, ItemMeta, KeyHash};
use laneway_wire::reply::CRLF;
use laneway_wire::resp::reply::{put_bulk_head, put_null};

fn head(meta: &ItemMeta, out: &mut Vec<u8>) {
    put_bulk_head(out, meta.value_bytes as usize);
}

/// `GET`
pub fn get(asking: &Asking<'_>, key: &[u8], hash: KeyHash, out: &mut Vec<u8>) -> Outcome {
    let Asking { context, version, .. } = asking;
    let (start, sight) = (out.len(), context.sight());
    let (meta, value) = match context.store.get(hash, key, context.now, out, &mut head) {
        Got::Miss => {
            if let Some(outcome) = context.beyond_memory(hash, key) {
                return outcome;
            }
            context.counters.cmd_get.bump_owner();
            context.counters.get_misses.bump_owner();
            put_null(out, *version);
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
    context.counters.cmd_get.bump_owner();
    context.counters.get_hits.bump_owner();
    let Some(value) = value else {
        out.extend_from_slice(CRLF);
        return Outcome::Done;
    };
    head(&meta, out);
    transfer(value)
}

/// Reads the value there is, for the reply, and in the same moment does what `change` does.
pub(super) fn get_and(
    asking: &Asking<'_>,
    key: &[u8],
    hash: KeyHash,
    out: &mut Vec<u8>,
    mut change: impl FnMut(Entry<'_>, Option<&ItemMeta>),
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
        change(entry, found.as_ref());
        let counters = context.counters;
        counters.cmd_get.bump_owner();
        match (meta, value) {
            (None, _) => {
                counters.get_misses.bump_owner();
                put_null(out, *version);
                return Outcome::Done;
            }
            (Some(_), None) => {
                counters.get_hits.bump_owner();
                out.extend_from_slice(CRLF);
                return Outcome::Done;
            }
            (Some(meta), Some(value)) => {
                counters.get_hits.bump_owner();
                head(&meta, out);
                return transfer(value);
            }
        }
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
    get_and(asking, key, hash, out, |mut entry, _| entry.unlink())
}

/// `GETEX`
pub fn get_and_expire(
    asking: &Asking<'_>,
    key: &[u8],
    hash: KeyHash,
    expiry: Expiry,
    out: &mut Vec<u8>,
) -> Outcome {
    match expiry {
        Expiry::Keep => get(asking, key, hash, out),
        Expiry::Never => get_and(asking, key, hash, out, |mut entry, _| entry.set_expires(0)),
        Expiry::At(at) if at <= asking.context.now => get_and_delete(asking, key, hash, out),
        Expiry::At(at) => get_and(asking, key, hash, out, |mut entry, _| entry.set_expires(at)),
    }
}
