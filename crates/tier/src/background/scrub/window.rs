//! Finds the places that a pass reads next, in the order of the media and in bounded memory.
//!
//! The index is in the order of keys. So it is walked, and those places are kept that come first
//! behind what was read; when these were read it is walked again for the next. Windows of a
//! sixteenth of the places take sixteen walks in all, each of some ten nanoseconds an entry.

use crate::index::{Entry, Home, What};
use crate::ssd::pointer::{PIECE_BYTES, Pointer};
use crate::types::BLOCK_BYTES;
use laneway_sync::planted::{Bug, is_planted};
use std::sync::Arc;

/// Room for places that are offered at once, about.
const SPARE: usize = 4096;

/// Whose bytes they are.
pub enum Owner {
    /// An item's.
    Item {
        /// Its key.
        key: Box<[u8]>,
        /// What the index said of it.
        entry: Entry,
    },
    /// A checkpoint's.
    Checkpoint {
        /// 0 for the newest.
        age: usize,
        /// Where it lies.
        body: Pointer,
    },
}

impl Owner {
    /// An item's sequence, or a number above all of them.
    pub fn number(&self) -> u64 {
        match self {
            Owner::Item { entry, .. } => entry.sequence,
            Owner::Checkpoint { age, .. } => number_of_checkpoint(*age),
        }
    }

    /// Where its bytes lie, if these are not in a record.
    pub fn pointer(&self) -> Option<&Pointer> {
        match self {
            Owner::Item { entry, .. } => match &entry.what {
                What::Large(large) => Some(large),
                _ => None,
            },
            Owner::Checkpoint { body, .. } => Some(body),
        }
    }
}

fn number_of_checkpoint(age: usize) -> u64 {
    u64::MAX - age as u64
}

/// What of its owner it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// The record.
    Record,
    /// What of a piece lies in one extent.
    Piece {
        /// Which piece.
        piece: u32,
        /// Which part of it.
        part: u32,
        /// How many parts it has.
        parts: u32,
    },
}

/// Where something lies, and whose it is: nothing else is there.
pub type Place = (Home, u64);

/// Bytes that are verified together.
pub struct Unit {
    /// Where they begin.
    pub home: Home,
    /// How many they are.
    pub bytes: usize,
    /// Their owner's.
    number: u64,
    /// Whose they are.
    pub owner: Arc<Owner>,
    /// What of it.
    pub part: Part,
}

impl Unit {
    fn place(&self) -> Place {
        (self.home, self.number)
    }
}

/// Places in the order of the media, a bounded number at a time.
pub struct Window {
    most: usize,
    units: Vec<Unit>,
    /// Up to here all was read.
    behind: Option<Place>,
    /// From here on it is for later windows.
    below: Option<Place>,
}

impl Window {
    /// The first one, of about so many places.
    pub fn new(most: usize) -> Window {
        Window { most: most.max(1), units: Vec::new(), behind: None, below: None }
    }

    /// Offers an item. How many bytes it has, whether they are in this window or not; but those of
    /// a value that is in memory only, and waits for its group.
    pub fn item(&mut self, key: &[u8], entry: &Entry) -> u64 {
        let mut kept = None;
        let mut owner = || {
            let new = || Arc::new(Owner::Item { key: key.into(), entry: entry.clone() });
            Arc::clone(kept.get_or_insert_with(new))
        };
        let bytes = entry.record_bytes as usize;
        let mut all = self.offer(entry.home, bytes, Part::Record, entry.sequence, &mut owner);
        if let What::Large(large) = &entry.what
            && large.bytes_waiting().is_none()
        {
            all += self.offer_pieces(large, entry.sequence, &mut owner);
        }
        all
    }

    /// Offers a checkpoint, where there is one, as an item is.
    pub fn checkpoint(&mut self, age: usize, body: Pointer) -> u64 {
        let owner = Arc::new(Owner::Checkpoint { age, body: body.clone() });
        self.offer_pieces(&body, number_of_checkpoint(age), &mut || owner.clone())
    }

    fn offer_pieces(
        &mut self,
        pointer: &Pointer,
        number: u64,
        owner: &mut dyn FnMut() -> Arc<Owner>,
    ) -> u64 {
        let mut all = 0;
        for parts in lies(pointer).chunk_by(|one, next| one.piece == next.piece) {
            for (number_of_part, lies) in parts.iter().enumerate() {
                let (part, parts) = (number_of_part as u32, parts.len() as u32);
                let what = Part::Piece { piece: lies.piece, part, parts };
                all += self.offer(Home::ssd(lies.at), lies.bytes, what, number, owner);
            }
        }
        all
    }

    fn offer(
        &mut self,
        home: Home,
        bytes: usize,
        part: Part,
        number: u64,
        owner: &mut dyn FnMut() -> Arc<Owner>,
    ) -> u64 {
        let place = (home, number);
        let is_next = self.behind.is_none_or(|behind| behind < place);
        if is_next && self.below.is_none_or(|below| place < below) {
            self.units.push(Unit { home, bytes, number, owner: owner(), part });
        }
        bytes as u64
    }

    /// Makes room for what comes next, if there are too many: keeps those that come first. It goes
    /// over all of them, so whoever offers items does this while nobody waits for a lock.
    pub fn make_room(&mut self) {
        self.units.reserve(SPARE);
        if self.units.len() < 2 * self.most {
            return;
        }
        let (_, first_left, _) = self.units.select_nth_unstable_by_key(self.most, Unit::place);
        self.below = Some(first_left.place());
        self.units.truncate(self.most);
    }

    /// All were offered. What is in this window, in its order.
    pub fn close(&mut self) -> Vec<Unit> {
        let mut units = std::mem::take(&mut self.units);
        units.sort_unstable_by_key(Unit::place);
        self.behind = units.last().map(Unit::place).or(self.behind);
        if is_planted(Bug::ScrubberSkips) {
            units.pop();
        }
        units
    }

    /// Whether nothing is left for another.
    pub fn is_last(&self) -> bool {
        self.below.is_none()
    }

    /// Makes it the next one, of at least so many places.
    pub fn go_on(&mut self, most: usize) {
        self.most = self.most.max(most);
        self.below = None;
    }
}

/// What of one piece lies in one extent.
struct Lies {
    piece: u32,
    /// Byte offset on the SSD.
    at: u64,
    /// Of the value; the rest of the last block is not counted.
    bytes: usize,
}

/// All of it, in the order of the value.
fn lies(pointer: &Pointer) -> Vec<Lies> {
    let (piece_bytes, block) = (PIECE_BYTES as u64, BLOCK_BYTES as u64);
    let mut all = Vec::with_capacity(pointer.extents.len());
    let mut done = 0;
    for extent in &pointer.extents {
        let mut at = u64::from(extent.start) * block;
        let end = at + u64::from(extent.blocks) * block;
        while at < end && done < pointer.bytes {
            let takes = (end - at).min(piece_bytes - done % piece_bytes);
            let bytes = takes.min(pointer.bytes - done) as usize;
            all.push(Lies { piece: (done / piece_bytes) as u32, at, bytes });
            (at, done) = (at + takes, done + takes);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::media::disk::sim::Random;
    use crate::ssd::pointer::Extent;
    use smallvec::smallvec;

    /// Places of an item, at most.
    const AT_ONCE: usize = 10;

    fn entry(sequence: u64, home: Home, what: What) -> Entry {
        Entry { sequence, home, record_bytes: 64, expires_at_seconds: 0, what }
    }

    /// Records in log and tables, and values in extents of a few blocks all over the SSD.
    fn items(random: &mut Random) -> Vec<(Vec<u8>, Entry)> {
        let mut blocks: Vec<u32> = (32..2000).collect();
        (1..=100)
            .map(|number| {
                let at = number * 64;
                let home = if random.one_in(2) { Home::log(at) } else { Home::ssd(at) };
                let what = match random.below(3) {
                    0 => What::Small { value_bytes: 9 },
                    _ => {
                        let count = 1 + random.below(9) as usize;
                        let mut take = || {
                            let at = random.below(blocks.len() as u64) as usize;
                            Extent { start: blocks.swap_remove(at), blocks: 1 }
                        };
                        let extents = (0..count).map(|_| take()).collect();
                        let bytes = (count * BLOCK_BYTES) as u64 - random.below(4000);
                        let crcs = smallvec![0; (bytes as usize).div_ceil(PIECE_BYTES)];
                        let pointer = Pointer { bytes, extents, crcs, original_bytes: 0 };
                        What::Large(Arc::new(pointer.into()))
                    }
                };
                (format!("key {}", random.number()).into_bytes(), entry(number, home, what))
            })
            .collect()
    }

    #[test]
    fn windows_of_any_size_give_every_place_once_and_in_order() {
        for seed in 0..20 {
            let items = items(&mut Random::new(seed));
            let mut expected = None;
            for most in [1, 2, 3, 10, 64, 100_000] {
                let (mut window, mut met, mut walks) = (Window::new(most), Vec::new(), 0);
                let total: u64 = loop {
                    let mut bytes = 0;
                    for (key, entry) in &items {
                        bytes += window.item(key, entry);
                        window.make_room();
                    }
                    walks += 1;
                    let units = window.close();
                    assert!(units.len() < 2 * most + AT_ONCE, "{} places", units.len());
                    met.extend(units.iter().map(|unit| (unit.place(), unit.bytes, unit.part)));
                    if window.is_last() {
                        break bytes;
                    }
                    window.go_on(0);
                };
                assert!(met.is_sorted_by_key(|(place, ..)| *place), "seed {seed}, {most}");
                let bytes: usize = met.iter().map(|(_, bytes, _)| bytes).sum();
                assert_eq!(bytes as u64, total, "seed {seed}, windows of {most}");
                let least = met.len() / (2 * most + AT_ONCE);
                assert!(least <= walks && walks <= met.len() / most + 1, "{walks} walks");
                assert_eq!(*expected.get_or_insert_with(|| met.clone()), met, "{seed}, {most}");
            }
        }
    }

    #[test]
    fn a_value_in_several_extents_is_parts_of_pieces_of_a_megabyte() {
        let block = |bytes: usize| (bytes / BLOCK_BYTES) as u32;
        let extents = smallvec![
            Extent { start: 500, blocks: block(PIECE_BYTES) + 2 },
            Extent { start: 100, blocks: 1 },
        ];
        let bytes = (PIECE_BYTES + 2 * BLOCK_BYTES + 5) as u64;
        let crcs = smallvec![1, 2];
        let pointer = Pointer { bytes, extents, crcs, original_bytes: 0 };
        let mut window = Window::new(100);
        let what = What::Large(Arc::new(pointer.into()));
        assert_eq!(window.item(b"k", &entry(9, Home::log(64), what)), bytes + 64);
        let units = window.close();
        let met: Vec<_> = units.iter().map(|unit| (unit.home, unit.bytes, unit.part)).collect();
        let at = |block: usize| Home::ssd((block * BLOCK_BYTES) as u64);
        let piece = |piece, part, parts| Part::Piece { piece, part, parts };
        let behind = 500 + PIECE_BYTES / BLOCK_BYTES;
        assert_eq!(
            met,
            [
                (Home::log(64), 64, Part::Record),
                (at(100), 5, piece(1, 1, 2)),
                (at(500), PIECE_BYTES, piece(0, 0, 1)),
                (at(behind), 2 * BLOCK_BYTES, piece(1, 0, 2)),
            ]
        );
    }
}
