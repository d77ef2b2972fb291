//! Repeatable randomness for the external tests, and values that prove themselves.
//!
//! A value's bytes follow from its key, its version and its length, so whoever knows these three
//! can check a reply without keeping a copy.

use fastrand::Rng;
use laneway_load::random::mix_pair;

/// A stream of its own for each pair of seed and purpose.
pub fn stream(seed: u64, purpose: u64) -> Rng {
    Rng::with_seed(mix_pair(seed, purpose))
}

/// True in `parts` of 10 000 cases.
pub fn chance(random: &mut Rng, parts: u32) -> bool {
    random.u32(..10_000) < parts
}

/// What a stored value must be, byte for byte.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Value {
    /// Which key.
    pub key: u64,
    /// How often this key was written.
    pub version: u64,
    /// Bytes.
    pub length: usize,
}

impl Value {
    /// Appends the bytes.
    pub fn write(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.resize(start + self.length, 0);
        let mut random = stream(self.key, self.version);
        for chunk in out[start..].chunks_mut(8) {
            chunk.copy_from_slice(&random.u64(..).to_le_bytes()[..chunk.len()]);
        }
    }

    /// Whether `bytes` are this value.
    pub fn is(&self, bytes: &[u8]) -> bool {
        let mut random = stream(self.key, self.version);
        let same = |chunk: &[u8]| chunk == &random.u64(..).to_le_bytes()[..chunk.len()];
        bytes.len() == self.length && bytes.chunks(8).all(same)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_knows_its_bytes_and_no_others() {
        for length in [0, 1, 7, 8, 9, 1000] {
            let value = Value { key: 7, version: 3, length };
            let mut bytes = Vec::new();
            value.write(&mut bytes);
            assert!(value.is(&bytes));
            if let Some(last) = bytes.last_mut() {
                *last ^= 1;
                assert!(!value.is(&bytes), "a flipped bit passes at length {length}");
                bytes.pop();
                assert!(!value.is(&bytes), "a short value passes at length {length}");
                assert!(!Value { version: 4, ..value }.is(&bytes));
            }
        }
    }
}
