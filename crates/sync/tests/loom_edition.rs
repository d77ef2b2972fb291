//! The edition under loom: what is put down for those who followed an older plan is found by those
//! who follow the new one, or its poster wakes all; and a number never comes before what it counts.
//! `RUSTFLAGS="--cfg loom" cargo test -p laneway-sync --release --test loom_edition`
#![cfg(loom)]

use laneway_sync::edition::Edition;
use laneway_sync::prim::{AtomicU64, Ordering::Relaxed};
use laneway_sync::ring::Ring;
use loom::{sync::Arc, thread};

/// A worker becomes one who takes from the shared queue, and looks at it once. Another, whose plan
/// is the old one, puts something there meanwhile.
#[test]
fn nothing_lies_in_a_queue_whose_new_taker_has_looked_already() {
    loom::model(|| {
        let shared = Arc::new((Edition::new(), Ring::new(2)));
        let planner = {
            let shared = shared.clone();
            thread::spawn(move || shared.0.publish())
        };
        let poster = {
            let shared = shared.clone();
            thread::spawn(move || {
                shared.1.push(7).expect("it has room");
                shared.0.is_over(1)
            })
        };
        // Who does not see the new plan yet is woken behind it, and looks then.
        let found = shared.0.newer_than(1).map(|_| !shared.1.is_empty());
        planner.join().unwrap();
        let wakes_all = poster.join().unwrap();
        assert!(found != Some(false) || wakes_all, "it lies beside a taker that nobody wakes");
    });
}

/// Whoever knows the number of a plan knows the plan.
#[test]
fn a_number_is_not_there_before_what_it_counts() {
    loom::model(|| {
        let shared = Arc::new((Edition::new(), AtomicU64::new(1)));
        let planner = {
            let shared = shared.clone();
            thread::spawn(move || {
                shared.1.store(2, Relaxed);
                shared.0.publish();
            })
        };
        if shared.0.number() == 2 {
            assert_eq!(shared.1.load(Relaxed), 2, "a number without its plan");
        }
        planner.join().unwrap();
    });
}
