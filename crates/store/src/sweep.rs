//! The background sweep: a hand over all slots that takes out what expired or was flushed, a
//! bounded stretch a turn.
//!
//! It also holds old hit marks so that idle times do not wrap, goes on emptying chunks where memory
//! is over its limit, and vouches for flush generations: they are kept modulo 64, so before a 64th
//! flush the sweep must have passed.

use crate::{
    cursor::Sweeper,
    hook::Unlinked,
    large::LargeName,
    location::{Location, Medium},
    mark,
    memory::SlotAt,
    record::{self, FLUSH_GENERATIONS},
    store::Store,
    types::{Mode, UnixSeconds},
};
use laneway_sync::prim::Ordering::Relaxed;
use std::sync::PoisonError;

impl Store {
    /// Everything stored so far is dead from now on. Constant time, but for every 60th call without
    /// a full sweep in between, which sweeps.
    pub fn flush_all(&self) {
        let mut sweeper = self.sweeper.lock().unwrap_or_else(PoisonError::into_inner);
        let generation = self.flush_generation.load(Relaxed);
        if generation.wrapping_sub(sweeper.generation_before) >= FLUSH_GENERATIONS - 4 {
            for _ in 0..2 {
                let pass = sweeper.passes;
                while sweeper.passes == pass {
                    self.sweep_locked(&mut sweeper, 0, 4096);
                }
            }
        }
        self.flush_generation.store(generation.wrapping_add(1), Relaxed);
    }

    /// One bounded turn of the background sweep: looks at about `slots` slots; returns items
    /// expired.
    pub fn sweep(&self, now: UnixSeconds, slots: usize) -> usize {
        if self.mode == Mode::Cache && self.memory.pool_counts().available < 0 {
            self.drain_step(slots);
        }
        match self.sweeper.try_lock() {
            Ok(mut sweeper) => self.sweep_locked(&mut sweeper, now, slots),
            Err(_) => 0, // somebody else is at it
        }
    }

    fn sweep_locked(&self, sweeper: &mut Sweeper, now: UnixSeconds, slots: usize) -> usize {
        let mut expired = 0;
        let mut left = slots;
        let highest = self.memory.chunk_highest();
        while left > 0 && sweeper.chunk <= highest {
            let Some(class) = self.memory.class_of_chunk(sweeper.chunk) else {
                sweeper.chunk += 1;
                sweeper.slot = 0;
                left -= 1;
                continue;
            };
            if class == self.memory.block_class() || sweeper.slot >= self.memory.class(class).slots
            {
                sweeper.chunk += 1;
                sweeper.slot = 0;
                continue;
            }
            let at = SlotAt { class, chunk: sweeper.chunk, slot: sweeper.slot };
            sweeper.slot += 1;
            left -= 1;
            if self.memory.is_used(at) {
                expired += usize::from(self.sweep_slot(at, now));
            }
        }
        let numbers = self.large.highest();
        while left > 0 && sweeper.large < numbers {
            expired += usize::from(self.sweep_large(sweeper.large, now));
            sweeper.large += 1;
            left -= 1;
        }
        if left > 0 {
            let generation = self.flush_generation.load(Relaxed);
            *sweeper = Sweeper {
                generation,
                generation_before: sweeper.generation,
                passes: sweeper.passes + 1,
                ..Sweeper::default()
            };
        }
        expired
    }

    fn sweep_slot(&self, at: SlotAt, now: UnixSeconds) -> bool {
        let place = self.memory.mark_of(at);
        let mark = mark::load(place);
        if now != 0 {
            mark::store(place, mark, mark.held(now));
        }
        let offset = self.memory.offset_of(at);
        let looks_dead = record::read(&self.memory.items, offset)
            .is_some_and(|header| self.is_dead(&header, now));
        looks_dead
            && self.unlink_slot(offset, Unlinked::Expired, &mut |header| self.is_dead(header, now))
    }

    fn sweep_large(&self, number: u32, now: UnixSeconds) -> bool {
        let Some(descriptor) = self.large.get(number).filter(|d| d.is_alive()) else {
            return false;
        };
        let mark = mark::load(&descriptor.mark);
        if now != 0 {
            mark::store(&descriptor.mark, mark, mark.held(now));
        }
        let looks_dead = record::read(&self.memory.items, descriptor.record_offset())
            .is_some_and(|header| self.is_dead(&header, now));
        if !looks_dead {
            return false;
        }
        let location = Location::new(Medium::Extent, 0, u64::from(number));
        let Some(hash) = self.hash_of(location) else { return false };
        let name = LargeName { descriptor: number, hash };
        self.unlink_large(name, Unlinked::Expired, &mut |header| self.is_dead(header, now))
    }
}
