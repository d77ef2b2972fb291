//! `INCR` and its kin: a signed number of 64 bits, which begins at 0.
//!
//! memcached's `incr` knows unsigned numbers only, and where it makes one shorter it fills up with
//! spaces; those are read here, too, and not written. What is below zero memcached refuses.

use super::attempts::{Attempts, unchanged};
use super::{Asking, NO_INTEGER, OUT_OF_MEMORY, TOO_MANY};
use crate::execute::Outcome;
use laneway_store::Got;
use laneway_wire::reply::{Sink, put_i64};
use laneway_wire::resp::integer;
use laneway_wire::resp::reply::put_integer;

const OVERFLOW: &[u8] = b"-ERR increment or decrement would overflow\r\n";

/// A number of 64 bits, a minus sign included.
#[derive(Default)]
struct Digits {
    bytes: [u8; 20],
    length: usize,
}

impl Sink for Digits {
    fn put(&mut self, bytes: &[u8]) {
        self.bytes[self.length..self.length + bytes.len()].copy_from_slice(bytes);
        self.length += bytes.len();
    }
}

/// Adds to the number that a key holds. `out` is scratch, too.
pub fn increment(asking: &Asking<'_>, key: &[u8], by: i64, out: &mut Vec<u8>) -> Outcome {
    let told = |words: &[u8], out: &mut Vec<u8>| {
        out.extend_from_slice(words);
        Outcome::Done
    };
    let context = &asking.context;
    let hash = context.store.hash(key);
    let start = out.len();
    let mut attempts = Attempts::new();
    let counters = context.counters;
    while attempts.again() {
        let before = match context.store.peek_value(hash, key, context.now, out) {
            Got::Miss if context.has_forgotten() => return Outcome::Kept,
            Got::Miss => None,
            // No number is that long.
            Got::Large(..) => return told(NO_INTEGER, out),
            Got::Copied(meta) => Some(meta),
        };
        let number = match &before {
            None => Some(0),
            Some(meta) => {
                context.reads(meta);
                integer(out[start..].trim_ascii_end())
            }
        };
        out.truncate(start);
        let Some(number) = number else { return told(NO_INTEGER, out) };
        let Some(number) = number.checked_add(by) else { return told(OVERFLOW, out) };
        let mut digits = Digits::default();
        put_i64(&mut digits, number);
        let digits = &digits.bytes[..digits.length];
        let (flags, expires) = before.map_or((0, 0), |meta| (meta.flags, meta.expires));
        let draft = context.draft(key, flags, expires, digits.len());
        let Ok(draft) = draft.and_then(|mut draft| draft.write(digits).map(|()| draft)) else {
            counters.store_no_memory.bump_owner();
            return told(OUT_OF_MEMORY, out);
        };
        let mut entry = context.enter(hash, key);
        let found = entry.meta();
        let is_same = match &before {
            Some(before) => unchanged(before, found.as_ref()),
            None => found.is_none(),
        };
        if is_same {
            entry.publish(draft, None);
            drop(entry);
            let (hits, misses) = match by < 0 {
                false => (&counters.incr_hits, &counters.incr_misses),
                true => (&counters.decr_hits, &counters.decr_misses),
            };
            if before.is_some() { hits } else { misses }.bump_owner();
            put_integer(out, number);
            return Outcome::Done;
        }
    }
    told(TOO_MANY, out)
}
