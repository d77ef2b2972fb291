//! The hash of a key and which of its bits mean what.
//!
//! One seeded hash of 64 bits per key (SipHash-1-3): tag = bits 0..16, bucket = 16..52, partition =
//! 52..60, domain = 60..64. The order of use is MICA's (§4.3.1); the seed is not: nobody outside
//! can aim keys at one bucket.

use crate::types::KeyHash;

/// Partitions of the index; a power of two, at most 256 (8 bits of the hash).
pub const PARTITIONS: usize = 64;
const _: () = assert!(PARTITIONS.is_power_of_two() && PARTITIONS <= 256);

const BUCKET_SHIFT: u32 = 16;
/// How many bits choose the bucket.
pub const BUCKET_BITS: u32 = 36;
const PARTITION_SHIFT: u32 = 52;

/// The seeded hash function: SipHash-1-3 of a whole key at once. Written out here because a
/// one-shot over 8-byte words takes half the time of a hasher that is fed piece by piece; the tests
/// hold it against the `siphasher` crate.
#[derive(Debug, Clone)]
pub struct Hasher {
    start: [u64; 4],
}

impl Hasher {
    /// With `seed` as SipHash's 128-bit key.
    pub fn new(seed: (u64, u64)) -> Self {
        // "somepseudorandomlygeneratedbytes", as SipHash has it.
        Hasher {
            start: [
                seed.0 ^ 0x736f_6d65_7073_6575,
                seed.1 ^ 0x646f_7261_6e64_6f6d,
                seed.0 ^ 0x6c79_6765_6e65_7261,
                seed.1 ^ 0x7465_6462_7974_6573,
            ],
        }
    }

    /// SipHash's four words after the seed was mixed in: what another reader of the memory needs
    /// to find the same buckets.
    pub fn start(&self) -> [u64; 4] {
        self.start
    }

    /// The hash of `key`.
    #[inline]
    pub fn hash(&self, key: &[u8]) -> KeyHash {
        let mut state = self.start;
        let (words, rest) = key.as_chunks::<8>();
        for word in words {
            absorb(&mut state, u64::from_le_bytes(*word));
        }
        let end = match key.last_chunk::<8>() {
            _ if rest.is_empty() => 0,
            // The last eight bytes, those of the words before shifted out.
            Some(last) => u64::from_le_bytes(*last) >> (64 - 8 * rest.len()),
            None => rest.iter().rev().fold(0, |end, &byte| end << 8 | u64::from(byte)),
        };
        absorb(&mut state, end | (key.len() as u64) << 56);
        state[2] ^= 0xff;
        for _ in 0..3 {
            round(&mut state);
        }
        KeyHash(state[0] ^ state[1] ^ state[2] ^ state[3])
    }
}

#[inline(always)]
fn absorb(state: &mut [u64; 4], word: u64) {
    state[3] ^= word;
    round(state);
    state[0] ^= word;
}

#[inline(always)]
fn round(v: &mut [u64; 4]) {
    v[0] = v[0].wrapping_add(v[1]);
    v[2] = v[2].wrapping_add(v[3]);
    v[1] = v[1].rotate_left(13) ^ v[0];
    v[3] = v[3].rotate_left(16) ^ v[2];
    v[0] = v[0].rotate_left(32).wrapping_add(v[3]);
    v[2] = v[2].wrapping_add(v[1]);
    v[3] = v[3].rotate_left(21) ^ v[0];
    v[1] = v[1].rotate_left(17) ^ v[2];
    v[2] = v[2].rotate_left(32);
}

impl KeyHash {
    /// 16 bits that stand beside the location in the slot.
    #[inline]
    pub fn tag(self) -> u16 {
        self.0 as u16
    }

    /// 36 bits that choose the bucket within the partition.
    #[inline]
    pub fn bucket(self) -> u64 {
        (self.0 >> BUCKET_SHIFT) & ((1 << BUCKET_BITS) - 1)
    }

    /// Which partition.
    #[inline]
    pub fn partition(self) -> usize {
        (self.0 >> PARTITION_SHIFT) as usize % PARTITIONS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_siphash_1_3_with_the_seed_as_key() {
        // SipHash-1-3, key 00..0f, message 00..07 and the empty one, from the reference C code's
        // layout.
        let hasher = Hasher::new((0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908));
        assert_eq!(hasher.hash(b"").0, 0xabac_0158_050f_c4dc);
        assert_ne!(hasher.hash(b"a"), Hasher::new((1, 2)).hash(b"a"));
    }

    #[test]
    fn every_length_hashes_as_the_siphasher_crate_says() {
        let bytes: Vec<u8> = (0..=255).map(|i: u8| i.wrapping_mul(73)).collect();
        for seed in [(0, 0), (1, 2), (u64::MAX, 0x1234_5678_9abc_def0)] {
            let reference = siphasher::sip::SipHasher13::new_with_keys(seed.0, seed.1);
            let hasher = Hasher::new(seed);
            for len in 0..=bytes.len() {
                assert_eq!(hasher.hash(&bytes[..len]).0, reference.hash(&bytes[..len]), "{len}");
            }
        }
    }

    #[test]
    fn the_bits_do_not_overlap() {
        let hash = KeyHash(0x0a5b_1234_5678_9cde);
        assert_eq!(hash.tag(), 0x9cde);
        assert_eq!(hash.bucket(), 0xb_1234_5678);
        assert_eq!(hash.partition(), 0xa5 % PARTITIONS);
    }
}
