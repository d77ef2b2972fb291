//! Where atomics come from: std, or loom when a model is checked (`--cfg loom`).

#[cfg(not(loom))]
pub use std::{
    hint::spin_loop,
    sync::atomic::{Ordering, fence},
    thread::yield_now,
};

#[cfg(all(feature = "lines", not(loom)))]
pub use crate::lines::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize};
#[cfg(not(any(feature = "lines", loom)))]
pub use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize};

#[cfg(loom)]
pub use loom::{
    hint::spin_loop,
    sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence},
    thread::yield_now,
};

#[cfg(loom)]
pub use loom::cell::UnsafeCell;

/// std's cell with the closures of loom's, so that one source serves both.
#[cfg(not(loom))]
#[derive(Debug)]
pub struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

#[cfg(not(loom))]
impl<T> UnsafeCell<T> {
    /// A cell holding `value`.
    pub const fn new(value: T) -> Self {
        UnsafeCell(std::cell::UnsafeCell::new(value))
    }

    /// Hands out the pointer for reading.
    #[inline]
    pub fn with<R>(&self, read: impl FnOnce(*const T) -> R) -> R {
        read(self.0.get())
    }

    /// Hands out the pointer for writing.
    #[inline]
    pub fn with_mut<R>(&self, write: impl FnOnce(*mut T) -> R) -> R {
        write(self.0.get())
    }
}

/// Tries before a waiting thread gives its CPU away. Nothing spins without this bound: four
/// real-time threads on one CPU must make progress.
pub const TRIES_BEFORE_YIELD: u32 = if cfg!(loom) { 1 } else { 64 };

/// Counts the tries of one wait and yields to the scheduler from the 64th on.
#[derive(Debug, Default)]
pub struct Patience {
    tries: u32,
}

impl Patience {
    /// A wait that has not begun.
    pub const fn new() -> Self {
        Patience { tries: 0 }
    }

    /// One try failed: spin a moment, or yield when there were many. True when it yielded.
    #[inline]
    pub fn pause(&mut self) -> bool {
        self.tries += 1;
        if self.tries < TRIES_BEFORE_YIELD {
            spin_loop();
            false
        } else {
            yield_now();
            true
        }
    }

    /// How many tries failed so far.
    pub const fn tries(&self) -> u32 {
        self.tries
    }
}
