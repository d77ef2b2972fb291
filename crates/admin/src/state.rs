//! `/api/state`: what the dashboard draws, as JSON. Counters run from the start, so that a page
//! takes the difference of two answers; it may ask as often as it likes, and beside others.
//! docs/operating.md has the fields.

use crate::causes::causes;
use laneway_server::counts::clients::ClientWatch;
use laneway_server::counts::watch::{WatchSnapshot, WorkerWatch};
use laneway_server::latency::Part;
use laneway_server::latency::buckets;
use laneway_server::latency::histogram::Reading;
use serde::{Serialize, Serializer};
use std::collections::BTreeMap;

/// The form of the answer; it changes when a field goes or means something else.
const FORM: u32 = 1;

#[derive(Serialize)]
struct State<'a> {
    form: u32,
    version: &'a str,
    now_seconds: u64,
    uptime_seconds: u64,
    ready: bool,
    design: &'a str,
    layout: &'a str,
    threshold_bytes: &'a [u64],
    epochs: u64,
    role_changes: u64,
    workers: Vec<Worker>,
    queue_shared: u64,
    /// The first size of a class, and requests of it; classes without any are left out.
    sizes: Vec<(u64, u64)>,
    latencies: Vec<Latency>,
    requests: Numbers<7>,
    memory: Numbers<11>,
    connections: Numbers<3>,
    clients: Vec<Client<'a>>,
    /// By cause.
    errors: BTreeMap<&'static str, u64>,
    tier: Option<Numbers<6>>,
    cpu_seconds: f64,
}

/// Numbers and their names, in this order.
struct Numbers<const N: usize>([(&'static str, u64); N]);

impl<const N: usize> Serialize for Numbers<N> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0)
    }
}

#[derive(Serialize)]
struct Worker {
    role: &'static str,
    #[serde(flatten)]
    numbers: Numbers<9>,
}

#[derive(Serialize)]
struct Latency {
    operation: &'static str,
    lane: &'static str,
    #[serde(flatten)]
    numbers: Numbers<5>,
    /// The end of a bucket in microseconds, and requests in it; empty ones are left out.
    buckets_us: Vec<(f64, u64)>,
}

#[derive(Serialize)]
struct Client<'a> {
    address: &'a str,
    #[serde(flatten)]
    numbers: Numbers<8>,
}

/// The text of an answer.
pub fn json(snapshot: &WatchSnapshot) -> Result<String, serde_json::Error> {
    let (totals, store) = (&snapshot.totals, &snapshot.store);
    let (connections, process) = (&snapshot.connections, &snapshot.process);
    let cpu_us = process.cpu_user_us + process.cpu_system_us;
    serde_json::to_string(&State {
        form: FORM,
        version: env!("CARGO_PKG_VERSION"),
        now_seconds: snapshot.now_seconds,
        uptime_seconds: snapshot.now_seconds.saturating_sub(snapshot.started_seconds),
        ready: snapshot.ready,
        design: snapshot.design,
        layout: snapshot.form,
        threshold_bytes: &snapshot.threshold_bytes,
        epochs: snapshot.epochs,
        role_changes: snapshot.role_changes,
        workers: snapshot.workers.iter().map(worker).collect(),
        queue_shared: snapshot.queue_shared + snapshot.queue_shared_jobs,
        sizes: snapshot.sizes.iter().copied().filter(|(_, count)| *count > 0).collect(),
        latencies: latencies(snapshot),
        requests: Numbers([
            ("get_hits_small", snapshot.small_hits),
            ("get_hits_large", totals.get_hits_large),
            ("get_hits_kernel", snapshot.kernel_hits),
            ("get_misses", totals.get_misses),
            ("sets", totals.cmd_set),
            ("received_bytes", totals.bytes_read),
            ("sent_bytes", totals.bytes_written),
        ]),
        memory: Numbers([
            ("limit_bytes", store.limit_bytes),
            ("items", store.items),
            ("items_bytes", store.bytes),
            ("pool_bytes", store.pool_bytes),
            ("free_bytes", store.pool_free_bytes),
            ("index_bytes", store.index_bytes),
            ("datagram_bytes", snapshot.udp_bytes),
            ("resident_bytes", process.resident_bytes),
            ("evictions", store.evictions),
            ("evictions_active", store.evicted_active),
            ("expired", store.found_expired + snapshot.swept),
        ]),
        connections: Numbers([
            ("open", connections.open),
            ("most", connections.most),
            ("opened", connections.total),
        ]),
        clients: snapshot.clients.iter().map(client).collect(),
        errors: causes(snapshot).into(),
        tier: snapshot.tier.as_ref().map(|tier| {
            Numbers([
                ("requests", tier.requests),
                ("queue", tier.queue),
                ("faults", tier.faults),
                ("spills", tier.spills),
                ("refused", tier.refused.total()),
                ("lost", tier.lost),
            ])
        }),
        cpu_seconds: cpu_us as f64 / 1e6,
    })
}

fn client(client: &ClientWatch) -> Client<'_> {
    let sums = &client.sums;
    let numbers = Numbers([
        ("connections", client.connections),
        ("opened", client.opened),
        ("requests", sums.requests),
        ("requests_large", sums.requests_large),
        ("bytes_in", sums.bytes_in),
        ("bytes_out", sums.bytes_out),
        ("throttled", sums.holds),
        ("throttled_ms", sums.held_nanos / 1_000_000),
    ]);
    Client { address: &client.address, numbers }
}

fn worker(worker: &WorkerWatch) -> Worker {
    let moved = worker.moved_to_large + worker.moved_home + worker.handed_over + worker.stolen;
    let numbers = Numbers([
        ("connections", worker.connections),
        ("requests_small", worker.requests_small),
        ("requests_large", worker.requests_large),
        ("slices", worker.slices),
        ("queue_small", worker.queue_small),
        ("queue_large", worker.queue_large),
        ("queue_arriving", worker.queue_arriving),
        ("queue_jobs", worker.queue_jobs),
        ("moved", moved),
    ]);
    Worker { role: worker.role.name(), numbers }
}

fn latencies(snapshot: &WatchSnapshot) -> Vec<Latency> {
    let micros = |reading: &Reading| reading.sum_nanos() / 1000;
    let one = |kind: &laneway_server::counts::watch::LatencyWatch| {
        let latencies = &kind.latencies;
        let part = |part: Part| micros(&latencies.parts[part as usize]);
        Latency {
            operation: kind.operation.name(),
            lane: if kind.large { "large" } else { "small" },
            numbers: Numbers([
                ("count", latencies.whole.count()),
                ("sum_us", micros(&latencies.whole)),
                ("wait_us", part(Part::Wait)),
                ("service_us", part(Part::Service)),
                ("drain_us", part(Part::Drain)),
            ]),
            buckets_us: filled(&latencies.whole),
        }
    };
    snapshot.latencies.iter().map(one).collect()
}

/// The buckets that are not empty. The last one has no end: it is told by where it begins.
fn filled(reading: &Reading) -> Vec<(f64, u64)> {
    let last = buckets::end_nanos(buckets::BUCKETS - 2);
    let told = |(bucket, count): (usize, u64)| {
        (buckets::end_nanos(bucket).min(last) as f64 / 1000.0, count)
    };
    reading.counts().enumerate().filter(|(_, count)| *count > 0).map(told).collect()
}
