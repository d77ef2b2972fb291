//! A storm of handshakes: connections that speak TLS with the server, with no session to take up
//! again, and are closed as soon as they are through.
//!
//! A few threads make them, on any CPU but that of the client that is measured: they are other
//! clients. A handshake counts once the server has closed, too: by TLS 1.3 a client is through
//! before the server has seen its last message.

use crate::connection::{connect, handshake};
use crate::cpu;
use laneway_tls::Client;
use std::io::{self, ErrorKind, Read};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Threads, each with its part of the rate: one waits for the server most of the time.
const THREADS: u32 = 4;
/// A storm that reached less than this share of its rate was none of that rate.
const REACHED_MIN: f64 = 0.9;
/// How long the server may take to close.
const CLOSED_WITHIN: Duration = Duration::from_secs(10);

/// A thread's end: how many it has made.
type Ended = JoinHandle<Result<u64, String>>;

/// The threads that make them.
#[derive(Debug)]
pub struct Storm {
    rate_per_s: f64,
    began: Instant,
    /// Each ends when what stands beside it is dropped, and tells how many it made.
    threads: Vec<(Sender<()>, Ended)>,
}

impl Storm {
    /// Begins.
    pub fn start(address: &str, client: &Client, rate_per_s: f64) -> Storm {
        let began = Instant::now();
        let every = Duration::from_secs_f64(f64::from(THREADS) / rate_per_s);
        let threads = (0..THREADS).map(|number| {
            let (address, client) = (address.to_owned(), client.without_resumption());
            let (stop, stopped) = channel();
            let mut due = began + every * number / THREADS;
            let thread = std::thread::spawn(move || {
                cpu::leave(); // it would take the CPU from the client that is measured
                let mut made = 0;
                loop {
                    let wait = due.saturating_duration_since(Instant::now());
                    if stopped.recv_timeout(wait) != Err(RecvTimeoutError::Timeout) {
                        return Ok(made);
                    }
                    make(&address, &client).map_err(|error| error.to_string())?;
                    (made, due) = (made + 1, due + every);
                }
            });
            (stop, thread)
        });
        Storm { rate_per_s, began, threads: threads.collect() }
    }

    /// Ends it. An error where a handshake failed, or fewer were made than were asked for.
    pub fn finish(self) -> Result<(), String> {
        let Storm { rate_per_s, began, threads } = self;
        let (stops, threads): (Vec<_>, Vec<_>) = threads.into_iter().unzip();
        drop(stops);
        let lasted_s = began.elapsed().as_secs_f64();
        let mut made = 0;
        for thread in threads {
            let part = thread.join().unwrap_or_else(|_| Err("its thread panicked".into()));
            made += part.map_err(|why| format!("--handshakes {rate_per_s}: {why}"))?;
        }
        let reached_per_s = made as f64 / lasted_s;
        match reached_per_s < REACHED_MIN * rate_per_s {
            false => Ok(()),
            true => Err(format!(
                "--handshakes {rate_per_s}: {reached_per_s:.0} a second were made; ask for fewer"
            )),
        }
    }
}

fn make(address: &str, client: &Client) -> io::Result<()> {
    let mut stream = handshake(connect(address)?, client)?;
    stream.sock.set_read_timeout(Some(CLOSED_WITHIN))?;
    stream.conn.send_close_notify();
    let is_end = |kind| [ErrorKind::UnexpectedEof, ErrorKind::ConnectionReset].contains(&kind);
    match stream.read(&mut [0]) {
        Ok(0) => Ok(()),
        Ok(_) => Err(io::Error::new(ErrorKind::InvalidData, "bytes that nobody asked for")),
        Err(error) if is_end(error.kind()) => Ok(()), // closed without a word
        Err(error) => Err(error),
    }
}
