//! The thread that migrates and makes checkpoints while the store is used.

use crate::store::Shared;
use crate::types::{Error, Result};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

/// How long it rests when nothing is due. Writers that find no room do not wait for it.
const REST: Duration = Duration::from_millis(20);

#[derive(Default)]
struct Bell {
    closed: Mutex<bool>,
    rung: Condvar,
}

/// The thread; ends when dropped.
pub struct Background {
    bell: Arc<Bell>,
    thread: Option<JoinHandle<()>>,
}

impl Background {
    /// Starts it.
    pub fn start(shared: &Arc<Shared>) -> Result<Background> {
        let bell = Arc::new(Bell::default());
        let (heard, shared) = (bell.clone(), shared.clone());
        let thread = std::thread::Builder::new()
            .name("tier-migrate".into())
            .spawn(move || work(&heard, &shared))
            .map_err(|source| Error::Io { what: "start the migrating thread", source })?;
        Ok(Background { bell, thread: Some(thread) })
    }
}

fn work(bell: &Bell, shared: &Shared) {
    loop {
        // What fails here is met again, and told, by the next writer that needs the room.
        let did = shared.maintain().unwrap_or(false);
        let mut closed = bell.closed.lock().expect("nobody panics inside");
        if !did && !*closed {
            closed = bell.rung.wait_timeout(closed, REST).expect("nobody panics inside").0;
        }
        if *closed {
            return;
        }
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        if let Ok(mut closed) = self.bell.closed.lock() {
            *closed = true;
        }
        self.bell.rung.notify_all();
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has said so; there is nobody here to tell again.
            let _ = thread.join();
        }
    }
}
