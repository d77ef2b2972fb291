//! A server's settings divided among NUMA domains, and workers that stay where their domain is.
//!
//! A domain's store is bound to its node. Where the kernel does not do that, memory is where it is
//! first touched, which is where the worker runs that stores an item: workers that stay on their
//! domain's CPUs have its items there, but for what other domains' workers write for them.

use crate::settings::Settings;
use laneway_policy::{Placement, owner};
use laneway_store::Store;
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;

/// How keys are placed where there are several domains.
pub fn placement(settings: &Settings) -> Option<Placement> {
    let domains = settings.domains.len().max(1) as u16;
    let placement = Placement::new(owner::SEED, settings.workers as u16, domains);
    placement.filter(|_| domains > 1)
}

/// The settings of each domain: its part of the workers and of the memory.
pub fn parts(settings: &Settings) -> Vec<Settings> {
    let Some(placement) = placement(settings) else { return vec![settings.clone()] };
    let part = |domain: u16| {
        let mut part = settings.clone();
        let (_, workers) = placement.queues_of(domain);
        part.workers = usize::from(workers);
        part.policy.workers = workers;
        part.memory_bytes = settings.memory_bytes / u64::from(placement.domains());
        part.domains = vec![settings.domains[usize::from(domain)].clone()];
        part
    };
    (0..placement.domains()).map(part).collect()
}

/// Have a domain's items on its node; anywhere if it has none.
pub fn bind(store: &Store, settings: &Settings) {
    let Some(node) = settings.domains.first().and_then(|domain| domain.node) else { return };
    // Memory elsewhere is merely slower. (A container may forbid it: it takes CAP_SYS_NICE there.)
    if let Err(error) = store.prefer_node(node) {
        log::warn!("--numa: memory cannot be bound to node {node}: {error}");
    }
}

/// Have this thread run on these CPUs only; on any where there are none.
pub fn stay(cpus: &[usize]) {
    let mut set = CpuSet::new();
    let known = cpus.iter().filter(|cpu| set.set(**cpu).is_ok()).count();
    // Where it is refused the worker is merely slower.
    if known > 0
        && let Err(error) = sched_setaffinity(Pid::from_raw(0), &set)
    {
        log::warn!("--numa: a worker cannot stay on CPUs {cpus:?}: {error}");
    }
}
