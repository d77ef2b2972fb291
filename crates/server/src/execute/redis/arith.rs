//! `INCR`, `INCRBY`, `DECR` and `DECRBY`: they change a signed 64-bit number, which begins at 0.
//!
//! memcached's `incr` knows unsigned numbers only, and where it makes one shorter it fills up with
//! spaces; those are read here, too, and not written. What is below zero memcached refuses.

use super::attempts::{Attempts, unchanged};
use super::{Asking, NO_INTEGER, OUT_OF_MEMORY, TOO_MANY};
use crate::event_log::{Stored, StoredBy};
use crate::execute::Outcome;
use laneway_store::{Got, Moment};
use laneway_wire::reply::{CRLF, Sink, put_i64};
use laneway_wire::resp::integer;

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

impl AsRef<[u8]> for Digits {
    fn as_ref(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

/// A number without the spaces that memcached's `decr` leaves behind it; Redis takes none.
fn without_filling(text: &[u8]) -> &[u8] {
    let length = text.iter().rposition(|&byte| byte != b' ').map_or(0, |last| last + 1);
    &text[..length]
}

/// Adds to the number that a key holds. `out` is scratch, too.
pub fn increment(asking: &Asking<'_>, key: &[u8], by: i64, out: &mut Vec<u8>) -> Outcome {
    let counters = asking.context.counters;
    let next = |before: Option<&[u8]>| {
        let before = before.map_or(Some(0), |text| integer(without_filling(text)));
        let number = before.ok_or(NO_INTEGER)?.checked_add(by).ok_or(OVERFLOW)?;
        let mut digits = Digits::default();
        put_i64(&mut digits, number);
        Ok(digits)
    };
    let (told, hits, misses) = match by < 0 {
        false => (StoredBy::Incr, &counters.incr_hits, &counters.incr_misses),
        true => (StoredBy::Decr, &counters.decr_hits, &counters.decr_misses),
    };
    change(asking, (key, told), NO_INTEGER, next, out, |digits, was_there, out| {
        if was_there { hits } else { misses }.bump_owner();
        for part in [b":", digits.as_ref(), CRLF] {
            out.extend_from_slice(part);
        }
    })
}

/// Replaces a short value by what `next` makes of it, in one moment, which is logged as `by`, or as
/// `add` where there was none; `tell` answers, and hears whether there was one. An error of `next`
/// is what is told instead, and so is `too_long` of a long value. `out` is scratch, too.
pub(super) fn change<T: AsRef<[u8]>>(
    asking: &Asking<'_>,
    (key, by): (&[u8], StoredBy),
    too_long: &'static [u8],
    next: impl Fn(Option<&[u8]>) -> Result<T, &'static [u8]>,
    out: &mut Vec<u8>,
    tell: impl FnOnce(&T, bool, &mut Vec<u8>),
) -> Outcome {
    let told = |words: &[u8], out: &mut Vec<u8>| {
        out.extend_from_slice(words);
        Outcome::Done
    };
    let context = &asking.context;
    let (hash, start) = (context.store.hash(key), out.len());
    let mut attempts = Attempts::new();
    while attempts.again() {
        let before = match context.store.peek_value(hash, key, context.now, out) {
            Got::Miss if context.has_forgotten() => return Outcome::Kept,
            Got::Miss => None,
            Got::Large(..) => return told(too_long, out),
            Got::Copied(meta) => Some(meta),
        };
        if let Some(meta) = &before {
            context.reads(meta);
        }
        let made = next(before.as_ref().map(|_| &out[start..]));
        out.truncate(start);
        let made = match made {
            Ok(made) => made,
            Err(words) => return told(words, out),
        };
        let text = made.as_ref();
        let (flags, expires) = before.map_or((0, Moment::NEVER), |meta| (meta.flags, meta.expires));
        let draft = context.draft(key, flags, expires, text.len());
        let Ok(draft) = draft.and_then(|mut draft| draft.write(text).map(|()| draft)) else {
            context.counters.store_no_memory.bump_owner();
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
            let what = (Stored::Stored, if before.is_some() { by } else { StoredBy::Add });
            context.log_store(key, what, expires, text.len() as u64);
            tell(&made, before.is_some(), out);
            return Outcome::Done;
        }
    }
    told(TOO_MANY, out)
}
