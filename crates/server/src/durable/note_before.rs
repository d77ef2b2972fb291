//! Notes what was there before a change, and ends that once the change is acknowledged.
//!
//! A change is in memory before it is durable. Who reads its key meanwhile is told the value
//! before it, which was acknowledged ([`super::tell_before`]): the read overlaps the change, so
//! either order of the two is true. Else it would wait for the change's group.
//!
//! What was noted ends in the step in which the change is answered, before the reply leaves and
//! before workers see the key again: so nobody is told of it behind that reply. It ends as well
//! with the answer of anyone else who was told of the change, in whatever way. From then on nobody
//! is told what was before any change that came earlier, of whatever key: all changes are seen in
//! their order. So a connection that waits for a change is told nothing of before. Where a request
//! changes several keys, nobody is told of what was before it, or a reader could see a part of
//! it. A transaction takes it for a change of what it watches when what somebody was told ends:
//! `GET` behind `WATCH` may have told it.

use super::before::Known;
use super::state::DurableExecutor;
use super::task::Task;
use laneway_store::KeyHash;
use laneway_sync::planted::{Bug, is_planted};
use std::sync::Arc;

impl<S> DurableExecutor<S> {
    /// A task has changed a key, of which this was there before.
    pub(super) fn note_before(
        &mut self,
        task: &mut Task,
        (key, hash): (&[u8], KeyHash),
        known: Known,
    ) {
        if !self.durable.waits && !self.busy.contains_key(key) {
            return self.end_befores_of((key, hash), task.changer); // it may be shown at once
        }
        match known {
            // Nothing of the key can be told until this is answered.
            Known::Unknown => self.end_befores_of((key, hash), task.changer),
            Known::Same => return,
            Known::Absent | Known::Item(_) => {}
        }
        if task.changer == 0 {
            task.changer = self.befores.next_id();
        }
        let noted = self.befores.note(key, task.changer, known);
        self.end_once_answered(task, noted);
    }

    /// A task has changed a key, or is to tell of its change: what was before ends once the task is
    /// answered. Until then its connection is told nothing of before, of whatever key.
    pub(super) fn end_once_answered(&mut self, task: &mut Task, last: (Arc<[u8]>, u64)) {
        match task.befores.last_mut() {
            Some(known) if known.0 == last.0 => return *known = last,
            Some(_) => {}
            None => self.befores.wait(task.asker()),
        }
        task.befores.push(last);
    }

    /// A task is answered, and what it was told, or has done, is what there is.
    pub(super) fn end_befores(&mut self, task: &mut Task) {
        let befores = std::mem::take(&mut task.befores);
        if !befores.is_empty() {
            self.befores.wait_no_more(task.asker());
        }
        if is_planted(Bug::BeforeOutlives) {
            return;
        }
        for (key, id) in befores {
            if self.befores.end(&key, id, task.changer) {
                self.durable.pending_writes.changed_owner(self.shared.store.hash(&key));
            }
        }
    }

    /// What was before is told no more of a key, since this task has changed it or, by 0, since a
    /// change was taken back.
    pub(super) fn end_befores_of(&mut self, (key, hash): (&[u8], KeyHash), task: u64) {
        if self.befores.end(key, u64::MAX, task) {
            self.durable.pending_writes.changed_owner(hash);
        }
    }
}
