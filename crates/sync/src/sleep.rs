//! Whoever has nothing to do sleeps, and nothing lies beside a sleeper: it says that it falls
//! asleep and looks once more, and whoever puts something down looks at that after.
//!
//! Each side writes a word of its own and reads the other's, so both need a fence between the two
//! (as in Dekker's algorithm): with it one of them sees the other. How something is put down, what
//! is looked at once more, and what wakes a sleeper are the callers'.

use crate::canary::{Canary, sings};
use crate::prim::{
    AtomicU32,
    Ordering::{Relaxed, SeqCst},
    fence,
};

/// Whether somebody sleeps.
#[derive(Debug)]
pub struct Sleeper(AtomicU32);

impl Default for Sleeper {
    fn default() -> Self {
        Sleeper::new()
    }
}

impl Sleeper {
    /// Awake.
    pub fn new() -> Sleeper {
        Sleeper(AtomicU32::new(0))
    }

    /// It is about to sleep: from now on it is to be woken. The caller looks once more, and does
    /// not sleep if something is there.
    #[inline]
    pub fn fall_asleep(&self) {
        self.0.store(1, Relaxed);
        if !sings(Canary::SleepSleeper) {
            fence(SeqCst); // (T) pairs with (S): what was put down before (S) is seen, or we are
        }
    }

    /// It is awake: nobody needs to wake it. Whoever sees that late wakes it for nothing.
    #[inline]
    pub fn wake_up(&self) {
        self.0.store(0, Relaxed);
    }
}

/// Something was put down, and whoever would take it is looked at from here on.
#[derive(Debug)]
pub struct Posted(());

impl Posted {
    /// Called behind the push, or whatever made it visible.
    #[inline]
    pub fn now() -> Posted {
        if !sings(Canary::SleepPoster) {
            fence(SeqCst); // (S) pairs with (T)
        }
        Posted(())
    }

    /// Whether to wake this one. True once for each time that it fell asleep: who is to be woken is
    /// no longer asleep for the next one who looks.
    #[inline]
    pub fn must_wake(&self, sleeper: &Sleeper) -> bool {
        // An exchange writes where somebody is woken alone.
        let asleep = sleeper.0.load(Relaxed) != 0;
        asleep && sleeper.0.compare_exchange(1, 0, Relaxed, Relaxed).is_ok()
    }
}
