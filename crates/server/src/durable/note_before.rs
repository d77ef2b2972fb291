//! Keeps the before-image of a change (what was there before it) until the change is durable.
//!
//! A change is in memory before it is durable. Without before-images a read of its key would wait
//! for the change's group. Instead the read gets the item as the durable part of the log has it
//! ([`super::tell_before`]). Nobody has been told yet that the change is done, so either order of
//! the two is linearizable.
//!
//! **All replies agree on one order of the changes**: the order in which they come to the log. Let
//! D be the position up to which the log is durable. D only grows, and each reply tells of the log
//! up to some position:
//!
//! - A before-image is what its key has in the log up to D ([`super::before`]). A walk or a backup
//!   shows changes of a group some time before D reaches its end, while the group is offered to the
//!   index. Meanwhile no before-image is told that ends before that end.
//! - Each other reply of the executor tells of the last change of its key, and leaves once D has
//!   reached that change.
//! - A worker answers where no task that changed the key is unanswered. So D has reached all
//!   changes of the key.
//!
//! Let a reply have shown a change at position P, and a before-image be told later, of any key.
//! Then D has reached P by that time. So the before-image shows all changes up to P, too. In
//! particular nobody gets it once its change is acknowledged, since D has reached the change then.
//! Which of the tasks is answered first does not matter, nor what a batch changes behind that.
//!
//! A value on its way to the SSD has no position yet. Its key waits, and nobody has seen the
//! change. It takes its place in the order in the step in which the executor hears of its position,
//! behind all that anybody was told before. At an interval, where nobody waits for D, all other
//! changes have the order in which they are made.
//!
//! Three rules come on top:
//!
//! - A connection that waits for a change gets no before-image. Its earlier reply, which leaves
//!   first, may tell of a position behind D.
//! - A change of several keys in one request has none: a reader could see a part of the change.
//! - When a before-image ends that somebody was told, `WATCH` takes this for a change of the key.
//!   A `GET` behind that `WATCH` may have returned it.

use super::before::{Before, DURABLE};
use super::state::DurableExecutor;
use super::task::Task;
use laneway_store::KeyHash;
use laneway_tier::Position;

impl<S> DurableExecutor<S> {
    /// A task has made a change that is durable when the log is up to `until`. This is what was
    /// there `before`, if that was copied.
    pub(super) fn note_before(&mut self, task: &mut Task, before: Option<Before>, until: Position) {
        if until != DURABLE {
            self.count_waiting(task);
        }
        match before {
            // The change may be shown at once.
            Some(before) if until == DURABLE => self.befores.give_back(before),
            Some(before) => self.befores.note(before, until),
            None => {}
        }
    }

    /// A task has made a change, or is to tell of one: until it is answered its connection is told
    /// nothing of before, of any key.
    pub(super) fn count_waiting(&mut self, task: &mut Task) {
        if !std::mem::replace(&mut task.counts_as_waiting, true) {
            self.befores.wait(task.asker());
        }
    }

    /// A change that was on its way is in the log: what was before it is told until that is durable
    /// up to here.
    pub(super) fn change_came(&mut self, key: &[u8], until: Position) {
        let named = (key, self.shared.store.hash(key));
        match until == DURABLE {
            true => self.end_befores_of(named),
            false => self.befores.came(named, until),
        }
    }

    /// The log is durable up to here, or nothing of before may be told any more.
    pub(super) fn end_befores_until(&mut self, durable: Position) {
        let pending_writes = &self.durable.pending_writes;
        self.befores.end_until(durable, |hash| pending_writes.changed_owner(hash));
    }

    /// A change of a key was taken back: nothing of before is told of it.
    pub(super) fn end_befores_of(&mut self, named: (&[u8], KeyHash)) {
        let pending_writes = &self.durable.pending_writes;
        self.befores.end_of(named, |hash| pending_writes.changed_owner(hash));
    }
}
