//! Names of keys: which bytes, and how many.

use super::sizes::Spread;
use crate::arguments::within;
use crate::random::{mix, mix_pair};
use serde::{Deserialize, Serialize};
use std::ops::Deref;

/// Bytes of a key where nothing else is said, and of the shortest there is.
pub const KEY_BYTES: usize = 8;
/// Bytes of memcached's longest key.
pub const KEY_BYTES_MAX: usize = 250;
/// What stands behind the digits of a longer key.
const FILLER: u8 = b'k';
const SIZE_SALT: u64 = u64::from_le_bytes(*b"key size");

/// How long keys are. The length of a key is a pure function of (seed, key).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KeySizes {
    /// All alike.
    Fixed {
        /// Bytes of every key.
        key_bytes: u64,
    },
    /// Half of them short.
    Two {
        /// Bytes of the short ones.
        short: u64,
        /// Bytes of the others.
        long: u64,
    },
    /// Most are short, and the longer the fewer.
    Spread(Spread),
}

impl Default for KeySizes {
    fn default() -> Self {
        KeySizes::Fixed { key_bytes: KEY_BYTES as u64 }
    }
}

impl KeySizes {
    /// Bytes of key `number`.
    pub fn bytes(&self, seed: u64, number: u32) -> usize {
        let word = || mix_pair(seed ^ SIZE_SALT, u64::from(number));
        let bytes = match *self {
            KeySizes::Fixed { key_bytes } => key_bytes,
            KeySizes::Two { short, long } => [short, long][(word() >> 63) as usize],
            KeySizes::Spread(spread) => spread.bytes(word()),
        };
        (bytes as usize).clamp(KEY_BYTES, KEY_BYTES_MAX)
    }

    /// Says what is out of range, by its flag.
    pub fn check(&self) -> Result<(), String> {
        match *self {
            KeySizes::Fixed { key_bytes } => {
                within("key-bytes", key_bytes, KEY_BYTES as u64..=KEY_BYTES_MAX as u64)
            }
            _ => Ok(()),
        }
    }
}

/// A key's name.
#[derive(Clone, Copy)]
pub struct KeyName {
    bytes: [u8; KEY_BYTES_MAX],
    length: u8,
}

impl KeyName {
    /// That of key `number`, `length` bytes long: distinct for distinct numbers.
    pub fn new(seed: u64, number: u32, length: usize) -> Self {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        // A bijection of 32-bit words (the finalizer of MurmurHash3): distinct keys have distinct
        // names.
        let mut word = number ^ mix(seed) as u32;
        word = (word ^ (word >> 16)).wrapping_mul(0x85eb_ca6b);
        word = (word ^ (word >> 13)).wrapping_mul(0xc2b2_ae35);
        word ^= word >> 16;
        let digits: [u8; KEY_BYTES] =
            std::array::from_fn(|i| DIGITS[(word >> (28 - 4 * i)) as usize & 15]);
        let mut bytes = [FILLER; KEY_BYTES_MAX];
        bytes[..KEY_BYTES].copy_from_slice(&digits);
        KeyName { bytes, length: length.clamp(KEY_BYTES, KEY_BYTES_MAX) as u8 }
    }
}

impl Deref for KeyName {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }
}

impl AsRef<[u8]> for KeyName {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_two_sizes_are_short() {
        let sizes = KeySizes::Two { short: 16, long: 22 };
        let short = (0..10_000).filter(|&number| sizes.bytes(1, number) == 16).count();
        assert!((4_750..5_250).contains(&short), "{short}");
        assert!((0..10_000).all(|number| matches!(sizes.bytes(1, number), 16 | 22)));
    }

    #[test]
    fn lengths_stay_within_what_memcached_takes() {
        let sizes = KeySizes::Spread(Spread::with_p99(8, 240));
        let lengths: Vec<usize> = (0..100_000).map(|number| sizes.bytes(1, number)).collect();
        assert!(lengths.iter().all(|length| (KEY_BYTES..=KEY_BYTES_MAX).contains(length)));
        assert!(lengths.contains(&KEY_BYTES_MAX));
    }
}
