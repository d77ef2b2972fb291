//! The server as a whole: what it is, its plan, its workers, the process.

use super::page::{Labels, Page};
use laneway_policy::Role;
use laneway_server::built;
use laneway_server::counts::watch::{WatchSnapshot, WorkerWatch};
use prometheus_client::registry::Unit;
use std::fmt;

pub fn write(snapshot: &WatchSnapshot, page: &mut Page<'_>) -> fmt::Result {
    let features = built::names(&built::FEATURES);
    let what = [
        ("version", env!("CARGO_PKG_VERSION")),
        ("features", features.as_str()),
        ("protocol", snapshot.version),
        ("design", snapshot.design),
        ("form", snapshot.form),
    ];
    page.info(
        "build",
        "The server: its version, Cargo features, the version that it tells clients, design, form",
        &what,
    )?;
    let seconds = Some(Unit::Seconds);
    let uptime = snapshot.now_seconds.saturating_sub(snapshot.started_seconds);
    page.gauges("uptime", "Time since the start", seconds, [(Labels::new(), uptime)])?;
    let help = "1 while the server takes connections, 0 while it is stopping";
    page.gauge("ready", help, snapshot.ready.into())?;
    plan(snapshot, page)?;
    workers(&snapshot.workers, page)?;
    process(snapshot, page)
}

fn plan(snapshot: &WatchSnapshot, page: &mut Page<'_>) -> fmt::Result {
    let domains: Vec<String> = (0..snapshot.threshold_bytes.len()).map(|n| n.to_string()).collect();
    let thresholds = domains.iter().zip(&snapshot.threshold_bytes);
    page.gauges(
        "threshold",
        "Items of this many bytes and more are large, by NUMA domain",
        Some(Unit::Bytes),
        thresholds.map(|(domain, bytes)| (vec![("domain", domain.as_str())], *bytes)),
    )?;
    page.counter("epochs", "Epochs for which a plan was made", snapshot.epochs)?;
    page.counter("role_changes", "Changes of a worker's role", snapshot.role_changes)?;
    page.gauges(
        "shared_queue_length",
        "Entries of the queues that all large workers take from, now",
        None,
        [
            (vec![("kind", "connections")], snapshot.queue_shared),
            (vec![("kind", "requests")], snapshot.queue_shared_jobs),
        ],
    )
}

type Part = (&'static str, fn(&WorkerWatch) -> u64);

fn workers(workers: &[WorkerWatch], page: &mut Page<'_>) -> fmt::Result {
    let names: Vec<String> = (0..workers.len()).map(|number| number.to_string()).collect();
    let each = || names.iter().map(String::as_str).zip(workers);
    let roles = [Role::Small, Role::Large, Role::Standby, Role::Both];
    page.gauges(
        "worker_role",
        "1 for the role that a worker has under the plan in force, 0 for the others",
        None,
        each().flat_map(|(name, worker)| {
            let label = move |role: Role| vec![("worker", name), ("role", role.name())];
            roles.map(|role| (label(role), u64::from(worker.role == role)))
        }),
    )?;
    let of = |value: fn(&WorkerWatch) -> u64| {
        each().map(move |(name, worker)| (vec![("worker", name)], value(worker)))
    };
    let connections = of(|worker| worker.connections);
    let help = "Connections that call a worker home, now";
    page.gauges("worker_connections", help, None, connections)?;
    let by = |label: &'static str, parts: &'static [Part]| {
        each().flat_map(move |(name, worker)| {
            let one =
                move |(part, value): &Part| (vec![("worker", name), (label, *part)], value(worker));
            parts.iter().map(one)
        })
    };
    let queues: &[Part] = &[
        ("small", |worker| worker.queue_small),
        ("large", |worker| worker.queue_large),
        ("arriving", |worker| worker.queue_arriving),
        ("jobs", |worker| worker.queue_jobs),
    ];
    let help = "Entries that wait for a worker, now: connections with small requests, with a slice \
                to move, on their way to it, and requests of other workers";
    page.gauges("worker_queue_length", help, None, by("queue", queues))?;
    let lanes: &[Part] =
        &[("small", |worker| worker.requests_small), ("large", |worker| worker.requests_large)];
    let requests = by("lane", lanes).map(|(labels, value)| (labels, value as f64));
    page.counters("worker_requests", "Requests that a worker served", None, requests)?;
    let slices = of(|worker| worker.slices).map(|(labels, value)| (labels, value as f64));
    let help = "Slices of large transfers that a worker moved";
    page.counters("worker_slices", help, None, slices)?;
    let moves: &[Part] = &[
        ("connection_to_large", |worker| worker.moved_to_large),
        ("connection_home", |worker| worker.moved_home),
        ("request_handed_over", |worker| worker.handed_over),
        ("request_stolen", |worker| worker.stolen),
    ];
    let moves = by("kind", moves).map(|(labels, value)| (labels, value as f64));
    page.counters("worker_moves", "What moved between workers", None, moves)?;
    let waited = each()
        .map(|(name, worker)| (vec![("worker", name)], worker.tx_backed_up_nanos as f64 / 1e9));
    let help = "How long large replies of a worker waited for the wire";
    page.counters("worker_wire_wait", help, Some(Unit::Seconds), waited)
}

fn process(snapshot: &WatchSnapshot, page: &mut Page<'_>) -> fmt::Result {
    let process = &snapshot.process;
    page.counters(
        "process_cpu",
        "CPU time of the process",
        Some(Unit::Seconds),
        [
            (vec![("mode", "user")], process.cpu_user_us as f64 / 1e6),
            (vec![("mode", "system")], process.cpu_system_us as f64 / 1e6),
        ],
    )?;
    let help = "Of the process's CPU time, that of the thread that answers scrapes";
    let reader = [(Labels::new(), process.cpu_reader_us as f64 / 1e6)];
    page.counters("admin_cpu", help, Some(Unit::Seconds), reader)?;
    let help = "Memory of the process that is resident (RSS)";
    page.gauge_bytes("process_resident_memory", help, process.resident_bytes)
}
