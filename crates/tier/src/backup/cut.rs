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
//! What is held is bounded, in memory and on the SSD. A backup that would need more is given up,
//! and everything it held is let go: those who write come before it.

use crate::index::{Entry, Home, Index, What};
use crate::space::Space;
use laneway_sync::planted::{Bug, is_planted};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

/// Entries that the walk takes at once, while whoever changes the index waits; and that are read at
/// once.
const ITEMS_AT_ONCE: usize = 128;
/// Bytes of the values that the walk takes at once, but for one that is longer by itself.
const PAGE_BYTES: u64 = 4 << 20;
/// Bytes of items that are read at once, but for one that is longer by itself.
pub const BATCH_BYTES: u64 = 256 << 10;
/// What an item that is held takes in memory beside its key, and a key that has changed, about.
const HELD_BYTES: u64 = 192;
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
    /// Blocks of a value that nobody but the backup needs.
    pub blocks: u64,
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

/// What is known of a backup that is under way.
pub struct State {
    /// What it may hold.
    pub bounds: Bounds,
    /// The walk goes on here; nowhere once it is through.
    pub from: Option<Vec<u8>>,
    /// Keys ahead of the walk that have changed since the cut.
    pub changed: BTreeSet<Box<[u8]>>,
    /// Items that are not copied yet.
    pub held: BTreeMap<Place, Arc<Held>>,
    /// How many were held so far.
    pub number: u64,
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
        self.state.lock().expect("nobody panics inside")
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
            number: 0,
            memory_bytes: 0,
            blocks: 0,
            given_up: None,
        }
    }

    /// Holds an item until it is copied.
    pub fn hold(&mut self, space: &Space, key: Box<[u8]>, entry: Entry, is_current: bool) {
        let pinned = match &entry.what {
            What::Large(large) => large.extents.first().map(|extent| extent.start),
            _ => None,
        };
        if let Some(first) = pinned {
            space.pin(first);
        }
        let blocks = match &entry.what {
            What::Large(large) if !is_current => {
                large.extents.iter().map(|extent| u64::from(extent.blocks)).sum()
            }
            _ => 0,
        };
        let memory_bytes = HELD_BYTES + key.len() as u64;
        self.memory_bytes += memory_bytes;
        self.blocks += blocks;
        self.number += 1;
        let place = (entry.home, self.number);
        let saved = OnceLock::new();
        let held = Held { key, entry, saved, pinned, blocks, memory_bytes };
        self.held.insert(place, Arc::new(held));
    }

    /// What a key held before it changed.
    pub fn replaced(&mut self, space: &Space, key: &[u8], before: Option<&Entry>) {
        let is_ahead = self.from.as_ref().is_some_and(|from| from.as_slice() <= key);
        if !is_ahead || self.changed.contains(key) {
            return;
        }
        self.changed.insert(key.into());
        self.memory_bytes += CHANGED_BYTES + key.len() as u64;
        if let Some(before) = before.filter(|before| before.is_item())
            && !is_planted(Bug::CutForgotten)
        {
            self.hold(space, key.into(), before.clone(), false);
        }
        self.keep_bounds(space);
    }

    /// The next of the index, as far as it has not changed.
    pub fn walk(&mut self, index: &Index, space: &Space, is_current: bool) {
        let Some(from) = self.from.take() else { return };
        let most = self.bounds.items_at_once.max(1);
        let mut page = index.range(&from, None, most);
        let found = page.len();
        let mut bytes = 0;
        let fits = page.iter().take_while(|(_, entry)| {
            let is_first = bytes == 0;
            bytes += entry.value_bytes().max(1);
            is_first || bytes <= PAGE_BYTES
        });
        page.truncate(fits.count());
        let is_end = page.len() == found && found < most;
        let last = page.last().filter(|_| !is_end);
        self.from = last.map(|(last, _)| [last, &[0][..]].concat());
        for (key, entry) in page {
            if !self.changed.contains(&key) {
                self.hold(space, key, entry, is_current);
            }
        }
        let ahead = match &self.from {
            Some(from) => self.changed.split_off(from.as_slice()),
            None => BTreeSet::new(),
        };
        let behind = std::mem::replace(&mut self.changed, ahead);
        let bytes = behind.iter().map(|key| CHANGED_BYTES + key.len() as u64);
        self.memory_bytes -= bytes.sum::<u64>();
    }

    /// An item was copied.
    pub fn let_go(&mut self, space: &Space, place: Place) {
        let Some(held) = self.held.remove(&place) else { return };
        self.memory_bytes -= held.memory_bytes + held.saved().map_or(0, |saved| saved.len() as u64);
        self.blocks -= held.blocks;
        if let Some(first) = held.pinned {
            space.unpin(first);
        }
    }

    /// Nothing is held any more.
    pub fn let_all_go(&mut self, space: &Space) {
        let places: Vec<Place> = self.held.keys().copied().collect();
        places.into_iter().for_each(|place| self.let_go(space, place));
        (self.from, self.changed) = (None, BTreeSet::new());
    }

    /// Gives the backup up where it holds too much.
    pub fn keep_bounds(&mut self, space: &Space) {
        let Bounds { memory_bytes, blocks, .. } = self.bounds;
        let why = if memory_bytes < self.memory_bytes {
            format!("more than {} MiB of memory", memory_bytes >> 20)
        } else if blocks < self.blocks {
            format!("more than {blocks} blocks of the SSD")
        } else {
            return;
        };
        self.give_up(
            space,
            format!(
                "it would have to hold {why} of what was written over since it began; let it be \
                 faster, or begin it when less is written"
            ),
        );
    }

    /// Lets go of everything, for this reason.
    pub fn give_up(&mut self, space: &Space, why: String) {
        self.let_all_go(space);
        self.given_up.get_or_insert(why);
    }
}
