//! `md`: delete, or mark stale (`I`), or empty (`x`).

use super::super::anew::Anew;
use super::super::{Context, Outcome, expires_at, reply};
use crate::event_log::DeletedBy;
use laneway_store::{Draft, Entry, ItemMeta, Moment, Refused, Store};
use laneway_wire::reply::{CRLF, NO_MEMORY};
use laneway_wire::{KEY_BYTES_MAX, Meta};

pub(in super::super) fn meta_delete(
    context: &Context<'_>,
    meta: &Meta<'_>,
    out: &mut Vec<u8>,
) -> Outcome {
    let mut scratch = [0; KEY_BYTES_MAX];
    let key = meta.key.bytes(&mut scratch);
    let hash = context.store.hash(key);
    let Ok(empty) = empty_item(context, meta, key) else {
        context.counters.cmd_meta.bump_owner();
        out.extend_from_slice(NO_MEMORY);
        return Outcome::Done;
    };
    let mut anew = Anew::default();
    let status = loop {
        let mut entry = context.enter(hash, key);
        match entry.meta() {
            None if context.has_forgotten() => return Outcome::Kept,
            None => break Status::NotFound,
            Some(item) if meta.flags.cas_compare.is_some_and(|cas| cas != context.cas(&item)) => {
                break Status::Exists;
            }
            Some(item) => {
                if let Some(end) = end_of_stale(context, meta)
                    && !anew.give(&mut entry, end)
                {
                    drop(entry);
                    anew.copy(context, key, hash, end);
                    continue;
                }
                change(meta, &item, empty, &mut entry);
                break Status::Done(item);
            }
        }
    };
    context.counters.cmd_meta.bump_owner();
    match &status {
        Status::Done(_) if meta.flags.invalidate => {}
        Status::Done(item) => {
            context.counters.delete_hits.bump_owner();
            context.log_delete(key, DeletedBy::MetaDelete, item);
        }
        Status::Exists | Status::NotFound => context.counters.delete_misses.bump_owner(),
    }
    match status {
        Status::Done(_) => put_done(meta, out),
        Status::Exists => put_status(meta, b"EX", out),
        Status::NotFound => put_status(meta, b"NF", out),
    }
    Outcome::Done
}

/// Whether it deletes the item that there is, whatever that is.
pub(in super::super) fn is_plain(meta: &Meta<'_>) -> bool {
    let flags = &meta.flags;
    !flags.invalidate && !flags.drop_value && flags.cas_compare.is_none()
}

/// Says that it was done.
pub(in super::super) fn put_done(meta: &Meta<'_>, out: &mut Vec<u8>) {
    if !meta.flags.quiet {
        put_status(meta, b"HD", out);
    }
}

fn put_status(meta: &Meta<'_>, status: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(status);
    reply::meta_echo(&meta.key, meta.flags.tokens, out);
    out.extend_from_slice(CRLF);
}

enum Status {
    Done(ItemMeta),
    Exists,
    NotFound,
}

/// What replaces the item where `x` was given: no value, and what flags and expiry the request has.
fn empty_item<'a>(
    context: &Context<'a>,
    meta: &Meta<'_>,
    key: &[u8],
) -> Result<Option<Draft<&'a Store>>, Refused> {
    if !meta.flags.drop_value {
        return Ok(None);
    }
    let flags = meta.flags.client_flags.unwrap_or(0);
    let expires = expires_at(meta.flags.exptime.unwrap_or(0), context.now);
    let mut draft = context.draft(key, flags, expires, 0)?;
    draft.set_marks(meta.flags.invalidate, false);
    Ok(Some(draft))
}

/// Which end the item is to have that is only marked stale.
fn end_of_stale(context: &Context<'_>, meta: &Meta<'_>) -> Option<Moment> {
    let flags = &meta.flags;
    let exptime = flags.exptime.filter(|_| flags.invalidate && !flags.drop_value)?;
    Some(expires_at(exptime, context.now))
}

/// Change what [`end_of_stale`] does not: the item has its end.
fn change(meta: &Meta<'_>, item: &ItemMeta, empty: Option<Draft<&Store>>, entry: &mut Entry<'_>) {
    let flags = &meta.flags;
    match (empty, flags.invalidate) {
        (Some(empty), true) => {
            entry.publish(empty, flags.cas_explicit);
        }
        // An emptied item keeps its CAS id, unless it is given another.
        (Some(empty), false) => {
            entry.publish(empty, Some(flags.cas_explicit.unwrap_or(item.seq)));
        }
        (None, true) => {
            entry.set_stale(true);
            entry.set_token_sent(false); // so that the next to ask can win
            entry.renew_seq(flags.cas_explicit);
        }
        (None, false) => entry.unlink(),
    }
}
