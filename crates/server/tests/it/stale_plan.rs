//! A worker acts by the plan it has read at the beginning of its turn, and the next one may be in
//! force before the turn ends: nobody who is to take what was put down then may sleep on.

use laneway_policy::{CorePlan, Form, Role, WorkerId};
use laneway_rig::{Plan, Rig};
use laneway_server::clock::{Clock, ManualClock};
use laneway_server::shared::{ServerShared, Shared};
use laneway_server::worker::Worker;
use laneway_store::{Config, Moment, Store};
use laneway_transport::Wake;
use laneway_transport::memory::{Faults, MemoryStream, Net};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

const NOW: Moment = Moment::from_seconds(1);

/// Puts a plan in force when it is asked for the time at a certain turn of the code.
struct PublishingClock {
    time: ManualClock,
    shared: Arc<Shared<MemoryStream>>,
    /// How often it is asked before the plan comes.
    asked: Arc<AtomicUsize>,
    plan: CorePlan,
}

impl Clock for PublishingClock {
    fn nanos(&self) -> u64 {
        if self.asked.fetch_sub(1, Relaxed) == 1 {
            self.shared.plan.publish(self.plan.clone());
        }
        self.time.nanos()
    }
    fn unix_seconds(&self, nanos: u64) -> u32 {
        self.time.unix_seconds(nanos)
    }
    fn unix_nanos(&self, nanos: u64) -> u64 {
        self.time.unix_nanos(nanos)
    }
}

/// Counts how often a worker was woken.
#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(&self) {
        self.0.fetch_add(1, Relaxed);
    }
}

/// The plan of three workers of which `large` serves large requests alone.
fn plan_of(before: &CorePlan, large: usize) -> CorePlan {
    let mut plan = before.clone();
    plan.epoch += 1;
    plan.workers_small = 2;
    for (number, role) in plan.roles.iter_mut().enumerate() {
        *role = if number == large { Role::Large } else { Role::Small };
    }
    plan
}

#[test]
fn who_turned_large_since_is_woken_for_a_connection_in_the_shared_queue() {
    // Of a rig only the settings: here a plan comes in the middle of a step.
    let settings = Rig::new(&Plan::of(3, Form::Roles)).shared.settings.clone();
    let store = Store::new(Config::default()).expect("a small store");
    let mut draft = store.draft(b"big", 0, Moment::NEVER, 500_000).expect("there is room");
    draft.write(&[b'v'; 500_000]).expect("there is room");
    store.enter(store.hash(b"big"), b"big", NOW).publish(draft, None);
    let initial = laneway_policy::build(settings.policy.clone()).expect("they fit").initial();
    let (first, second) = (plan_of(&initial, 2), plan_of(&initial, 1));
    let (start, company) = (ManualClock::UNIX_START, ServerShared::default());
    let shared = Shared::in_company(store, settings, first, start, company);
    let net = Net::new(Faults::NONE);
    // The others sleep: all that there is of them is what wakes them.
    let woken = [1, 2].map(|number| {
        let waker = Arc::new(Woken::default());
        assert!(shared.workers[number].waker.set(waker.clone()).is_ok());
        waker
    });
    // The time is asked for at the beginning of a step, and when something has been received.
    let asked = Arc::new(AtomicUsize::new(0));
    let clock = PublishingClock {
        time: ManualClock::default(),
        shared: shared.clone(),
        asked: asked.clone(),
        plan: second,
    };
    let mut worker = Worker::new(WorkerId(0), shared.clone(), net.transport(), clock, None)
        .expect("memory transports do not fail");
    let client = net.connect();
    worker.step().expect("it is accepted");
    client.send(b"get big\r\n");
    let before = woken.each_ref().map(|woken| woken.0.load(Relaxed));
    asked.store(2, Relaxed);
    worker.step().expect("it is read and handed over");
    assert_eq!(shared.plan.get().role(WorkerId(1)), Role::Large, "the plan came in between");
    assert_eq!(shared.large_queue.len(), 1);
    assert!(woken[0].0.load(Relaxed) > before[0], "the new large worker sleeps on");
}
