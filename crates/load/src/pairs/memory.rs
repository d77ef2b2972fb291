//! Fills a fresh server and measures its resident bytes per item, beyond the bytes of key and value
//! themselves.

use super::Measured;
use super::definition::RunDefinition;
use super::server::Server;
use crate::admin;
use crate::connection::Stream;
use crate::cpu::resident_bytes;
use crate::dialect::Dialect;
use serde_json::json;
use std::io::{Read, Write};
use std::time::{Duration, Instant};

/// Items whose requests leave together.
const BATCH: u64 = 256;
/// How long an index may grow, and how often its server, which tells nobody, is asked about it.
const SETTLED_WITHIN: Duration = Duration::from_secs(30);
const ASK_EVERY: Duration = Duration::from_millis(100);

/// Stores `requests` items and asks the kernel and the server what they cost. Keys are decimal
/// numbers padded to `key_bytes`; values are of one letter, as nobody reads them here.
pub fn measure(run: &RunDefinition, server: &Server) -> Result<Measured, String> {
    let pid = server.pid().ok_or("the memory of a server that we did not start is not known")?;
    let of_kernel = || resident_bytes(pid).map_err(|error| error.to_string());
    let empty_bytes = of_kernel()?;
    fill(run, server)?;
    let stats = settle(run, server)?;
    let full_bytes = of_kernel()?;
    let per_item = full_bytes.saturating_sub(empty_bytes) as f64 / run.requests as f64;
    let number = |name: &str| stats.get(name).and_then(|value| value.parse::<f64>().ok());
    Ok(json!({
        "resident_empty_bytes": empty_bytes,
        "resident_full_bytes": full_bytes,
        "resident_bytes_per_item": per_item,
        "beyond_bytes_per_item": per_item - run.key_bytes as f64 - run.value_bytes as f64,
        "metadata_bytes_per_item": number("metadata_bytes_per_item"),
        "items": number("curr_items"),
        "index_fill_share": index_fill_share(number("index_slots_filled"), number("index_buckets")),
    }))
}

/// How full a Laneway's index is; other servers do not tell.
fn index_fill_share(slots_filled: Option<f64>, buckets: Option<f64>) -> Option<f64> {
    const SLOTS_PER_BUCKET: f64 = 7.0;
    Some(slots_filled? / (buckets? * SLOTS_PER_BUCKET))
}

fn fill(run: &RunDefinition, server: &Server) -> Result<(), String> {
    let broken = |error: std::io::Error| format!("{}: {error}", server.target);
    let mut stream = Stream::connect(&server.target).map_err(broken)?;
    stream.set_read_timeout(SETTLED_WITHIN).map_err(broken)?;
    let value = vec![b'v'; run.value_bytes as usize];
    let stored: &[u8] = match server.dialect {
        Dialect::Text => b"STORED\r\n",
        Dialect::Resp => b"+OK\r\n",
    };
    let mut first = 0;
    while first < run.requests {
        let last = (first + BATCH).min(run.requests);
        let mut request = Vec::new();
        for key in first..last {
            let width = run.key_bytes;
            let name = format!("{key:0width$}");
            server.dialect.set(name.as_bytes(), run.value_bytes, 0, &mut request);
            request.extend_from_slice(&value);
            request.extend_from_slice(Dialect::SET_ENDING);
        }
        stream.write_all(&request).map_err(broken)?;
        let mut reply = vec![0; stored.len() * (last - first) as usize];
        stream.read_exact(&mut reply).map_err(broken)?;
        if reply.chunks(stored.len()).any(|line| line != stored) {
            return Err(format!(
                "not stored: {:?}",
                String::from_utf8_lossy(&reply[..reply.len().min(60)])
            ));
        }
        first = last;
    }
    Ok(())
}

/// Waits until the server has grown its index, if it is one that tells, and all items are there.
fn settle(
    run: &RunDefinition,
    server: &Server,
) -> Result<std::collections::BTreeMap<String, String>, String> {
    let started = Instant::now();
    loop {
        let stats = admin::stats(&server.target, server.dialect, "")
            .map_err(|error| format!("{}: {error}", server.target))?;
        let items = admin::items_in(&stats, server.dialect);
        if items != Some(run.requests) {
            return Err(format!("{} items stored, {items:?} are there", run.requests));
        }
        if stats.get("hash_is_expanding").is_none_or(|value| value == "0") {
            return Ok(stats);
        }
        if started.elapsed() > SETTLED_WITHIN {
            return Err("its index never finished growing".into());
        }
        std::thread::sleep(ASK_EVERY);
    }
}
