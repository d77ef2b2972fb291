//! One word that lets readers hold memory which a writer may kill at any time: generation, dead
//! bit, count.
//!
//! The word lives in a type-stable table: it is never unmapped, so a late reader may look at it;
//! the generation tells it that the memory belongs to somebody else by now. A writer never waits:
//! it kills, and whoever lets go last frees.

use crate::canary::{Canary, sings};
use crate::prim::{
    AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};

const COUNT_MASK: u64 = (1 << 31) - 1;
const DEAD: u64 = 1 << 31;
const GENERATION_SHIFT: u32 = 32;

/// 32 bits of generation, the dead bit, 31 bits of count.
#[derive(Debug)]
pub struct Pin(AtomicU64);

/// What letting go of a pin means for the holder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Unpinned {
    /// Somebody else still holds it, or it is alive.
    Held,
    /// This was the last pin of something dead: the caller must free it.
    LastOfDead,
}

/// What killing means for the killer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Killed {
    /// Nobody holds it: the caller must free it.
    FreeNow,
    /// Somebody holds it: the last one to let go frees it.
    Later,
}

impl Default for Pin {
    fn default() -> Self {
        Pin::new()
    }
}

impl Pin {
    /// Dead, generation 0.
    #[cfg(not(loom))]
    pub const fn new() -> Self {
        Pin(AtomicU64::new(DEAD))
    }

    /// Dead, generation 0.
    #[cfg(loom)]
    pub fn new() -> Self {
        Pin(AtomicU64::new(DEAD))
    }

    /// The generation now, or `None` if it is dead. A guess: `try_pin` decides.
    #[inline]
    pub fn generation(&self) -> Option<u32> {
        let word = self.0.load(Relaxed);
        (word & DEAD == 0).then_some((word >> GENERATION_SHIFT) as u32)
    }

    /// Bring a dead and unheld word to life under the next generation, which is returned. Owner
    /// only.
    pub fn open_owner(&self) -> u32 {
        let word = self.0.load(Relaxed);
        debug_assert_eq!(word & (DEAD | COUNT_MASK), DEAD, "opened while alive or held");
        let generation = ((word >> GENERATION_SHIFT) as u32).wrapping_add(1);
        self.0.store(u64::from(generation) << GENERATION_SHIFT, Release); // (E) pairs with (F)
        generation
    }

    /// Hold the memory if it is alive and still of this generation.
    #[inline]
    pub fn try_pin(&self, generation: u32) -> bool {
        let mut word = self.0.load(Relaxed);
        // Lock-free: each failed exchange means that somebody else's succeeded.
        loop {
            let check = !sings(Canary::PinCheck);
            let stale = (word >> GENERATION_SHIFT) as u32 != generation || word & DEAD != 0;
            if (check && stale) || word & COUNT_MASK == COUNT_MASK {
                return false;
            }
            // Acquire (F) pairs with (E): what was written before it came to life is ours to read.
            match self.0.compare_exchange_weak(word, word + 1, Acquire, Relaxed) {
                Ok(_) => return true,
                Err(now) => word = now,
            }
        }
    }

    /// Let go.
    #[inline]
    pub fn unpin(&self) -> Unpinned {
        // Release (G): our reads end before the freeing. Acquire pairs with the (G) of the others,
        // and with (H).
        let word = self.0.fetch_sub(1, AcqRel);
        debug_assert_ne!(word & COUNT_MASK, 0, "unpinned more often than pinned");
        if word & (DEAD | COUNT_MASK) == DEAD | 1 { Unpinned::LastOfDead } else { Unpinned::Held }
    }

    /// No new pins from now on. Called once per generation.
    pub fn kill(&self) -> Killed {
        // Acquire pairs with (G): the reads of those who let go are over. Release (H): ours too.
        let word = self.0.fetch_or(DEAD, AcqRel);
        debug_assert_eq!(word & DEAD, 0, "killed twice");
        if word & COUNT_MASK == 0 { Killed::FreeNow } else { Killed::Later }
    }

    /// Kill it only if nobody holds it: the caller owns the memory then, and may `open_owner` it
    /// again.
    pub fn try_own(&self) -> bool {
        let word = self.0.load(Relaxed);
        // Acquire pairs with (G), as in `kill`: the reads of those who let go are over.
        word & (DEAD | COUNT_MASK) == 0
            && self.0.compare_exchange(word, word | DEAD, AcqRel, Relaxed).is_ok()
    }

    /// How many hold it now.
    pub fn count(&self) -> u32 {
        (self.0.load(Relaxed) & COUNT_MASK) as u32
    }
}
