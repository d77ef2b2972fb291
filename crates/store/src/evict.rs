//! Making room: a clock per class, a clock over the large items, and chunks that move between the
//! classes.
//!
//! A clock's hand walks the class's slots in address order; a hit sets a mark (2 bits of frequency,
//! no lock), the hand takes it down and evicts what it finds at 0. New items begin at 0, right
//! behind the hand.
//!
//! Classes compete for chunks by turnover: bytes evicted lately per byte held, where a byte of an
//! item weighs less the larger the item is (by its root). A class that turns over faster than the
//! whole, and has evicted a chunk's worth since it got its last chunk, is entitled to one more.
//! Chunks are emptied for it ahead of time, a few slots per draft, chosen by one hand that walks
//! all chunks in address order and skips classes with a turnover above the mean; items of it that
//! were used lately move to other slots of their class. So sizes that nobody stores any more give
//! their memory up, and a mix at rest moves nothing.
//!
//! Every call does a bounded amount of work. Nothing here is called from inside a bucket.

use crate::{
    budget::{Budget, COPY_BYTES, LOOK, PICK, PICK_LOOKS, READ, STEP, TAKE_OUT, WAIT_STEPS},
    cursor::{Drain, Draining},
    geometry::BLOCK_BYTES,
    hook::Unlinked,
    large::{LargeName, owner_of},
    location::{Location, Medium},
    mark::{self, Mark},
    memory::SlotAt,
    meter, record,
    store::Store,
    types::Mode,
};
use laneway_sync::{prim::Ordering::Relaxed, version::before_reuse, words};
use std::sync::PoisonError;

/// Rounds of evicting before a draft gives up, or waits for a whole chunk.
const ROUNDS: usize = 16;
/// Where nothing may be evicted, what a draft may do to find what is dead already.
const RECLAIM: usize = STEP / 4;
/// Larger classes that a small draft tries where its own has nothing to give up.
const LARGER_CLASSES: usize = 8;
/// Chunks the draining hand passes over for their turnover, before it takes any.
const SKIPS: u32 = 256;
/// A class whose turnover is so many times the mean waits for a fraction of a chunk's evictions
/// only.
const TURNOVER_URGENT: u64 = 4;
const URGENT_FRACTION: u64 = 8;

/// A byte of large items evicted counts this much of a byte of small ones: one large item has the
/// room of hundreds of small ones, whose hits together are more.
const LARGE_WEIGHT: (u64, u64) = (1, 2);

/// What an eviction was for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cause {
    /// Its class had no room: this is what turnover counts.
    Demand,
    /// A chunk is being emptied for another class.
    Drain,
}

impl Store {
    /// A slot of the class, by whatever it takes. Of a small item it may be one of a larger class.
    #[inline]
    pub(crate) fn allocate_small(&self, class: usize) -> Option<usize> {
        if let Some(offset) = self.memory.take(class) {
            return Some(offset);
        }
        self.allocate_bounded(class)
            .or_else(|| self.allocate_larger(class))
            .or_else(|| self.allocate_overdrawn(class))
            .or_else(|| self.allocate_by_force(class))
    }

    /// No larger class has anything either: a chunk beyond the limit, for a class that has none.
    fn allocate_overdrawn(&self, class: usize) -> Option<usize> {
        let overdrawn = self.mode == Mode::Cache && self.memory.overdraw(class);
        overdrawn.then(|| self.memory.take(class)).flatten()
    }

    /// A slot of the class, by whatever it takes.
    pub(crate) fn allocate(&self, class: usize) -> Option<usize> {
        self.allocate_bounded(class).or_else(|| self.allocate_by_force(class))
    }

    /// A slot of the class, by one bounded step.
    pub(crate) fn allocate_bounded(&self, class: usize) -> Option<usize> {
        self.memory
            .take(class)
            .or_else(|| self.allocate_within(class, &mut Budget::of(STEP), &mut Budget::of(PICK)))
    }

    /// The same, where so much may be done to empty a chunk, and so much to find what to evict.
    pub(crate) fn allocate_within(
        &self,
        class: usize,
        drain: &mut Budget,
        pick: &mut Budget,
    ) -> Option<usize> {
        if self.mode == Mode::Store {
            return self.allocate_free(class);
        }
        for round in 0..ROUNDS {
            if let Some(offset) = self.memory.take(class) {
                return Some(offset);
            }
            if self.memory.grow(class, false) {
                continue;
            }
            if self.give_remains(drain) {
                continue;
            }
            let entitled = self.is_entitled(class);
            if entitled && self.memory.grow(class, true) {
                continue;
            }
            let pool = self.memory.pool_counts();
            if entitled || pool.available < pool.reserve {
                self.drain_step(drain);
            }
            let evicted = self.evict_in_class(class, Cause::Demand, pick);
            if !evicted && (round >= ROUNDS / 2 || pick.is_spent()) {
                break;
            }
        }
        self.memory.take(class)
    }

    /// A slot of the class where nothing may be evicted. Only an empty chunk of another class can
    /// help, or what is dead already: all that is left of large items that are over if need be,
    /// since nothing is refused while there is some; and of what was flushed or has expired, and is
    /// not taken out yet, what a short look finds.
    fn allocate_free(&self, class: usize) -> Option<usize> {
        let mut looks = Budget::of(RECLAIM);
        loop {
            if let Some(offset) = self.memory.take(class) {
                return Some(offset);
            }
            let helped = self.memory.grow(class, false)
                || self.memory.release_empty()
                || self.give_remains(&mut Budget::of(STEP))
                || self.reclaim_dead(class, &mut looks);
            if !helped {
                return None;
            }
        }
    }

    /// The class has nothing that could be evicted, and a chunk for it is not empty yet: a small
    /// item lies in a slot of a larger class until it is written again, so that nobody waits.
    fn allocate_larger(&self, class: usize) -> Option<usize> {
        if self.mode == Mode::Store {
            return None;
        }
        let held = |class: &usize| self.memory.class(*class).chunks_held.load(Relaxed) > 0;
        let larger = (class + 1..self.memory.block_class()).filter(held).take(LARGER_CLASSES);
        let mut pick = Budget::of(PICK);
        for class in larger {
            let evicts = |pick: &mut Budget| self.evict_in_class(class, Cause::Demand, pick);
            let found = self
                .memory
                .take(class)
                .or_else(|| evicts(&mut pick).then(|| self.memory.take(class)).flatten());
            if found.is_some() || pick.is_spent() {
                return found;
            }
        }
        None
    }

    /// The class has nothing that could be evicted: empty chunks of others until one comes free.
    fn allocate_by_force(&self, class: usize) -> Option<usize> {
        if self.mode == Mode::Store {
            return None;
        }
        self.memory.release_empty();
        (0..WAIT_STEPS).find_map(|_| self.allocate_step(class))
    }

    /// One bounded step of that.
    pub(crate) fn allocate_step(&self, class: usize) -> Option<usize> {
        if self.memory.grow(class, true)
            && let Some(offset) = self.memory.take(class)
        {
            return Some(offset);
        }
        // Here it is worth waiting for whoever is at it: there is no other way on.
        let mut drain = self.drain.lock().unwrap_or_else(PoisonError::into_inner);
        self.drain_on(&mut drain, Some(class), &mut Budget::of(STEP));
        self.memory.take(class)
    }

    /// Bytes evicted lately, weighed, and bytes held, of one class.
    fn turnover(&self, class: usize) -> (u64, u64) {
        let this = self.memory.class(class);
        let held = this.chunks_held.load(Relaxed) * (this.slots * this.slot_bytes) as u64;
        let recent = this.evicted_bytes_recent.load(Relaxed);
        let (n, d) = if class == self.memory.block_class() { LARGE_WEIGHT } else { (1, 1) };
        (recent * this.byte_weight * n / d, held)
    }

    /// The same of all classes that share a pool with one.
    fn turnover_mean(&self, beside: usize) -> (u64, u64) {
        self.memory
            .classes_beside(beside)
            .map(|class| self.turnover(class))
            .fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
    }

    /// Whether the class may take a chunk from the reserve.
    pub(crate) fn is_entitled(&self, class: usize) -> bool {
        let held = self.memory.class(class);
        if held.chunks_held.load(Relaxed) == 0 {
            return true;
        }
        let (since, slots) = (held.evicted_since_chunk.load(Relaxed), held.slots as u64);
        if since < slots.div_ceil(URGENT_FRACTION) {
            return false;
        }
        let ((own, own_held), (all, all_held)) = (self.turnover(class), self.turnover_mean(class));
        let (rest, rest_held) = (all.saturating_sub(own), all_held.saturating_sub(own_held));
        // Whether our turnover is more than `n / d` times that of the others.
        let beyond = |n: u64, d: u64| {
            u128::from(d * own) * u128::from(rest_held)
                > u128::from(n * rest) * u128::from(own_held)
        };
        // An eighth above: noise moves no chunks.
        beyond(TURNOVER_URGENT, 1) || (since >= slots && beyond(9, 8))
    }

    /// Count an eviction from a class towards its turnover.
    fn note_eviction(&self, class: usize, slots: u64, cause: Cause) {
        let class = self.memory.class(class);
        let bytes = slots * class.slot_bytes as u64;
        class.evicted.fetch_add(slots, Relaxed);
        if cause == Cause::Drain {
            return;
        }
        class.evicted_since_chunk.fetch_add(slots, Relaxed);
        class.evicted_bytes_recent.fetch_add(bytes, Relaxed);
        let recent = self.counters.evicted_bytes_recent.fetch_add(bytes, Relaxed) + bytes;
        // A quarter of the memory was evicted: what lies further back counts half.
        if recent > self.memory.limit_bytes() / 4
            && self
                .counters
                .evicted_bytes_recent
                .compare_exchange(recent, 0, Relaxed, Relaxed)
                .is_ok()
        {
            self.halve_turnover(0);
        }
    }

    /// What a class and those beside it evicted so far counts half from now on.
    pub(crate) fn halve_turnover(&self, beside: usize) {
        for class in self.memory.classes_beside(beside) {
            let class = self.memory.class(class);
            let recent = class.evicted_bytes_recent.load(Relaxed);
            class.evicted_bytes_recent.fetch_sub(recent / 2, Relaxed);
        }
    }

    /// Evict one item of the class (of large items: one, whole). False if the hand found none in
    /// its bounded walk.
    fn evict_in_class(&self, class: usize, cause: Cause, budget: &mut Budget) -> bool {
        if class == self.memory.block_class() {
            return self.evict_large(cause, budget);
        }
        let Some(victim) = self.pick(class, budget) else { return false };
        let offset = self.memory.offset_of(victim);
        if self.take_dead(offset, self.time_told()) {
            return true; // it was dead: that is no eviction, and says nothing of the turnover
        }
        if self.unlink_slot(offset, Unlinked::Evicted, &mut |_| true) {
            self.note_eviction(class, 1, cause);
            return true;
        }
        // Perhaps the last piece of a large item.
        self.evict_owner(class, offset, cause, budget)
    }

    /// Turn the class's hand. `None` if it met nothing in use before the budget was spent.
    pub(crate) fn pick(&self, class: usize, budget: &mut Budget) -> Option<SlotAt> {
        let mut state = self.memory.class(class).lock();
        let (chunk, mut slot) = state.hand;
        let mut place = state.chunks().partition_point(|&other| other < chunk);
        if state.chunks().get(place) != Some(&chunk) {
            slot = 0;
        }
        let mut least: Option<(u16, SlotAt)> = None;
        let mut looks = 0;
        let may_be_flushed = self.may_hold_flushed();
        while looks < PICK_LOOKS && !budget.is_spent() {
            // In address order, round the end.
            place = if place < state.chunks().len() { place } else { 0 };
            let chunk = *state.chunks().get(place)?;
            state.hand = (chunk, slot);
            let (used, words) = match self.memory.is_draining(chunk) {
                true => (None, 0),
                false => self.memory.used_from(class, chunk, slot as usize),
            };
            meter::slots(words + 1);
            budget.spend((words + 1) * LOOK);
            let Some(used) = used else {
                (place, slot) = (place + 1, 0);
                continue;
            };
            slot = used as u32 + 1;
            state.hand = (chunk, slot);
            let at = SlotAt { class, chunk, slot: used };
            let mark_place = self.memory.mark_of(at);
            let mark = self.memory.load_mark(mark_place, self.memory.offset_of(at), None);
            if mark.frequency() == 0 || (may_be_flushed && self.was_flushed(at, budget)) {
                return Some(at);
            }
            mark::store(mark_place, mark, mark.cooled());
            if least.is_none_or(|(frequency, _)| mark.frequency() < frequency) {
                least = Some((mark.frequency(), at));
            }
            looks += 1;
        }
        least.map(|(_, at)| at)
    }

    /// Whether the item in a slot looks as if it was flushed, however often it was asked for.
    fn was_flushed(&self, at: SlotAt, budget: &mut Budget) -> bool {
        budget.spend(READ);
        record::read(&self.memory.items, self.memory.offset_of(at))
            .is_some_and(|header| header.flush != self.flush_now())
    }

    /// Turn the hand over the large items, and evict one. Those that are being read are passed
    /// over: to evict such frees nothing yet, and what many clients read would be lost first. Where
    /// the hand meets nothing else, one of them goes all the same: readers who come one after the
    /// other might keep them for ever, and nobody reads anew what was evicted.
    fn evict_large(&self, cause: Cause, budget: &mut Budget) -> bool {
        let count = u64::from(self.large.highest());
        if count == 0 {
            return false;
        }
        let mut least: Option<(u16, u32)> = None;
        let mut read: Option<u32> = None;
        let may_be_flushed = self.may_hold_flushed();
        for _ in 0..PICK_LOOKS {
            if budget.is_spent() {
                break;
            }
            meter::slots(1);
            budget.spend(READ);
            let number = (self.large.hand.fetch_add(1, Relaxed) % count) as u32;
            let Some(descriptor) = self.large.get(number).filter(|d| d.is_alive()) else {
                continue;
            };
            if may_be_flushed && self.take_dead_large(number, self.time_told(), budget) {
                return true; // see `evict_in_class`
            }
            if descriptor.is_pinned() {
                read = Some(number); // its memory comes back with its last reader, who may be slow
                continue;
            }
            let mark = mark::load(&descriptor.mark);
            if mark.frequency() == 0 {
                if self.evict_descriptor(number, cause, budget) {
                    return true;
                }
                continue;
            }
            mark::store(&descriptor.mark, mark, mark.cooled());
            if least.is_none_or(|(frequency, _)| mark.frequency() < frequency) {
                least = Some((mark.frequency(), number));
            }
        }
        let victim = least.map(|(_, number)| number).or(read);
        victim.is_some_and(|number| self.evict_descriptor(number, cause, budget))
    }

    /// Evict the large item of a descriptor. At least one of its pieces is free then, and as many
    /// as the budget allows.
    fn evict_descriptor(&self, number: u32, cause: Cause, budget: &mut Budget) -> bool {
        if self.take_dead_large(number, self.time_told(), budget) {
            return true; // it was dead: see `evict_in_class`
        }
        let location = Location::new(Medium::Extent, 0, u64::from(number));
        let Some(hash) = self.hash_of(location) else { return false };
        let held = self.large.get(number).map_or(0, |descriptor| descriptor.held_bytes());
        let name = LargeName { descriptor: number, hash };
        let evicted = self.unlink_large(name, Unlinked::Evicted, budget, &mut |_| true);
        if evicted {
            self.note_eviction(self.memory.block_class(), held.div_ceil(BLOCK_BYTES as u64), cause);
        }
        evicted
    }

    /// If the slot holds a piece of a published large item: its descriptor, and the piece's number.
    fn owner_of_piece(&self, offset: usize) -> Option<(u32, usize)> {
        let words = self.memory.items.words_at(offset, 8)?;
        let (number, piece) = owner_of(u64::from_le(words[0].load(Relaxed)));
        let descriptor = self.large.get(number)?;
        if !descriptor.pin() {
            return None;
        }
        // SAFETY: pinned by the line above, unpinned below.
        let owns = unsafe { descriptor.pieces_pinned() }.get(piece) == Some(&(offset as u64));
        self.unpin(number);
        owns.then_some((number, piece))
    }

    /// If the slot, of this class, holds a piece of a large item: evict that item, or take its mark
    /// down if it was used lately. One that is being read stays: see `evict_large`.
    fn evict_owner(&self, class: usize, offset: usize, cause: Cause, budget: &mut Budget) -> bool {
        let Some((number, _)) = self.owner_of_piece(offset) else { return false };
        let Some(descriptor) = self.large.get(number) else { return false };
        if self.take_dead_large(number, self.time_told(), budget) {
            return true; // see `evict_in_class`
        }
        let mark = mark::load(&descriptor.mark);
        if mark.frequency() > 0 {
            mark::store(&descriptor.mark, mark, mark.cooled());
            return false;
        }
        let evicted = !descriptor.is_pinned() && self.evict_descriptor(number, cause, budget);
        if evicted {
            self.note_eviction(class, 1, cause);
        }
        evicted
    }

    /// Move a piece of a large item to another slot of its class. False if there is none, if
    /// somebody is reading the item, or if it is none.
    fn relocate_piece(&self, at: SlotAt, budget: &mut Budget) -> bool {
        let offset = self.memory.offset_of(at);
        let Some((number, piece)) = self.owner_of_piece(offset) else { return false };
        let location = Location::new(Medium::Extent, 0, u64::from(number));
        let Some(hash) = self.hash_of(location) else { return false };
        let Some(to) = self.slot_elsewhere(at.class, budget) else { return false };
        budget.spend(self.memory.class(at.class).slot_bytes / COPY_BYTES);
        let entered = self.index.enter(hash);
        let version = &self.index.bucket(entered.bucket).version;
        let is_it = |l: Location| l.medium() == Medium::Extent && l.offset() == location.offset();
        let moved = self.index.find(entered.bucket, hash.tag(), is_it).is_some()
            && self.large.get(number).is_some_and(|descriptor| {
                descriptor.move_piece(piece, offset as u64, to as u64, || {
                    let bytes = self.memory.class(at.class).slot_bytes;
                    let words_at = |at| self.memory.items.words_at(at, bytes).expect("a slot");
                    before_reuse();
                    words::copy_words(words_at(offset), words_at(to));
                    meter::bytes(bytes);
                })
            });
        // Changed or not: a reader may have met the pin while it was ours.
        version.leave(entered.before);
        self.memory.give(if moved { offset } else { to });
        moved
    }

    /// A slot for what must leave a chunk that is being emptied.
    fn slot_elsewhere(&self, class: usize, budget: &mut Budget) -> Option<usize> {
        self.memory.take(class).or_else(|| {
            self.evict_in_class(class, Cause::Drain, budget)
                .then(|| self.memory.take(class))
                .flatten()
        })
    }

    /// Go on emptying a chunk, as far as the budget goes; begin with another where there is none.
    /// One thread at a time.
    pub(crate) fn drain_step(&self, budget: &mut Budget) {
        if let Ok(mut drain) = self.drain.try_lock() {
            self.drain_on(&mut drain, None, budget);
        }
    }

    /// Where the class `wanted` waits for a chunk none of its own helps.
    pub(crate) fn drain_on(&self, drain: &mut Drain, wanted: Option<usize>, budget: &mut Budget) {
        self.give_remains(budget); // a chunk with some of these is emptied in vain
        while !budget.is_spent() {
            if drain.current.is_none() {
                drain.current = self.next_to_drain(drain, wanted, budget);
            }
            let Some(at) = &mut drain.current else { return };
            if self.memory.class_of_chunk(at.chunk) != Some(at.class) {
                // Its last slot came back, and the pool has it.
                (drain.current, drain.in_vain) = (None, false);
                return;
            }
            let slot = SlotAt { class: at.class, chunk: at.chunk, slot: at.slot };
            at.slot += 1;
            meter::slots(1);
            budget.spend(LOOK);
            if self.memory.is_used(slot) {
                budget.spend(TAKE_OUT);
                self.vacate(slot, budget);
            }
            if at.slot >= self.memory.class(at.class).slots {
                // What is left is under construction, being read, or part of a large item in use:
                // it is not waited for. If nothing is left the chunk is the pool's already.
                let is_left = self.memory.set_draining(at.class, at.chunk, false);
                (drain.current, drain.in_vain) = (None, is_left);
            }
        }
    }

    /// The next chunk to give up.
    fn next_to_drain(
        &self,
        drain: &mut Drain,
        wanted: Option<usize>,
        budget: &mut Budget,
    ) -> Option<Draining> {
        let chunks = self.memory.chunks_of(drain.in_window);
        if chunks.is_empty() {
            return None;
        }
        let beside = if drain.in_window { self.memory.block_class() + 1 } else { 0 };
        let (all, all_held) = self.turnover_mean(beside);
        for look in 0..SKIPS + (chunks.len() as u32).min(SKIPS) {
            meter::slots(1);
            budget.spend(LOOK);
            let next = drain.hand + 1;
            drain.hand = if chunks.contains(&next) { next } else { chunks.start };
            let chunk = drain.hand;
            let Some(class) = self.memory.class_of_chunk(chunk) else { continue };
            if wanted == Some(class) {
                continue;
            }
            let (own, own_held) = self.turnover(class);
            let busy =
                u128::from(own) * u128::from(all_held) > u128::from(all) * u128::from(own_held);
            // Where the last one was in vain those at rest may all be: then whichever is next.
            let may_skip = look < SKIPS && !drain.in_vain;
            if (busy || self.is_last_and_used(class)) && may_skip {
                continue;
            }
            if self.memory.set_draining(class, chunk, true) {
                return Some(Draining { chunk, class, slot: 0 });
            }
            return None; // it was empty, and is the pool's now
        }
        None
    }

    /// Whether this is the only chunk of a class that slots were taken from since the hand asked
    /// last. To empty such a chunk would lose all of the class for the sake of one chunk.
    fn is_last_and_used(&self, class: usize) -> bool {
        let class = self.memory.class(class);
        let taken = class.taken.load(Relaxed);
        class.chunks_held.load(Relaxed) == 1 && class.taken_before.swap(taken, Relaxed) != taken
    }

    /// Get whatever is in the slot out of it: an item that was used lately moves, another goes.
    fn vacate(&self, at: SlotAt, budget: &mut Budget) {
        let offset = self.memory.offset_of(at);
        if self.memory.is_window_class(at.class) {
            self.vacate_in_window(at, budget);
            return;
        }
        if at.class == self.memory.block_class() {
            self.relocate_piece(at, budget);
            return;
        }
        if self.take_dead(offset, self.time_told()) {
            return;
        }
        let mark = mark::load(self.memory.mark_of(at));
        if mark.frequency() > 0 && self.relocate(at, mark, budget) {
            return;
        }
        if self.unlink_slot(offset, Unlinked::Evicted, &mut |_| true) {
            self.note_eviction(at.class, 1, Cause::Drain);
        } else {
            self.relocate_piece(at, budget);
        }
    }

    /// Move a small item to another slot of its class. False if there is none, or no item.
    fn relocate(&self, at: SlotAt, mark: Mark, budget: &mut Budget) -> bool {
        let Some(to) = self.slot_elsewhere(at.class, budget) else { return false };
        budget.spend(self.memory.class(at.class).slot_bytes / COPY_BYTES);
        self.relocate_to(self.memory.offset_of(at), to, mark.cooled())
    }
}
