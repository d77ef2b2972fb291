//! Writes every key once before the measurement, many at a time, and counts that all were stored.

use crate::admin;
use crate::connection::{Context, Outcome, Target};
use crate::output::draw;
use crate::sender::batches::Batches;
use crate::workload::{Ask, Key, Operation};
use serde::{Deserialize, Serialize};
use std::time::{Duration, Instant};

/// Requests in flight on a connection.
const DEPTH: u64 = 64;
/// Value bytes in flight for each connection, beyond which no request is added.
const IN_FLIGHT_BYTES_MAX: u64 = 4 << 20;
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
    let mut batches = Batches::open(context, target, connections)?;
    let started = Instant::now();
    let filled = fill(&mut batches, connections as u64);
    draw("");
    let (items, value_bytes) = filled?;
    let seconds = started.elapsed().as_secs_f64();
    let stats = admin::stats(target, context.dialect, "");
    let items_held = stats.ok().and_then(|stats| admin::items_in(&stats, context.dialect));
    Ok(Prefilled { items, value_bytes, seconds, items_held })
}

/// How many items were stored, and the bytes of their values.
fn fill(batches: &mut Batches<'_>, connections: u64) -> Result<(u64, u64), String> {
    let workload = batches.workload();
    let (started, mut drawn) = (Instant::now(), Instant::now());
    let (mut items, mut value_bytes) = (0_u64, 0_u64);
    while items < workload.keys() {
        let (end, mut bytes) = (workload.keys().min(items + DEPTH * connections), 0);
        while items < end && bytes < IN_FLIGHT_BYTES_MAX * connections {
            let key = Key(items as u32);
            batches.push(Ask::one(key, Operation::Set));
            bytes += workload.value_bytes(key);
            items += 1;
        }
        let ended = batches.finish();
        for one in ended.map_err(|why| format!("prefill: {why}"))? {
            if let Outcome::Refused(words) = &one.outcome {
                return Err(refused(one.request.value_bytes, words));
            }
        }
        value_bytes += bytes;
        if REDRAW_EVERY <= drawn.elapsed() {
            drawn = Instant::now();
            let (total, megabytes) = (workload.keys(), value_bytes as f64 / 1e6);
            let per_s = items as f64 / started.elapsed().as_secs_f64();
            draw(&format!("prefill: {items} of {total} items, {megabytes:.1} MB, {per_s:.0}/s"));
        }
    }
    Ok((items, value_bytes))
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
