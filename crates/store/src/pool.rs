//! The pool of chunks that all classes borrow from and give back to.
//!
//! It counts chunks against the memory limit, together with the index. The last few chunks are a
//! reserve: only a class that is entitled (it has none, or turns its own over faster than the
//! others) may take these; see `evict`.

use laneway_sync::prim::{AtomicU64, Ordering::Relaxed};
use std::{
    ops::RangeInclusive,
    sync::{Mutex, MutexGuard, PoisonError},
};

/// Chunks that are in no class, and the count of all.
#[derive(Debug)]
pub struct Pool {
    state: Mutex<PoolState>,
    /// What `state` says of chunks taken, and of free ones: for who must not lock.
    taken: AtomicU64,
    free: AtomicU64,
    chunk_bytes: u64,
    /// Chunk numbers run up to here, from 1 at least: the number 0 would make the location 0, which
    /// means an empty slot.
    chunk_last: u32,
}

#[derive(Debug)]
struct PoolState {
    /// Given back, and possibly still backed by pages.
    free: Vec<u32>,
    /// Given back, and its pages returned to the system.
    bare: Vec<u32>,
    fresh: u32,
    taken: u32,
    limit_bytes: u64,
    reserve: bool,
}

/// Chunks in numbers.
#[derive(Debug, Clone, Copy)]
pub struct PoolCounts {
    /// How many more may be taken; negative when the limit was lowered.
    pub available: i64,
    /// How many of these the entitled alone may take.
    pub reserve: i64,
}

impl Pool {
    /// Of the chunks `numbers`. `reserve` says whether to keep one (a store that may not evict
    /// needs none).
    pub fn new(
        chunk_bytes: u64,
        numbers: RangeInclusive<u32>,
        limit_bytes: u64,
        reserve: bool,
    ) -> Pool {
        let state = PoolState {
            free: Vec::new(),
            bare: Vec::new(),
            fresh: *numbers.start(),
            taken: 0,
            limit_bytes,
            reserve,
        };
        Pool {
            state: Mutex::new(state),
            taken: AtomicU64::new(0),
            free: AtomicU64::new(0),
            chunk_bytes,
            chunk_last: *numbers.end(),
        }
    }

    /// Chunks in classes, and those in none that hold pages; takes no lock.
    pub fn taken_and_free(&self) -> (u64, u64) {
        (self.taken.load(Relaxed), self.free.load(Relaxed)) // statistics: nothing hangs on them
    }

    fn show(&self, state: &PoolState) {
        self.taken.store(state.taken.into(), Relaxed); // statistics, written under the lock
        self.free.store(state.free.len() as u64, Relaxed);
    }

    fn lock(&self) -> MutexGuard<'_, PoolState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn counts_of(&self, state: &PoolState, other_bytes: u64) -> PoolCounts {
        let limit_chunks = state.limit_bytes.saturating_sub(other_bytes) / self.chunk_bytes;
        let limit_chunks = limit_chunks.clamp(1, u64::from(self.chunk_last).max(1)) as i64;
        PoolCounts {
            available: limit_chunks - i64::from(state.taken),
            reserve: if state.reserve { (limit_chunks / 32).min(4) } else { 0 },
        }
    }

    /// `other_bytes` is what else counts against the limit (the index).
    pub fn counts(&self, other_bytes: u64) -> PoolCounts {
        self.counts_of(&self.lock(), other_bytes)
    }

    /// A chunk, if the limit allows.
    pub fn take(&self, other_bytes: u64, entitled: bool) -> Option<u32> {
        self.take_above(other_bytes, |counts| if entitled { 0 } else { counts.reserve })
    }

    /// A chunk that so many others may go beyond the limit with, until chunks have been emptied.
    pub fn overdraw(&self, other_bytes: u64, most: usize) -> Option<u32> {
        self.take_above(other_bytes, |_| -(most as i64))
    }

    /// A chunk, if more than so many may still be taken.
    fn take_above(&self, other_bytes: u64, floor: impl Fn(&PoolCounts) -> i64) -> Option<u32> {
        let mut state = self.lock();
        let counts = self.counts_of(&state, other_bytes);
        if counts.available <= floor(&counts) {
            return None;
        }
        let chunk = state.free.pop().or_else(|| state.bare.pop()).or_else(|| {
            (state.fresh <= self.chunk_last).then(|| {
                state.fresh += 1;
                state.fresh - 1
            })
        })?;
        state.taken += 1;
        self.show(&state);
        Some(chunk)
    }

    /// A chunk comes back. `discard` returns its pages to the system, called if the pool holds more
    /// than it may use.
    pub fn give(&self, chunk: u32, other_bytes: u64, discard: impl FnOnce(u32)) {
        let mut state = self.lock();
        state.taken -= 1;
        if self.counts_of(&state, other_bytes).available <= state.free.len() as i64 {
            discard(chunk);
            state.bare.push(chunk);
        } else {
            state.free.push(chunk);
        }
        self.show(&state);
    }

    /// Returns the pages of one chunk to the system, by `discard`, if the free ones are more than
    /// may still be taken, as they are once the limit was lowered; true if there was one.
    pub fn discard_surplus(&self, other_bytes: u64, discard: impl FnOnce(u32)) -> bool {
        let mut state = self.lock();
        let surplus = state.free.len() as i64 > self.counts_of(&state, other_bytes).available;
        let Some(chunk) = surplus.then(|| state.free.pop()).flatten() else { return false };
        drop(state); // to discard takes the kernel a while
        discard(chunk);
        let mut state = self.lock();
        state.bare.push(chunk);
        self.show(&state);
        true
    }

    /// Change the limit.
    pub fn set_limit_bytes(&self, bytes: u64) {
        self.lock().limit_bytes = bytes;
    }

    /// The highest chunk number ever taken.
    pub fn highest(&self) -> u32 {
        self.lock().fresh - 1
    }
}
