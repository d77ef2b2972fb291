//! The hot keys of a slot as a worker looks them up, for every request: key, owner, and the number
//! under which the worker counts its requests. And the same as words, which is how one worker tells
//! the others.
//!
//! A worker has a table of its own, read from the words when they have changed; in between it may
//! be one slot behind, which sends a request to the owner of the last slot and does no harm. It
//! knows no load, no key but its hash, and nothing of how words travel.

use crate::hot::mapping::HotKey;
use crate::hot::sketch::KeyHash;
use crate::units::WorkerId;
use alloc::vec;
use alloc::vec::Vec;

/// Most keys in a table.
pub const ROUTES_MAX: usize = 128;

/// Words before the keys: slot, thresholds.
const HEAD_WORDS: usize = 2;
const KEY_WORDS: usize = 2;

/// Words that a table of so many keys takes at most.
pub const fn words_max(keys_max: usize) -> usize {
    HEAD_WORDS + keys_max * KEY_WORDS
}

/// One hot key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Routed {
    /// Which.
    pub key: KeyHash,
    /// Whose it is in this slot.
    pub owner: WorkerId,
    /// Under which number its requests are counted.
    pub number: u16,
}

/// What holds for the slot, beside its keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SlotHead {
    /// Its number.
    pub slot: u64,
    /// Requests at one worker from which on a key is hot, where they are all its owner's.
    pub threshold: u16,
    /// The same, where they are spread.
    pub threshold_local: u16,
    /// Another key would find room.
    pub has_room: bool,
}

impl SlotHead {
    const fn word(self) -> u64 {
        let thresholds = self.threshold as u64 | (self.threshold_local as u64) << 16;
        thresholds | (self.has_room as u64) << 32
    }

    const fn of(slot: u64, word: u64) -> SlotHead {
        SlotHead {
            slot,
            threshold: word as u16,
            threshold_local: (word >> 16) as u16,
            has_room: word >> 32 != 0,
        }
    }
}

/// Write a table as words; `numbers` has one for each key.
pub fn encode(head: SlotHead, keys: &[HotKey], numbers: &[u16], words: &mut Vec<u64>) {
    words.clear();
    words.extend([head.slot, head.word()]);
    for (hot, number) in keys.iter().zip(numbers) {
        words.extend([hot.key.0, u64::from(hot.owner.0) | u64::from(*number) << 16]);
    }
}

/// No key lives here.
const EMPTY: u8 = u8::MAX;

const _: () = assert!(ROUTES_MAX <= EMPTY as usize);

/// The table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Routes {
    head: SlotHead,
    keys: Vec<Routed>,
    /// Places in `keys`.
    index: Vec<u8>,
}

impl Routes {
    /// An empty table with room for so many keys.
    pub fn new(keys_max: usize) -> Routes {
        assert!(keys_max <= ROUTES_MAX);
        let index = vec![EMPTY; (4 * keys_max).next_power_of_two().max(4)];
        Routes { head: SlotHead::default(), keys: Vec::with_capacity(keys_max), index }
    }

    /// Read it anew.
    pub fn decode(&mut self, words: &[u64]) {
        self.keys.clear();
        self.index.fill(EMPTY);
        let &[slot, head, ref keys @ ..] = words else { return };
        self.head = SlotHead::of(slot, head);
        let (keys, _) = keys.as_chunks::<KEY_WORDS>();
        for &[key, rest] in keys.iter().take(self.index.len() / 4) {
            let key = KeyHash(key);
            let mut place = self.first_place(key);
            while self.index[place] != EMPTY {
                place = (place + 1) & (self.index.len() - 1);
            }
            self.index[place] = self.keys.len() as u8;
            let owner = WorkerId(rest as u16);
            self.keys.push(Routed { key, owner, number: (rest >> 16) as u16 });
        }
    }

    /// The key's entry, if it is hot.
    #[inline]
    pub fn get(&self, key: KeyHash) -> Option<Routed> {
        let mut place = self.first_place(key);
        loop {
            // Beyond the last key there is none: `EMPTY` is no place either.
            let routed = self.keys.get(usize::from(self.index[place]))?;
            if routed.key == key {
                return Some(*routed);
            }
            place = (place + 1) & (self.index.len() - 1);
        }
    }

    /// What holds for the slot.
    pub fn head(&self) -> SlotHead {
        self.head
    }

    /// All keys.
    pub fn keys(&self) -> &[Routed] {
        &self.keys
    }

    fn first_place(&self, key: KeyHash) -> usize {
        // Any bits will do.
        (key.0 >> 16) as usize & (self.index.len() - 1)
    }
}
