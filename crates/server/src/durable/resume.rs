//! An operation has ended that a task waited for: the task goes on, and so do the tasks that wait
//! for the same key.

use super::before::DURABLE;
use super::hands::Aside;
use super::shared::bump;
use super::state::DurableExecutor;
use super::task::{Leaving, Task};
use laneway_sync::planted::{Bug, is_planted};
use laneway_tier::{LargeWhole, Result, Ticket, Tried};

impl<S> DurableExecutor<S> {
    /// What was put aside was appended, or could not be.
    pub(super) fn written(&mut self, number: u64, key: &[u8], result: Result<Option<Ticket>>) {
        let Some((mut task, leaving)) = self.task_of(number, key) else { return };
        let deleted = leaving.meta.is_none();
        match result {
            Ok(Some(ticket)) => self.came(&mut task, key, ticket, deleted),
            Ok(None) => self.change_came(key, DURABLE), // there was nothing to delete
            Err(error) => self.refuse(&mut task, key, &error),
        }
        self.resume(number, task, key);
    }

    /// A large value is on the SSD, or could not be written.
    pub(super) fn spilled(&mut self, number: u64, key: &[u8], result: Result<LargeWhole>) {
        let Some((mut task, leaving)) = self.task_of(number, key) else { return };
        let (meta, sequence) = (leaving.meta.unwrap_or_default(), self.next_sequence(key));
        match result.and_then(|whole| whole.try_append(meta, sequence)) {
            Ok(Tried::Done(ticket)) => self.came(&mut task, key, ticket, false),
            Ok(Tried::Waits(whole)) => {
                self.put_aside(&mut task, key, sequence, Aside::Whole { whole, meta });
                self.suspended.insert(number, task);
                return;
            }
            Err(error) => self.refuse(&mut task, key, &error),
        }
        self.resume(number, task, key);
    }

    /// A change that was on its way is in the log.
    fn came(&mut self, task: &mut Task, key: &[u8], ticket: Ticket, deleted: bool) {
        let until = self.submitted(task, key, ticket, deleted);
        self.change_came(key, until);
    }

    /// The tier has flushed everything, or could not.
    pub(super) fn flushed(&mut self, number: u64, result: Result<()>) {
        self.flushing = false;
        let Some(mut task) = self.suspended.remove(&number) else { return };
        match result {
            // Where writes are acknowledged before they are durable, a commit is due for it too.
            Ok(()) => self.appended |= !is_planted(Bug::FlushUncommitted),
            Err(error) => {
                // One that is due is tried again and again, and nobody writes.
                match task.origin {
                    Some(_) => self.count_refusal(&error),
                    None => self.trouble.flush_refused(&error, self.now_nanos),
                }
                task.fail(error.to_string());
            }
        }
        self.admit(task);
    }

    /// The task of this number, for which this key has waited.
    fn task_of(&mut self, number: u64, key: &[u8]) -> Option<(Task, Leaving)> {
        let mut task = self.suspended.remove(&number)?;
        let at = task.leaving.iter().position(|leaving| *leaving.key == *key)?;
        let leaving = task.leaving.swap_remove(at);
        Some((task, leaving))
    }

    /// A change of a task could not be kept. Of a deletion that nobody asked for nobody is told:
    /// memory has nothing to take back, and the item is dropped by a later sweep, or is over as it
    /// is.
    fn refuse(&mut self, task: &mut Task, key: &[u8], error: &laneway_tier::Error) {
        if task.origin.is_none() {
            return;
        }
        self.take_back(key);
        self.count_refusal(error);
        task.fail(error.to_string());
    }

    /// A key of a task waits no more.
    fn resume(&mut self, number: u64, mut task: Task, key: &[u8]) {
        let deleted = match task.leaving.is_empty() {
            true => self.delete_behind(&mut task),
            false => Vec::new(),
        };
        match task.leaving.is_empty() {
            true => self.admit(task),
            false => drop(self.suspended.insert(number, task)),
        }
        self.release(key);
        for key in deleted {
            self.release(&key);
        }
    }

    /// A key waits for no device any more: those behind it go on, until one makes it wait again.
    /// The rest is not looked at then, or many who set one key would each be parsed at every turn.
    pub(super) fn release(&mut self, key: &[u8]) {
        let mut waiting = self.busy.remove(key).unwrap_or_default();
        while let Some(task) = waiting.pop_front() {
            bump(&self.durable.counts.released);
            self.admit(task);
            if let Some(behind) = self.busy.get_mut(key) {
                return behind.append(&mut waiting);
            }
        }
    }
}
