//! What is asked about keys, and done to their items without looking at values.

use super::{Asking, When};
use laneway_store::UnixSeconds;
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

/// Does it for one key: whether it counts.
pub fn count_key(asking: &Asking<'_>, what: Count, key: &[u8]) -> bool {
    let context = &asking.context;
    let hash = context.store.hash(key);
    let counters = context.counters;
    if what == Count::There {
        let found = context.store.peek(hash, key, context.now);
        return found.is_some();
    }
    let mut entry = context.enter(hash, key);
    let found = entry.meta().is_some();
    if found && what == Count::Deleted {
        entry.unlink();
    } else if found {
        entry.mark_fetched();
    }
    drop(entry);
    if what == Count::Deleted {
        if found { &counters.delete_hits } else { &counters.delete_misses }.bump_owner();
    }
    found
}

/// `TYPE`: all items are strings.
pub fn kind(asking: &Asking<'_>, key: &[u8], out: &mut Vec<u8>) {
    let context = &asking.context;
    let found = context.store.peek(context.store.hash(key), key, context.now);
    put_simple(out, if found.is_some() { b"string" } else { b"none" });
}

/// `STRLEN`
pub fn length(asking: &Asking<'_>, key: &[u8], out: &mut Vec<u8>) {
    let context = &asking.context;
    let found = context.store.peek(context.store.hash(key), key, context.now);
    put_integer(out, found.map_or(0, |meta| meta.value_bytes.into()));
}

/// How the time that an item has left is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Left {
    /// `TTL`: full seconds.
    Seconds,
    /// `PTTL`
    Milliseconds,
    /// `EXPIRETIME`: the unix second of its end.
    UnixSeconds,
    /// `PEXPIRETIME`
    UnixMilliseconds,
}

/// The time an item has left: -1 where it has no end, -2 where there is no item.
pub fn time_left(asking: &Asking<'_>, key: &[u8], how: Left, out: &mut Vec<u8>) {
    const NO_END: i64 = -1;
    const NO_ITEM: i64 = -2;
    let context = &asking.context;
    let found = context.store.peek(context.store.hash(key), key, context.now);
    let told = match found.map(|meta| i64::from(meta.expires)) {
        None => NO_ITEM,
        Some(0) => NO_END,
        Some(at) => {
            let left = (at * 1000 - asking.now_ms as i64).max(0);
            match how {
                Left::Seconds => left / 1000,
                Left::Milliseconds => left,
                Left::UnixSeconds => at,
                Left::UnixMilliseconds => at * 1000,
            }
        }
    };
    put_integer(out, told);
}

/// `EXPIRE` and its kin. What is over is deleted.
pub fn expire(asking: &Asking<'_>, key: &[u8], at: UnixSeconds, when: When, out: &mut Vec<u8>) {
    let context = &asking.context;
    let counters = context.counters;
    counters.cmd_touch.bump_owner();
    let mut entry = context.enter(context.store.hash(key), key);
    let found = entry.meta();
    let is_met = found.is_some_and(|found| when.is_met(found.expires, at));
    if is_met && at <= context.now {
        entry.unlink();
    } else if is_met {
        entry.set_expires(at);
    }
    drop(entry);
    if found.is_some() { &counters.touch_hits } else { &counters.touch_misses }.bump_owner();
    put_integer(out, is_met.into());
}

/// `PERSIST`
pub fn persist(asking: &Asking<'_>, key: &[u8], out: &mut Vec<u8>) {
    let context = &asking.context;
    let mut entry = context.enter(context.store.hash(key), key);
    let had_end = entry.meta().is_some_and(|found| found.expires != 0);
    if had_end {
        entry.set_expires(0);
    }
    drop(entry);
    put_integer(out, had_end.into());
}
