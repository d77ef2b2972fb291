//! A pass over all that a store has in use, in the order in which it lies on the media: each byte
//! is read about once, and every checksum is verified. [`crate::whole::fsck`] makes one of a store
//! that nobody uses; a server makes one a step at a time while it serves ([`Scrub`]).
//!
//! What is in use is what the index leads to, and both superblocks and checkpoints; what is free is
//! not read. The media are read in [`window`]s, so that memory is bounded whatever the number of
//! items. Reads take neither a pin nor a lock; what does not verify is read once more by itself
//! ([`doubt`]), and is damaged if the index still says the same of it.
//!
//! It knows no clock: whoever calls it decides how fast it goes.

mod doubt;
mod pieces;
mod window;

use self::doubt::{Refused, is_there, what};
use self::pieces::Pieces;
use self::window::{Owner, Part, Unit, Window};
use crate::checkpoint::superblock::{Front, SLOT_BYTES, Superblock};
use crate::index::{Entry, Home, What};
use crate::media::fetch::{GAP_BYTES, Wanted};
use crate::reading::read::verified;
use crate::store::Shared;
use crate::types::BLOCK_BYTES;
use crc32c::crc32c;
use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

/// Leaves of the index that one step goes over: others on this CPU come in between.
const LEAVES: usize = 8;
/// So much of what was found damaged is remembered, so that it is told once. A device may have lost
/// everything; then an item of which two places are damaged is told twice.
const REMEMBERED_MAX: usize = 1 << 20;

/// What a pass may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Bytes that one step reads, those between places that are read together included; but for a
    /// piece of a value that is longer by itself.
    pub step_bytes: u64,
    /// Places that are in memory at a time, about, or twice as many for a moment.
    pub places: usize,
    /// Where there are more than so many times as many items, as many as one in so many: each time
    /// they were read the index is walked for the next.
    pub share: u64,
}

impl Bounds {
    /// Of a store that nobody uses: in as few walks and as large reads as are of use.
    pub const ALONE: Bounds = Bounds { step_bytes: 4 << 20, places: 1 << 20, share: 16 };
    /// Beside others: they are not many whatever there is, for each window is sorted in one go.
    pub const BESIDE: Bounds = Bounds { step_bytes: 256 << 10, places: 1 << 16, share: u64::MAX };
}

/// What a step has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// It has looked for what comes next, and read nothing.
    Walked,
    /// It has read something.
    Read {
        /// Bytes that were read.
        bytes: u64,
        /// Bytes that a device could have given in order instead.
        cost: u64,
    },
    /// All was read.
    Over,
}

/// How far a pass is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Far {
    /// Items that there were when it began, damaged ones included.
    pub items: u64,
    /// Of these, those that it has found damaged.
    pub damaged: u64,
    /// Bytes that were verified.
    pub done_bytes: u64,
    /// Bytes that there were when it began; 0 while they are being counted.
    pub total_bytes: u64,
}

/// Something that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damaged {
    /// The item's key; none of what is the store's own.
    pub key: Option<Box<[u8]>>,
    /// Tells it from others: the item's sequence, or a number above all of them, and its key's crc.
    pub name: (u64, u32),
    /// What it is, and why it cannot be read; no key is in it.
    pub why: String,
    /// The device refused to give it, which it may do another time.
    pub is_refused: bool,
}

/// A pass over a store that is in use. Dropped, it is given up.
pub struct Scrub {
    shared: Arc<Shared>,
    pass: Pass,
}

impl Scrub {
    pub(crate) fn begin(shared: &Arc<Shared>, bounds: Bounds) -> Scrub {
        Scrub { shared: shared.clone(), pass: Pass::new(bounds) }
    }

    /// Goes on; `tell` hears of what is damaged, of each item once.
    pub fn step(&mut self, tell: &mut dyn FnMut(Damaged)) -> Step {
        self.pass.step(&self.shared, tell)
    }

    /// How far it is.
    pub fn far(&self) -> Far {
        self.pass.far
    }
}

/// A pass under way.
pub(crate) struct Pass {
    bounds: Bounds,
    window: Window,
    /// Where the walk of the index goes on that fills the window.
    from: Option<Box<[u8]>>,
    /// What the window holds and was not read.
    units: VecDeque<Unit>,
    /// What of it did not verify, and is to be read once more by itself.
    doubts: VecDeque<Unit>,
    /// The last block that a device refused to give.
    refused: Option<Refused>,
    pieces: Pieces,
    /// Names of what was told.
    told: HashSet<(u64, u32)>,
    /// The first window is being filled: what there is is counted.
    counts: bool,
    /// How far it is.
    pub far: Far,
}

impl Pass {
    /// One that has not begun.
    pub fn new(bounds: Bounds) -> Pass {
        Pass {
            bounds,
            window: Window::new(bounds.places),
            from: Some(Box::default()),
            units: VecDeque::new(),
            doubts: VecDeque::new(),
            refused: None,
            pieces: Pieces::default(),
            told: HashSet::new(),
            counts: true,
            far: Far::default(),
        }
    }

    /// Goes on.
    pub fn step(&mut self, shared: &Shared, tell: &mut dyn FnMut(Damaged)) -> Step {
        if let Some(from) = self.from.take() {
            self.walk(shared, from, tell);
            return Step::Walked;
        }
        if let Some(unit) = self.doubts.pop_front() {
            let bytes = self.look_again(shared, &unit, tell);
            return Step::Read { bytes, cost: bytes };
        }
        if !self.units.is_empty() {
            return self.read(shared);
        }
        if self.window.is_last() {
            return Step::Over;
        }
        self.window.go_on((self.far.items / self.bounds.share) as usize);
        self.from = Some(Box::default());
        Step::Walked
    }

    /// Some of the walk that fills a window.
    fn walk(&mut self, shared: &Shared, mut from: Box<[u8]>, tell: &mut dyn FnMut(Damaged)) {
        if from.is_empty() {
            self.take_roots(shared, tell);
            self.window.make_room();
        }
        let (mut lost, mut large) = (Vec::new(), Vec::new());
        for _ in 0..LEAVES {
            let next = shared.index.look_through(&from, |key, entry, _| match entry.what {
                What::Large(_) => large.push((Box::<[u8]>::from(key), entry.clone())),
                _ => self.meet(key, entry, &mut lost),
            });
            // Not inside, where writers may wait for the leaf: a value may lie in many extents.
            large.drain(..).for_each(|(key, entry)| self.meet(&key, &entry, &mut lost));
            self.window.make_room();
            match next {
                Some(next) => from = next,
                None => {
                    self.units = self.window.close().into();
                    self.counts = false;
                    from = Box::default();
                    break;
                }
            }
        }
        // Nobody waits for a leaf of the index while these are told.
        self.far.damaged += lost.len() as u64;
        lost.into_iter().for_each(tell);
        self.from = Some(from).filter(|from| !from.is_empty());
    }

    fn meet(&mut self, key: &[u8], entry: &Entry, lost: &mut Vec<Damaged>) {
        let bytes = if entry.is_item() { self.window.item(key, entry) } else { 0 };
        if !self.counts {
            return;
        }
        self.far.total_bytes += bytes;
        self.far.items += u64::from(entry.is_item() || entry.what == What::Lost);
        if entry.what == What::Lost {
            lost.push(Damaged {
                key: Some(key.into()),
                name: name(entry.sequence, key),
                why: "its newest record is damaged".into(),
                is_refused: false,
            });
        }
    }

    /// What the store hangs on: the superblocks, which are read now, and the checkpoints, which lie
    /// among the values.
    fn take_roots(&mut self, shared: &Shared, tell: &mut dyn FnMut(Damaged)) {
        if self.counts {
            // One that is just being written looks damaged: once more while nobody writes.
            let newest = shared.maintenance().generation;
            let wrong = superblocks(shared, newest).and_then(|_| {
                let quiet = shared.maintenance();
                superblocks(shared, quiet.generation)
            });
            if let Some(why) = wrong {
                tell(Damaged { key: None, name: (u64::MAX - 2, 0), why, is_refused: false });
            }
            self.far.done_bytes += 2 * SLOT_BYTES as u64;
            self.far.total_bytes += 2 * SLOT_BYTES as u64;
        }
        let checkpoints = shared.maintenance().checkpoints.clone();
        for (age, checkpoint) in checkpoints.into_iter().enumerate() {
            let bytes = self.window.checkpoint(age, checkpoint.body);
            self.far.total_bytes += if self.counts { bytes } else { 0 };
        }
    }

    /// What one step reads, and what that costs.
    fn next_batch(&mut self) -> (Vec<Unit>, u64) {
        let (mut count, mut all, mut last) = (0, 0, None);
        for unit in &self.units {
            let cost = cost(unit, last);
            if 0 < count && self.bounds.step_bytes < all + cost {
                break;
            }
            (count, all) = (count + 1, all + cost);
            last = Some((unit.home, unit.home.at() + unit.bytes as u64));
        }
        (self.units.drain(..count).collect(), all)
    }

    fn read(&mut self, shared: &Shared) -> Step {
        let (batch, cost) = self.next_batch();
        let (mut wanted, mut read_bytes) = (Vec::with_capacity(batch.len()), 0);
        let mut whole = vec![false; batch.len()];
        for (number, unit) in batch.iter().enumerate() {
            self.far.done_bytes += unit.bytes as u64;
            if unit.home.is_ssd() || shared.region.disk().is_some() {
                wanted.push(Wanted { home: unit.home, bytes: unit.bytes, what: number });
                continue;
            }
            read_bytes += unit.bytes as u64;
            let record = shared.read_record(unit.home, unit.bytes);
            whole[number] = record.is_ok_and(|bytes| self.is_whole(unit, &bytes));
        }
        read_bytes += shared.fetch(
            wanted,
            || {},
            |&number, bytes| whole[number] = self.is_whole(&batch[number], bytes),
        );
        let doubts = batch.into_iter().zip(whole).filter(|(_, whole)| !whole);
        self.doubts.extend(doubts.map(|(unit, _)| unit));
        Step::Read { bytes: read_bytes, cost }
    }

    /// Reads by itself what did not verify: one a step, for a device may take its time to refuse.
    fn look_again(&mut self, shared: &Shared, unit: &Unit, tell: &mut dyn FnMut(Damaged)) -> u64 {
        if let Some(why) = self.refused.as_ref().and_then(|refused| refused.why(shared, unit)) {
            self.found(unit, format!("{} cannot be read: {why}", what(unit)), true, tell);
            return 0;
        }
        if let Owner::Item { key, entry } = &*unit.owner
            && shared.index.get(key).is_none_or(|now| now.sequence != entry.sequence)
        {
            return 0; // it was replaced, and nothing need be read to know
        }
        match is_there(shared, unit) {
            Ok(true) => {}
            Ok(false) => self.found(unit, format!("{} is damaged (crc)", what(unit)), false, tell),
            Err(error) => {
                let why = error.to_string();
                self.found(unit, format!("{} cannot be read: {why}", what(unit)), true, tell);
                self.refused = Some(Refused::of(unit, why));
            }
        }
        // A piece is read as a whole.
        let bytes = match unit.part {
            Part::Record => unit.bytes,
            Part::Piece { piece, .. } => {
                unit.owner.pointer().map_or(0, |pointer| pointer.piece_bytes(piece as usize))
            }
        };
        bytes.next_multiple_of(BLOCK_BYTES) as u64
    }

    /// Whether these bytes are what the index says, as far as they tell.
    fn is_whole(&mut self, unit: &Unit, bytes: &[u8]) -> bool {
        let (pointer, piece, part, parts) = match (&*unit.owner, unit.part) {
            (Owner::Item { key, entry }, Part::Record) => {
                return verified(bytes, key, entry.sequence).is_some();
            }
            (owner, Part::Piece { piece, part, parts }) => match owner.pointer() {
                Some(pointer) => (pointer, piece, part, parts),
                None => return false,
            },
            (Owner::Checkpoint { .. }, Part::Record) => return false,
        };
        let crc = match parts {
            1 => Some(crc32c(bytes)),
            _ => {
                let key = (unit.owner.number(), piece);
                if !self.pieces.has_room_for(key) {
                    return part != 0; // the first is looked at by itself, with all of the piece
                }
                self.pieces.add(key, (part, parts), (crc32c(bytes), bytes.len()))
            }
        };
        crc.is_none_or(|crc| pointer.crcs.get(piece as usize) == Some(&crc))
    }

    fn found(&mut self, unit: &Unit, why: String, is_refused: bool, tell: &mut dyn FnMut(Damaged)) {
        let key = match &*unit.owner {
            Owner::Item { key, .. } => Some(key.clone()),
            Owner::Checkpoint { .. } => None,
        };
        let name = name(unit.owner.number(), key.as_deref().unwrap_or_default());
        if self.told.contains(&name) {
            return;
        }
        if self.told.len() < REMEMBERED_MAX {
            self.told.insert(name);
        }
        self.far.damaged += u64::from(key.is_some());
        tell(Damaged { key, name, why, is_refused });
    }
}

/// What is wrong with the superblocks, of which the newest known has this number.
fn superblocks(shared: &Shared, newest: u64) -> Option<String> {
    let mut problems = Vec::new();
    match Superblock::read(&*shared.ssd, &mut problems) {
        Ok(Front::Store(found)) if found.generation < newest => {
            Some("the newest superblock is not there; an older one is".into())
        }
        Ok(Front::Store(_)) => problems.pop(),
        // As a new store looks whose second superblock was never written.
        Ok(_) => Some("the newest superblock is damaged, and a start would refuse".into()),
        Err(error) => Some(error.to_string()),
    }
}

fn name(number: u64, key: &[u8]) -> (u64, u32) {
    (number, crc32c(key))
}

/// What reading it takes behind what ends there ([`Shared::fetch`]). One by itself costs a device
/// about as much as a gap that is read for nothing.
fn cost(unit: &Unit, last: Option<(Home, u64)>) -> u64 {
    let (at, bytes) = (unit.home.at(), unit.bytes as u64);
    match last {
        Some((home, end)) if home.is_ssd() == unit.home.is_ssd() && at <= end + GAP_BYTES => {
            (at + bytes).saturating_sub(end)
        }
        _ => bytes.next_multiple_of(BLOCK_BYTES as u64).max(GAP_BYTES),
    }
}
