//! Writes every key once before the measurement, many at a time, and counts that all were stored.

use crate::admin;
use crate::connection::{Context, Outcome, Target};
use crate::output::draw;
use crate::random::Random;
use crate::sender::{Clock, Connections};
use crate::workload::{Ask, Key, Operation};
use serde::{Deserialize, Serialize};
use std::io;
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
    let started = Instant::now();
    let mut filler = Filler {
        next: 0,
        stored: 0,
        value_bytes: 0,
        bytes_in_flight: vec![0; connections],
        versions: Random::stream(context.workload.options().seed, u64::from_le_bytes(*b"prefill ")),
    };
    let outcome = filler.run(&mut lines, context);
    draw("");
    outcome?;
    let seconds = started.elapsed().as_secs_f64();
    let stats = admin::stats(target, context.dialect, "");
    Ok(Prefilled {
        items: filler.stored,
        value_bytes: filler.value_bytes,
        seconds,
        items_held: stats.ok().and_then(|stats| admin::items_in(&stats, context.dialect)),
    })
}

struct Filler {
    next: u64,
    stored: u64,
    value_bytes: u64,
    bytes_in_flight: Vec<u64>,
    versions: Random,
}

impl Filler {
    fn run(&mut self, lines: &mut Connections<'_>, context: Context<'_>) -> Result<(), String> {
        let broken = |error: io::Error| format!("the connection broke during the prefill: {error}");
        let started = Instant::now();
        let (clock, mut drawn) = (Clock::starting(started), started);
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
            if REDRAW_EVERY <= drawn.elapsed() {
                drawn = Instant::now();
                let (stored, total) = (self.stored, context.workload.keys());
                let per_s = stored as f64 / started.elapsed().as_secs_f64();
                let megabytes = self.value_bytes as f64 / 1e6;
                draw(&format!(
                    "prefill: {stored} of {total} items, {megabytes:.1} MB, {per_s:.0}/s"
                ));
            }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_says_the_way_out() {
        assert!(refused(2_000_000, "SERVER_ERROR object too large for cache").contains("-I"));
        assert!(refused(10, "SERVER_ERROR out of memory storing object").contains("-m"));
        assert!(refused(10, "ERROR").ends_with("with \"ERROR\""));
    }
}
