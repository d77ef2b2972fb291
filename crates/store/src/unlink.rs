//! Taking items out of the index, and freeing what they held: by key (entry), by slot (eviction,
//! sweep), by pin.

use crate::{
    budget::{Budget, END},
    hook::Unlinked,
    index::{Entered, Place},
    large::LargeName,
    location::{Location, Medium},
    mark::{self, Mark},
    meter,
    moment::Moment,
    record::{self, Header},
    store::{Record, Store},
    types::{KEY_BYTES_MAX, KeyHash},
};
use laneway_sync::{
    pin::{Killed, Unpinned},
    prim::Ordering::Relaxed,
};

impl Store {
    /// Take a record out of the index. The caller is inside its bucket, and frees it after leaving.
    pub(crate) fn unlink_inside(
        &self,
        hash: KeyHash,
        entered: Entered,
        place: Place,
        record: &Record,
        why: Unlinked,
    ) {
        meter::items(1);
        self.index.remove(hash.partition(), entered.bucket, place);
        let counts = &self.index.partition(hash).counts;
        counts.items.fetch_sub(1, Relaxed);
        counts.count_bytes(Some(&record.header), None);
        self.forget_inside(hash, record, why);
    }

    /// Count why a record goes, and tell the hook. The caller is inside its bucket.
    pub(crate) fn forget_inside(&self, hash: KeyHash, record: &Record, why: Unlinked) {
        match why {
            Unlinked::Expired => {
                self.counters.reclaimed.fetch_add(1, Relaxed);
                let is_flushed = u64::from(record.header.flush != self.flush_now());
                self.counters.reclaimed_flushed.fetch_add(is_flushed, Relaxed);
                if !self.mark_of(record.location).is_some_and(|m| mark::load(m).fetched()) {
                    self.counters.expired_unfetched.fetch_add(1, Relaxed);
                }
            }
            Unlinked::Evicted => {
                let mark = self.mark_of(record.location).map_or(Mark(0), mark::load);
                self.counters.evictions.fetch_add(1, Relaxed);
                if !mark.fetched() {
                    self.counters.evicted_unfetched.fetch_add(1, Relaxed);
                }
                if mark.frequency() > 0 {
                    self.counters.evicted_active.fetch_add(1, Relaxed);
                }
                self.tell_evicted_inside(record, mark);
            }
            Unlinked::Replaced | Unlinked::Deleted | Unlinked::Moved => {}
        }
        if let Some(hook) = &self.hook {
            let mut room = [0; KEY_BYTES_MAX];
            let key = self.key_in(record.offset, &record.header, &mut room);
            let key = key.expect("a linked item has a key");
            hook.unlinked(hash, key, record.location, record.header.seq, why);
        }
    }

    /// Tell who wants to know it that an item is evicted. The caller is inside its bucket.
    fn tell_evicted_inside(&self, record: &Record, mark: Mark) {
        let Some(told) = self.evictions.get() else { return };
        let Some(now) = told.wants() else { return };
        let mut key = Vec::new();
        self.key_at(record.offset, &record.header, &mut key).expect("a linked item has a key");
        let meta = self.meta_of(&record.header, mark, now);
        let class = self.class_number_of(record.header.record_bytes());
        told.evicted(&key, &meta, class);
    }

    /// Tell the hook of a new or changed item. The caller is inside its bucket.
    pub(crate) fn announce_inside(&self, hash: KeyHash, record: &Record, now: Moment) {
        if let Some(hook) = &self.hook {
            let mut room = [0; KEY_BYTES_MAX];
            let key = self.key_in(record.offset, &record.header, &mut room);
            let key = key.expect("a linked item has a key");
            let mark = self.mark_of(record.location).map_or(Mark::new(now), mark::load);
            hook.published(hash, key, record.location, &self.meta_of(&record.header, mark, now));
        }
    }

    /// Free what an unlinked item held. The caller has left its bucket.
    pub(crate) fn free(&self, location: Location) {
        match location.medium() {
            Medium::Arena => self.memory.give(location.offset() as usize * 8),
            Medium::Extent => {
                self.free_large(location.offset() as u32, &mut Budget::of(END));
            }
            medium => unreachable!("nothing was published in {medium:?}"),
        }
    }

    /// The same of a large item: as much of it now as the budget allows.
    fn free_large(&self, number: u32, budget: &mut Budget) {
        let descriptor = self.large.get(number).expect("an unlinked item's descriptor");
        let held = descriptor.held_bytes();
        match descriptor.kill() {
            Killed::FreeNow => self.free_dead(number, budget),
            Killed::Later => {
                self.counters.pinned_dead_bytes.fetch_add(held, Relaxed);
            }
        }
    }

    /// Let go of a pin, and free the item if that is what it means.
    pub(crate) fn unpin(&self, number: u32) {
        let descriptor = self.large.get(number).expect("a pinned descriptor");
        let held = descriptor.held_bytes();
        if descriptor.unpin() == Unpinned::LastOfDead {
            self.counters.pinned_dead_bytes.fetch_sub(held, Relaxed);
            self.free_dead(number, &mut Budget::of(END));
        }
    }

    /// The caller was told to.
    fn free_dead(&self, number: u32, budget: &mut Budget) {
        let descriptor = self.large.get(number).expect("a dead descriptor");
        // SAFETY: `kill` said FreeNow or `unpin` said LastOfDead to our caller, and it asks us
        // once.
        let pieces = unsafe { descriptor.take_pieces_owner() };
        self.give_pieces(pieces, budget);
        self.large.give(number);
    }

    /// Unlink and free the small item in the slot at `offset`, if there is one and `wanted` agrees.
    /// Tells whether.
    pub(crate) fn unlink_slot(
        &self,
        offset: usize,
        why: Unlinked,
        wanted: &mut dyn FnMut(&Header) -> bool,
    ) -> bool {
        let location = Location::new(Medium::Arena, 0, offset as u64 / 8);
        // The slot may hold anything: a draft, a piece. Then the bucket that its bytes lead to does
        // not name it.
        let Some(hash) = self.hash_of(location) else { return false };
        let unlinked = self.unlink_where(hash, why, wanted, |found| {
            found.medium() == Medium::Arena && found.offset() == location.offset()
        });
        if unlinked {
            self.memory.give(offset);
        }
        unlinked
    }

    /// Unlink and free a large item, if it is still the one named and `wanted` agrees; of its
    /// pieces as many as the budget allows. Tells whether.
    pub(crate) fn unlink_large(
        &self,
        name: LargeName,
        why: Unlinked,
        budget: &mut Budget,
        wanted: &mut dyn FnMut(&Header) -> bool,
    ) -> bool {
        let unlinked = self.unlink_where(name.hash, why, wanted, |found| {
            found.medium() == Medium::Extent && found.offset() == u64::from(name.descriptor)
        });
        if unlinked {
            self.free_large(name.descriptor, budget);
        }
        unlinked
    }

    /// The caller frees what was unlinked.
    fn unlink_where(
        &self,
        hash: KeyHash,
        why: Unlinked,
        wanted: &mut dyn FnMut(&Header) -> bool,
        is_it: impl FnMut(Location) -> bool,
    ) -> bool {
        let entered = self.index.enter(hash);
        let version = &self.index.bucket(entered.bucket).version;
        let found =
            self.index.find(entered.bucket, hash.tag(), is_it).and_then(|(place, location)| {
                let offset = self.record_offset(location)?;
                let header = record::read(&self.memory.items, offset)?;
                Some((place, Record { location, offset, header }))
            });
        match found {
            Some((place, record)) if wanted(&record.header) => {
                self.unlink_inside(hash, entered, place, &record, why);
                version.leave(entered.before);
                true
            }
            _ => {
                version.leave_unchanged(entered.before);
                false
            }
        }
    }
}
