//! Commands about keys that do not look at values.

use super::anew::Anew;
use super::attempts::{Attempts, unchanged};
use super::{Asking, Context, Deadline, TOO_MANY, When};
use crate::event_log::DeletedBy;
use crate::execute::Outcome;
use laneway_store::{Got, ItemMeta, Moment};
use laneway_wire::resp::reply::{put_integer, put_simple};

/// What is counted over several keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Count {
    /// Items that were deleted: `DEL`, `UNLINK`.
    Deleted,
    /// Items that are there: `EXISTS`.
    There,
    /// The same, and each is used once: `TOUCH`.
    Touched,
}

/// Does it for one key: whether it counts. `None`: the tier has what memory has forgotten, and
/// nothing was done ([`Outcome::Kept`]).
pub fn count_key(asking: &Asking<'_>, what: Count, key: &[u8]) -> Option<bool> {
    let context = &asking.context;
    let hash = context.store.hash(key);
    let counters = context.counters;
    if what == Count::There {
        return look(asking, key).ok().map(|found| found.is_some());
    }
    let mut entry = context.enter(hash, key);
    let item = entry.meta();
    let found = item.is_some();
    if !found && context.has_forgotten() {
        return None;
    }
    if found && what == Count::Deleted {
        entry.unlink();
    } else if found {
        entry.mark_fetched();
    }
    drop(entry);
    if what == Count::Deleted {
        if found { &counters.delete_hits } else { &counters.delete_misses }.bump_owner();
        context.log_change(key, None, item.as_ref());
    } else {
        log_found(context, key, item.as_ref());
    }
    Some(found)
}

/// A key was asked for, and its item, if there is one, was used without its value.
fn log_found(context: &Context<'_>, key: &[u8], found: Option<&ItemMeta>) {
    context.log_get(key, found.map(|item| item.value_bytes.into()));
}

/// What is known of an item without its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Known {
    /// Bytes of its value.
    pub value_bytes: u64,
    /// When it is over.
    pub expires: Moment,
}

/// Looks at an item without reading its value. An error is [`Outcome::Kept`]: the executor knows.
pub fn look(asking: &Asking<'_>, key: &[u8]) -> Result<Option<Known>, Outcome> {
    // Its size is no reason to leave it to somebody else.
    let context = Context { large_from: u64::MAX, ..asking.context };
    let (hash, sight) = (context.store.hash(key), context.sight());
    match context.store.peek(hash, key, context.now) {
        None => context.beyond_memory(hash, key).map_or(Ok(None), Err),
        Some(_) if context.is_hidden(hash, sight) => Err(Outcome::Kept),
        Some(meta) => {
            let value_bytes = meta.value_bytes.into();
            Ok(Some(Known { value_bytes, expires: meta.expires }))
        }
    }
}

/// What is told of an item without its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Telling {
    /// `TYPE`: all items are strings.
    Kind,
    /// `STRLEN`
    Length,
    /// The time it has left.
    Left(Left),
}

/// How the time that an item has left is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Left {
    /// `TTL`: rounded to seconds.
    Seconds,
    /// `PTTL`
    Milliseconds,
    /// `EXPIRETIME`: the unix second that its end is nearest to.
    UnixSeconds,
    /// `PEXPIRETIME`
    UnixMilliseconds,
}

/// Tells it of the item that there is, or of none.
pub fn tell(what: Telling, found: Option<Known>, now: Moment, out: &mut Vec<u8>) {
    match what {
        Telling::Kind => put_simple(out, if found.is_some() { b"string" } else { b"none" }),
        Telling::Length => put_integer(out, found.map_or(0, |known| known.value_bytes as i64)),
        Telling::Left(how) => put_integer(out, time_left(how, found, now)),
    }
}

/// The time an item has left: -1 where it has no end, -2 where there is no item.
fn time_left(how: Left, found: Option<Known>, now: Moment) -> i64 {
    const NO_END: i64 = -1;
    const NO_ITEM: i64 = -2;
    match found.map(|known| known.expires) {
        None => NO_ITEM,
        Some(Moment::NEVER) => NO_END,
        Some(at) => {
            let at = at.unix_millis() as i64;
            let left = (at - now.unix_millis() as i64).max(0);
            let rounded = |ms| (ms + 500) / 1000; // as Redis does
            match how {
                Left::Seconds => rounded(left),
                Left::Milliseconds => left,
                Left::UnixSeconds => rounded(at),
                Left::UnixMilliseconds => at,
            }
        }
    }
}

/// `EXPIRE` and its kin. What is over is deleted.
pub fn expire(
    asking: &Asking<'_>,
    key: &[u8],
    deadline: Deadline,
    when: When,
    out: &mut Vec<u8>,
) -> Outcome {
    let context = &asking.context;
    let at = deadline.from(context.now);
    let hash = context.store.hash(key);
    let (mut attempts, mut anew) = (Attempts::new(), Anew::default());
    while attempts.again() {
        let mut entry = context.enter(hash, key);
        let found = entry.meta();
        if found.is_none() && context.has_forgotten() {
            return Outcome::Kept;
        }
        let is_met = found.is_some_and(|found| when.is_met(found.expires, at));
        if is_met && at.is_over(context.now) {
            entry.unlink();
        } else if is_met && !anew.give(&mut entry, at) {
            drop(entry);
            anew.copy(context, key, hash, at);
            continue;
        }
        drop(entry);
        if let Some(item) = found.filter(|_| is_met && at.is_over(context.now)) {
            context.log_delete(key, DeletedBy::Delete, &item);
        }
        context.tell_touch(key, found.as_ref());
        put_integer(out, is_met.into());
        return Outcome::Done;
    }
    out.extend_from_slice(TOO_MANY);
    Outcome::Done
}

/// `DELIFEQ`, Valkey's: deletes the item whose value this is. `out` is scratch, too.
pub fn delete_if_equal(
    asking: &Asking<'_>,
    key: &[u8],
    wanted: &[u8],
    out: &mut Vec<u8>,
) -> Outcome {
    let context = &asking.context;
    let counters = context.counters;
    let (hash, start) = (context.store.hash(key), out.len());
    let mut attempts = Attempts::new();
    while attempts.again() {
        let found = match context.store.peek_value(hash, key, context.now, out) {
            Got::Miss if context.has_forgotten() => return Outcome::Kept,
            Got::Copied(meta) if out[start..] == *wanted => Some(meta),
            // What is long is equal to nothing that is compared with.
            Got::Miss | Got::Copied(_) | Got::Large(..) => None,
        };
        out.truncate(start);
        let Some(found) = found else {
            counters.delete_misses.bump_owner();
            put_integer(out, 0);
            return Outcome::Done;
        };
        let mut entry = context.enter(hash, key);
        if unchanged(&found, entry.meta().as_ref()) {
            entry.unlink();
            drop(entry);
            counters.delete_hits.bump_owner();
            context.log_delete(key, DeletedBy::Delete, &found);
            put_integer(out, 1);
            return Outcome::Done;
        }
    }
    out.extend_from_slice(TOO_MANY);
    Outcome::Done
}

/// `PERSIST`
pub fn persist(asking: &Asking<'_>, key: &[u8], out: &mut Vec<u8>) -> Outcome {
    let context = &asking.context;
    let mut entry = context.enter(context.store.hash(key), key);
    let found = entry.meta();
    if found.is_none() && context.has_forgotten() {
        return Outcome::Kept;
    }
    let had_end = found.is_some_and(|found| found.expires != Moment::NEVER);
    if had_end {
        entry.set_expires(Moment::NEVER);
    }
    drop(entry);
    log_found(context, key, found.as_ref());
    put_integer(out, had_end.into());
    Outcome::Done
}
