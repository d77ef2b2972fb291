//! The state of eviction between its steps: the large values that the hand of the clock reaches
//! next, and how warm each sort table is (docs/operating.md, "When the SSD is full").
//!
//! The clock (Corbató 1968) goes over the SSD in the order of its blocks, and not over the index in
//! the order of its keys: what is dropped then lies together, and leaves runs long enough for sort
//! tables and checkpoints.
//!
//! It knows no medium and no index. Counts in blocks and bytes.

use crate::index::entry::{Entry, What};
use crate::ssd::tables::Table;
use std::collections::{BinaryHeap, VecDeque};

/// A round drops so much of the SSD's blocks, and of its sort tables, at most: one part in so many.
const ROUND_SHARE: u64 = 16;
/// Large values that a round remembers.
const CANDIDATES_MAX: usize = 1 << 16;
/// What a checkpoint has of each entry besides its key.
const ENTRY_BYTES: u64 = 27;

/// A large value that may be dropped.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Candidate {
    /// Blocks from the hand to its first one; the first field, for the order.
    distance: u64,
    /// Behind its first extent.
    pub end: u32,
    /// Of its record.
    pub sequence: u64,
    /// Of the item.
    pub key: Box<[u8]>,
}

/// The large values that the hand of the clock meets next.
#[derive(Default)]
struct Nearest {
    hand: u64,
    blocks: u64,
    /// The farthest of them on top.
    heap: BinaryHeap<Candidate>,
}

impl Nearest {
    fn offer(&mut self, key: &[u8], sequence: u64, start: u32, blocks: u32) {
        let distance = (u64::from(start) + self.blocks - self.hand) % self.blocks.max(1);
        if self.heap.len() == CANDIDATES_MAX {
            if self.heap.peek().is_some_and(|farthest| farthest.distance <= distance) {
                return;
            }
            self.heap.pop();
        }
        self.heap.push(Candidate { distance, end: start + blocks, sequence, key: key.into() });
    }

    /// Those of a round, in the order in which the hand meets them.
    fn into_order(self) -> VecDeque<Candidate> {
        let reach = self.blocks / ROUND_SHARE;
        let mut order: VecDeque<Candidate> = self.heap.into_sorted_vec().into();
        let first = order.front().map_or(0, |candidate| candidate.distance);
        while order.back().is_some_and(|last| first + reach < last.distance) {
            order.pop_back();
        }
        order
    }
}

/// A sort table, and the small items in it.
struct Warmth {
    table: Table,
    /// Bytes of their current records.
    bytes: u64,
    /// The same, each as often as it was hit.
    heat: u64,
}

impl Warmth {
    /// How often a byte of it was hit, in parts of 256; of the equally cold the oldest is first.
    fn rank(&self) -> (u64, u64) {
        (self.heat.saturating_mul(256) / self.bytes.max(1), self.table.id)
    }
}

/// What comes next.
pub enum Next {
    /// Large values.
    Large,
    /// A sort table.
    Table(Table),
}

/// One round: the whole index is looked at, a part in each step; then items are dropped.
#[derive(Default)]
pub struct Round {
    /// Where looking goes on; `None` when it is over.
    pub next: Option<Box<[u8]>>,
    /// Nobody is given a second chance.
    pub spares_none: bool,
    /// So it was from the round's beginning on.
    pub spared_none: bool,
    /// Something was dropped.
    pub has_dropped: bool,
    /// Sort tables whose cold items were dropped, and which were not merged since.
    pub thinned: usize,
    /// What a checkpoint of the entries that were seen takes, about.
    pub checkpoint_bytes: u64,
    nearest: Nearest,
    warmth: Vec<Warmth>,
    /// Large values to be dropped, and how many there were.
    pub large: VecDeque<Candidate>,
    large_count: usize,
    tables: VecDeque<Table>,
    tables_count: usize,
}

impl Round {
    /// With the hand at a block of so many, and these sort tables, in the order of their places.
    pub fn begin(hand: u32, blocks: u64, tables: impl Iterator<Item = Table>) -> Round {
        let hand = u64::from(hand) % blocks.max(1);
        let warmth = tables.map(|table| Warmth { table, bytes: 0, heat: 0 });
        Round {
            next: Some(Box::default()),
            nearest: Nearest { hand, blocks, heap: BinaryHeap::new() },
            warmth: warmth.collect(),
            ..Round::default()
        }
    }

    /// Looks at an entry.
    pub fn look(&mut self, key: &[u8], entry: &Entry, weight: u8) {
        self.checkpoint_bytes += key.len() as u64 + ENTRY_BYTES;
        match &entry.what {
            What::Large(large) => {
                let parts = large.extents.len() * 2 + large.crcs.len() + 4;
                self.checkpoint_bytes += parts as u64 * 4;
                if let Some(first) = large.extents.first() {
                    self.nearest.offer(key, entry.sequence, first.start, first.blocks);
                }
            }
            What::Small { .. } if entry.home.is_ssd() => {
                let at = entry.home.at();
                let behind = self.warmth.partition_point(|warmth| warmth.table.start() <= at);
                if let Some(warmth) = behind.checked_sub(1).map(|index| &mut self.warmth[index]) {
                    let bytes = u64::from(entry.record_bytes);
                    warmth.bytes += bytes;
                    warmth.heat += bytes * u64::from(weight);
                }
            }
            What::Small { .. } | What::Tombstone | What::Lost => {}
        }
    }

    /// All was looked at.
    pub fn end_looking(&mut self) {
        self.large = std::mem::take(&mut self.nearest).into_order();
        self.large_count = self.large.len();
        let mut warmth = std::mem::take(&mut self.warmth);
        let share = (warmth.len() as u64).div_ceil(ROUND_SHARE) as usize;
        warmth.retain(|warmth| 0 < warmth.bytes);
        warmth.sort_by_key(Warmth::rank);
        warmth.truncate(share);
        self.tables = warmth.into_iter().map(|warmth| warmth.table).collect();
        self.tables_count = self.tables.len();
    }

    /// What to drop next: both kinds give up the same share of what they hold. `None`: the round is
    /// over.
    pub fn next(&mut self) -> Option<Next> {
        let large_left = self.large.len() * self.tables_count.max(1);
        let tables_left = self.tables.len() * self.large_count.max(1);
        match large_left < tables_left || self.large.is_empty() {
            true => self.tables.pop_front().map(Next::Table),
            false => Some(Next::Large),
        }
    }

    /// Whether no sort table is left to be dropped from.
    pub fn has_no_table(&self) -> bool {
        self.tables.is_empty()
    }
}

/// Whether an item shall stay, as its owner sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted {
    /// Nothing speaks for it.
    No,
    /// It is in use, though it is not read here: as good as a hit.
    Warm,
    /// It is never evicted.
    Always,
}

/// How an owner is asked.
pub type Asks = Box<dyn Fn(&[u8]) -> Wanted + Send + Sync>;

/// How an owner hears of an item that is dropped, by its key and sequence.
pub type Hears = Box<dyn Fn(&[u8], u64) + Send + Sync>;

/// What eviction keeps from step to step.
#[derive(Default)]
pub struct Eviction {
    /// Whom to ask before an item is dropped.
    pub asks: Option<Asks>,
    /// Who hears of what is dropped.
    pub hears: Option<Hears>,
    /// Bytes of the log with deletions of evicted items since the last checkpoint.
    pub noted_bytes: u64,
    /// It has begun, and there is not enough room yet.
    pub is_on: bool,
    /// Blocks for which there was no room, though as many were free: runs are too short.
    pub wanted_blocks: Option<u32>,
    /// Where the hand of the clock is.
    pub hand: u32,
    /// What is under way.
    pub round: Option<Round>,
    /// The last round dropped nothing: in the next nobody has a second chance.
    pub spares_none: bool,
    /// What a checkpoint takes, about.
    pub checkpoint_bytes: u64,
    /// Nothing was left to drop when so much had been appended.
    pub barren_bytes: Option<u64>,
}

/// What a step came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Nothing was dropped yet.
    Looked,
    /// Something was.
    Dropped,
    /// The log has no room for deletions.
    NoLog,
    /// There is nothing to drop.
    Nothing,
}

impl Eviction {
    /// What the owner says of an item.
    pub fn ask(&self, key: &[u8]) -> Wanted {
        self.asks.as_ref().map_or(Wanted::No, |asks| asks(key))
    }

    /// There is no room for so many blocks, though enough are free.
    pub fn want(&mut self, blocks: u32) {
        self.wanted_blocks = Some(blocks);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::entry::Home;
    use crate::ssd::pointer::{Extent, Pointer};
    use crate::types::BLOCK_BYTES;
    use smallvec::smallvec;
    use std::sync::Arc;

    fn entry(sequence: u64, home: Home, what: What) -> Entry {
        Entry { sequence, home, record_bytes: 100, expires_at_seconds: 0, what }
    }

    fn large(start: u32) -> Entry {
        let extents = smallvec![Extent { start, blocks: 1 }];
        let crcs = smallvec![1];
        let pointer = Pointer { bytes: 4096, extents, crcs, original_bytes: 0 };
        entry(u64::from(start), Home::log(0), What::Large(Arc::new(pointer.into())))
    }

    fn table(id: u64, start: u32) -> Table {
        let extent = Extent { start, blocks: 1 };
        let home = Home::log(0);
        Table {
            id,
            extent,
            bytes: BLOCK_BYTES as u32,
            sequence: 1,
            home,
            live: 100,
            is_damaged: false,
        }
    }

    #[test]
    fn the_hand_meets_large_values_by_their_blocks_and_goes_round() {
        let mut round = Round::begin(900, 1600, [].into_iter());
        for start in [10, 899, 900, 950, 1000, 1001] {
            round.look(&start.to_string().into_bytes(), &large(start), 0);
        }
        round.end_looking();
        let met: Vec<u64> = round.large.iter().map(|candidate| candidate.sequence).collect();
        assert_eq!(met, [900, 950, 1000], "a sixteenth of the blocks behind the first");
        let mut round = Round::begin(1590, 1600, [].into_iter());
        [10, 900, 1595].iter().for_each(|start| round.look(b"key", &large(*start), 0));
        round.end_looking();
        let met: Vec<u64> = round.large.iter().map(|candidate| candidate.sequence).collect();
        assert_eq!(met, [1595, 10]);
    }

    #[test]
    fn no_more_is_remembered_than_what_is_nearest() {
        let blocks = 64 * CANDIDATES_MAX as u64;
        let mut round = Round::begin(0, blocks, [].into_iter());
        for start in (0..2 * CANDIDATES_MAX as u32).rev() {
            round.look(b"key", &large(start), 0);
        }
        round.end_looking();
        assert_eq!(round.large.len(), CANDIDATES_MAX);
        assert_eq!(round.large.back().unwrap().sequence, CANDIDATES_MAX as u64 - 1);
    }

    #[test]
    fn the_coldest_tables_come_first_and_the_oldest_of_them() {
        let tables: Vec<Table> = (0..33).map(|id| table(id + 1, 10 + id as u32)).collect();
        let mut round = Round::begin(0, 1000, tables.iter().copied());
        for table in tables.iter().rev() {
            let weight = match table.id {
                7 => 1,
                9 | 20 => 0,
                _ => 5,
            };
            let small = What::Small { value_bytes: 7 };
            round.look(b"key", &entry(1, Home::ssd(table.start() + 64), small), weight);
        }
        round.end_looking();
        let mut met = Vec::new();
        while let Some(Next::Table(table)) = round.next() {
            met.push(table.id);
        }
        assert_eq!(met, [9, 20, 7]);
    }

    #[test]
    fn both_kinds_give_up_the_same_share() {
        let mut round = Round::begin(0, 1 << 20, (0..32).map(|id| table(id, 2000 + id as u32)));
        (0..10).for_each(|start| round.look(b"key", &large(start), 0));
        for id in 0..32_u64 {
            let small = What::Small { value_bytes: 7 };
            round.look(b"key", &entry(1, Home::ssd((2000 + id) * 4096), small), 0);
        }
        round.end_looking();
        let mut order = String::new();
        while let Some(next) = round.next() {
            match next {
                Next::Large => {
                    order.push('l');
                    round.large.pop_front();
                }
                Next::Table(_) => order.push('t'),
            }
        }
        assert_eq!(order, "ltllllltllll", "ten values, two tables");
    }
}
