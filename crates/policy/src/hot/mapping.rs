//! Which worker each hot key belongs to in the present timeslot (KeySched §2 "Key Scheduler": the
//! mapping table), and how often it was asked for.
//!
//! It is looked up for every request, so it is a small open-addressed table at most a quarter full;
//! a handful of keys live in it, in an array beside it. It knows no load and no threshold.

use crate::hot::sketch::KeyHash;
use crate::units::WorkerId;
use alloc::vec;
use alloc::vec::Vec;

/// How sure it is that a key is hot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Standing {
    /// All its requests were counted.
    #[default]
    Certain,
    /// One worker's share of them was, and stands for all; from now on all are.
    Estimated,
    /// This is the first whole slot in which all are counted: it decides.
    OnTrial,
}

/// One hot key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HotKey {
    /// Which.
    pub key: KeyHash,
    /// To whom it belongs in this slot.
    pub owner: WorkerId,
    /// Requests for it in this slot since it was found.
    pub requests: u32,
    /// Of these, the ones that went to its owner.
    pub owned: u32,
    /// Requests expected for its owner: those of the last slot, where it was known then.
    pub expected: u32,
    /// Times that it has gone to another owner since it was found.
    pub moves: u32,
    /// How sure it is.
    pub standing: Standing,
}

/// No key lives here.
const EMPTY: u16 = u16::MAX;

/// The table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mapping {
    keys: Vec<HotKey>,
    keys_max: usize,
    /// Places in `keys`.
    index: Vec<u16>,
}

impl Mapping {
    /// Room for so many keys.
    pub fn new(keys_max: usize) -> Self {
        assert!(keys_max < usize::from(EMPTY));
        let index = vec![EMPTY; (4 * keys_max).next_power_of_two().max(4)];
        Mapping { keys: Vec::with_capacity(keys_max), keys_max, index }
    }

    /// The key's entry.
    #[inline]
    pub fn get_mut(&mut self, key: KeyHash) -> Option<&mut HotKey> {
        let mut place = self.first_place(key);
        loop {
            let index = self.index[place];
            if index == EMPTY {
                return None;
            }
            if self.keys[usize::from(index)].key == key {
                return Some(&mut self.keys[usize::from(index)]);
            }
            place = (place + 1) & (self.index.len() - 1);
        }
    }

    /// Add a key that is not there. Whether there was room.
    pub fn insert(&mut self, key: HotKey) -> bool {
        if self.keys.len() == self.keys_max {
            return false;
        }
        let mut place = self.first_place(key.key);
        while self.index[place] != EMPTY {
            place = (place + 1) & (self.index.len() - 1);
        }
        self.index[place] = self.keys.len() as u16;
        self.keys.push(key);
        true
    }

    /// The keys, for who counts their requests elsewhere and now tells them.
    pub fn keys_mut(&mut self) -> &mut [HotKey] {
        &mut self.keys
    }

    /// The keys, in the order they came.
    pub fn keys(&self) -> &[HotKey] {
        &self.keys
    }

    /// Whether another key would find room.
    pub fn has_room(&self) -> bool {
        self.keys.len() < self.keys_max
    }

    /// Take all keys out.
    pub fn clear(&mut self) {
        self.keys.clear();
        self.index.fill(EMPTY);
    }

    fn first_place(&self, key: KeyHash) -> usize {
        // The high bits: the low ones pick the sketch's cell and the worker.
        (key.0 >> 40) as usize & (self.index.len() - 1)
    }
}
