//! Names and values of items. A value is the generator's of `laneway bench`: a version, a checksum
//! and a stretch of a random pattern, so that a wrong byte, another key's value and one of another
//! length are all noticed.

use crate::words;
use laneway_load::random::mix;
use laneway_load::values::{Checker, PATTERN_BYTES, Value, Values};
use laneway_load::workload::Key;

/// Every key is this long.
pub const KEY_BYTES: usize = 16;
/// The two sizes of SplitKV's evaluation.
const SMALL_BYTES: u64 = 256;
const LARGE_BYTES: u64 = 4096;

/// How large values are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sizes {
    /// Every second one 256 B, the others 4 KB. Popularity goes by number, so each gets half of
    /// the requests too, as near as Zipf lets it.
    Halves,
    /// All the same.
    Fixed(u64),
}

impl Sizes {
    /// Bytes of item `number`'s value.
    pub fn of(self, number: u32) -> u64 {
        match self {
            Sizes::Halves if number.is_multiple_of(2) => SMALL_BYTES,
            Sizes::Halves => LARGE_BYTES,
            Sizes::Fixed(bytes) => bytes,
        }
    }

    /// Bytes of two neighbours' values.
    pub fn of_two(self) -> u64 {
        self.of(0) + self.of(1)
    }
}

/// The bytes that values are made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Content {
    /// Random bytes, which no compression makes shorter.
    Random,
    /// Words.
    Text,
}

impl Content {
    /// As in `--content`.
    pub fn name(self) -> &'static str {
        match self {
            Content::Random => "random",
            Content::Text => "text",
        }
    }
}

/// The name of item `number`: a hash of it, so that neighbours lie far apart, and the number.
pub fn name(number: u32) -> [u8; KEY_BYTES] {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let word = mix(u64::from(number)) << 32 | u64::from(number);
    std::array::from_fn(|at| DIGITS[(word >> (60 - 4 * at)) as usize & 15])
}

/// The number of an item by its name.
pub fn number_of(key: &[u8]) -> Option<u32> {
    let digits = std::str::from_utf8(key.get(KEY_BYTES / 2..)?).ok()?;
    let number = u32::from_str_radix(digits, 16).ok()?;
    (name(number) == key).then_some(number)
}

/// Makes and checks values.
pub struct Items {
    values: Values,
    sizes: Sizes,
}

impl Items {
    /// Those of `seed`.
    pub fn new(seed: u64, sizes: Sizes, content: Content) -> Items {
        let values = match content {
            Content::Random => Values::new(seed),
            Content::Text => Values::of_pattern(seed, words::text(seed, PATTERN_BYTES)),
        };
        Items { values, sizes }
    }

    /// Writes item `number`'s value of this version over `out`.
    pub fn write(&self, number: u32, version: u32, out: &mut Vec<u8>) {
        out.clear();
        let value = Value { key: Key(number), bytes: self.sizes.of(number), version };
        self.values.append(value, out);
    }

    /// Whether `value` is one that item `number` may have.
    pub fn check(&self, number: u32, value: &[u8]) -> Result<(), String> {
        let wrong = |what: String| Err(format!("item {number}: {what}"));
        let bytes = self.sizes.of(number);
        if value.len() as u64 != bytes {
            return wrong(format!("{} bytes instead of {bytes}", value.len()));
        }
        let mut checker = Checker::new(Key(number), bytes);
        checker.feed(&self.values, value);
        match checker.is_good() {
            true => Ok(()),
            false => wrong("a wrong byte in its value".into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_tells_its_number_and_neighbours_lie_apart() {
        for number in [0, 1, 2, 77, 200_000, u32::MAX] {
            assert_eq!(number_of(&name(number)), Some(number));
        }
        assert_eq!(number_of(b"0000000000000001"), None);
        assert_eq!(number_of(b"short"), None);
        let mut names: Vec<_> = (0..1000).map(|number| (name(number), number)).collect();
        names.sort_unstable();
        let close = names.windows(2).filter(|pair| pair[0].1.abs_diff(pair[1].1) == 1).count();
        assert!(close < 20, "{close} of 1000 neighbours by number are neighbours by name");
    }

    #[test]
    fn values_are_half_small_half_large_and_a_wrong_byte_is_noticed() {
        for content in [Content::Random, Content::Text] {
            are_checked(&Items::new(1, Sizes::Halves, content));
        }
    }

    fn are_checked(items: &Items) {
        let (mut value, mut bytes) = (Vec::new(), 0);
        for number in 0..100 {
            items.write(number, number * 7, &mut value);
            bytes += value.len() as u64;
            assert_eq!(items.check(number, &value), Ok(()));
            assert!(items.check(number + 2, &value).is_err(), "another item's value");
            let middle = value.len() / 2;
            value[middle] ^= 1;
            assert!(items.check(number, &value).is_err());
        }
        assert_eq!(bytes, 50 * Sizes::Halves.of_two());
    }
}
