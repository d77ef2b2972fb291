//! Pieces of values that lie in several extents: each part is read in its place among others, and
//! what is known of the piece is put together when the last one was.
//!
//! It takes some bytes of memory for each extent of so many pieces; the others are read by
//! themselves.

use crc32c::crc32c_combine;
use std::collections::HashMap;

/// A value's number, and which of its pieces.
type Key = (u64, u32);
/// The crc of a part, and how many bytes it has.
type Known = (u32, usize);

/// What was read of pieces.
#[derive(Default)]
pub struct Pieces(HashMap<Key, Vec<Option<Known>>>);

/// Pieces of which something is known, at most: a part that never comes is never taken out.
const PIECES_MAX: usize = 1 << 16;

impl Pieces {
    /// Whether a part of this piece can be added.
    pub fn has_room_for(&self, key: Key) -> bool {
        self.0.len() < PIECES_MAX || self.0.contains_key(&key)
    }

    /// Adds part `part` of `parts`; the crc of the whole piece once all of it is known.
    pub fn add(&mut self, key: Key, (part, parts): (u32, u32), known: Known) -> Option<u32> {
        let all = self.0.entry(key).or_default();
        if all.len() != parts as usize {
            // A checkpoint has the number of the one before it.
            *all = vec![None; parts as usize];
        }
        all[part as usize] = Some(known);
        let all: Option<Vec<Known>> = all.iter().copied().collect();
        let all = all?;
        self.0.remove(&key);
        all.into_iter()
            .reduce(|(crc, bytes), (next, more)| (crc32c_combine(crc, next, more), bytes + more))
            .map(|(crc, _)| crc)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crc32c::crc32c;

    #[test]
    fn parts_that_come_in_any_order_make_the_crc_of_the_whole() {
        let bytes: Vec<u8> = (0..10_000_u32).map(|n| ((n * 31) >> 3) as u8).collect();
        let parts = [&bytes[..4096], &bytes[4096..8192], &bytes[8192..]];
        for order in [[0, 1, 2], [2, 1, 0], [1, 2, 0]] {
            let mut pieces = Pieces::default();
            let mut add = |part: u32| {
                let bytes = parts[part as usize];
                pieces.add((7, 1), (part, 3), (crc32c(bytes), bytes.len()))
            };
            assert_eq!((add(order[0]), add(order[1])), (None, None));
            assert_eq!(add(order[2]), Some(crc32c(&bytes)));
            assert!(pieces.0.is_empty(), "nothing is left of it");
        }
        let mut pieces = Pieces::default();
        assert_eq!(pieces.add((7, 1), (2, 3), (1, 4096)), None);
        assert_eq!(pieces.add((7, 1), (0, 2), (crc32c(&bytes[..9]), 9)), None, "another shape");
        let known = (crc32c(&bytes[9..]), bytes.len() - 9);
        assert_eq!(pieces.add((7, 1), (1, 2), known), Some(crc32c(&bytes)));
    }
}
