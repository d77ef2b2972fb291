//! `incr`, `decr`, and the change that `ma` shares with them.

use super::attempts::{Attempts, TOO_MANY, unchanged};
use super::{Context, Outcome};
use crate::event_log::{Stored, StoredBy};
use laneway_store::{Draft, Got, ItemMeta, KeyHash, Moment, Refused, Store};
use laneway_wire::Arith;
use laneway_wire::reply::{Decimal, NO_MEMORY, NON_NUMERIC, NOT_FOUND, put_number_line};

/// A change of a number.
pub(super) struct Change {
    pub increment: bool,
    pub delta: u64,
    /// Only if the item's CAS id is this one.
    pub cas_compare: Option<u64>,
    /// The CAS id to give the item; a fresh one otherwise.
    pub cas_explicit: Option<u64>,
    /// A new expiry; the item's own otherwise.
    pub expires: Option<Moment>,
}

/// What became of it.
pub(super) enum Changed {
    /// The new number, the item as it was before, and its new CAS id.
    Done {
        number: u64,
        before: ItemMeta,
        cas: u64,
    },
    NotFound,
    /// Memory has forgotten the item, and the tier has it: [`Outcome::Kept`].
    Forgotten,
    /// The CAS id differed.
    Exists,
    NotANumber,
    NoMemory,
    TooMany,
}

pub(super) fn classic(context: &Context<'_>, request: &Arith<'_>, out: &mut Vec<u8>) -> Outcome {
    let change = Change {
        increment: request.increment,
        delta: request.delta,
        cas_compare: None,
        cas_explicit: None,
        expires: None,
    };
    let hash = context.store.hash(request.key);
    let changed = apply(context, &change, request.key, hash, out);
    count(context, request.increment, &changed);
    match changed {
        Changed::Forgotten => return Outcome::Kept,
        _ if request.noreply => {}
        Changed::Done { number, .. } => put_number_line(out, number),
        Changed::NotFound | Changed::Exists => out.extend_from_slice(NOT_FOUND),
        Changed::NotANumber => out.extend_from_slice(NON_NUMERIC),
        Changed::NoMemory => out.extend_from_slice(NO_MEMORY),
        Changed::TooMany => out.extend_from_slice(TOO_MANY),
    }
    Outcome::Done
}

pub(super) fn count(context: &Context<'_>, increment: bool, changed: &Changed) {
    let counters = context.counters;
    match (changed, increment) {
        (Changed::Done { .. }, true) => counters.incr_hits.bump_owner(),
        (Changed::Done { .. }, false) => counters.decr_hits.bump_owner(),
        (Changed::NotFound, true) => counters.incr_misses.bump_owner(),
        (Changed::NotFound, false) => counters.decr_misses.bump_owner(),
        _ => {}
    }
}

/// Apply the change. `out` is used as scratch and left as it was.
pub(super) fn apply(
    context: &Context<'_>,
    change: &Change,
    key: &[u8],
    hash: KeyHash,
    out: &mut Vec<u8>,
) -> Changed {
    let start = out.len();
    let mut attempts = Attempts::new();
    while attempts.again() {
        let before = match context.store.peek_value(hash, key, context.now, out) {
            Got::Miss if context.has_forgotten() => return Changed::Forgotten,
            Got::Miss => return Changed::NotFound,
            // No number is that long; memcached does not look at large values either.
            Got::Large(..) => return Changed::NotANumber,
            Got::Copied(meta) => meta,
        };
        context.reads(&before);
        let number = parse_number(&out[start..]);
        let has_bytes = out.len() > start;
        out.truncate(start);
        if change.cas_compare.is_some_and(|cas| cas != context.cas(&before)) && has_bytes {
            return Changed::Exists;
        }
        let Some(number) = number else { return Changed::NotANumber };
        let number = match change.increment {
            true => number.wrapping_add(change.delta),
            false => number.saturating_sub(change.delta),
        };
        let expires = change.expires.unwrap_or(before.expires);
        let Ok(draft) = draft_number(context, key, &before, expires, number) else {
            return Changed::NoMemory;
        };
        let mut entry = context.enter(hash, key);
        if unchanged(&before, entry.meta().as_ref()) {
            let value_bytes = draft.value_bytes() as u64;
            let seq = entry.publish(draft, change.cas_explicit);
            drop(entry);
            let by = if change.increment { StoredBy::Incr } else { StoredBy::Decr };
            context.log_store(key, (Stored::Stored, by), expires, value_bytes);
            let cas = if context.settings.cas_enabled { seq } else { 0 };
            return Changed::Done { number, before, cas };
        }
    }
    Changed::TooMany
}

/// The item with its new number. A number shorter than the old value is padded with spaces behind
/// to the old length, as memcached does where it writes in place.
fn draft_number<'a>(
    context: &Context<'a>,
    key: &[u8],
    before: &ItemMeta,
    expires: Moment,
    number: u64,
) -> Result<Draft<&'a Store>, Refused> {
    const SPACES: [u8; 64] = [b' '; 64];
    let digits = Decimal::new(number);
    let digits = digits.bytes();
    let length = digits.len().max(before.value_bytes as usize);
    let mut draft = context.draft(key, before.flags, expires, length)?;
    draft.write(digits)?;
    while draft.missing() > 0 {
        draft.write(&SPACES[..draft.missing().min(SPACES.len())])?;
    }
    draft.set_marks(before.stale, before.token_sent);
    Ok(draft)
}

/// The number a value holds: white space, a sign, digits; what follows a white space behind them
/// is not looked at. (The reading of C's `strtoull`, which memcached uses.)
pub(super) fn parse_number(value: &[u8]) -> Option<u64> {
    const fn is_space(byte: u8) -> bool {
        matches!(byte, b' ' | b'\t'..=b'\r')
    }
    let start = value.iter().position(|&byte| !is_space(byte))?;
    let (negative, digits) = match value[start] {
        b'-' => (true, &value[start + 1..]),
        b'+' => (false, &value[start + 1..]),
        _ => (false, &value[start..]),
    };
    let length = digits.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(digits.len());
    if length == 0 || digits.get(length).is_some_and(|&byte| !is_space(byte) && byte != 0) {
        return None;
    }
    let number = digits[..length].iter().try_fold(0u64, |number, digit| {
        number.checked_mul(10)?.checked_add(u64::from(digit - b'0'))
    })?;
    match negative {
        false => Some(number),
        // A negative number reads as its two's complement, and is refused if that looks negative.
        true => Some(number.wrapping_neg()).filter(|&number| number as i64 >= 0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_read_as_strtoull_reads_it() {
        for (value, number) in [
            (&b"0"[..], Some(0)),
            (b"18446744073709551615", Some(u64::MAX)),
            (b"18446744073709551616", None),
            (b"000012", Some(12)),
            (b" 12", Some(12)),
            (b"\t\n\x0b\x0c\r12", Some(12)),
            (b"12 ", Some(12)),
            (b"12 ab", Some(12)),
            (b"12\0ab", Some(12)),
            (b"12ab", None),
            (b"+12", Some(12)),
            (b"-5", None),
            (b"-0", Some(0)),
            (b"-18446744073709551615", Some(1)),
            (b"--5", None),
            (b"+", None),
            (b" ", None),
            (b"", None),
            (b"abc", None),
        ] {
            assert_eq!(parse_number(value), number, "{:?}", String::from_utf8_lossy(value));
        }
    }
}
