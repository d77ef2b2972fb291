//! A bucket entered for writing, looking at one key. Locations move and headers change in here,
//! nothing else: values are built outside (`draft`), and memory is freed after leaving.
//!
//! It departs from Minos §4.2, where a spinlock guards all PUTs: any thread may enter any bucket,
//! one at a time.

use crate::{
    counts::Counts,
    draft::Draft,
    hand::Hand,
    hook::Unlinked,
    index::{ChainFull, Entered, Place},
    location::{Location, Medium},
    mark::{self, Mark},
    moment::Moment,
    record,
    store::{Record, Store},
    types::{ItemMeta, KeyHash},
};
use laneway_sync::prim::Ordering::Relaxed;
use std::ops::Deref;

/// A bucket entered for writing (short! pointer moves only), looking at one key. Drop leaves it.
#[derive(Debug)]
pub struct Entry<'s> {
    store: &'s Store,
    hash: KeyHash,
    now: Moment,
    entered: Entered,
    changed: bool,
    inserted: bool,
    found: Option<(Place, Record)>,
    /// Unlinked in here, to be freed after leaving.
    garbage: Option<Location>,
    /// The same, where one is not enough.
    garbage_more: Vec<Location>,
    /// Replaced in here: the same, and its slot may be kept.
    replaced: Option<Location>,
    hand: Option<&'s Hand>,
    /// The bucket is left by [`crate::Entries`], which has entered others too.
    shares: bool,
}

impl Store {
    /// Enter the key's bucket. At most 64 tries, then yields to the scheduler between tries. A
    /// thread holds at most one entry at a time, and calls nothing else of the store meanwhile;
    /// who changes several keys in one moment enters all of their buckets by
    /// [`enter_all`](Store::enter_all).
    pub fn enter(&self, hash: KeyHash, key: &[u8], now: Moment) -> Entry<'_> {
        Entry::inside(self, (hash, key), now, self.index.enter(hash))
    }

    /// Say why a lookup that meets this item misses.
    #[cold]
    fn count_dead(&self, record: &Record) {
        let flushed = record.header.flush != self.flush_now();
        let counters = &self.counters;
        let found = if flushed { &counters.found_flushed } else { &counters.found_expired };
        found.fetch_add(1, Relaxed);
    }
}

impl<'s> Entry<'s> {
    /// Look at a key whose bucket was entered.
    #[inline]
    pub(crate) fn inside(
        store: &'s Store,
        (hash, key): (KeyHash, &[u8]),
        now: Moment,
        entered: Entered,
    ) -> Entry<'s> {
        let mut entry = Entry {
            store,
            hash,
            now,
            entered,
            changed: false,
            inserted: false,
            found: None,
            garbage: None,
            garbage_more: Vec::new(),
            replaced: None,
            hand: None,
            shares: false,
        };
        entry.find(key);
        if let Some((_, record)) = entry.found
            && store.is_dead(&record.header, now)
        {
            store.count_dead(&record);
            entry.unlink_why(Unlinked::Expired);
        }
        entry
    }

    /// Find the key's item, again where another key's entry may have changed the chain.
    #[inline]
    pub(crate) fn find(&mut self, key: &[u8]) {
        let mut record = None;
        let found = self.store.index.find(self.entered.bucket, self.hash.tag(), |location| {
            record = self.store.record_of(location, key);
            record.is_some()
        });
        self.found = found.map(|(place, _)| place).zip(record);
    }

    /// Leave the bucket to somebody else to leave, who then calls [`Entry::settle`].
    pub(crate) fn sharing(mut self) -> Entry<'s> {
        self.shares = true;
        self
    }

    /// Whether a word of the bucket was changed.
    pub(crate) fn has_changed(&self) -> bool {
        self.changed
    }

    /// Have the slot of an item that is replaced kept in this hand, which is one of the same store.
    pub fn keeping(mut self, hand: Option<&'s Hand>) -> Entry<'s> {
        self.hand = hand;
        self
    }

    /// The live item, if there is one (expired and flushed ones are not).
    pub fn meta(&self) -> Option<ItemMeta> {
        let (_, record) = self.found?;
        let (_, mark) = self.store.look_at_mark(record.location, self.now);
        Some(self.store.meta_of(&record.header, mark, self.now))
    }

    /// Change the header in place, if there is an item.
    fn change(&mut self, change: impl FnOnce(&mut record::Header)) {
        if let Some((_, record)) = &mut self.found {
            change(&mut record.header);
            record::rewrite(&self.store.memory.items, record.offset, &record.header);
            self.changed = true;
            self.store.announce_inside(self.hash, record, self.now);
        }
    }

    /// Whether the item's record, if there is an item, has room for this end. Who finds that it has
    /// not writes the item anew ([`Entry::rewrite`]).
    pub fn has_room_for(&self, expires: Moment) -> bool {
        self.found.is_none_or(|(_, record)| record.header.form.has_room_for(expires))
    }

    /// New time to live. It ends with the next full second where the record has no room for
    /// milliseconds. Where it has room for no end at all, the item is evicted: it must not outlive
    /// its end, and only a store that evicts has such records.
    pub fn set_expires(&mut self, expires: Moment) {
        let Some((_, record)) = &self.found else { return };
        let form = record.header.form;
        let expires = if form.has_room_for(expires) { expires } else { expires.rounded_up() };
        match form.has_room_for(expires) {
            true => self.change(|header| header.expires = expires),
            false => self.unlink_why(Unlinked::Evicted),
        }
    }

    /// Mark stale, or fresh again.
    pub fn set_stale(&mut self, stale: bool) {
        self.change(|header| header.stale = stale);
    }

    /// Somebody won the right to recache, or has it no more.
    pub fn set_token_sent(&mut self, sent: bool) {
        self.change(|header| header.token_sent = sent);
    }

    /// Give the item this sequence.
    pub fn set_flags_seq(&mut self, seq: u64) {
        self.change(|header| header.seq = seq);
    }

    /// A fresh CAS id for the item in place (md I).
    pub fn renew_seq(&mut self, explicit: Option<u64>) -> u64 {
        let seq = explicit.unwrap_or_else(|| {
            self.counts().renewed.fetch_add(1, Relaxed);
            self.store.draw_seq(self.hash)
        });
        self.set_flags_seq(seq);
        seq
    }

    /// Count as a hit: what `get` does of itself.
    pub fn mark_fetched(&mut self) {
        if let Some(place) = self.found.and_then(|(_, record)| self.store.mark_of(record.location))
        {
            let mark = mark::load(place);
            mark::store(place, mark, mark.hit(self.now));
        }
    }

    /// Delete the item, if there is one.
    pub fn unlink(&mut self) {
        self.unlink_why(Unlinked::Deleted);
    }

    fn unlink_why(&mut self, why: Unlinked) {
        if let Some((place, record)) = self.found.take() {
            self.store.unlink_inside(self.hash, self.entered, place, &record, why);
            self.discard(record.location);
            self.changed = true;
        }
    }

    fn discard(&mut self, location: Location) {
        match self.garbage {
            None => self.garbage = Some(location),
            Some(_) => self.garbage_more.push(location),
        }
    }

    /// Make the draft (which must be complete, and of the key that was entered) the key's item,
    /// replacing any old one. Returns its sequence.
    pub fn publish<S: Deref<Target = Store>>(&mut self, draft: Draft<S>, seq: Option<u64>) -> u64 {
        self.publish_in(draft, seq, self.store.flush_now())
    }

    /// Make the draft, which is what is kept elsewhere under this sequence, the key's item: it
    /// comes back to memory and does not count as stored again.
    pub fn bring_back<S: Deref<Target = Store>>(&mut self, draft: Draft<S>, seq: u64) {
        self.link(draft, seq, self.store.flush_now(), None);
    }

    /// Make the draft, which holds the same value, the key's item in place of the one that there
    /// is: a change in place but for the end. Its sequence, its marks, its hits and the flushes
    /// that it has seen stay as they are.
    pub fn rewrite<S: Deref<Target = Store>>(&mut self, mut draft: Draft<S>) {
        let (_, old) = self.found.expect("an item that is written anew");
        draft.set_marks(old.header.stale, old.header.token_sent);
        let (_, mark) = self.store.look_at_mark(old.location, self.now);
        self.link(draft, old.header.seq, old.header.flush, Some(mark));
    }

    /// The same as [`Entry::publish`] with a generation of flushes.
    #[inline]
    pub(crate) fn publish_in<S: Deref<Target = Store>>(
        &mut self,
        draft: Draft<S>,
        seq: Option<u64>,
        flush: u32,
    ) -> u64 {
        if seq.is_some() {
            self.counts().chosen.fetch_add(1, Relaxed);
        }
        let seq = seq.unwrap_or_else(|| self.store.draw_seq(self.hash));
        self.link(draft, seq, flush, None);
        seq
    }

    /// Make the draft the key's item, with this hit mark or as a new one.
    #[inline(always)]
    fn link<S: Deref<Target = Store>>(
        &mut self,
        draft: Draft<S>,
        seq: u64,
        flush: u32,
        mark: Option<Mark>,
    ) {
        assert_eq!(draft.missing(), 0, "published before it was complete");
        let record = draft.into_record(self.store, self.now, seq, flush);
        if let (Some(mark), Some(place)) = (mark, self.store.mark_of(record.location)) {
            mark::store(place, mark::load(place), mark);
        }
        let word = record.location.with_tag(self.hash.tag());
        self.changed = true;
        let found = self.found.take();
        let old = found.as_ref().map(|(_, old)| &old.header);
        self.counts().count_bytes(old, Some(&record.header));
        let place = match found {
            Some((place, old)) => {
                self.store.forget_inside(self.hash, &old, Unlinked::Replaced);
                self.store.index.replace(place, word);
                if let Some(before) = self.replaced.replace(old.location) {
                    self.discard(before);
                }
                place
            }
            None => self.insert(word),
        };
        self.found = Some((place, record));
        self.store.announce_inside(self.hash, &record, self.now);
    }

    fn counts(&self) -> &'s Counts {
        &self.store.index.partition(self.hash).counts
    }

    fn insert(&mut self, word: u64) -> Place {
        let index = &self.store.index;
        let (part, bucket) = (self.hash.partition(), self.entered.bucket);
        let place = loop {
            match index.insert(part, bucket, word) {
                Ok(place) => break place,
                Err(ChainFull) => self.evict_from_chain(),
            }
        };
        self.counts().items.fetch_add(1, Relaxed);
        self.inserted = true;
        place
    }

    /// Less likely than a broken machine (see `CHAIN_MAX`), unless somebody knows the seed of the
    /// hash: the item that stands first in the chain makes room.
    #[cold]
    fn evict_from_chain(&mut self) {
        let any = self.store.first_of_chain(self.entered.bucket);
        let (place, location, hash) = any.expect("a full chain holds items");
        let offset = self.store.record_offset(location).expect("a linked item");
        let header = record::read(&self.store.memory.items, offset).expect("a linked item");
        let record = Record { location, offset, header };
        self.store.unlink_inside(hash, self.entered, place, &record, Unlinked::Evicted);
        self.discard(location);
    }
}

impl Store {
    /// The first item of a chain, and its hash. The caller is inside.
    fn first_of_chain(&self, bucket: usize) -> Option<(Place, Location, KeyHash)> {
        let mut words = Vec::new();
        self.index.collect(bucket, &mut words);
        let word = *words.first()?;
        let hash = self.hash_of(Location::of_slot(word))?;
        let same = |location: Location| location == Location::of_slot(word);
        let (place, location) = self.index.find(bucket, hash.tag(), same)?;
        Some((place, location, hash))
    }

    /// Let the index grow, or shrink, with its items: at most two buckets at a time.
    fn fit_index(&self, hash: KeyHash) {
        let partition = hash.partition();
        if self.index.is_sparse(partition) {
            self.index.merge(partition);
            self.memory.set_index_bytes(self.index.bytes());
            return;
        }
        for _ in 0..2 {
            if !self.index.is_crowded(partition) {
                return;
            }
            self.index.split(partition, &|location| self.hash_of(location));
            self.memory.set_index_bytes(self.index.bytes());
        }
    }
}

impl Drop for Entry<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // The bucket may be half written. Readers, of this process or not, wait for its
            // version as it is; nobody must see it even again.
            std::process::abort();
        }
        if !self.shares {
            let version = &self.store.index.bucket(self.entered.bucket).version;
            if self.changed {
                version.leave(self.entered.before);
            } else {
                version.leave_unchanged(self.entered.before);
            }
            self.settle();
        }
    }
}

impl Entry<'_> {
    /// Free what was unlinked, and let the index grow. The bucket was left.
    #[inline]
    pub(crate) fn settle(&mut self) {
        for location in self.garbage.take().into_iter().chain(self.garbage_more.drain(..)) {
            self.store.free(location);
        }
        if let Some(location) = self.replaced.take() {
            let is_kept = location.medium() == Medium::Arena
                && self.hand.is_some_and(|hand| hand.keep(location.offset() as usize * 8));
            if !is_kept {
                self.store.free(location);
            }
        }
        if std::mem::take(&mut self.inserted) {
            self.store.fit_index(self.hash);
        }
    }
}
