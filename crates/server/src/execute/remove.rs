//! `delete`, `touch`, `flush_all`; and of all requests, which of them delete without a look.

use super::anew::Anew;
use super::{Context, Outcome, expires_at, meta, reply};
use crate::event_log::DeletedBy;
use laneway_store::{ItemMeta, Moment, Store};
use laneway_wire::reply::{DELETED, FLUSH_DISABLED, NOT_FOUND, OK, TOUCHED};
use laneway_wire::{Delete, Request, Touch};

/// As what a request is logged that deletes the item that there is, whatever that is; nothing of
/// other requests.
pub fn deletes_any(request: &Request<'_>) -> Option<DeletedBy> {
    match request {
        Request::Delete(_) => Some(DeletedBy::Delete),
        Request::MetaDelete(meta) if meta::delete::is_plain(meta) => Some(DeletedBy::MetaDelete),
        _ => None,
    }
}

/// Says that such a request was done.
///
/// # Panics
/// If it is another one.
pub fn say_deleted(request: &Request<'_>, out: &mut Vec<u8>) {
    match request {
        Request::Delete(delete) => reply::unless(delete.noreply, DELETED, out),
        Request::MetaDelete(meta) => meta::delete::put_done(meta, out),
        _ => unreachable!("it deletes nothing"),
    }
}

pub(super) fn delete(context: &Context<'_>, request: &Delete<'_>, out: &mut Vec<u8>) -> Outcome {
    let hash = context.store.hash(request.key);
    let mut entry = context.enter(hash, request.key);
    let found = entry.meta();
    if found.is_some() {
        entry.unlink();
    }
    drop(entry);
    if found.is_none() && context.has_forgotten() {
        return Outcome::Kept;
    }
    if let Some(item) = found {
        context.log_delete(request.key, DeletedBy::Delete, &item);
        context.counters.delete_hits.bump_owner();
        reply::unless(request.noreply, DELETED, out);
    } else {
        context.counters.delete_misses.bump_owner();
        reply::unless(request.noreply, NOT_FOUND, out);
    }
    Outcome::Done
}

pub(super) fn touch(context: &Context<'_>, request: &Touch<'_>, out: &mut Vec<u8>) -> Outcome {
    let expires = expires_at(request.exptime, context.now);
    let line = match expire_at(context, request.key, expires) {
        Ok(Some(_)) => TOUCHED,
        Ok(None) => NOT_FOUND,
        Err(kept) => return kept,
    };
    reply::unless(request.noreply, line, out);
    Outcome::Done
}

/// An item, if it is there, expires then; counted as a touch. An error is [`Outcome::Kept`].
pub(super) fn expire_at(
    context: &Context<'_>,
    key: &[u8],
    expires: Moment,
) -> Result<Option<ItemMeta>, Outcome> {
    let (hash, mut anew) = (context.store.hash(key), Anew::default());
    let found = loop {
        let mut entry = context.enter(hash, key);
        let found = entry.meta();
        if anew.give(&mut entry, expires) {
            entry.mark_fetched();
            break found;
        }
        drop(entry);
        anew.copy(context, key, hash, expires);
    };
    if found.is_none() && context.has_forgotten() {
        return Err(Outcome::Kept);
    }
    context.tell_touch(key, found.as_ref());
    Ok(found)
}

/// What became of a flush.
pub(super) enum Flushed {
    /// It is much work, and goes on when it is asked again.
    Again,
    /// It is not allowed.
    Forbidden,
    /// It is done, or comes later, in this second: [`Outcome::FlushAt`].
    At(u32),
}

pub(super) fn flush(context: &Context<'_>, delay: Option<i64>) -> Flushed {
    let at = expires_at(delay.unwrap_or(0), context.now);
    let now = context.settings.flush_enabled && at <= context.now;
    if now && !Store::flush_each(std::iter::once(context.store).chain(context.others)) {
        return Flushed::Again;
    }
    context.counters.cmd_flush.bump_owner();
    match context.settings.flush_enabled {
        true => Flushed::At(if now { 0 } else { at.seconds() }),
        false => Flushed::Forbidden,
    }
}

pub(super) fn flush_all(
    context: &Context<'_>,
    delay: Option<i64>,
    noreply: bool,
    out: &mut Vec<u8>,
) -> Outcome {
    match flush(context, delay) {
        Flushed::Again => Outcome::Again,
        Flushed::Forbidden => {
            reply::unless(noreply, FLUSH_DISABLED, out);
            Outcome::Done
        }
        Flushed::At(at) => {
            reply::unless(noreply, OK, out);
            Outcome::FlushAt(at)
        }
    }
}
