//! A server's settings divided among NUMA domains, and workers that stay where their domain is.
//!
//! Memory is where it is first touched, and that is where the worker runs that stores an item; so
//! workers that stay on their domain's CPUs have its items there.

use crate::settings::Settings;
use laneway_policy::{Placement, owner};
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

/// Have this thread run on these CPUs only; on any where there are none.
pub fn stay(cpus: &[usize]) {
    let mut set = CpuSet::new();
    let known = cpus.iter().filter(|cpu| set.set(**cpu).is_ok()).count();
    // Where it is refused the worker is merely slower.
    if known > 0
        && let Err(error) = sched_setaffinity(Pid::from_raw(0), &set)
    {
        eprintln!("laneway: --numa: a worker cannot stay on CPUs {cpus:?}: {error}");
    }
}
