//! Whether nothing is left, under loom: whoever is told so finds everything done.
//! `RUSTFLAGS="--cfg loom" cargo test -p laneway-sync --release --test loom_idle`
#![cfg(loom)]

use laneway_sync::idle::{Idle, is_nothing_left};
use laneway_sync::prim::{AtomicU64, Ordering::Relaxed};
use laneway_sync::ring::Ring;
use loom::{sync::Arc, thread};

/// Two workers and a queue between them.
struct House {
    first: Idle,
    second: Idle,
    queue: Ring<u64>,
    done: AtomicU64,
}

impl House {
    fn new() -> Arc<House> {
        let (first, second) = (Idle::new(), Idle::new());
        Arc::new(House { first, second, queue: Ring::new(2), done: AtomicU64::new(0) })
    }

    fn is_nothing_left(&self) -> bool {
        let idle = || self.first.is() && self.second.is();
        is_nothing_left(idle, || self.queue.is_empty())
    }

    /// One turn of the second worker.
    fn take(&self) {
        self.second.take_on();
        if self.queue.pop().is_some() {
            self.done.store(1, Relaxed);
        }
        self.second.tell(true);
    }
}

/// Something lies in the queue, and its taker, idle so far, takes it.
#[test]
fn what_was_just_taken_out_of_a_queue_is_not_overlooked() {
    loom::model(|| {
        let house = House::new();
        house.queue.push(7).expect("it has room");
        house.first.tell(true);
        house.second.tell(true);
        let taker = {
            let house = house.clone();
            thread::spawn(move || house.take())
        };
        if house.is_nothing_left() {
            assert_eq!(house.done.load(Relaxed), 1, "in somebody's hand");
        }
        taker.join().unwrap();
    });
}

/// The first worker has something in hand, gives it away and is idle; the second takes it.
#[test]
fn what_is_given_away_meanwhile_is_not_overlooked() {
    loom::model(|| {
        let house = House::new();
        house.second.tell(true);
        let giver = {
            let house = house.clone();
            thread::spawn(move || {
                house.queue.push(7).expect("it has room");
                house.first.tell(true);
            })
        };
        let taker = {
            let house = house.clone();
            thread::spawn(move || house.take())
        };
        if house.is_nothing_left() {
            assert_eq!(house.done.load(Relaxed), 1, "overlooked");
        }
        giver.join().unwrap();
        taker.join().unwrap();
    });
}
