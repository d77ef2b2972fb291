//! How a store holds what a backup needs: every change of the index passes here ([`super::cut`]).

use super::cut::{BATCH_BYTES, Bounds, Held, Next, Place, State};
use crate::index::{Entry, Home, Published, Tie};
use crate::read::verified;
use crate::store::Shared;
use crate::types::{Error, Result};
use laneway_sync::planted::{Bug, is_planted};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, PoisonError};

impl Shared {
    /// Begins a backup; the highest sequence that may be in it.
    pub fn begin_cut(&self, bounds: Bounds) -> Result<u64> {
        let writer = self.writer();
        let mut state = self.cut.lock();
        if state.is_some() {
            return Err(Error::Backup("another backup is under way".into()));
        }
        *state = Some(State::begin(bounds));
        self.cut.is_on.store(true, Relaxed);
        Ok(writer.sequence)
    }

    /// The backup is over, or given up by who asked for it.
    pub fn end_cut(&self) {
        // Also where somebody has panicked, for whom this may be called.
        let _writer = self.writer.lock();
        self.cut.is_on.store(false, Relaxed);
        let state = self.cut.state.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(mut state) = state {
            state.let_all_go(&self.space);
        }
    }

    /// Offers an entry to the index; what it replaces is held if a backup still needs it.
    pub fn publish_past_cut(&self, key: &[u8], entry: Entry, tie: Tie) -> Published {
        if !self.cut.is_on.load(Relaxed) {
            return self.index.publish(key, entry, tie);
        }
        // The walk comes before both or behind both.
        let mut state = self.cut.lock();
        let published = self.index.publish(key, entry, tie);
        if let (Some(state), Published::Current(before)) = (&mut *state, &published) {
            state.replaced(&self.space, key, before.as_ref());
        }
        published
    }

    /// Takes out every entry below `sequence`; a backup holds what it still needs of them.
    pub fn flush_past_cut(&self, sequence: u64) -> Vec<Entry> {
        let mut state = self.cut.lock();
        if let Some(state) = &mut *state {
            while state.from.is_some() {
                state.walk(&self.index, &self.space, false);
                state.keep_bounds(&self.space);
            }
        }
        self.index.flush(sequence)
    }

    /// What a backup copies next.
    pub fn next_of_cut(&self) -> Result<Next> {
        let mut state = self.cut.lock();
        let Some(state) = &mut *state else { return Ok(Next::Over) };
        if let Some(why) = &state.given_up {
            return Err(Error::Backup(format!("the backup was given up: {why}")));
        }
        if state.held.is_empty() {
            if state.from.is_none() {
                return Ok(Next::Over);
            }
            state.walk(&self.index, &self.space, true);
        }
        let mut bytes = 0;
        let fits =
            state.held.iter().take(state.bounds.items_at_once.max(1)).take_while(|(_, held)| {
                let is_first = bytes == 0;
                bytes += held.bytes();
                is_first || bytes <= BATCH_BYTES
            });
        let batch: Vec<_> = fits.map(|(place, held)| (*place, held.clone())).collect();
        Ok(if batch.is_empty() { Next::Walked } else { Next::Copy(batch) })
    }

    /// These were copied.
    pub fn copied(&self, places: impl Iterator<Item = Place>) {
        if let Some(state) = &mut *self.cut.lock() {
            places.for_each(|place| state.let_go(&self.space, place));
        }
    }

    /// The bytes of this range, of the log or of the SSD, are about to be used again, and nothing
    /// in the index leads there: a backup that needs records of it keeps them in memory.
    pub fn save_held(&self, range: std::ops::Range<Home>) {
        let found: Vec<(Place, Arc<Held>)> = match &*self.cut.lock() {
            Some(state) if !is_planted(Bug::CutOverwritten) => {
                let found = state.held.range((range.start, 0)..(range.end, 0));
                let found = found.filter(|(_, held)| held.needs_record());
                found.map(|(place, held)| (*place, held.clone())).collect()
            }
            _ => return,
        };
        let read = found.into_iter().filter_map(|(place, held)| {
            let Entry { home, record_bytes, sequence, .. } = held.entry;
            // One that cannot be read is found damaged when it is copied.
            let record = self.read_record(home, record_bytes as usize).ok()?;
            let is_whole = verified(&record, &held.key, sequence).is_some();
            is_whole.then_some((place, held, record))
        });
        let read: Vec<_> = read.collect();
        // Whoever finds other bytes in the record's place takes this lock before it looks here.
        let mut state = self.cut.lock();
        let Some(state) = &mut *state else { return };
        for (place, held, record) in read {
            let is_held = state.held.get(&place).is_some_and(|now| Arc::ptr_eq(now, &held));
            if is_held && held.saved().is_none() {
                state.memory_bytes += record.len() as u64;
                held.saved.get_or_init(|| record);
            }
        }
        state.keep_bounds(&self.space);
    }

    /// What was saved of it before this was asked.
    pub fn saved_by_now(&self, held: &Held) -> Option<Vec<u8>> {
        let _saving = self.cut.lock();
        held.saved().map(<[u8]>::to_vec)
    }

    /// There is no room on the SSD: a backup that holds blocks is given up. Whether one was.
    pub fn give_up_cut_for_room(&self) -> bool {
        match &mut *self.cut.lock() {
            Some(state) if 0 < state.blocks => {
                state.give_up(&self.space, "the SSD has no room left for what it holds".into());
                true
            }
            _ => false,
        }
    }

    /// Memory and blocks that a backup holds now.
    #[cfg(test)]
    pub fn cut_holds(&self) -> Option<(u64, u64)> {
        self.cut.lock().as_ref().map(|state| (state.memory_bytes, state.blocks))
    }
}
