//! The instant that a backup is of, and what is held of it until it is copied.
//!
//! Whatever changes the index comes by `publish_past_cut` ([`super::hold`]) or
//! `flush_past_cut`, under the writer, in the order of the log. So a moment under the
//! writer is a point of that order, and a backup that begins then is of what came before it. From
//! then on the index is walked in key order; an item that is replaced or deleted ahead of the walk
//! is held first, as it was. What is held is an entry. Its value on the SSD is pinned, as by a
//! reader; of a record that migration is about to free the bytes are kept here
//! (`save_held`). Nobody waits for a device on a backup's behalf but whoever makes room.
//!
//! What is held is bounded, in memory and on the SSD. A backup that would need more is given up:
//! those who write come before it. Whoever gives it up says so and no more, for they may hold the
//! writer; what it held is let go by whoever copies, or by whoever finds no room on the SSD.

use crate::index::{Entry, Home, Index, What};
use crate::ssd::space::Space;
use crate::types::BLOCK_BYTES;
use laneway_sync::planted::{Bug, is_planted};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// Items that the walk takes at once, and that are read at once.
const ITEMS_AT_ONCE: usize = 128;
/// Entries that the walk looks at in one go, about, while whoever changes the index waits: deleted
/// keys are remembered, and there may be millions of them behind each other.
const LOOKS_AT_ONCE: usize = 1024;
/// Bytes of the values that the walk takes at once, but for one that is longer by itself.
const PAGE_BYTES: u64 = 4 << 20;
/// Of what a backup may hold on the SSD the walk takes this share at once, at most.
const PAGE_SHARE: u64 = 4;
/// Bytes of items that are read at once, but for one that is longer by itself.
pub const BATCH_BYTES: u64 = 256 << 10;
/// What an item that is held takes in memory beside its key, and a key that has changed, about.
const HELD_BYTES: u64 = 192;
/// Items that are held at once for a `flush_all`, about: some milliseconds.
const FLUSHED_MAX: usize = 4096;
const CHANGED_BYTES: u64 = 64;

/// How much a backup may hold of what has been replaced since it began, and do at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Bytes of memory.
    pub memory_bytes: u64,
    /// Blocks of the SSD.
    pub blocks: u64,
    /// Items that one step copies.
    pub items_at_once: usize,
}

impl Bounds {
    /// It may hold whatever it needs.
    pub const NONE: Bounds =
        Bounds { memory_bytes: u64::MAX, blocks: u64::MAX, items_at_once: ITEMS_AT_ONCE };
}

/// An item of the cut that is not copied yet.
pub struct Held {
    /// Its key.
    pub key: Box<[u8]>,
    /// What the index said of it.
    pub entry: Entry,
    /// Its record, once the log or the sort table that had it was to be freed.
    pub saved: OnceLock<Vec<u8>>,
    /// The first block of its value, which is pinned.
    pub pinned: Option<u32>,
    /// Bytes of memory that it takes.
    pub memory_bytes: u64,
}

impl Held {
    /// Its record, if it was saved.
    pub fn saved(&self) -> Option<&[u8]> {
        self.saved.get().map(Vec::as_slice)
    }

    /// Whether a copy of it takes its record, which nobody has saved.
    pub fn needs_record(&self) -> bool {
        let is_known = match &self.entry.what {
            What::Large(large) => large.meta().is_some(),
            _ => false,
        };
        !is_known && self.saved().is_none()
    }

    /// Bytes of its record and of its value.
    pub fn bytes(&self) -> u64 {
        u64::from(self.entry.record_bytes) + self.entry.value_bytes()
    }
}

/// What is held is in the order of its medium. Two may have had one place, one after the other.
pub type Place = (Home, u64);

/// What a backup does next.
pub enum Next {
    /// It copies these, and says so by `copied`.
    Copy(Vec<(Place, Arc<Held>)>),
    /// The walk went on, and met nothing that is left to copy.
    Walked,
    /// Everything is copied.
    Over,
}

/// Items of the index in the order of their keys, and where to go on; nowhere at the end.
type Page = (Vec<(Box<[u8]>, Entry)>, Option<Vec<u8>>);

/// A value on the SSD that is pinned.
struct Pin {
    blocks: u64,
    /// Nobody but the backup needs it any more.
    is_replaced: bool,
}

/// What is known of a backup that is under way.
pub struct State {
    /// What it may hold.
    pub bounds: Bounds,
    /// The walk goes on here; nowhere once it is through.
    pub from: Option<Vec<u8>>,
    /// Keys ahead of the walk that have changed since the cut.
    changed: BTreeSet<Box<[u8]>>,
    /// Items that are not copied yet.
    pub held: BTreeMap<Place, Arc<Held>>,
    /// Values that are pinned, by their first blocks.
    pins: HashMap<u32, Pin>,
    /// How many were held so far.
    number: u64,
    /// Bytes of memory that it takes.
    pub memory_bytes: u64,
    /// Blocks of values that nobody but the backup needs.
    pub blocks: u64,
    /// Why it was given up.
    pub given_up: Option<String>,
}

/// The cut of the backup that is under way, if one is.
#[derive(Default)]
pub struct Cut {
    /// Changed under the writer, which those who look hold, too.
    pub is_on: AtomicBool,
    /// What is known of it.
    pub state: Mutex<Option<State>>,
}

impl Cut {
    /// It, alone.
    pub fn lock(&self) -> MutexGuard<'_, Option<State>> {
        // A reader who panicked inside ends its backup; writers go on.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Of a backup that begins now.
    pub fn begin(bounds: Bounds) -> State {
        State {
            bounds,
            from: Some(Vec::new()),
            changed: BTreeSet::new(),
            held: BTreeMap::new(),
            pins: HashMap::new(),
            number: 0,
            memory_bytes: 0,
            blocks: 0,
            given_up: None,
        }
    }

    /// Holds an item until it is copied.
    fn hold(&mut self, space: &Space, key: Box<[u8]>, entry: Entry, is_replaced: bool) {
        let pinned = match &entry.what {
            What::Large(large) => large.extents.first().map(|extent| {
                let blocks = large.extents.iter().map(|extent| u64::from(extent.blocks)).sum();
                (extent.start, Pin { blocks, is_replaced })
            }),
            _ => None,
        };
        let first = pinned.as_ref().map(|(first, _)| *first);
        if let Some((first, pin)) = pinned {
            space.pin(first);
            self.blocks += if is_replaced { pin.blocks } else { 0 };
            self.pins.insert(first, pin);
        }
        let memory_bytes = HELD_BYTES + key.len() as u64;
        self.memory_bytes += memory_bytes;
        self.number += 1;
        let place = (entry.home, self.number);
        let saved = OnceLock::new();
        self.held.insert(place, Arc::new(Held { key, entry, saved, pinned: first, memory_bytes }));
    }

    /// What a key held before it changed.
    pub fn replaced(&mut self, space: &Space, key: &[u8], before: Option<&Entry>) {
        if self.given_up.is_some() {
            return;
        }
        let is_ahead = self.from.as_ref().is_some_and(|from| from.as_slice() <= key);
        if !is_ahead {
            // The walk may have met it, and it is not copied yet.
            if let Some(What::Large(large)) = before.map(|before| &before.what)
                && let Some(first) = large.extents.first()
            {
                self.is_not_needed(first.start);
            }
        } else if !self.changed.contains(key) {
            self.changed.insert(key.into());
            self.memory_bytes += CHANGED_BYTES + key.len() as u64;
            if let Some(before) = before.filter(|before| before.is_item())
                && !is_planted(Bug::CutForgotten)
            {
                self.hold(space, key.into(), before.clone(), true);
            }
        }
        self.keep_bounds();
    }

    /// Nobody but the backup needs the value that begins here, if it is pinned.
    fn is_not_needed(&mut self, first: u32) {
        if let Some(pin) = self.pins.get_mut(&first).filter(|pin| !pin.is_replaced) {
            pin.is_replaced = true;
            self.blocks += pin.blocks;
        }
    }

    /// Everything of the store is about to go: what is left of the cut is held, if that is little,
    /// since nobody writes meanwhile.
    pub fn hold_all(&mut self, index: &Index, space: &Space) {
        let met: Vec<u32> = self.pins.keys().copied().collect();
        met.into_iter().for_each(|first| self.is_not_needed(first));
        self.keep_bounds();
        let most = self.held.len() + FLUSHED_MAX;
        while self.from.is_some() && self.held.len() <= most {
            self.walk(index, space, true);
            self.keep_bounds();
        }
        if self.from.is_some() {
            let why = "a flush_all took out more than it can hold at once; make it again";
            self.give_up(why.to_owned());
        }
    }

    /// The next of the index, as far as it has not changed. `is_replaced`: it is about to go.
    pub fn walk(&mut self, index: &Index, space: &Space, is_replaced: bool) {
        let Some(from) = self.from.take() else { return };
        let (page, next) = self.page(index, from);
        self.from = next;
        for (key, entry) in page {
            if !self.changed.contains(&key) {
                self.hold(space, key, entry, is_replaced);
            }
        }
        // One by one: to cut the set in two takes as long as what is ahead of the walk.
        let is_behind = |key: &[u8]| self.from.as_deref().is_none_or(|from| key < from);
        while self.changed.first().is_some_and(|key| is_behind(key)) {
            let key = self.changed.pop_first().unwrap_or_default();
            self.memory_bytes -= CHANGED_BYTES + key.len() as u64;
        }
    }

    /// Some items from `from` on.
    fn page(&self, index: &Index, mut from: Vec<u8>) -> Page {
        let most_items = self.bounds.items_at_once.max(1);
        let most_bytes = self.bounds.blocks.saturating_mul(BLOCK_BYTES as u64) / PAGE_SHARE;
        let most_bytes = most_bytes.min(PAGE_BYTES);
        let (mut page, mut bytes, mut looks) = (Vec::new(), 0, 0);
        loop {
            let mut left = None;
            let next = index.look_through(&from, |key, entry, _| {
                looks += 1;
                if left.is_some() || !entry.is_item() {
                    return;
                }
                bytes += entry.value_bytes().max(1);
                let fits = page.len() < most_items && bytes <= most_bytes;
                match fits || page.is_empty() {
                    true => page.push((Box::from(key), entry.clone())),
                    false => left = Some(key.to_vec()),
                }
            });
            let is_over = left.is_some() || LOOKS_AT_ONCE <= looks;
            match left.or_else(|| next.map(<[u8]>::into_vec)) {
                Some(next) if !is_over => from = next,
                next => return (page, next),
            }
        }
    }

    /// An item was copied.
    pub fn let_go(&mut self, space: &Space, place: Place) {
        let Some(held) = self.held.remove(&place) else { return };
        self.memory_bytes -= held.memory_bytes + held.saved().map_or(0, |saved| saved.len() as u64);
        if let Some(first) = held.pinned {
            let pin = self.pins.remove(&first).filter(|pin| pin.is_replaced);
            self.blocks -= pin.map_or(0, |pin| pin.blocks);
            space.unpin(first);
        }
    }

    /// Gives the backup up where it holds too much.
    pub fn keep_bounds(&mut self) {
        let Bounds { memory_bytes, blocks, .. } = self.bounds;
        let why = if memory_bytes < self.memory_bytes {
            format!("more than {} MiB of memory", memory_bytes >> 20)
        } else if blocks < self.blocks || is_planted(Bug::CutGivenUp) {
            format!("more than {blocks} blocks of the SSD")
        } else {
            return;
        };
        self.give_up(format!(
            "it would have to hold {why} of what was written over since it began; let it be \
             faster, or begin it when less is written"
        ));
    }

    /// For this reason. What it holds is still to be let go: [`State::take_held`].
    pub fn give_up(&mut self, why: String) {
        self.from = None;
        self.given_up.get_or_insert(why);
    }

    /// What it holds, to be let go where nobody waits.
    pub fn take_held(&mut self) -> Gone {
        (self.from, self.memory_bytes, self.blocks) = (None, 0, 0);
        let held = std::mem::take(&mut self.held);
        let (pins, changed) = (std::mem::take(&mut self.pins), std::mem::take(&mut self.changed));
        Gone { held, _pins: pins, _changed: changed }
    }
}

/// What was held for a backup that is no more.
pub struct Gone {
    held: BTreeMap<Place, Arc<Held>>,
    // Dropped with it.
    _pins: HashMap<u32, Pin>,
    _changed: BTreeSet<Box<[u8]>>,
}

impl Gone {
    /// Lets go of it. It may be much: nobody else may wait for whoever does this.
    pub fn let_go(self, space: &Space) {
        self.held.into_values().filter_map(|held| held.pinned).for_each(|first| space.unpin(first));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::entry::Tie;
    use crate::ssd::pointer::Pointer;
    use crate::ssd::space::Claims;
    use smallvec::{SmallVec, smallvec};

    fn entry(sequence: u64, what: What) -> Entry {
        let home = Home::log(sequence * 64);
        Entry { sequence, home, record_bytes: 64, expires_at_seconds: 0, what }
    }

    /// An item of so many blocks, which are taken.
    fn large(space: &Space, sequence: u64, blocks: u32) -> Entry {
        let extents = SmallVec::from_vec(space.take(blocks).unwrap());
        let bytes = u64::from(blocks) * BLOCK_BYTES as u64;
        let crcs = smallvec![1];
        let pointer = Pointer { bytes, extents, crcs, original_bytes: 0 };
        entry(sequence, What::Large(Arc::new(pointer.into())))
    }

    fn free(space: &Space, entry: &Entry) {
        if let What::Large(large) = &entry.what {
            space.free(&large.extents);
        }
    }

    fn publish(index: &Index, key: &[u8], entry: &Entry) {
        drop(index.publish(key, entry.clone(), Tie::Replace));
    }

    fn key(number: u64) -> Vec<u8> {
        format!("{number:06}").into_bytes()
    }

    #[test]
    fn the_walk_is_bounded_where_keys_were_deleted_and_meets_what_is_behind_them() {
        const DELETED: u64 = 100_000;
        let (index, space) = (Index::default(), Claims::new(0, 8).into_space());
        (0..DELETED).for_each(|n| publish(&index, &key(n), &entry(n, What::Tombstone)));
        publish(&index, &key(DELETED), &entry(DELETED, What::Small { value_bytes: 3 }));
        let mut state = State::begin(Bounds::NONE);
        let mut walks = 0;
        while state.from.is_some() {
            state.walk(&index, &space, false);
            walks += 1;
        }
        assert!(DELETED / 1200 <= walks, "{walks} steps go over {DELETED} deleted keys");
        let held: Vec<_> = state.held.values().map(|held| held.key.to_vec()).collect();
        assert_eq!(held, [key(DELETED)]);
    }

    #[test]
    fn a_flush_holds_few_items_at_once_and_gives_up_where_more_are_left() {
        for (items, is_given_up) in [(3000, false), (20_000, true)] {
            let index = Index::default();
            let space = Claims::new(0, 900).into_space();
            for n in 0..items {
                publish(&index, &key(n), &entry(n, What::Small { value_bytes: 10 }));
            }
            let mut state = State::begin(Bounds::NONE);
            state.hold_all(&index, &space);
            assert_eq!(state.given_up.is_some(), is_given_up, "{items}");
            assert!(state.held.len() <= FLUSHED_MAX + 1024, "{} are held", state.held.len());
            assert!(is_given_up || state.held.len() as u64 == items, "none is left out");
        }
    }

    #[test]
    fn every_item_is_walked_over_once_however_few_a_step_takes() {
        let (index, space) = (Index::default(), Claims::new(0, 900).into_space());
        let mut expected = Vec::new();
        for n in 0..700 {
            let what = match n % 5 {
                0 => What::Tombstone,
                _ => What::Small { value_bytes: 900_000 * (n % 3) as u32 },
            };
            if what != What::Tombstone {
                expected.push(key(n));
            }
            publish(&index, &key(n), &entry(n, what));
        }
        for items_at_once in [1, 2, 7, 127, 128, 129, 5000] {
            let mut state = State::begin(Bounds { items_at_once, ..Bounds::NONE });
            while state.from.is_some() {
                let before = state.held.len();
                state.walk(&index, &space, false);
                assert!(state.held.len() - before <= items_at_once);
            }
            let mut met: Vec<_> = state.held.values().map(|held| held.key.to_vec()).collect();
            met.sort();
            assert_eq!(met, expected, "{items_at_once}");
        }
    }

    #[test]
    fn who_writes_gives_a_backup_up_and_frees_nothing() {
        let (index, space) = (Index::default(), Claims::new(0, 100).into_space());
        let mut state = State::begin(Bounds { blocks: 10, ..Bounds::NONE });
        for n in 0..4 {
            let before = large(&space, n, 3);
            state.replaced(&space, &key(n), Some(&before));
            free(&space, &before);
        }
        assert!(state.given_up.as_ref().unwrap().contains("more than 10 blocks"));
        assert_eq!((state.held.len(), space.free_blocks()), (4, 88), "it is let go by others");
        // Nothing more is held.
        let late = large(&space, 9, 3);
        state.replaced(&space, &key(9), Some(&late));
        state.hold_all(&index, &space);
        assert_eq!((state.held.len(), state.blocks), (4, 12));
        let gone = state.take_held();
        assert_eq!((state.blocks, state.memory_bytes), (0, 0));
        gone.let_go(&space);
        assert_eq!(space.free_blocks(), 97);
    }

    #[test]
    fn what_the_walk_has_met_counts_once_it_is_replaced() {
        let (index, space) = (Index::default(), Claims::new(0, 100).into_space());
        let entries: Vec<Entry> = (0..3).map(|n| large(&space, n, 2)).collect();
        entries.iter().enumerate().for_each(|(n, entry)| publish(&index, &key(n as u64), entry));
        let mut state = State::begin(Bounds { items_at_once: 2, ..Bounds::NONE });
        state.walk(&index, &space, false);
        assert_eq!((state.held.len(), state.blocks), (2, 0));
        (0..2).for_each(|_| state.replaced(&space, &key(0), Some(&entries[0])));
        assert_eq!(state.blocks, 2);
        state.hold_all(&index, &space);
        assert_eq!((state.held.len(), state.blocks), (3, 6));
        let places: Vec<Place> = state.held.keys().copied().collect();
        places.into_iter().for_each(|place| state.let_go(&space, place));
        assert_eq!((state.blocks, state.memory_bytes), (0, 0));
    }
}
