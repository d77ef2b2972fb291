//! Keeps the before-image of a change (what was there before it), and ends it once the change is
//! acknowledged.
//!
//! A change is in memory before it is durable. Without before-images a read of its key would wait
//! for the change's group. Instead the read gets the item before the change, which was acknowledged
//! ([`super::tell_before`]). Read and change overlap, so either order of the two is linearizable.
//!
//! These rules keep what clients see in order:
//!
//! - A before-image ends in the step that answers its change, before the reply leaves and before
//!   workers see the key again. So nobody gets it after that reply.
//! - It ends as well with any other reply that reveals the change. From then on nobody gets the
//!   before-image of an earlier change, of any key. So everybody sees changes in their order.
//! - A connection that waits for a change gets no before-image.
//! - A change of several keys in one request has none: a reader could see a part of the change.
//! - When a before-image ends that somebody was told, `WATCH` takes this for a change of the key.
//!   A `GET` behind that `WATCH` may have returned it.

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
    /// answered. Until then its connection is told nothing of before, of any key.
    pub(super) fn end_once_answered(&mut self, task: &mut Task, last: (Arc<[u8]>, u64)) {
        match task.befores.last_mut() {
            Some(known) if known.0 == last.0 => return *known = last,
            Some(_) => {}
            None => self.befores.wait(task.asker()),
        }
        task.befores.push(last);
    }

    /// A task is answered: its changes, and those that its reply reveals, have no before-image now.
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
