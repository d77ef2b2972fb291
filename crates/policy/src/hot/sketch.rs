//! Counts how often each key was asked for in the present timeslot, with little memory and no
//! clearing (KeySched §2 "Key Frequency Monitor"): a count-min sketch.
//!
//! Departs from the poster: a cell holds the slot it was last written in beside its count, so a
//! new slot costs nothing; and only the smallest of a key's cells are counted up (conservative
//! update), which keeps the estimate an upper bound and brings it nearer to the truth. The stamp
//! has 16 bits: a cell that nobody wrote for exactly 65 536 slots (65 s) would count on from its
//! old value, which can at worst call one key hot for one slot.
//!
//! Knows no key, only its 64-bit hash. Unit: requests.

use alloc::vec;
use alloc::vec::Vec;

/// A key, by its hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct KeyHash(pub u64);

/// Rows of the sketch: hash functions per key.
pub const SKETCH_ROWS: usize = 4;

/// Cells in a row. With 15 000 requests a slot a row's cells hold 4 on average.
pub const SKETCH_COLUMNS: usize = 4096;

const _: () = assert!(SKETCH_COLUMNS.is_power_of_two());

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

/// The sketch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sketch {
    cells: Vec<Cell>,
    stamp: u16,
}

impl Default for Sketch {
    fn default() -> Self {
        // Slot 0 is what untouched cells claim; start after it.
        Sketch { cells: vec![Cell::default(); SKETCH_ROWS * SKETCH_COLUMNS], stamp: 1 }
    }
}

impl Sketch {
    /// An empty sketch.
    pub fn new() -> Self {
        Self::default()
    }

    /// Count one request for `key`; how many there were in this slot, itself included: never too
    /// few (up to 65 535, where counting stops), perhaps too many.
    #[inline]
    pub fn count(&mut self, key: KeyHash) -> u16 {
        let places = Self::places(key);
        let estimate = places.map(|place| self.cells[place].count(self.stamp));
        let lowest = estimate.into_iter().min().unwrap_or(0);
        let next = lowest.saturating_add(1);
        for (place, count) in places.into_iter().zip(estimate) {
            if count == lowest {
                self.cells[place] = Cell::new(self.stamp, next);
            }
        }
        next
    }

    /// How many requests for `key` there were in this slot.
    pub fn estimate(&self, key: KeyHash) -> u16 {
        let counts = Self::places(key).map(|place| self.cells[place].count(self.stamp));
        counts.into_iter().min().unwrap_or(0)
    }

    /// Begin a new slot: all counts are 0.
    pub fn slot_ended(&mut self) {
        self.stamp = self.stamp.wrapping_add(1);
    }

    /// The key's cell in each row: two halves of the hash make as many functions as wanted.
    fn places(key: KeyHash) -> [usize; SKETCH_ROWS] {
        let step = (key.0 >> 32) | 1;
        core::array::from_fn(|row| {
            let hash = key.0.wrapping_add(step.wrapping_mul(row as u64));
            row * SKETCH_COLUMNS + (hash as usize & (SKETCH_COLUMNS - 1))
        })
    }
}
