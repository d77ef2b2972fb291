//! Changes for which the log has no room at once: its segment is full and the next has to be begun,
//! or emptied first. Who waits for devices appends them; until then their keys wait, as those of
//! large values on their way to the SSD do, and everything else goes on.

use super::hands::{Aside, Order};
use super::keeper::Keeper;
use super::shared::bump;
use super::task::{Leaving, Task};
use crate::handoff::Work;
use laneway_tier::{Result, Ticket};

impl<S> Keeper<S> {
    /// Has a change of a task appended by who may wait; the key waits for it.
    pub(super) fn put_aside(&mut self, task: &mut Task, key: &[u8], sequence: u64, aside: Aside) {
        let meta = match &aside {
            Aside::Put { meta, .. } | Aside::Whole { meta, .. } => Some(*meta),
            Aside::Delete => None,
        };
        self.busy.entry(key.into()).or_default();
        task.leaving.push(Leaving { key: key.into(), meta });
        bump(&self.durable.counts.set_aside);
        let key = key.into();
        self.order_for(task, |number| Order::Write { number, key, sequence, aside });
    }

    /// The same for a deletion that nobody asked for.
    pub(super) fn put_aside_expired(&mut self, key: &[u8], sequence: u64) {
        let work = Work::Request { bytes: Vec::new(), ends: true };
        let mut task = Task::new(work, self.now_nanos, None);
        task.done = true;
        self.put_aside(&mut task, key, sequence, Aside::Delete);
        let number = task.number.expect("something was ordered for it");
        self.suspended.insert(number, task);
    }

    /// What was put aside was appended, or could not be.
    pub(super) fn written(&mut self, number: u64, key: &[u8], result: Result<Option<Ticket>>) {
        let Some((mut task, leaving)) = self.left(number, key) else { return };
        let deleted = leaving.meta.is_none();
        match result {
            Ok(Some(ticket)) => self.submitted(&mut task, key, ticket, deleted),
            Ok(None) => {}
            Err(error) => self.refuse(&mut task, key, &error),
        }
        self.resume(number, task, key);
    }

    /// The task of this number, for which this key has waited.
    pub(super) fn left(&mut self, number: u64, key: &[u8]) -> Option<(Task, Leaving)> {
        let mut task = self.suspended.remove(&number)?;
        let at = task.leaving.iter().position(|leaving| *leaving.key == *key)?;
        let leaving = task.leaving.swap_remove(at);
        Some((task, leaving))
    }

    /// A change of a task could not be kept.
    pub(super) fn refuse(&mut self, task: &mut Task, key: &[u8], error: &laneway_tier::Error) {
        self.take_back(key);
        task.fail(error.to_string());
    }

    /// A key of a task waits no more.
    pub(super) fn resume(&mut self, number: u64, task: Task, key: &[u8]) {
        match task.leaving.is_empty() {
            true => self.admit(task),
            false => drop(self.suspended.insert(number, task)),
        }
        self.release(key);
    }
}
