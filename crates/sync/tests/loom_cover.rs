//! The cover under loom: of an item that was taken back, nobody tells who has not seen that, though
//! one thread raised the count and another lowered it.
//! `RUSTFLAGS="--cfg loom" cargo test -p laneway-sync --release --test loom_cover`
#![cfg(loom)]

use laneway_sync::cover::Cover;
use laneway_sync::prim::{
    AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};
use loom::sync::{Arc, Mutex};
use loom::thread;

/// An item in its bucket, as the pending-write filter has it.
struct Kept {
    /// Whoever changes something has it.
    lock: Mutex<()>,
    cover: Cover,
    /// It is there.
    item: AtomicU64,
    /// Items that were taken back.
    taken_back: AtomicU64,
}

/// One thread stores an item, and another, whose own change of another key is under the same count,
/// takes it back.
#[test]
fn what_was_taken_back_is_told_by_nobody() {
    loom::model(|| {
        let kept = Arc::new(Kept {
            lock: Mutex::new(()),
            cover: Cover::new(),
            item: AtomicU64::new(0),
            taken_back: AtomicU64::new(0),
        });
        let storer = {
            let kept = kept.clone();
            thread::spawn(move || {
                let _alone = kept.lock.lock().unwrap();
                kept.cover.raise_owner();
                kept.item.store(1, Release);
            })
        };
        let other = {
            let kept = kept.clone();
            thread::spawn(move || {
                let _alone = kept.lock.lock().unwrap();
                kept.cover.raise_owner();
                if kept.item.load(Relaxed) == 1 {
                    kept.item.store(0, Release);
                    kept.taken_back.fetch_add(1, Release);
                    kept.cover.lower_owner();
                }
                kept.cover.lower_owner();
            })
        };
        let sight = kept.taken_back.load(Acquire);
        if kept.item.load(Acquire) == 1 {
            let is_hidden = kept.cover.hides() || kept.taken_back.load(Relaxed) != sight;
            assert!(is_hidden, "an item that was never durable was told");
        }
        storer.join().unwrap();
        other.join().unwrap();
        // No change was lost between a load and a store.
        assert_eq!(kept.cover.hides(), kept.item.load(Relaxed) == 1);
    });
}
