//! How often a worker asks its clock.

use laneway_policy::{Form, WorkerId};
use laneway_rig::{self as rig, Plan};
use laneway_server::clock::{Clock, ManualClock};
use laneway_server::shared::ServerShared;
use laneway_server::worker::{Progress, Worker};
use laneway_transport::memory::{Client, Faults, MemoryTransport, Net};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Counts how often it is asked, and takes a moment for the one right behind it, as the machine's
/// clock does.
#[derive(Clone, Default)]
struct CountingClock {
    time: ManualClock,
    asked: Arc<AtomicU64>,
}

impl Clock for CountingClock {
    fn nanos(&self) -> u64 {
        self.asked.fetch_add(1, Relaxed);
        self.time.nanos()
    }
    fn right_after(&self, nanos: u64) -> u64 {
        nanos
    }
    fn unix_seconds(&self, nanos: u64) -> u32 {
        self.time.unix_seconds(nanos)
    }
    fn unix_nanos(&self, nanos: u64) -> u64 {
        self.time.unix_nanos(nanos)
    }
}

/// How often the clock is asked in the turn of a GET.
fn readings_of_get(
    worker: &mut Worker<MemoryTransport>,
    client: &Client,
    clock: &CountingClock,
) -> u64 {
    let before = clock.asked.load(Relaxed);
    assert_eq!(client.send(b"get key\r\n"), 9);
    worker.step().expect("memory transports do not fail");
    assert_eq!(client.receive(usize::MAX), b"END\r\n");
    clock.asked.load(Relaxed) - before
}

fn rest(worker: &mut Worker<MemoryTransport>) {
    while worker.step().expect("memory transports do not fail") != Progress::Idle {}
}

#[test]
fn to_record_a_latency_is_no_reading_more_where_one_turn_follows_the_other() {
    let clock = CountingClock::default();
    clock.time.advance(1_000_000);
    let plan = Plan::of(1, Form::TimeShare);
    let (shared, control) = rig::domain_of(&plan, &clock.time, ServerShared::default());
    let net = Net::new(Faults::NONE);
    let worker = Worker::new(WorkerId(0), shared, net.transport(), clock.clone(), Some(control));
    let mut worker = worker.expect("memory transports do not fail");
    let client = net.connect();
    rest(&mut worker);
    let alone = readings_of_get(&mut worker, &client, &clock);
    let behind = readings_of_get(&mut worker, &client, &clock);
    assert_eq!(behind, alone - 1, "a turn begins when the replies of the one before had left");
    rest(&mut worker);
    let after_rest = readings_of_get(&mut worker, &client, &clock);
    assert_eq!(after_rest, alone, "nothing was answered in the turn before");
    // Behind the replies of the turn before, half a line of another client was looked at.
    let other = net.connect();
    rest(&mut worker);
    assert_eq!(other.send(b"ge"), 2);
    readings_of_get(&mut worker, &client, &clock);
    let after_more = readings_of_get(&mut worker, &client, &clock);
    assert_eq!(after_more, alone, "the reading is older than what was done last");
}
