//! Which blocks of the SSD are free.
//!
//! Kept in memory only: recovery knows what is in use from the index. Freed blocks join their
//! neighbours; the smallest run that fits is taken, and when none does, a value is cut into several
//! extents. So no size class strands space that another needs, which is why there are no slab files
//! of one size each. Blocks that somebody is reading are freed when the last reader is done.

use crate::pointer::{EXTENTS_MAX, Extent};
use crate::types::{Error, Result};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Mutex, MutexGuard};

#[derive(Default)]
struct State {
    /// Free runs by their start.
    runs: BTreeMap<u32, u32>,
    /// The same by length.
    by_length: BTreeSet<(u32, u32)>,
    free_blocks: u64,
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
    blocks: u64,
}

impl Space {
    /// Blocks from `first` to `blocks`, all free.
    pub fn new(first: u32, blocks: u64) -> Space {
        let space = Space { state: Mutex::default(), blocks };
        let blocks = (blocks.min(u64::from(u32::MAX)) as u32).saturating_sub(first);
        space.lock().insert(Extent { start: first, blocks });
        space
    }

    /// How many blocks there are, free or not.
    pub fn blocks(&self) -> u64 {
        self.blocks
    }

    /// How many are free.
    pub fn free_blocks(&self) -> u64 {
        self.lock().free_blocks
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nobody panics inside")
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

    /// Takes blocks, in one run if there is one that long.
    pub fn take(&self, blocks: u32) -> Result<Vec<Extent>> {
        if blocks == 0 {
            return Ok(Vec::new());
        }
        let mut state = self.lock();
        let full = Error::SsdFull { blocks: blocks.into() };
        if state.free_blocks < blocks.into() {
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

    /// Marks blocks as used, for recovery; false if some already are.
    pub fn claim(&self, extents: &[Extent]) -> bool {
        let mut state = self.lock();
        extents.iter().all(|&extent| extent.blocks == 0 || state.take(extent))
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
    fn insert(&mut self, mut extent: Extent) {
        if extent.blocks == 0 {
            return;
        }
        self.free_blocks += u64::from(extent.blocks);
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
        self.free_blocks -= u64::from(blocks);
        self.insert(Extent { start, blocks: extent.start - start });
        self.insert(Extent { start: taken_end as u32, blocks: (end - taken_end) as u32 });
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::sim::Random;

    #[test]
    fn what_is_taken_and_given_back_in_any_order_joins_again() {
        let space = Space::new(2, 1000);
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
    fn what_is_read_is_freed_by_the_last_reader() {
        let space = Space::new(0, 10);
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
        let space = Space::new(0, 10);
        assert!(space.claim(&[Extent { start: 3, blocks: 4 }]));
        assert!(!space.claim(&[Extent { start: 6, blocks: 2 }]));
        assert!(!space.claim(&[Extent { start: 9, blocks: 2 }]));
        assert_eq!(space.free_blocks(), 6);
    }
}
