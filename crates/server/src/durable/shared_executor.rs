//! The durable executor under a lock (flat combining, Hendler et al., SPAA'10). A thread that has a
//! job for it, and finds that no other thread steps it, steps it itself: to wake another thread for
//! each write, and to be woken for its reply, costs more than to execute the write. The executor's
//! own thread ([`crate::boot`]) steps it, too: when an operation that it waited for has ended, when
//! something is due, when nothing may begin, and for a thread that found the lock taken by it. What
//! a worker's step has left is for that worker's next turn, behind what it received meanwhile: the
//! pipeline of one connection is more than a step, and would otherwise wake another thread each
//! time, which executes it with none of it in its CPU's cache, and wakes the worker for the
//! replies. So is what another thread asks for during the step ([`Durable::help`]). Where that turn
//! may run large requests to completion, the executor's own thread is woken all the same.
//!
//! A step is short and never waits for a device, so the lock is held for no longer than that.

use super::shared::{Durable, Helped};
use super::state::DurableExecutor;
use crate::shared::lock;
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};

/// The executor.
pub struct SharedExecutor<S>(Arc<Mutex<DurableExecutor<S>>>);

impl<S: Send + 'static> SharedExecutor<S> {
    /// That nobody steps yet.
    pub fn new(executor: DurableExecutor<S>) -> SharedExecutor<S> {
        SharedExecutor(Arc::new(Mutex::new(executor)))
    }

    /// It, when nobody else steps it.
    pub fn lock(&self) -> MutexGuard<'_, DurableExecutor<S>> {
        lock(&self.0)
    }

    /// From now on workers step it.
    pub fn let_help(&self, durable: &Durable) {
        let executor = Arc::downgrade(&self.0);
        durable.set_helper(Box::new(move |now_nanos, now| {
            let Some(executor) = executor.upgrade() else { return Helped::Elsewhere };
            let mut executor = match executor.try_lock() {
                Ok(executor) => executor,
                Err(TryLockError::WouldBlock) => return Helped::Elsewhere,
                Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            };
            executor.step(now_nanos, now);
            let has_more = executor.has_more() || !executor.durable.jobs.is_empty();
            let goes_on = executor.takes_more();
            // What has to wait is looked at again by the executor's own thread.
            if executor.is_due_sooner() | (has_more && !goes_on) {
                executor.durable.ring();
            }
            if has_more && goes_on { Helped::More } else { Helped::Done }
        }));
    }
}
