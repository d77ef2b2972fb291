//! The notice under loom: what is read is one post, whole; and that whoever reads an older one may
//! still write, since who owns a key is routing and the version of its bucket keeps it safe.
//! `RUSTFLAGS="--cfg loom" cargo test -p laneway-sync --release --test loom_notice`
#![cfg(loom)]

use laneway_sync::{
    canary::{Canary, sings},
    notice::Notice,
    prim::{AtomicU64, Ordering::Relaxed},
    version::Version,
};
use loom::{sync::Arc, thread};

#[test]
fn what_is_read_is_one_post_and_the_newest_comes_at_last() {
    loom::model(|| {
        let notice = Arc::new(Notice::new(2));
        notice.post(&[1, 1]);
        let poster = {
            let notice = notice.clone();
            thread::spawn(move || notice.post(&[2]))
        };
        let mut copy = Vec::new();
        let known = notice.read(0, &mut copy);
        if known.is_some() {
            assert!([&[1, 1][..], &[2]].contains(&copy.as_slice()), "torn: {copy:?}");
        }
        poster.join().unwrap();
        let newest = notice.read(known.unwrap_or(0), &mut copy);
        assert!(newest.is_some() || known == Some(4), "the newest is missed");
        assert_eq!(copy, [2]);
    });
}

#[test]
fn two_posts_at_once_do_not_mix() {
    loom::model(|| {
        let notice = Arc::new(Notice::new(2));
        let other = {
            let notice = notice.clone();
            thread::spawn(move || notice.post(&[1, 1]))
        };
        notice.post(&[2, 2]);
        other.join().unwrap();
        let mut copy = Vec::new();
        assert!(notice.read(0, &mut copy).is_some());
        assert_eq!(copy[0], copy[1]);
    });
}

/// Two workers, each of which adds 1 to the key's item if the table that it knows says that it is
/// the owner. The key moves meanwhile: one of them or both may think so, and nothing added is lost.
/// They do it as `incr` does: read outside the bucket, make the new item, enter, and publish it
/// only if what is there is still what was read. Without that look (a canary) the model fails.
#[test]
fn a_key_that_moves_while_it_is_written_loses_no_write() {
    struct Key {
        owner: Notice,
        version: Version,
        value: AtomicU64,
    }
    impl Key {
        fn add_if_owned(&self, me: u64) -> u64 {
            let mut copy = Vec::new();
            if self.owner.read(0, &mut copy).is_none() || copy != [me] {
                return 0;
            }
            loop {
                let Some(before) = self.version.read_begin() else {
                    thread::yield_now();
                    continue;
                };
                let read = self.value.load(Relaxed);
                if !self.version.validate(before) {
                    continue;
                }
                let entered = self.version.enter();
                let is_unchanged =
                    self.value.load(Relaxed) == read || sings(Canary::NoticeUnchanged);
                if is_unchanged {
                    self.value.store(read + 1, Relaxed);
                }
                self.version.leave(entered);
                if is_unchanged {
                    return 1;
                }
            }
        }
    }
    loom::model(|| {
        let key = Arc::new(Key {
            owner: Notice::new(1),
            version: Version::new(),
            value: AtomicU64::new(0),
        });
        key.owner.post(&[1]);
        let first = {
            let key = key.clone();
            thread::spawn(move || key.add_if_owned(1))
        };
        key.owner.post(&[2]);
        let added = key.add_if_owned(2) + first.join().unwrap();
        assert_eq!(key.value.load(Relaxed), added);
    });
}
