//! The command line, as typed and then as checked.

use crate::draws::Distribution;
use crate::keys::{Content, Sizes};
use crate::plan::{Backend, EngineKind, Plan};
use crate::workload::{Turn, Workload};
use lexopt::prelude::*;
use std::path::PathBuf;
use std::time::Duration;

/// What `--help` says.
pub const HELP: &str = "\
YCSB on one durable store in this process; prints one line of JSON. To compare stores, run
`cargo xtask bench tier-unsynced` or another of its kind.

usage: tier-ycsb --engine NAME [flags]

  --engine NAME        tier, tier-hotness (what is hot stays in the log), tier-log (all through the
                       log), tier-ssd (all straight to the SSD), tier-auto (the boundary moves),
                       rocksdb, rocksdb-blob, rocksdb-direct (past the page cache) or fjall
  --backend wal|emu    what the log lies on: the disk, or memory that stands for persistent memory
                       (tier and rocksdb only; default wal)
  --durability synced|unsynced
                       whether a write is durable when it returns (default synced)
  --workloads LIST     letters of YCSB, A to F, with commas between; A@64 by 64 threads (default
                       A,B,C,F,D,E)
  --threads N          of a workload that does not say (default 2)
  --distribution zipf|uniform
                       which items are asked for (default zipf, exponent 0.99)
  --value-bytes N      all values this long (default half 256 B, half 4 KB)
  --content random|text
                       what values are made of (default random, which cannot be compressed)
  --compress off|lz4   whether the tier compresses values from 8 KiB on that go straight to the SSD
                       (tier only; default off)
  --records N          items to begin with (default 200000, which are 440 MB)
  --seconds S          how long each workload runs (default 2)
  --settle-seconds S   pause between load and workloads (default 2)
  --commit-ms N        unsynced: how often the tier commits (default 10)
  --pm-mb N            the tier's log (default 64)
  --cache-mb N         the store's own cache in memory; 0 is none for the tier (default a quarter
                       of the data; with --memory-mb a third of that for RocksDB and a quarter for
                       fjall, as their guides advise, and 60 % for the tier and rocksdb-direct,
                       which go round the page cache)
  --memory-mb N        a memory cgroup for this process, page cache included (default none)
  --dir DIR            where data goes, in a folder that is removed at the end (default the
                       system's temporary folder)
  --seed N             of all random numbers (default 1)

Exit status: 0, 1 where something failed or a value read was wrong, 2 for a wrong command line.
";

const VALUE_BYTES_MIN: u64 = 16;
const VALUE_BYTES_MAX: u64 = 1 << 20;
const THREADS_MAX: usize = 1024;
/// Two segments for each of the log's uses, and one more.
const PM_MB_MIN: u64 = 32;

/// What was asked for.
#[derive(Debug)]
pub enum Asked {
    /// To be told how.
    Help,
    /// A run.
    Run(Plan),
}

/// The flags as they were typed.
struct Typed {
    engine: Option<String>,
    backend: String,
    durability: String,
    workloads: String,
    threads: usize,
    distribution: String,
    value_bytes: Option<u64>,
    content: String,
    compress: String,
    records: u32,
    seconds: f64,
    settle_seconds: f64,
    commit_ms: u64,
    pm_mb: u64,
    cache_mb: Option<u64>,
    memory_mb: Option<u64>,
    dir: PathBuf,
    seed: u64,
}

impl Typed {
    fn defaults() -> Typed {
        Typed {
            engine: None,
            backend: "wal".into(),
            durability: "synced".into(),
            workloads: "A,B,C,F,D,E".into(),
            threads: 2,
            distribution: "zipf".into(),
            value_bytes: None,
            content: "random".into(),
            compress: "off".into(),
            records: 200_000,
            seconds: 2.0,
            settle_seconds: 2.0,
            commit_ms: 10,
            pm_mb: 64,
            cache_mb: None,
            memory_mb: None,
            dir: std::env::temp_dir(),
            seed: 1,
        }
    }
}

/// Reads the command line. Of a flag given twice the last counts.
pub fn parse(mut parser: lexopt::Parser) -> Result<Asked, String> {
    let mut typed = Typed::defaults();
    let told = |error: lexopt::Error| error.to_string();
    while let Some(argument) = parser.next().map_err(told)? {
        match argument {
            Long("help") | Short('h') => return Ok(Asked::Help),
            Long(name) => {
                let name = name.to_owned();
                take(&name, &mut parser, &mut typed)
                    .map_err(|error| format!("--{name}: {error}"))?;
            }
            _ => return Err(argument.unexpected().to_string()),
        }
    }
    check(typed).map(Asked::Run)
}

fn take(name: &str, parser: &mut lexopt::Parser, typed: &mut Typed) -> Result<(), lexopt::Error> {
    match name {
        "engine" => typed.engine = Some(parser.value()?.string()?),
        "backend" => typed.backend = parser.value()?.string()?,
        "durability" => typed.durability = parser.value()?.string()?,
        "workloads" => typed.workloads = parser.value()?.string()?,
        "threads" => typed.threads = parser.value()?.parse()?,
        "distribution" => typed.distribution = parser.value()?.string()?,
        "value-bytes" => typed.value_bytes = Some(parser.value()?.parse()?),
        "content" => typed.content = parser.value()?.string()?,
        "compress" => typed.compress = parser.value()?.string()?,
        "records" => typed.records = parser.value()?.parse()?,
        "seconds" => typed.seconds = parser.value()?.parse()?,
        "settle-seconds" => typed.settle_seconds = parser.value()?.parse()?,
        "commit-ms" => typed.commit_ms = parser.value()?.parse()?,
        "pm-mb" => typed.pm_mb = parser.value()?.parse()?,
        "cache-mb" => typed.cache_mb = Some(parser.value()?.parse()?),
        "memory-mb" => typed.memory_mb = Some(parser.value()?.parse()?),
        "dir" => typed.dir = parser.value()?.into(),
        "seed" => typed.seed = parser.value()?.parse()?,
        _ => return Err("no such flag".into()),
    }
    Ok(())
}

fn check(typed: Typed) -> Result<Plan, String> {
    let names = EngineKind::ALL.map(|(name, _)| name);
    let engine = typed.engine.ok_or_else(|| format!("--engine: one of {}", names.join(", ")))?;
    let known = EngineKind::ALL.iter().map(|(name, kind)| (*name, *kind)).collect::<Vec<_>>();
    let engine = one_of("engine", &engine, &known)?;
    let sizes = match typed.value_bytes {
        None => Sizes::Halves,
        Some(bytes) => {
            let in_range = (VALUE_BYTES_MIN..=VALUE_BYTES_MAX).contains(&bytes);
            require("value-bytes", bytes, in_range, "from 16 to 1048576")?;
            Sizes::Fixed(bytes)
        }
    };
    require("records", typed.records, 1000 <= typed.records, "at least 1000")?;
    require("commit-ms", typed.commit_ms, 1 <= typed.commit_ms, "at least 1")?;
    require("pm-mb", typed.pm_mb, PM_MB_MIN <= typed.pm_mb, "at least 32")?;
    let backends = [("wal", Backend::Wal), ("emu", Backend::Emu)];
    let distributions = [("zipf", Distribution::Zipf), ("uniform", Distribution::Uniform)];
    let contents = [Content::Random, Content::Text].map(|content| (content.name(), content));
    let compresses = one_of("compress", &typed.compress, &[("off", false), ("lz4", true)])?;
    let may_compress = engine.is_tier() || !compresses;
    require("compress", &typed.compress, may_compress, "off for all but the tier")?;
    let mut plan = Plan {
        engine,
        backend: one_of("backend", &typed.backend, &backends)?,
        synced: one_of("durability", &typed.durability, &[("synced", true), ("unsynced", false)])?,
        turns: turns(&typed.workloads, typed.threads)?,
        distribution: one_of("distribution", &typed.distribution, &distributions)?,
        sizes,
        content: one_of("content", &typed.content, &contents)?,
        compresses,
        records: typed.records,
        turn: seconds("seconds", typed.seconds)?,
        settle: seconds("settle-seconds", typed.settle_seconds)?,
        commit_every: Duration::from_millis(typed.commit_ms),
        pm_mb: typed.pm_mb,
        cache_mb: 0,
        memory_mb: typed.memory_mb,
        dir: typed.dir,
        seed: typed.seed,
    };
    plan.cache_mb = typed.cache_mb.unwrap_or_else(|| cache_mb(&plan));
    Ok(plan)
}

/// What a store is given as a cache where nobody says.
fn cache_mb(plan: &Plan) -> u64 {
    // An engine that reads past the page cache gets the memory that the page cache would take.
    const OF_DIRECT_PERCENT: u64 = 60;
    let Some(memory_mb) = plan.memory_mb else { return plan.data_bytes() >> 22 };
    let pm_mb = if plan.backend == Backend::Emu { plan.pm_mb } else { 0 };
    match plan.engine {
        EngineKind::RocksDb | EngineKind::RocksDbBlob => memory_mb / 3,
        EngineKind::Fjall => memory_mb / 4,
        _ => memory_mb.saturating_sub(pm_mb) * OF_DIRECT_PERCENT / 100,
    }
}

fn turns(list: &str, threads: usize) -> Result<Vec<Turn>, String> {
    let turn = |name: &str| {
        let wrong = || format!("--workloads {list}: {name}: a letter of A to F, or like A@64");
        let (letter, threads) = match name.split_once('@') {
            None => (name, threads),
            Some((letter, count)) => (letter, count.parse().map_err(|_| wrong())?),
        };
        let in_range = (1..=THREADS_MAX).contains(&threads);
        require("threads", threads, in_range, "from 1 to 1024")?;
        let mut letters = letter.chars();
        match (letters.next().and_then(Workload::of), letters.next()) {
            (Some(workload), None) => Ok(Turn { name: name.to_owned(), workload, threads }),
            _ => Err(wrong()),
        }
    };
    let turns = list.split(',').map(turn).collect::<Result<Vec<Turn>, String>>()?;
    match turns.iter().enumerate().find(|(at, turn)| turns[..*at].contains(turn)) {
        None => Ok(turns),
        Some((_, twice)) => Err(format!("--workloads {list}: {} stands there twice", twice.name)),
    }
}

fn require(
    flag: &str,
    value: impl std::fmt::Display,
    good: bool,
    limit: &str,
) -> Result<(), String> {
    if good { Ok(()) } else { Err(format!("--{flag} {value}: must be {limit}")) }
}

fn seconds(flag: &str, value: f64) -> Result<Duration, String> {
    const SECONDS_MAX: f64 = 3600.0;
    require(flag, value, (0.0..=SECONDS_MAX).contains(&value), "from 0 to 3600")?;
    Ok(Duration::from_secs_f64(value))
}

fn one_of<T: Copy>(flag: &str, given: &str, known: &[(&str, T)]) -> Result<T, String> {
    let found = known.iter().find(|(name, _)| *name == given);
    found.map(|(_, value)| *value).ok_or_else(|| {
        let names: Vec<&str> = known.iter().map(|(name, _)| *name).collect();
        format!("--{flag} {given}: one of {}", names.join(", "))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Asked, String> {
        parse(lexopt::Parser::from_args(line.split_whitespace()))
    }

    #[test]
    fn a_line_is_read_and_defaults_are_what_the_help_says() {
        let line = "--engine rocksdb --workloads A@2,A@64,E --backend emu --records 1000";
        let Ok(Asked::Run(plan)) = parsed(line) else { panic!("a good line") };
        assert_eq!((plan.engine, plan.backend), (EngineKind::RocksDb, Backend::Emu));
        let turns: Vec<_> = plan.turns.iter().map(|t| (t.name.as_str(), t.threads)).collect();
        assert_eq!(turns, [("A@2", 2), ("A@64", 64), ("E", 2)]);
        assert!(plan.synced && plan.memory_mb.is_none() && plan.pm_mb == 64);
        for (line, cache_mb) in [
            ("--engine tier --records 1000000", 522),
            ("--engine tier --memory-mb 300", 180),
            ("--engine tier --memory-mb 300 --backend emu --pm-mb 100", 120),
            ("--engine fjall --memory-mb 300", 75),
            ("--engine rocksdb --memory-mb 300", 100),
            ("--engine rocksdb-direct --memory-mb 300", 180),
            ("--engine fjall --memory-mb 300 --cache-mb 7", 7),
        ] {
            let Ok(Asked::Run(plan)) = parsed(line) else { panic!("{line}") };
            assert_eq!(plan.cache_mb, cache_mb, "{line}");
        }
        assert!(matches!(parsed("--engine tier --help"), Ok(Asked::Help)));
        for (name, kind) in EngineKind::ALL {
            assert!(HELP.contains(name) && kind.name() == name);
        }
    }

    #[test]
    fn a_wrong_line_names_flag_value_and_limit() {
        for (line, words) in [
            ("", "--engine: one of tier, tier-hotness"),
            ("--engine leveldb", "--engine leveldb: one of tier"),
            ("--engine tier --records 7", "--records 7: must be at least 1000"),
            ("--engine tier --records many", "--records: "),
            ("--engine tier --workloads G", "--workloads G: G: a letter"),
            ("--engine tier --workloads A,AB", "--workloads A,AB: AB: a letter"),
            ("--engine tier --workloads A@x", "--workloads A@x: A@x: a letter"),
            ("--engine tier --workloads A,A", "--workloads A,A: A stands there twice"),
            ("--engine tier --threads 0", "--threads 0: must be from 1 to 1024"),
            ("--engine tier --value-bytes 3", "--value-bytes 3: must be from 16"),
            ("--engine tier --content prose", "--content prose: one of random, text"),
            ("--engine tier --compress zstd", "--compress zstd: one of off, lz4"),
            ("--engine fjall --compress lz4", "--compress lz4: must be off"),
            ("--engine tier --seconds NaN", "--seconds NaN: must be from 0"),
            ("--engine tier --pm-mb 1", "--pm-mb 1: must be at least 32"),
            ("--engine tier --backend dax", "--backend dax: one of wal, emu"),
            ("--engine tier --quickly", "--quickly: no such flag"),
            ("tier", "tier"),
        ] {
            let message = parsed(line).expect_err(line);
            assert!(message.contains(words), "{line}: {message}");
        }
    }
}
