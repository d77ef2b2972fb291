//! Reads of many keys together: all are hashed and their buckets asked for, then all are looked for
//! in their buckets and their items asked for, then each is answered; so that the misses of a group
//! overlap (MICA §4.4), and what one step has found is not looked for again by the next.
//!
//! It answers for what is simple, the same way as [`Store::get`]: an optimistic read that is
//! validated at its end, only that it began with the whole group. What was torn, is dead, is large
//! or shares its tag with another key is [`Sought::Otherwise`], for `get` to answer. It knows no
//! protocol. Sizes are bytes.

use crate::{
    index::Chained,
    location::{Location, Medium},
    mark::{self, Mark},
    meter,
    moment::Moment,
    record::{self, Header},
    store::{Record, Store},
    types::{ItemMeta, KeyHash},
};
use laneway_sync::{append::Appending, prim::AtomicU64, words};

/// Keys looked up together, at most. More than the misses that a core has under way at once, so
/// that a long line of keys is cut into few groups.
pub const GROUP: usize = 32;

const _: () = assert!(GROUP <= u64::BITS as usize); // a set of them fits a word

/// A version that no bucket has: it is odd, and out of reach.
const VERSION_NEVER: u64 = u64::MAX;
/// The number of no hit mark.
const MARK_NONE: usize = usize::MAX;

/// One key's read under way.
#[derive(Debug, Clone, Copy)]
struct Seek {
    hash: KeyHash,
    primary: usize,
    /// The bucket's version when it was looked into.
    before: u64,
    /// The first location with the key's tag.
    found: Option<Location>,
    mark_number: usize,
}

/// The reads of a group of keys. Good for every group after it, too: nothing is allocated.
#[derive(Debug)]
pub struct Group {
    seeks: [Seek; GROUP],
    keys: usize,
}

/// An item that was found, for the head of its reply. Guarded by the read that is under way.
#[derive(Debug)]
pub struct FoundItem<'a> {
    store: &'a Store,
    record: &'a Record,
    mark_number: usize,
    now: Moment,
}

impl FoundItem<'_> {
    /// CAS id.
    #[inline(always)]
    pub fn seq(&self) -> u64 {
        self.record.header.seq
    }

    /// The client's own 32 bits.
    #[inline(always)]
    pub fn flags(&self) -> u32 {
        self.record.header.flags
    }

    /// Length of the value.
    #[inline(always)]
    pub fn value_bytes(&self) -> usize {
        self.record.header.value_bytes
    }

    /// All that is known of it, from before this hit.
    #[inline]
    pub fn meta(&self) -> ItemMeta {
        let memory = &self.store.memory;
        let mark = memory
            .mark_by_number(self.mark_number)
            .map_or(Mark(0), |place| memory.load_mark(place, self.record.offset, Some(self.now)));
        self.store.meta_of(&self.record.header, mark, self.now)
    }
}

/// What became of one key of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sought {
    /// There is no such item.
    Miss,
    /// Head, value and tail are in the output. Bytes of key and value.
    Copied(u64),
    /// Nothing was done: ask [`Store::get`].
    Otherwise,
}

impl Default for Group {
    fn default() -> Self {
        let none = Seek {
            hash: KeyHash(0),
            primary: 0,
            before: VERSION_NEVER,
            found: None,
            mark_number: MARK_NONE,
        };
        Group { seeks: [none; GROUP], keys: 0 }
    }
}

impl Group {
    /// The hash of one of the keys.
    #[inline]
    pub fn hash(&self, number: usize) -> KeyHash {
        self.seeks[number].hash
    }

    /// Whether something was found that may be the item of this number. A hint: who has another
    /// place to read it from can begin to.
    #[inline]
    pub fn may_have(&self, number: usize) -> bool {
        self.seeks[number].found.is_some()
    }
}

impl Store {
    /// Begin to read the first [`GROUP`] of `keys`: where their items are is known afterwards, and
    /// their lines are on the way. Forgets the group before.
    #[inline]
    pub fn seek(&self, group: &mut Group, keys: &[&[u8]]) {
        group.keys = keys.len().min(GROUP);
        for (seek, key) in group.seeks.iter_mut().zip(keys) {
            seek.hash = self.hash(key);
            seek.primary = self.index.prefetch(seek.hash);
        }
        let mut chained = 0_u64;
        for (at, seek) in group.seeks[..group.keys].iter_mut().enumerate() {
            let version = &self.index.bucket(seek.primary).version;
            seek.before = version.read_begin().unwrap_or(VERSION_NEVER);
            match self.index.find_ahead(seek.primary, seek.hash.tag()) {
                Ok(found) => self.found(seek, found),
                Err(Chained) => chained |= 1 << at,
            }
        }
        // Overflow buckets were asked for; the items of all others are on their way by now.
        while chained != 0 {
            let seek = &mut group.seeks[chained.trailing_zeros() as usize];
            let found = self.index.find(seek.primary, seek.hash.tag(), |_| true);
            self.found(seek, found.map(|(_, location)| location));
            chained &= chained - 1;
        }
    }

    /// Begin to read a single key, by its hash. Forgets the group before.
    #[inline]
    pub fn seek_one(&self, group: &mut Group, hash: KeyHash) {
        group.keys = 1;
        let seek = &mut group.seeks[0];
        seek.hash = hash;
        seek.primary = self.index.primary(hash);
        let version = &self.index.bucket(seek.primary).version;
        seek.before = version.read_begin().unwrap_or(VERSION_NEVER);
        let found = self.index.find(seek.primary, hash.tag(), |_| true);
        self.found(seek, found.map(|(_, location)| location));
    }

    #[inline]
    fn found(&self, seek: &mut Seek, location: Option<Location>) {
        seek.found = location;
        let number = location.and_then(|location| self.prefetch_location(location));
        seek.mark_number = number.unwrap_or(MARK_NONE);
    }

    /// Answer for key `number` of the group, which is `key`. A small item of less than `bytes_end`
    /// bytes of key and value is put behind `out`: what `head` puts, `head_bytes_max` bytes at
    /// most, the value, and `tail`. The hit is marked. Where `head` says no, nothing is done.
    ///
    /// # Panics
    /// If the group has fewer keys, or `head` puts more.
    #[inline]
    pub fn get_sought(
        &self,
        (group, number, key): (&Group, usize, &[u8]),
        now: Moment,
        bytes_end: u64,
        out: &mut Vec<u8>,
        (head_bytes_max, tail): (usize, &[u8]),
        head: impl FnOnce(&FoundItem<'_>, &mut Appending<'_>) -> bool,
    ) -> Sought {
        let seek = &group.seeks[..group.keys][number];
        let version = &self.index.bucket(seek.primary).version;
        let Some(location) = seek.found else {
            // The bucket may have been split between our finding it and our looking into it.
            let is_missing =
                version.validate(seek.before) && self.index.primary(seek.hash) == seek.primary;
            return if is_missing { Sought::Miss } else { Sought::Otherwise };
        };
        let Some((record, words)) = self.small_record(location, key) else {
            return Sought::Otherwise;
        };
        let Header { value_bytes, .. } = record.header;
        let bytes = (key.len() + value_bytes) as u64;
        // From here on the lengths are those of a record that was there.
        if !version.validate(seek.before) || self.is_dead(&record.header, now) || bytes_end <= bytes
        {
            return Sought::Otherwise;
        }
        let item = FoundItem { store: self, record: &record, mark_number: seek.mark_number, now };
        let mut appending = Appending::new(out, head_bytes_max + value_bytes + tail.len());
        if !head(&item, &mut appending) {
            return Sought::Otherwise;
        }
        meter::bytes(value_bytes);
        appending.put_words(words, record.header.value_at(), value_bytes);
        appending.put(tail);
        if !version.validate(seek.before) {
            return Sought::Otherwise;
        }
        appending.keep();
        self.mark_hit(&record, seek.mark_number, now);
        Sought::Copied(bytes)
    }

    /// The record at a location and its words, if it is small and its key is `key`. Not validated.
    #[inline(always)]
    fn small_record(&self, location: Location, key: &[u8]) -> Option<(Record, &[AtomicU64])> {
        if location.medium() != Medium::Arena {
            return None;
        }
        let offset = location.offset() as usize * 8;
        let header = record::read(&self.memory.items, offset)?;
        if header.large || header.key_bytes != key.len() {
            return None;
        }
        let words = self.memory.items.words_at(offset, header.record_bytes())?;
        let is_it = words::equal(words, header.header_bytes(), key);
        is_it.then_some((Record { location, offset, header }, words))
    }

    #[inline(always)]
    fn mark_hit(&self, record: &Record, mark_number: usize, now: Moment) {
        let Some(place) = self.memory.mark_by_number(mark_number) else { return };
        let mark = self.memory.load_mark(place, record.offset, Some(now));
        mark::store(place, mark, mark.hit(now));
        if self.is_promotable(record, mark) {
            self.promote(record, mark.hit(now));
        }
    }
}
