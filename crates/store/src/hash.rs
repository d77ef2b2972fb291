//! The hash of a key and which of its bits mean what.
//!
//! One seeded hash of 64 bits per key (SipHash-1-3): tag = bits 0..16, bucket = 16..52, partition = 52..60, domain =
//! 60..64. The order of use is MICA's (§4.3.1); the seed is not: nobody outside can aim keys at one bucket.

use crate::types::KeyHash;
use siphasher::sip::SipHasher13;

/// Partitions of the index; a power of two, at most 256 (8 bits of the hash).
pub const PARTITIONS: usize = 64;
const _: () = assert!(PARTITIONS.is_power_of_two() && PARTITIONS <= 256);

const BUCKET_SHIFT: u32 = 16;
const BUCKET_BITS: u32 = 36;
const PARTITION_SHIFT: u32 = 52;

/// The seeded hash function.
#[derive(Debug, Clone)]
pub struct Hasher {
    sip: SipHasher13,
}

impl Hasher {
    /// With `seed` as SipHash's 128-bit key.
    pub fn new(seed: (u64, u64)) -> Self {
        Hasher { sip: SipHasher13::new_with_keys(seed.0, seed.1) }
    }

    /// The hash of `key`.
    #[inline]
    pub fn hash(&self, key: &[u8]) -> KeyHash {
        KeyHash(self.sip.hash(key))
    }
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
        // SipHash-1-3, key 00..0f, message 00..07 and the empty one, from the reference C code's layout.
        let hasher = Hasher::new((0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908));
        assert_eq!(hasher.hash(b"").0, 0xabac_0158_050f_c4dc);
        assert_ne!(hasher.hash(b"a"), Hasher::new((1, 2)).hash(b"a"));
    }

    #[test]
    fn the_bits_do_not_overlap() {
        let hash = KeyHash(0x0a5b_1234_5678_9cde);
        assert_eq!(hash.tag(), 0x9cde);
        assert_eq!(hash.bucket(), 0xb_1234_5678);
        assert_eq!(hash.partition(), 0xa5 % PARTITIONS);
    }
}
