//! Stores for `SET` and its older kin. The value is complete, in its draft.

use super::get::get_and;
use super::{Asking, Expiry, words_of_refused};
use crate::event_log::{Stored, StoredBy};
use crate::execute::{Context, Outcome};
use laneway_store::{Draft, Entry, ItemMeta, KeyHash, Moment, Refused, Store};
use laneway_wire::resp::reply::{OK, Version, put_integer, put_null};
use std::ops::Deref;

/// When to store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Condition {
    /// Whatever was there.
    #[default]
    Always,
    /// `NX`
    Absent,
    /// `XX`
    Present,
    /// `IFEQ`: its value is this one.
    Equal(Short),
}

/// A short value to compare with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Short {
    bytes: [u8; Short::BYTES_MAX],
    length: usize,
}

impl Short {
    /// The longest.
    pub const BYTES_MAX: usize = 64;

    /// Of these bytes, if they are not too many.
    pub fn of(value: &[u8]) -> Option<Short> {
        let mut bytes = [0; Short::BYTES_MAX];
        bytes.get_mut(..value.len())?.copy_from_slice(value);
        Some(Short { bytes, length: value.len() })
    }

    fn is(&self, value: Option<&[u8]>) -> bool {
        value == Some(&self.bytes[..self.length])
    }
}

/// What is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Answer {
    /// `OK`, or null where the condition was not met.
    #[default]
    Done,
    /// The value before.
    Old,
    /// 1 or 0.
    Stored,
    /// Nothing, unless it is an error: there are more to come.
    Silent,
}

/// How to store a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Set {
    /// When.
    pub condition: Condition,
    /// Until when.
    pub expiry: Expiry,
    /// And what is said.
    pub answer: Answer,
}

impl Set {
    /// Whether it needs to know the item there is.
    pub fn looks_at_old(&self) -> bool {
        self.condition != Condition::Always
            || self.expiry == Expiry::Keep
            || self.answer == Answer::Old
    }

    /// `value`: of the item, if that is small, where it is read.
    fn allows(&self, found: Option<&ItemMeta>, value: Option<&[u8]>) -> bool {
        match self.condition {
            Condition::Always => true,
            Condition::Absent => found.is_none(),
            Condition::Present => found.is_some(),
            Condition::Equal(wanted) => found.is_some() && wanted.is(value),
        }
    }

    /// Logs what became of a value of so many bytes.
    fn log(&self, context: &Context<'_>, key: &[u8], stored: Stored, value_bytes: usize) {
        let by = match self.condition {
            Condition::Always => StoredBy::Set,
            Condition::Absent => StoredBy::Add,
            Condition::Present => StoredBy::Replace,
            Condition::Equal(_) => StoredBy::Cas,
        };
        let expires = match self.expiry {
            Expiry::Never | Expiry::Keep => Moment::NEVER,
            Expiry::At(deadline) => deadline.from(context.now),
        };
        context.log_store(key, (stored, by), expires, value_bytes as u64);
    }

    /// Answers whether it was stored.
    fn tell(&self, is_stored: bool, version: Version, out: &mut Vec<u8>) {
        match self.answer {
            Answer::Done if is_stored => out.extend_from_slice(OK),
            Answer::Done => put_null(out, version),
            Answer::Stored => put_integer(out, is_stored.into()),
            Answer::Silent | Answer::Old => {}
        }
    }

    /// Publishes the draft if the condition is met; whether it was.
    fn publish<S: Deref<Target = Store>>(
        &self,
        mut entry: Entry<'_>,
        (found, value): (Option<&ItemMeta>, Option<&[u8]>),
        mut draft: Draft<S>,
        context: &Context<'_>,
    ) -> bool {
        if !self.allows(found, value) {
            return false;
        }
        let end = match self.expiry {
            Expiry::Never => Moment::NEVER,
            Expiry::Keep => found.map_or(Moment::NEVER, |found| found.expires),
            Expiry::At(deadline) => deadline.from(context.now),
        };
        // It is over before anybody could read it. But what is kept durably may lie where memory
        // has nothing to unlink: that an item was published tells of the change.
        if end.is_over(context.now) && !context.is_executors() {
            entry.unlink();
            return true;
        }
        draft.set_expires(end);
        entry.publish(draft, None);
        true
    }
}

fn stored_or_not(is_stored: bool) -> Stored {
    if is_stored { Stored::Stored } else { Stored::NotStored }
}

/// Stores a complete value, if the condition is met. Gives the draft back where memory has
/// forgotten the item that it asks for: then nothing was done ([`Outcome::Kept`]).
pub fn set<S: Deref<Target = Store>>(
    asking: &Asking<'_>,
    (key, hash): (&[u8], KeyHash),
    draft: Draft<S>,
    how: &Set,
    out: &mut Vec<u8>,
) -> Result<Outcome, Draft<S>> {
    let context = &asking.context;
    if how.answer == Answer::Old || matches!(how.condition, Condition::Equal(_)) {
        let (start, mut is_stored) = (out.len(), false);
        let value_bytes = draft.value_bytes();
        let mut draft = Some(draft);
        let outcome = get_and(asking, key, hash, out, |entry, found, value| {
            if let Some(draft) = draft.take() {
                is_stored = how.publish(entry, (found, value), draft, context);
            }
            true
        });
        let is_done = matches!(outcome, Outcome::Done | Outcome::Transfer(_));
        if is_done && draft.is_none() {
            how.log(context, key, stored_or_not(is_stored), value_bytes);
        }
        if how.answer != Answer::Old && is_done {
            if draft.is_none() {
                out.truncate(start); // the value was compared with, and is not told
                how.tell(is_stored, asking.version, out);
            }
            context.counters.cmd_set.bump_owner();
            return Ok(Outcome::Done);
        }
        return match (outcome, draft) {
            (Outcome::Kept, Some(draft)) => Err(draft),
            (Outcome::Elsewhere, _) => Ok(Outcome::Elsewhere),
            (outcome, _) => {
                context.counters.cmd_set.bump_owner();
                Ok(outcome)
            }
        };
    }
    let entry = context.enter(hash, key);
    let found = entry.meta();
    if found.is_none() && how.looks_at_old() && context.has_forgotten() {
        return Err(draft);
    }
    context.counters.cmd_set.bump_owner();
    let value_bytes = draft.value_bytes();
    let is_stored = how.publish(entry, (found.as_ref(), None), draft, context);
    how.log(context, key, stored_or_not(is_stored), value_bytes);
    how.tell(is_stored, asking.version, out);
    Ok(Outcome::Done)
}

/// The same of a value that lies whole in the input; [`Outcome::Kept`] where memory has forgotten.
pub fn set_whole(
    asking: &Asking<'_>,
    key: &[u8],
    value: &[u8],
    how: &Set,
    out: &mut Vec<u8>,
) -> Outcome {
    let context = &asking.context;
    let expires = match how.expiry {
        Expiry::Never => Moment::NEVER,
        Expiry::Keep => Moment::LATER, // that of the item there is, once it is known
        Expiry::At(deadline) => deadline.from(context.now),
    };
    let draft = context.draft(key, 0, expires, value.len());
    match draft.and_then(|mut draft| draft.write(value).map(|()| draft)) {
        Ok(draft) => {
            let at = (key, context.store.hash(key));
            set(asking, at, draft, how, out).unwrap_or(Outcome::Kept)
        }
        Err(refused) => refuse_set(context, key, refused, how, out),
    }
}

/// Answers a `SET` or `SETNX` that stores only where there is no item, as there is one, be it in
/// memory or not.
pub fn refuse_added(
    asking: &Asking<'_>,
    (key, value_bytes): (&[u8], usize),
    how: &Set,
    out: &mut Vec<u8>,
) {
    let context = &asking.context;
    context.counters.cmd_set.bump_owner();
    how.log(context, key, stored_or_not(false), value_bytes);
    how.tell(false, asking.version, out);
}

/// There is no item for a value.
pub fn refuse_set(
    context: &Context<'_>,
    key: &[u8],
    refused: Refused,
    how: &Set,
    out: &mut Vec<u8>,
) -> Outcome {
    context.counters.cmd_set.bump_owner();
    how.log(context, key, refused.into(), 0);
    context.count_refused(refused);
    out.extend_from_slice(words_of_refused(refused));
    Outcome::Done
}
