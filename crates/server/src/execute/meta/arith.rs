//! `ma`: increment or decrement, with vivification and the item's metadata.

use super::super::arith::{Change, Changed, apply, count};
use super::super::attempts::{Attempts, TOO_MANY};
use super::super::exptime::seconds_left;
use super::super::{Context, Outcome, expires_at, reply};
use crate::event_log::{Stored, StoredBy};
use laneway_store::{KeyHash, Moment};
use laneway_wire::reply::{CRLF, Decimal, NO_MEMORY, NON_NUMERIC, put_flag, put_meta_value_head};
use laneway_wire::{KEY_BYTES_MAX, Meta};

/// The item as its reply shows it.
struct Shown {
    number: u64,
    cas: u64,
    expires: Moment,
    created: bool,
}

pub(in super::super) fn meta_arith(
    context: &Context<'_>,
    meta: &Meta<'_>,
    out: &mut Vec<u8>,
) -> Outcome {
    let flags = &meta.flags;
    let mut scratch = [0; KEY_BYTES_MAX];
    let key = meta.key.bytes(&mut scratch);
    let hash = context.store.hash(key);
    let change = Change {
        increment: !flags.decrement,
        delta: flags.delta.unwrap_or(1),
        cas_compare: flags.cas_compare.filter(|&cas| cas != 0),
        cas_explicit: flags.cas_explicit,
        expires: flags.exptime.map(|exptime| expires_at(exptime, context.now)),
    };
    let mut attempts = Attempts::new();
    while attempts.again() {
        let changed = apply(context, &change, key, hash, out);
        if matches!(changed, Changed::Forgotten) {
            return Outcome::Kept;
        }
        if let (Changed::NotFound, Some(exptime)) = (&changed, flags.vivify) {
            match vivify(context, meta, key, hash, exptime) {
                Vivified::Yes(_) if flags.quiet => {}
                Vivified::Yes(shown) => show(context, meta, &shown, out),
                Vivified::SomebodyElse => continue,
                Vivified::NoMemory => {
                    let refused = b"SERVER_ERROR Out of memory allocating new item\r\n";
                    out.extend_from_slice(refused);
                }
            }
        } else {
            count(context, change.increment, &changed);
            answer(context, meta, changed, out);
        }
        context.counters.cmd_meta.bump_owner();
        return Outcome::Done;
    }
    context.counters.cmd_meta.bump_owner();
    out.extend_from_slice(TOO_MANY);
    Outcome::Done
}

fn answer(context: &Context<'_>, meta: &Meta<'_>, changed: Changed, out: &mut Vec<u8>) {
    let status = match changed {
        Changed::Done { number, before, cas } => {
            let shown = Shown { number, cas, expires: before.expires, created: false };
            if !meta.flags.quiet {
                show(context, meta, &shown, out);
            }
            return;
        }
        Changed::NotANumber => return out.extend_from_slice(NON_NUMERIC),
        Changed::NoMemory => return out.extend_from_slice(NO_MEMORY),
        Changed::TooMany => return out.extend_from_slice(TOO_MANY),
        Changed::NotFound | Changed::Forgotten => b"NF",
        Changed::Exists => b"EX",
    };
    out.extend_from_slice(status);
    reply::meta_echo(&meta.key, meta.flags.tokens, out);
    out.extend_from_slice(CRLF);
}

/// Write the reply of a number changed or made.
fn show(context: &Context<'_>, meta: &Meta<'_>, shown: &Shown, out: &mut Vec<u8>) {
    let flags = &meta.flags;
    let digits = Decimal::new(shown.number);
    let digits = digits.bytes();
    if flags.value {
        put_meta_value_head(out, digits.len());
    } else {
        out.extend_from_slice(b"HD");
    }
    let mut expires = shown.expires;
    for token in flags.each() {
        match token[0] {
            b'c' => put_flag(out, b'c', shown.cas),
            b't' => reply::meta_time_left(seconds_left(expires, context.now), out),
            b'T' => expires = expires_at(flags.exptime.unwrap_or(0), context.now),
            b'N' if shown.created => {
                expires = expires_at(flags.vivify.unwrap_or(0), context.now);
            }
            b'k' => reply::meta_key(&meta.key, out),
            b'O' => reply::opaque(token, out),
            _ => {}
        }
    }
    out.extend_from_slice(CRLF);
    if flags.value {
        out.extend_from_slice(digits);
        out.extend_from_slice(CRLF);
    }
}

enum Vivified {
    Yes(Shown),
    SomebodyElse,
    NoMemory,
}

/// `N`: store the initial value (`J`) where there is none.
fn vivify(
    context: &Context<'_>,
    meta: &Meta<'_>,
    key: &[u8],
    hash: KeyHash,
    exptime: i64,
) -> Vivified {
    let number = meta.flags.initial.unwrap_or(0);
    let digits = Decimal::new(number);
    let digits = digits.bytes();
    let expires = last_expiry(context, meta, exptime);
    let Ok(mut draft) = context.draft(key, 0, expires, digits.len()) else {
        return Vivified::NoMemory;
    };
    if draft.write(digits).is_err() {
        return Vivified::NoMemory;
    }
    let mut entry = context.enter(hash, key);
    if entry.meta().is_some() {
        return Vivified::SomebodyElse;
    }
    let seq = entry.publish(draft, meta.flags.cas_explicit);
    drop(entry);
    context.log_store(key, (Stored::Stored, StoredBy::Add), expires, digits.len() as u64);
    let cas = if context.settings.cas_enabled { seq } else { 0 };
    Vivified::Yes(Shown { number, cas, expires: Moment::NEVER, created: true })
}

/// The expiry of a made item: of `N` and `T`, the one that stands last.
fn last_expiry(context: &Context<'_>, meta: &Meta<'_>, vivify: i64) -> Moment {
    let last = meta
        .flags
        .each()
        .filter_map(|token| match token[0] {
            b'N' => Some(vivify),
            b'T' => meta.flags.exptime,
            _ => None,
        })
        .last();
    expires_at(last.unwrap_or(vivify), context.now)
}
