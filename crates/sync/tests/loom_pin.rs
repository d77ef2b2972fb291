//! The pin under loom: what is pinned is not freed, what is dead is freed exactly once, and a stale
//! generation pins nothing. `RUSTFLAGS="--cfg loom" cargo test -p laneway-sync --release --test
//! loom_pin`
#![cfg(loom)]
#![allow(unsafe_code, reason = "the extent stands for memory that is freed")]

use laneway_sync::{
    pin::{Killed, Pin, Unpinned},
    prim::{
        AtomicU64,
        Ordering::{Acquire, Relaxed, Release},
        UnsafeCell,
    },
};
use loom::{sync::Arc, thread};

struct Extent {
    pin: Pin,
    /// loom complains when a read and a write of the cell overlap.
    bytes: UnsafeCell<u64>,
    freed: AtomicU64,
}

// SAFETY: that accesses to `bytes` do not overlap is what the models check.
unsafe impl Sync for Extent {}
// SAFETY: as above.
unsafe impl Send for Extent {}

fn extent() -> (Arc<Extent>, u32) {
    let extent = Extent { pin: Pin::new(), bytes: UnsafeCell::new(0), freed: AtomicU64::new(0) };
    // SAFETY: nobody else has it yet.
    extent.bytes.with_mut(|bytes| unsafe { *bytes = 7 });
    let generation = extent.pin.open_owner();
    (Arc::new(extent), generation)
}

impl Extent {
    fn read(&self, generation: u32) {
        if self.pin.try_pin(generation) {
            // SAFETY: pinned.
            assert_eq!(self.bytes.with(|bytes| unsafe { *bytes }), 7, "read after it was freed");
            if self.pin.unpin() == Unpinned::LastOfDead {
                self.free();
            }
        }
    }

    fn kill(&self) {
        if self.pin.kill() == Killed::FreeNow {
            self.free();
        }
    }

    fn free(&self) {
        // SAFETY: dead and unheld.
        self.bytes.with_mut(|bytes| unsafe { *bytes = 99 });
        self.freed.fetch_add(1, Relaxed);
    }
}

#[test]
fn what_is_killed_under_two_readers_is_freed_once_after_them() {
    loom::model(|| {
        let (extent, generation) = extent();
        let readers = [(), ()].map(|()| {
            let extent = extent.clone();
            thread::spawn(move || extent.read(generation))
        });
        extent.kill();
        for reader in readers {
            reader.join().unwrap();
        }
        assert_eq!(extent.freed.load(Relaxed), 1);
    });
}

#[test]
fn a_stale_generation_pins_nothing() {
    loom::model(|| {
        let (extent, generation) = extent();
        let reused = Arc::new(AtomicU64::new(0));
        let reader = {
            let (extent, reused) = (extent.clone(), reused.clone());
            thread::spawn(move || {
                // Once the second life was seen, the first one's number must not work.
                let second = reused.load(Acquire) == 1;
                let pinned = extent.pin.try_pin(generation);
                assert!(!(second && pinned), "pinned another life");
                if pinned && extent.pin.unpin() == Unpinned::LastOfDead {
                    extent.free();
                }
            })
        };
        if extent.pin.kill() == Killed::FreeNow {
            extent.free();
            let next = extent.pin.open_owner();
            assert_eq!(next, generation + 1);
            reused.store(1, Release);
        }
        reader.join().unwrap();
    });
}

#[test]
fn an_owner_for_a_while_meets_no_reader() {
    loom::model(|| {
        let (extent, generation) = extent();
        let reader = {
            let extent = extent.clone();
            thread::spawn(move || {
                let now = extent.pin.generation().unwrap_or(generation);
                extent.read(now);
            })
        };
        if extent.pin.try_own() {
            // SAFETY: dead and unheld.
            extent.bytes.with_mut(|bytes| unsafe { *bytes = 7 });
            extent.pin.open_owner();
        }
        reader.join().unwrap();
        assert_eq!(extent.freed.load(Relaxed), 0);
    });
}
