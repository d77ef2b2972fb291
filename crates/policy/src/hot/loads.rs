//! What each worker had to do in the last timeslots (KeySched §2 "Core Load Monitor"), and which
//! of them has least.
//!
//! It departs from the poster in what "least loaded" means. By the sum of past slots alone the same
//! worker is least loaded for a whole slot, and gets every hot key of it. We rank by the past slots
//! *plus* what this slot has brought so far, promises included: what the hot keys already given to
//! a worker are expected to bring yet. The past counts with its sum: what one worker was ahead by
//! is paid back in full. Taken as a mean, a worker with many cold keys would have to stay ahead by
//! what its hot keys differ from those of others in each slot.
//!
//! It knows no key. Unit: whatever the caller charges; the poster charges requests.

use crate::units::WorkerId;
use alloc::vec;
use alloc::vec::Vec;

/// Timeslots that a worker's load is remembered for (KeySched §2: 100).
pub const LOAD_SLOTS: usize = 100;

/// By what the least loaded worker is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Rank {
    /// The past slots alone: the poster, word for word.
    PastSlots,
    /// The mean of the past slots, plus this slot's load and promises.
    MeanAndThisSlot,
    /// The sum of the past slots, plus this slot's load and promises.
    SumAndThisSlot,
}

/// The loads of all workers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CoreLoads {
    /// Slot after slot, all workers of a slot together.
    ring: Vec<u32>,
    /// Sum over the ring, for each worker.
    past: Vec<u64>,
    this_slot: Vec<u32>,
    promised: Vec<u32>,
    /// Slots in the ring that count.
    slots: usize,
    next: usize,
}

impl CoreLoads {
    /// Nothing done yet.
    pub fn new(workers: u16) -> Self {
        let workers = usize::from(workers);
        assert!(workers > 0);
        CoreLoads {
            ring: vec![0; workers * LOAD_SLOTS],
            past: vec![0; workers],
            this_slot: vec![0; workers],
            promised: vec![0; workers],
            slots: 0,
            next: 0,
        }
    }

    /// `worker` was given work.
    #[inline]
    pub fn charge(&mut self, worker: WorkerId, load: u32) {
        let slot = &mut self.this_slot[worker.index()];
        *slot = slot.saturating_add(load);
    }

    /// `worker` is expected to be given so much more in this slot.
    pub fn promise(&mut self, worker: WorkerId, load: u32) {
        let promised = &mut self.promised[worker.index()];
        *promised = promised.saturating_add(load);
    }

    /// So much of what was promised has come.
    pub fn keep(&mut self, worker: WorkerId, load: u32) {
        let promised = &mut self.promised[worker.index()];
        *promised = promised.saturating_sub(load);
    }

    /// What this slot has brought so far, of all workers anew: for who counts elsewhere.
    pub fn tell(&mut self, this_slot: impl IntoIterator<Item = u32>) {
        for (slot, load) in self.this_slot.iter_mut().zip(this_slot) {
            *slot = load;
        }
    }

    /// Nothing is expected of anybody.
    pub fn forget_promises(&mut self) {
        self.promised.fill(0);
    }

    /// The worker with least, the lowest number among equals.
    pub fn least(&self, rank: Rank) -> WorkerId {
        self.least_but(rank, None)
    }

    /// The same among all workers but one, where there is another.
    pub fn least_but(&self, rank: Rank, spared: Option<WorkerId>) -> WorkerId {
        let spared = spared.filter(|_| self.past.len() > 1);
        let slots = self.slots.max(1) as u64;
        let now =
            |worker: usize| u64::from(self.this_slot[worker]) + u64::from(self.promised[worker]);
        let load = |worker: usize| match rank {
            Rank::PastSlots => self.past[worker],
            // Times `slots`: the same order as with the mean, and exact.
            Rank::MeanAndThisSlot => self.past[worker] + now(worker) * slots,
            Rank::SumAndThisSlot => self.past[worker] + now(worker),
        };
        let others = (0..self.past.len()).filter(|&w| spared.is_none_or(|s| s.index() != w));
        let least = others.min_by_key(|&worker| load(worker));
        WorkerId(least.unwrap_or(0) as u16)
    }

    /// Put this slot's loads behind, forget the oldest slot's, and all promises.
    pub fn slot_ended(&mut self) {
        let workers = self.past.len();
        let place = &mut self.ring[self.next * workers..][..workers];
        let slot = place.iter_mut().zip(&mut self.this_slot).zip(&mut self.past);
        for ((oldest, now), past) in slot {
            *past = *past + u64::from(*now) - u64::from(*oldest);
            *oldest = core::mem::take(now);
        }
        self.forget_promises();
        self.next = (self.next + 1) % LOAD_SLOTS;
        self.slots = (self.slots + 1).min(LOAD_SLOTS);
    }
}
