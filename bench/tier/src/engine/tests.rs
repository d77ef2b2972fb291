//! Every store does through its adapter what a BTreeMap does, and has it all after a restart.

use super::{Engine, Places, open};
use crate::draws::Distribution;
use crate::keys::{Content, Sizes};
use crate::plan::{Backend, EngineKind, Plan};
use laneway_load::random::Random;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn plan(engine: EngineKind, synced: bool, cache_mb: u64, dir: PathBuf) -> Plan {
    Plan {
        engine,
        backend: Backend::Wal,
        synced,
        turns: Vec::new(),
        distribution: Distribution::Uniform,
        sizes: Sizes::Halves,
        content: Content::Random,
        compresses: false,
        records: 1000,
        turn: Duration::ZERO,
        settle: Duration::ZERO,
        commit_every: Duration::from_millis(1),
        pm_mb: 32,
        cache_mb,
        memory_mb: None,
        dir,
        seed: 1,
    }
}

fn key(random: &mut Random) -> Vec<u8> {
    format!("key-{:03}", random.below(200)).into_bytes()
}

/// One random operation on both.
fn step(engine: &dyn Engine, model: &mut Model, random: &mut Random) {
    let key = key(random);
    match random.below(10) {
        0..4 => {
            let size = [1, 256, 1023, 1024, 4095, 4096, 9000][random.below(7) as usize];
            let value = vec![random.word() as u8; size];
            engine.put(&key, &value).expect("written");
            model.insert(key, value);
        }
        4 => {
            engine.delete(&key).expect("deleted");
            model.remove(&key);
        }
        5 => {
            let limit = random.below(30) as usize;
            let mut found = Vec::new();
            let each = &mut |key: &[u8], value: &[u8]| {
                found.push((key.to_vec(), value.to_vec()));
                Ok(())
            };
            engine.scan(&key, limit, each).expect("scanned");
            let expected: Vec<_> =
                model.range(key..).take(limit).map(|(k, v)| (k.clone(), v.clone())).collect();
            assert!(found == expected, "{} items instead of {}", found.len(), expected.len());
        }
        _ => holds(engine, &key, model.get(&key)),
    }
    // What is not committed is not shown.
    if engine.commit_every().is_some() {
        engine.commit().expect("committed");
    }
}

fn holds(engine: &dyn Engine, key: &[u8], expected: Option<&Vec<u8>>) {
    let mut value = vec![1, 2, 3];
    let there = engine.get(key, &mut value).expect("read");
    assert_eq!(there, expected.is_some(), "{}", key.escape_ascii());
    assert!(expected.is_none_or(|expected| *expected == value), "{}", key.escape_ascii());
}

/// What RocksDB, opened and closed where tests have their files, has noted of its options.
fn noted(engine: EngineKind) -> super::Result<String> {
    let plan = plan(engine, true, 16, std::env::temp_dir());
    let places = Places::new(&plan)?;
    open(&plan, &places)?.close()?;
    let log = places.disk.path().join("rocksdb/LOG");
    Ok(std::fs::read_to_string(log).expect("there"))
}

fn check(engine: EngineKind, synced: bool, cache_mb: u64, steps: u32) {
    let name = format!("laneway-{}-{synced}-{cache_mb}-{}", engine.name(), std::process::id());
    let dir = std::env::temp_dir().join(name);
    std::fs::create_dir_all(&dir).expect("made");
    let plan = plan(engine, synced, cache_mb, dir.clone());
    let places = Places::new(&plan).expect("made");
    let (mut model, mut random) = (Model::new(), Random::new(7));
    for _ in 0..2 {
        let store = open(&plan, &places).expect("opened");
        for number in 0..200 {
            let key = format!("key-{number:03}").into_bytes();
            holds(&*store, &key, model.get(&key));
        }
        for _ in 0..steps {
            step(&*store, &mut model, &mut random);
        }
        store.close().expect("closed");
    }
    drop(places);
    std::fs::remove_dir_all(dir).expect("removed");
}

#[test]
fn the_tier_does_what_a_map_does_by_each_path() {
    use EngineKind::{Tier, TierAuto, TierHotness, TierLog, TierSsd};
    for engine in [Tier, TierHotness, TierLog, TierSsd, TierAuto] {
        check(engine, true, 0, 400);
    }
}

#[test]
fn the_tier_with_memory_over_it_does_what_a_map_does() {
    check(EngineKind::Tier, true, 64, 400);
    check(EngineKind::Tier, false, 64, 1000);
    check(EngineKind::Tier, false, 0, 400);
}

#[test]
fn fjall_does_what_a_map_does() {
    check(EngineKind::Fjall, false, 16, 3000);
    check(EngineKind::Fjall, true, 16, 200);
}

/// Where there is no RocksDB, what is said of that is what is tested.
#[test]
fn rocksdb_does_what_a_map_does_or_is_told_to_be_missing() {
    match super::rocksdb::library::Library::load() {
        Ok(_) => {
            check(EngineKind::RocksDb, false, 16, 3000);
            check(EngineKind::RocksDbBlob, true, 16, 200);
            // It sets back by itself what it holds for a contradiction.
            let noted_by_all = noted(EngineKind::RocksDb).expect("opened");
            assert!(noted_by_all.contains("Options.recycle_log_file_num: 2"), "{noted_by_all}");
            match noted(EngineKind::RocksDbDirect) {
                Ok(noted) => {
                    assert!(noted.contains("Options.use_direct_reads: 1"), "{noted}");
                    check(EngineKind::RocksDbDirect, true, 16, 200);
                }
                // A temporary folder in memory.
                Err(message) => {
                    assert!(message.contains("Direct I/O is not supported"), "{message}");
                    let _ = writeln!(std::io::stderr(), "SKIPPED: rocksdb-direct: {message}");
                }
            }
        }
        Err(message) => {
            assert!(message.contains("install librocksdb-dev"), "{message}");
            // Not `eprintln`: the runner of tests keeps what a test that passes prints.
            let _ = writeln!(std::io::stderr(), "SKIPPED: rocksdb: {message}");
        }
    }
}
