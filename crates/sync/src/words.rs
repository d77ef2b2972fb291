//! Bytes in words that other threads may be writing: every access is a relaxed atomic load or store
//! of 64 bits, so a racing copy may be torn but is never undefined. Who copies validates afterwards
//! ([`crate::version`]).
//!
//! Words hold bytes in little-endian order, whatever the machine: the layout is shared with other
//! readers of the memory. Offsets and lengths are in bytes; a range outside the slice panics.

use crate::append::Appending;
use crate::prim::{AtomicU64, Ordering::Relaxed};

/// Bytes in a word.
const WORD: usize = 8;

#[inline(always)]
fn load(word: &AtomicU64) -> u64 {
    u64::from_le(word.load(Relaxed))
}

#[inline(always)]
fn store(word: &AtomicU64, value: u64) {
    word.store(value.to_le(), Relaxed);
}

/// The words that hold bytes `offset..offset + len`, and how many bytes of the first come before
/// `offset`.
#[inline(always)]
fn span(words: &[AtomicU64], offset: usize, len: usize) -> (&[AtomicU64], usize) {
    let first = offset / WORD;
    let end = (offset + len).div_ceil(WORD);
    (&words[first..end], offset % WORD)
}

/// Append `len` bytes from `offset` to `out`.
#[inline]
pub fn read_into(words: &[AtomicU64], offset: usize, len: usize, out: &mut Vec<u8>) {
    let mut appending = Appending::new(out, len);
    appending.put_words(words, offset, len);
    appending.keep();
}

/// Fill `out` with the bytes from `offset` on.
#[inline]
pub fn read_to(words: &[AtomicU64], offset: usize, out: &mut [u8]) {
    if out.is_empty() {
        return;
    }
    let (words, skip) = span(words, offset, out.len());
    let first = if skip == 0 { 0 } else { out.len().min(WORD - skip) };
    let (part, out) = out.split_at_mut(first);
    let words = match first {
        0 => words,
        _ => {
            part.copy_from_slice(&load(&words[0]).to_le_bytes()[skip..skip + first]);
            &words[1..]
        }
    };
    let (whole, rest) = out.as_chunks_mut::<WORD>();
    for (chunk, word) in whole.iter_mut().zip(words) {
        *chunk = load(word).to_le_bytes();
    }
    if !rest.is_empty() {
        let bytes = load(&words[whole.len()]).to_le_bytes();
        rest.copy_from_slice(&bytes[..rest.len()]);
    }
}

/// Whether the bytes at `offset` are `bytes`.
#[inline]
pub fn equal(words: &[AtomicU64], offset: usize, bytes: &[u8]) -> bool {
    if bytes.is_empty() {
        return true;
    }
    let (words, skip) = span(words, offset, bytes.len());
    if skip != 0 {
        return equal_shifted(words, skip, bytes);
    }
    let (whole, rest) = bytes.as_chunks::<WORD>();
    for (word, chunk) in words.iter().zip(whole) {
        if load(word) != u64::from_le_bytes(*chunk) {
            return false;
        }
    }
    if rest.is_empty() {
        return true;
    }
    let mask = (1u64 << (8 * rest.len())) - 1;
    load(&words[whole.len()]) & mask == end_of(bytes)
}

/// The same where `skip` bytes of the first word stand before them: each eight lie in two words.
#[inline]
fn equal_shifted(words: &[AtomicU64], skip: usize, bytes: &[u8]) -> bool {
    let (low, high) = (8 * skip as u32, 8 * (WORD - skip) as u32);
    let (whole, rest) = bytes.as_chunks::<WORD>();
    let mut word = load(&words[0]);
    for (next, chunk) in words[1..].iter().zip(whole) {
        let next = load(next);
        if word >> low | next << high != u64::from_le_bytes(*chunk) {
            return false;
        }
        word = next;
    }
    if rest.is_empty() {
        return true;
    }
    let next = words.get(whole.len() + 1).map_or(0, load);
    let mask = (1u64 << (8 * rest.len())) - 1;
    (word >> low | next << high) & mask == end_of(bytes)
}

/// The bytes behind the last whole word, as the low bytes of a word; there are some.
#[inline]
fn end_of(bytes: &[u8]) -> u64 {
    let rest = bytes.len() % WORD;
    match bytes.last_chunk::<WORD>() {
        Some(last) => u64::from_le_bytes(*last) >> (8 * (WORD - rest)),
        None => bytes.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte)),
    }
}

/// Write `bytes` at `offset`. The caller alone writes these words; readers may be looking. The
/// other bytes of a word that is only partly covered stay.
#[inline]
pub fn write(words: &[AtomicU64], offset: usize, bytes: &[u8]) {
    if bytes.is_empty() {
        return;
    }
    let (words, skip) = span(words, offset, bytes.len());
    let (mut words, mut bytes) = (words, bytes);
    if skip != 0 {
        let take = bytes.len().min(WORD - skip);
        merge(&words[0], skip, &bytes[..take]);
        words = &words[1..];
        bytes = &bytes[take..];
    }
    let (whole, rest) = bytes.as_chunks::<WORD>();
    for (word, chunk) in words.iter().zip(whole) {
        store(word, u64::from_le_bytes(*chunk));
    }
    if !rest.is_empty() {
        merge(&words[whole.len()], 0, rest);
    }
}

/// Write `parts`, one behind the other, at `offset`, as [`write()`] does with them in one piece: a
/// word that two of them share is stored once. Returns how many bytes they have.
pub fn write_parts<'a>(
    words: &[AtomicU64],
    offset: usize,
    parts: impl Iterator<Item = &'a [u8]>,
) -> usize {
    // Bytes `begun..end` lie in `word` and are not stored yet.
    let (mut begun, mut end, mut word) = (offset, offset, [0u8; WORD]);
    for part in parts {
        let skip = end % WORD;
        let (first, rest) = part.split_at(part.len().min(WORD - skip));
        word[skip..skip + first.len()].copy_from_slice(first);
        end += first.len();
        if begun < end && end.is_multiple_of(WORD) {
            write(words, begun, &word[begun % WORD..]);
            begun = end;
        }
        let (whole, last) = rest.split_at(rest.len() - rest.len() % WORD);
        write(words, end, whole);
        begun += whole.len();
        word[..last.len()].copy_from_slice(last);
        end += rest.len();
    }
    write(words, begun, &word[begun % WORD..][..end - begun]);
    end - offset
}

/// Replace `bytes.len()` bytes of one word from byte `at` on.
#[inline]
fn merge(word: &AtomicU64, at: usize, bytes: &[u8]) {
    let mut all = load(word).to_le_bytes();
    all[at..at + bytes.len()].copy_from_slice(bytes);
    store(word, u64::from_le_bytes(all));
}

/// Copy `len` bytes (a multiple of 8) from one aligned place to another. The caller alone writes
/// `to`.
#[inline]
pub fn copy_words(from: &[AtomicU64], to: &[AtomicU64]) {
    for (from, to) in from.iter().zip(to) {
        to.store(from.load(Relaxed), Relaxed);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_at_any_offset_is_read_back_and_nothing_else_changes() {
        for offset in 0..20 {
            for len in 0..40 {
                let words: Vec<AtomicU64> = (0..8).map(|_| AtomicU64::new(u64::MAX)).collect();
                let bytes: Vec<u8> = (0..len as u8).map(|i| i.wrapping_mul(37)).collect();
                write(&words, offset, &bytes);
                assert!(equal(&words, offset, &bytes), "offset {offset} len {len}");
                let mut out = b"head".to_vec();
                read_into(&words, offset, len, &mut out);
                assert_eq!(&out[..4], b"head");
                assert_eq!(&out[4..], &bytes[..], "offset {offset} len {len}");
                let mut room = vec![1; len];
                read_to(&words, offset, &mut room);
                assert_eq!(room, bytes, "offset {offset} len {len}");
                let mut all = Vec::new();
                read_into(&words, 0, 64, &mut all);
                assert!(all[..offset].iter().all(|&b| b == 255));
                assert!(all[offset + len..].iter().all(|&b| b == 255));
                for at in 0..len {
                    let mut wrong = bytes.clone();
                    wrong[at] ^= 1;
                    assert!(!equal(&words, offset, &wrong), "offset {offset} len {len} at {at}");
                }
            }
        }
    }

    #[test]
    fn parts_are_written_as_their_bytes_in_one_piece_are() {
        let bytes: Vec<u8> = (1..=40).collect();
        let fresh = || (0..8).map(|_| AtomicU64::new(u64::MAX)).collect::<Vec<_>>();
        let all = |words: &[AtomicU64]| words.iter().map(load).collect::<Vec<_>>();
        for (offset, first) in (0..9).flat_map(|at| (0..=40).map(move |first| (at, first))) {
            for second in first..=40 {
                let (whole, parted) = (fresh(), fresh());
                write(&whole, offset, &bytes);
                let parts = [&bytes[..first], &bytes[first..second], &bytes[second..]];
                assert_eq!(write_parts(&parted, offset, parts.into_iter()), bytes.len());
                assert_eq!(all(&parted), all(&whole), "offset {offset} cuts {first} {second}");
            }
        }
    }

    #[test]
    #[should_panic(expected = "out of range")]
    fn a_range_outside_the_words_panics() {
        let words = [AtomicU64::new(0)];
        read_into(&words, 4, 5, &mut Vec::new());
    }
}
