//! Runs whose clients encrypt: keys and nonces are random, and a seed is the same run all the same,
//! to the record.

use laneway_vopr::counts::Counts;
use laneway_vopr::run::run;
use laneway_vopr::swarm::Swarm;

/// A short run with clients that encrypt and some that misbehave.
fn swarm(seed: u64) -> Swarm {
    let mut swarm = Swarm::draw(seed);
    swarm.tls = 1 + (seed % 3) as u8;
    swarm.commands = 300;
    swarm.crashes = swarm.crashes.min(1);
    (swarm.clients, swarm.hostile) = (swarm.clients.max(3), 3);
    swarm
}

#[test]
fn a_seed_is_the_same_run_to_the_record_and_all_kinds_of_handshakes_are_made() {
    let mut all = Counts::default();
    for seed in 1..=12 {
        let swarm = swarm(seed);
        let [one, other] = [(); 2].map(|()| run(&swarm, true));
        assert_eq!(one.failure, None, "seed {seed}{}", swarm.typed());
        assert!(one.trace == other.trace, "the traces of seed {seed} differ");
        assert_eq!(one.digest, other.digest, "seed {seed}");
        assert_eq!(one.counts.each(), other.counts.each(), "seed {seed}");
        all.add(&one.counts);
    }
    let kinds = [all.handshakes, all.resumed, all.strangers];
    assert!(kinds.iter().all(|count| *count > 0), "{kinds:?}");
    // Who speaks in plain text, says nothing or breaks off fails for another reason.
    assert!(all.handshakes_failed > all.strangers, "{all:?}");
}

#[test]
fn without_clients_that_encrypt_no_handshake_is_made() {
    let swarm = Swarm { tls: 0, ..swarm(1) };
    let report = run(&swarm, false);
    assert_eq!(report.failure, None);
    assert_eq!((report.counts.handshakes, report.counts.reloads), (0, 0));
}
