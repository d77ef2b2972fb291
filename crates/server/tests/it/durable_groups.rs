//! Which writes share a group, and how long a commit waits for more of them.

use laneway_policy::Form;
use laneway_rig::durable::{Kept, Machine, settings};
use laneway_rig::{Plan, Rig};
use laneway_tier::{Durability, Settings};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

const STORED: &[u8] = b"STORED\r\n";
/// It changes nothing, but is the executor's to say.
const DELETE: &[u8] = b"delete none\r\n";
const NOT_FOUND: &[u8] = b"NOT_FOUND\r\n";
/// Requests that a step of the executor begins.
const STEP: u64 = 64;

fn started(workers: usize, interval: Option<Duration>) -> Rig {
    let durability = if interval.is_some() { Durability::Interval } else { Durability::Ack };
    let machine = Machine::new(1 << 20, 8 << 20);
    let tier = machine.open(Settings { durability, ..settings() }).expect("the media are sound");
    let kept = Kept { interval, ..Kept::of(&tier) };
    Rig::new(&Plan { kept: Some(kept), ..Plan::of(workers, Form::TimeShare) })
}

fn groups(rig: &Rig) -> u64 {
    rig.shared.durable.get().expect("kept").tier.stats().groups
}

/// How many requests the executor has begun.
fn begun(rig: &Rig) -> u64 {
    rig.shared.durable.get().expect("kept").counts.requests.load(Relaxed)
}

#[test]
fn what_is_at_hand_when_a_step_ends_is_in_the_same_group() {
    let mut rig = started(2, None);
    rig.let_help();
    let client = rig.net.connect();
    rig.set(&client, "k", b"before");
    for deletes in [0, 1000] {
        // Many steps that leave more to begin, and nothing that waits for a commit.
        client.send(&DELETE.repeat(deletes));
        let wanted = NOT_FOUND.repeat(deletes);
        assert!(rig.until(&client, Vec::new(), |got| got.len() >= wanted.len()) == wanted);
        let before = groups(&rig);
        // More than a step takes.
        client.send(&b"set k 0 0 1\r\nv\r\n".repeat(100));
        let wanted = STORED.repeat(100);
        assert!(rig.until(&client, Vec::new(), |got| got.len() >= wanted.len()) == wanted);
        assert_eq!(groups(&rig) - before, 1, "behind {deletes} requests that change nothing");
    }
}

/// However much there is to begin, and however long that takes.
#[test]
fn a_commit_that_somebody_waits_for_is_put_off_for_half_a_millisecond() {
    let mut rig = started(1, None);
    let client = rig.net.connect();
    rig.set(&client, "k", b"before");
    let (groups_before, begun_before) = (groups(&rig), begun(&rig));
    client.send(&[&b"set k 0 0 1\r\nv\r\n"[..], &DELETE.repeat(400)].concat());
    // The step that stores it leaves it to the next, which comes later than that.
    for _ in 0..100 {
        if groups(&rig) == groups_before {
            rig.turn();
            rig.clock.advance(600_000);
        }
    }
    assert_eq!(groups(&rig) - groups_before, 1);
    let requests = begun(&rig) - begun_before;
    assert!(requests <= 4 * STEP, "{requests} were begun before it was durable");
    let wanted = [STORED, &NOT_FOUND.repeat(400)].concat();
    assert!(rig.until(&client, Vec::new(), |got| got.len() >= wanted.len()) == wanted);
}

#[test]
fn at_an_interval_a_commit_that_is_due_is_not_put_off() {
    let mut rig = started(1, Some(Duration::from_millis(5)));
    let client = rig.net.connect();
    // There was none yet, so one is due with the first change.
    let (groups_before, begun_before) = (groups(&rig), begun(&rig));
    client.send(&b"set k 0 0 1\r\nv\r\n".repeat(150));
    // Two steps; there is more to begin behind both.
    for _ in 0..100 {
        if begun(&rig) - begun_before < 2 * STEP {
            rig.turn();
        }
    }
    assert!(begun(&rig) - begun_before < 150);
    assert_eq!(groups(&rig) - groups_before, 1, "the second finds it done");
}
