//! Persistent memory that lies in memory, with the cache in front of it made visible.
//!
//! Tracks lines of 64 bytes. A write dirties its lines; a flush starts their way out; a fence makes
//! durable what was flushed. When power fails, a dirty line may hold any mixture, in words of 8
//! bytes, of what was durable and what was written: more states than a processor allows, and all
//! that it does. A line that only single words were stored to ([`Region::store`]) holds the first
//! few of these, as on a processor: what is changed in place counts on that. Only this finds a
//! missing flush, because real memory persists most lines anyway.

use super::Region;
use crate::media::disk::Barrier;
use crate::media::disk::sim::{Faults, Power, Random};
use crate::types::LINE_BYTES;
use std::collections::BTreeMap;
use std::io::{self, IoSlice};
use std::sync::{Arc, Mutex, MutexGuard};

/// The stores to a line since it was durable, in their order: where, and what.
#[derive(Default)]
struct Stores {
    words: Vec<(usize, [u8; 8])>,
    /// How many there were at the last flush.
    flushed: usize,
}

struct State {
    durable: Vec<u8>,
    current: Vec<u8>,
    /// Dirty lines, and what each held when it was last flushed.
    dirty: BTreeMap<usize, Option<[u8; LINE_BYTES]>>,
    /// Dirty lines that only words were stored to.
    ordered: BTreeMap<usize, Stores>,
    faults: Faults,
    read_bytes: u64,
    written_bytes: u64,
}

/// The region.
pub struct SimRegion {
    state: Mutex<State>,
    power: Arc<Power>,
    bytes: usize,
    /// Whether `flush` does nothing, as if every clwb were missing.
    deaf: bool,
}

impl SimRegion {
    /// Zeros.
    pub fn new(bytes: usize, power: Arc<Power>, faults: Faults) -> SimRegion {
        SimRegion::from_image(vec![0; bytes], power, faults)
    }

    /// What another region held.
    pub fn from_image(image: Vec<u8>, power: Arc<Power>, faults: Faults) -> SimRegion {
        let bytes = image.len();
        let current = image.clone();
        let dirty = BTreeMap::new();
        let ordered = BTreeMap::new();
        let (read_bytes, written_bytes) = (0, 0);
        let durable = image;
        let state = State { durable, current, dirty, ordered, faults, read_bytes, written_bytes };
        SimRegion { state: Mutex::new(state), power, bytes, deaf: false }
    }

    /// Takes every flush away; fences stay.
    pub fn without_flushes(mut self) -> SimRegion {
        self.deaf = true;
        self
    }

    /// One of the states that a loss of power may leave, drawn by `seed`.
    pub fn crash_image(&self, seed: u64) -> Vec<u8> {
        let state = self.lock();
        let mut random = Random::new(seed);
        let mut image = state.durable.clone();
        let mood = random.below(8);
        for &line in state.dirty.keys() {
            let at = line * LINE_BYTES;
            if let Some(Stores { words, .. }) = state.ordered.get(&line) {
                let kept = match mood {
                    0 => 0,
                    1 => words.len(),
                    _ => random.below(words.len() as u64 + 1) as usize,
                };
                for (word, bytes) in &words[..kept] {
                    image[*word..*word + 8].copy_from_slice(bytes);
                }
                continue;
            }
            // Lines whole more often than torn.
            let torn = random.one_in(4);
            let whole = random.one_in(2);
            for word in (at..at + LINE_BYTES).step_by(8) {
                let persisted = match mood {
                    0 => false,
                    1 => true,
                    _ if torn => random.one_in(2),
                    _ => whole,
                };
                if persisted {
                    image[word..word + 8].copy_from_slice(&state.current[word..word + 8]);
                }
            }
        }
        image
    }

    /// What is there now: as after a process dies and the machine lives.
    pub fn image(&self) -> Vec<u8> {
        self.lock().current.clone()
    }

    /// Bytes that were read of it.
    pub fn read_bytes(&self) -> u64 {
        self.lock().read_bytes
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nobody panics inside")
    }
}

impl Region for SimRegion {
    fn bytes(&self) -> u64 {
        self.bytes as u64
    }

    fn read(&self, at: u64, into: &mut [u8]) -> io::Result<()> {
        if self.power.is_off() {
            return Err(io::Error::other("the power is off"));
        }
        let mut state = self.lock();
        into.copy_from_slice(&state.current[at as usize..at as usize + into.len()]);
        state.read_bytes += into.len() as u64;
        Ok(())
    }

    fn write(&self, at: u64, from: &[u8]) -> io::Result<()> {
        self.append(at, &mut [IoSlice::new(from)])
    }

    fn append(&self, at: u64, parts: &mut [IoSlice<'_>]) -> io::Result<()> {
        // One event and one lock, whatever the parts: of the words of all of them, any may be left.
        self.power.event()?;
        let first = at as usize;
        let mut state = self.lock();
        let mut end = first;
        for part in parts {
            state.current[end..end + part.len()].copy_from_slice(part);
            end += part.len();
        }
        state.written_bytes += (end - first) as u64;
        for line in first / LINE_BYTES..end.div_ceil(LINE_BYTES) {
            state.dirty.entry(line).or_insert(None);
            state.ordered.remove(&line);
        }
        Ok(())
    }

    fn load(&self, at: u64) -> u64 {
        // Without power, too: what a dead machine reads is nobody's business.
        let at = at as usize;
        u64::from_le_bytes(self.lock().current[at..at + 8].try_into().expect("8 bytes"))
    }

    fn store(&self, at: u64, word: u64) -> io::Result<()> {
        self.power.event()?;
        let (at, bytes) = (at as usize, word.to_le_bytes());
        let mut state = self.lock();
        state.current[at..at + 8].copy_from_slice(&bytes);
        state.written_bytes += 8;
        let line = at / LINE_BYTES;
        let is_clean = !state.dirty.contains_key(&line);
        if is_clean {
            state.dirty.insert(line, None);
            state.ordered.insert(line, Default::default());
        }
        // Where bytes were written besides, any mixture may be left, as before.
        if let Some(stores) = state.ordered.get_mut(&line) {
            stores.words.push((at, bytes));
        }
        Ok(())
    }

    fn flush(&self, at: u64, bytes: u64) -> io::Result<()> {
        self.power.event()?;
        if self.deaf {
            return Ok(());
        }
        let mut state = self.lock();
        let lines = at as usize / LINE_BYTES..(at + bytes).div_ceil(LINE_BYTES as u64) as usize;
        for line in lines {
            let held = state.current[line * LINE_BYTES..(line + 1) * LINE_BYTES].try_into().ok();
            if let Some(flushed) = state.dirty.get_mut(&line) {
                *flushed = held;
            }
            if let Some(stores) = state.ordered.get_mut(&line) {
                stores.flushed = stores.words.len();
            }
        }
        Ok(())
    }

    fn fence(&self, why: Barrier) -> io::Result<()> {
        self.power.event()?;
        let mut state = self.lock();
        if state.faults.ignored.contains(&why) {
            return Ok(());
        }
        let flushed: Vec<(usize, [u8; LINE_BYTES])> =
            state.dirty.iter().filter_map(|(line, held)| Some((*line, (*held)?))).collect();
        for (line, held) in flushed {
            let place = line * LINE_BYTES..(line + 1) * LINE_BYTES;
            state.durable[place.clone()].copy_from_slice(&held);
            if state.current[place] == held {
                state.dirty.remove(&line);
                state.ordered.remove(&line);
            } else {
                state.dirty.insert(line, None);
            }
            if let Some(Stores { words, flushed }) = state.ordered.get_mut(&line) {
                words.drain(..std::mem::take(flushed));
            }
        }
        Ok(())
    }

    fn reads_wait(&self) -> bool {
        false
    }

    fn written_bytes(&self) -> u64 {
        self.lock().written_bytes
    }

    fn name(&self) -> &'static str {
        "sim"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a loss of power may leave of an append of these.
    fn images(parts: &mut [IoSlice<'_>]) -> Vec<Vec<u8>> {
        let power = Power::new(u64::MAX);
        let region = SimRegion::new(8 * LINE_BYTES, power.clone(), Faults::default());
        region.append(LINE_BYTES as u64, parts).unwrap();
        assert_eq!(power.events(), 1);
        (0..100).map(|seed| region.crash_image(seed)).collect()
    }

    #[test]
    fn parts_are_one_event_and_are_torn_as_their_bytes_in_one_piece_are() {
        let bytes: Vec<u8> = (1..=200).collect();
        let whole = images(&mut [IoSlice::new(&bytes)]);
        let parts = [&bytes[..48], &bytes[48..51], &bytes[51..]];
        assert_eq!(images(&mut parts.map(IoSlice::new)), whole);
        let written = |image: &Vec<u8>| image.iter().filter(|byte| **byte != 0).count();
        assert!(whole.iter().any(|image| (1..bytes.len()).contains(&written(image))));
    }
}
