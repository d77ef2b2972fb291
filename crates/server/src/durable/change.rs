//! Writes what a command has changed in memory to the tier. Where the tier refuses, the change in
//! memory is taken back.

use super::before::{Before, DURABLE, NOT_IN_LOG};
use super::capture::{Change, Changed};
use super::ends;
use super::hands::{Aside, Order, Spilled};
use super::shared::bump;
use super::state::{DurableExecutor, Pending};
use super::sweep::LOOKS;
use super::task::{Leaving, NO_MEMORY_STORING, Task};
use laneway_store::{Got, ItemMeta as Seen, KeyHash, Moment, Pinned, Store};
use laneway_sync::planted::{Bug, is_planted};
use laneway_tier::{Error, ItemMeta, Position, Result, Ticket, Tried};
use std::borrow::Cow;
use std::sync::Arc;

/// Marks in a record; above them stand milliseconds ([`ends::record_of`]).
const STALE: u16 = 1;
const TOKEN_SENT: u16 = 2;
/// Large values up to this length are copied to where they wait for their group: a few
/// microseconds, where to give them to another thread takes longer.
const AT_ONCE_BYTES_MAX: usize = 16 << 10;

/// What is kept of an item besides its value.
fn meta_of(seen: &Seen) -> ItemMeta {
    let mark = |set, mark| if set { mark } else { 0 };
    let (expires_at_seconds, millis) = ends::record_of(seen.expires);
    ItemMeta {
        flags: seen.flags,
        expires_at_seconds,
        marks: mark(seen.stale, STALE) | mark(seen.token_sent, TOKEN_SENT) | millis,
        cas: seen.seq,
    }
}

/// Stale, and token sent, as a record has them.
pub(super) fn marks_of(meta: &ItemMeta) -> (bool, bool) {
    (meta.marks & STALE != 0, meta.marks & TOKEN_SENT != 0)
}

/// The item that a change has left, and its value: what is `stored`, where that is at hand. Then
/// nobody looks for it in memory, where the store has told of it: what becomes of it there since is
/// no matter.
fn left_by<'v>(
    store: &Arc<Store>,
    changed: &Changed,
    stored: Option<&'v [u8]>,
    now: Moment,
) -> (Got, Cow<'v, [u8]>) {
    let Changed { key, hash, change } = changed;
    let mut value = Cow::Borrowed(stored.unwrap_or_default());
    let got = match (*change, stored) {
        (Change::Deleted, _) => Got::Miss,
        (Change::Published { expires, seen: Some(seen) }, Some(_)) if !expires.is_over(now) => {
            Got::Copied(seen)
        }
        (_, Some(_)) => store.peek(*hash, key, now).map_or(Got::Miss, Got::Copied),
        // Nobody has asked for it yet: it is no hit.
        _ => store.peek_value(*hash, key, now, value.to_mut()),
    };
    (got, value)
}

impl<S> DurableExecutor<S> {
    /// Keeps the last that happened to a key, where this was `before`, if it was copied. If what
    /// happened has left an item whose value is at hand, it is `stored`.
    pub(super) fn keep(
        &mut self,
        task: &mut Task,
        changed: Changed,
        stored: Option<&[u8]>,
        before: Option<Before>,
    ) {
        self.durable.pending_writes.changed_owner(changed.hash);
        self.ends.forget(&changed.key);
        let (got, value) = left_by(&self.shared.store, &changed, stored, self.now);
        let Changed { key, hash, change } = changed;
        if let (Got::Copied(seen), Some(stored)) = (&got, stored) {
            assert!(seen.value_bytes as usize == stored.len(), "it stored what it was given");
        }
        let kept = match (got, change) {
            (Got::Copied(seen), _) => self.put(task, (&key, hash), &seen, value, None),
            (Got::Large(seen, pinned), _) => {
                self.put(task, (&key, hash), &seen, value, Some(pinned))
            }
            (Got::Miss, Change::Published { expires, .. }) if !expires.is_over(self.now) => {
                // Memory is so short that it was evicted at once. A reader that has seen it before,
                // and looks only now whether it may tell of it, asks here instead.
                self.durable.pending_writes.taken_back();
                task.fail(NO_MEMORY_STORING);
                bump(&self.durable.counts.refused.memory);
                return;
            }
            (Got::Miss, _) => self.put_deletion(task, (&key, hash)),
        };
        match kept {
            Ok(until) => {
                self.note_before(task, before, until);
                task.changes = true;
                task.changed.push(key);
            }
            Err(error) => {
                self.take_back(&key);
                self.count_refusal(&error);
                task.fail(error.to_string());
            }
        }
    }

    /// Returns up to where the log must be durable before anybody is told of it.
    fn put(
        &mut self,
        task: &mut Task,
        (key, hash): (&[u8], KeyHash),
        seen: &Seen,
        mut value: Cow<'_, [u8]>,
        pinned: Option<Pinned>,
    ) -> Result<Position> {
        let meta = meta_of(seen);
        if self.durable.tier.is_large(key.len(), seen.value_bytes as usize) {
            if let Some(error) = self.durable.tier.refuses_writes() {
                return Err(error);
            }
            let at_once = self.put_at_once((key, hash), meta, &mut value, pinned.as_ref())?;
            if let Some(ticket) = at_once {
                return Ok(self.submitted(task, key, ticket, false));
            }
            let value = match pinned {
                Some(pinned) => Spilled::Pinned(pinned),
                None => Spilled::Bytes(value.into_owned()),
            };
            self.busy.entry(key.into()).or_default();
            task.leaving.push(Leaving { key: key.into(), meta: Some(meta) });
            bump(&self.durable.counts.spills);
            self.order_for(task, |number| Order::Spill { number, key: key.into(), value });
            return Ok(NOT_IN_LOG);
        }
        if let Some(pinned) = pinned {
            pinned.copy_into(value.to_mut());
        }
        let sequence = self.next_sequence_of(hash);
        Ok(match self.durable.tier.try_put(key, &value, meta, sequence)? {
            Tried::Done(ticket) => self.submitted(task, key, ticket, false),
            Tried::Waits(()) => {
                let aside = Aside::Put { value: value.into_owned(), meta };
                self.put_aside(task, key, sequence, aside);
                NOT_IN_LOG
            }
        })
    }

    /// A large value that is short goes with its group, if there is room for it at once.
    fn put_at_once(
        &mut self,
        (key, hash): (&[u8], KeyHash),
        meta: ItemMeta,
        value: &mut Cow<'_, [u8]>,
        pinned: Option<&Pinned>,
    ) -> Result<Option<Ticket>> {
        let bytes = pinned.map_or(value.len(), Pinned::value_bytes);
        if AT_ONCE_BYTES_MAX < bytes {
            return Ok(None);
        }
        if let Some(pinned) = pinned {
            pinned.copy_into(value.to_mut());
        }
        let sequence = self.next_sequence_of(hash);
        match self.durable.tier.try_put_large(key, value, meta, sequence)? {
            Tried::Done(ticket) => Ok(Some(ticket)),
            Tried::Waits(()) => {
                if pinned.is_some() {
                    *value = Cow::default();
                }
                Ok(None)
            }
        }
    }

    /// As [`DurableExecutor::put`].
    fn put_deletion(&mut self, task: &mut Task, (key, hash): (&[u8], KeyHash)) -> Result<Position> {
        if is_planted(Bug::DeleteForgotten) {
            return Ok(DURABLE);
        }
        let sequence = self.next_sequence_of(hash);
        Ok(match self.durable.tier.try_delete(key, sequence)? {
            Tried::Done(Some(ticket)) => self.submitted(task, key, ticket, true),
            Tried::Done(None) => DURABLE,
            Tried::Waits(()) => {
                self.put_aside(task, key, sequence, Aside::Delete);
                NOT_IN_LOG
            }
        })
    }

    /// Keeps what a task deletes beside what it stores, now that all of that is in the tier or was
    /// refused: then nothing is deleted. Returns the keys that wait for nothing any more.
    pub(super) fn delete_behind(&mut self, task: &mut Task) -> Vec<Box<[u8]>> {
        let mut keys = std::mem::take(&mut task.deletions);
        for key in &keys {
            if task.error.is_some() {
                self.take_back(key);
            } else {
                let hash = self.shared.store.hash(key);
                let change = Change::Deleted;
                let changed = Changed { key: key.clone(), hash, change };
                self.keep(task, changed, None, None);
            }
        }
        keys.retain(|key| !task.leaving.iter().any(|leaving| leaving.key == *key));
        keys
    }

    /// A change is in the log. Returns up to where that must be durable before anybody is told.
    pub(super) fn submitted(
        &mut self,
        task: &mut Task,
        key: &[u8],
        ticket: Ticket,
        deleted: bool,
    ) -> Position {
        self.appended = true;
        if !self.durable.waits {
            return DURABLE;
        }
        let until = ticket.end;
        task.wait_for(until);
        self.pending.insert(key.into(), Pending { until, deleted, expired: false });
        self.appended_until = self.appended_until.max(until);
        until
    }

    /// Above all that were given, by whomever, but for those of other keys in memory: of two
    /// records of a key the later must count, and a CAS id must not come again after a restart,
    /// which begins above every record.
    pub(super) fn next_sequence(&mut self, key: &[u8]) -> u64 {
        self.next_sequence_of(self.shared.store.hash(key))
    }

    fn next_sequence_of(&mut self, hash: KeyHash) -> u64 {
        self.sequence = self.sequence.max(self.shared.store.seq_of(hash)) + 1;
        self.sequence
    }

    /// Counts and logs that a change was refused.
    pub(super) fn count_refusal(&mut self, error: &Error) {
        self.durable.counts.refused.count(error);
        self.trouble.refused(error, self.now_nanos);
    }

    /// Lets memory forget what the tier did not take: it holds the item as it was.
    pub(super) fn take_back(&mut self, key: &[u8]) {
        if is_planted(Bug::TakeBackForgotten) {
            return;
        }
        let store = &self.shared.store;
        let hash = store.hash(key);
        store.enter(hash, key, self.now).unlink();
        self.end_befores_of((key, hash));
        self.durable.pending_writes.changed_owner(hash);
        self.durable.pending_writes.taken_back();
    }

    /// Whether expired items are looked for: not while a flush waits for what is under way, nor by
    /// a server that stops, which would have to wait until there are none.
    pub(super) fn sweeps(&self) -> bool {
        self.barrier.is_empty() && !self.flushing && !self.durable.is_stopping()
    }

    /// Drops expired items from the tier, a few at a time.
    pub(super) fn drop_expired(&mut self) {
        if !self.sweeps() || self.now_nanos < self.sweep.at_nanos {
            return;
        }
        self.hand.empty(); // now and then, though there is always something to do
        if self.sweep.aside.is_some_and(|number| self.suspended.contains_key(&number)) {
            return self.sweep.wait(self.now_nanos);
        }
        let found = self.durable.tier.expired(&self.sweep.from, LOOKS, self.now.seconds());
        let was_written = std::mem::replace(&mut self.swept, self.sequence) != self.sequence;
        let over = found.keys.len();
        self.sweep.passed(over, found.next, was_written, self.now_nanos);
        for (before, key) in found.keys.into_iter().enumerate() {
            if self.busy.contains_key(&key) || self.pending.contains_key(&key) {
                continue;
            }
            match self.drop_one(&key) {
                Ok(Tried::Done(())) => {}
                Ok(Tried::Waits(sequence)) => {
                    // One at a time, in later looks, too: the others have room behind it.
                    bump(&self.durable.counts.expired);
                    self.put_aside_expired(&key, sequence);
                    return self.sweep.stopped(key, over - before - 1);
                }
                Err(_) => return, // whoever writes is told
            }
        }
    }

    /// Drops an item of which is known that it is over, before its second has come: the tier's
    /// index shows it till then, and every worker that misses it asks here. Nothing of its key is
    /// under way, and nobody waits: where the log has no room at once the sweep comes for it.
    pub(super) fn drop_over(&mut self, key: &[u8]) {
        if self.sweeps() {
            let _ = self.drop_one(key);
        }
    }

    /// Drops an expired item, unless the log has no room at once, for a deletion of this sequence.
    fn drop_one(&mut self, key: &[u8]) -> Result<Tried<(), u64>> {
        let sequence = self.next_sequence(key);
        Ok(match self.durable.tier.try_delete(key, sequence)? {
            Tried::Done(None) => Tried::Done(()),
            Tried::Waits(()) => Tried::Waits(sequence),
            Tried::Done(Some(ticket)) => {
                self.appended = true;
                if self.durable.waits {
                    let pending = Pending { until: ticket.end, deleted: true, expired: true };
                    self.pending.insert(key.into(), pending);
                }
                bump(&self.durable.counts.expired);
                Tried::Done(())
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use laneway_store::Config;

    const NOW: Moment = Moment::from_seconds(1);

    #[test]
    fn an_item_whose_value_is_at_hand_is_kept_though_memory_has_evicted_it_since() {
        let store = Store::new(Config::default()).expect("memory");
        let (key, hash) = (&b"key"[..], store.hash(b"key"));
        let mut draft = store.draft(key, 7, Moment::NEVER, 5).expect("memory");
        draft.write(b"value").expect("memory");
        store.enter(hash, key, NOW).publish(draft, None);
        let seen = store.peek(hash, key, NOW);
        let item = seen.expect("it was published");
        store.enter(hash, key, NOW).unlink(); // nothing is left of it, as behind an eviction
        let got = |change, stored: Option<&[u8]>| {
            let changed = Changed { key: key.into(), hash, change };
            left_by(&store, &changed, stored, NOW).0
        };
        let (told, value) = (|expires| Change::Published { expires, seen }, Some(&b"value"[..]));
        assert!(matches!(got(told(Moment::NEVER), value), Got::Copied(kept) if kept == item));
        assert!(matches!(got(told(NOW), value), Got::Miss), "it is over");
        assert!(matches!(got(told(Moment::NEVER), None), Got::Miss), "nobody has its value");
        assert!(matches!(got(Change::Deleted, value), Got::Miss), "it was deleted");
        let untold = Change::Published { expires: Moment::NEVER, seen: None };
        assert!(matches!(got(untold, value), Got::Miss), "nobody has told of it");
    }
}
