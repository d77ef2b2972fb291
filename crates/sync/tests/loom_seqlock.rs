//! The version under loom: a read that validates is never torn, and two writers are never inside
//! together. `RUSTFLAGS="--cfg loom" cargo test -p laneway-sync --release --test loom_seqlock`
#![cfg(loom)]

use laneway_sync::{
    prim::{
        AtomicU64,
        Ordering::{Acquire, Relaxed, Release},
    },
    version::{Version, before_reuse},
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
                    before_reuse(); // as `Store::draft` does before it writes
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

/// The same of an overflow bucket: it is given back inside the bucket whose chain it was in, and
/// taken by a writer that entered another bucket before, so that neither version's own fence stands
/// between the two.
#[test]
fn a_read_of_a_reused_overflow_bucket_does_not_validate() {
    struct Chains {
        one: Bucket,
        other: Version,
        /// A word of the overflow bucket: 7 while it is in the chain of `one`.
        overflow: AtomicU64,
        free: AtomicU64,
    }
    loom::model(|| {
        let one = Bucket { version: Version::new(), words: [AtomicU64::new(1), AtomicU64::new(0)] };
        let chains = Arc::new(Chains {
            one,
            other: Version::new(),
            overflow: AtomicU64::new(7),
            free: AtomicU64::new(0),
        });
        let shortener = {
            let chains = chains.clone();
            thread::spawn(move || {
                let before = chains.one.version.enter();
                chains.one.words[0].store(0, Relaxed); // the link
                chains.free.store(1, Release); // the list's mutex, in the store
                chains.one.version.leave(before);
            })
        };
        let lengthener = {
            let chains = chains.clone();
            thread::spawn(move || {
                let before = chains.other.enter();
                if chains.free.load(Acquire) == 1 {
                    before_reuse(); // as `Index::take_overflow` does
                    chains.overflow.store(99, Relaxed);
                }
                chains.other.leave(before);
            })
        };
        if let Some(before) = chains.one.version.read_begin()
            && chains.one.words[0].load(Relaxed) == 1
        {
            let word = chains.overflow.load(Relaxed);
            if chains.one.version.validate(before) {
                assert_eq!(word, 7, "validated another chain's word");
            }
        }
        shortener.join().unwrap();
        lengthener.join().unwrap();
    });
}

/// Two buckets are entered before either is written, and left one after the other, as
/// `store::entries` does: who has met the change of the first one does not see the other as it was.
#[test]
fn who_has_met_one_of_two_changes_does_not_miss_the_other() {
    loom::model(|| {
        let (left, right) = (bucket(), bucket());
        let writer = {
            let (left, right) = (left.clone(), right.clone());
            thread::spawn(move || {
                let before = [&left, &right].map(|bucket| bucket.version.enter());
                for bucket in [&left, &right] {
                    bucket.words.iter().for_each(|word| word.store(1, Relaxed));
                }
                left.version.leave(before[0]);
                right.version.leave(before[1]);
            })
        };
        if left.read() == Some([1, 1]) {
            assert_ne!(right.read(), Some([0, 0]), "half of a change was seen");
        }
        writer.join().unwrap();
        assert_eq!((left.read(), right.read()), (Some([1, 1]), Some([1, 1])));
    });
}
