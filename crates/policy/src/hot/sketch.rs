//! Counts how often each key was asked for in the present timeslot, with little memory and no
//! clearing (KeySched §2 "Key Frequency Monitor"): a count-min sketch.
//!
//! It departs from the poster: a cell holds the slot it was last written in beside its count, so a
//! new slot costs nothing; and only the smallest of a key's cells are counted up (conservative
//! update), which keeps the estimate an upper bound and brings it nearer to the truth. The stamp
//! has 16 bits: a cell that nobody wrote for exactly 65 536 slots (65 s) would count on from its
//! old value, which can at worst call one key hot for one slot.
//!
//! How far off it is: of N requests in a slot a row adds N / [`CountMin::COLUMNS`] of strangers to
//! a key's cell on average, so by Markov's inequality an estimate is too high by more than
//! k · N / columns with a probability of at most k^-rows; without conservative update, which only
//! lowers it. That holds for whatever hashes come from somebody who does not know the seed: it goes
//! into what chooses the cells before everything else, and is to be drawn at random. Keys that
//! share a hash share all cells whatever the seed; who counts keys of others hashes them by
//! [`crate::hot::hasher`].
//!
//! It knows no key, only its 64-bit hash. Unit: requests.

use alloc::boxed::Box;
use alloc::vec;

/// A key, by its hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct KeyHash(pub u64);

/// Rows of the sketch that counts everybody's requests: hash functions per key.
pub const SKETCH_ROWS: usize = 4;

/// Cells in a row. With 15 000 requests a slot a row's cells hold 4 on average.
pub const SKETCH_COLUMNS: usize = 4096;

/// One sketch for all requests, as the simulator and a network card have it: 64 KiB.
pub type Sketch = CountMin<SKETCH_ROWS, SKETCH_COLUMNS>;

/// A sketch for the requests of one worker, a few hundred to a few thousand in a slot: 16 KiB,
/// which stay in its first cache.
pub type WorkerSketch = CountMin<2, 2048>;

/// Odd, and of no pattern: the first bits of the fractions of sqrt(2) and sqrt(3).
const MULTIPLIER: u64 = 0x6a09_e667_f3bc_c909;
const MULTIPLIER_LAST: u64 = 0xbb67_ae85_84ca_a73b;

/// Sixteen bits of slot above sixteen bits of count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Cell(u32);

impl Cell {
    const fn new(stamp: u16, count: u16) -> Cell {
        Cell((stamp as u32) << 16 | count as u32)
    }

    /// The count, if it is of this slot.
    const fn count(self, stamp: u16) -> u16 {
        if (self.0 >> 16) as u16 == stamp { self.0 as u16 } else { 0 }
    }
}

/// A sketch of so many rows and columns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CountMin<const ROWS: usize, const COLUMNS: usize> {
    cells: Box<[[Cell; COLUMNS]; ROWS]>,
    stamp: u16,
    seed: u64,
}

impl<const ROWS: usize, const COLUMNS: usize> CountMin<ROWS, COLUMNS> {
    /// Hash functions per key.
    pub const ROWS: usize = ROWS;
    /// Cells of each.
    pub const COLUMNS: usize = COLUMNS;

    /// Bits that choose a cell of a row.
    const COLUMN_BITS: u32 = {
        assert!(COLUMNS.is_power_of_two() && 1 < COLUMNS);
        assert!(0 < ROWS && ROWS as u32 * COLUMNS.ilog2() <= u64::BITS);
        COLUMNS.ilog2()
    };

    /// An empty sketch. `seed`: any random number that is told to nobody.
    pub fn new(seed: u64) -> Self {
        // Untouched cells claim slot 0, which is the first, but hold nothing.
        // Made on the heap: it is too large to pass over the stack.
        let cells = vec![[Cell::default(); COLUMNS]; ROWS].into_boxed_slice();
        let Ok(cells) = cells.try_into() else { unreachable!("it has that many rows") };
        CountMin { cells, stamp: 0, seed }
    }

    /// Count one request for `key`; how many there were in this slot, itself included: never too
    /// few (up to 65 535, where counting stops), perhaps too many.
    #[inline]
    pub fn count(&mut self, key: KeyHash) -> u16 {
        // By number and not by iterator: so the rows are unrolled.
        let places = self.places(key);
        let stamp = self.stamp;
        let mut estimate = [0; ROWS];
        let mut lowest = u16::MAX;
        for row in 0..ROWS {
            estimate[row] = self.cells[row][places[row]].count(stamp);
            lowest = lowest.min(estimate[row]);
        }
        let next = lowest.saturating_add(1);
        for row in 0..ROWS {
            if estimate[row] == lowest {
                self.cells[row][places[row]] = Cell::new(stamp, next);
            }
        }
        next
    }

    /// How many requests for `key` there were in this slot.
    pub fn estimate(&self, key: KeyHash) -> u16 {
        let places = self.places(key);
        let counts = self.cells.iter().zip(places).map(|(row, place)| row[place].count(self.stamp));
        counts.min().unwrap_or(0)
    }

    /// Begin a new slot: all counts are 0.
    pub fn slot_ended(&mut self) {
        self.begin(self.stamp.wrapping_add(1));
    }

    /// This is slot number `stamp`: counts of any other are 0.
    pub fn begin(&mut self, stamp: u16) {
        self.stamp = stamp;
    }

    /// The key's cell in each row: bits of its own of one well-mixed hash.
    #[inline]
    fn places(&self, key: KeyHash) -> [usize; ROWS] {
        let hash = mix(self.seed, key);
        core::array::from_fn(|row| {
            let bits = hash >> (u64::BITS - (row as u32 + 1) * Self::COLUMN_BITS);
            bits as usize & (COLUMNS - 1)
        })
    }
}

/// The seed first, so that which keys share a cell hangs on it; the high bits are the best.
#[inline]
const fn mix(seed: u64, key: KeyHash) -> u64 {
    let hash = (key.0 ^ seed).wrapping_mul(MULTIPLIER);
    (hash ^ (hash >> 32)).wrapping_mul(MULTIPLIER_LAST)
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use std::collections::HashSet;

    /// The inverse of an odd number, by Newton's iteration.
    const fn inverse(odd: u64) -> u64 {
        let mut inverse = odd;
        let mut step = 0;
        while step < 6 {
            inverse = inverse.wrapping_mul(2_u64.wrapping_sub(odd.wrapping_mul(inverse)));
            step += 1;
        }
        inverse
    }

    /// The key that `mix` makes `hash` of.
    const fn unmix(seed: u64, hash: u64) -> KeyHash {
        let hash = hash.wrapping_mul(inverse(MULTIPLIER_LAST));
        KeyHash((hash ^ (hash >> 32)).wrapping_mul(inverse(MULTIPLIER)) ^ seed)
    }

    /// A million keys that all share every one of their cells, for whoever knows the seed; for
    /// another seed they are keys like any others.
    #[test]
    fn keys_crafted_for_another_seed_collide_no_more_than_others() {
        const KEYS: u64 = 1_000_000;
        let (theirs, ours) = (0x0dd5_eed5_0f5a_11e5, 0x5eed_0f0f_0f0f_5eed);
        // All cells of a sketch of 2 x 2048 are chosen by the highest 22 bits.
        let crafted = |number: u64| unmix(theirs, number);
        let mut known = WorkerSketch::new(theirs);
        let mut unknown = WorkerSketch::new(ours);
        let mut highest = 0;
        for number in 0..KEYS {
            known.count(crafted(number));
            highest = highest.max(unknown.count(crafted(number)));
        }
        assert_eq!(known.estimate(crafted(KEYS)), u16::MAX, "they are what they are made to be");
        // On average a cell of a row holds 488 of a million strangers.
        let mean = (KEYS / WorkerSketch::COLUMNS as u64) as u16;
        assert!(highest < 2 * mean, "{highest}, where {mean} is the mean");
    }

    /// The same in slots of 2 000 requests, as a server has them: no key of a single request is
    /// called hot.
    #[test]
    fn crafted_keys_raise_no_false_hot_key_in_a_slot() {
        let (theirs, ours) = (1, 2);
        let mut sketch = WorkerSketch::new(ours);
        let mut false_hot = HashSet::new();
        for slot in 0..500_u64 {
            for number in slot * 2_000..(slot + 1) * 2_000 {
                if sketch.count(unmix(theirs, number)) >= 16 {
                    false_hot.insert(number);
                }
            }
            sketch.slot_ended();
        }
        assert!(false_hot.is_empty(), "{false_hot:?}");
    }

    #[test]
    fn an_estimate_is_within_its_bound_as_often_as_said() {
        const REQUESTS: u64 = 20_000;
        // Ordinary keys, crafted for no seed.
        let hash = |key: u64| unmix(0x5717, (key + 1).wrapping_mul(MULTIPLIER).rotate_left(29));
        for seed in 0..5 {
            let mut sketch = WorkerSketch::new(seed);
            // Key k is asked for 1 to 16 times: 8.5 on average.
            let times = |key: u64| 1 + key % 16;
            let keys = REQUESTS * 2 / 17;
            for key in 0..keys {
                for _ in 0..times(key) {
                    sketch.count(hash(key));
                }
            }
            let error = |key: u64| u64::from(sketch.estimate(hash(key))) - times(key);
            for k in [2, 3, 4] {
                let most = k * REQUESTS / WorkerSketch::COLUMNS as u64;
                let beyond = (0..keys).filter(|&key| error(key) > most).count() as f64;
                let bound = (k as f64).powi(-(WorkerSketch::ROWS as i32));
                assert!(beyond <= bound * keys as f64, "{beyond} of {keys} beyond {most}");
            }
        }
    }
}
