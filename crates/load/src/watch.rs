//! Whether others have the server's or the client's CPU while a run goes on: a thread on another
//! CPU than the client's reads, twenty times a second, how long both were runnable and kept
//! waiting, and what the hypervisor gave to other machines. It knows no latency.

use crate::cpu;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Time between two readings.
const EVERY: Duration = Duration::from_millis(50);

/// Reads until it is told to stop.
#[derive(Debug)]
pub struct Watch {
    stop: Sender<()>,
    thread: JoinHandle<Vec<(Instant, u64)>>,
}

impl Watch {
    /// Watches the calling thread, which is the client, and a server where its process is known.
    pub fn start(server_pid: Option<u32>) -> Self {
        let client = rustix::thread::gettid().as_raw_nonzero().get();
        let read = move || {
            let server = server_pid.and_then(|pid| cpu::of_process(pid).ok()).unwrap_or_default();
            let client = cpu::of_thread(client);
            let lost_ns = server.kept_waiting_ns + client.kept_waiting_ns + cpu::stolen_ns();
            (Instant::now(), lost_ns)
        };
        let (stop, stopped) = channel();
        let thread = std::thread::spawn(move || {
            cpu::leave();
            let mut readings = vec![read()];
            while let Err(RecvTimeoutError::Timeout) = stopped.recv_timeout(EVERY) {
                readings.push(read());
            }
            readings.push(read());
            readings
        });
        Watch { stop, thread }
    }

    /// Stops; when it read, and for how long, in nanoseconds from some moment on, others had had
    /// the CPUs by then.
    pub fn finish(self) -> Vec<(Instant, u64)> {
        drop(self.stop);
        self.thread.join().unwrap_or_default()
    }
}
