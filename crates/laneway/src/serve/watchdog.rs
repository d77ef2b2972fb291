//! The service manager's watchdog (`WATCHDOG_USEC`, `sd_watchdog_enabled(3)`): it is told twice in
//! each period that the server is well, as long as every worker makes turns. If one hangs, nothing
//! is told, and the manager does what its unit says.

use super::manager;
use crate::logging;
use laneway_server::boot::Server;
use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How long a worker may make no turn at the least before it counts as hung: its number grows once
/// in up to two seconds where it has nothing to do, and a busy machine needs as much again.
const PATIENCE_MIN: Duration = Duration::from_secs(5);

/// What tells the manager; it ends when this is dropped.
pub struct Watchdog {
    /// Nothing but its end is sent, apart from one word at the beginning.
    begins: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// Make the thread, if the manager waits to be told; a sandbox lets none begin later.
pub fn prepare(server: &Server) -> io::Result<Option<Watchdog>> {
    let Some(period) = sd_notify::watchdog_enabled().filter(|period| !period.is_zero()) else {
        return Ok(None);
    };
    let (begins, words) = channel();
    let turns = server.turns();
    let builder = thread::Builder::new().name("watchdog".to_owned());
    let thread = builder.spawn(move || {
        // An error says that the server does not serve after all.
        if words.recv().is_ok() {
            tell_until_end(&words, period / 2, turns);
        }
    })?;
    Ok(Some(Watchdog { begins: Some(begins), thread: Some(thread) }))
}

impl Watchdog {
    /// The server serves.
    pub fn begin(&self) {
        // It waits for this word.
        let _ = self.begins.as_ref().map(|begins| begins.send(()));
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.begins = None;
        // One that panicked has said so already.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

fn tell_until_end(words: &Receiver<()>, half: Duration, turns: impl Fn() -> Vec<u64>) {
    let (began, mut progress) = (Instant::now(), Progress::new(half.max(PATIENCE_MIN)));
    let mut was_hung = None;
    loop {
        let hung = progress.hung(began.elapsed(), &turns());
        match hung {
            None => manager::is_well(),
            // Once for each; a log that nobody reads must not be what hangs.
            Some(worker) if was_hung != hung && logging::has_room() => log::error!(
                "worker {worker} hangs: it has made no turn for {} seconds, so the service \
                 manager's watchdog is not told that the server is well",
                progress.patience.as_secs()
            ),
            Some(_) => {}
        }
        was_hung = hung;
        if words.recv_timeout(half) != Err(RecvTimeoutError::Timeout) {
            return;
        }
    }
}

/// Whether each worker's number has grown lately.
struct Progress {
    patience: Duration,
    /// Of each worker its number, and since when it has that.
    seen: Vec<(u64, Duration)>,
}

impl Progress {
    fn new(patience: Duration) -> Progress {
        Progress { patience, seen: Vec::new() }
    }

    /// The first worker whose number has not grown for too long, now that the numbers are these.
    fn hung(&mut self, now: Duration, numbers: &[u64]) -> Option<usize> {
        self.seen.resize(numbers.len(), (u64::MAX, now));
        for (seen, number) in self.seen.iter_mut().zip(numbers) {
            if seen.0 != *number {
                *seen = (*number, now);
            }
        }
        self.seen.iter().position(|(_, since)| now - *since >= self.patience)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_worker_that_makes_no_turn_is_found_until_it_makes_one_again() {
        let second = Duration::from_secs;
        let mut progress = Progress::new(second(5));
        for (now, numbers, hung) in [
            (0, &[0, 0, 0][..], None),
            (4, &[1, 0, 7], None),
            (5, &[2, 0, 8], Some(1)),
            (8, &[3, 0, 9], Some(1)),
            (9, &[3, 1, 9], None),
            (13, &[3, 2, 10], Some(0)),
            (14, &[4, 3, 10], None),
            (99, &[5, 4, 11], None),
            (200, &[], None), // the workers were told to leave
        ] {
            assert_eq!(progress.hung(second(now), numbers), hung, "{now}");
        }
    }
}
