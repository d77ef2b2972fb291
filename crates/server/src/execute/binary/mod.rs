//! What requests of memcached's binary protocol do: the same as those of its text protocol, but
//! each may ask for the item's CAS id, and what would tell nothing may be left out (*quiet*).
//! Values are stored by [`super::store`].
//!
//! It departs from memcached 1.6.45 as the text protocol does. It knows no connection.

mod get;
mod stat;

pub use get::{get, put_miss, touch};
pub use stat::put_stats;

use super::arith::{self, Change, Changed};
use super::remove::{Flushed, flush as flush_items};
use super::{Context, Outcome, expires_at, reply};
use crate::event_log::{DeletedBy, Stored, StoredBy};
use laneway_store::Moment;
use laneway_wire::binary::reply::{Status, put, put_done, put_error, put_number};
use laneway_wire::binary::{Arith, Frame, NEVER_MADE};
use laneway_wire::reply::Decimal;

/// The expiry that a request says.
fn expires(context: &Context<'_>, expiration: u32) -> Moment {
    expires_at(i64::from(expiration), context.now)
}

/// A number is changed; where there is no item one is made, if that was asked for.
pub fn arith(
    context: &Context<'_>,
    frame: &Frame<'_>,
    request: &Arith<'_>,
    out: &mut Vec<u8>,
) -> Outcome {
    let change = Change {
        increment: request.increment,
        delta: request.delta,
        cas_compare: (frame.cas != 0 && context.settings.cas_enabled).then_some(frame.cas),
        cas_explicit: None,
        expires: None,
    };
    let (echo, key) = (frame.echo, request.key);
    let changed = arith::apply(context, &change, key, context.store.hash(key), out);
    let is_made = matches!(changed, Changed::NotFound) && request.expiration != NEVER_MADE;
    if is_made {
        make_number(context, frame, request, out);
        return Outcome::Done;
    }
    arith::count(context, request.increment, &changed);
    match changed {
        Changed::Forgotten => return Outcome::Kept,
        Changed::Done { .. } if frame.quiet => {}
        Changed::Done { number, cas, .. } => put_number(out, echo, number, cas),
        Changed::NotFound => put_error(out, echo, Status::NotFound),
        Changed::Exists => put_error(out, echo, Status::Exists),
        Changed::NotANumber => put_error(out, echo, Status::NotANumber),
        Changed::NoMemory => {
            put(out, echo, Status::OutOfMemory, b"", b"Out of memory incrementing value");
        }
        Changed::TooMany => reply::binary_too_many(echo, out),
    }
    Outcome::Done
}

fn make_number(context: &Context<'_>, frame: &Frame<'_>, request: &Arith<'_>, out: &mut Vec<u8>) {
    let (echo, key) = (frame.echo, request.key);
    let digits = Decimal::new(request.initial);
    let digits = digits.bytes();
    let draft = context
        .draft(key, 0, expires(context, request.expiration), digits.len())
        .and_then(|mut draft| draft.write(digits).map(|()| draft));
    let Ok(draft) = draft else {
        return put(out, echo, Status::OutOfMemory, b"", b"Out of memory allocating new item");
    };
    let mut entry = context.enter(context.store.hash(key), key);
    if entry.meta().is_some() {
        drop(entry);
        return put_error(out, echo, Status::NotStored); // somebody else was quicker
    }
    let seq = entry.publish(draft, None);
    drop(entry);
    let made = (Stored::Stored, StoredBy::Add);
    context.log_store(key, made, expires(context, request.expiration), digits.len() as u64);
    if !frame.quiet {
        put_number(out, echo, request.initial, context.shown(seq));
    }
}

/// An item is deleted.
pub fn delete(context: &Context<'_>, frame: &Frame<'_>, key: &[u8], out: &mut Vec<u8>) -> Outcome {
    let mut entry = context.enter(context.store.hash(key), key);
    let status = match entry.meta() {
        None if context.has_forgotten() => return Outcome::Kept,
        None => Status::NotFound,
        Some(item) if frame.cas != 0 && frame.cas != context.cas(&item) => Status::Exists,
        Some(item) => {
            entry.unlink();
            context.log_delete(key, DeletedBy::Delete, &item);
            Status::Done
        }
    };
    drop(entry);
    match status {
        Status::Done => context.counters.delete_hits.bump_owner(),
        Status::NotFound => context.counters.delete_misses.bump_owner(),
        _ => {}
    }
    match status {
        Status::Done if frame.quiet => {}
        Status::Done => put_done(out, frame.echo, 0),
        status => put_error(out, frame.echo, status),
    }
    Outcome::Done
}

/// Everything is deleted, now or then.
pub fn flush(
    context: &Context<'_>,
    frame: &Frame<'_>,
    delay: Option<u32>,
    out: &mut Vec<u8>,
) -> Outcome {
    match flush_items(context, delay.map(i64::from)) {
        Flushed::Again => Outcome::Again,
        Flushed::Forbidden => {
            put_error(out, frame.echo, Status::Refused);
            Outcome::Done
        }
        Flushed::At(at) => {
            if !frame.quiet {
                put_done(out, frame.echo, 0);
            }
            Outcome::FlushAt(at)
        }
    }
}
