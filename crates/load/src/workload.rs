//! What is asked for: keys, their sizes, their popularity, and the mix of reads and writes
//! (Minos §5, after the ETC pool of Atikoglu et al.).
//!
//! Sizes are trimodal: tiny 1–13 B, small 14–1400 B, large 1500 B up to a maximum, uniform within a
//! class. 40 % of the keys that are not large are tiny. Tiny and small keys are drawn by a Zipf
//! distribution, large ones uniformly. The size of a key is a pure function of (seed, key), so
//! nobody stores it and every reply can be checked. It departs from the paper in what it scales:
//! fewer keys by default. A size here is that of the value; the paper says "item" and leaves open
//! whether the 8 key bytes are in it. Other mixes stand in [`named`], with where each comes from.
//! It knows no clock, socket or dialect.

pub mod keys;
pub mod named;
pub mod sizes;
pub mod twitter;

use crate::arguments::within;
use crate::random::{Random, mix_pair};
use crate::zipf::Zipf;
use keys::{KeyName, KeySizes};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

pub use keys::KEY_BYTES;
pub use sizes::{
    LARGE_BYTES_MIN, SMALL_BYTES_MAX, Sizes, TINY_BYTES_MAX, TINY_SHARE, VALUE_BYTES_MAX,
};

/// Number of a key, `0..keys`. Also its rank in popularity where it is not large.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key(pub u32);

/// Which of the two lanes a request belongs to, by the workload's own word; the server may draw
/// its line elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Class {
    /// Tiny and small values.
    Small,
    /// Values of [`LARGE_BYTES_MIN`] and more.
    Large,
}

/// What a request does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Operation {
    /// Reads a value.
    Get,
    /// Writes one.
    Set,
    /// Removes one.
    Delete,
}

/// A request before it has a time or a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ask {
    /// The key.
    pub key: Key,
    /// Read, write or removal.
    pub operation: Operation,
    /// Keys of a GET; all but the first follow from the request ([`Workload::keys_of`]).
    pub keys: u16,
}

impl Ask {
    /// Of one key.
    pub const fn one(key: Key, operation: Operation) -> Self {
        Ask { key, operation, keys: 1 }
    }
}

/// In which order keys are asked for (Cooper et al., "Benchmarking cloud serving systems with
/// YCSB", 2010).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pattern {
    /// Each by its popularity, whatever came before.
    #[default]
    Popular,
    /// What is no GET writes a new key, and the newest keys are the most popular (YCSB D).
    Latest,
    /// What is no GET is a GET and a SET of one key after it (YCSB F).
    ReadModifyWrite,
    /// A GET is of 1 to `keys_per_get` keys with consecutive numbers; what is none writes a new key
    /// (YCSB E, whose scans memcached's protocol lacks).
    Scan,
}

/// The parameters of a workload.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WorkloadOptions {
    /// Keys in all, the large ones included.
    pub keys: u64,
    /// Large keys: the last ones.
    pub keys_large: u64,
    /// Percentage of requests that go to a large key (the paper's p_L).
    pub large_percent: f64,
    /// How values are sized.
    pub sizes: Sizes,
    /// Share of requests that read, 0 to 1.
    pub get_share: f64,
    /// Share of requests that remove a key, any with the same chance, 0 to 1; the rest write.
    pub delete_share: f64,
    /// Exponent of the popularity of tiny and small keys.
    pub zipf_exponent: f64,
    /// In which order.
    pub pattern: Pattern,
    /// Keys of a GET; the most there are in a scan.
    pub keys_per_get: u16,
    /// How long keys are.
    pub key_sizes: KeySizes,
    /// Names begin with that of this number: workloads that share a server and no keys.
    pub first_key: u32,
    /// Everything random follows from it.
    pub seed: u64,
}

impl Default for WorkloadOptions {
    /// The paper's default workload with 1/160 of its keys: about 44 MB of small values and 25 MB
    /// of large ones.
    fn default() -> Self {
        WorkloadOptions {
            keys: 100_000,
            keys_large: 100,
            large_percent: 0.125,
            sizes: Sizes::Etc { large_bytes_max: 500_000 },
            get_share: 0.95,
            delete_share: 0.0,
            zipf_exponent: 0.99,
            pattern: Pattern::Popular,
            keys_per_get: 1,
            key_sizes: KeySizes::default(),
            first_key: 0,
            seed: 1,
        }
    }
}

impl WorkloadOptions {
    /// The same with everything at its default that does not say which items there are: what is
    /// equal has been filled by the same prefill.
    pub fn data(&self) -> WorkloadOptions {
        WorkloadOptions {
            keys: self.keys,
            keys_large: self.keys_large,
            sizes: self.sizes,
            key_sizes: self.key_sizes,
            first_key: self.first_key,
            seed: self.seed,
            ..WorkloadOptions::default()
        }
    }
}

/// An item whose sizes are listed: one of a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Item {
    /// Bytes of its key.
    pub key_bytes: u8,
    /// Bytes of its value.
    pub value_bytes: u32,
    /// Seconds that it lives, 0 for ever.
    pub ttl_s: u32,
}

/// What a stream of requests remembers of those before.
#[derive(Debug, Clone, Default)]
pub struct Draws {
    /// Keys written anew.
    inserted: u32,
    /// The key that was read to be written.
    modified: Option<Key>,
}

/// A workload, ready to be drawn from.
#[derive(Debug, Clone, PartialEq)]
pub struct Workload {
    options: WorkloadOptions,
    popularity: Option<Zipf>,
    keys_small: u64,
    large_share: f64,
    /// Every key's sizes, where they follow from nothing else.
    items: Option<Arc<[Item]>>,
}

impl Workload {
    /// Checks the parameters; the error names the flag, the value, the limit and the way out.
    pub fn new(options: WorkloadOptions) -> Result<Self, String> {
        check(&options)?;
        let keys_large = if options.sizes.has_large_keys() { options.keys_large } else { 0 };
        let keys_small = options.keys - keys_large;
        let large_share = match (keys_large, keys_small) {
            (0, _) => 0.0,
            (_, 0) => 1.0,
            _ => options.large_percent / 100.0,
        };
        let popularity = (keys_small > 0).then(|| Zipf::new(keys_small, options.zipf_exponent));
        Ok(Workload { options, popularity, keys_small, large_share, items: None })
    }

    /// The items of a trace, which says itself what is asked of them and when.
    pub fn of_items(items: Vec<Item>, seed: u64) -> Result<Self, String> {
        let workload = Workload::new(WorkloadOptions {
            keys: items.len() as u64,
            keys_large: 0,
            large_percent: 0.0,
            sizes: Sizes::Listed,
            seed,
            ..WorkloadOptions::default()
        })?;
        Ok(Workload { items: Some(items.into()), ..workload })
    }

    /// Seconds that a value of `key` lives, 0 for ever.
    pub fn ttl_s(&self, key: Key) -> u32 {
        self.item(key).map_or(0, |item| item.ttl_s)
    }

    fn item(&self, key: Key) -> Option<&Item> {
        self.items.as_ref().map(|items| &items[key.0 as usize])
    }

    /// The parameters.
    pub fn options(&self) -> &WorkloadOptions {
        &self.options
    }

    /// Keys in all.
    pub fn keys(&self) -> u64 {
        self.options.keys
    }

    /// Draws the next request of a stream that has `draws` behind it.
    pub fn draw(&self, random: &mut Random, draws: &mut Draws) -> Ask {
        if let Some(key) = draws.modified.take() {
            return Ask::one(key, Operation::Set);
        }
        let number = match &self.popularity {
            Some(popularity) if !random.chance(self.large_share) => popularity.rank(random),
            _ => self.keys_small + random.below(self.options.keys - self.keys_small),
        };
        let key = Key(number as u32);
        let draw = random.unit();
        if draw < self.options.get_share {
            return self.get(key, random, draws);
        }
        if draw < self.options.get_share + self.options.delete_share {
            let key = Key(random.below(self.options.keys) as u32);
            return Ask::one(key, Operation::Delete);
        }
        match self.options.pattern {
            Pattern::Popular => Ask::one(key, Operation::Set),
            Pattern::ReadModifyWrite => {
                draws.modified = Some(key);
                Ask::one(key, Operation::Get)
            }
            Pattern::Latest | Pattern::Scan => {
                draws.inserted += 1;
                Ask::one(Key(self.options.keys as u32 + draws.inserted - 1), Operation::Set)
            }
        }
    }

    fn get(&self, key: Key, random: &mut Random, draws: &Draws) -> Ask {
        let WorkloadOptions { keys, keys_per_get, .. } = self.options;
        let operation = Operation::Get;
        match self.options.pattern {
            Pattern::Latest => {
                let newest = keys as u32 + draws.inserted - 1;
                Ask { key: Key(newest - key.0), operation, keys: keys_per_get }
            }
            Pattern::Scan => {
                let wanted = 1 + random.below(u64::from(keys_per_get)) as u16;
                let last_start = keys as u32 - u32::from(wanted);
                Ask { key: Key(key.0.min(last_start)), operation, keys: wanted }
            }
            _ => Ask { key, operation, keys: keys_per_get },
        }
    }

    /// The keys of a GET of `keys` keys that begins with `first`: consecutive ones of a scan, else
    /// each drawn by its popularity from what `version` decides.
    pub fn keys_of(&self, first: Key, keys: u16, version: u32) -> impl Iterator<Item = Key> + '_ {
        let mut random = Random::stream(self.options.seed ^ MULTIGET_SALT, u64::from(version));
        (0..keys).map(move |number| match (&self.popularity, number) {
            (_, 0) => first,
            (Some(popularity), _) if self.options.pattern != Pattern::Scan => {
                Key(popularity.rank(&mut random) as u32)
            }
            _ => Key(first.0 + u32::from(number)),
        })
    }

    /// Bytes of the value of `key`.
    pub fn value_bytes(&self, key: Key) -> u64 {
        if let Some(item) = self.item(key) {
            return item.value_bytes.into();
        }
        let word = mix_pair(self.options.seed, u64::from(key.0));
        self.options.sizes.value_bytes(word, u64::from(key.0) >= self.keys_small)
    }

    /// The class of `key`.
    pub fn class(&self, key: Key) -> Class {
        let large = match self.options.sizes.has_large_keys() {
            true => u64::from(key.0) >= self.keys_small,
            false => self.value_bytes(key) >= LARGE_BYTES_MIN,
        };
        if large { Class::Large } else { Class::Small }
    }

    /// The key's name: eight hexadecimal digits of a permutation of its number, so that popular
    /// keys do not stand side by side, and as much behind them as the key is long.
    pub fn key_name(&self, key: Key) -> KeyName {
        let WorkloadOptions { seed, first_key, key_sizes, .. } = self.options;
        let number = key.0.wrapping_add(first_key);
        let bytes = match self.item(key) {
            Some(item) => item.key_bytes.into(),
            None => key_sizes.bytes(seed, number),
        };
        KeyName::new(seed, number, bytes)
    }
}

const MULTIGET_SALT: u64 = u64::from_le_bytes(*b"multiget");
/// Most keys of a GET: memcached takes lines of 2 KB only before it looks for a `get`.
const KEYS_PER_GET_MAX: u64 = 1_000;

fn check(options: &WorkloadOptions) -> Result<(), String> {
    within("keys", options.keys, 1..=u32::MAX.into())?;
    within("get-share", options.get_share, 0.0..=1.0)?;
    // A little above 1 is what remains of shares that were published with three digits.
    if !(0.0..=1.0 + 1e-9 - options.get_share).contains(&options.delete_share) {
        return Err(format!(
            "--delete-share {}: must be in 0..=1 together with --get-share ({})",
            options.delete_share, options.get_share
        ));
    }
    within("zipf", options.zipf_exponent, 0.0..=10.0)?;
    let per_get = options.keys_per_get;
    within("keys-per-get", u64::from(per_get), 1..=KEYS_PER_GET_MAX.min(options.keys))?;
    let inserts = matches!(options.pattern, Pattern::Latest | Pattern::Scan);
    if inserts && options.sizes.has_large_keys() {
        return Err("--workload: one that writes new keys has sizes by distribution; give \
                    --value-bytes"
            .into());
    }
    if options.pattern == Pattern::Latest && per_get > 1 {
        return Err(format!("--keys-per-get {per_get}: the newest are asked for one by one"));
    }
    if inserts && options.keys > u64::from(u32::MAX) / 2 {
        return Err(format!("--keys {}: leaves no numbers for new ones", options.keys));
    }
    options.key_sizes.check()?;
    options.sizes.check()?;
    if !options.sizes.has_large_keys() {
        return Ok(());
    }
    if options.keys_large > options.keys {
        return Err(format!(
            "--keys-large {}: must be at most --keys ({}), which counts them too",
            options.keys_large, options.keys
        ));
    }
    within("p-large", options.large_percent, 0.0..=100.0)?;
    if options.large_percent > 0.0 && options.keys_large == 0 {
        return Err(format!(
            "--p-large {}: there is no large key to ask for; give --keys-large or --p-large 0",
            options.large_percent
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
