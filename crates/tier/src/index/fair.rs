//! The index in persistent memory: what [`crate::index`] promises, kept in a FAST&FAIR tree
//! ([`crate::index::fastfair`]), so that a start finds it and reads no entry of it.
//!
//! What the tree leads to must be durable: an entry goes in when its group is, never before, and a
//! record that migration moves is followed when its copy is. Up to where the tree holds the log is
//! a word of it ([`FairIndex::settled`]); replaying the log from there leads to the same end, as it
//! does from a checkpoint.
//!
//! With the tree goes the count of what its entries hold ([`Ledger`]), which a checkpoint keeps in
//! the entries' place. Hits are counted in memory by a hash of the key: a hint, as ever.

use crate::index::entry::{Entry, Home, Published, Tie, What};
use crate::index::fastfair::{Cell, Change, FairTree, Kept, LINES_MAX, Room, lines_of};
use crate::media::bytes::Reader;
use crate::recovery::ledger::Ledger;
use crate::ssd::tables::Table;
use crate::ssd::value::Large;
use crate::types::{Error, ItemMeta, KEY_BYTES_MAX, Position, Result};
use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::sync::atomic::Ordering::{AcqRel, Relaxed};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64};
use std::sync::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Entries that are looked at in one go.
const PAGE_ENTRIES: usize = 256;
/// Counters of hits. A power of two.
const WEIGHTS: usize = 1 << 16;
/// This part of the tree's memory is not for items: half of it is for deletions; the rest for
/// migration, which takes the lines of one entry before it gives those of the other back, and for
/// splits above the leaves' parents, of whom there is one for 14 leaves at least.
const SPARE_SHARE: u64 = 8;
/// A put splits a leaf at most, and the leaf's parent.
const NODES_EACH: u64 = 2;
/// An offset in a segment counts by lines in a position's word.
const OFFSET_SHIFT: u32 = 6;
const OFFSET_BITS: u32 = u32::BITS - OFFSET_SHIFT;

struct State {
    tree: FairTree,
    /// What the entries hold; none while the store is recovered, which counts by itself.
    ledger: Option<Ledger>,
}

/// The index.
pub struct FairIndex {
    state: RwLock<State>,
    /// Of the SSD.
    blocks: u64,
    weights: Box<[AtomicU8]>,
    /// Of the same keys, whether they were hit since the clock of eviction passed them.
    marks: Box<[AtomicBool]>,
    hasher: RandomState,
    /// Lines and nodes promised to records that are on their way.
    promised_lines: AtomicU64,
    promised_nodes: AtomicU64,
    /// Where the copies of records end that the index does not follow yet, by their old places.
    following: Mutex<BTreeMap<Home, Position>>,
    /// Why the tree cannot be changed any more, and whether that is for want of room.
    failure: Mutex<Option<(String, bool)>>,
}

const UNPOISONED: &str = "nobody panics inside";

fn word_of(position: Position) -> u64 {
    position.generation << OFFSET_BITS | u64::from(position.offset >> OFFSET_SHIFT)
}

fn position_from(word: u64) -> Position {
    let offset = (word & ((1 << OFFSET_BITS) - 1)) as u32;
    Position { generation: word >> OFFSET_BITS, offset: offset << OFFSET_SHIFT }
}

impl FairIndex {
    /// Of a tree that was opened, in a store whose SSD has so many blocks.
    pub fn new(tree: FairTree, blocks: u64) -> FairIndex {
        FairIndex {
            state: RwLock::new(State { tree, ledger: None }),
            blocks,
            weights: (0..WEIGHTS).map(|_| AtomicU8::new(0)).collect(),
            marks: (0..WEIGHTS).map(|_| AtomicBool::new(false)).collect(),
            hasher: RandomState::new(),
            promised_lines: AtomicU64::new(0),
            promised_nodes: AtomicU64::new(0),
            following: Mutex::default(),
            failure: Mutex::default(),
        }
    }

    /// What one of its cells says.
    pub fn entry_of(payload: &[u8], blocks: u64) -> Option<Entry> {
        Entry::decode(&mut Reader::new(payload), blocks, &mut None)
    }

    /// The changes since a checkpoint, as a count of them needs them: first what went. `None` if
    /// one makes no sense.
    pub fn entries_of(changes: Vec<Change>, blocks: u64) -> Option<(Vec<Entry>, Vec<Entry>)> {
        let (mut went, mut came) = (Vec::new(), Vec::new());
        for change in changes {
            match change {
                Change::Went(cell) => went.push(FairIndex::entry_of(&cell.payload, blocks)?),
                Change::Came(cell) => came.push(FairIndex::entry_of(&cell.payload, blocks)?),
            }
        }
        Some((went, came))
    }

    fn read(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().expect(UNPOISONED)
    }

    fn write(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write().expect(UNPOISONED)
    }

    fn following(&self) -> MutexGuard<'_, BTreeMap<Home, Position>> {
        self.following.lock().expect(UNPOISONED)
    }

    /// Why the tree could not be changed; what was to be changed counts as never done.
    pub fn check(&self) -> Result<()> {
        match &*self.failure.lock().expect(UNPOISONED) {
            None => Ok(()),
            Some((why, _)) => Err(Error::Poisoned(why.clone())),
        }
    }

    /// Whether that is for want of room.
    pub fn was_full(&self) -> bool {
        matches!(*self.failure.lock().expect(UNPOISONED), Some((_, true)))
    }

    /// From now on the tree can be changed no more.
    #[cfg(test)]
    pub fn refuse(&self) {
        self.noting(Err::<(), _>(io::Error::other("a test")));
    }

    fn noting<T>(&self, result: io::Result<T>) -> Option<T> {
        result
            .map_err(|error| {
                let is_full = error.kind() == io::ErrorKind::StorageFull;
                let mut failure = self.failure.lock().expect(UNPOISONED);
                failure.get_or_insert((error.to_string(), is_full));
            })
            .ok()
    }

    /// What a cell says; of one that cannot be read, that the key is lost.
    fn entry_or_lost(&self, cell: &Cell) -> Entry {
        FairIndex::entry_of(&cell.payload, self.blocks).unwrap_or_else(Entry::unreadable)
    }

    fn entry_in(&self, state: &State, key: &[u8]) -> Option<Entry> {
        state.tree.get(key).map(|cell| self.entry_or_lost(&cell))
    }

    fn put(
        &self,
        state: &mut State,
        key: &[u8],
        entry: &Entry,
        before: Option<&Entry>,
    ) -> Option<()> {
        // Behind what was refused nothing is taken in.
        self.check().ok()?;
        let mut payload = Vec::new();
        entry.encode(&mut payload);
        self.noting(state.tree.put(key, &payload))?;
        if let Some(ledger) = &mut state.ledger {
            // Nobody knows what that one held.
            let is_known = before.is_none_or(|before| *before != Entry::unreadable());
            if !is_known {
                ledger.give_up();
            }
            before.into_iter().for_each(|before| ledger.remove(before));
            ledger.add(entry);
        }
        Some(())
    }

    fn take_out(&self, state: &mut State, key: &[u8], entry: &Entry) {
        if self.noting(state.tree.remove(key)).is_some()
            && let Some(ledger) = &mut state.ledger
        {
            ledger.remove(entry);
        }
    }

    fn place(&self, key: &[u8]) -> usize {
        self.hasher.hash_one(key) as usize % WEIGHTS
    }

    fn counter(&self, key: &[u8]) -> &AtomicU8 {
        &self.weights[self.place(key)]
    }

    /// See [`crate::index::Index::get`].
    pub fn get(&self, key: &[u8]) -> Option<Entry> {
        self.entry_in(&self.read(), key)
    }

    /// See [`crate::index::Index::hit`].
    pub fn hit(&self, key: &[u8]) -> Option<Entry> {
        let found = self.get(key)?;
        let counter = self.counter(key);
        // Two hits at once may count as one.
        counter.store(counter.load(Relaxed).saturating_add(1), Relaxed);
        self.marks[self.place(key)].store(true, Relaxed);
        Some(found)
    }

    /// See [`crate::index::Index::publish`].
    pub fn publish(&self, key: &[u8], entry: Entry, tie: Tie) -> Published {
        let mut state = self.write();
        let before = self.entry_in(&state, key);
        if before.as_ref().is_some_and(|before| !entry.counts_before(before, tie)) {
            return Published::Stale;
        }
        match self.put(&mut state, key, &entry, before.as_ref()) {
            Some(()) => Published::Current(before),
            None => Published::Refused,
        }
    }

    fn change(&self, key: &[u8], sequence: u64, change: impl FnOnce(&mut Entry) -> bool) -> bool {
        let mut state = self.write();
        let found = self.entry_in(&state, key).filter(|entry| entry.sequence == sequence);
        let Some(before) = found else { return false };
        let mut entry = before.clone();
        change(&mut entry) && self.put(&mut state, key, &entry, Some(&before)).is_some()
    }

    /// See [`crate::index::Index::relocate`].
    pub fn relocate(&self, key: &[u8], sequence: u64, from: Home, to: Home) -> bool {
        self.following().remove(&from);
        self.change(key, sequence, |entry| {
            let same = entry.home == from;
            entry.home = to;
            same
        })
    }

    /// The record at `from` was copied to where `end` is behind; the index follows when that is
    /// durable, by [`FairIndex::relocate`].
    pub fn will_follow(&self, from: Home, end: Position) {
        self.following().insert(from, end);
    }

    /// Where the copy of a record ends that the index does not follow yet.
    pub fn copied_to(&self, from: Home) -> Option<Position> {
        self.following().get(&from).copied()
    }

    /// See [`crate::index::Index::remove`].
    pub fn remove(&self, key: &[u8], sequence: u64) -> Option<Entry> {
        let mut state = self.write();
        let found = self.entry_in(&state, key).filter(|entry| entry.sequence == sequence)?;
        self.take_out(&mut state, key, &found);
        Some(found)
    }

    /// See [`crate::index::Index::mark_lost`].
    pub fn mark_lost(&self, key: &[u8], sequence: u64) {
        self.change(key, sequence, |entry| {
            entry.what = What::Lost;
            true
        });
    }

    /// See [`crate::index::Index::know`]: a cell is not changed for it.
    pub fn know(&self, _: &[u8], _: u64, _: ItemMeta) {}

    /// See [`crate::index::Index::written`]: here is no value that waits.
    pub fn written(&self, _: &Large) {}

    /// See [`crate::index::Index::bytes`]: the counters of hits. Which lines of persistent memory
    /// are free is not counted.
    pub fn bytes(&self) -> u64 {
        (size_of_val(&*self.weights) + size_of_val(&*self.marks)) as u64
    }

    /// See [`crate::index::Index::weigh`].
    pub fn weigh(&self, key: &[u8], sequence: u64, home: Home) -> Option<u8> {
        let now = self.get(key)?;
        let is_current = now.sequence == sequence && now.home == home;
        is_current.then(|| self.counter(key).load(Relaxed)) // a hint
    }

    /// Shows entries from `from` on until `visit` wants no more.
    fn pages(&self, from: &[u8], mut visit: impl FnMut(&[u8], Entry) -> bool) {
        let mut from = from.to_vec();
        loop {
            let page = self.read().tree.page(&from, PAGE_ENTRIES);
            for cell in &page {
                if !visit(&cell.key, self.entry_or_lost(cell)) {
                    return;
                }
            }
            match page.last() {
                Some(last) if page.len() == PAGE_ENTRIES => from = [&last.key[..], &[0]].concat(),
                _ => return,
            }
        }
    }

    /// See [`crate::index::Index::range`].
    pub fn range(&self, from: &[u8], to: Option<&[u8]>, limit: usize) -> Vec<(Box<[u8]>, Entry)> {
        let mut found = Vec::new();
        self.pages(from, |key, entry| {
            let past = to.is_some_and(|to| to <= key) || found.len() == limit;
            if !past && entry.is_item() {
                found.push((key.into(), entry));
            }
            !past
        });
        found
    }

    /// See [`crate::index::Index::walk`].
    pub fn walk(&self, mut visit: impl FnMut(&[u8], &Entry)) {
        self.pages(&[], |key, entry| {
            visit(key, &entry);
            true
        });
    }

    /// See [`crate::index::Index::look_through`]: a page.
    pub fn look_through(
        &self,
        from: &[u8],
        mut visit: impl FnMut(&[u8], &Entry, u8),
    ) -> Option<Box<[u8]>> {
        let page = self.read().tree.page(from, PAGE_ENTRIES);
        for cell in &page {
            visit(&cell.key, &self.entry_or_lost(cell), self.counter(&cell.key).load(Relaxed));
        }
        let last = page.last().filter(|_| page.len() == PAGE_ENTRIES);
        last.map(|last| [&last.key[..], &[0]].concat().into())
    }

    /// See [`crate::index::Index::take_mark`].
    pub fn take_mark(&self, key: &[u8]) -> bool {
        self.marks[self.place(key)].swap(false, Relaxed)
    }

    /// See [`crate::index::Index::cool`].
    pub fn cool(&self, mut visit: impl FnMut(&Entry, u8)) {
        self.walk(|key, entry| visit(entry, self.counter(key).load(Relaxed)));
        for counter in &self.weights {
            counter.store(counter.load(Relaxed) / 2, Relaxed);
        }
    }

    /// See [`crate::index::Index::flush`].
    pub fn flush(&self, sequence: u64) -> Vec<Entry> {
        let mut old: Vec<Box<[u8]>> = Vec::new();
        self.walk(|key, entry| old.extend((entry.sequence < sequence).then(|| key.into())));
        let mut gone = Vec::new();
        // By pages: who reads meanwhile waits for one.
        for keys in old.chunks(PAGE_ENTRIES) {
            let mut state = self.write();
            for key in keys {
                let found = self.entry_in(&state, key).filter(|entry| entry.sequence < sequence);
                if let Some(entry) = found {
                    self.take_out(&mut state, key, &entry);
                    gone.push(entry);
                }
            }
        }
        if let Some(ledger) = &mut self.write().ledger {
            ledger.flushed(sequence);
        }
        gone
    }

    /// Up to where a tree holds the log.
    pub fn position_of(tree: &FairTree) -> Position {
        position_from(tree.position())
    }

    /// The tree holds the log up to here.
    pub fn settled(&self, position: Position) -> Result<()> {
        self.check()?;
        let done = self.write().tree.set_position(word_of(position));
        self.noting(done);
        self.check()
    }

    /// That is durable when this returns.
    pub fn fence(&self) -> Result<()> {
        let done = self.read().tree.fence_position();
        self.noting(done);
        self.check()
    }

    /// Counts from now on.
    pub fn count_with(&self, ledger: Ledger) {
        self.write().ledger = Some(ledger);
    }

    /// There is a new sort table.
    pub fn table(&self, table: Table) {
        if let Some(ledger) = &mut self.write().ledger {
            ledger.table(table);
        }
    }

    /// A sort table is gone.
    pub fn table_gone(&self, id: u64) {
        if let Some(ledger) = &mut self.write().ledger {
            ledger.table_gone(id);
        }
    }

    fn lines(key: &[u8], what: &What) -> u64 {
        let entry = Entry {
            sequence: 0,
            home: Home::log(0),
            record_bytes: 0,
            expires_at_seconds: 0,
            what: what.clone(),
        };
        let mut payload = Vec::new();
        entry.encode(&mut payload);
        // And those of the key that a split keeps.
        lines_of(key.len(), payload.len()) + lines_of(KEY_BYTES_MAX, 0)
    }

    /// Keeps room for an entry that is on its way; false if there is none. What is kept can be
    /// taken whatever comes and goes meanwhile: the tree's memory never lies too badly.
    pub fn promise(&self, key: &[u8], what: &What) -> bool {
        let lines = FairIndex::lines(key, what);
        // Promised first, and looked at then: whoever was promised room before us has it, or has
        // taken it, when we look.
        let promised = Room {
            lines: self.promised_lines.fetch_add(lines, AcqRel) + lines,
            nodes: self.promised_nodes.fetch_add(NODES_EACH, AcqRel) + NODES_EACH,
            ..Room::default()
        };
        let room = self.read().tree.room();
        let shares = if *what == What::Tombstone { 1 } else { 2 };
        let spare = |all: u64, least: u64| shares * (all / SPARE_SHARE / 2).max(least);
        let fits = promised.lines + spare(room.all_lines, LINES_MAX) <= room.lines
            && promised.nodes + spare(room.all_nodes, 4) <= room.nodes;
        if !fits {
            self.give_back(lines);
        }
        fits
    }

    /// The entry came, or will not.
    pub fn fulfil(&self, key: &[u8], what: &What) {
        self.give_back(FairIndex::lines(key, what));
    }

    fn give_back(&self, lines: u64) {
        // What took the room comes before, for whoever sees this.
        self.promised_lines.fetch_sub(lines, AcqRel);
        self.promised_nodes.fetch_sub(NODES_EACH, AcqRel);
    }

    /// How much of the tree cannot be read.
    pub fn damages(&self) -> u64 {
        let mut senseless = 0;
        let damages = self.write().tree.walk_all(|_, payload| {
            let makes_sense = FairIndex::entry_of(payload, self.blocks).is_some();
            senseless += u64::from(!payload.is_empty() && !makes_sense);
        });
        damages + senseless
    }

    /// Whether a checkpoint would spare a start much.
    pub fn wants_checkpoint(&self) -> bool {
        self.read().tree.wants_checkpoint()
    }

    /// What a checkpoint has in the entries' place.
    pub fn snapshot(&self) -> (Kept, Option<Ledger>) {
        let mut state = self.write();
        (state.tree.snapshot(), state.ledger.clone())
    }

    /// That checkpoint is durable.
    pub fn keep(&self) -> Result<()> {
        let done = self.write().tree.keep();
        self.noting(done);
        self.check()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_is_one_word_of_the_same_order() {
        let at = |generation, offset| Position { generation, offset };
        let positions = [at(0, 0), at(1, 64), at(1, u32::MAX - 63), at(2, 0), at(1 << 37, 4096)];
        assert!(positions.map(word_of).is_sorted());
        assert_eq!(positions.map(|position| position_from(word_of(position))), positions);
    }
}
