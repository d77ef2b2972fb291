//! `laneway bench --service-times FILE`: what a request costs the server, by its size, as a file
//! that `laneway sim run --service-file` reads.
//!
//! The workload's requests are drawn and put into classes of sizes, powers of two, divided where
//! large begins. Each class is measured by a run of its own: values of its mean size, one request
//! in flight, the workload's share of reads. What is written is the server's processor time for
//! each request, whatever thread spends it, and the class's share of the requests. With one in
//! flight each request has a wake-up and system calls of its own, so it is more than what a busy
//! server spends. Units: bytes, nanoseconds, requests.

use crate::output;
use crate::random::Random;
use crate::report::json::{Mode, Report};
use crate::report::table::median;
use crate::run::{Plan, run};
use crate::sender::paced::Own;
use crate::workload::{Draws, LARGE_BYTES_MIN, Pattern, Sizes, Workload, WorkloadOptions};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

/// Requests that are drawn to find the classes: a class of fewer than one in so many is left out.
const DRAWS: u64 = 1_000_000;

/// Keys of each size.
const KEYS: u64 = 50;

/// A class of sizes: how many of the draws, and their bytes in all.
#[derive(Debug, Clone, Copy, Default)]
struct Kind {
    requests: u64,
    item_bytes: u64,
    value_bytes: u64,
}

/// The classes of a workload, the smallest first.
fn kinds(workload: &Workload) -> Vec<Kind> {
    let mut random = Random::stream(workload.options().seed, 0);
    let mut draws = Draws::default();
    let mut kinds: BTreeMap<(u32, bool), Kind> = BTreeMap::new();
    for _ in 0..DRAWS {
        let key = workload.draw(&mut random, &mut draws).key;
        let value_bytes = workload.value_bytes(key);
        let item_bytes = value_bytes + workload.key_name(key).len() as u64;
        let class = (item_bytes.ilog2(), item_bytes >= LARGE_BYTES_MIN);
        let kind = kinds.entry(class).or_default();
        kind.requests += 1;
        kind.item_bytes += item_bytes;
        kind.value_bytes += value_bytes;
    }
    kinds.into_values().collect()
}

/// Refuses what has no request by itself, or no closed loop.
pub fn check(plan: &Plan) -> Result<(), String> {
    let options = plan.workload.options();
    let whole = plan.trace.is_none() && plan.steps.is_empty() && !plan.floor && plan.prefill;
    if whole && options.keys_per_get == 1 && options.pattern == Pattern::Popular {
        return Ok(());
    }
    Err("--service-times: measures single requests with a prefill of its own; leave out --trace, \
         --p-large-steps, --floor, --no-prefill, --keys-per-get and a --workload that scans"
        .into())
}

/// Measures all classes and writes the file; whether every run counts.
pub fn measure(plan: &Plan, path: &Path) -> Result<bool, String> {
    let failed = |error: std::io::Error| format!("--service-times {}: {error}", path.display());
    let mut text = String::from("# item_bytes nanos weight: laneway bench --service-times\n");
    let mut good = true;
    for (place, kind) in kinds(&plan.workload).into_iter().enumerate() {
        let value_bytes = kind.value_bytes / kind.requests;
        let workload = Workload::new(WorkloadOptions {
            sizes: Sizes::Fixed { value_bytes },
            keys: KEYS,
            keys_large: 0,
            large_percent: 0.0,
            ..plan.workload.options().clone()
        })?;
        let modes = vec![Mode::Closed { depth: 1 }];
        let (connections, threads, own) = (1, 1, Own::Nobody);
        let one = Plan { workload, modes, connections, threads, own, ..plan.clone() };
        let report = run(&one)?;
        good &= report.runs.iter().all(|run| run.verdict.is_good());
        if place == 0 {
            let _ = writeln!(text, "# server {}, one request in flight", report.server_version);
        }
        let item_bytes = kind.item_bytes / kind.requests;
        let _ = writeln!(text, "{item_bytes} {} {}", nanos(&report)?, kind.requests);
    }
    output::replace(path, text).map_err(failed)?;
    Ok(good)
}

/// The server's processor time for a request, the median over the runs.
fn nanos(report: &Report) -> Result<u64, String> {
    let told = report.runs.iter().filter_map(|run| Some(run.server.as_ref()?.cpu_us_per_request));
    let mut told: Vec<f64> = told.filter(|&us| us > 0.0).collect();
    told.sort_by(f64::total_cmp);
    if told.is_empty() {
        return Err("--service-times: the server does not tell its processor time; give its \
                    --server-pid, or a longer --duration"
            .into());
    }
    Ok(((median(&told) * 1e3).round() as u64).max(1))
}
