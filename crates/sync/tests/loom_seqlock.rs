//! The version under loom: a read that validates is never torn, and two writers are never inside
//! together. `RUSTFLAGS="--cfg loom" cargo test -p laneway-sync --release --test loom_seqlock`
#![cfg(loom)]

use laneway_sync::{
    prim::{
        AtomicU64,
        Ordering::{Acquire, Relaxed, Release},
        fence,
    },
    version::Version,
};
use loom::{sync::Arc, thread};

struct Bucket {
    version: Version,
    words: [AtomicU64; 2],
}

fn bucket() -> Arc<Bucket> {
    Arc::new(Bucket { version: Version::new(), words: [AtomicU64::new(0), AtomicU64::new(0)] })
}

impl Bucket {
    fn write(&self) {
        let before = self.version.enter();
        let next = self.words[0].load(Relaxed) + 1;
        self.words[0].store(next, Relaxed);
        self.words[1].store(next, Relaxed);
        self.version.leave(before);
    }

    fn read(&self) -> Option<[u64; 2]> {
        let before = self.version.read_begin()?;
        let copy = [self.words[0].load(Relaxed), self.words[1].load(Relaxed)];
        self.version.validate(before).then_some(copy)
    }
}

#[test]
fn a_validated_read_is_whole() {
    loom::model(|| {
        let bucket = bucket();
        let writer = {
            let bucket = bucket.clone();
            thread::spawn(move || bucket.write())
        };
        if let Some([a, b]) = bucket.read() {
            assert_eq!(a, b, "torn");
        }
        writer.join().unwrap();
        assert_eq!(bucket.read(), Some([1, 1]));
    });
}

#[test]
fn writers_take_turns() {
    loom::model(|| {
        let bucket = bucket();
        let other = {
            let bucket = bucket.clone();
            thread::spawn(move || bucket.write())
        };
        bucket.write();
        other.join().unwrap();
        assert_eq!(bucket.read(), Some([2, 2]), "a write was lost");
    });
}

/// A writer that leaves unchanged, then one that changes: the restored version must not hide the
/// change.
#[test]
fn leaving_unchanged_hides_nothing() {
    loom::model(|| {
        let bucket = bucket();
        let writer = {
            let bucket = bucket.clone();
            thread::spawn(move || {
                let before = bucket.version.enter();
                bucket.version.leave_unchanged(before);
                bucket.write();
            })
        };
        if let Some([a, b]) = bucket.read() {
            assert_eq!(a, b, "torn");
        }
        writer.join().unwrap();
    });
}

/// Memory reuse: the slot's item is unlinked under the version, freed, and its memory is written by
/// another thread that never enters this bucket. A reader that saw the new bytes must not validate.
#[test]
fn a_read_of_reused_memory_does_not_validate() {
    struct Reuse {
        bucket: Bucket,
        /// 1 = linked; the item's memory holds 7 while it is.
        memory: AtomicU64,
        freed: AtomicU64,
    }
    loom::model(|| {
        let reuse = Arc::new(Reuse {
            bucket: Bucket {
                version: Version::new(),
                words: [AtomicU64::new(1), AtomicU64::new(0)],
            },
            memory: AtomicU64::new(7),
            freed: AtomicU64::new(0),
        });
        let unlinker = {
            let reuse = reuse.clone();
            thread::spawn(move || {
                let before = reuse.bucket.version.enter();
                reuse.bucket.words[0].store(0, Relaxed);
                reuse.bucket.version.leave(before);
                reuse.freed.store(1, Release); // the class's mutex, in the store
            })
        };
        let drafter = {
            let reuse = reuse.clone();
            thread::spawn(move || {
                if reuse.freed.load(Acquire) == 1 {
                    fence(Release); // as `Store::draft` does before it writes
                    reuse.memory.store(99, Relaxed);
                }
            })
        };
        if let Some(before) = reuse.bucket.version.read_begin()
            && reuse.bucket.words[0].load(Relaxed) == 1
        {
            let value = reuse.memory.load(Relaxed);
            if reuse.bucket.version.validate(before) {
                assert_eq!(value, 7, "validated somebody else's bytes");
            }
        }
        unlinker.join().unwrap();
        drafter.join().unwrap();
    });
}
