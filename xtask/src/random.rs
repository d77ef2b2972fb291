//! Repeatable randomness for the external tests: SplitMix64, and values that prove themselves.
//!
//! A value's bytes follow from its key, its version and its length, so whoever knows these three
//! can check a reply without keeping a copy.

/// SplitMix64 (Steele, Lea and Flood, OOPSLA'14). Good enough to choose requests; no cryptography.
#[derive(Clone)]
pub struct Random(u64);

const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

impl Random {
    /// A stream of its own for each pair of seed and purpose.
    pub fn new(seed: u64, purpose: u64) -> Random {
        let mut random = Random(seed ^ purpose.wrapping_mul(GOLDEN).rotate_left(17));
        random.next();
        random
    }

    /// 64 fresh bits.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(GOLDEN);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number in `low..high`; their difference is small here, so the bias of `%` is too.
    pub fn within(&mut self, low: usize, high: usize) -> usize {
        assert!(low < high);
        low + (self.next() % (high - low) as u64) as usize
    }

    /// True in `parts` of 10 000 cases.
    pub fn chance(&mut self, parts: u32) -> bool {
        self.next() % 10_000 < u64::from(parts)
    }

    /// Appends `length` bytes.
    pub fn fill(&mut self, length: usize, out: &mut Vec<u8>) {
        let end = out.len() + length;
        while out.len() < end {
            let word = self.next().to_le_bytes();
            let left = end - out.len();
            out.extend_from_slice(&word[..left.min(word.len())]);
        }
    }
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
        Random::new(self.key, self.version).fill(self.length, out);
    }

    /// Whether `bytes` are this value.
    pub fn is(&self, bytes: &[u8]) -> bool {
        if bytes.len() != self.length {
            return false;
        }
        let mut random = Random::new(self.key, self.version);
        let same = |chunk: &[u8]| chunk == &random.next().to_le_bytes()[..chunk.len()];
        bytes.chunks(8).all(same)
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

    #[test]
    fn the_same_seed_gives_the_same_stream_and_another_another() {
        let draw = |seed, purpose| {
            let mut random = Random::new(seed, purpose);
            [random.next(), random.next()]
        };
        assert_eq!(draw(1, 2), draw(1, 2));
        assert_ne!(draw(1, 2), draw(1, 3));
        assert_ne!(draw(1, 2), draw(2, 2));
    }
}
