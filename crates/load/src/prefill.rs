//! Writes every key once before the measurement, many at a time, and counts that all were stored.
//!
//! The progress line is our own twenty lines: a crate for it would bring a terminal library along.

use crate::admin;
use crate::connection::{Context, Outcome, Target};
use crate::random::Random;
use crate::sender::{Clock, Connections};
use crate::workload::{Ask, Key, Operation};
use serde::{Deserialize, Serialize};
use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

/// Requests in flight on a connection.
const DEPTH: usize = 64;
/// Value bytes in flight on a connection, beyond which no request is added.
const IN_FLIGHT_BYTES_MAX: u64 = 4 << 20;
/// Without any reply for so long, the server is given up.
const SILENCE_MAX: Duration = Duration::from_secs(30);
const REDRAW_EVERY: Duration = Duration::from_millis(100);

/// What was written.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Prefilled {
    /// Items stored.
    pub items: u64,
    /// Bytes of their values.
    pub value_bytes: u64,
    /// Seconds it took.
    pub seconds: f64,
    /// Items that the server says it holds afterwards, where it says; fewer than were stored where
    /// its memory is too small, more where there were others.
    pub items_held: Option<u64>,
}

/// Stores every key of the workload over `connections` connections. The error says what the server
/// said, and what to do where that is known.
pub fn prefill(
    context: Context<'_>,
    target: &Target,
    connections: usize,
) -> Result<Prefilled, String> {
    let mut lines = Connections::open(context, target, connections)
        .map_err(|error| format!("cannot connect to {target}: {error}"))?;
    let mut filler = Filler {
        next: 0,
        stored: 0,
        value_bytes: 0,
        bytes_in_flight: vec![0; connections],
        versions: Random::stream(context.workload.options().seed, u64::from_le_bytes(*b"prefill ")),
        progress: Progress::new(context.workload.keys()),
    };
    let started = Instant::now();
    let outcome = filler.run(&mut lines, context);
    filler.progress.clear();
    outcome?;
    Ok(Prefilled {
        items: filler.stored,
        value_bytes: filler.value_bytes,
        seconds: started.elapsed().as_secs_f64(),
        items_held: admin::items(target, context.dialect),
    })
}

struct Filler {
    next: u64,
    stored: u64,
    value_bytes: u64,
    bytes_in_flight: Vec<u64>,
    versions: Random,
    progress: Progress,
}

impl Filler {
    fn run(&mut self, lines: &mut Connections<'_>, context: Context<'_>) -> Result<(), String> {
        let broken = |error: io::Error| format!("the connection broke during the prefill: {error}");
        let clock = Clock::starting(Instant::now());
        let (mut ready, mut ended) = (Vec::new(), Vec::new());
        for index in 0..lines.count() {
            self.add(lines, context, index).map_err(broken)?;
        }
        while lines.in_flight() > 0 {
            lines.wait(SILENCE_MAX, &mut ready).map_err(broken)?;
            if ready.is_empty() {
                return Err(format!("no reply for {} s during the prefill", SILENCE_MAX.as_secs()));
            }
            for &event in &ready {
                lines.serve(event, &clock, &mut ended).map_err(broken)?;
                if ended.is_empty() {
                    continue;
                }
                for completion in ended.drain(..) {
                    let bytes = completion.request.value_bytes;
                    if let Outcome::Refused(words) = &completion.outcome {
                        return Err(refused(bytes, words));
                    }
                    self.bytes_in_flight[event.index] -= bytes;
                    self.value_bytes += bytes;
                    self.stored += 1;
                }
                self.add(lines, context, event.index).map_err(broken)?;
            }
            self.progress.show(self.stored, self.value_bytes);
        }
        Ok(())
    }

    fn add(
        &mut self,
        lines: &mut Connections<'_>,
        context: Context<'_>,
        index: usize,
    ) -> io::Result<()> {
        while self.next < context.workload.keys()
            && lines.in_flight_on(index) < DEPTH
            && self.bytes_in_flight[index] < IN_FLIGHT_BYTES_MAX
        {
            let ask = Ask::one(Key(self.next as u32), Operation::Set);
            let request = context.request(ask, 0, self.versions.word() as u32);
            self.bytes_in_flight[index] += request.value_bytes;
            lines.push(index, request);
            self.next += 1;
        }
        lines.flush(index)
    }
}

fn refused(value_bytes: u64, words: &str) -> String {
    let way_out = if words.contains("too large") {
        ": start the server with a larger -I, or lower --s-large"
    } else if words.contains("out of memory") {
        ": start the server with a larger -m, or lower --keys"
    } else {
        ""
    };
    format!("prefill: the server refused a value of {value_bytes} bytes with {words:?}{way_out}")
}

/// A line on the terminal that says how far we are; silent where standard error is no terminal.
struct Progress {
    total: u64,
    started: Instant,
    drawn: Option<Instant>,
    is_shown: bool,
}

impl Progress {
    fn new(total: u64) -> Self {
        let is_shown = io::stderr().is_terminal();
        Progress { total, started: Instant::now(), drawn: None, is_shown }
    }

    fn show(&mut self, done: u64, value_bytes: u64) {
        if !self.is_shown || self.drawn.is_some_and(|drawn| drawn.elapsed() < REDRAW_EVERY) {
            return;
        }
        self.drawn = Some(Instant::now());
        let line = bar(done, self.total, value_bytes, self.started.elapsed());
        // A terminal that went away is no reason to stop.
        let _ = write!(io::stderr(), "\r{line}\x1b[K");
    }

    fn clear(&self) {
        if self.drawn.is_some() {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}

fn bar(done: u64, total: u64, value_bytes: u64, elapsed: Duration) -> String {
    const CELLS: usize = 30;
    let filled = (done * CELLS as u64 / total.max(1)) as usize;
    let per_s = done as f64 / elapsed.as_secs_f64().max(0.001);
    format!(
        "prefill [{}{}] {done} of {total} items, {:.1} MB, {per_s:.0}/s",
        "#".repeat(filled),
        ".".repeat(CELLS - filled),
        value_bytes as f64 / 1e6,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bar_fills() {
        let second = Duration::from_secs(1);
        assert!(bar(0, 10, 0, second).starts_with("prefill [......"));
        assert!(bar(5, 10, 5_000_000, second).contains("#...."));
        assert!(bar(5, 10, 5_000_000, second).ends_with("5 of 10 items, 5.0 MB, 5/s"));
        assert!(bar(10, 10, 0, second).contains(&"#".repeat(30)));
    }

    #[test]
    fn a_refusal_says_the_way_out() {
        assert!(refused(2_000_000, "SERVER_ERROR object too large for cache").contains("-I"));
        assert!(refused(10, "SERVER_ERROR out of memory storing object").contains("-m"));
        assert!(refused(10, "ERROR").ends_with("with \"ERROR\""));
    }
}
