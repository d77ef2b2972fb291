//! Fills a fresh server and measures its resident bytes per item, beyond the bytes of key and value
//! themselves.

use super::Measured;
use super::definition::RunDefinition;
use super::server::Server;
use crate::admin;
use crate::connection::Context;
use crate::cpu::resident_bytes;
use crate::prefill::prefill;
use crate::values::Values;
use crate::workload::keys::KeySizes;
use crate::workload::{Sizes, Workload, WorkloadOptions};
use serde_json::json;
use std::time::{Duration, Instant};

/// Of Laneway's index.
const SLOTS_PER_BUCKET: f64 = 7.0;
/// How long an index may grow, and how often its server, which tells nobody, is asked about it.
const SETTLED_WITHIN: Duration = Duration::from_secs(30);
const ASK_EVERY: Duration = Duration::from_millis(100);

/// Stores `requests` items and asks the kernel and the server what they cost. Values are of one
/// letter, as nobody reads them here.
pub fn measure(run: &RunDefinition, server: &Server) -> Result<Measured, String> {
    let pid = server.pid().ok_or("the memory of a server that we did not start is not known")?;
    let of_kernel = || resident_bytes(pid).map_err(|error| error.to_string());
    let empty_bytes = of_kernel()?;
    let workload = Workload::new(WorkloadOptions {
        keys: run.requests,
        keys_large: 0,
        large_percent: 0.0,
        sizes: Sizes::Fixed { value_bytes: run.value_bytes },
        key_sizes: KeySizes::Fixed { key_bytes: run.key_bytes as u64 },
        ..WorkloadOptions::default()
    })?;
    let values = Values::same(b'v');
    let context = Context { workload: &workload, values: &values, dialect: server.dialect };
    prefill(context, &server.target, 1)?;
    // Until the server has grown its index, if it is one that tells.
    let started = Instant::now();
    let stats = loop {
        let stats = admin::stats(&server.target, server.dialect, "")
            .map_err(|error| format!("{}: {error}", server.target))?;
        let items = admin::items_in(&stats, server.dialect);
        if items != Some(run.requests) {
            return Err(format!("{} items stored, {items:?} are there", run.requests));
        }
        if stats.get("hash_is_expanding").is_none_or(|value| value == "0") {
            break stats;
        }
        if started.elapsed() > SETTLED_WITHIN {
            return Err("its index never finished growing".into());
        }
        std::thread::sleep(ASK_EVERY);
    };
    let full_bytes = of_kernel()?;
    let per_item = full_bytes.saturating_sub(empty_bytes) as f64 / run.requests as f64;
    let number = |name: &str| admin::number::<f64>(&stats, name);
    // How full a Laneway's index is; other servers do not tell.
    let filled = number("index_slots_filled").zip(number("index_buckets"));
    Ok(json!({
        "resident_empty_bytes": empty_bytes,
        "resident_full_bytes": full_bytes,
        "resident_bytes_per_item": per_item,
        "beyond_bytes_per_item": per_item - run.key_bytes as f64 - run.value_bytes as f64,
        "metadata_bytes_per_item": number("metadata_bytes_per_item"),
        "items": number("curr_items"),
        "index_fill_share": filled.map(|(slots, buckets)| slots / (buckets * SLOTS_PER_BUCKET)),
    }))
}
