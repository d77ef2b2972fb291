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

mod check;
mod doubt;
mod pieces;
#[cfg(test)]
mod tests;
mod walk;
mod window;

use self::check::{AT_ONCE_BYTES, Seen, check};
use self::doubt::{Refused, is_there, what};
use self::pieces::Pieces;
use self::walk::Walk;
use self::window::{Owner, Part, Places, Unit};
use crate::index::{Entry, Home, What};
use crate::media::fetch::GAP_BYTES;
use crate::reading::ahead::{beside, in_order};
use crate::ssd::pointer::Pointer;
use crate::store::Shared;
use crate::types::BLOCK_BYTES;
use crc32c::crc32c;
use std::collections::{HashSet, VecDeque};
use std::ops::Range;
use std::sync::Arc;

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
    /// Of a store that nobody uses: in as few walks as its memory allows, and each step one read.
    pub const ALONE: Bounds =
        Bounds { step_bytes: (1 << 20) - GAP_BYTES, places: 5 << 19, share: 6 };
    /// The same on files: each step as large as the room that a thread has to read into, with what
    /// lies around places in their blocks. Half of the places, as there are two windows at a time.
    pub const FILES: Bounds =
        Bounds { step_bytes: AT_ONCE_BYTES as u64 - 4 * GAP_BYTES, places: 5 << 18, share: 12 };
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
    /// It fills the window.
    walk: Walk,
    /// What the window holds.
    places: Places,
    /// The first of it that was not read.
    next: usize,
    /// Which of it did not verify, and are to be read once more by themselves.
    doubts: VecDeque<usize>,
    /// The last block that a device refused to give.
    refused: Option<Refused>,
    pieces: Pieces,
    /// Names of what was told.
    told: HashSet<(u64, u32)>,
    /// How far it is.
    pub far: Far,
}

impl Pass {
    /// One that has not begun.
    pub fn new(bounds: Bounds) -> Pass {
        Pass {
            bounds,
            walk: Walk::new(bounds.places),
            places: Places::default(),
            next: 0,
            doubts: VecDeque::new(),
            refused: None,
            pieces: Pieces::default(),
            told: HashSet::new(),
            far: Far::default(),
        }
    }

    /// Goes on.
    pub fn step(&mut self, shared: &Shared, tell: &mut dyn FnMut(Damaged)) -> Step {
        if !self.walk.is_over() {
            self.places = self.walk.step(shared, &mut self.far, tell).unwrap_or_default();
            return Step::Walked;
        }
        // Beside the pass, which changes while they are looked at.
        let places = std::mem::take(&mut self.places);
        if let Some(number) = self.doubts.pop_front() {
            let bytes = self.look_again(shared, &places, number, tell);
            self.places = places;
            return Step::Read { bytes, cost: bytes };
        }
        if self.next < places.units.len() {
            let (batch, cost) = self.next_batch(&places.units);
            let checked = check(shared, &places, batch.clone());
            self.take(&places.units, batch, &checked.seen);
            self.places = places;
            return Step::Read { bytes: checked.bytes, cost };
        }
        self.next = 0;
        if self.walk.is_last() {
            return Step::Over;
        }
        self.walk.begin_next(self.places_by_share(), places);
        Step::Walked
    }

    /// How many places the next window has at least.
    fn places_by_share(&self) -> usize {
        (self.far.items / self.bounds.share) as usize
    }

    /// Reads all that the window holds, if it is filled: as in steps, but that so many threads each
    /// read and verify what comes next while another waits for its device. With threads it reads
    /// all windows behind it, too, and fills each while the one before is read. `hear` is told how
    /// far it is.
    pub fn read_windows(
        &mut self,
        shared: &Shared,
        threads: usize,
        tell: &mut dyn FnMut(Damaged),
        hear: &mut dyn FnMut(Far),
    ) {
        let mut spare = Places::default();
        loop {
            let places = std::mem::take(&mut self.places);
            if threads == 0 || !self.walk.is_over() || self.walk.is_last() {
                self.read_places(shared, threads, &places, tell, hear);
                self.places = places;
                return;
            }
            // Beside the pass, which changes meanwhile.
            let mut walk = std::mem::replace(&mut self.walk, Walk::new(0));
            walk.begin_next(self.places_by_share(), spare);
            let (next, ()) = beside(
                || walk.finish(shared),
                || self.read_places(shared, threads, &places, tell, hear),
            );
            (self.walk, self.places, self.next, spare) = (walk, next, 0, places);
        }
    }

    fn read_places(
        &mut self,
        shared: &Shared,
        threads: usize,
        places: &Places,
        tell: &mut dyn FnMut(Damaged),
        hear: &mut dyn FnMut(Far),
    ) {
        let mut batches = Vec::new();
        while self.next < places.units.len() {
            batches.push(self.next_batch(&places.units).0);
        }
        let make = |number: usize| check(shared, places, batches[number].clone());
        in_order(threads, batches.len(), make, |number, checked| {
            self.take(&places.units, batches[number].clone(), &checked.seen);
            hear(self.far);
            while let Some(number) = self.doubts.pop_front() {
                self.look_again(shared, places, number, tell);
                hear(self.far);
            }
        });
    }

    /// What one step reads, and what that costs.
    fn next_batch(&mut self, units: &[Unit]) -> (Range<usize>, u64) {
        let begin = self.next;
        let (mut all, mut last) = (0, None);
        for unit in &units[begin..] {
            let cost = cost(unit, last);
            if begin < self.next && self.bounds.step_bytes < all + cost {
                break;
            }
            self.next += 1;
            all += cost;
            last = Some((unit.home, unit.home.at() + u64::from(unit.bytes)));
        }
        (begin..self.next, all)
    }

    /// Notes what was seen of a batch. What is not known to be whole is in doubt.
    fn take(&mut self, units: &[Unit], batch: Range<usize>, seen: &[Seen]) {
        for (number, seen) in batch.zip(seen) {
            let unit = &units[number];
            self.far.done_bytes += u64::from(unit.bytes);
            let is_whole = match *seen {
                Seen::Nothing => false,
                Seen::Whole => true,
                Seen::Part(crc) => self.joins(unit, crc),
            };
            if !is_whole {
                self.doubts.push_back(number);
            }
        }
    }

    /// Whether this part of a piece, which has this crc, is whole with the others, as far as they
    /// were read.
    fn joins(&mut self, unit: &Unit, crc: u32) -> bool {
        let Part::Piece { piece, part, parts, crc: wanted } = unit.part else { return false };
        let key = (unit.number, piece);
        if !self.pieces.has_room_for(key) {
            return part != 0; // the first is looked at by itself, with all of the piece
        }
        let known = (crc, unit.bytes as usize);
        self.pieces.add(key, (part, parts.get()), known).is_none_or(|crc| crc == wanted)
    }

    /// Reads by itself what did not verify: one a step, for a device may take its time to refuse.
    fn look_again(
        &mut self,
        shared: &Shared,
        places: &Places,
        number: usize,
        tell: &mut dyn FnMut(Damaged),
    ) -> u64 {
        let unit = &places.units[number];
        let owner = places.owner(unit);
        let known = self.refused.as_ref().and_then(|known| known.why(shared, owner, unit));
        if let Some(why) = known {
            let why = format!("{} cannot be read: {why}", what(owner, unit, 1));
            self.found(owner, unit.number, why, true, tell);
            return 0;
        }
        let is_same = |now: &Entry| now.sequence == unit.number;
        let (bytes, pieces) = match owner {
            Owner::Checkpoint { body, .. } => asked_for(unit, body),
            Owner::Item { key } => match shared.index.get(key).filter(is_same) {
                None => return 0, // it was replaced, and nothing need be read to know
                Some(Entry { what: What::Large(large), .. }) => asked_for(unit, &large),
                Some(_) => (unit.bytes as usize, 1),
            },
        };
        let what = what(owner, unit, pieces);
        match is_there(shared, owner, unit) {
            Ok(true) => {}
            Ok(false) => {
                self.found(owner, unit.number, format!("{what} is damaged (crc)"), false, tell);
            }
            Err(error) => {
                let why = error.to_string();
                let told = format!("{what} cannot be read: {why}");
                self.found(owner, unit.number, told, true, tell);
                self.refused = Some(Refused::of(unit, why));
            }
        }
        bytes.next_multiple_of(BLOCK_BYTES) as u64
    }

    /// It is damaged, which is told of each item once.
    fn found(
        &mut self,
        owner: Owner<'_>,
        number: u64,
        why: String,
        is_refused: bool,
        tell: &mut dyn FnMut(Damaged),
    ) {
        let key: Option<Box<[u8]>> = match owner {
            Owner::Item { key } => Some(key.into()),
            Owner::Checkpoint { .. } => None,
        };
        let name = name(number, key.as_deref().unwrap_or_default());
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

fn name(number: u64, key: &[u8]) -> (u64, u32) {
    (number, crc32c(key))
}

/// How many bytes are read of it by itself, for a piece is read as a whole, and how many pieces its
/// value has.
fn asked_for(unit: &Unit, pointer: &Pointer) -> (usize, usize) {
    let bytes = match unit.part {
        Part::Record => unit.bytes as usize,
        Part::Piece { piece, .. } => pointer.piece_bytes(piece as usize),
    };
    (bytes, pointer.pieces())
}

/// What reading it takes behind what ends there ([`Shared::fetch`]). One by itself costs a device
/// about as much as a gap that is read for nothing.
fn cost(unit: &Unit, last: Option<(Home, u64)>) -> u64 {
    let (at, bytes) = (unit.home.at(), u64::from(unit.bytes));
    match last {
        Some((home, end)) if home.is_ssd() == unit.home.is_ssd() && at <= end + GAP_BYTES => {
            (at + bytes).saturating_sub(end)
        }
        _ => bytes.next_multiple_of(BLOCK_BYTES as u64).max(GAP_BYTES),
    }
}
