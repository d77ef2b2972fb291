//! Runs with clients in shared memory: the regions and doorbells are the kernel's, and a seed is
//! the same run all the same.

use laneway_vopr::counts::Counts;
use laneway_vopr::run::run;
use laneway_vopr::swarm::{Kept, Swarm};

/// A short run with such clients, who ask for long values, too, and some that misbehave.
fn swarm(seed: u64) -> Swarm {
    let mut swarm = Swarm::draw(seed);
    if swarm.kept == Kept::Interval {
        swarm.kept = Kept::Always;
    }
    (swarm.shm_clients, swarm.hostile) = (3, 2);
    swarm.large = swarm.large.max(80);
    swarm.commands = 300;
    swarm.crashes = swarm.crashes.min(1);
    swarm
}

#[test]
fn a_seed_is_the_same_run_and_all_that_clients_in_memory_do_is_done() {
    let (mut all, mut hostile) = (Counts::default(), 0);
    for seed in 1..=12 {
        let swarm = swarm(seed);
        let [one, other] = [(); 2].map(|()| run(&swarm, true));
        assert_eq!(one.failure, None, "seed {seed}{}", swarm.typed());
        assert!(one.trace == other.trace, "the traces of seed {seed} differ");
        assert_eq!(one.digest, other.digest, "seed {seed}");
        assert_eq!(one.counts.each(), other.counts.each(), "seed {seed}");
        let comes = |line: &&String| line.contains("a hostile client comes in memory");
        hostile += one.trace.iter().filter(comes).count();
        all.add(&one.counts);
    }
    let kinds = [all.shm_requests, all.shm_lent, all.shm_placed, all.shm_rings, all.shm_gone];
    assert!(kinds.iter().all(|count| *count > 0) && hostile > 0, "{kinds:?}, {hostile}");
}

#[test]
fn without_clients_in_memory_nothing_is_served_there() {
    let swarm = Swarm { shm_clients: 0, ..swarm(1) };
    let report = run(&swarm, false);
    assert_eq!(report.failure, None);
    assert_eq!((report.counts.shm_requests, report.counts.shm_rings), (0, 0));
}
