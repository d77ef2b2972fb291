//! Looking ahead in a burst: the keys of the next reads are hashed together, their buckets asked
//! for together, then their items; so that the misses of a pipeline or a multiget overlap instead
//! of being waited for one by one.
//!
//! A hash computed here is used when the key's turn comes. Keys are known by where they stand in
//! the input, so what is remembered is good for one input only.

use laneway_store::{KeyHash, Store};
use laneway_wire::{Keys, Limits, Request, parse};

/// Keys looked ahead for at a time.
const KEYS_AHEAD: usize = 16;

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

    /// Whether every key that was looked ahead for has had its turn.
    pub fn is_used_up(&self) -> bool {
        self.used == self.known
    }

    /// Look ahead over the requests at the front of `input`, as far as they are plain reads.
    pub fn look(&mut self, store: &Store, mut input: &[u8], limits: &Limits) {
        self.clear();
        let mut texts = [&[][..]; KEYS_AHEAD];
        let mut found = 0;
        while let Ok(Some(frame)) = parse(input, limits) {
            let Request::Get(get) = &frame.request else { break };
            for key in get.keys {
                if found == KEYS_AHEAD {
                    break;
                }
                texts[found] = key;
                found += 1;
            }
            input = &input[frame.head_bytes..];
            if found == KEYS_AHEAD || input.is_empty() {
                break;
            }
        }
        self.fetch(store, &texts[..found]);
    }

    /// Look ahead over the rest of a multiget.
    pub fn look_at_keys(&mut self, store: &Store, keys: Keys<'_>) {
        self.clear();
        let mut texts = [&[][..]; KEYS_AHEAD];
        let mut found = 0;
        for (place, key) in texts.iter_mut().zip(keys) {
            *place = key;
            found += 1;
        }
        self.fetch(store, &texts[..found]);
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
        self.fetch(store, &texts[..found]);
    }

    fn fetch(&mut self, store: &Store, keys: &[&[u8]]) {
        for (at, key) in keys.iter().enumerate() {
            let hash = store.hash(key);
            store.prefetch(hash);
            (self.addresses[at], self.hashes[at]) = (key.as_ptr() as usize, hash);
        }
        self.known = keys.len();
        store.prefetch_items(&self.hashes[..self.known]);
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
