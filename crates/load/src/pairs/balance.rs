//! How evenly a fresh server's workers are loaded, and how soon it finds a key that everybody
//! begins to ask for (KeySched §2 "Max-Ave-Ratio": the busiest worker's requests over the mean).
//!
//! All of it is counts of requests, by the server's own `stats`: so it may be measured on a machine
//! that others disturb. Each round has another seed, so that other keys meet at a worker. The
//! flash crowds come after the window whose balance is told. It knows no latency.

use super::Measured;
use super::definition::{Definition, RunDefinition};
use super::server::Server;
use crate::admin::{self, Stats, number};
use crate::connection::{Context, Outcome};
use crate::dialect::Dialect;
use crate::prefill::prefill;
use crate::sender::batches::Batches;
use crate::values::Values;
use crate::workload::{Ask, Key, Operation, Workload, WorkloadOptions};
use serde_json::json;

/// Connections: several for each worker.
const CONNECTIONS: usize = 32;
/// Requests in flight on them together.
const BATCH: u64 = 64;
/// Requests before the window, so that what was hot is known: five slots.
const WARMUP: u64 = 10_000;
/// Crowds, one after the other.
const CROWDS: u64 = 20;
/// Part of the requests that a crowd makes, times the workers: twice of what the figures call hot.
const CROWD_PART: u64 = 4;
/// Requests of a slot, where the server does not tell.
const SLOT_REQUESTS: u64 = 2_000;
/// A crowd that has not been found after so many slots is not found.
const SLOTS_MAX: u64 = 20;

/// Fills the server, asks `requests` and tells how evenly they were served, and then how soon
/// crowds are found, if it looks for them.
pub fn measure(
    definition: &Definition,
    run: &RunDefinition,
    server: &Server,
    round: u64,
) -> Result<Measured, String> {
    let options = definition.plan(run)?.workload.options().clone();
    let workload = Workload::new(WorkloadOptions { seed: options.seed + round, ..options })?;
    let values = Values::new(workload.options().seed);
    let context = Context { workload: &workload, values: &values, dialect: server.dialect };
    prefill(context, &server.target, CONNECTIONS)?;
    let mut batches = Batches::open(context, &server.target, CONNECTIONS)?;
    ask(&mut batches, WARMUP, None)?;
    let before = executed(&ask_stats(server, "balance")?)?;
    ask_stats(server, "reset")?;
    ask(&mut batches, run.requests, None)?;
    let stats = ask_stats(server, "balance")?;
    let after = executed(&stats)?;
    let loads: Vec<u64> = after.iter().zip(&before).map(|(after, before)| after - before).collect();
    let told = |name: &str| number::<f64>(&stats, name);
    let mut measured = json!({
        "requests": loads.iter().sum::<u64>(),
        "workers": loads.len(),
        "max_ave_ratio": max_ave_ratio(&loads),
        "max_ave_ratio_by_hash": told("max_ave_ratio_run_by_hash"),
        "max_ave_ratio_slot": told("max_ave_ratio_slot"),
        "max_ave_ratio_slot_by_hash": told("max_ave_ratio_slot_by_hash"),
        "slots": told("slots"),
    });
    let hot = ask_stats(server, "hotkeys")?;
    if hot.get("hot").is_some_and(|rule| rule != "off") {
        let mut slots = find_all(&mut batches, loads.len() as u64, server)?;
        slots.sort_by(f64::total_cmp);
        measured["found_slots_max"] = json!(slots.last());
        measured["found_slots_median"] = json!(crate::report::table::median(&slots));
    }
    Ok(measured)
}

/// What a server answers to `stats WORDS`.
pub(super) fn ask_stats(server: &Server, words: &str) -> Result<Stats, String> {
    if server.dialect != Dialect::Text {
        return Err("a server that speaks no memcached has no workers to tell of".into());
    }
    admin::stats(&server.target, server.dialect, words)
        .map_err(|error| format!("{}: stats {words}: {error}", server.target))
}

/// Requests that each worker has executed since the start.
fn executed(stats: &Stats) -> Result<Vec<u64>, String> {
    let count = |worker: usize| number(stats, &format!("worker:{worker}:requests_since_start"));
    let counts: Vec<u64> = (0..).map_while(count).collect();
    if counts.is_empty() {
        return Err("`stats balance` tells of no worker: not a Laneway of this version".into());
    }
    Ok(counts)
}

/// The busiest worker's requests over the mean.
fn max_ave_ratio(loads: &[u64]) -> f64 {
    let sum: u64 = loads.iter().sum();
    let max = loads.iter().copied().max().unwrap_or(0);
    max as f64 * loads.len() as f64 / sum.max(1) as f64
}

/// Whether `stats hotkeys` names this key.
fn names(stats: &Stats, key: &[u8]) -> bool {
    let is_name = |name: &str| name.starts_with("key:") && name.ends_with(":key");
    stats.iter().any(|(name, value)| is_name(name) && value.as_bytes() == key)
}

/// So many requests, of which the given part, one in so many, is for one key.
fn ask(batches: &mut Batches<'_>, requests: u64, flash: Option<(Key, u64)>) -> Result<(), String> {
    for first in (0..requests).step_by(BATCH as usize) {
        for _ in first..(first + BATCH).min(requests) {
            let ask = match flash {
                Some((key, one_in)) if batches.asks.below(one_in) == 0 => {
                    Ask::one(key, Operation::Get)
                }
                _ => batches.draw(),
            };
            batches.push(ask);
        }
        for completion in batches.finish()? {
            match (completion.request.operation, completion.outcome) {
                (Operation::Get, Outcome::Hit) | (Operation::Set, Outcome::Stored) => {}
                (operation, other) => return Err(format!("{operation:?}: {other:?}")),
            }
        }
    }
    Ok(())
}

/// Crowds for the least popular keys, one after the other: how many slots' requests each made,
/// others' between them, until the server called its key hot.
fn find_all(batches: &mut Batches<'_>, workers: u64, server: &Server) -> Result<Vec<f64>, String> {
    let keys = batches.workload().keys();
    if keys <= CROWDS {
        return Err(format!("--keys {keys}: there must be more than {CROWDS}"));
    }
    let last = |number: u64| Key((keys - 1 - number) as u32);
    (0..CROWDS).map(|number| find(batches, last(number), CROWD_PART * workers, server)).collect()
}

fn find(batches: &mut Batches<'_>, key: Key, one_in: u64, server: &Server) -> Result<f64, String> {
    let name = batches.workload().key_name(key);
    let mut asked = 0;
    while asked < SLOTS_MAX * SLOT_REQUESTS {
        ask(batches, BATCH, Some((key, one_in)))?;
        asked += BATCH;
        let stats = ask_stats(server, "hotkeys")?;
        if names(&stats, &name) {
            let slot = number(&stats, "slot_requests").unwrap_or(SLOT_REQUESTS);
            return Ok(asked as f64 / slot.max(1) as f64);
        }
    }
    let part = 100.0 / one_in as f64;
    Err(format!("a key that {part:.1} % asked for was not hot after {SLOTS_MAX} slots"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stats(lines: &[(&str, &str)]) -> Stats {
        lines.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn the_workers_counts_are_read_in_their_order() {
        let count = |worker: u64| {
            (format!("worker:{worker}:requests_since_start"), (10 + worker).to_string())
        };
        assert_eq!(executed(&(0..12).map(count).collect()), Ok((10..22).collect()));
        assert!(executed(&stats(&[("slots", "7")])).is_err_and(|words| words.contains("worker")));
    }

    #[test]
    fn the_ratio_is_the_busiest_over_the_mean() {
        assert_eq!(max_ave_ratio(&[10, 10, 10, 10]), 1.0);
        assert_eq!(max_ave_ratio(&[30, 10]), 1.5);
        assert_eq!(max_ave_ratio(&[0, 0]), 0.0);
    }

    #[test]
    fn a_hot_key_is_known_by_its_name() {
        let told = stats(&[("key:0:key", "abc"), ("key:0:worker", "3"), ("keys", "1")]);
        assert!(names(&told, b"abc"));
        assert!(!names(&told, b"3") && !names(&told, b"1"));
    }
}
