//! Finds bytes, splits a line into tokens, and reads numbers: the parser's hand tools.
//!
//! A search looks at eight bytes at once with the zero-byte test of Mycroft (subtract one from
//! every byte, see which borrowed); the word is read as little-endian, so the lowest marked byte is
//! the first in memory.

const ONES: u64 = 0x0101_0101_0101_0101;
const HIGH_BITS: u64 = 0x8080_8080_8080_8080;
const WORD_BYTES: usize = size_of::<u64>();

/// Marks the high bit of every zero byte of `word`; bytes above the first zero may be marked too.
#[inline]
const fn zero_bytes(word: u64) -> u64 {
    word.wrapping_sub(ONES) & !word & HIGH_BITS
}

/// Marks the high bit of every zero byte of `word`, and of no other.
#[inline]
const fn zero_bytes_exact(word: u64) -> u64 {
    const LOW_BITS: u64 = !HIGH_BITS;
    !(((word & LOW_BITS) + LOW_BITS) | word | LOW_BITS)
}

/// The words of `line`, cut at spaces, into `places` as far as there are any of either. How many
/// words, and what stands behind them.
#[inline]
pub fn split<'a>(line: &'a [u8], places: &mut [&'a [u8]]) -> (usize, &'a [u8]) {
    let (mut begins, mut found) = (0, 0);
    let (words, tail) = line.as_chunks::<WORD_BYTES>();
    for (i, word) in words.iter().enumerate() {
        let mut marks = zero_bytes_exact(u64::from_le_bytes(*word) ^ (ONES * b' ' as u64));
        while marks != 0 {
            let space = i * WORD_BYTES + (marks.trailing_zeros() / 8) as usize;
            marks &= marks - 1;
            if begins < space {
                let Some(place) = places.get_mut(found) else { return (found, &line[begins..]) };
                *place = &line[begins..space];
                found += 1;
            }
            begins = space + 1;
        }
    }
    let tail_at = line.len() - tail.len();
    let ends = tail.iter().enumerate().filter(|(_, byte)| **byte == b' ').map(|(i, _)| tail_at + i);
    for end in ends.chain([line.len()]) {
        if begins < end {
            let Some(place) = places.get_mut(found) else { return (found, &line[begins..]) };
            *place = &line[begins..end];
            found += 1;
        }
        begins = end + 1;
    }
    (found, &[])
}

/// Where `needle` first stands in `haystack`.
#[inline]
pub fn find(haystack: &[u8], needle: u8) -> Option<usize> {
    let pattern = ONES * needle as u64;
    let (words, tail) = haystack.as_chunks::<WORD_BYTES>();
    for (i, word) in words.iter().enumerate() {
        let marks = zero_bytes(u64::from_le_bytes(*word) ^ pattern);
        if marks != 0 {
            return Some(i * WORD_BYTES + (marks.trailing_zeros() / 8) as usize);
        }
    }
    if let Some(word) = haystack.last_chunk::<WORD_BYTES>() {
        // The last word again, tail included: what it shares with the words before has no needle.
        let marks = zero_bytes(u64::from_le_bytes(*word) ^ pattern);
        let at = haystack.len() - WORD_BYTES + (marks.trailing_zeros() / 8) as usize;
        return (marks != 0).then_some(at);
    }
    tail.iter().position(|&b| b == needle)
}

/// Up to eight bytes as one number, so that a `match` on names is a `match` on integers. Filled up
/// with spaces, which no name has: bytes of zero are part of what was sent.
#[inline]
pub const fn name(bytes: &[u8]) -> u64 {
    let mut word = ONES * b' ' as u64;
    let mut i = bytes.len();
    while i > 0 {
        i -= 1;
        word ^= ((bytes[i] ^ b' ') as u64) << (8 * i);
    }
    word
}

/// The token that `line` begins with, as [`name`] has it, and what is behind it and its spaces;
/// `None` where the token is longer than eight bytes.
#[inline]
pub fn first_name(line: &[u8]) -> Option<(u64, &[u8])> {
    let mut padded = [b' '; WORD_BYTES];
    let word = match line.first_chunk::<WORD_BYTES>() {
        Some(word) => *word,
        None => {
            padded[..line.len()].copy_from_slice(line);
            padded
        }
    };
    let word = u64::from_le_bytes(word);
    let marks = zero_bytes(word ^ (ONES * b' ' as u64));
    let length = (marks.trailing_zeros() / 8) as usize;
    if marks == 0 {
        let behind = line.get(WORD_BYTES..)?;
        return (behind.first().is_none_or(|&b| b == b' ')).then(|| (word, skip_spaces(behind)));
    }
    let named = (1 << (8 * length)) - 1;
    let name = (word & named) | ((ONES * b' ' as u64) & !named);
    Some((name, skip_spaces(line.get(length..)?)))
}

/// The words of a line: cut at spaces, any number of them; no other byte separates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tokens<'a> {
    rest: &'a [u8],
}

impl<'a> Tokens<'a> {
    /// The tokens of `rest`.
    #[inline]
    pub const fn new(rest: &'a [u8]) -> Self {
        Tokens { rest }
    }

    /// What has not been read yet, without the spaces in front of it.
    #[inline]
    pub fn rest(self) -> &'a [u8] {
        skip_spaces(self.rest)
    }

    /// Up to `N` tokens and how many there are, counting no further than `N + 1`.
    #[inline]
    pub fn take_array<const N: usize>(mut self) -> ([&'a [u8]; N], usize) {
        let mut tokens: [&[u8]; N] = [&[]; N];
        for (count, slot) in tokens.iter_mut().enumerate() {
            match self.next() {
                Some(token) => *slot = token,
                None => return (tokens, count),
            }
        }
        let more = usize::from(!self.rest().is_empty());
        (tokens, N + more)
    }
}

impl<'a> Iterator for Tokens<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        let rest = skip_spaces(self.rest);
        if rest.is_empty() {
            self.rest = rest;
            return None;
        }
        let (token, rest) = match find(rest, b' ') {
            Some(end) => rest.split_at(end),
            None => (rest, &rest[rest.len()..]),
        };
        self.rest = rest;
        Some(token)
    }
}

/// `line` from its first byte that is not a space.
#[inline]
pub fn skip_spaces(mut line: &[u8]) -> &[u8] {
    while let [b' ', rest @ ..] = line {
        line = rest;
    }
    line
}

/// A decimal number that is all of `digits`: no sign, at least one digit, at most `u64::MAX`.
#[inline]
pub fn number_u64(digits: &[u8]) -> Option<u64> {
    /// This many digits cannot overflow.
    const DIGITS_SAFE: usize = 19;
    if digits.is_empty() {
        return None;
    }
    let mut value: u64 = 0;
    if digits.len() <= DIGITS_SAFE {
        for &digit in digits {
            let digit = digit.wrapping_sub(b'0');
            if digit > 9 {
                return None;
            }
            value = value * 10 + u64::from(digit);
        }
        return Some(value);
    }
    for &digit in digits {
        let digit = digit.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        value = value.checked_mul(10)?.checked_add(u64::from(digit))?;
    }
    Some(value)
}

/// Like [`number_u64`], at most `u32::MAX`.
#[inline]
pub fn number_u32(digits: &[u8]) -> Option<u32> {
    u32::try_from(number_u64(digits)?).ok()
}

/// A decimal number with an optional minus sign, within 64 bits.
#[inline]
pub fn number_i64(text: &[u8]) -> Option<i64> {
    match text {
        [b'-', digits @ ..] => 0_i64.checked_sub_unsigned(number_u64(digits)?),
        digits => i64::try_from(number_u64(digits)?).ok(),
    }
}

/// Like [`number_i64`], within 32 bits; a minus sign alone is 0, as memcached reads it.
#[inline]
pub fn number_i32(text: &[u8]) -> Option<i64> {
    if text == b"-" {
        return Some(0);
    }
    number_i64(text).filter(|&number| i32::try_from(number).is_ok())
}

/// `text` without the plus sign that a number of the storage commands may have.
#[inline]
pub fn without_plus(text: &[u8]) -> &[u8] {
    match text {
        [b'+', digits @ ..] if !digits.starts_with(b"-") => digits,
        text => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::{vec, vec::Vec};

    #[test]
    fn find_sees_every_position_and_no_false_neighbour() {
        for length in 0..40 {
            for at in 0..length {
                let mut bytes = [b'x'; 40];
                bytes[at] = b'\n';
                bytes[at + 1..].fill(b'\n' + 1); // a borrow must not make a neighbour look equal
                assert_eq!(find(&bytes[..length], b'\n'), Some(at));
            }
            assert_eq!(find(&[b'\n' + 1; 40][..length], b'\n'), None);
            assert_eq!(find(&[0x8a; 40][..length], b'\n'), None);
        }
    }

    #[test]
    fn a_line_is_split_as_its_tokens_are_read_one_by_one() {
        let mut draws = 7_u64;
        for _ in 0..4_000 {
            let mut draw = || {
                draws = draws.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                draws >> 33
            };
            let bytes = [b' ', b'!', b'a', 0x00, 0x21, 0xa0, 0xff, b' '];
            let line: Vec<u8> = (0..draw() % 70).map(|_| bytes[draw() as usize % 8]).collect();
            let room = draw() as usize % 12;
            let mut places = vec![&[][..]; room];
            let (found, rest) = split(&line, &mut places);
            let mut tokens = Tokens::new(&line);
            let expected: Vec<&[u8]> = tokens.by_ref().take(room).collect();
            assert_eq!(places[..found], expected, "{}", line.escape_ascii());
            assert!(Tokens::new(rest).eq(tokens), "{}: {rest:?}", line.escape_ascii());
        }
    }

    #[test]
    fn numbers_stop_at_their_limits() {
        let rows: [(&[u8], Option<u64>); 9] = [
            (b"", None),
            (b"0", Some(0)),
            (b"007", Some(7)),
            (b"18446744073709551615", Some(u64::MAX)),
            (b"18446744073709551616", None),
            (b"00000000000000000000001", Some(1)),
            (b"-1", None),
            (b"+1", None),
            (b"1x", None),
        ];
        for (text, value) in rows {
            assert_eq!(number_u64(text), value, "{}", text.escape_ascii());
        }
        assert_eq!(number_u32(b"4294967295"), Some(u32::MAX));
        assert_eq!(number_u32(b"4294967296"), None);
        assert_eq!(number_i64(b"-9223372036854775808"), Some(i64::MIN));
        assert_eq!(number_i64(b"-9223372036854775809"), None);
        assert_eq!(number_i64(b"9223372036854775807"), Some(i64::MAX));
        assert_eq!(number_i64(b"9223372036854775808"), None);
        assert_eq!(number_i64(b"-"), None);
        assert_eq!(number_i64(b"--1"), None);
    }

    #[test]
    fn first_names_are_whole_tokens() {
        let rows = [
            (&b""[..], Some((name(b""), &b""[..]))),
            (b"ms\0\0 k", Some((name(b"ms\0\0"), b"k"))),
            (b"mn", Some((name(b"mn"), b""))),
            (b"get", Some((name(b"get"), b""))),
            (b"set  k 0 0 1", Some((name(b"set"), b"k 0 0 1"))),
            (b"version", Some((name(b"version"), b""))),
            (b"replace k", Some((name(b"replace"), b"k"))),
            (b"shutdown", Some((name(b"shutdown"), b""))),
            (b"shutdown now", Some((name(b"shutdown"), b"now"))),
            (b"flush_all", None),
        ];
        for (line, expected) in rows {
            assert_eq!(first_name(line), expected, "{}", line.escape_ascii());
        }
        assert_ne!(name(b"ms\0\0"), name(b"ms"));
    }

    #[test]
    fn tokens_ignore_how_many_spaces() {
        let line = Tokens::new(b"  a  bc d ");
        let (tokens, count) = line.take_array::<4>();
        assert_eq!((tokens, count), ([&b"a"[..], b"bc", b"d", b""], 3));
        assert_eq!(line.take_array::<3>().1, 3);
        assert_eq!(line.take_array::<2>().1, 3);
        assert_eq!(line.take_array::<1>().1, 2);
    }
}
