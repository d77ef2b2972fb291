//! The index: partitions of buckets that grow one bucket at a time (linear hashing), so that
//! nothing ever stalls and the bytes per item stay the same at every size.
//!
//! A partition of `n` buckets has split its first `n - 2^l` buckets, where `2^l <= n < 2^(l+1)`: a
//! key's bucket is its hash modulo `2^(l+1)` where that bucket exists, else modulo `2^l`. `n` is
//! the partition's whole state. It departs from MICA (§4.3.1), whose bucket count is fixed.
//!
//! A partition that has become sparse gives its buckets up again, one at a time, the last split
//! first: memory that many small items needed for their index serves fewer larger ones.
//!
//! Who reads `n`, finds nothing in a bucket at rest and sees another bucket named by `n` now, looks
//! again. Who enters a bucket checks `n` again, too: the bucket can be split or merged only by
//! whoever is inside.
//!
//! Bucket `k` of partition `p` lies at a place found by arithmetic: the partitions take turns by
//! pages of 64 buckets, so that memory is touched only as buckets appear. Overflow buckets come
//! from the end of the region.

use crate::{
    bucket::{Bucket, CHAIN_MAX, OVERFLOW_SLOTS, Overflow, SLOTS, is_link, link_of, link_word},
    counts::Counts,
    hash::PARTITIONS,
    location::{Location, tag_of_slot},
    meter,
    region::Region,
    types::KeyHash,
    window::{Onlooker, Window},
};
use laneway_sync::{
    prim::{
        AtomicU64,
        Ordering::{Acquire, Relaxed, Release},
        Patience,
    },
    version::before_reuse,
};
use std::{
    io, slice,
    sync::{Arc, Mutex, PoisonError},
};

/// Buckets of one partition that lie side by side: a page of memory.
const RUN: u64 = 64;

/// A partition grows when it holds more items than this per primary bucket: 12.4 to 12.9 bytes of
/// index per item, at any size, and four of five items lie in their primary bucket.
const ITEMS_PER_BUCKET: u64 = 6;

/// One partition's state and counts.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Partition {
    /// Primary buckets: the state of the linear hashing. Every look-up reads it.
    buckets: AtomicU64,
    overflow: AtomicU64,
    /// One splitter or merger at a time; the others go on without.
    pub splitting: Mutex<()>,
    /// What every store writes.
    pub counts: Counts,
}

/// Where a chain goes on: at a primary bucket, or at an overflow bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Node {
    Primary(usize),
    Overflow(usize),
}

/// A slot of some bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    node: Node,
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

/// Why a location found no slot: the chain has reached [`CHAIN_MAX`], or overflow buckets have run
/// out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChainFull;

/// What is looked for stands in an overflow bucket, if anywhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chained;

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
    overflow_region: Region,
    partitions: Box<[Partition]>,
    partition_buckets_max: u64,
    partition_buckets_min: u64,
    overflow_max: u32,
    overflow: Mutex<OverflowList>,
    /// Bytes of the buckets in use.
    bytes: AtomicU64,
    /// Bytes of buckets that lie in a window, in use or not.
    window_bytes: u64,
    onlooker: Option<Arc<dyn Onlooker>>,
}

/// Which of these slots bear the tag, a bit each: all are looked at, since where the first is found
/// no branch predictor foresees. With tag 0 empty slots and links are among them.
#[inline]
fn tagged(slots: &[AtomicU64], tag: u16) -> u32 {
    let bit =
        |(at, slot): (usize, &AtomicU64)| u32::from(tag_of_slot(slot.load(Relaxed)) == tag) << at;
    slots.iter().enumerate().map(bit).fold(0, |all, bit| all | bit)
}

/// Whether a slot's word leads to an item.
#[inline]
fn is_item(word: u64) -> bool {
    word != 0 && !is_link(word)
}

impl Index {
    /// An index of about `buckets` buckets, that can grow to `buckets_max` and as many overflow
    /// buckets. The first of each lie in the window, if there is one.
    pub fn new(
        buckets: u64,
        buckets_max: u64,
        huge_pages: bool,
        window: Option<&Window>,
    ) -> io::Result<Index> {
        let parts = PARTITIONS as u64;
        let partition_buckets_max = buckets_max.div_ceil(parts).next_multiple_of(RUN);
        let overflow_max = buckets_max.clamp(64, u64::from(u32::MAX)) as u32;
        let places = (partition_buckets_max * parts) as usize;
        let (first, first_overflows) = (window.map(|w| &w.buckets), window.map(|w| &w.overflows));
        let region = Region::reserve_behind(first, places * size_of::<Bucket>(), huge_pages)?;
        let overflow_bytes = overflow_max as usize * size_of::<Overflow>();
        let overflow_region = Region::reserve_behind(first_overflows, overflow_bytes, huge_pages)?;
        let each = (buckets / parts).clamp(1, partition_buckets_max);
        let partitions = (0..PARTITIONS)
            .map(|_| Partition { buckets: AtomicU64::new(each), ..Partition::default() })
            .collect();
        let overflow = Mutex::default();
        let bytes = AtomicU64::new(each * parts * size_of::<Bucket>() as u64);
        let onlooker = window.map(|window| window.onlooker.clone());
        if let Some(onlooker) = &onlooker {
            (0..PARTITIONS).for_each(|partition| onlooker.set_buckets(partition, each));
        }
        Ok(Index {
            region,
            overflow_region,
            partitions,
            partition_buckets_max,
            partition_buckets_min: each,
            overflow_max,
            overflow,
            bytes,
            window_bytes: window.map_or(0, |w| (w.buckets.bytes + w.overflows.bytes) as u64),
            onlooker,
        })
    }

    /// Have the buckets on this NUMA node.
    pub fn prefer_node(&self, node: u32) -> io::Result<()> {
        self.region.prefer_node(node)?;
        self.overflow_region.prefer_node(node)
    }

    /// A partition has so many primary buckets from now on. The caller is inside the bucket that
    /// came or went.
    fn set_buckets(&self, partition: usize, buckets: u64) {
        self.partitions[partition].buckets.store(buckets, Release); // (L) pairs with (K)
        if let Some(onlooker) = &self.onlooker {
            onlooker.set_buckets(partition, buckets);
        }
    }

    #[inline]
    fn buckets(&self) -> &[Bucket] {
        let words = self.region.words();
        // SAFETY: a Bucket is 8 atomic words and nothing else (repr(C), size asserted), the region
        // is page-aligned and zeroed, and its words may be shared. It is borrowed from `self`,
        // which keeps the mapping.
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
    fn overflow_slots(&self, number: usize) -> &[AtomicU64] {
        let words = self.overflow_region.words();
        &words[number * OVERFLOW_SLOTS..][..OVERFLOW_SLOTS]
    }

    #[inline]
    fn slots(&self, node: Node) -> &[AtomicU64] {
        match node {
            Node::Primary(place) => &self.bucket(place).slots,
            Node::Overflow(number) => self.overflow_slots(number),
        }
    }

    /// The node behind these slots. The link may come from an unvalidated read.
    #[inline]
    fn next(&self, slots: &[AtomicU64]) -> Option<Node> {
        let number = link_of(slots)?;
        (number < u64::from(self.overflow_max)).then_some(Node::Overflow(number as usize))
    }

    /// The primary bucket of a hash, by the partition's state now.
    #[inline]
    pub fn primary(&self, hash: KeyHash) -> usize {
        let buckets = self.partition(hash).buckets.load(Acquire); // (K) pairs with (L)
        place(hash.partition(), bucket_of(hash, buckets))
    }

    /// Primary buckets of a partition.
    pub fn buckets_of(&self, partition: usize) -> u64 {
        self.partitions[partition].buckets.load(Acquire) // (K) pairs with (L)
    }

    /// Ask the cache for the primary bucket of a hash; returns it.
    #[inline]
    pub fn prefetch(&self, hash: KeyHash) -> usize {
        let primary = self.primary(hash);
        self.region.prefetch(primary * size_of::<Bucket>());
        primary
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

    /// The first location in the chain whose tag is `tag` and that `wanted` accepts. Outside the
    /// version the answer is a guess, to be validated; it ends in any case.
    #[inline]
    pub fn find(
        &self,
        primary: usize,
        tag: u16,
        mut wanted: impl FnMut(Location) -> bool,
    ) -> Option<(Place, Location)> {
        let mut node = Node::Primary(primary);
        for _ in 0..=CHAIN_MAX {
            let slots = self.slots(node);
            let mut candidates = tagged(slots, tag);
            while candidates != 0 {
                let slot = candidates.trailing_zeros() as usize;
                let word = slots[slot].load(Relaxed);
                if is_item(word) {
                    let location = Location::of_slot(word);
                    if wanted(location) {
                        return Some((Place { node, slot }, location));
                    }
                }
                candidates &= candidates - 1;
            }
            node = self.next(slots)?;
        }
        None
    }

    /// The first location with this tag, if it stands in the primary bucket: a guess for who looks
    /// ahead. Where the chain goes on instead, its next line is asked for, and [`Chained`] says to
    /// use [`find`](Self::find) in a while.
    #[inline]
    pub fn find_ahead(&self, primary: usize, tag: u16) -> Result<Option<Location>, Chained> {
        let slots = &self.bucket(primary).slots;
        let mut candidates = tagged(slots, tag);
        while candidates != 0 {
            let word = slots[candidates.trailing_zeros() as usize].load(Relaxed);
            if is_item(word) {
                return Ok(Some(Location::of_slot(word)));
            }
            candidates &= candidates - 1;
        }
        let Some(Node::Overflow(number)) = self.next(slots) else { return Ok(None) };
        self.overflow_region.prefetch(number * size_of::<Overflow>());
        Err(Chained)
    }

    /// All words in the chain, links apart, into `out`. The caller is inside, or validates.
    pub fn collect(&self, primary: usize, out: &mut Vec<u64>) {
        let mut node = Some(Node::Primary(primary));
        for _ in 0..=CHAIN_MAX {
            let Some(here) = node else { return };
            let slots = self.slots(here);
            meter::slots(slots.len());
            let words = slots.iter().map(|slot| slot.load(Relaxed));
            out.extend(words.filter(|&word| word != 0 && !is_link(word)));
            node = self.next(slots);
        }
    }

    /// Put a word into the first empty slot of the chain, lengthening it if need be. The caller is
    /// inside.
    pub fn insert(&self, partition: usize, primary: usize, word: u64) -> Result<Place, ChainFull> {
        self.insert_with(primary, word, || self.take_overflow(partition))
    }

    /// The same with overflow buckets that `take` gives, emptied.
    fn insert_with(
        &self,
        primary: usize,
        word: u64,
        take: impl FnOnce() -> Option<u32>,
    ) -> Result<Place, ChainFull> {
        let mut node = Node::Primary(primary);
        for behind in 0..=CHAIN_MAX {
            let slots = self.slots(node);
            if let Some(slot) = slots.iter().position(|slot| slot.load(Relaxed) == 0) {
                slots[slot].store(word, Relaxed);
                return Ok(Place { node, slot });
            }
            if let Some(next) = self.next(slots) {
                node = next;
                continue;
            }
            if behind == CHAIN_MAX {
                break;
            }
            let number = take().ok_or(ChainFull)?;
            let next = self.overflow_slots(number as usize);
            let last = &slots[slots.len() - 1];
            next[0].store(last.load(Relaxed), Relaxed);
            next[1].store(word, Relaxed);
            last.store(link_word(u64::from(number)), Relaxed);
            return Ok(Place { node: Node::Overflow(number as usize), slot: 1 });
        }
        Err(ChainFull)
    }

    /// Replace the word at a place. The caller is inside.
    #[inline]
    pub fn replace(&self, place: Place, word: u64) {
        self.slots(place.node)[place.slot].store(word, Relaxed);
    }

    /// Empty a place, and shorten the chain: its last word moves into the hole. The caller is
    /// inside.
    pub fn remove(&self, partition: usize, primary: usize, hole: Place) {
        self.replace(hole, 0);
        let (mut before, mut last) = (None, Node::Primary(primary));
        while let Some(next) = self.next(self.slots(last)) {
            before = Some(last);
            last = next;
        }
        let (Some(before), Node::Overflow(number)) = (before, last) else { return };
        let tail = self.slots(last);
        if hole.node != last {
            let full = tail.iter().rev().find(|slot| slot.load(Relaxed) != 0);
            let full = full.expect("an overflow bucket is given back when it is empty");
            self.replace(hole, full.load(Relaxed));
            full.store(0, Relaxed);
        }
        if tail.iter().all(|slot| slot.load(Relaxed) == 0) {
            let slots = self.slots(before);
            slots[slots.len() - 1].store(0, Relaxed);
            self.give_overflow(partition, number);
        }
    }

    /// Empty a whole chain. Returns its overflow buckets, which are still counted as in use. The
    /// caller is inside.
    fn clear(&self, primary: usize) -> Vec<u32> {
        let mut next = self.next(&self.bucket(primary).slots);
        self.bucket(primary).slots.iter().for_each(|slot| slot.store(0, Relaxed));
        let mut numbers = Vec::new();
        while let Some(Node::Overflow(number)) = next {
            next = self.next(self.overflow_slots(number));
            numbers.push(number as u32);
        }
        numbers
    }

    fn take_overflow(&self, partition: usize) -> Option<u32> {
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
        self.bytes.fetch_add(size_of::<Overflow>() as u64, Relaxed);
        Some(self.emptied(number))
    }

    /// An overflow bucket that was part of a chain, without what was in it.
    fn emptied(&self, number: u32) -> u32 {
        // Whoever gave it back was inside another chain; we were inside ours before we took it.
        before_reuse();
        self.overflow_slots(number as usize).iter().for_each(|slot| slot.store(0, Relaxed));
        number
    }

    fn give_overflow(&self, partition: usize, number: usize) {
        self.partitions[partition].overflow.fetch_sub(1, Relaxed);
        self.bytes.fetch_sub(size_of::<Overflow>() as u64, Relaxed);
        self.overflow.lock().unwrap_or_else(PoisonError::into_inner).free.push(number as u32);
    }

    /// Whether a partition is fuller than it should be.
    #[inline]
    pub fn is_crowded(&self, partition: usize) -> bool {
        let part = &self.partitions[partition];
        let buckets = part.buckets.load(Relaxed);
        part.counts.items.load(Relaxed) > buckets * ITEMS_PER_BUCKET
            && buckets < self.partition_buckets_max
    }

    /// Split the partition's next bucket, unless somebody is splitting there already. `hash_of`
    /// finds the hash of the item at a location; it is asked outside the critical section first, as
    /// it touches the items.
    pub fn split(&self, partition: usize, hash_of: &dyn Fn(Location) -> Option<KeyHash>) {
        let part = &self.partitions[partition];
        let Ok(_one) = part.splitting.try_lock() else { return };
        let buckets = part.buckets.load(Relaxed);
        if buckets >= self.partition_buckets_max {
            return;
        }
        let old = place(partition, buckets - (1 << buckets.ilog2()));
        let new = place(partition, buckets);
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
            place(partition, bucket_of(hash, buckets + 1)) == new
        };
        let (go, stay): (Vec<u64>, Vec<u64>) = words.iter().partition(|&&word| moves(word));
        if !go.is_empty() {
            // The halves need no more overflow buckets than the whole had. They keep these: others
            // may have taken the last ones of all meanwhile.
            let mut spare = self.clear(old);
            for (bucket, words) in [(old, stay), (new, go)] {
                for word in words {
                    let take = || spare.pop().map(|number| self.emptied(number));
                    self.insert_with(bucket, word, take).expect("half a chain fits");
                }
            }
            spare.into_iter().for_each(|number| self.give_overflow(partition, number as usize));
        }
        self.set_buckets(partition, buckets + 1);
        self.bytes.fetch_add(size_of::<Bucket>() as u64, Relaxed);
        self.bucket(new).version.leave(new_before);
        self.bucket(old).version.leave(old_before);
    }

    /// Whether a partition has so few items that its last bucket may go: a third of what makes it
    /// grow, so that it does not split and merge by turns.
    #[inline]
    pub fn is_sparse(&self, partition: usize) -> bool {
        let part = &self.partitions[partition];
        let buckets = part.buckets.load(Relaxed);
        buckets > self.partition_buckets_min
            && part.counts.items.load(Relaxed) < buckets * ITEMS_PER_BUCKET / 3
    }

    /// Undo the partition's last split, unless somebody is at it already or the two buckets do not
    /// fit into one line. The bucket's memory stays, for the next growth: its version must go on
    /// counting, or a reader that slept could take a later bucket for the one it knew.
    pub fn merge(&self, partition: usize) {
        let part = &self.partitions[partition];
        let Ok(_one) = part.splitting.try_lock() else { return };
        let buckets = part.buckets.load(Relaxed);
        if buckets <= self.partition_buckets_min {
            return;
        }
        let last = buckets - 1;
        let old = place(partition, last - (1 << last.ilog2()));
        let gone = place(partition, last);
        let old_before = self.bucket(old).version.enter();
        let gone_before = self.bucket(gone).version.enter();
        let (mut stay, mut go) = (Vec::with_capacity(SLOTS), Vec::with_capacity(SLOTS));
        self.collect(old, &mut stay);
        self.collect(gone, &mut go);
        if stay.len() + go.len() > SLOTS {
            self.bucket(gone).version.leave_unchanged(gone_before);
            self.bucket(old).version.leave_unchanged(old_before);
            return;
        }
        for bucket in [old, gone] {
            let chain = self.clear(bucket);
            chain.into_iter().for_each(|number| self.give_overflow(partition, number as usize));
        }
        for word in stay.into_iter().chain(go) {
            self.insert(partition, old, word).expect("a line of slots, emptied");
        }
        self.set_buckets(partition, last);
        self.bytes.fetch_sub(size_of::<Bucket>() as u64, Relaxed);
        self.bucket(gone).version.leave(gone_before);
        self.bucket(old).version.leave(old_before);
    }

    /// Primary buckets and overflow buckets in use.
    pub fn counts(&self) -> (u64, u64) {
        let sum = |f: fn(&Partition) -> &AtomicU64| {
            self.partitions.iter().map(|p| f(p).load(Relaxed)).sum()
        };
        (sum(|p| &p.buckets), sum(|p| &p.overflow))
    }

    /// Bytes of buckets in use; all those in the window are.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed).max(self.window_bytes)
    }
}

/// The place of a partition's bucket in the region.
#[inline]
pub fn place(partition: usize, bucket: u64) -> usize {
    (((bucket / RUN) * PARTITIONS as u64 + partition as u64) * RUN + bucket % RUN) as usize
}

/// The bucket of a hash among `buckets`, which is not 0.
#[inline]
pub fn bucket_of(hash: KeyHash, buckets: u64) -> u64 {
    let level = buckets.ilog2();
    let wide = hash.bucket() & ((2 << level) - 1);
    if wide < buckets { wide } else { hash.bucket() & ((1 << level) - 1) }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::location::Medium;
    use std::{sync::mpsc, thread, time::Duration};

    /// What stands in the primary bucket is found by looking ahead; what stands behind it is asked
    /// for, and found by `find`; what has the tag of empty slots is not taken for one of them.
    #[test]
    fn looking_ahead_stops_where_the_chain_goes_on() {
        let index = Index::new(64, 64, false, None).expect("memory");
        let hash = KeyHash(0);
        let primary = index.primary(hash);
        let location = |tag: u16| Location::new(Medium::Arena, 7, 100 + u64::from(tag));
        assert_eq!(index.find_ahead(primary, 0), Ok(None), "an empty slot is no item");
        for tag in 0..SLOTS as u16 {
            index.insert(0, primary, location(tag).with_tag(tag)).expect("room");
            assert_eq!(index.find_ahead(primary, tag), Ok(Some(location(tag))));
            assert_eq!(index.find_ahead(primary, 99), Ok(None), "nothing is behind it");
        }
        index.insert(0, primary, location(50).with_tag(50)).expect("room");
        let (behind, found): (Vec<u16>, Vec<u16>) = (0..SLOTS as u16)
            .chain([50])
            .partition(|&tag| index.find_ahead(primary, tag) == Err(Chained));
        assert_eq!(behind, [SLOTS as u16 - 1, 50], "the last one made room for the link");
        assert_eq!(found.len(), SLOTS - 1);
        for tag in behind.into_iter().chain(found) {
            let (_, there) = index.find(primary, tag, |_| true).expect("it was put there");
            assert_eq!(there, location(tag));
        }
    }

    /// Others may take the last overflow buckets at any time: the halves of a chain have those of
    /// the whole, so that a split finds room and does not ask for the list of all.
    #[test]
    fn a_split_makes_do_with_the_overflow_buckets_of_its_chain() {
        let index = Index::new(64, 64, false, None).expect("memory");
        let hash_of = |location: Location| KeyHash(u64::from(location.offset() >= 8) << 16);
        let item = |offset: u64| Location::new(Medium::Arena, 7, offset);
        for offset in 0..10 {
            index.insert(0, place(0, 0), item(offset).with_tag(1)).expect("room");
        }
        assert_eq!(index.counts(), (PARTITIONS as u64, 1));
        let (index, (done, is_done)) = (&index, mpsc::channel());
        let list = index.overflow.lock().expect("nobody panicked");
        thread::scope(|scope| {
            scope.spawn(move || {
                index.split(0, &|location| Some(hash_of(location)));
                done.send(()).expect("somebody waits");
            });
            let split = is_done.recv_timeout(Duration::from_secs(60));
            drop(list);
            split.expect("it waits for the list of overflow buckets");
        });
        assert_eq!(index.counts(), (PARTITIONS as u64 + 1, 1));
        for offset in 0..10 {
            let half = place(0, u64::from(offset >= 8));
            assert!(index.find(half, 1, |found| found == item(offset)).is_some(), "{offset}");
        }
    }
}
