//! Looking ahead in a burst of datagrams: the first keys of those to come are hashed together,
//! their buckets asked for together, then their items; so that their misses overlap instead of
//! being waited for one by one (MICA §4.4).
//!
//! A hash computed here is used when the key's turn comes. Keys are known by where they stand in
//! the input, so what is remembered is good for one burst only. Nothing is parsed here: what looks
//! like a key is asked for, and whoever serves the request finds out whether it was one.

use laneway_store::{KeyHash, Store};

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
    pub fn look_at_each<'a>(&mut self, store: &Store, inputs: impl Iterator<Item = &'a [u8]>) {
        self.clear();
        let mut texts = [&[][..]; KEYS_AHEAD];
        let mut found = 0;
        for key in inputs.filter_map(first_key).take(KEYS_AHEAD) {
            texts[found] = key;
            found += 1;
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

/// The first key of a `get`, `gets` or `mg`, if the input begins with one of them.
fn first_key(input: &[u8]) -> Option<&[u8]> {
    let (verb, keys) = input.split_at(input.iter().take(5).position(|&byte| byte == b' ')?);
    let keys = &keys[1..];
    let end = keys.iter().position(|byte| byte.is_ascii_whitespace())?;
    (matches!(verb, b"get" | b"gets" | b"mg") && end > 0).then_some(&keys[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_key_of_what_looks_one_up_is_found() {
        for (input, key) in [
            (&b"get a\r\n"[..], Some(&b"a"[..])),
            (b"gets key other\r\n", Some(b"key")),
            (b"mg key v\r\n", Some(b"key")),
            (b"get  a\r\n", None),
            (b"get ", None),
            (b"get a", None),
            (b"gat 0 a\r\n", None),
            (b"get\r\n", None),
            (b"getss a\r\n", None),
            (b"", None),
        ] {
            assert_eq!(first_key(input), key, "{:?}", input.escape_ascii().to_string());
        }
    }

    #[test]
    fn a_hash_is_that_of_its_key_whatever_was_looked_at_before() {
        let store = Store::new(laneway_store::Config::default()).expect("memory for a store");
        let inputs =
            [&b"get one\r\n"[..], b"set x 0 0 1\r\n", b"get two three\r\n", b"get one\r\n"];
        let mut ahead = Ahead::default();
        ahead.look_at_each(&store, inputs.into_iter());
        let keys =
            [&inputs[0][4..7], &inputs[2][4..7], &inputs[2][8..13], b"other", &inputs[3][4..7]];
        for key in keys {
            assert_eq!(
                ahead.hash(&store, key),
                store.hash(key),
                "{:?}",
                key.escape_ascii().to_string()
            );
        }
    }
}
