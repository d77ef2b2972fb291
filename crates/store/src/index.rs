//! The index: partitions of buckets that grow one bucket at a time (linear hashing), so that nothing ever stalls and
//! the bytes per item stay the same at every size.
//!
//! A partition of `n` buckets has split its first `n - 2^l` buckets, where `2^l <= n < 2^(l+1)`: a key's bucket is its
//! hash modulo `2^(l+1)` where that bucket exists, else modulo `2^l`. `n` is the partition's whole state. Departs from
//! MICA (§4.3.1), whose bucket count is fixed.
//!
//! Who reads `n`, finds nothing in a bucket at rest and sees another bucket named by `n` now, looks again. Who enters a
//! bucket checks `n` again, too: the bucket can be split only by whoever is inside.
//!
//! Bucket `k` of partition `p` lies at a place found by arithmetic: the partitions take turns by pages of 64 buckets, so
//! that memory is touched only as buckets appear. Overflow buckets come from the end of the region.

use crate::{
    bucket::{Bucket, CHAIN_MAX, SLOTS, is_link, link_word},
    hash::PARTITIONS,
    location::{Location, tag_of_slot},
    region::Region,
    types::KeyHash,
};
use laneway_sync::prim::{
    AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
    Patience,
};
use std::{
    io, slice,
    sync::{Mutex, PoisonError},
};

/// Buckets of one partition that lie side by side: a page of memory.
const RUN: u64 = 64;

/// A partition grows when more than this share of its slots (overflow included) is filled: 64 / (7 · 0.77) = 11.9
/// bytes of index per item, at any size.
const FILL_PERCENT: u64 = 77;

/// One partition's state and counts.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Partition {
    /// Primary buckets: the state of the linear hashing.
    buckets: AtomicU64,
    overflow: AtomicU64,
    /// Locations in the slots.
    pub items: AtomicU64,
    /// Items ever published.
    pub items_total: AtomicU64,
    /// Bytes of the linked records.
    pub bytes: AtomicU64,
    /// Header bytes of the linked records.
    pub header_bytes: AtomicU64,
    /// One splitter at a time; the others go on without.
    pub splitting: Mutex<()>,
}

/// A slot of some bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    bucket: usize,
    slot: usize,
}

/// A bucket entered for writing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entered {
    /// The primary bucket.
    pub bucket: usize,
    /// Its version from before.
    pub before: u64,
}

/// Why a location found no slot: the chain has reached [`CHAIN_MAX`], or overflow buckets have run out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChainFull;

#[derive(Debug, Default)]
struct OverflowList {
    free: Vec<u32>,
    /// The next number never given out.
    fresh: u32,
}

/// All partitions.
#[derive(Debug)]
pub struct Index {
    region: Region,
    partitions: Box<[Partition]>,
    partition_buckets_max: u64,
    overflow_max: u32,
    overflow: Mutex<OverflowList>,
}

impl Index {
    /// An index of about `buckets` buckets, that can grow to `buckets_max` and half as many overflow buckets.
    pub fn new(buckets: u64, buckets_max: u64, huge_pages: bool) -> io::Result<Index> {
        let parts = PARTITIONS as u64;
        let partition_buckets_max = buckets_max.div_ceil(parts).next_multiple_of(RUN);
        let overflow_max = (buckets_max / 2).clamp(64, u64::from(u32::MAX)) as u32;
        let places = partition_buckets_max * parts + u64::from(overflow_max);
        let region = Region::reserve(places as usize * size_of::<Bucket>(), huge_pages)?;
        let each = (buckets / parts).clamp(1, partition_buckets_max);
        let partitions = (0..PARTITIONS)
            .map(|_| Partition { buckets: AtomicU64::new(each), ..Partition::default() })
            .collect();
        let overflow = Mutex::default();
        Ok(Index { region, partitions, partition_buckets_max, overflow_max, overflow })
    }

    #[inline]
    fn buckets(&self) -> &[Bucket] {
        let words = self.region.words();
        // SAFETY: a Bucket is 8 atomic words and nothing else (repr(C), size asserted), the region is page-aligned and
        // zeroed, and its words may be shared. It is borrowed from `self`, which keeps the mapping.
        unsafe { slice::from_raw_parts(words.as_ptr().cast(), words.len() / 8) }
    }

    /// A bucket by its place.
    #[inline]
    pub fn bucket(&self, place: usize) -> &Bucket {
        &self.buckets()[place]
    }

    /// The partition of a hash.
    #[inline]
    pub fn partition(&self, hash: KeyHash) -> &Partition {
        &self.partitions[hash.partition()]
    }

    /// All partitions.
    pub fn partitions(&self) -> &[Partition] {
        &self.partitions
    }

    #[inline]
    fn place(partition: usize, bucket: u64) -> usize {
        (((bucket / RUN) * PARTITIONS as u64 + partition as u64) * RUN + bucket % RUN) as usize
    }

    #[inline]
    fn overflow_place(&self, number: u64) -> Option<usize> {
        (number < u64::from(self.overflow_max))
            .then(|| (self.partition_buckets_max * PARTITIONS as u64 + number) as usize)
    }

    /// The primary bucket of a hash, by the partition's state now.
    #[inline]
    pub fn primary(&self, hash: KeyHash) -> usize {
        let buckets = self.partition(hash).buckets.load(Acquire); // (K) pairs with (L)
        Index::place(hash.partition(), bucket_of(hash, buckets))
    }

    /// Ask the cache for the primary bucket of a hash.
    #[inline]
    pub fn prefetch(&self, hash: KeyHash) {
        self.region.prefetch(self.primary(hash) * size_of::<Bucket>());
    }

    /// Enter the primary bucket of a hash.
    #[inline]
    pub fn enter(&self, hash: KeyHash) -> Entered {
        let mut patience = Patience::new();
        loop {
            let bucket = self.primary(hash);
            if let Some(before) = self.bucket(bucket).version.try_enter() {
                if self.primary(hash) == bucket {
                    return Entered { bucket, before };
                }
                self.bucket(bucket).version.leave_unchanged(before);
            }
            patience.pause();
        }
    }

    /// The first location in the chain whose tag is `tag` and that `wanted` accepts. Outside the version the answer is a
    /// guess, to be validated; it ends in any case.
    #[inline]
    pub fn find(
        &self,
        primary: usize,
        tag: u16,
        mut wanted: impl FnMut(Location) -> bool,
    ) -> Option<(Place, Location)> {
        let mut place = primary;
        for _ in 0..=CHAIN_MAX {
            let bucket = self.bucket(place);
            for slot in 0..SLOTS {
                let word = bucket.slot(slot);
                if tag_of_slot(word) == tag && word != 0 && !is_link(word) {
                    let location = Location::of_slot(word);
                    if wanted(location) {
                        return Some((Place { bucket: place, slot }, location));
                    }
                }
            }
            place = self.overflow_place(bucket.link()?)?;
        }
        None
    }

    /// All words in the chain, links apart, into `out`. The caller is inside, or validates.
    pub fn collect(&self, primary: usize, out: &mut Vec<u64>) {
        let mut place = primary;
        for _ in 0..=CHAIN_MAX {
            let bucket = self.bucket(place);
            out.extend((0..SLOTS).map(|i| bucket.slot(i)).filter(|&w| w != 0 && !is_link(w)));
            let Some(next) = bucket.link().and_then(|number| self.overflow_place(number)) else {
                return;
            };
            place = next;
        }
    }

    /// Put a word into the first empty slot of the chain, lengthening it if need be. The caller is inside.
    pub fn insert(
        &self,
        hash_partition: usize,
        primary: usize,
        word: u64,
    ) -> Result<(), ChainFull> {
        let mut place = primary;
        for hop in 0..=CHAIN_MAX {
            let bucket = self.bucket(place);
            if let Some(empty) = (0..SLOTS).find(|&i| bucket.slot(i) == 0) {
                bucket.set_slot(empty, word);
                return Ok(());
            }
            if let Some(number) = bucket.link() {
                place = self.overflow_place(number).expect("a link we wrote");
                continue;
            }
            if hop == CHAIN_MAX {
                break;
            }
            let (number, next) = self.take_overflow(hash_partition).ok_or(ChainFull)?;
            let next = self.bucket(next);
            next.set_slot(0, bucket.slot(SLOTS - 1));
            next.set_slot(1, word);
            bucket.set_slot(SLOTS - 1, link_word(number));
            return Ok(());
        }
        Err(ChainFull)
    }

    /// Replace the word at a place. The caller is inside.
    #[inline]
    pub fn replace(&self, place: Place, word: u64) {
        self.bucket(place.bucket).set_slot(place.slot, word);
    }

    /// Empty a place, and shorten the chain: its last word moves into the hole. The caller is inside.
    pub fn remove(&self, partition: usize, primary: usize, hole: Place) {
        self.replace(hole, 0);
        let (mut previous, mut last) = (None, primary);
        while let Some(number) = self.bucket(last).link() {
            previous = Some((last, number));
            last = self.overflow_place(number).expect("a link we wrote");
        }
        let Some((previous, number)) = previous else { return };
        let tail = self.bucket(last);
        if hole.bucket != last {
            let slot =
                (0..SLOTS).rev().find(|&i| tail.slot(i) != 0).expect("no empty overflow bucket");
            self.replace(hole, tail.slot(slot));
            tail.set_slot(slot, 0);
        }
        if (0..SLOTS).all(|i| tail.slot(i) == 0) {
            self.bucket(previous).set_slot(SLOTS - 1, 0);
            self.give_overflow(partition, number);
        }
    }

    /// Empty a whole chain and give its overflow buckets back. The caller is inside.
    fn clear(&self, partition: usize, primary: usize) {
        let mut link = self.bucket(primary).link();
        (0..SLOTS).for_each(|i| self.bucket(primary).set_slot(i, 0));
        while let Some(number) = link {
            let place = self.overflow_place(number).expect("a link we wrote");
            link = self.bucket(place).link();
            self.give_overflow(partition, number);
        }
    }

    fn take_overflow(&self, partition: usize) -> Option<(u64, usize)> {
        let mut list = self.overflow.lock().unwrap_or_else(PoisonError::into_inner);
        let number = match list.free.pop() {
            Some(number) => number,
            None if list.fresh < self.overflow_max => {
                list.fresh += 1;
                list.fresh - 1
            }
            None => return None,
        };
        drop(list);
        self.partitions[partition].overflow.fetch_add(1, Relaxed);
        let place = self.overflow_place(u64::from(number)).expect("below the maximum");
        (0..SLOTS).for_each(|i| self.bucket(place).set_slot(i, 0));
        Some((u64::from(number), place))
    }

    fn give_overflow(&self, partition: usize, number: u64) {
        self.partitions[partition].overflow.fetch_sub(1, Relaxed);
        self.overflow.lock().unwrap_or_else(PoisonError::into_inner).free.push(number as u32);
    }

    /// Whether a partition is fuller than it should be.
    #[inline]
    pub fn is_crowded(&self, partition: usize) -> bool {
        let part = &self.partitions[partition];
        let buckets = part.buckets.load(Relaxed);
        let slots = (buckets + part.overflow.load(Relaxed)) * SLOTS as u64;
        part.items.load(Relaxed) * 100 > slots * FILL_PERCENT
            && buckets < self.partition_buckets_max
    }

    /// Split the partition's next bucket, unless somebody is splitting there already. `hash_of` finds the hash of the
    /// item at a location; it is asked outside the critical section first, as it touches the items.
    pub fn split(&self, partition: usize, hash_of: &dyn Fn(Location) -> Option<KeyHash>) {
        let part = &self.partitions[partition];
        let Ok(_one) = part.splitting.try_lock() else { return };
        let buckets = part.buckets.load(Relaxed);
        if buckets >= self.partition_buckets_max {
            return;
        }
        let old = Index::place(partition, buckets - (1 << buckets.ilog2()));
        let new = Index::place(partition, buckets);
        let mut words = Vec::with_capacity(4 * SLOTS);
        self.collect(old, &mut words);
        // Only to bring the items into the cache: what is learnt outside may be untrue inside.
        words.iter().map(|&word| hash_of(Location::of_slot(word))).for_each(|_| ());

        let old_before = self.bucket(old).version.enter();
        let new_before = self.bucket(new).version.enter();
        words.clear();
        self.collect(old, &mut words);
        let moves = |word: u64| {
            let hash = hash_of(Location::of_slot(word)).expect("a linked item has a key");
            Index::place(partition, bucket_of(hash, buckets + 1)) == new
        };
        let (go, stay): (Vec<u64>, Vec<u64>) = words.iter().partition(|&&word| moves(word));
        if !go.is_empty() {
            self.clear(partition, old);
            for (bucket, words) in [(old, stay), (new, go)] {
                for word in words {
                    // The chains got shorter, and their overflow buckets were given back a moment ago.
                    self.insert(partition, bucket, word).expect("half a chain fits");
                }
            }
        }
        part.buckets.store(buckets + 1, Release); // (L) pairs with (K): who leaves after us sees the new state
        self.bucket(new).version.leave(new_before);
        self.bucket(old).version.leave(old_before);
    }

    /// Primary buckets and overflow buckets in use.
    pub fn counts(&self) -> (u64, u64) {
        let sum = |f: fn(&Partition) -> &AtomicU64| {
            self.partitions.iter().map(|p| f(p).load(Relaxed)).sum()
        };
        (sum(|p| &p.buckets), sum(|p| &p.overflow))
    }

    /// Bytes of buckets in use.
    pub fn bytes(&self) -> u64 {
        let (buckets, overflow) = self.counts();
        (buckets + overflow) * size_of::<Bucket>() as u64
    }
}

/// The bucket of a hash among `buckets`.
#[inline]
fn bucket_of(hash: KeyHash, buckets: u64) -> u64 {
    let level = buckets.ilog2();
    let wide = hash.bucket() & ((2 << level) - 1);
    if wide < buckets { wide } else { hash.bucket() & ((1 << level) - 1) }
}
