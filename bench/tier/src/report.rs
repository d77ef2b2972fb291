//! A run from an empty folder to a restart, and what is told of it: one JSON object, whose fields
//! the figures of bench/definitions point into.

use crate::cgroup::MemoryLimit;
use crate::engine::{self, Engine, Places, Result};
use crate::folder::Folder;
use crate::measure::{Used, resident_bytes_max};
use crate::plan::{Backend, Plan};
use crate::run::{Bench, Outcome};
use rustix::fs::statfs;
use serde_json::{Map, Value, json};
use std::path::Path;
use std::time::Instant;

/// Items that are read after a restart.
const PROBES: u32 = 1000;

/// Makes the run and tells of it.
pub fn make(plan: &Plan) -> Result<Value> {
    let limit = plan.memory_mb.map(MemoryLimit::enter).transpose()?;
    let places = Places::new(plan)?;
    let bench = Bench::new(plan);
    let before_making = Used::now()?;
    let store = engine::open(plan, &places)?;
    let before = Used::now()?;
    let load = bench.load(&*store)?;
    let own_of_load = store.facts();
    // What a store does behind its load (`--settle-seconds`) has no end that all of them tell.
    std::thread::sleep(plan.settle);
    let (mut turns, mut user_bytes) = (Map::new(), load.user_bytes);
    for (at, turn) in plan.turns.iter().enumerate() {
        let outcome = bench.turn(&*store, at, turn)?;
        user_bytes += outcome.user_bytes;
        turns.insert(turn.name.clone(), of_turn(&outcome));
    }
    let (own, version) = (store.facts(), store.version());
    let closing = Instant::now();
    store.close()?;
    let close_seconds = closing.elapsed().as_secs_f64();
    let used = Used::now()?.since(&before);
    let space = space(&places, &own, plan, user_bytes);
    let restart_seconds = restart(plan, &places, &bench)?;
    let report = json!({
        "engine": plan.engine.name(),
        "version": version,
        "settings": settings(plan, &places.disk),
        "load": of_load(&load, own_of_load),
        "workloads": turns,
        "whole": {
            "user_bytes": user_bytes,
            "written_bytes": used.written_bytes,
            "cancelled_bytes": used.cancelled_bytes,
            "read_bytes": used.read_bytes,
            "write_amplification": ratio(used.written_bytes, user_bytes),
            "own_write_amplification": own["write_amplification"],
            "made_bytes": before.since(&before_making).written_bytes,
        },
        "space": space,
        "restart_seconds": restart_seconds,
        "close_seconds": close_seconds,
        "resident_bytes_max": resident_bytes_max(),
        "own": own,
    });
    drop(places);
    drop(limit);
    Ok(report)
}

/// Opens the store again and reads from it.
fn restart(plan: &Plan, places: &Places, bench: &Bench<'_>) -> Result<f64> {
    let began = Instant::now();
    let store: Box<dyn Engine> =
        engine::open(plan, places).map_err(|error| format!("after a restart: {error}"))?;
    let took = began.elapsed().as_secs_f64();
    bench.probe(&*store, PROBES).map_err(|error| format!("after a restart: {error}"))?;
    store.close()?;
    Ok(took)
}

fn settings(plan: &Plan, disk: &Folder) -> Value {
    json!({
        "backend": if plan.backend == Backend::Wal { "wal" } else { "emu" },
        "synced": plan.synced,
        "distribution": plan.distribution.name(),
        "content": plan.content.name(),
        "compresses": plan.compresses,
        "records": plan.records,
        "data_bytes": plan.data_bytes(),
        "pm_mb": plan.pm_mb,
        "cache_mb": plan.cache_mb,
        "memory_mb": plan.memory_mb,
        "seed": plan.seed,
        "file_system": file_system(disk.path()),
    })
}

fn of_load(load: &Outcome, own: Value) -> Value {
    let mut told = of_turn(load);
    told["user_bytes"] = load.user_bytes.into();
    told["written_bytes"] = load.used.written_bytes.into();
    told["write_amplification"] = ratio(load.used.written_bytes, load.user_bytes).into();
    told["own"] = own;
    told
}

fn of_turn(outcome: &Outcome) -> Value {
    let latencies = &outcome.latencies;
    let operations = latencies.len();
    let us = |nanoseconds: f64| nanoseconds / 1e3;
    let at = |quantile| us(latencies.value_at_quantile(quantile) as f64);
    json!({
        "operations": operations,
        "operations_per_s": operations as f64 / outcome.took.as_secs_f64(),
        "latency_us": {
            "mean": us(latencies.mean()),
            "p50": at(0.5),
            "p99": at(0.99),
            "max": us(latencies.max() as f64),
        },
        "cpu_us_per_operation": outcome.used.cpu.as_secs_f64() * 1e6 / operations.max(1) as f64,
        "written_bytes": outcome.used.written_bytes,
        "read_bytes": outcome.used.read_bytes,
    })
}

/// What is taken of the media: files whole, and where a store reserves its files at the start, what
/// it says it uses of them.
fn space(places: &Places, own: &Value, plan: &Plan, user_bytes: u64) -> Value {
    let files_bytes = places.bytes();
    let used_bytes = own["space_used_bytes"].as_u64().unwrap_or(files_bytes);
    json!({
        "files_bytes": files_bytes,
        "used_bytes": used_bytes,
        "of_data": ratio(used_bytes, plan.data_bytes()),
        "of_written": ratio(used_bytes, user_bytes),
    })
}

fn ratio(of: u64, over: u64) -> f64 {
    of as f64 / over.max(1) as f64
}

/// By the number that the kernel gives it.
fn file_system(path: &Path) -> String {
    match statfs(path).map(|stat| stat.f_type as u64) {
        Ok(0xef53) => "ext4".into(),
        Ok(0x5846_5342) => "xfs".into(),
        Ok(0x9123_683e) => "btrfs".into(),
        Ok(0x0102_1994) => "tmpfs".into(),
        Ok(0x794c_7630) => "overlayfs".into(),
        Ok(number) => format!("{number:#x}"),
        Err(error) => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draws::Distribution;
    use crate::flags::{Asked, parse};
    use crate::plan::EngineKind;

    const FLAGS: &str = "--records 2000 --seconds 0.05 --settle-seconds 0 --pm-mb 32 --cache-mb 64 \
                         --workloads A,B,C,F,D,E,A@3";

    /// What the definitions point into, of a run on this store.
    fn check(flags: &str) {
        let line = format!("{FLAGS} {flags}");
        let asked = parse(lexopt::Parser::from_args(line.split_whitespace()));
        let Ok(Asked::Run(plan)) = asked else { panic!("{line}: {asked:?}") };
        let report = make(&plan).expect("every value read is right");
        let mut wanted = vec![
            "/load/operations_per_s".to_owned(),
            "/load/write_amplification".to_owned(),
            "/whole/write_amplification".to_owned(),
            "/space/of_data".to_owned(),
            "/restart_seconds".to_owned(),
        ];
        for turn in &plan.turns {
            for field in ["operations_per_s", "latency_us/mean", "latency_us/p99"] {
                wanted.push(format!("/workloads/{}/{field}", turn.name));
            }
            wanted.push(format!("/workloads/{}/cpu_us_per_operation", turn.name));
        }
        if plan.engine == EngineKind::Tier {
            wanted.push("/whole/own_write_amplification".to_owned());
        }
        for pointer in wanted {
            let value = report.pointer(&pointer).and_then(Value::as_f64);
            assert!(value.is_some_and(|value| value > 0.0), "{line}: {pointer}: {value:?}");
        }
        assert_eq!(report["load"]["operations"], plan.records);
        assert_eq!(report["settings"]["distribution"], Distribution::Zipf.name());
        let compressed = report["own"]["compressed_values"].as_u64().unwrap_or(0);
        assert_eq!(0 < compressed, plan.compresses, "{line}: {compressed} values");
    }

    #[test]
    fn a_run_on_each_store_tells_what_the_definitions_point_into() {
        check("--engine tier --durability unsynced");
        check("--engine tier --durability synced --cache-mb 0 --threads 4");
        check("--engine tier --value-bytes 20000 --content text --compress lz4");
        check("--engine fjall --durability unsynced");
    }
}
