//! Sleep under loom: nothing lies beside a sleeper, whoever puts it down, and one of two who would
//! wake it does. `RUSTFLAGS="--cfg loom" cargo test -p laneway-sync --release --test loom_sleep`
#![cfg(loom)]

use laneway_sync::prim::{
    AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};
use laneway_sync::ring::Ring;
use laneway_sync::sleep::{Posted, Sleeper};
use loom::{sync::Arc, thread};

/// A job in a ring, as workers hand them over.
#[test]
fn who_sleeps_beside_a_job_is_woken() {
    loom::model(|| {
        let jobs = Arc::new((Ring::new(2), Sleeper::new()));
        let poster = {
            let jobs = jobs.clone();
            thread::spawn(move || {
                jobs.0.push(7).expect("it has room");
                Posted::now().must_wake(&jobs.1)
            })
        };
        jobs.1.fall_asleep();
        let stays_awake = !jobs.0.is_empty();
        let woken = poster.join().unwrap();
        assert!(stays_awake || woken, "asleep beside a job");
    });
}

/// Two jobs of two posters, and a taker that sleeps, is woken and sleeps again: whatever is left
/// when it sleeps for good, somebody has woken it for.
#[test]
fn two_who_post_to_one_sleeper_leave_nothing_beside_it() {
    loom::model(|| {
        let sleeper = Arc::new(Sleeper::new());
        let jobs = Arc::new([AtomicU64::new(0), AtomicU64::new(0)]);
        let posters = [0, 1].map(|number| {
            let (jobs, sleeper) = (jobs.clone(), sleeper.clone());
            thread::spawn(move || {
                jobs[number].store(1, Relaxed);
                Posted::now().must_wake(&sleeper)
            })
        });
        sleeper.fall_asleep();
        let seen = jobs.iter().filter(|job| job.load(Relaxed) == 1).count();
        let woken = posters.map(|poster| poster.join().unwrap());
        let wakes = woken.iter().filter(|woken| **woken).count();
        assert!(wakes <= 1, "woken twice for one sleep");
        assert!(seen == 2 || wakes == 1, "asleep beside a job");
    });
}

/// Who helps; that somebody wants it; jobs.
type Shared = (Sleeper, AtomicU64, [AtomicU64; 2]);

/// Puts down a job, and does what is there unless another does. Returns what was done.
fn ask(shared: &Shared, number: usize) -> [u64; 2] {
    let (helping, is_wanted, jobs) = shared;
    let mut done = [0; 2];
    jobs[number].store(1, Relaxed);
    is_wanted.swap(1, Release);
    while Posted::now().must_wake(helping) {
        is_wanted.swap(0, Acquire);
        for (job, done) in jobs.iter().zip(&mut done) {
            *done |= job.load(Relaxed);
        }
        helping.fall_asleep();
        if is_wanted.load(Relaxed) == 0 {
            break;
        }
    }
    done
}

/// Who has a job leaves it to the one who helps, if somebody does: that one looks once more when he
/// has fallen asleep.
#[test]
fn a_job_that_is_left_to_another_is_done() {
    loom::model(|| {
        let words = || AtomicU64::new(0);
        let shared: Arc<Shared> = Arc::new((Sleeper::new(), words(), [words(), words()]));
        shared.0.fall_asleep();
        let other = {
            let shared = shared.clone();
            thread::spawn(move || ask(&shared, 1))
        };
        let done = ask(&shared, 0);
        let other = other.join().unwrap();
        assert_eq!([done[0] | other[0], done[1] | other[1]], [1, 1], "a job lies there");
    });
}
