//! Who lies in the window: what fits while there is room, then what is asked for most.
//!
//! A new item takes a slot in the window as long as more than a few are free there. Once the window
//! is full, an item outside it that was hit often moves in, and makes room by the clock of its
//! class: what the hand finds unused moves out (Hippos keeps its kernel cache by hits, too, but by
//! copies that must be invalidated; here an item is in one place). Some slots are spared for items
//! that are in the window and are written again, so that a write does not lose their place.
//!
//! Both moves are relocations: copy outside, then change the location inside the bucket. Sizes
//! compete for the window's chunks as they do for the others (see `evict`), by what they had to
//! give up. Every call does a bounded amount of work, and one thread at a time moves items in.

use crate::{
    budget::{Budget, PICK, STEP},
    cursor::Drain,
    hook::Unlinked,
    location::{Location, Medium, size_class},
    mark::{self, Mark},
    memory::SlotAt,
    meter,
    moment::Moment,
    record,
    store::{Record, Store},
    types::KeyHash,
};
use laneway_sync::{prim::Ordering::Relaxed, version::before_reuse, words};

/// An item moves into the window at a hit that finds its mark at this or above.
const PROMOTE_FREQUENCY: u16 = 2;
/// Of the hits that would move an item in, one in so many does: the moves of a mix at rest, whose
/// warm items take turns, cost little then, and hot items are hit again soon.
const PROMOTE_ONE_IN: u64 = 4;

impl Store {
    /// Whether the key's item is in the window, by a guess that another key's tag may spoil.
    pub fn is_in_window(&self, hash: KeyHash) -> bool {
        let in_window = |location: Location| {
            location.medium() == Medium::Arena
                && self.memory.is_in_window(location.offset() as usize * 8)
        };
        let found = self.index.find(self.index.primary(hash), hash.tag(), |_| true);
        found.is_some_and(|(_, location)| in_window(location))
    }

    /// A slot in the window for a new record, if it may have one.
    #[inline]
    pub(crate) fn allocate_in_window(&self, key: &[u8], record_bytes: usize) -> Option<usize> {
        let class = self.memory.window_class_for(record_bytes)?;
        self.memory.take_spared(class, false).or_else(|| {
            // Few are left: they are for those that are there.
            self.is_in_window(self.hash(key)).then(|| self.memory.take(class)).flatten()
        })
    }

    /// Whether an item that was just hit should move into the window. `mark` is from before.
    #[inline]
    pub(crate) fn is_promotable(&self, record: &Record, mark: Mark) -> bool {
        self.memory.window_bytes() > 0
            && mark.frequency() >= PROMOTE_FREQUENCY
            && record.location.medium() == Medium::Arena
            && !self.memory.is_in_window(record.offset)
            && self.memory.window_class_for(record.header.record_bytes()).is_some()
    }

    /// Move an item into the window, if there is room, or can be made. `mark` is with the hit.
    #[cold]
    pub(crate) fn promote(&self, record: &Record, mark: Mark) {
        if !self.counters.promotable.fetch_add(1, Relaxed).is_multiple_of(PROMOTE_ONE_IN) {
            return;
        }
        let Ok(mut drain) = self.window_drain.try_lock() else { return };
        let Some(class) = self.memory.window_class_for(record.header.record_bytes()) else {
            return;
        };
        let room = || self.memory.take_spared(class, true);
        let to = room().or_else(|| {
            self.make_room_in_window(class, &mut drain);
            room()
        });
        if let Some(to) = to
            && self.relocate_to(record.offset, to, mark)
        {
            self.counters.promotions.fetch_add(1, Relaxed);
        }
    }

    /// Move an unused item of the class out of the window, and go on emptying a chunk for the class
    /// if it should have more.
    fn make_room_in_window(&self, class: usize, drain: &mut Drain) {
        if self.is_entitled(class) {
            self.drain_on(drain, None, &mut Budget::of(STEP));
        }
        let budget = &mut Budget::of(PICK);
        let Some(victim) = self.pick(class, budget) else { return };
        if self.take_dead(self.memory.offset_of(victim), self.time_told()) {
            return; // however often it was asked for
        }
        let mark = mark::load(self.memory.mark_of(victim));
        if mark.frequency() == 0 && self.demote(victim, mark, budget) {
            self.note_demotion(class);
        }
    }

    /// Count a demotion towards the class's turnover.
    fn note_demotion(&self, class: usize) {
        let this = self.memory.class(class);
        let bytes = this.slot_bytes as u64;
        this.evicted_since_chunk.fetch_add(1, Relaxed);
        this.evicted_bytes_recent.fetch_add(bytes, Relaxed);
        let all = &self.counters.demoted_bytes_recent;
        let recent = all.fetch_add(bytes, Relaxed) + bytes;
        // A quarter of the window made room: what lies further back counts half.
        if recent > self.memory.window_bytes() as u64 / 4
            && all.compare_exchange(recent, 0, Relaxed, Relaxed).is_ok()
        {
            self.halve_turnover(class);
        }
    }

    /// Move the item in a slot of the window out of it. False if there is no memory, or no item.
    fn demote(&self, at: SlotAt, mark: Mark, budget: &mut Budget) -> bool {
        if self.take_dead(self.memory.offset_of(at), self.time_told()) {
            return true; // its slot is free, and that is what it was to move for
        }
        let class = self.memory.ordinary_class(at.class);
        let to = self.memory.take(class).or_else(|| {
            // The rest of the step is for this one: half of it to find what to evict.
            let mut drain = budget.split();
            self.allocate_within(class, &mut drain, budget)
        });
        let Some(to) = to else { return false };
        let demoted = self.relocate_to(self.memory.offset_of(at), to, mark);
        self.counters.demotions.fetch_add(u64::from(demoted), Relaxed);
        demoted
    }

    /// Get whatever is in a slot of the window out of its chunk.
    pub(crate) fn vacate_in_window(&self, at: SlotAt, budget: &mut Budget) {
        if self.take_dead(self.memory.offset_of(at), self.time_told()) {
            return;
        }
        let mark = self.memory.load_mark(self.memory.mark_of(at), self.memory.offset_of(at), None);
        let elsewhere = || self.memory.take_spared(at.class, false);
        let to = (mark.frequency() > 0).then(elsewhere).flatten();
        let moved =
            to.is_some_and(|to| self.relocate_to(self.memory.offset_of(at), to, mark.cooled()));
        if !moved {
            self.demote(at, mark, budget);
        }
    }

    /// Move the small item at an offset to a slot of its size at another, with this mark. Takes the
    /// one slot or gives the other back; false if there is no item.
    pub(crate) fn relocate_to(&self, offset: usize, to: usize, mark: Mark) -> bool {
        let old = Location::new(Medium::Arena, 0, offset as u64 / 8);
        let Some(hash) = self.hash_of(old) else {
            self.memory.give(to);
            return false;
        };
        let entered = self.index.enter(hash);
        let version = &self.index.bucket(entered.bucket).version;
        let is_it = |l: Location| l.medium() == Medium::Arena && l.offset() == old.offset();
        let found = self.index.find(entered.bucket, hash.tag(), is_it);
        let header = record::read(&self.memory.items, offset);
        // The slot may have been cut anew since the caller looked, or all was flushed.
        let fits = |header: &record::Header| {
            header.flush == self.flush_now() && self.memory.holds(to, header.record_bytes())
        };
        let (Some((place, location)), Some(header)) = (found, header.filter(fits)) else {
            version.leave_unchanged(entered.before);
            self.memory.give(to);
            return false;
        };
        let bytes = header.record_bytes();
        let words_at = |offset| self.memory.items.words_at(offset, bytes).expect("a slot");
        before_reuse();
        words::copy_words(words_at(offset), words_at(to));
        meter::bytes(bytes);
        let class = size_class(header.key_bytes + header.value_bytes);
        let moved = Location::new(Medium::Arena, class, to as u64 / 8);
        self.memory.set_mark(to, mark);
        let now_moved = Record { location: moved, offset: to, header };
        if let Some(hook) = &self.hook {
            let mut key = Vec::new();
            self.key_at(offset, &header, &mut key).expect("a linked item has a key");
            hook.unlinked(hash, &key, location, header.seq, Unlinked::Moved);
        }
        self.index.replace(place, moved.with_tag(hash.tag()));
        self.announce_inside(hash, &now_moved, Moment::NEVER);
        version.leave(entered.before);
        self.memory.give(offset);
        true
    }
}
