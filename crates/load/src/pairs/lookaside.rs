//! Miss ratio of a look-aside cache: GET, and on a miss SET, as an application with a database
//! behind it does. The stream of keys is the same for every server and follows from the seed.
//!
//! A run goes through phases of different value sizes, each with keys of its own and writing a
//! multiple of the server's memory; what is counted is the GETs after the last. That shows how a
//! server's memory follows a shift of sizes. Requests go in batches, so a key asked for twice in a
//! batch can miss twice, for all servers alike. Of a server that we started it is told, too, what
//! the kernel says that this one had written to disks for a GET. It knows no latency.

use super::Measured;
use super::definition::{Definition, RunDefinition};
use super::server::Server;
use crate::connection::{Completion, Context, Outcome};
use crate::cpu;
use crate::sender::batches::Batches;
use crate::values::Values;
use crate::workload::{Ask, KEY_BYTES, Key, Operation, Sizes, Workload, WorkloadOptions};
use serde_json::json;

/// Requests in flight.
const BATCH: usize = 64;
/// Keys of a phase, so that their values would fill the memory this many times.
const KEYS_OVER_MEMORY: u64 = 4;

/// Runs the phases and measures the miss ratio after them.
pub fn measure(
    definition: &Definition,
    run: &RunDefinition,
    server: &Server,
    round: u64,
) -> Result<Measured, String> {
    let options = definition.plan(run)?.workload.options().clone();
    let seed = options.seed + round;
    let base = match run.writes {
        true => WorkloadOptions { seed, ..options },
        false => WorkloadOptions { seed, get_share: 1.0, delete_share: 0.0, ..options },
    };
    let memory_bytes = definition.memory_mb << 20;
    let write_bytes = (memory_bytes as f64 * run.written_over_memory) as u64;
    let phases = match run.phases.is_empty() {
        true => vec![base],
        false => run.phases.iter().map(|&bytes| phase(&base, bytes, memory_bytes)).collect(),
    };
    let mut measured = json!(null);
    let mut first_key = 0;
    for (number, options) in phases.iter().enumerate() {
        let workload = Workload::new(options.clone())?;
        let values = Values::new(options.seed);
        let context = Context { workload: &workload, values: &values, dialect: server.dialect };
        let batches = Batches::open(context, &server.target, 1)?;
        let (gets, misses, sets_refused, written_bytes) = (0, 0, 0, 0);
        let mut cache = LookAside { batches, first_key, gets, misses, sets_refused, written_bytes };
        first_key += options.keys as u32;
        while cache.written_bytes < write_bytes {
            cache.batch()?;
        }
        if number + 1 < phases.len() {
            continue;
        }
        let warm_gets = cache.gets;
        (cache.gets, cache.misses, cache.sets_refused, cache.written_bytes) = (0, 0, 0, 0);
        let written_before = disk_bytes(server);
        while cache.gets < run.requests {
            cache.batch()?;
        }
        let on_disks = written_before.zip(disk_bytes(server));
        let on_disks = on_disks.map(|(before, after)| after.saturating_sub(before));
        measured = json!({
            "miss_ratio": cache.misses as f64 / cache.gets as f64,
            "gets": cache.gets,
            "misses": cache.misses,
            "sets_refused": cache.sets_refused,
            "gets_before": warm_gets,
            "disk_bytes_per_get": on_disks.map(|bytes| bytes as f64 / cache.gets as f64),
        });
    }
    Ok(measured)
}

/// Bytes that the server has had written to disks: past the page cache, or pages of it made dirty.
fn disk_bytes(server: &Server) -> Option<u64> {
    let told = std::fs::read_to_string(format!("/proc/{}/io", server.pid()?)).ok()?;
    cpu::number_in(&told, "write_bytes:")
}

/// The same popularity over a number of keys that suits one size of values.
fn phase(base: &WorkloadOptions, value_bytes: u64, memory_bytes: u64) -> WorkloadOptions {
    let keys = KEYS_OVER_MEMORY * memory_bytes / (value_bytes + KEY_BYTES as u64);
    let sizes = Sizes::Fixed { value_bytes };
    WorkloadOptions { keys, sizes, ..base.clone() }
}

struct LookAside<'a> {
    batches: Batches<'a>,
    /// Added to every key drawn, so that each phase has keys of its own.
    first_key: u32,
    gets: u64,
    misses: u64,
    sets_refused: u64,
    written_bytes: u64,
}

impl LookAside<'_> {
    /// A batch of what is drawn, and SETs for the GETs that missed.
    fn batch(&mut self) -> Result<(), String> {
        for _ in 0..BATCH {
            let ask = self.batches.draw();
            self.batches.push(Ask { key: Key(ask.key.0 + self.first_key), ..ask });
        }
        let mut missed: Vec<Key> = Vec::new();
        for completion in self.batches.finish()? {
            match (completion.request.operation, &completion.outcome) {
                (Operation::Get, Outcome::Hit) => self.gets += 1,
                (Operation::Get, Outcome::Miss) => {
                    self.gets += 1;
                    self.misses += 1;
                    missed.push(completion.request.key);
                }
                (Operation::Delete, Outcome::Deleted) => {}
                (Operation::Set, _) => self.written(&completion)?,
                (operation, other) => return Err(format!("{operation:?}: {other:?}")),
            }
        }
        // A key that missed twice in the batch is fetched once.
        missed.sort_unstable();
        missed.dedup();
        for key in missed {
            self.batches.push(Ask::one(key, Operation::Set));
        }
        for completion in self.batches.finish()? {
            self.written(&completion)?;
        }
        Ok(())
    }

    /// Counts a SET.
    fn written(&mut self, completion: &Completion) -> Result<(), String> {
        match &completion.outcome {
            Outcome::Stored => {}
            // A cache that cannot make room answers the next GET with a miss: that is counted.
            Outcome::Refused(_) => self.sets_refused += 1,
            other => return Err(format!("SET: {other:?}")),
        }
        self.written_bytes += completion.request.value_bytes + KEY_BYTES as u64;
        Ok(())
    }
}
