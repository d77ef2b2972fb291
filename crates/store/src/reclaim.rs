//! What is dead and not taken out yet: who needs memory takes it, ahead of the sweep's hand.

use crate::{
    budget::{Budget, LOOK, READ},
    hook::Unlinked,
    large::LargeName,
    location::{Location, Medium},
    memory::SlotAt,
    meter,
    moment::Moment,
    record,
    store::Store,
};
use laneway_sync::prim::Ordering::Relaxed;

impl Store {
    /// The time that the sweep was told last. An order of memory is of no concern: who sees an
    /// older time takes less for dead.
    pub(crate) fn time_told(&self) -> Moment {
        Moment::from_unix_millis(self.told_millis.load(Relaxed))
    }

    /// Whether items that were flushed may still hold memory.
    pub(crate) fn may_hold_flushed(&self) -> bool {
        self.flush_generation.load(Relaxed) != self.flush_generation_swept.load(Relaxed)
    }

    /// Takes out an item that is dead, of the class or a large one, if one is found within the
    /// budget: for who may evict nothing, since the sweep may take long to get there.
    pub(crate) fn reclaim_dead(&self, class: usize, budget: &mut Budget) -> bool {
        let now = self.time_told();
        let has_records = class != self.memory.block_class();
        (has_records && self.reclaim_in_class(class, now, &mut budget.split()))
            || self.reclaim_large(now, budget)
    }

    fn reclaim_in_class(&self, class: usize, now: Moment, budget: &mut Budget) -> bool {
        while let Some(at) = self.next_used(class, budget) {
            budget.spend(READ);
            if self.take_dead(self.memory.offset_of(at), now) {
                return true;
            }
        }
        false
    }

    fn reclaim_large(&self, now: Moment, budget: &mut Budget) -> bool {
        let count = u64::from(self.large.highest());
        while count > 0 && !budget.is_spent() {
            meter::slots(1);
            budget.spend(READ);
            let number = (self.large.hand.fetch_add(1, Relaxed) % count) as u32;
            if self.take_dead_large(number, now, budget) {
                return true;
            }
        }
        false
    }

    /// Turns the class's hand to the next slot in use, in address order and round the end. `None`
    /// if there is no chunk, or the budget was spent before.
    fn next_used(&self, class: usize, budget: &mut Budget) -> Option<SlotAt> {
        let slots = self.memory.class(class).slots as u32;
        let mut state = self.memory.class(class).lock();
        while !budget.is_spent() {
            let (before, slot) = state.hand;
            let chunks = state.chunks();
            let place = chunks.partition_point(|&other| other < before);
            let (chunk, from) = match chunks.get(place) {
                Some(&chunk) if chunk == before && slot < slots => (chunk, slot),
                Some(&chunk) if chunk != before => (chunk, 0),
                // Behind the last slot of that chunk, or of all.
                _ => (*chunks.get(place + 1).or_else(|| chunks.first())?, 0),
            };
            let (used, words) = self.memory.used_from(class, chunk, from as usize);
            meter::slots(words + 1);
            budget.spend((words + 1) * LOOK);
            state.hand = (chunk, used.map_or(slots, |used| used as u32 + 1));
            if let Some(slot) = used {
                return Some(SlotAt { class, chunk, slot });
            }
        }
        None
    }

    /// Takes the small item at an offset out, if it is dead; true if so. Nothing living makes room
    /// for such, and none that was flushed may come behind the sweep's hand: a pass is taken to
    /// have seen all that were flushed before it ([`Store::flush_all`]). Its mark is left alone: it
    /// may be of a later second than `now`, and would be taken for one that is as old as can be.
    pub(crate) fn take_dead(&self, offset: usize, now: Moment) -> bool {
        let looks_dead = record::read(&self.memory.items, offset)
            .is_some_and(|header| self.is_dead(&header, now));
        looks_dead
            && self.unlink_slot(offset, Unlinked::Expired, &mut |header| self.is_dead(header, now))
    }

    /// The same of the large item of a descriptor: of its pieces as many as the budget allows.
    pub(crate) fn take_dead_large(&self, number: u32, now: Moment, budget: &mut Budget) -> bool {
        let Some(descriptor) = self.large.get(number).filter(|d| d.is_alive()) else {
            return false;
        };
        let looks_dead = record::read(&self.memory.items, descriptor.record_offset())
            .is_some_and(|header| self.is_dead(&header, now));
        if !looks_dead {
            return false;
        }
        let location = Location::new(Medium::Extent, 0, u64::from(number));
        let Some(hash) = self.hash_of(location) else { return false };
        let name = LargeName { descriptor: number, hash };
        self.unlink_large(name, Unlinked::Expired, budget, &mut |header| self.is_dead(header, now))
    }
}
