//! The bytes of values: a pure function of (seed, key, length, version), cheap to make and to
//! check.
//!
//! A value of 16 bytes and more begins with 4 bytes of version and 4 bytes of checksum over (seed,
//! key, length, version); behind them runs a random pattern from a place that those four decide.
//! Checking is a comparison of memory, so the client is not what limits a run. A shorter value is
//! its version's low byte and bytes of a hash. Values of 1 byte hold no version. The pattern's
//! length is prime: a server that returned slice 7 where slice 3 belongs, or the same slice twice,
//! is caught whatever power of two its slices have.

use crate::random::{Random, mix, mix_pair, scale};
use crate::workload::Key;

/// Bytes of the pattern: the first prime above 1 MiB.
pub const PATTERN_BYTES: usize = 1_048_583;
/// Bytes in front of the pattern: version and checksum.
const HEAD_BYTES: u64 = 8;
/// Values below this have no head and no pattern.
const PATTERNED_BYTES_MIN: u64 = 16;

/// Makes and checks values.
#[derive(Debug)]
pub struct Values {
    seed: u64,
    /// Whether every byte of every value is this one.
    same: Option<u8>,
    pattern: Vec<u8>,
}

/// One value that a key may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Value {
    /// Whose value it is.
    pub key: Key,
    /// Its length.
    pub bytes: u64,
    /// Which of the key's values: each write takes another.
    pub version: u32,
}

impl Values {
    /// The values of `seed`.
    pub fn new(seed: u64) -> Self {
        let mut random = Random::stream(seed, u64::from_le_bytes(*b"values  "));
        let words = 0..PATTERN_BYTES.div_ceil(8);
        Values::of_pattern(seed, words.flat_map(|_| random.word().to_le_bytes()).collect())
    }

    /// The same of `seed`, with this in the pattern's place: [`PATTERN_BYTES`], and what is beyond
    /// them is left out.
    pub fn of_pattern(seed: u64, mut pattern: Vec<u8>) -> Self {
        pattern.truncate(PATTERN_BYTES);
        assert_eq!(pattern.len(), PATTERN_BYTES, "a pattern that is too short");
        Values { seed, same: None, pattern }
    }

    /// Values whose every byte is `byte`, whatever their key and version: those of
    /// [`crate::floor`].
    pub fn same(byte: u8) -> Self {
        Values { seed: 0, same: Some(byte), pattern: vec![byte; PATTERN_BYTES] }
    }

    /// Appends the whole of `value`.
    pub fn append(&self, value: Value, out: &mut Vec<u8>) {
        let (mut at, mut head) = (0, [0; 16]);
        while at < value.bytes {
            let piece = self.piece(value, at, &mut head);
            out.extend_from_slice(piece);
            at += piece.len() as u64;
        }
    }

    /// The bytes of `value` from `at` on, as far as they lie together: at least one.
    pub fn piece<'a>(&'a self, value: Value, at: u64, head: &'a mut [u8; 16]) -> &'a [u8] {
        assert!(at < value.bytes, "a piece behind the end of a value");
        let head_bytes = self.head(value, head);
        if at < head_bytes {
            return &head[at as usize..head_bytes as usize];
        }
        let run = self.pattern_from(self.check_word(value), at - head_bytes);
        let rest = (value.bytes - at).min(run.len() as u64);
        &run[..rest as usize]
    }

    /// Writes what stands before the pattern (all of it, for a short value) and says how much.
    fn head(&self, value: Value, head: &mut [u8; 16]) -> u64 {
        if let Some(byte) = self.same {
            head.fill(byte);
            return if value.bytes >= PATTERNED_BYTES_MIN { HEAD_BYTES } else { value.bytes };
        }
        if value.bytes >= PATTERNED_BYTES_MIN {
            head[..4].copy_from_slice(&value.version.to_le_bytes());
            head[4..8].copy_from_slice(&(self.check_word(value) as u32).to_le_bytes());
            return HEAD_BYTES;
        }
        let version = value.version & if value.bytes > 1 { 0xff } else { 0 };
        let word = self.check_word(Value { version, ..value });
        head[..8].copy_from_slice(&word.to_le_bytes());
        head[8..].copy_from_slice(&mix(word).to_le_bytes());
        if value.bytes > 1 {
            head[0] = version as u8;
        }
        value.bytes
    }

    fn check_word(&self, value: Value) -> u64 {
        let name = u64::from(value.key.0) << 32 | u64::from(value.version);
        mix_pair(self.seed ^ value.bytes.rotate_left(40), name)
    }

    fn pattern_from(&self, word: u64, at: u64) -> &[u8] {
        let start = scale(mix(word), PATTERN_BYTES as u64);
        &self.pattern[((start + at) % PATTERN_BYTES as u64) as usize..]
    }
}

/// Checks a value while it arrives, in pieces of any size, without keeping it.
#[derive(Debug, Clone)]
pub struct Checker {
    key: Key,
    bytes: u64,
    seen: u64,
    head: [u8; 16],
    word: u64,
    good: bool,
}

impl Checker {
    /// Expects a value of `key` that is `bytes` long, of whatever version.
    pub fn new(key: Key, bytes: u64) -> Self {
        Checker { key, bytes, seen: 0, head: [0; 16], word: 0, good: true }
    }

    /// Bytes of the whole value.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Takes the next bytes; never more in all than the value has.
    pub fn feed(&mut self, values: &Values, mut input: &[u8]) {
        let head_bytes = if self.bytes >= PATTERNED_BYTES_MIN { HEAD_BYTES } else { self.bytes };
        if self.seen < head_bytes {
            let taken = input.len().min((head_bytes - self.seen) as usize);
            self.head[self.seen as usize..][..taken].copy_from_slice(&input[..taken]);
            self.seen += taken as u64;
            input = &input[taken..];
            if self.seen == head_bytes {
                let version = if self.bytes >= PATTERNED_BYTES_MIN {
                    u32::from_le_bytes([self.head[0], self.head[1], self.head[2], self.head[3]])
                } else {
                    u32::from(self.head[0])
                };
                let value = Value { key: self.key, bytes: self.bytes, version };
                let mut expected = [0; 16];
                values.head(value, &mut expected);
                self.word = values.check_word(value);
                let head_bytes = head_bytes as usize;
                self.good &= expected[..head_bytes] == self.head[..head_bytes];
            }
        }
        while !input.is_empty() {
            let run = values.pattern_from(self.word, self.seen - head_bytes);
            let taken = run.len().min(input.len());
            self.good &= run[..taken] == input[..taken];
            self.seen += taken as u64;
            input = &input[taken..];
        }
    }

    /// Bytes still to come.
    pub fn bytes_left(&self) -> u64 {
        self.bytes - self.seen
    }

    /// Whether every byte so far was right.
    pub fn is_good(&self) -> bool {
        self.good
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(values: &Values, key: u32, bytes: u64, version: u32) -> Vec<u8> {
        let mut out = Vec::new();
        values.append(Value { key: Key(key), bytes, version }, &mut out);
        assert_eq!(out.len() as u64, bytes);
        out
    }

    fn accepts(values: &Values, key: u32, bytes: &[u8], step: usize) -> bool {
        let mut checker = Checker::new(Key(key), bytes.len() as u64);
        bytes.chunks(step).for_each(|piece| checker.feed(values, piece));
        assert_eq!(checker.bytes_left(), 0);
        checker.is_good()
    }

    #[test]
    fn a_value_is_accepted_in_pieces_of_any_size() {
        let values = Values::new(4);
        for bytes in [0, 1, 2, 7, 8, 13, 15, 16, 17, 1_400, 65_536, 1_048_591, 3_000_000] {
            for version in [0, 1, 255, 256, 0xdead_beef] {
                let value = made(&values, 77, bytes, version);
                for step in [1, 3, 8, 4_096, 1 << 22] {
                    if bytes <= 65_536 || step >= 4_096 {
                        assert!(accepts(&values, 77, &value, step), "{bytes} by {step}");
                    }
                }
            }
        }
    }

    #[test]
    fn every_flipped_byte_is_caught() {
        let values = Values::new(4);
        for bytes in [1, 2, 13, 16, 17, 1_400] {
            let mut value = made(&values, 5, bytes, 9);
            for at in 0..value.len() {
                value[at] ^= 0x10;
                assert!(!accepts(&values, 5, &value, 1 << 20), "{bytes} bytes, at {at}");
                value[at] ^= 0x10;
            }
        }
    }

    #[test]
    fn another_keys_value_and_another_length_are_caught() {
        let values = Values::new(4);
        for bytes in [8, 13, 16, 1_400, 65_536] {
            let value = made(&values, 5, bytes, 9);
            assert!(!accepts(&values, 6, &value, 1 << 20), "{bytes}: another key");
            let shorter = &value[..value.len() - 1];
            assert!(!accepts(&values, 5, shorter, 1 << 20), "{bytes}: cut");
            let mut longer = value.clone();
            longer.push(0);
            assert!(!accepts(&values, 5, &longer, 1 << 20), "{bytes}: padded");
        }
    }

    #[test]
    fn slices_in_the_wrong_order_are_caught() {
        let values = Values::new(4);
        for slice in [4_096, 32_768, 65_536, 1 << 20] {
            let mut value = made(&values, 5, 4 << 20, 9);
            let (front, back) = value.split_at_mut(2 << 20);
            front[(2 << 20) - slice..].swap_with_slice(&mut back[..slice]);
            assert!(!accepts(&values, 5, &value, 1 << 16), "{slice}");
        }
    }

    #[test]
    fn versions_and_seeds_differ() {
        let values = Values::new(4);
        assert_ne!(made(&values, 5, 100, 1), made(&values, 5, 100, 2));
        assert_ne!(made(&values, 5, 13, 1), made(&values, 5, 13, 2));
        let value = made(&Values::new(5), 5, 100, 1);
        assert!(!accepts(&values, 5, &value, 100));
    }
}
