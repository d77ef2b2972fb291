//! The free blocks of the SSD.
//!
//! Kept in memory only: recovery knows what is in use from the index. Freed blocks join their
//! neighbours; the smallest run that fits is taken, and when none does, a value is cut into several
//! extents. So no size class strands space that another needs, which is why there are no slab files
//! of one size each. Blocks that somebody is reading are freed when the last reader is done.

use crate::ssd::pointer::{EXTENTS_MAX, Extent};
use crate::types::{Error, Result};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard};

/// How many blocks there are at most, as they are numbered by 32 bits. What a disk has beyond them
/// is not the store's.
pub const BLOCKS_MAX: u64 = u32::MAX as u64;
/// A shorter run is not worth going to.
const RUN_MIN: u32 = 16;

/// Bits of a word.
pub const BITS: u64 = u64::BITS as u64;

#[derive(Default)]
struct State {
    /// Free runs by their start.
    runs: BTreeMap<u32, u32>,
    /// The same by length.
    by_length: BTreeSet<(u32, u32)>,
    /// How many blocks there are in them. Changed here alone; the lock orders it.
    free_blocks: Arc<AtomicU64>,
    /// Behind what was last taken in order.
    next: u32,
    /// Values leave so many free.
    kept: u64,
    /// Readers by the first block of what they read, and what to free when they are done.
    pins: HashMap<u32, Pin>,
}

#[derive(Default)]
struct Pin {
    readers: u32,
    freed: Vec<Extent>,
}

/// The free blocks.
pub struct Space {
    state: Mutex<State>,
    /// The same as in there, for who must not wait.
    free_blocks: Arc<AtomicU64>,
    blocks: u64,
}

/// Blocks as they are found in use, in any order, when a store is opened; what is left is free.
///
/// A bit for each block. Values are found in the order of their keys, which is none on the SSD:
/// taking them out of the free runs one by one would cut and search millions of runs.
#[derive(Clone)]
pub struct Claims {
    /// Bits of blocks that are used, and of those that there are not.
    used: Vec<u64>,
    blocks: u64,
}

impl Claims {
    /// Blocks from `first` to `blocks`, all free.
    pub fn new(first: u32, blocks: u64) -> Claims {
        let end = blocks.min(BLOCKS_MAX); // a store from before may say more
        let mut claims = Claims { used: vec![0; end.div_ceil(BITS) as usize], blocks };
        for block in (0..u64::from(first).min(end)).chain(end..end.next_multiple_of(BITS)) {
            claims.set(block);
        }
        claims
    }

    /// The bits.
    pub fn words(&self) -> &[u64] {
        &self.used
    }

    /// Takes bits for those it has; false if they are of a larger SSD. Those of a smaller one,
    /// whose blocks filled its words, leave the rest as it is.
    pub fn restore(&mut self, words: &[u64]) -> bool {
        let front = self.used.get_mut(..words.len());
        let fits = front.is_some();
        if let Some(front) = front {
            front.copy_from_slice(words);
        }
        fits
    }

    /// Marks blocks as used; false if some already are.
    pub fn claim(&mut self, extents: &[Extent]) -> bool {
        extents.iter().all(|extent| {
            let blocks =
                u64::from(extent.start)..u64::from(extent.start) + u64::from(extent.blocks);
            let free = blocks.clone().all(|block| self.is_free(block));
            if free {
                blocks.for_each(|block| self.set(block));
            }
            free
        })
    }

    /// Marks blocks as free again; false if some are already.
    pub fn release(&mut self, extents: &[Extent]) -> bool {
        extents.iter().all(|extent| {
            let blocks =
                u64::from(extent.start)..u64::from(extent.start) + u64::from(extent.blocks);
            blocks.clone().all(|block| {
                let used = self.is_used(block);
                if used {
                    self.used[(block / BITS) as usize] &= !(1 << (block % BITS));
                }
                used
            })
        })
    }

    fn is_used(&self, block: u64) -> bool {
        self.used.get((block / BITS) as usize).is_some_and(|word| word >> (block % BITS) & 1 == 1)
    }

    fn is_free(&self, block: u64) -> bool {
        self.used.get((block / BITS) as usize).is_some_and(|word| word >> (block % BITS) & 1 == 0)
    }

    fn set(&mut self, block: u64) {
        self.used[(block / BITS) as usize] |= 1 << (block % BITS);
    }

    /// All others are free.
    pub fn into_space(self) -> Space {
        let mut runs: Vec<(u32, u32)> = Vec::new();
        for (word, used) in self.used.iter().enumerate() {
            let first = (word as u64 * BITS) as u32;
            let mut free = !used;
            while free != 0 {
                let skip = free.trailing_zeros();
                let (start, blocks) = (first + skip, (free >> skip).trailing_ones());
                match runs.last_mut().filter(|(before, count)| before + count == start) {
                    Some((_, count)) => *count += blocks,
                    None => runs.push((start, blocks)),
                }
                // All ones up to the run's end go; a run to the word's end leaves nothing.
                free &= u64::MAX.checked_shl(skip + blocks).unwrap_or(0);
            }
        }
        let free_blocks: u64 = runs.iter().map(|(_, blocks)| u64::from(*blocks)).sum();
        let free_blocks = Arc::new(AtomicU64::new(free_blocks));
        let state = State {
            free_blocks: free_blocks.clone(),
            by_length: runs.iter().map(|&(start, blocks)| (blocks, start)).collect(),
            runs: runs.into_iter().collect(),
            next: 0,
            kept: 0,
            pins: HashMap::new(),
        };
        Space { state: Mutex::new(state), free_blocks, blocks: self.blocks }
    }
}

impl Space {
    /// How many blocks there are, free or not.
    pub fn blocks(&self) -> u64 {
        self.blocks
    }

    /// How many are free.
    pub fn free_blocks(&self) -> u64 {
        self.lock().free()
    }

    /// The same without a lock, for statistics.
    pub fn free_blocks_told(&self) -> u64 {
        self.free_blocks.load(Relaxed)
    }

    /// Whether the same blocks are free.
    #[cfg(debug_assertions)]
    pub fn is_same(&self, other: &Space) -> bool {
        let runs = self.lock().runs.clone();
        runs == other.lock().runs
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nobody panics inside")
    }

    /// From now on values leave so many free, for what is not a value.
    pub fn keep(&self, blocks: u64) {
        self.lock().kept = blocks;
    }

    /// Whether there is room for a value of so many, as far as their number goes.
    pub fn has_spare(&self, blocks: u64) -> bool {
        let state = self.lock();
        blocks + state.kept <= state.free()
    }

    /// Whether so many can be taken, in as many extents as a value may have.
    pub fn fits(&self, blocks: u32) -> bool {
        let state = self.lock();
        let longest = state.by_length.iter().rev().take(EXTENTS_MAX);
        u64::from(blocks) <= longest.map(|(length, _)| u64::from(*length)).sum()
    }

    /// How many blocks the longest free run has.
    pub fn longest_run(&self) -> u32 {
        self.lock().by_length.last().map_or(0, |(length, _)| *length)
    }

    /// Takes neighbouring blocks.
    pub fn take_run(&self, blocks: u32) -> Result<Extent> {
        let mut state = self.lock();
        let fits = state.by_length.range((blocks, 0)..).next().copied();
        let (_, start) = fits.ok_or(Error::SsdFull { blocks: blocks.into() })?;
        let taken = Extent { start, blocks };
        assert!(state.take(taken), "a free run holds its own front");
        Ok(taken)
    }

    /// Takes blocks behind those that were last taken so, or from the front of the longest run:
    /// what is written together lies together.
    pub fn take_in_order(&self, blocks: u32) -> Result<Vec<Extent>> {
        {
            let mut state = self.lock();
            let next = state.next;
            let run = state.runs.get(&next).map(|&length| (length, next));
            let longest = state.by_length.last().copied().filter(|&(length, _)| RUN_MIN <= length);
            let found = run.filter(|&(length, _)| blocks <= length).or(longest);
            if let Some((_, start)) = found.filter(|&(length, _)| 0 < blocks && blocks <= length) {
                let extent = Extent { start, blocks };
                assert!(state.take(extent), "a free run holds its own front");
                state.next = start + blocks;
                return Ok(vec![extent]);
            }
        }
        self.take(blocks)
    }

    /// Takes blocks, in one run if there is one that long.
    pub fn take(&self, blocks: u32) -> Result<Vec<Extent>> {
        if blocks == 0 {
            return Ok(Vec::new());
        }
        let mut state = self.lock();
        let full = Error::SsdFull { blocks: blocks.into() };
        if state.free() < u64::from(blocks) {
            return Err(full);
        }
        let mut left = blocks;
        let mut taken: Vec<Extent> = Vec::new();
        while 0 < left {
            let fits = state.by_length.range((left, 0)..).next().copied();
            let run = fits.or_else(|| state.by_length.last().copied());
            let Some((length, start)) = run.filter(|_| taken.len() < EXTENTS_MAX) else {
                taken.into_iter().for_each(|extent| state.insert(extent));
                return Err(full);
            };
            let extent = Extent { start, blocks: length.min(left) };
            assert!(state.take(extent), "a free run holds its own front");
            left -= extent.blocks;
            taken.push(extent);
        }
        Ok(taken)
    }

    /// Takes just these blocks; false, and none of them, if some are in use.
    pub fn take_these(&self, extents: &[Extent]) -> bool {
        let mut state = self.lock();
        let taken = extents.iter().take_while(|extent| state.take(**extent)).count();
        let is_all = taken == extents.len();
        if !is_all {
            extents[..taken].iter().for_each(|extent| state.insert(*extent));
        }
        is_all
    }

    /// Gives blocks back, once nobody reads them.
    pub fn free(&self, extents: &[Extent]) {
        let Some(first) = extents.first() else { return };
        let mut state = self.lock();
        match state.pins.get_mut(&first.start) {
            Some(pin) => pin.freed.extend_from_slice(extents),
            None => extents.iter().for_each(|&extent| state.insert(extent)),
        }
    }

    /// Keeps the value that begins with `first` from being overwritten.
    pub fn pin(&self, first: u32) {
        self.lock().pins.entry(first).or_default().readers += 1;
    }

    /// Ends a `pin`.
    pub fn unpin(&self, first: u32) {
        let mut state = self.lock();
        let Some(pin) = state.pins.get_mut(&first) else { return };
        pin.readers -= 1;
        if pin.readers == 0 {
            let freed = state.pins.remove(&first).unwrap_or_default().freed;
            freed.into_iter().for_each(|extent| state.insert(extent));
        }
    }
}

impl State {
    fn free(&self) -> u64 {
        self.free_blocks.load(Relaxed)
    }

    fn insert(&mut self, extent: Extent) {
        self.free_blocks.fetch_add(extent.blocks.into(), Relaxed);
        self.join(extent);
    }

    /// Free blocks join their neighbours.
    fn join(&mut self, mut extent: Extent) {
        if extent.blocks == 0 {
            return;
        }
        let end = extent.start + extent.blocks;
        if let Some((&start, &blocks)) = self.runs.range(..extent.start).next_back() {
            assert!(start + blocks <= extent.start, "{extent:?} was free already");
            if start + blocks == extent.start {
                self.remove(start, blocks);
                extent = Extent { start, blocks: blocks + extent.blocks };
            }
        }
        if let Some((&start, &blocks)) = self.runs.range(extent.start..).next() {
            assert!(end <= start, "{extent:?} was free already");
            if end == start {
                self.remove(start, blocks);
                extent.blocks += blocks;
            }
        }
        self.runs.insert(extent.start, extent.blocks);
        self.by_length.insert((extent.blocks, extent.start));
    }

    fn remove(&mut self, start: u32, blocks: u32) {
        self.runs.remove(&start);
        self.by_length.remove(&(blocks, start));
    }

    /// Takes an extent out of the run that holds it.
    fn take(&mut self, extent: Extent) -> bool {
        let Some((&start, &blocks)) = self.runs.range(..=extent.start).next_back() else {
            return false;
        };
        let end = u64::from(start) + u64::from(blocks);
        let taken_end = u64::from(extent.start) + u64::from(extent.blocks);
        if end < taken_end {
            return false;
        }
        self.remove(start, blocks);
        self.free_blocks.fetch_sub(extent.blocks.into(), Relaxed);
        self.join(Extent { start, blocks: extent.start - start });
        self.join(Extent { start: taken_end as u32, blocks: (end - taken_end) as u32 });
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::media::disk::sim::Random;

    #[test]
    fn what_is_taken_and_given_back_in_any_order_joins_again() {
        let space = Claims::new(2, 1000).into_space();
        let mut random = Random::new(5);
        let mut held = Vec::new();
        for _ in 0..2000 {
            if random.one_in(2) || held.is_empty() {
                if let Ok(extents) = space.take(1 + random.below(60) as u32) {
                    held.push(extents);
                }
            } else {
                let index = random.below(held.len() as u64) as usize;
                space.free(&held.swap_remove(index));
            }
            let mut seen = BTreeSet::new();
            for extent in held.iter().flatten() {
                for block in extent.start..extent.start + extent.blocks {
                    assert!((2..1000).contains(&block) && seen.insert(block), "taken twice");
                }
            }
            assert_eq!(space.free_blocks() + seen.len() as u64, 998);
        }
        held.iter().for_each(|extents| space.free(extents));
        assert_eq!(space.take_run(998).unwrap(), Extent { start: 2, blocks: 998 });
    }

    #[test]
    fn what_is_taken_in_order_lies_together_until_only_short_runs_are_left() {
        let space = Claims::new(0, 100).into_space();
        let first = space.take_in_order(1).unwrap();
        let one = |start| vec![Extent { start, blocks: 1 }];
        assert_eq!(first, one(0));
        assert_eq!(
            (space.take_in_order(1).unwrap(), space.take_in_order(1).unwrap()),
            (one(1), one(2))
        );
        space.free(&first);
        assert_eq!(space.take_in_order(1).unwrap(), one(3), "not where one block is free");
        assert_eq!(space.take(1).unwrap(), one(0), "the smallest run that fits");
        assert_eq!(space.take_in_order(90).unwrap(), [Extent { start: 4, blocks: 90 }]);
        space.free(&one(1));
        assert_eq!(space.take_in_order(6).unwrap(), [Extent { start: 94, blocks: 6 }]);
        assert_eq!(space.take_in_order(1).unwrap(), one(1));
        assert_eq!(space.take_in_order(0).unwrap(), []);
        assert!(matches!(space.take_in_order(1), Err(Error::SsdFull { blocks: 1 })));
    }

    #[test]
    fn blocks_are_taken_by_place_all_or_none() {
        let space = Claims::new(0, 10).into_space();
        let [one, two, both] =
            [(2, 3), (7, 2), (4, 4)].map(|(start, blocks)| Extent { start, blocks });
        assert!(space.take_these(&[one, two]) && space.take_these(&[]));
        assert_eq!(space.free_blocks(), 5);
        assert!(!space.take_these(&[Extent { start: 5, blocks: 1 }, both]));
        assert!(!space.take_these(&[one]) && !space.take_these(&[Extent { start: 9, blocks: 2 }]));
        assert_eq!(space.free_blocks(), 5);
        space.free(&[one, two]);
        assert!(space.take_these(&[both]));
    }

    #[test]
    fn what_is_read_is_freed_by_the_last_reader() {
        let space = Claims::new(0, 10).into_space();
        let extents = space.take(10).unwrap();
        space.pin(extents[0].start);
        space.pin(extents[0].start);
        space.free(&extents);
        space.unpin(extents[0].start);
        assert!(matches!(space.take(1), Err(Error::SsdFull { blocks: 1 })));
        space.unpin(extents[0].start);
        assert_eq!(space.free_blocks(), 10);
    }

    #[test]
    fn a_claim_of_used_blocks_is_refused() {
        let mut claims = Claims::new(1, 10);
        assert!(claims.claim(&[Extent { start: 3, blocks: 4 }, Extent { start: 0, blocks: 0 }]));
        assert!(!claims.claim(&[Extent { start: 6, blocks: 2 }]), "half of it is used");
        assert!(!claims.claim(&[Extent { start: 9, blocks: 2 }]), "half of it is not there");
        assert!(!claims.claim(&[Extent { start: 0, blocks: 1 }]), "never free");
        assert!(!claims.claim(&[Extent { start: u32::MAX, blocks: u32::MAX }]));
        assert!(claims.release(&[Extent { start: 4, blocks: 2 }]));
        assert!(!claims.release(&[Extent { start: 5, blocks: 2 }]), "half of it is free");
        assert!(!claims.release(&[Extent { start: u32::MAX, blocks: u32::MAX }]));
        assert_eq!(claims.into_space().free_blocks(), 7);
    }

    #[test]
    fn what_was_not_claimed_is_free_in_runs_as_long_as_they_are() {
        const BLOCKS: u32 = 1000;
        for seed in 0..50 {
            let mut random = Random::new(seed);
            let mut claims = Claims::new(3, BLOCKS.into());
            let mut used = BTreeSet::from([0, 1, 2]);
            for _ in 0..random.below(60) {
                let start = random.below(BLOCKS.into()) as u32;
                let blocks = random.below(130) as u32;
                let mut range = start..start + blocks;
                let free = range.end <= BLOCKS && !range.clone().any(|b| used.contains(&b));
                let extent = Extent { start, blocks };
                // Of no blocks nobody asks where they are.
                assert_eq!(claims.claim(&[extent]), free || blocks == 0);
                if free {
                    used.extend(&mut range);
                }
            }
            let space = claims.into_space();
            assert_eq!(space.free_blocks(), u64::from(BLOCKS) - used.len() as u64);
            let state = space.lock();
            let free: Vec<u32> = state.runs.iter().flat_map(|(&s, &n)| s..s + n).collect();
            assert!(free.iter().all(|block| !used.contains(block)), "seed {seed}");
            let joined = state.runs.iter().zip(state.runs.iter().skip(1));
            assert!(joined.into_iter().all(|((s, n), (next, _))| s + n < *next), "seed {seed}");
            assert_eq!(state.by_length.len(), state.runs.len());
        }
    }
}
