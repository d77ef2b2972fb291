//! Changes for which the log has no room at once: its segment is full and the next has to be begun,
//! or emptied first. Who waits for devices appends them; until then their keys wait, as those of
//! large values on their way to the SSD do, and everything else goes on.

use super::hands::{Aside, Order};
use super::shared::bump;
use super::state::DurableExecutor;
use super::task::{Leaving, Task};
use crate::jobs::handoff::Work;

impl<S> DurableExecutor<S> {
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

    /// The same for a deletion that nobody asked for, of which one waits at a time.
    pub(super) fn put_aside_expired(&mut self, key: &[u8], sequence: u64) {
        let work = Work::Request { bytes: Vec::new(), ends: true, read_only: false };
        let mut task = Task::new(work, self.now_nanos, None);
        task.done = true;
        self.put_aside(&mut task, key, sequence, Aside::Delete);
        let number = task.number.expect("something was ordered for it");
        self.suspended.insert(number, task);
        self.sweep.aside = Some(number);
    }
}
