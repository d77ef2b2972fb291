//! Holds what a backup needs: every change of the index passes here ([`super::cut`]).

use super::cut::{BATCH_BYTES, Bounds, Gone, Held, Next, Place, State};
use crate::index::{Entry, Home, Published, Tie};
use crate::media::fetch::Wanted;
use crate::reading::read::verified;
use crate::store::Shared;
use crate::types::{Error, Result};
use laneway_sync::planted::{Bug, is_planted};
use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, PoisonError};

/// Records of a segment that are saved in one go: whoever changes the index waits meanwhile.
const SAVED_AT_ONCE: usize = 1024;

/// A held item, and where it is held.
type HeldAt = (Place, Arc<Held>);

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
        let state = {
            // Also where somebody has panicked, for whom this may be called.
            let _writer = self.writer.lock();
            self.cut.is_on.store(false, Relaxed);
            self.cut.state.lock().unwrap_or_else(PoisonError::into_inner).take()
        };
        // Nobody waits any more.
        if let Some(mut state) = state {
            state.take_held().let_go(&self.space);
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
            state.hold_all(&self.index, &self.space);
        }
        self.index.flush(sequence)
    }

    /// Fails if the backup was given up; whoever copies lets go of what it held then.
    pub fn check_cut(&self) -> Result<()> {
        let (gone, why) = match &mut *self.cut.lock() {
            Some(state) => match state.given_up.clone() {
                Some(why) => (state.take_held(), why),
                None => return Ok(()),
            },
            None => return Ok(()),
        };
        gone.let_go(&self.space);
        Err(Error::Backup(format!("the backup was given up: {why}")))
    }

    /// What a backup copies next.
    pub fn next_of_cut(&self) -> Result<Next> {
        self.check_cut()?;
        let mut state = self.cut.lock();
        let Some(state) = &mut *state else { return Ok(Next::Over) };
        if state.held.is_empty() && state.given_up.is_none() {
            if state.from.is_none() {
                return Ok(Next::Over);
            }
            state.walk(&self.index, &self.space, false);
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
    pub fn save_held(&self, range: Range<Home>) {
        if is_planted(Bug::CutOverwritten) {
            return;
        }
        let mut from = (range.start, 0);
        loop {
            let (found, next) = self.held_in(from..(range.end, 0));
            let read = self.read_held(&found);
            self.save(&found, read);
            match next {
                Some(next) => from = next,
                None => return,
            }
        }
    }

    /// Some of what is held in a range and whose record is needed, and where to go on.
    fn held_in(&self, range: Range<Place>) -> (Vec<HeldAt>, Option<Place>) {
        let state = self.cut.lock();
        let Some(state) = state.as_ref().filter(|state| state.given_up.is_none()) else {
            return (Vec::new(), None);
        };
        let (mut found, mut next) = (Vec::new(), None);
        for (looked, (place, held)) in state.held.range(range).enumerate() {
            if looked == SAVED_AT_ONCE {
                next = Some(*place);
                break;
            }
            if held.needs_record() {
                found.push((*place, held.clone()));
            }
        }
        (found, next)
    }

    /// The records of these, where they can be read; one that cannot is found damaged when it is
    /// copied.
    fn read_held(&self, found: &[HeldAt]) -> Vec<Option<Vec<u8>>> {
        let mut records: Vec<Option<Vec<u8>>> = vec![None; found.len()];
        // A log that is no disk's is read record by record.
        let on_disk = |home: Home| home.is_ssd() || self.region.disk().is_some();
        let wanted = found.iter().enumerate().filter(|(_, (_, held))| on_disk(held.entry.home));
        let wanted = wanted.map(|(number, (_, held))| {
            let Entry { home, record_bytes, .. } = held.entry;
            Wanted { home, bytes: record_bytes as usize, what: number }
        });
        let is_it = |number: usize, bytes: &[u8]| {
            let held = &found[number].1;
            verified(bytes, &held.key, held.entry.sequence).is_some()
        };
        self.fetch(
            wanted.collect(),
            || {},
            |number, bytes| {
                records[*number] = Some(bytes).filter(|b| is_it(*number, b)).map(<[u8]>::to_vec);
            },
        );
        // What was read together may have failed for its neighbour's sake.
        for (number, (_, held)) in found.iter().enumerate() {
            if records[number].is_none() {
                let Entry { home, record_bytes, .. } = held.entry;
                let read = self.read_record(home, record_bytes as usize).ok();
                records[number] = read.filter(|bytes| is_it(number, bytes));
            }
        }
        records
    }

    /// Keeps what was read.
    fn save(&self, found: &[HeldAt], records: Vec<Option<Vec<u8>>>) {
        // Whoever finds other bytes in the record's place takes this lock before it looks here.
        let mut state = self.cut.lock();
        let Some(state) = &mut *state else { return };
        for ((place, held), record) in found.iter().zip(records) {
            let is_held = state.held.get(place).is_some_and(|now| Arc::ptr_eq(now, held));
            if let Some(record) = record.filter(|_| is_held && held.saved().is_none()) {
                state.memory_bytes += record.len() as u64;
                held.saved.get_or_init(|| record);
            }
        }
        state.keep_bounds();
    }

    /// What was saved of it before this was asked.
    pub fn saved_by_now(&self, held: &Held) -> Option<Vec<u8>> {
        let _saving = self.cut.lock();
        held.saved().map(<[u8]>::to_vec)
    }

    /// Whether a backup holds blocks that nobody else needs.
    pub fn is_room_held(&self) -> bool {
        self.cut.lock().as_ref().is_some_and(|state| 0 < state.blocks)
    }

    /// There is no room on the SSD: a backup that holds blocks is given up, and lets go of them at
    /// once. Whether one was.
    pub fn give_up_cut_for_room(&self) -> bool {
        let gone: Option<Gone> = match &mut *self.cut.lock() {
            Some(state) if 0 < state.blocks => {
                state.give_up("the SSD has no room left for what it holds".into());
                Some(state.take_held())
            }
            _ => None,
        };
        let was_given_up = gone.is_some();
        gone.into_iter().for_each(|gone| gone.let_go(&self.space));
        was_given_up
    }
}
