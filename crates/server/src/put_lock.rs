//! `--put-lock`: the spinlock that guards every PUT in Minos (§4.2), for comparison. Nothing here
//! needs it: a writer enters the key's bucket by its version, so concurrent PUTs are safe without.
//!
//! One lock for the keys of a share of the hashes. It spins [`TRIES`] times, then yields between
//! tries, since nobody may spin for ever. Knows no worker.

use laneway_store::KeyHash;
use std::sync::{Mutex, MutexGuard, TryLockError};

/// Locks; a power of two.
const LOCKS: usize = 1024;
/// Tries before it yields.
const TRIES: u32 = 64;

/// The locks, where they are asked for.
pub struct PutLocks(Box<[Mutex<()>]>);

impl PutLocks {
    /// Locks, or none.
    pub fn new(asked_for: bool) -> PutLocks {
        let count = if asked_for { LOCKS } else { 0 };
        PutLocks((0..count).map(|_| Mutex::new(())).collect())
    }

    /// Enter, for one PUT of the key that `hash` tells.
    pub fn enter(&self, hash: impl FnOnce() -> KeyHash) -> Option<MutexGuard<'_, ()>> {
        if self.0.is_empty() {
            return None;
        }
        let lock = &self.0[hash().0 as usize % LOCKS];
        for tries in 0_u32.. {
            match lock.try_lock() {
                Ok(guard) => return Some(guard),
                Err(TryLockError::Poisoned(guard)) => return Some(guard.into_inner()),
                Err(TryLockError::WouldBlock) if tries < TRIES => std::hint::spin_loop(),
                Err(TryLockError::WouldBlock) => std::thread::yield_now(),
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

    #[test]
    fn puts_of_one_key_go_one_by_one_and_without_the_flag_there_is_no_lock() {
        assert!(PutLocks::new(false).enter(|| KeyHash(1)).is_none());
        let locks = PutLocks::new(true);
        let (inside, most, all) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for _ in 0..2_000 {
                        let guard = locks.enter(|| KeyHash(7));
                        most.fetch_max(inside.fetch_add(1, Relaxed) + 1, Relaxed);
                        inside.fetch_sub(1, Relaxed);
                        all.fetch_add(u64::from(guard.is_some()), Relaxed);
                    }
                });
            }
        });
        assert_eq!((most.into_inner(), all.into_inner()), (1, 6_000));
    }
}
