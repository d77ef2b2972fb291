//! The durable executor at rest: its own thread sleeps, and what others leave under way wakes it.
//! A worker that goes on with it does not sleep before.

use laneway_policy::{Design, Form};
use laneway_rig::durable::{Kept, Machine, settings};
use laneway_rig::{Plan, Rig, value};
use laneway_server::clock::Clock;
use laneway_tier::{Durability, Settings};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

const MS: u64 = 1_000_000;

/// How long its thread would sleep now, and whether it is told then that it was left something.
fn rest(rig: &Rig) -> (u64, bool) {
    let mut executor = rig.executor.as_ref().expect("items are kept").lock();
    let now = rig.clock.nanos();
    (executor.due_nanos().saturating_sub(now) / MS, executor.is_due_sooner())
}

fn is_due_sooner(rig: &Rig) -> bool {
    rig.executor.as_ref().expect("items are kept").lock().is_due_sooner()
}

/// Until a look for expired items finds that nobody has written since the last.
fn pass_time(rig: &mut Rig) {
    for _ in 0..3 {
        rig.clock.advance(150 * MS);
        rig.turns(20);
    }
}

#[test]
fn at_rest_the_executor_sleeps_until_something_is_left_under_way() {
    let machine = Machine::new(1 << 20, 8 << 20);
    let kept = Kept::of(&machine.open(settings()).expect("the media are sound"));
    let plan = Plan { kept: Some(kept.clone()), ..Plan::of(1, Form::TimeShare) };
    let mut rig = Rig::new(&plan);
    let client = rig.net.connect();
    rig.set(&client, "key", &value(300, 1));
    pass_time(&mut rig);
    let (sleeps_ms, is_woken) = rest(&rig);
    assert!(500 < sleeps_ms && !is_woken, "{sleeps_ms} ms");
    // A write that waits for its device.
    kept.gate.commits_wait.store(true, Relaxed);
    assert!(rig.send(&client, b"set key 0 0 1\r\nx\r\n").is_empty());
    rig.turns(20);
    assert!(is_due_sooner(&rig) && !is_due_sooner(&rig), "its thread is woken once");
    let (sleeps_ms, is_woken) = rest(&rig);
    assert!(sleeps_ms <= 50 && !is_woken, "{sleeps_ms} ms");
    kept.gate.commits_wait.store(false, Relaxed);
    rig.turns(50);
    assert_eq!(client.receive(usize::MAX), b"STORED\r\n");
    // Expired items are looked for more often again, until nobody has written for a while.
    rig.clock.advance(1000 * MS);
    rig.turns(20);
    let (sleeps_ms, _) = rest(&rig);
    assert!(sleeps_ms <= 100, "{sleeps_ms} ms");
    pass_time(&mut rig);
    assert!(500 < rest(&rig).0);
    // A flush to come.
    assert_eq!(rig.ask(&client, b"flush_all 100\r\n", b"\r\n"), b"OK\r\n");
    rig.turns(20);
    assert!(is_due_sooner(&rig) && rest(&rig).0 <= 50, "its second is not missed");
}

/// A crash loses no more than the interval, however short that is, and whoever made the step that
/// appended.
#[test]
fn with_an_interval_the_executor_wakes_when_a_commit_is_due() {
    let machine = Machine::new(1 << 20, 8 << 20);
    let durability = Durability::Interval;
    let tier = machine.open(Settings { durability, ..settings() }).expect("the media are sound");
    let kept = Kept { interval: Some(Duration::from_millis(10)), ..Kept::of(&tier) };
    let plan = Plan { kept: Some(kept.clone()), ..Plan::of(1, Form::TimeShare) };
    let mut rig = Rig::new(&plan);
    let client = rig.net.connect();
    rig.set(&client, "key", &value(300, 1));
    pass_time(&mut rig);
    // This one is made durable at once, and while that is under way its thread looks now and then.
    kept.gate.commits_wait.store(true, Relaxed);
    rig.set(&client, "key", &value(300, 2));
    let (sleeps_ms, _) = rest(&rig);
    assert!((11..=50).contains(&sleeps_ms), "{sleeps_ms} ms");
    kept.gate.commits_wait.store(false, Relaxed);
    rig.set(&client, "key", &value(300, 3));
    assert!(is_due_sooner(&rig) && !is_due_sooner(&rig), "its thread is woken once");
    let (sleeps_ms, _) = rest(&rig);
    assert!(sleeps_ms <= 10, "{sleeps_ms} ms");
    // Nothing is left to be made durable.
    rig.clock.advance(10 * MS);
    rig.turns(20);
    let (sleeps_ms, _) = rest(&rig);
    assert!(100 < sleeps_ms, "{sleeps_ms} ms");
}

/// More than a step begins, which is 64.
const SETS: u64 = 300;

/// Requests for them.
fn sets() -> Vec<u8> {
    b"set k 0 0 1\r\nv\r\n".repeat(SETS as usize)
}

/// A server of one worker, which steps the executor.
fn helped(plan: Plan) -> Rig {
    let machine = Machine::new(1 << 20, 8 << 20);
    let kept = Kept::of(&machine.open(settings()).expect("the media are sound"));
    let rig = Rig::new(&Plan { kept: Some(kept), ..plan });
    rig.let_help();
    rig
}

fn begun(rig: &Rig) -> u64 {
    rig.shared.durable.get().expect("kept").counts.requests.load(Relaxed)
}

/// What a worker's step leaves to begin is for its own next turn: nobody else comes for it.
#[test]
fn a_worker_that_has_left_something_to_begin_does_not_sleep() {
    let mut rig = helped(Plan::of(1, Form::TimeShare));
    let _executor = rig.executor.take(); // nobody but the worker makes a step
    let sleeps = |rig: &Rig| rig.workers[0].transport().inner().asleep().is_some();
    let client = rig.net.connect();
    let at_rest = (0..10_000).any(|_| {
        rig.turn();
        sleeps(&rig)
    });
    assert!(at_rest, "it has nothing to do");
    assert_eq!(client.send(&sets()), sets().len());
    let mut went_on = 0;
    for _ in 0..100 {
        let had = begun(&rig);
        rig.turn();
        if 0 < had && had < SETS {
            assert!(!sleeps(&rig), "behind {had} of {SETS}");
            went_on += 1;
        }
    }
    assert_eq!((begun(&rig), 2 < went_on), (SETS, true), "it went on {went_on} times");
}

/// Its next turn may send all of a large value, and others' small requests are in what is left.
#[test]
fn what_is_left_is_for_the_executors_thread_where_requests_run_to_completion() {
    let mut rig = helped(Plan::design(Design::Hkh, 1));
    let rings = Arc::new(AtomicU64::new(0));
    let counts = rings.clone();
    rig.shared.durable.get().expect("kept").set_bell(Box::new(move || {
        counts.fetch_add(1, Relaxed);
    }));
    let executor = rig.executor.take();
    let client = rig.net.connect();
    assert_eq!(client.send(&sets()), sets().len());
    rig.turns(50);
    assert!((1..SETS).contains(&begun(&rig)), "{} were begun", begun(&rig));
    assert_eq!(rings.load(Relaxed), 1);
    rig.executor = executor;
    let got = rig.until(&client, Vec::new(), |got| got.len() >= SETS as usize * 8);
    assert!(got == b"STORED\r\n".repeat(SETS as usize));
}
