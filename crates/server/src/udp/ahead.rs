//! Looking ahead in a burst of datagrams: the first keys of those to come are hashed together,
//! their buckets asked for together, then their items; so that their misses overlap instead of
//! being waited for one by one (MICA §4.4).
//!
//! A hash computed here is used when the key's turn comes. Keys are known by where they stand in
//! the input, so what is remembered is good for one burst only.

use laneway_store::{KeyHash, Store};
use laneway_wire::{Limits, Request, parse};

/// Keys looked ahead for at a time.
pub const KEYS_AHEAD: usize = 16;

/// Hashes of the keys to come.
pub struct Ahead {
    /// Addresses of the keys in the input, in the order of their turns.
    addresses: [usize; KEYS_AHEAD],
    hashes: [KeyHash; KEYS_AHEAD],
    known: usize,
    used: usize,
}

impl Default for Ahead {
    fn default() -> Self {
        Ahead { addresses: [0; KEYS_AHEAD], hashes: [KeyHash(0); KEYS_AHEAD], known: 0, used: 0 }
    }
}

impl Ahead {
    /// Another input: what was remembered is of no use.
    pub fn clear(&mut self) {
        (self.known, self.used) = (0, 0);
    }

    /// Look ahead over inputs that stand for themselves, the first request of each.
    pub fn look_at_each<'a>(
        &mut self,
        store: &Store,
        inputs: impl Iterator<Item = &'a [u8]>,
        limits: &Limits,
    ) {
        self.clear();
        let mut texts = [&[][..]; KEYS_AHEAD];
        let mut found = 0;
        for input in inputs {
            if found == KEYS_AHEAD {
                break;
            }
            if let Ok(Some(frame)) = parse(input, limits)
                && let Request::Get(mut get) = frame.request
                && let Some(key) = get.keys.next()
            {
                texts[found] = key;
                found += 1;
            }
        }
        for (at, key) in texts[..found].iter().enumerate() {
            let hash = store.hash(key);
            store.prefetch(hash);
            (self.addresses[at], self.hashes[at]) = (key.as_ptr() as usize, hash);
        }
        self.known = found;
        store.prefetch_items(&self.hashes[..found]);
    }

    /// The hash of a key whose turn has come.
    pub fn hash(&mut self, store: &Store, key: &[u8]) -> KeyHash {
        while self.used < self.known {
            let (address, hash) = (self.addresses[self.used], self.hashes[self.used]);
            self.used += 1;
            if address == key.as_ptr() as usize {
                return hash;
            }
        }
        store.hash(key)
    }
}
