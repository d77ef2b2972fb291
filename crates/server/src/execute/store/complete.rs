//! The moment of storing: the bucket is entered, the condition looked at, the item published.

use super::super::Context;
use super::{Condition, How, Place};
use crate::event_log::Stored;
use laneway_store::{Draft, KeyHash, Store};
use laneway_sync::planted::{Bug, is_planted};
use std::ops::Deref;

/// What became of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    /// Stored: the item's id and the bytes of its value.
    Done { seq: u64, value_bytes: usize },
    /// The CAS id differs.
    Exists,
    /// There is nothing to compare with.
    Missing,
    /// The condition was not met, or the joined value does not fit.
    Unmet,
    /// Others changed the item all the time.
    TooMany,
    /// Memory has forgotten the item, and the tier has it: nothing was done.
    Forgotten,
}

impl Fate {
    /// How it is logged of a value of so many bytes: what became of it, and the item's bytes.
    pub(super) fn logged(&self, sent: usize) -> (Stored, usize) {
        match *self {
            Fate::Done { value_bytes, .. } => (Stored::Stored, value_bytes),
            Fate::Exists => (Stored::Exists, sent),
            Fate::Missing => (Stored::NotFound, sent),
            Fate::Unmet | Fate::TooMany | Fate::Forgotten => (Stored::NotStored, sent),
        }
    }
}

/// Store a whole value. Gives the draft back where memory has forgotten the item that the condition
/// is about: then nothing was done, and the same may be tried again.
pub(super) fn complete<S: Deref<Target = Store>>(
    context: &Context<'_>,
    key: &[u8],
    hash: KeyHash,
    how: &How,
    draft: Draft<S>,
    value_bytes: usize,
) -> Result<Fate, Draft<S>> {
    let Place::Whole(condition) = how.place else { unreachable!("a whole value is a draft") };
    let mut draft = draft;
    let mut entry = context.enter(hash, key);
    let there = if condition == Condition::Always { None } else { entry.meta() };
    match (condition, there) {
        (Condition::Always, _) | (Condition::Present, Some(_)) => {}
        (_, None) if context.has_forgotten() => return Err(draft),
        (Condition::Absent, None) => {}
        (Condition::Absent, Some(_)) | (Condition::Present, None) => return Ok(Fate::Unmet),
        (Condition::Cas { .. }, None) => return Ok(Fate::Missing),
        (Condition::Cas { id, or_older }, Some(item)) => {
            let found = context.cas(&item);
            draft.set_expires(how.expires);
            if id != 0 && or_older && id < found {
                // Older than the one there: stored all the same, but stale. It keeps the expiry of
                // what it replaces, and whoever has the token keeps it.
                draft.set_marks(true, item.token_sent);
                draft.set_expires(item.expires);
            } else if (id == 0 || id != found) && !is_planted(Bug::CasIgnored) {
                return Ok(Fate::Exists);
            }
        }
    }
    Ok(Fate::Done { seq: entry.publish(draft, how.cas_explicit), value_bytes })
}
