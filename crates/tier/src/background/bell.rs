//! Wakes the thread that maintains a store.

use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::Duration;

/// The bell. One thread waits for it; its lock is held for moments.
#[derive(Default)]
pub struct Bell {
    state: Mutex<State>,
    heard: Condvar,
}

#[derive(Default)]
struct State {
    is_rung: bool,
    is_closed: bool,
}

impl Bell {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nobody panics inside")
    }

    /// Ends the sleep of who waits, or makes the next one none.
    pub fn ring(&self) {
        self.state().is_rung = true;
        self.heard.notify_all();
    }

    /// The same, and whoever looks sees that it is the end.
    pub fn close(&self) {
        self.state().is_closed = true;
        self.heard.notify_all();
    }

    /// Whether it is.
    pub fn is_closed(&self) -> bool {
        self.state().is_closed
    }

    /// Waits until it is rung or closed, and so long at most; true if it was rung.
    pub fn wait(&self, most: Duration) -> bool {
        let is_quiet = |state: &mut State| !state.is_rung && !state.is_closed;
        let waited = self.heard.wait_timeout_while(self.state(), most, is_quiet);
        let mut state = waited.expect("nobody panics inside").0;
        std::mem::take(&mut state.is_rung)
    }
}
