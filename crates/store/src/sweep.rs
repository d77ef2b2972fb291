//! The background sweep: a hand over all slots that takes out what expired or was flushed, a
//! bounded stretch a turn.
//!
//! It also holds old hit marks so that idle times do not wrap, goes on emptying chunks where memory
//! is over its limit, and vouches for flush generations: they are kept modulo 64, so before a 64th
//! flush the sweep must have passed. Who needs memory does not wait for it (`reclaim`).

use crate::{
    budget::{Budget, LOOK, READ, STEP, TAKE_OUT},
    cursor::Sweeper,
    mark,
    memory::SlotAt,
    meter,
    moment::Moment,
    record::FLUSH_GENERATIONS,
    store::Store,
    types::Mode,
};
use laneway_sync::prim::{AtomicU16, Ordering::Relaxed};
use std::sync::{Arc, PoisonError};

/// Slots that one call of `flush_all` looks at where a sweep must come first.
const FLUSH_SLOTS: usize = 1024;

/// What one step of the sweep came to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Swept {
    /// Slots, chunks and large items looked at.
    pub slots: usize,
    /// Items that were dead, and are taken out.
    pub expired: usize,
    /// A pass over everything has ended and nothing is left to be freed, or another thread is at
    /// it: there is no hurry.
    pub is_over: bool,
}

impl Store {
    /// Everything stored so far is dead from now on. Bounded time: false, and nothing was done but
    /// a stretch of the sweep, after 60 calls that no full sweep came in between of; then it is to
    /// be called again, until it is true.
    #[must_use]
    pub fn flush_all(&self) -> bool {
        let mut sweeper = self.sweeper.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.sweep_for_flush(&mut sweeper) && self.are_used_up(&sweeper) {
            return false;
        }
        let generation = self.flush_generation.load(Relaxed).wrapping_add(1);
        self.flush_generation.store(generation, Relaxed);
        self.memory.set_flush(generation);
        true
    }

    /// The same of several stores: false, and none is flushed and one swept for a stretch, as long
    /// as one of them must be swept first.
    #[must_use]
    pub fn flush_each<'a>(mut stores: impl Iterator<Item = &'a Arc<Store>> + Clone) -> bool {
        let may_be_flushed = |store: &Arc<Store>| {
            let mut sweeper = store.sweeper.lock().unwrap_or_else(PoisonError::into_inner);
            store.sweep_for_flush(&mut sweeper)
        };
        // Whoever flushes one in between may have this one do the same again.
        stores.clone().all(may_be_flushed) && stores.all(|store| store.flush_all())
    }

    /// Whether there are generations left for a flush. Where there are none, a stretch is swept,
    /// behind which there may be.
    fn sweep_for_flush(&self, sweeper: &mut Sweeper) -> bool {
        let may_flush = !self.are_used_up(sweeper);
        if !may_flush {
            self.sweep_locked(sweeper, Moment::NEVER, FLUSH_SLOTS, &mut Budget::of(STEP));
        }
        may_flush
    }

    /// Whether items may be left of the generation that would come next.
    fn are_used_up(&self, sweeper: &Sweeper) -> bool {
        let generation = self.flush_generation.load(Relaxed);
        generation.wrapping_sub(sweeper.generation_before) >= FLUSH_GENERATIONS - 4
    }

    /// One bounded step of the background sweep: looks at `slots` slots at most.
    pub fn sweep(&self, now: Moment, slots: usize) -> Swept {
        let mut budget = Budget::of(STEP);
        self.told_millis.store(now.unix_millis(), Relaxed); // see `time_told`
        if self.has_remains() {
            self.give_remains(&mut budget.split());
        }
        if self.mode == Mode::Cache && self.memory.pool_counts().available < 0 {
            self.drain_step(&mut budget.split()); // the sweep goes on meanwhile
        }
        let discarded = self.memory.discard_surplus();
        let has_buffers = self.give_buffers();
        match self.sweeper.try_lock() {
            Ok(mut sweeper) => {
                let swept = self.sweep_locked(&mut sweeper, now, slots, &mut budget);
                let remains = self.has_remains() || has_buffers;
                let is_over = swept.is_over && !remains && !discarded;
                Swept { is_over, ..swept }
            }
            Err(_) => Swept { is_over: true, ..Swept::default() }, // somebody else is at it
        }
    }

    fn sweep_locked(
        &self,
        sweeper: &mut Sweeper,
        now: Moment,
        slots: usize,
        budget: &mut Budget,
    ) -> Swept {
        let mut swept = Swept::default();
        let highest = self.memory.chunk_highest();
        let numbers = self.large.highest();
        while swept.slots < slots && !budget.is_spent() {
            meter::slots(1);
            budget.spend(LOOK);
            swept.slots += 1; // walking past chunks is work, too
            if sweeper.chunk <= highest {
                let class = self.memory.class_of_chunk(sweeper.chunk);
                let class = class.filter(|&class| class != self.memory.block_class());
                let class = class.filter(|&class| sweeper.slot < self.memory.class(class).slots);
                let Some(class) = class else {
                    (sweeper.chunk, sweeper.slot) = (sweeper.chunk + 1, 0);
                    continue;
                };
                let at = SlotAt { class, chunk: sweeper.chunk, slot: sweeper.slot };
                sweeper.slot += 1;
                if self.memory.is_used(at) {
                    budget.spend(READ);
                    let expired = usize::from(self.sweep_slot(at, now));
                    budget.spend(expired * TAKE_OUT);
                    swept.expired += expired;
                }
            } else if sweeper.large < numbers {
                budget.spend(READ);
                let expired = usize::from(self.sweep_large(sweeper.large, now, budget));
                budget.spend(expired * TAKE_OUT);
                swept.expired += expired;
                sweeper.large += 1;
            } else {
                let generation = self.flush_generation.load(Relaxed);
                self.flush_generation_swept.store(sweeper.generation, Relaxed); // a hint
                *sweeper = Sweeper {
                    generation,
                    generation_before: sweeper.generation,
                    passes: sweeper.passes + 1,
                    ..Sweeper::default()
                };
                swept.is_over = true;
                break;
            }
        }
        swept
    }

    fn sweep_slot(&self, at: SlotAt, now: Moment) -> bool {
        hold_mark(self.memory.mark_of(at), now);
        self.take_dead(self.memory.offset_of(at), now)
    }

    fn sweep_large(&self, number: u32, now: Moment, budget: &mut Budget) -> bool {
        let Some(descriptor) = self.large.get(number).filter(|d| d.is_alive()) else {
            return false;
        };
        hold_mark(&descriptor.mark, now);
        self.take_dead_large(number, now, budget)
    }
}

/// Holds a mark, if the time is told.
fn hold_mark(place: &AtomicU16, now: Moment) {
    if now != Moment::NEVER {
        let mark = mark::load(place);
        mark::store(place, mark, mark.held(now));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{read::Got, types::Config};

    const NOW: Moment = Moment::from_seconds(1);

    #[test]
    fn no_flush_sweeps_everything_at_once_and_none_is_lost() {
        const ITEMS: usize = 20_000;
        let store = Store::new(Config { memory_bytes: 16 << 20, ..Config::default() });
        let store = store.expect("a small store");
        let set = |key: &str| {
            let hash = store.hash(key.as_bytes());
            let mut draft =
                store.draft(key.as_bytes(), 0, Moment::NEVER, 8).expect("there is room");
            draft.write(b"whatever").expect("there is room");
            store.enter(hash, key.as_bytes(), NOW).publish(draft, None);
        };
        let get = |key: &str| {
            let (hash, mut out) = (store.hash(key.as_bytes()), Vec::new());
            !matches!(store.get(hash, key.as_bytes(), NOW, &mut out, &mut |_, _| {}), Got::Miss)
        };
        (0..ITEMS).for_each(|number| set(&format!("old{number}")));
        let mut refused = 0;
        for round in 0..200 {
            let key = format!("new{round}");
            set(&key);
            for calls in 0.. {
                let passes = store.sweeper.lock().expect("nobody panicked").passes;
                if store.flush_all() {
                    break;
                }
                refused += 1;
                let after = store.sweeper.lock().expect("nobody panicked").passes;
                assert!(after <= passes + 1, "a bounded stretch a call");
                assert!(get(&key), "a flush that was refused flushed nothing");
                assert!(calls < 100 * ITEMS, "it never gets there");
            }
            assert!(!get(&key), "round {round}");
        }
        assert!(refused >= ITEMS / FLUSH_SLOTS, "{refused} calls shared the sweep");
        assert!((0..ITEMS).all(|number| !get(&format!("old{number}"))), "nothing came back");
    }
}
