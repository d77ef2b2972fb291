//! A ring of memory for outgoing pieces: they are copied into it and stay there until the card has
//! taken them. Pieces have whole cache lines and are freed in the order in which they left. Sizes
//! are bytes.

use crate::layout::LINE_BYTES;
use std::collections::VecDeque;

/// See the module's page.
#[derive(Debug)]
pub struct Stage {
    bytes: usize,
    /// Where the next piece goes, and how much behind it is taken.
    at: usize,
    taken: usize,
    /// Work request and bytes of each piece that is taken.
    left: VecDeque<(u64, usize)>,
}

impl Stage {
    /// Of memory of so many bytes.
    pub fn new(bytes: usize) -> Stage {
        assert!(bytes.is_multiple_of(LINE_BYTES), "a stage of {bytes} bytes");
        Stage { bytes, at: 0, taken: 0, left: VecDeque::new() }
    }

    /// Where `bytes` go that leave with work request `number`, behind the last, when all up to
    /// `completed` have left. `None`: there is no room now.
    pub fn take(&mut self, bytes: usize, number: u64, completed: u64) -> Option<usize> {
        while let Some((_, bytes)) = self.left.pop_front_if(|(number, _)| *number <= completed) {
            self.taken -= bytes;
        }
        let bytes = bytes.next_multiple_of(LINE_BYTES);
        // A piece is never cut by the end.
        let skipped = if self.at + bytes > self.bytes { self.bytes - self.at } else { 0 };
        if self.taken + skipped + bytes > self.bytes {
            return None;
        }
        let start = (self.at + skipped) % self.bytes;
        self.at = start + bytes;
        self.taken += skipped + bytes;
        self.left.push_back((number, skipped + bytes));
        Some(start)
    }
}

#[cfg(test)]
mod tests {
    use super::super::twin::Draws;
    use super::*;

    #[test]
    fn pieces_under_way_never_overlap_and_all_memory_is_used() {
        for seed in 1..=20 {
            let (mut stage, mut draws) = (Stage::new(4096), Draws::new(seed));
            let mut under_way: VecDeque<(u64, usize, usize)> = VecDeque::new();
            let (mut number, mut completed, mut most) = (0, 0, 0);
            for _ in 0..5_000 {
                let bytes = 1 + draws.below(1500) as usize;
                match stage.take(bytes, number + 1, completed) {
                    Some(start) => {
                        number += 1;
                        let end = start + bytes;
                        assert!(end <= 4096, "seed {seed}");
                        let apart =
                            |(_, from, to): &(u64, usize, usize)| *to <= start || end <= *from;
                        assert!(under_way.iter().all(apart), "seed {seed}: {start}..{end}");
                        under_way.push_back((number, start, end));
                    }
                    None => assert!(!under_way.is_empty(), "seed {seed}: it stands still"),
                }
                most = most.max(under_way.iter().map(|(_, from, to)| to - from).sum());
                if draws.percent(40) {
                    completed += draws.below(number - completed + 1);
                    under_way.retain(|(number, ..)| *number > completed);
                }
            }
            assert!(most > 3000, "seed {seed}: {most} bytes at most");
        }
    }
}
