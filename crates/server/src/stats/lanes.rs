//! `stats lanes`: the plan in force, and what each worker does under it (Minos §3).

use super::lines::Lines;
use laneway_policy::Role;

/// One worker's share.
#[derive(Debug, Clone)]
pub struct WorkerLane {
    /// Its role, under the plan in force.
    pub role: Role,
    /// Sizes it serves as a large worker, bytes: from, up to and without.
    pub range_bytes: Option<(u64, u64)>,
    /// Connections that it sent to a large worker, or back, or handed over at a change of role.
    pub moved: u64,
    /// What it counted, in the order to be told: names and numbers.
    pub numbers: Vec<(String, u64)>,
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
    lines.number("workers_shared", with_role(Role::Both));
    lines.number("migrations", snapshot.workers.iter().map(|worker| worker.moved).sum());
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
    let name = |what: &str| format!("worker:{index}:{what}");
    // In the word of the form, time-share.
    let role = if worker.role == Role::Both { "shared" } else { worker.role.name() };
    lines.text(&name("role"), role);
    if let Some((from, to)) = worker.range_bytes {
        lines.number(&name("range_bytes_from"), from);
        lines.number(&name("range_bytes_to"), to);
    }
    for (what, number) in &worker.numbers {
        lines.number(&name(what), *number);
    }
}
