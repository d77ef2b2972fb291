//! `laneway bench trace`: a trace with the published means of one of Twitter's clusters.
//!
//! Keys are as many as requests of the mean number each make up the trace; which is asked for is
//! drawn by the cluster's Zipf exponent, the operation by its shares, the time to live of a key by
//! the shares of the cluster's. What a trace has beyond its means (bursts, drifting popularity,
//! what sizes and popularity have to do with each other) is not in it.

use super::Row;
use crate::arguments::{self, number, text};
use crate::random::{Random, mix_pair};
use crate::workload::twitter::Cluster;
use crate::workload::{Key, Workload, WorkloadOptions};
use crate::zipf::Zipf;
use lexopt::{Arg, Parser};
use std::ffi::OsString;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

/// What `laneway bench trace --help` prints.
pub const HELP: &str = "\
laneway bench trace: a trace with the published means of one of Twitter's cache clusters

usage: laneway bench trace twitter-N --out FILE [flags]

  --requests N   rows                                               [1000000]
  --rate N       requests per second                                  [20000]
  --seed N       the same seed makes the same trace                       [1]
  --out FILE     where it goes; - is standard output
  --help, -h     this

Its form is that of the traces that Twitter published: ts,key,ksize,vsize,client,op,ttl. Replay it,
or one of those, with laneway bench --trace FILE.
";

const TTL_SALT: u64 = u64::from_le_bytes(*b"trace tt");
const CLIENTS: u64 = 16;

#[derive(Debug, Clone, PartialEq)]
struct Flags {
    cluster: u32,
    requests: u64,
    rate: u64,
    seed: u64,
    out: PathBuf,
}

/// Runs `laneway bench trace` with the arguments after these words.
pub fn main(arguments: Vec<OsString>) -> ExitCode {
    arguments::carry_out("bench trace", HELP, parse(arguments), |flags| {
        carry_out(&flags).map(|()| true)
    })
}

fn parse(arguments: Vec<OsString>) -> Result<Option<Flags>, String> {
    let (mut cluster, mut out) = (None, None);
    let (mut requests, mut rate, mut seed) = (1_000_000, 20_000, 1);
    let mut parser = Parser::from_args(arguments);
    while let Some(argument) = parser.next().map_err(|error| error.to_string())? {
        match argument {
            Arg::Long("help") | Arg::Short('h') => return Ok(None),
            Arg::Long("requests") => requests = number("requests", &mut parser)?,
            Arg::Long("rate") => rate = number("rate", &mut parser)?,
            Arg::Long("seed") => seed = number("seed", &mut parser)?,
            Arg::Long("out") => out = Some(text("out", &mut parser)?.into()),
            Arg::Value(word) if cluster.is_none() => {
                let word = word.to_string_lossy().into_owned();
                let number = word.strip_prefix("twitter-").and_then(|digits| digits.parse().ok());
                cluster = Some(number.ok_or(format!("{word}: a cluster is called twitter-4"))?);
            }
            other => return Err(other.unexpected().to_string()),
        }
    }
    if requests == 0 || rate == 0 {
        return Err(format!("--requests {requests}, --rate {rate}: must be at least 1"));
    }
    let cluster = cluster.ok_or("name a cluster, such as twitter-4")?;
    let out = out.ok_or("--out FILE: where the trace goes")?;
    Ok(Some(Flags { cluster, requests, rate, seed, out }))
}

fn carry_out(flags: &Flags) -> Result<(), String> {
    let cluster = Cluster::new(flags.cluster)?;
    let failed = |error: io::Error| format!("--out {}: {error}", flags.out.display());
    if flags.out.as_os_str() == "-" {
        let mut out = io::BufWriter::new(io::stdout().lock());
        return match write(&cluster, flags, &mut out).and_then(|()| out.flush()) {
            // Whoever closed the pipe has read enough.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            other => other.map_err(failed),
        };
    }
    let file = std::fs::File::create(&flags.out).map_err(failed)?;
    let mut out = io::BufWriter::new(file);
    write(&cluster, flags, &mut out).and_then(|()| out.flush()).map_err(failed)
}

fn write(cluster: &Cluster, flags: &Flags, out: &mut impl Write) -> io::Result<()> {
    let keys = ((flags.requests as f64 / cluster.requests_per_key) as u64).max(1);
    let options = WorkloadOptions { seed: flags.seed, ..cluster.workload(keys) };
    let workload = Workload::new(options).map_err(io::Error::other)?;
    let popularity = Zipf::new(keys, cluster.zipf_exponent);
    let mut random = Random::stream(flags.seed, u64::from_le_bytes(*b"trace   "));
    for row in 0..flags.requests {
        let key = Key(popularity.rank(&mut random) as u32);
        let operation = pick(&cluster.operations, random.unit()).map_or("get", String::as_str);
        let ttl = mix_pair(flags.seed ^ TTL_SALT, u64::from(key.0));
        let ttl = (ttl >> 11) as f64 * (1.0 / (1_u64 << 53) as f64);
        let name = workload.key_name(key);
        let is_write = !matches!(operation, "get" | "gets" | "delete");
        let row = Row {
            at_s: row / flags.rate,
            key: &String::from_utf8_lossy(&name),
            key_bytes: name.len() as u64,
            value_bytes: workload.value_bytes(key),
            client: &random.below(CLIENTS).to_string(),
            operation,
            ttl_s: if is_write { pick(&cluster.ttls_s, ttl).copied().unwrap_or(0) } else { 0 },
        };
        writeln!(out, "{row}")?;
    }
    Ok(())
}

/// What stands at `unit` of the way through shares that need not sum to 1.
fn pick<T>(shares: &[(T, f64)], unit: f64) -> Option<&T> {
    let all: f64 = shares.iter().map(|(_, share)| share).sum();
    let mut left = unit * all;
    for (what, share) in shares {
        left -= share;
        if left < 0.0 {
            return Some(what);
        }
    }
    shares.last().map(|(what, _)| what)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::replay::Trace;
    use std::collections::HashMap;

    fn made(cluster: u32, requests: u64) -> String {
        let flags = Flags { cluster, requests, rate: 10_000, seed: 3, out: "-".into() };
        let mut out = Vec::new();
        write(&Cluster::new(cluster).expect("published"), &flags, &mut out).expect("memory");
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn a_trace_has_the_means_of_its_cluster() {
        const ROWS: u64 = 100_000;
        for number in [4, 8, 12, 13, 18, 52] {
            let cluster = Cluster::new(number).expect("published");
            let text = made(number, ROWS);
            let rows: Vec<Row<'_>> =
                text.lines().map(|line| Row::parse(line).expect(line)).collect();
            assert_eq!(rows.len() as u64, ROWS);
            assert_eq!(rows.last().map(|row| row.at_s), Some(9), "10 000 a second");
            let mut values: HashMap<&str, u64> = HashMap::new();
            for row in &rows {
                assert_eq!(row.key_bytes, cluster.key_bytes);
                // A key's value is always as long.
                assert_eq!(*values.entry(row.key).or_insert(row.value_bytes), row.value_bytes);
            }
            for (name, _) in &cluster.operations {
                let wanted = cluster.share(&[name.as_str()]);
                let found = rows.iter().filter(|row| row.operation == name).count() as f64;
                let found = found / ROWS as f64;
                let allowed = 5.0 * (wanted * (1.0 - wanted) / ROWS as f64).sqrt();
                assert!((found - wanted).abs() <= allowed, "{number} {name}: {found}");
            }
            // The distinct keys' sizes: five standard deviations of an exponential distribution.
            let mean = values.values().sum::<u64>() as f64 / values.len() as f64;
            let allowed = 5.0 / (values.len() as f64).sqrt();
            let off = mean / cluster.value_bytes as f64 - 1.0;
            assert!(off.abs() < allowed, "{number}: {mean}");
            // Keys drawn at random are not all met; the others are as many as asked for.
            let keys = ROWS as f64 / cluster.requests_per_key;
            assert!(values.len() as f64 <= keys, "{number}: {} keys", values.len());
        }
    }

    #[test]
    fn times_to_live_are_the_clusters_and_a_key_keeps_its_own() {
        let text = made(4, 60_000);
        let mut ttls: HashMap<&str, u64> = HashMap::new();
        for row in text.lines().map(|line| Row::parse(line).expect(line)) {
            if row.operation == "set" {
                assert_eq!(*ttls.entry(row.key).or_insert(row.ttl_s), row.ttl_s);
            } else {
                assert_eq!(row.ttl_s, 0);
            }
        }
        let minute = ttls.values().filter(|&&ttl_s| ttl_s == 60).count() as f64;
        let share = minute / ttls.len() as f64;
        let allowed = 5.0 * (0.39 * 0.61 / ttls.len() as f64).sqrt();
        assert!((share - 0.39).abs() < allowed, "{share} of {} keys", ttls.len());
    }

    #[test]
    fn what_is_made_can_be_replayed() {
        let trace = Trace::read(made(52, 5_000).as_bytes(), 1.0).expect("good");
        assert_eq!(trace.arrivals.len(), 5_000);
        assert_eq!(trace.duration_ns, 1_000_000_000);
        assert_eq!(made(52, 5_000), made(52, 5_000), "the seed decides everything");
    }

    #[test]
    fn wrong_flags_are_told() {
        let parsed = |line: &str| parse(line.split_ascii_whitespace().map(Into::into).collect());
        for (line, words) in [
            ("", "name a cluster"),
            ("twitter-4", "--out FILE"),
            ("etc --out -", "etc: a cluster is called"),
            ("twitter-4 --out - --requests 0", "--requests 0"),
            ("twitter-4 --out - --fast", "--fast"),
        ] {
            assert!(parsed(line).is_err_and(|said| said.contains(words)), "{line}");
        }
        assert_eq!(parsed("--help"), Ok(None));
    }
}
