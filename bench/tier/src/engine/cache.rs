//! Memory over the tier, as the server has it: Laneway's in-memory store holds copies of what was
//! read and written last. The other stores have caches of their own and the kernel's; the tier goes
//! round the page cache.
//!
//! The tier is the authority. A copy is never older than what the tier shows, because a copy with a
//! lower sequence never replaces one with a higher, and because whoever brings one in from the tier
//! holds the stripe of its key until it is there, as does whoever publishes a write.

use super::Result;
use laneway_store::{
    Config, GROUP, Got, Group, KeyHash, Mode, Moment, SMALL_RECORD_BYTES_MAX, Sought, Store,
};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard};

/// Nothing expires, so it is always the same second.
const NOW: Moment = Moment::from_seconds(1);
/// Locks that keys are spread over; far more than there are threads.
const STRIPES: usize = 4096;
/// More than a header and a key take.
const BESIDE_VALUE_BYTES: usize = 256;

/// Copies of items.
pub struct Cache {
    store: Arc<Store>,
    stripes: Vec<Mutex<()>>,
}

/// The right to change the copies of some keys.
pub struct Stripe<'a> {
    cache: &'a Cache,
    hash: KeyHash,
    _held: MutexGuard<'a, ()>,
}

impl Cache {
    /// With so much memory.
    pub fn new(megabytes: u64) -> Result<Cache> {
        let config =
            Config { memory_bytes: megabytes << 20, mode: Mode::Cache, ..Config::default() };
        let store = Store::new(config).map_err(|error| format!("--cache-mb: {error}"))?;
        Ok(Cache { store, stripes: (0..STRIPES).map(|_| Mutex::default()).collect() })
    }

    /// Copies an item over `out`, if it is here.
    pub fn get(&self, key: &[u8], out: &mut Vec<u8>) -> bool {
        out.clear();
        let hash = self.store.hash(key);
        matches!(self.store.get(hash, key, NOW, out, &mut |_, _| {}), Got::Copied(_))
    }

    /// Begins to read these items.
    pub fn seek(&self, keys: &[&[u8]]) -> Vec<Group> {
        let begun = |keys| {
            let mut group = Group::default();
            self.store.seek(&mut group, keys);
            group
        };
        keys.chunks(GROUP).map(begun).collect()
    }

    /// Whether the item of this number may be here, of those that are sought.
    pub fn may_have(&self, sought: &[Group], number: usize) -> bool {
        sought[number / GROUP].may_have(number % GROUP)
    }

    /// Appends the item of this number of those that are sought, which has this key, to `out`, if
    /// it is here; says where in it.
    pub fn append(
        &self,
        sought: &[Group],
        number: usize,
        key: &[u8],
        out: &mut Vec<u8>,
    ) -> Option<Range<usize>> {
        let (begin, asked) = (out.len(), (&sought[number / GROUP], number % GROUP, key));
        match self.store.get_sought(asked, NOW, u64::MAX, out, (0, &[]), |_, _| true) {
            Sought::Copied(_) => Some(begin..out.len()),
            Sought::Miss => None,
            Sought::Otherwise => {
                match self.store.get(asked.0.hash(number % GROUP), key, NOW, out, &mut |_, _| {}) {
                    Got::Copied(_) => Some(begin..out.len()),
                    _ => None,
                }
            }
        }
    }

    /// Waits for the key's stripe.
    pub fn stripe(&self, key: &[u8]) -> Stripe<'_> {
        let hash = self.store.hash(key);
        let held = self.stripes[hash.0 as usize % STRIPES].lock().expect("nobody panics inside");
        Stripe { cache: self, hash, _held: held }
    }
}

impl Stripe<'_> {
    /// Keeps a copy, unless there is a newer one. What does not fit is not kept.
    pub fn keep(&self, key: &[u8], value: &[u8], sequence: u64) {
        let store = &self.cache.store;
        let fits = value.len() + BESIDE_VALUE_BYTES <= SMALL_RECORD_BYTES_MAX;
        let draft = fits.then(|| {
            let mut draft = store.draft(key, 0, Moment::NEVER, value.len()).ok()?;
            draft.write(value).ok().map(|()| draft)
        });
        let mut entry = store.enter(self.hash, key, NOW);
        if entry.meta().is_some_and(|there| sequence < there.seq) {
            return;
        }
        match draft.flatten() {
            Some(draft) => {
                entry.publish(draft, Some(sequence));
            }
            None => entry.unlink(),
        }
    }

    /// Keeps no copy any more.
    pub fn forget(&self, key: &[u8]) {
        self.cache.store.enter(self.hash, key, NOW).unlink();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_older_copy_never_replaces_a_newer_one() {
        let cache = Cache::new(64).expect("memory");
        let mut out = Vec::new();
        assert!(!cache.get(b"key", &mut out));
        cache.stripe(b"key").keep(b"key", b"second", 2);
        cache.stripe(b"key").keep(b"key", b"first", 1);
        assert!(cache.get(b"key", &mut out));
        assert_eq!(out, b"second");
        cache.stripe(b"key").keep(b"key", &vec![3; SMALL_RECORD_BYTES_MAX], 3);
        assert!(!cache.get(b"key", &mut out), "what does not fit leaves no old copy either");
        cache.stripe(b"key").keep(b"key", b"fourth", 4);
        cache.stripe(b"key").forget(b"key");
        assert!(!cache.get(b"key", &mut out));
    }
}
