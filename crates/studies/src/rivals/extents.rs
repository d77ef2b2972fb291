//! Memory for what an index points at: pieces of some bytes, from behind the index to the end of
//! the memory. A piece that is given back is used again at once, by the next that needs as many
//! units: whoever still reads it must notice. (Pilaf takes care of neither, and finds out by the
//! checksum in the bucket, as here.)
//!
//! A piece stays as long as it was made; the memory of many short ones never makes a long one.

use super::record::UNIT_BYTES;
use std::collections::HashMap;

/// A piece of the memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// Where it begins, in units.
    pub unit: u32,
    units: u32,
}

impl Extent {
    /// Where it begins, in bytes.
    pub fn at(&self) -> usize {
        self.unit as usize * UNIT_BYTES
    }
}

/// What is free.
#[derive(Debug)]
pub struct Extents {
    /// Never given away: from here to the end.
    next: u32,
    end: u32,
    /// Given back, by how many units they have.
    free: HashMap<u32, Vec<u32>>,
}

impl Extents {
    /// The memory from byte `start` to byte `end`. Of more than 32 GiB the rest is not used.
    pub fn new(start: usize, end: usize) -> Extents {
        let unit = |byte: usize| u32::try_from(byte / UNIT_BYTES).unwrap_or(u32::MAX);
        Extents {
            next: unit(start.next_multiple_of(UNIT_BYTES)),
            end: unit(end),
            free: HashMap::new(),
        }
    }

    /// A piece of so many bytes. `None`: there is none.
    pub fn take(&mut self, bytes: usize) -> Option<Extent> {
        let units = u32::try_from(bytes.div_ceil(UNIT_BYTES)).ok()?;
        if let Some(unit) = self.free.get_mut(&units).and_then(Vec::pop) {
            return Some(Extent { unit, units });
        }
        let unit = self.next;
        self.next = unit.checked_add(units).filter(|next| *next <= self.end)?;
        Some(Extent { unit, units })
    }

    /// It is needed no more.
    pub fn give(&mut self, extent: Extent) {
        self.free.entry(extent.units).or_default().push(extent.unit);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_do_not_overlap_and_come_back() {
        let mut extents = Extents::new(13, 64);
        let one = extents.take(9).expect("there is room");
        let two = extents.take(8).expect("there is room");
        assert_eq!((one.at(), two.at()), (16, 32));
        let three = extents.take(24).expect("just enough");
        assert_eq!((three.at(), extents.take(1)), (40, None));
        extents.give(one);
        assert_eq!(extents.take(8), None, "of another length");
        assert_eq!(extents.take(16), Some(one));
        assert_eq!((extents.take(16), extents.take(usize::MAX)), (None, None));
    }
}
