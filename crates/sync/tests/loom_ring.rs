//! The ring under loom: values arrive whole, once, and none is lost.
//! `RUSTFLAGS="--cfg loom" cargo test -p laneway-sync --release --test loom_ring`
#![cfg(loom)]

use laneway_sync::ring::Ring;
use loom::{sync::Arc, thread};

#[test]
fn what_two_producers_push_is_popped_exactly_once() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let ring = Arc::new(Ring::new(2));
        let producers: Vec<_> = [10u32, 20]
            .map(|value| {
                let ring = ring.clone();
                thread::spawn(move || ring.push(Box::new(value)).is_ok())
            })
            .into();
        let mut got: Vec<u32> = Vec::new();
        for _ in 0..2 {
            got.extend(ring.pop().map(|value| *value));
        }
        for producer in producers {
            assert!(producer.join().unwrap(), "two values fit into two places");
        }
        while let Some(value) = ring.pop() {
            got.push(*value);
        }
        got.sort_unstable();
        assert_eq!(got, [10, 20]);
    });
}

#[test]
fn two_consumers_never_share_a_value() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let ring = Arc::new(Ring::new(2));
        ring.push(1u32).unwrap();
        let other = {
            let ring = ring.clone();
            thread::spawn(move || ring.pop())
        };
        ring.push(2).unwrap();
        let mine = ring.pop();
        let theirs = other.join().unwrap();
        let mut all: Vec<u32> = mine.into_iter().chain(theirs).collect();
        all.extend(ring.pop());
        all.extend(ring.pop());
        all.sort_unstable();
        assert_eq!(all, [1, 2]);
    });
}

#[test]
fn a_place_is_reused_only_after_its_value_left() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let ring = Arc::new(Ring::new(2));
        ring.push(1u32).unwrap();
        ring.push(2).unwrap();
        let producer = {
            let ring = ring.clone();
            thread::spawn(move || ring.push(3))
        };
        assert_eq!(ring.pop(), Some(1), "the head of a ring at rest");
        let pushed = producer.join().unwrap();
        assert_eq!(ring.pop(), Some(2));
        assert_eq!(ring.pop(), pushed.is_ok().then_some(3));
    });
}
