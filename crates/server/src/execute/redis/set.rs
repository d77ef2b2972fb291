//! `SET` and its older kin: the moment of storing. The value is complete, in its draft.

use super::get::get_and;
use super::{Asking, Expiry, OUT_OF_MEMORY, TOO_LARGE};
use crate::execute::{Context, Outcome};
use laneway_store::{Draft, Entry, ItemMeta, KeyHash, Refused, Store};
use laneway_wire::resp::reply::{OK, put_integer, put_null};
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

    fn allows(&self, found: Option<&ItemMeta>) -> bool {
        match self.condition {
            Condition::Always => true,
            Condition::Absent => found.is_none(),
            Condition::Present => found.is_some(),
        }
    }

    /// Publishes the draft if the condition is met; whether it was.
    fn publish<S: Deref<Target = Store>>(
        &self,
        mut entry: Entry<'_>,
        found: Option<&ItemMeta>,
        mut draft: Draft<S>,
        context: &Context<'_>,
    ) -> bool {
        if !self.allows(found) {
            return false;
        }
        match self.expiry {
            // It is over before anybody could read it. But what is kept durably may lie where
            // memory has nothing to unlink: that an item was published tells of the change.
            Expiry::At(at) if at <= context.now && !context.is_keepers() => {
                entry.unlink();
                return true;
            }
            Expiry::Never => draft.set_expires(0),
            Expiry::Keep => draft.set_expires(found.map_or(0, |found| found.expires)),
            Expiry::At(at) => draft.set_expires(at),
        }
        entry.publish(draft, None);
        true
    }
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
    if how.answer == Answer::Old {
        let mut draft = Some(draft);
        let outcome = get_and(asking, key, hash, out, |entry, found| {
            if let Some(draft) = draft.take() {
                how.publish(entry, found, draft, context);
            }
        });
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
    let is_stored = how.publish(entry, found.as_ref(), draft, context);
    match how.answer {
        Answer::Done if is_stored => out.extend_from_slice(OK),
        Answer::Done => put_null(out, asking.version),
        Answer::Stored => put_integer(out, is_stored.into()),
        Answer::Silent | Answer::Old => {}
    }
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
    let draft = context.draft(key, 0, 0, value.len());
    match draft.and_then(|mut draft| draft.write(value).map(|()| draft)) {
        Ok(draft) => {
            let at = (key, context.store.hash(key));
            set(asking, at, draft, how, out).unwrap_or(Outcome::Kept)
        }
        Err(refused) => {
            context.counters.cmd_set.bump_owner();
            let counters = context.counters;
            out.extend_from_slice(match refused {
                Refused::TooLarge => {
                    counters.store_too_large.bump_owner();
                    TOO_LARGE
                }
                Refused::OutOfMemory => {
                    counters.store_no_memory.bump_owner();
                    OUT_OF_MEMORY
                }
            });
            Outcome::Done
        }
    }
}
