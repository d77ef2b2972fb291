//! The hash by which hot keys are told apart: of whole keys, by a seed that is told to nobody.
//!
//! It is not the hash that says whose a key is ([`crate::owner`]). That one is public, so that
//! clients can place keys, and whoever knows it can make any number of keys that share all of its
//! 64 bits. Counted by it they would be one key, and hot together; no seed in the sketch helps
//! against that, for it comes too late. Here the seed is in every step: two words of the key at a
//! time are each mixed with what is not known outside, multiplied, and the product's halves folded
//! together. The index's SipHash would do as well and costs four times as much, twice a request.
//!
//! Unit: bytes.

use crate::hot::sketch::KeyHash;

/// Bytes that one step takes.
const STEP_BYTES: usize = 16;

/// The function, with its seed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyHasher {
    seeds: [u64; 4],
}

impl KeyHasher {
    /// `seed`: any random number that is told to nobody.
    pub const fn new(seed: u64) -> KeyHasher {
        let first = stretched(seed, 1);
        let second = stretched(seed, 2);
        KeyHasher { seeds: [first, second, stretched(seed, 3), stretched(seed, 4)] }
    }

    /// The hash of `key`.
    #[inline]
    pub fn hash(&self, key: &[u8]) -> KeyHash {
        let mut state = self.seeds[0];
        let mut rest = key;
        while let Some((step, after)) = rest.split_first_chunk::<STEP_BYTES>()
            && !after.is_empty()
        {
            state = self.step(state, words(step));
            rest = after;
        }
        state = self.step(state, last_words(key));
        // What the last step reads may overlap the step before, or be filled up: so the length
        // belongs to it; and here, where no byte of the key can cancel it.
        KeyHash(fold(state ^ self.seeds[2], self.seeds[3] ^ key.len() as u64))
    }

    #[inline(always)]
    fn step(&self, state: u64, (low, high): (u64, u64)) -> u64 {
        fold(state ^ low, self.seeds[1] ^ high)
    }
}

/// SplitMix64's output function: one seed makes as many numbers as are wanted.
const fn stretched(seed: u64, number: u64) -> u64 {
    let state = seed.wrapping_add(number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let state = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let state = (state ^ (state >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    state ^ (state >> 31)
}

#[inline(always)]
const fn fold(left: u64, right: u64) -> u64 {
    let product = left as u128 * right as u128;
    product as u64 ^ (product >> 64) as u64
}

#[inline(always)]
fn words(step: &[u8; STEP_BYTES]) -> (u64, u64) {
    let both = u128::from_le_bytes(*step);
    (both as u64, (both >> 64) as u64)
}

/// The last bytes of a key as two words; of a short key all of it.
#[inline(always)]
fn last_words(key: &[u8]) -> (u64, u64) {
    if let Some(last) = key.last_chunk::<STEP_BYTES>() {
        return words(last);
    }
    if let (Some(first), Some(last)) = (key.first_chunk::<8>(), key.last_chunk::<8>()) {
        return (u64::from_le_bytes(*first), u64::from_le_bytes(*last));
    }
    if let (Some(first), Some(last)) = (key.first_chunk::<4>(), key.last_chunk::<4>()) {
        return (u32::from_le_bytes(*first).into(), u32::from_le_bytes(*last).into());
    }
    match *key {
        [] => (0, 0),
        [one] => (one.into(), 0),
        [one, two] => (one.into(), two.into()),
        [one, two, ref rest @ ..] => (u64::from(one) | u64::from(two) << 8, rest[0].into()),
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use std::collections::HashSet;
    use std::vec::Vec;

    #[test]
    fn keys_of_every_length_that_differ_in_one_bit_or_in_length_have_other_hashes() {
        let hasher = KeyHasher::new(1);
        let mut seen = HashSet::new();
        let mut keys = 0;
        for length in 0..=250 {
            let key: Vec<u8> = (0..length as u8).map(|at| at.wrapping_mul(37)).collect();
            seen.insert(hasher.hash(&key));
            keys += 1;
            for bit in 0..length * 8 {
                let mut other = key.clone();
                other[bit / 8] ^= 1 << (bit % 8);
                seen.insert(hasher.hash(&other));
                keys += 1;
            }
            seen.insert(hasher.hash(&std::vec![0; length + 300]));
            keys += 1;
        }
        assert_eq!(seen.len(), keys);
    }

    #[test]
    fn another_seed_is_another_function() {
        let hashes: HashSet<KeyHash> =
            (0..1_000).map(|seed| KeyHasher::new(seed).hash(b"key")).collect();
        assert_eq!(hashes.len(), 1_000);
    }

    #[test]
    fn its_bits_are_even() {
        let hasher = KeyHasher::new(7);
        const KEYS: u64 = 1 << 16;
        let mut ones = [0_u64; 64];
        for number in 0..KEYS {
            let hash = hasher.hash(std::format!("key:{number}").as_bytes()).0;
            for (bit, ones) in ones.iter_mut().enumerate() {
                *ones += hash >> bit & 1;
            }
        }
        // Six standard deviations of a fair coin.
        let most = 6 * (KEYS as f64 / 4.0).sqrt() as u64;
        for (bit, ones) in ones.into_iter().enumerate() {
            assert!(ones.abs_diff(KEYS / 2) < most, "bit {bit}: {ones} of {KEYS}");
        }
    }
}
