//! The moment of storing: the bucket is entered, the condition looked at, the item published.

use super::super::Context;
use super::super::attempts::{Attempts, unchanged};
use super::{Condition, How, Place};
use laneway_store::{Draft, Got, ItemMeta, KeyHash, Pinned, Refused, UnixSeconds};

/// A complete value.
pub(super) enum Value<'a> {
    /// Laid out as the item already; and how long it is.
    Draft(Draft, usize),
    /// Bytes to be joined to those of the item there is.
    Bytes(&'a [u8]),
}

impl Value<'_> {
    /// Length of what the client sent, where that is not in the item yet; only refusals ask.
    pub(super) fn value_bytes(&self) -> usize {
        match self {
            Value::Draft(_, value_bytes) => *value_bytes,
            Value::Bytes(bytes) => bytes.len(),
        }
    }
}

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

/// Store. `out` is used as scratch and left as it was.
pub(super) fn complete(
    context: &Context<'_>,
    key: &[u8],
    hash: KeyHash,
    how: &How,
    value: Value<'_>,
    out: &mut Vec<u8>,
) -> Fate {
    match (how.place, value) {
        (Place::Whole(condition), Value::Draft(draft, value_bytes)) => {
            match whole(context, key, hash, how, condition, draft) {
                Ok(seq) => Fate::Done { seq, value_bytes },
                Err(stored) => stored,
            }
        }
        (Place::Joined { behind, cas, vivify }, Value::Bytes(bytes)) => {
            let join = Join { behind, cas, vivify, bytes };
            let start = out.len();
            let stored = join.run(context, key, hash, how, out);
            out.truncate(start);
            stored
        }
        _ => unreachable!("a whole value is a draft, a part is bytes"),
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

/// `append`, `prepend`.
struct Join<'a> {
    behind: bool,
    cas: Option<u64>,
    vivify: Option<UnixSeconds>,
    bytes: &'a [u8],
}

impl Join<'_> {
    fn run(
        &self,
        context: &Context<'_>,
        key: &[u8],
        hash: KeyHash,
        how: &How,
        out: &mut Vec<u8>,
    ) -> Fate {
        let start = out.len();
        let mut attempts = Attempts::new();
        while attempts.again() {
            out.truncate(start);
            let (item, large) = match context.store.get(hash, key, context.now, out, &mut |_, _| {})
            {
                Got::Miss => match self.make(context, key, hash, how) {
                    Some(stored) => return stored,
                    None => continue,
                },
                Got::Copied(item) => (item, None),
                Got::Large(item, value) => (item, Some(value)),
            };
            if self.cas.is_some_and(|id| id != context.cas(&item)) {
                return Fate::Exists;
            }
            let Ok(draft) = self.join(context, key, &item, large.as_ref(), &out[start..]) else {
                return Fate::Unmet;
            };
            drop(large);
            let mut entry = context.store.enter(hash, key, context.now);
            if unchanged(&item, entry.meta().as_ref()) {
                let seq = entry.publish(draft, how.cas_explicit);
                let value_bytes = item.value_bytes as usize + self.bytes.len();
                return Fate::Done { seq, value_bytes };
            }
        }
        Fate::TooMany
    }

    /// The item there is, with the new bytes before or behind its own; flags and expiry stay.
    fn join(
        &self,
        context: &Context<'_>,
        key: &[u8],
        item: &ItemMeta,
        large: Option<&Pinned>,
        small: &[u8],
    ) -> Result<Draft, Refused> {
        let length = item.value_bytes as usize + self.bytes.len();
        let mut draft = context.store.draft(key, item.flags, item.expires, length, context.now)?;
        if !self.behind {
            draft.write(self.bytes)?;
        }
        match large {
            None => draft.write(small)?,
            Some(value) => {
                let mut offset = 0;
                while offset < value.value_bytes() {
                    let piece = value.piece(offset);
                    draft.write(piece)?;
                    offset += piece.len();
                }
            }
        }
        if self.behind {
            draft.write(self.bytes)?;
        }
        Ok(draft)
    }

    /// There is no item: make one if that was asked for. `None` if one appeared in between.
    fn make(&self, context: &Context<'_>, key: &[u8], hash: KeyHash, how: &How) -> Option<Fate> {
        let Some(expires) = self.vivify else { return Some(Fate::Unmet) };
        let length = self.bytes.len();
        let draft = context
            .store
            .draft(key, how.flags, expires, length, context.now)
            .and_then(|mut draft| draft.write(self.bytes).map(|()| draft));
        let Ok(draft) = draft else { return Some(Fate::Unmet) };
        let mut entry = context.store.enter(hash, key, context.now);
        if entry.meta().is_some() {
            return None;
        }
        Some(Fate::Done { seq: entry.publish(draft, how.cas_explicit), value_bytes: length })
    }
}
