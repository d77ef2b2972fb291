//! A record of the cache lines that atomics touch, for tests of what threads share: with the
//! feature `lines` the atomics of [`crate::prim`] are these, which note where they are loaded and
//! stored. A line that one thread writes and another touches travels between their CPUs each time,
//! and how many such lines a request has says how its cost grows with the number of workers.
//!
//! What is behind std's mutexes is noted, their own words are not: `cargo xtask instructions`
//! counts every locked instruction.

use std::{cell::RefCell, collections::BTreeSet, sync::atomic::Ordering};

/// Bytes of a cache line.
const LINE_BYTES: usize = 64;

/// What this thread's atomics did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Touched {
    /// Lines loaded from, by number (address over 64).
    pub loaded: BTreeSet<usize>,
    /// Lines stored to.
    pub stored: BTreeSet<usize>,
    /// Read-modify-writes: locked instructions.
    pub exchanges: usize,
}

impl Touched {
    /// Lines that one of two threads stores to and the other touches.
    pub fn shared_with(&self, other: &Touched) -> BTreeSet<usize> {
        let touched = |by: &Touched| &by.loaded | &by.stored;
        &(&self.stored & &touched(other)) | &(&other.stored & &touched(self))
    }
}

thread_local! {
    static TOUCHED: RefCell<Touched> = RefCell::default();
}

/// What this thread touched since it was asked last.
pub fn take() -> Touched {
    TOUCHED.take()
}

fn note<T>(place: &T, change: impl FnOnce(&mut Touched, usize)) {
    let line = std::ptr::from_ref(place).addr() / LINE_BYTES;
    TOUCHED.with_borrow_mut(|touched| change(touched, line));
}

fn loaded<T>(place: &T) {
    note(place, |touched, line| {
        touched.loaded.insert(line);
    });
}

fn stored<T>(place: &T) {
    note(place, |touched, line| {
        touched.stored.insert(line);
    });
}

fn exchanged<T>(place: &T) {
    stored(place);
    note(place, |touched, _| touched.exchanges += 1);
}

macro_rules! noted {
    ($name:ident, $number:ty) => {
        /// std's, noted.
        #[derive(Debug, Default)]
        #[repr(transparent)]
        pub struct $name(std::sync::atomic::$name);

        #[allow(missing_docs)]
        impl $name {
            pub const fn new(value: $number) -> Self {
                $name(std::sync::atomic::$name::new(value))
            }

            pub fn load(&self, order: Ordering) -> $number {
                loaded(self);
                self.0.load(order)
            }

            pub fn store(&self, value: $number, order: Ordering) {
                stored(self);
                self.0.store(value, order);
            }

            noted!(exchanges $number: compare_exchange, compare_exchange_weak);
            noted!(of $number: swap, fetch_add, fetch_sub, fetch_max, fetch_or, fetch_and);
        }
    };
    (of $number:ty: $($method:ident),*) => {
        $(pub fn $method(&self, value: $number, order: Ordering) -> $number {
            exchanged(self);
            self.0.$method(value, order)
        })*
    };
    (exchanges $number:ty: $($method:ident),*) => {
        $(pub fn $method(
            &self,
            from: $number,
            to: $number,
            done: Ordering,
            failed: Ordering,
        ) -> Result<$number, $number> {
            exchanged(self);
            self.0.$method(from, to, done, failed)
        })*
    };
}

noted!(AtomicU8, u8);
noted!(AtomicU16, u16);
noted!(AtomicU32, u32);
noted!(AtomicU64, u64);
noted!(AtomicUsize, usize);
