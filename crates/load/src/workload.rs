//! What is asked for: keys, their sizes, their popularity, and the mix of reads and writes
//! (Minos §5, after the ETC pool of Atikoglu et al.).
//!
//! Sizes are trimodal: tiny 1–13 B, small 14–1400 B, large 1500 B up to a maximum, uniform within a
//! class. 40 % of the keys that are not large are tiny. Tiny and small keys are drawn by a Zipf
//! distribution, large ones uniformly. The size of a key is a pure function of (seed, key), so
//! nobody stores it and every reply can be checked. Departs from the paper in what it scales: fewer
//! keys by default. A size here is that of the value; the paper says "item" and leaves open whether
//! the 8 key bytes are in it. Knows no clock, socket or dialect.

use crate::random::{Random, mix, mix_pair, scale};
use crate::zipf::Zipf;
use serde::{Deserialize, Serialize};

/// Largest tiny value, in bytes.
pub const TINY_BYTES_MAX: u64 = 13;
/// Largest small value, in bytes.
pub const SMALL_BYTES_MAX: u64 = 1_400;
/// Smallest large value, in bytes.
pub const LARGE_BYTES_MIN: u64 = 1_500;
/// Share of tiny keys among those that are not large.
pub const TINY_SHARE: f64 = 0.4;
/// Every key is this long.
pub const KEY_BYTES: usize = 8;

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
}

/// A request before it has a time or a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ask {
    /// The key.
    pub key: Key,
    /// Read or write.
    pub operation: Operation,
}

/// How values are sized.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Sizes {
    /// The trimodal mix.
    Etc {
        /// Largest large value, in bytes (the paper's s_L).
        large_bytes_max: u64,
    },
    /// All values alike.
    Fixed {
        /// Bytes of every value.
        value_bytes: u64,
    },
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
    /// Exponent of the popularity of tiny and small keys.
    pub zipf_exponent: f64,
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
            zipf_exponent: 0.99,
            seed: 1,
        }
    }
}

/// A workload, ready to be drawn from.
#[derive(Debug, Clone)]
pub struct Workload {
    options: WorkloadOptions,
    popularity: Option<Zipf>,
    keys_small: u64,
    large_share: f64,
}

impl Workload {
    /// Checks the parameters; the error names the flag, the value, the limit and the way out.
    pub fn new(options: WorkloadOptions) -> Result<Self, String> {
        check(&options)?;
        let keys_large = match options.sizes {
            Sizes::Etc { .. } => options.keys_large,
            Sizes::Fixed { .. } => 0,
        };
        let keys_small = options.keys - keys_large;
        let large_share = match (keys_large, keys_small) {
            (0, _) => 0.0,
            (_, 0) => 1.0,
            _ => options.large_percent / 100.0,
        };
        let popularity = (keys_small > 0).then(|| Zipf::new(keys_small, options.zipf_exponent));
        Ok(Workload { options, popularity, keys_small, large_share })
    }

    /// The parameters.
    pub fn options(&self) -> &WorkloadOptions {
        &self.options
    }

    /// Keys in all.
    pub fn keys(&self) -> u64 {
        self.options.keys
    }

    /// Draws the next request.
    pub fn draw(&self, random: &mut Random) -> Ask {
        let key = match &self.popularity {
            Some(popularity) if !random.chance(self.large_share) => popularity.rank(random),
            _ => self.keys_small + random.below(self.options.keys - self.keys_small),
        };
        let operation =
            if random.chance(self.options.get_share) { Operation::Get } else { Operation::Set };
        Ask { key: Key(key as u32), operation }
    }

    /// Bytes of the value of `key`.
    pub fn value_bytes(&self, key: Key) -> u64 {
        let large_bytes_max = match self.options.sizes {
            Sizes::Fixed { value_bytes } => return value_bytes,
            Sizes::Etc { large_bytes_max } => large_bytes_max,
        };
        let word = mix_pair(self.options.seed, u64::from(key.0));
        let within = mix(word);
        let (low, high) = if u64::from(key.0) >= self.keys_small {
            (LARGE_BYTES_MIN, large_bytes_max)
        } else if (word as f64) < TINY_SHARE * u64::MAX as f64 {
            (1, TINY_BYTES_MAX)
        } else {
            (TINY_BYTES_MAX + 1, SMALL_BYTES_MAX)
        };
        low + scale(within, high - low + 1)
    }

    /// The class of `key`.
    pub fn class(&self, key: Key) -> Class {
        let large = match self.options.sizes {
            Sizes::Fixed { value_bytes } => value_bytes >= LARGE_BYTES_MIN,
            Sizes::Etc { .. } => u64::from(key.0) >= self.keys_small,
        };
        if large { Class::Large } else { Class::Small }
    }

    /// The key's name: eight hexadecimal digits of a permutation of its number, so that popular
    /// keys do not stand side by side.
    pub fn key_name(&self, key: Key) -> [u8; KEY_BYTES] {
        key_name(self.options.seed, key)
    }
}

/// See [`Workload::key_name`].
pub fn key_name(seed: u64, key: Key) -> [u8; KEY_BYTES] {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let word = permute(key.0 ^ mix(seed) as u32);
    std::array::from_fn(|i| DIGITS[(word >> (28 - 4 * i)) as usize & 15])
}

/// A bijection of 32-bit words (the finalizer of MurmurHash3): distinct keys, distinct names.
const fn permute(word: u32) -> u32 {
    let mut z = word ^ (word >> 16);
    z = z.wrapping_mul(0x85eb_ca6b);
    z ^= z >> 13;
    z = z.wrapping_mul(0xc2b2_ae35);
    z ^ (z >> 16)
}

fn check(options: &WorkloadOptions) -> Result<(), String> {
    if options.keys == 0 || options.keys > u64::from(u32::MAX) {
        return Err(format!("--keys {}: must be in 1..=4294967295", options.keys));
    }
    if !(0.0..=1.0).contains(&options.get_share) {
        return Err(format!("--get-share {}: must be in 0..=1", options.get_share));
    }
    if !(0.0..=10.0).contains(&options.zipf_exponent) {
        return Err(format!("--zipf {}: must be in 0..=10; 0 is uniform", options.zipf_exponent));
    }
    match options.sizes {
        Sizes::Fixed { value_bytes } if value_bytes > VALUE_BYTES_MAX => Err(format!(
            "--value-bytes {value_bytes}: must be at most {VALUE_BYTES_MAX}, memcached's 1 GiB"
        )),
        Sizes::Fixed { .. } => Ok(()),
        Sizes::Etc { large_bytes_max } => check_etc(options, large_bytes_max),
    }
}

/// Largest value, in bytes.
pub const VALUE_BYTES_MAX: u64 = 1 << 30;

fn check_etc(options: &WorkloadOptions, large_bytes_max: u64) -> Result<(), String> {
    if options.keys_large > options.keys {
        return Err(format!(
            "--keys-large {}: must be at most --keys ({}), which counts them too",
            options.keys_large, options.keys
        ));
    }
    if !(0.0..=100.0).contains(&options.large_percent) {
        return Err(format!("--p-large {}: a percentage, 0 to 100", options.large_percent));
    }
    if options.large_percent > 0.0 && options.keys_large == 0 {
        return Err(format!(
            "--p-large {}: there is no large key to ask for; give --keys-large or --p-large 0",
            options.large_percent
        ));
    }
    if !(LARGE_BYTES_MIN..=VALUE_BYTES_MAX).contains(&large_bytes_max) {
        return Err(format!(
            "--s-large {large_bytes_max}: must be in {LARGE_BYTES_MIN}..={VALUE_BYTES_MAX}"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
