//! The connections that are open. Their number is bounded, and a new one beyond the bound takes the
//! place of the one that has been silent for longest: so clients that only hold a connection, or
//! read slowly, shut nobody out.
//!
//! One thread uses it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::task::AbortHandle;

/// Open at a time.
pub const CONNECTIONS_MAX: usize = 64;

/// The open ones, by number.
#[derive(Debug, Default, Clone)]
pub struct Connections(Arc<Mutex<Open>>);

#[derive(Debug, Default)]
struct Open {
    /// Goes on with every event, and tells which of two was later.
    moment: u64,
    all: HashMap<u64, One>,
}

#[derive(Debug)]
struct One {
    last: u64,
    task: Option<AbortHandle>,
}

impl Connections {
    /// A new one; returns its number. The one that was silent for longest may be closed for it.
    pub fn enter(&self) -> u64 {
        let mut open = self.lock();
        if open.all.len() >= CONNECTIONS_MAX
            && let Some(&oldest) = open.all.iter().min_by_key(|(_, one)| one.last).map(|(n, _)| n)
            && let Some(One { task: Some(task), .. }) = open.all.remove(&oldest)
        {
            task.abort();
        }
        open.moment += 1;
        let number = open.moment;
        open.all.insert(number, One { last: number, task: None });
        number
    }

    /// The task that serves it.
    pub fn serves(&self, number: u64, task: AbortHandle) {
        if let Some(one) = self.lock().all.get_mut(&number) {
            one.task = Some(task);
        }
    }

    /// It has asked something.
    pub fn asks(&self, number: u64) {
        let mut open = self.lock();
        open.moment += 1;
        let moment = open.moment;
        if let Some(one) = open.all.get_mut(&number) {
            one.last = moment;
        }
    }

    /// It is closed.
    pub fn leave(&self, number: u64) {
        self.lock().all.remove(&number);
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_been_silent_for_longest_makes_room() {
        let connections = Connections::default();
        let numbers: Vec<u64> = (0..CONNECTIONS_MAX).map(|_| connections.enter()).collect();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let idle = || runtime.spawn(std::future::pending::<()>());
        let tasks: Vec<_> = numbers.iter().map(|_| idle()).collect();
        for (number, task) in numbers.iter().zip(&tasks) {
            connections.serves(*number, task.abort_handle());
        }
        connections.asks(numbers[0]);
        connections.leave(numbers[1]);
        connections.enter();
        assert_eq!(connections.lock().all.len(), CONNECTIONS_MAX, "there was room");
        connections.enter();
        let has = |number| connections.lock().all.contains_key(&number);
        assert!(has(numbers[0]) && !has(numbers[2]) && has(numbers[3]));
        let ended = |task: tokio::task::JoinHandle<()>| runtime.block_on(task).unwrap_err();
        assert!(ended(tasks.into_iter().nth(2).unwrap()).is_cancelled());
    }
}
