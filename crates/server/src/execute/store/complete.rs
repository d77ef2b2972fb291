//! The moment of storing: the bucket is entered, the condition looked at, the item published.

use super::super::Context;
use super::{Condition, How, Place};
use laneway_store::{Draft, KeyHash};

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
}

/// Store a whole value.
pub(super) fn complete(
    context: &Context<'_>,
    key: &[u8],
    hash: KeyHash,
    how: &How,
    draft: Draft,
    value_bytes: usize,
) -> Fate {
    let Place::Whole(condition) = how.place else { unreachable!("a whole value is a draft") };
    match whole(context, key, hash, how, condition, draft) {
        Ok(seq) => Fate::Done { seq, value_bytes },
        Err(stored) => stored,
    }
}

/// Returns the id of what was stored, or what was found instead.
fn whole(
    context: &Context<'_>,
    key: &[u8],
    hash: KeyHash,
    how: &How,
    condition: Condition,
    mut draft: Draft,
) -> Result<u64, Fate> {
    let mut entry = context.store.enter(hash, key, context.now);
    match (condition, entry.meta()) {
        (Condition::Always, _) | (Condition::Absent, None) | (Condition::Present, Some(_)) => {}
        (Condition::Absent, Some(_)) | (Condition::Present, None) => return Err(Fate::Unmet),
        (Condition::Cas { .. }, None) => return Err(Fate::Missing),
        (Condition::Cas { id, or_older }, Some(item)) => {
            let found = context.cas(&item);
            if id != 0 && or_older && id < found {
                // Older than the one there: stored all the same, but stale. It keeps the expiry of
                // what it replaces, and whoever has the token keeps it.
                draft.set_marks(true, item.token_sent);
                draft.set_expires(item.expires);
            } else if id == 0 || id != found {
                return Err(Fate::Exists);
            }
        }
    }
    Ok(entry.publish(draft, how.cas_explicit))
}
