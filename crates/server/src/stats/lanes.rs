//! `stats lanes`: the plan in force, and what each worker does under it (Minos §3).

use super::lines::Lines;
use laneway_policy::pace::Way;
use std::fmt::Display;

/// What a worker is for, under the plan in force.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Small requests only.
    Small,
    /// Large requests only.
    Large,
    /// Small ones, until a large one comes.
    Standby,
    /// Both in turns: small first, then one slice.
    Shared,
}

impl Role {
    const fn name(self) -> &'static str {
        match self {
            Role::Small => "small",
            Role::Large => "large",
            Role::Standby => "standby",
            Role::Shared => "shared",
        }
    }
}

/// One worker's share.
#[derive(Debug, Clone)]
pub struct WorkerLane {
    /// Its role.
    pub role: Role,
    /// Sizes it serves as a large worker, bytes: from, up to and without.
    pub range_bytes: Option<(u64, u64)>,
    /// Requests below the threshold served.
    pub requests_small: u64,
    /// Requests at or above it served.
    pub requests_large: u64,
    /// Packets these cost (Minos §3.1).
    pub packets: u64,
    /// Slices of large transfers moved.
    pub slices: u64,
    /// Of these, the ones of transfers with requests behind them on their connection.
    pub slices_urgent: u64,
    /// The most that a slice moves now, by its way.
    pub slice_bytes: [u64; Way::ALL.len()],
    /// Connections that call it home, now.
    pub connections: u64,
    /// Connections waiting for a turn in the small lane, now.
    pub queue_small: u64,
    /// Connections with a slice to move, now.
    pub queue_large: u64,
    /// Connections on their way to it, now.
    pub queue_arriving: u64,
    /// Connections sent to a large worker.
    pub moved_to_large: u64,
    /// Connections sent back, or handed over at a change of role.
    pub moved_home: u64,
    /// Requests in its queue that nobody has begun, now.
    pub queue_jobs: u64,
    /// Requests that it put into another's queue, or the shared one.
    pub handed_over: u64,
    /// Of these, the ones that a client had sent to another than the key's owner, or to another
    /// NUMA domain.
    pub forwarded: u64,
    /// Items of another NUMA domain that this worker looked at or wrote itself.
    pub items_abroad: u64,
    /// Requests executed here that another worker received.
    pub jobs_of_others: u64,
    /// Of these, the ones taken from another worker's queue.
    pub stolen: u64,
    /// How long large replies have waited here for the wire, microseconds.
    pub tx_backed_up_us: u64,
}

/// What the control loop of one NUMA domain has come to.
#[derive(Debug, Clone)]
pub struct DomainLanes {
    /// From this size on a request is large, bytes.
    pub threshold_bytes: u64,
    /// Plans made.
    pub epochs: u64,
    /// Plans that changed a worker's role.
    pub role_changes: u64,
    /// Workers for large requests only.
    pub workers_large: u64,
}

/// What `stats lanes` tells.
#[derive(Debug, Clone)]
pub struct LanesSnapshot {
    /// As `--design` names it.
    pub design: &'static str,
    /// `time-share` or `roles`.
    pub form: &'static str,
    /// The percentile that the threshold follows.
    pub percentile: f64,
    /// Seconds between two plans.
    pub epoch_ms: u64,
    /// The NUMA domains, of which there is one at least.
    pub domains: Vec<DomainLanes>,
    /// Connections in the queue that all large workers share, now.
    pub queue_shared: u64,
    /// Requests in the queue that several workers take from, now.
    pub queue_shared_jobs: u64,
    /// The workers, by number.
    pub workers: Vec<WorkerLane>,
}

/// Answer `stats lanes`.
pub fn write_lanes(snapshot: &LanesSnapshot, out: &mut Vec<u8>) {
    let with_role =
        |role| snapshot.workers.iter().filter(|worker| worker.role == role).count() as u64;
    let migrations: u64 =
        snapshot.workers.iter().map(|worker| worker.moved_to_large + worker.moved_home).sum();
    let domains = &snapshot.domains;
    let mut lines = Lines::new(out);
    lines.text("design", snapshot.design);
    lines.text("form", snapshot.form);
    // Of several domains, the first one's; all of them stand below.
    lines.number("threshold_bytes", domains.first().map_or(0, |domain| domain.threshold_bytes));
    lines.shown("percentile", snapshot.percentile);
    lines.number("epoch_ms", snapshot.epoch_ms);
    lines.number("epochs", domains.first().map_or(0, |domain| domain.epochs));
    lines.number("role_changes", domains.iter().map(|domain| domain.role_changes).sum());
    lines.number("workers", snapshot.workers.len() as u64);
    lines.number("workers_small", with_role(Role::Small));
    lines.number("workers_large", with_role(Role::Large));
    lines.number("workers_standby", with_role(Role::Standby));
    lines.number("workers_shared", with_role(Role::Shared));
    lines.number("migrations", migrations);
    lines.number("queue_shared", snapshot.queue_shared);
    lines.number("queue_shared_jobs", snapshot.queue_shared_jobs);
    for (index, domain) in domains.iter().enumerate().filter(|_| domains.len() > 1) {
        let mut line = |name: &str, value| lines.number(&format!("domain:{index}:{name}"), value);
        line("threshold_bytes", domain.threshold_bytes);
        line("epochs", domain.epochs);
        line("role_changes", domain.role_changes);
        line("workers_large", domain.workers_large);
    }
    for (index, worker) in snapshot.workers.iter().enumerate() {
        write_worker(index, worker, &mut lines);
    }
    lines.end();
}

fn write_worker(index: usize, worker: &WorkerLane, lines: &mut Lines<'_>) {
    let mut line = |name: &str, value: &dyn Display| {
        lines.shown(&format!("worker:{index}:{name}"), value);
    };
    line("role", &worker.role.name());
    if let Some((from, to)) = worker.range_bytes {
        line("range_bytes_from", &from);
        line("range_bytes_to", &to);
    }
    line("requests_small", &worker.requests_small);
    line("requests_large", &worker.requests_large);
    line("packets", &worker.packets);
    line("slices", &worker.slices);
    line("slices_urgent", &worker.slices_urgent);
    for (way, bytes) in Way::ALL.iter().zip(&worker.slice_bytes) {
        line(&format!("slice_bytes_{}", way.name()), bytes);
    }
    line("connections", &worker.connections);
    line("queue_small", &worker.queue_small);
    line("queue_large", &worker.queue_large);
    line("queue_arriving", &worker.queue_arriving);
    line("moved_to_large", &worker.moved_to_large);
    line("moved_home", &worker.moved_home);
    line("queue_jobs", &worker.queue_jobs);
    line("handed_over", &worker.handed_over);
    line("forwarded", &worker.forwarded);
    line("items_abroad", &worker.items_abroad);
    line("jobs_of_others", &worker.jobs_of_others);
    line("stolen", &worker.stolen);
    line("tx_backed_up_us", &worker.tx_backed_up_us);
}
