//! `mg`: a value, its metadata, a new expiry, vivification of a missing item, and the tokens by
//! which clients agree who fetches a fresh value.

use super::super::anew::end_seen;
use super::super::attempts::{Attempts, TOO_MANY, unchanged};
use super::super::exptime::seconds_left;
use super::super::{Context, Outcome, expires_at, reply, transfer};
use crate::durable::pending_writes::Sight;
use crate::event_log::{Stored, StoredBy};
use laneway_store::{Entry, Got, ItemMeta, KeyHash, Moment};
use laneway_sync::planted::{Bug, is_planted};
use laneway_wire::reply::{CRLF, Sink, put_flag, put_flag_bare, put_meta_value_head};
use laneway_wire::{KEY_BYTES_MAX, Meta};

pub(in super::super) fn meta_get(
    context: &Context<'_>,
    meta: &Meta<'_>,
    out: &mut Vec<u8>,
) -> Outcome {
    let mut scratch = [0; KEY_BYTES_MAX];
    let key = meta.key.bytes(&mut scratch);
    meta_get_key(context, meta, key, context.store.hash(key), out)
}

/// An `mg` whose key is decoded and hashed already.
pub fn meta_get_key(
    context: &Context<'_>,
    meta: &Meta<'_>,
    key: &[u8],
    hash: KeyHash,
    out: &mut Vec<u8>,
) -> Outcome {
    let start = out.len();
    let mut attempts = Attempts::new();
    while attempts.again() {
        out.truncate(start);
        let sight = context.sight();
        if tells_of_mark(meta)
            && let Some(left) = left_to(context, meta, (key, hash), sight)
        {
            return left;
        }
        let mut seen = Seen::default();
        let (item, value) = match look(context, meta, key, hash, &mut seen, out) {
            // A worker is never asked with `N`: the executor is, at once.
            Got::Miss => match context.beyond_memory(hash, key) {
                Some(outcome) => return outcome,
                None => match vivify(context, meta, key, hash, out) {
                    Vivified::Not => return miss(context, meta, key, out),
                    Vivified::Yes => return vivified(context, meta, key),
                    Vivified::SomebodyElse => continue,
                },
            },
            Got::Copied(item) => (item, None),
            Got::Large(item, value) => {
                seen.write(context, meta, &item, false, out);
                seen.head_end = out.len();
                (item, Some(value))
            }
        };
        if seen.with_value && !context.reads(&item) {
            out.truncate(start);
            return Outcome::Elsewhere;
        }
        if context.is_hidden(hash, sight) {
            out.truncate(start);
            return Outcome::Kept;
        }
        // Of a stale item even a plain `mg` changes something: somebody wins the token.
        if seen.changes() && context.leaves_changes() {
            out.truncate(start);
            return Outcome::Kept;
        }
        if !settle(context, key, hash, &item, &seen) {
            continue;
        }
        count_hit(context, meta, item.item_bytes());
        context.log_get(key, Some(item.value_bytes.into()));
        match value {
            Some(value) if seen.with_value => return transfer(value, CRLF),
            _ if seen.with_value => out.extend_from_slice(CRLF),
            _ => out.truncate(seen.head_end),
        }
        return Outcome::Done;
    }
    out.truncate(start);
    out.extend_from_slice(TOO_MANY);
    Outcome::Done
}

/// What is counted and told of an item that was made because there was none.
fn vivified(context: &Context<'_>, meta: &Meta<'_>, key: &[u8]) -> Outcome {
    count_hit(context, meta, key.len() as u64);
    context.log_get(key, None);
    let end = meta.flags.vivify.map(|end| expires_at(end, context.now));
    let made = (Stored::Stored, StoredBy::Add);
    context.log_store(key, made, end.unwrap_or(Moment::NEVER), 0);
    Outcome::Done
}

/// Whether the reply tells of the item's hit mark.
pub fn tells_of_mark(meta: &Meta<'_>) -> bool {
    meta.flags.wants(b'h') || meta.flags.wants(b'l')
}

/// To whom a worker leaves an item, as far as it is known before the item is marked: who answers in
/// its place would tell of the worker's mark as of another's.
fn left_to(
    context: &Context<'_>,
    meta: &Meta<'_>,
    (key, hash): (&[u8], KeyHash),
    sight: Sight,
) -> Option<Outcome> {
    if context.leaves_changes() && context.is_hidden(hash, sight) {
        return Some(Outcome::Kept);
    }
    let item = context.store.peek(hash, key, context.now)?;
    let with_value = meta.flags.value && meta.flags.cas_compare != Some(context.cas(&item));
    if with_value && !context.reads(&item) {
        return Some(Outcome::Elsewhere);
    }
    let may_be_won = item.stale && !item.token_sent && !context.read_only;
    (may_be_won && context.leaves_changes()).then_some(Outcome::Kept)
}

/// Look at the item: head (and value, where it is small) go to `out`. Where no value is sent it is
/// fetched all the same, and cut off again, because that is what leaves a hit mark; with `u` and
/// without `v` nothing is marked.
fn look(
    context: &Context<'_>,
    meta: &Meta<'_>,
    key: &[u8],
    hash: KeyHash,
    seen: &mut Seen,
    out: &mut Vec<u8>,
) -> Got {
    if !meta.flags.value && meta.flags.wants(b'u') {
        return match context.store.peek(hash, key, context.now) {
            Some(item) => {
                seen.write(context, meta, &item, false, out);
                seen.head_end = out.len();
                Got::Copied(item)
            }
            None => Got::Miss,
        };
    }
    let mut head = |item: &ItemMeta, out: &mut Vec<u8>| {
        *seen = Seen::default();
        seen.write(context, meta, item, false, out);
        seen.head_end = out.len();
    };
    context.store.get(hash, key, context.now, out, &mut head)
}

/// The most that the head of a reply has: each flag once, the key and the opaque among them.
pub const META_HEAD_BYTES_MAX: usize = 640;
const _: () = assert!(KEY_BYTES_MAX <= 256);

/// Whether an `mg` may be answered out of a group of keys: it asks for the value, by a key that is
/// text, and for no change of the item.
pub fn is_plain(meta: &Meta<'_>) -> bool {
    let flags = &meta.flags;
    flags.value
        && !meta.key.base64
        && flags.exptime.is_none()
        && flags.vivify.is_none()
        && flags.recache.is_none()
}

/// Write the head of a plain `mg`'s hit. False where more is to be done than to send head and
/// value: the client has the value already, or has won the token of a stale item.
pub fn put_plain_head(
    context: &Context<'_>,
    meta: &Meta<'_>,
    item: &ItemMeta,
    out: &mut impl Sink,
) -> bool {
    let mut seen = Seen::default();
    seen.write(context, meta, item, false, out);
    seen.with_value && !seen.changes()
}

/// What was seen and promised while the head was written.
#[derive(Default)]
struct Seen {
    /// The expiry the item is to have, where `T` gave one.
    expires: Option<Moment>,
    /// This client won the token.
    won: bool,
    /// The value follows: it was asked for, and the client does not have it already (`C`).
    with_value: bool,
    /// Where the head ends in the output.
    head_end: usize,
}

impl Seen {
    /// Whether the item is to be changed.
    fn changes(&self) -> bool {
        self.expires.is_some() || self.won
    }

    /// Write the head of a hit.
    fn write(
        &mut self,
        context: &Context<'_>,
        meta: &Meta<'_>,
        item: &ItemMeta,
        created: bool,
        out: &mut impl Sink,
    ) {
        self.with_value = meta.flags.value && meta.flags.cas_compare != Some(context.cas(item));
        if self.with_value {
            put_meta_value_head(out, item.value_bytes as usize);
        } else {
            out.put(b"HD");
        }
        // A created item has no expiry until its `N` is met.
        let mut expires = if created { Moment::NEVER } else { item.expires };
        for token in meta.flags.each() {
            match token[0] {
                b'T' => {
                    expires = expires_at(meta.flags.exptime.unwrap_or(0), context.now);
                    self.expires = Some(expires);
                }
                b'N' if created => {
                    expires = expires_at(meta.flags.vivify.unwrap_or(0), context.now);
                    self.expires = Some(expires);
                    self.won = true;
                }
                b'R' if !created && !item.token_sent && expires != Moment::NEVER => {
                    let recache = expires_at(meta.flags.recache.unwrap_or(0), context.now);
                    self.won |= expires < recache;
                }
                b's' => put_flag(out, b's', item.value_bytes.into()),
                b't' => reply::meta_time_left(seconds_left(expires, context.now), out),
                b'c' => put_flag(out, b'c', context.cas(item)),
                b'f' => put_flag(out, b'f', item.flags.into()),
                b'l' => put_flag(out, b'l', item.idle_seconds.into()),
                b'h' => put_flag(out, b'h', item.fetched.into()),
                b'k' => reply::meta_key(&meta.key, out),
                b'O' => reply::opaque(token, out),
                _ => {}
            }
        }
        if item.token_sent && !created {
            put_flag_bare(out, b'Z');
        }
        if item.stale {
            put_flag_bare(out, b'X');
            let may_win = !context.read_only || is_planted(Bug::ReadOnlyToken);
            self.won |= !item.token_sent && may_win;
        }
        if self.won {
            put_flag_bare(out, b'W');
        }
        out.put(CRLF);
    }
}

/// Carry out what the head promised, if the item is still the one it was written from.
fn settle(context: &Context<'_>, key: &[u8], hash: KeyHash, item: &ItemMeta, seen: &Seen) -> bool {
    if !seen.changes() {
        return true;
    }
    let win = |entry: &mut Entry<'_>| {
        if seen.won {
            entry.set_token_sent(true);
        }
    };
    if let Some(expires) = seen.expires {
        return end_seen(context, (key, hash), item, expires, win);
    }
    let mut entry = context.enter(hash, key);
    if !unchanged(item, entry.meta().as_ref()) {
        return false;
    }
    win(&mut entry);
    true
}

enum Vivified {
    /// Not asked for, or no memory for it.
    Not,
    /// The reply is written.
    Yes,
    /// An item appeared in between.
    SomebodyElse,
}

/// `N`: put an empty item where there is none; the client has won the token.
fn vivify(
    context: &Context<'_>,
    meta: &Meta<'_>,
    key: &[u8],
    hash: KeyHash,
    out: &mut Vec<u8>,
) -> Vivified {
    let Some(vivify) = meta.flags.vivify else { return Vivified::Not };
    let expires = expires_at(vivify, context.now);
    // A `T` behind the `N` gives it another end, for which there is to be room.
    let begun = if meta.flags.exptime.is_some() { Moment::LATER.rounded_up() } else { expires };
    let Ok(mut draft) = context.draft(key, 0, begun, 0) else {
        return Vivified::Not;
    };
    draft.set_expires(expires);
    draft.set_marks(false, true);
    let mut entry = context.enter(hash, key);
    if entry.meta().is_some() {
        return Vivified::SomebodyElse;
    }
    let seq = entry.publish(draft, meta.flags.cas_explicit);
    let item = ItemMeta {
        seq,
        flags: 0,
        expires,
        value_bytes: 0,
        key_bytes: key.len() as u8,
        stale: false,
        token_sent: true,
        fetched: false,
        idle_seconds: 0,
    };
    let mut seen = Seen::default();
    seen.write(context, meta, &item, true, out);
    if let Some(last) = seen.expires.filter(|&last| last != expires) {
        entry.set_expires(last); // a `T` stood behind the `N`
    }
    entry.mark_fetched(); // by its maker
    drop(entry);
    if seen.with_value {
        out.extend_from_slice(CRLF);
    }
    Vivified::Yes
}

/// A hit of an item of so many bytes counts as a touch where `T` was given, else as a get.
fn count_hit(context: &Context<'_>, meta: &Meta<'_>, item_bytes: u64) {
    let counters = context.counters;
    counters.cmd_meta.bump_owner();
    if meta.flags.exptime.is_some() {
        counters.cmd_touch.bump_owner();
        counters.touch_hits.bump_owner();
    } else {
        counters.cmd_get.bump_owner();
        context.count_found(item_bytes);
    }
}

fn miss(context: &Context<'_>, meta: &Meta<'_>, key: &[u8], out: &mut Vec<u8>) -> Outcome {
    context.counters.cmd_meta.bump_owner();
    context.tell_get(key, None);
    put_miss(meta, out);
    Outcome::Done
}

/// Write the answer where there is no item.
pub fn put_miss(meta: &Meta<'_>, out: &mut Vec<u8>) {
    if !meta.flags.quiet {
        out.extend_from_slice(b"EN");
        reply::meta_echo(&meta.key, meta.flags.tokens, out);
        out.extend_from_slice(CRLF);
    }
}
