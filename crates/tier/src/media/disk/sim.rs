//! A disk that lies in memory and fails by seed: its cache is volatile, writes are cut short, reads
//! and writes fail, space runs out.
//!
//! Power fails after a number of events ([`Power`]); from then on everything fails. What the disk
//! then holds is, sector by sector, what the last sync made durable or any one of the versions
//! written since: every state that a real disk with a write-back cache may be left in. All of it is
//! drawn from a seed, so a run repeats exactly.

use super::{Barrier, Disk};
use crate::types::BLOCK_BYTES;
use laneway_sync::meter;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard};

/// What a disk writes in one piece.
const SECTOR_BYTES: usize = 512;

/// A small generator of numbers (SplitMix64), for simulated media only.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// Repeats from `seed`.
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// Any number.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`, which is not 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.number() % bound
    }

    /// True in one of `of` cases.
    pub fn one_in(&mut self, of: u64) -> bool {
        self.below(of) == 0
    }
}

/// The supply that all simulated media of one machine hang on: it counts their events and fails
/// after a given number.
#[derive(Debug)]
pub struct Power {
    state: Mutex<PowerState>,
}

#[derive(Debug, Clone, Copy)]
struct PowerState {
    events: u64,
    fails_at: u64,
}

impl Power {
    /// Fails at the event of this number; `u64::MAX` never does.
    pub fn new(fails_at: u64) -> Arc<Power> {
        Arc::new(Power { state: Mutex::new(PowerState { events: 0, fails_at }) })
    }

    /// Events so far.
    pub fn events(&self) -> u64 {
        self.state.lock().expect("nobody panics inside").events
    }

    /// Whether it has failed.
    pub fn is_off(&self) -> bool {
        let state = self.state.lock().expect("nobody panics inside");
        state.fails_at <= state.events
    }

    /// On again, until the event of this number. The media keep what their caches hold: use it for
    /// a process that died, and new media made from a crash image for a loss of power.
    pub fn restore(&self, fails_at: u64) {
        *self.state.lock().expect("nobody panics inside") = PowerState { events: 0, fails_at };
    }

    /// Counts one event.
    pub(crate) fn event(&self) -> io::Result<()> {
        let mut state = self.state.lock().expect("nobody panics inside");
        if state.fails_at <= state.events {
            return Err(io::Error::other("the power is off"));
        }
        state.events += 1;
        Ok(())
    }
}

/// How a disk misbehaves while the power is on.
#[derive(Debug, Clone, Default)]
pub struct Faults {
    /// One in so many writes is cut short; 0 for none.
    pub short_write_one_in: u64,
    /// One in so many reads fails; 0 for none.
    pub read_error_one_in: u64,
    /// One in so many reads gives a bit that was not written so; 0 for none.
    pub flip_read_one_in: u64,
    /// One in so many writes fails; 0 for none.
    pub write_error_one_in: u64,
    /// One in so many syncs fails, and what it should have made durable may be lost; 0 for none.
    pub sync_error_one_in: u64,
    /// Writes beyond this many blocks of distinct places fail for want of space; 0 for no limit.
    pub space_blocks: u64,
    /// One in so many blocks that were written and not synced when the power failed holds anything,
    /// whatever was in it before: as of a device that tears what it writes over. 0 for none.
    pub torn_block_one_in: u64,
    /// Blocks that cannot be read.
    pub unreadable: BTreeSet<u64>,
    /// Barriers that report success and do nothing: as if the line that asks for them were missing.
    pub ignored: BTreeSet<Barrier>,
}

struct State {
    durable: Vec<u8>,
    /// Sectors written since the last sync, each with all its versions.
    cached: BTreeMap<usize, Vec<Vec<u8>>>,
    random: Random,
    faults: Faults,
    touched: BTreeSet<u64>,
}

impl State {
    /// Makes of whole sectors that are durable what is there now.
    fn lay_cached_over(&self, at: usize, bytes: &mut [u8]) {
        let first = at / SECTOR_BYTES;
        let sectors = first..first + bytes.len().div_ceil(SECTOR_BYTES);
        for (sector, versions) in self.cached.range(sectors) {
            if let Some(newest) = versions.last() {
                bytes[(sector - first) * SECTOR_BYTES..][..SECTOR_BYTES].copy_from_slice(newest);
            }
        }
    }
}

/// The disk.
pub struct SimDisk {
    state: Mutex<State>,
    power: Arc<Power>,
    bytes: usize,
    /// Lies behind the same cache.
    neighbour: Option<Arc<SimDisk>>,
}

impl SimDisk {
    /// Zeros.
    pub fn new(bytes: usize, power: Arc<Power>, seed: u64, faults: Faults) -> SimDisk {
        SimDisk::from_image(vec![0; bytes], power, seed, faults)
    }

    /// What another disk held.
    pub fn from_image(image: Vec<u8>, power: Arc<Power>, seed: u64, faults: Faults) -> SimDisk {
        let bytes = image.len();
        let random = Random::new(seed);
        let cached = BTreeMap::new();
        let state = State { durable: image, cached, random, faults, touched: BTreeSet::new() };
        SimDisk { state: Mutex::new(state), power, bytes, neighbour: None }
    }

    /// Puts it behind one cache with another, of which a sync empties all.
    pub fn beside(self, neighbour: &Arc<SimDisk>) -> SimDisk {
        SimDisk { neighbour: Some(neighbour.clone()), ..self }
    }

    fn empty_cache(&self) {
        let mut state = self.lock();
        let cached = std::mem::take(&mut state.cached);
        for (sector, versions) in cached {
            if let Some(last) = versions.last() {
                state.durable[sector * SECTOR_BYTES..][..SECTOR_BYTES].copy_from_slice(last);
            }
        }
    }

    /// One of the states that a loss of power may leave, drawn by `seed`.
    pub fn crash_image(&self, seed: u64) -> Vec<u8> {
        let state = self.lock();
        let mut random = Random::new(seed);
        let mut image = state.durable.clone();
        // Sometimes nothing or everything of the cache, so that both ends are met often.
        let mood = random.below(8);
        for (sector, versions) in &state.cached {
            let chosen = match mood {
                0 => 0,
                1 => versions.len(),
                _ => random.below(versions.len() as u64 + 1) as usize,
            };
            if 0 < chosen {
                let at = sector * SECTOR_BYTES;
                image[at..at + SECTOR_BYTES].copy_from_slice(&versions[chosen - 1]);
            }
        }
        let one_in = state.faults.torn_block_one_in;
        if one_in != 0 {
            let per_block = BLOCK_BYTES / SECTOR_BYTES;
            let blocks: BTreeSet<usize> = state.cached.keys().map(|s| s / per_block).collect();
            for block in blocks {
                if !random.one_in(one_in) {
                    continue;
                }
                let bytes = &mut image[block * BLOCK_BYTES..][..BLOCK_BYTES];
                bytes.iter_mut().for_each(|byte| *byte = random.number() as u8);
            }
        }
        image
    }

    /// What is there now: as after a process dies and the machine lives.
    pub fn image(&self) -> Vec<u8> {
        self.part(0..self.bytes)
    }

    /// The same of a part: whole sectors.
    pub fn part(&self, bytes: Range<usize>) -> Vec<u8> {
        let state = self.lock();
        let mut part = state.durable[bytes.clone()].to_vec();
        state.lay_cached_over(bytes.start, &mut part);
        part
    }

    /// A bit is another one from now on, whatever the power does; the same again takes it back, if
    /// nothing was written there.
    pub fn flip_bit(&self, at: u64, bit: u8) {
        let (sector, offset) = (at as usize / SECTOR_BYTES, at as usize % SECTOR_BYTES);
        let mut state = self.lock();
        state.durable[at as usize] ^= 1 << bit;
        let cached = state.cached.get_mut(&sector).into_iter().flatten();
        cached.for_each(|version| version[offset] ^= 1 << bit);
    }

    /// Changes what goes wrong from now on.
    pub fn set_faults(&self, faults: Faults) {
        self.lock().faults = faults;
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nobody panics inside")
    }

    fn check(&self, at: u64, bytes: usize, address: usize) {
        assert_eq!(at % BLOCK_BYTES as u64, 0, "offset {at} is inside a block");
        assert_eq!(bytes % BLOCK_BYTES, 0, "{bytes} bytes are no whole blocks");
        assert_eq!(address % BLOCK_BYTES, 0, "the buffer is not aligned");
        assert!(at as usize + bytes <= self.bytes, "{at}+{bytes} is beyond the end");
    }
}

impl Disk for SimDisk {
    fn bytes(&self) -> u64 {
        self.bytes as u64
    }

    fn read_some(&self, at: u64, into: &mut [u8]) -> io::Result<usize> {
        meter::wait();
        self.check(at, into.len(), into.as_ptr().addr());
        if self.power.is_off() {
            return Err(io::Error::other("the power is off"));
        }
        let mut state = self.lock();
        let one_in = state.faults.read_error_one_in;
        if one_in != 0 && state.random.one_in(one_in) {
            return Err(io::Error::other("simulated read error"));
        }
        let first = at / BLOCK_BYTES as u64;
        let blocks = first..first + (into.len() / BLOCK_BYTES) as u64;
        if state.faults.unreadable.range(blocks).next().is_some() {
            return Err(io::Error::other("simulated block that cannot be read"));
        }
        into.copy_from_slice(&state.durable[at as usize..][..into.len()]);
        state.lay_cached_over(at as usize, into);
        let one_in = state.faults.flip_read_one_in;
        if one_in != 0 && state.random.one_in(one_in) {
            let bit = state.random.below(8 * into.len() as u64) as usize;
            into[bit / 8] ^= 1 << (bit % 8);
        }
        Ok(into.len())
    }

    fn write_some(&self, at: u64, from: &[u8]) -> io::Result<usize> {
        meter::wait();
        self.check(at, from.len(), from.as_ptr().addr());
        self.power.event()?;
        let mut state = self.lock();
        let Faults { write_error_one_in, short_write_one_in, space_blocks, .. } = state.faults;
        if write_error_one_in != 0 && state.random.one_in(write_error_one_in) {
            return Err(io::Error::other("simulated write error"));
        }
        let mut bytes = from.len();
        if short_write_one_in != 0 && state.random.one_in(short_write_one_in) {
            bytes = BLOCK_BYTES * (1 + state.random.below((bytes / BLOCK_BYTES) as u64) as usize);
        }
        for block in 0..(bytes / BLOCK_BYTES) as u64 {
            state.touched.insert(at / BLOCK_BYTES as u64 + block);
        }
        if space_blocks != 0 && space_blocks < state.touched.len() as u64 {
            return Err(io::ErrorKind::StorageFull.into());
        }
        for (index, piece) in from[..bytes].chunks(SECTOR_BYTES).enumerate() {
            let sector = at as usize / SECTOR_BYTES + index;
            state.cached.entry(sector).or_default().push(piece.to_vec());
        }
        Ok(bytes)
    }

    fn sync(&self, why: Barrier) -> io::Result<()> {
        meter::wait();
        self.power.event()?;
        let mut state = self.lock();
        if state.faults.ignored.contains(&why) {
            return Ok(());
        }
        let one_in = state.faults.sync_error_one_in;
        if one_in != 0 && state.random.one_in(one_in) {
            return Err(io::Error::other("simulated failure of a flush"));
        }
        drop(state);
        self.empty_cache();
        if let Some(neighbour) = &self.neighbour {
            neighbour.empty_cache();
        }
        Ok(())
    }

    fn is_synced_by(&self, other: &dyn Disk, _at: u64, _bytes: u64) -> bool {
        other.cache() == Some(std::ptr::from_ref(self).addr() as u64)
    }

    fn cache(&self) -> Option<u64> {
        // Known by the disk that has it as its neighbour.
        self.neighbour.as_ref().map(|neighbour| Arc::as_ptr(neighbour).addr() as u64)
    }
}
