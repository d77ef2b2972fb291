//! Values that are compressed on their way to the SSD (docs/disk-format.md, "Compressed value").
//!
//! A value is cut into frames of 64 KiB, and each is compressed by itself, as a block of LZ4. So
//! whoever compresses or reads a value does at most one frame's work between two points at which
//! others may have the CPU, and the memory for it is bounded by what its entry says. Only a value
//! of one piece is compressed: one crc verifies all that is read of it, before any of it is
//! decompressed.
//!
//! This module knows no medium.

use crate::media::bytes::Reader;
use crate::ssd::pointer::{PIECE_BYTES, Pointer};
use crate::types::BLOCK_BYTES;
use laneway_sync::planted::{Bug, is_planted};
use lz4_flex::block::{compress_into, decompress_into, get_maximum_output_size};
use std::borrow::Cow;

/// So much of a value is compressed by itself.
pub const FRAME_BYTES: usize = 64 << 10;
/// In front of each frame: how long it is as it is stored.
const LENGTH_BYTES: usize = 4;
/// A value is stored compressed where that takes less by one part of so many, and by a block.
const GAIN_PARTS: usize = 8;

/// Whether a value of this length may be compressed: longer than a block, since no fewer blocks are
/// written otherwise, and of one piece, which is written when it is full.
pub fn may_gain(bytes: usize) -> bool {
    BLOCK_BYTES < bytes && bytes < PIECE_BYTES
}

/// A value that is compressed as it comes.
pub struct Compressor {
    stored: Vec<u8>,
    /// What is stored gains enough up to this length.
    stored_bytes_most: usize,
    /// So much of the value is compressed.
    done: usize,
}

impl Compressor {
    /// Of a value of which so many bytes are to come.
    pub fn new(bytes: usize) -> Compressor {
        let blocks = bytes.div_ceil(BLOCK_BYTES);
        let stored_bytes_most =
            (bytes - bytes.div_ceil(GAIN_PARTS)).min(blocks.saturating_sub(1) * BLOCK_BYTES);
        Compressor { stored: Vec::new(), stored_bytes_most, done: 0 }
    }

    /// Compresses the frames that are whole of what is there of the value, and the last one where
    /// that is all of it. False once it gains too little, whatever is to come.
    pub fn go_on(&mut self, value: &[u8], is_all: bool) -> bool {
        while self.done < value.len() {
            let rest = &value[self.done..];
            let frame = &rest[..rest.len().min(FRAME_BYTES)];
            if frame.len() < FRAME_BYTES && !is_all {
                break;
            }
            if 0 < self.done {
                std::thread::yield_now();
            }
            self.put(frame);
            self.done += frame.len();
            if self.stored_bytes_most < self.stored.len() {
                return false;
            }
        }
        true
    }

    fn put(&mut self, frame: &[u8]) {
        let start = self.stored.len();
        let begin = start + LENGTH_BYTES;
        self.stored.resize(begin + get_maximum_output_size(frame.len()), 0);
        let into = &mut self.stored[begin..];
        let bytes = match compress_into(frame, into) {
            Ok(bytes) if bytes < frame.len() => bytes,
            // As it is: known by its length.
            _ => {
                into[..frame.len()].copy_from_slice(frame);
                frame.len()
            }
        };
        self.stored[start..begin].copy_from_slice(&(bytes as u32).to_le_bytes());
        self.stored.truncate(begin + bytes);
    }

    /// What is stored in the value's place.
    pub fn into_stored(self) -> Vec<u8> {
        self.stored
    }
}

/// What is stored of a value that is all there; `None` if it gains too little.
pub fn compressed(value: &[u8]) -> Option<Vec<u8>> {
    let mut compressor = Compressor::new(value.len());
    compressor.go_on(value, true).then(|| compressor.into_stored())
}

/// The value of which these bytes are stored, where it has this length; `None` if they are damaged.
fn decompressed(stored: &[u8], bytes: usize) -> Option<Vec<u8>> {
    let (mut value, mut reader) = (vec![0; bytes], Reader::new(stored));
    for (nth, frame) in value.chunks_mut(FRAME_BYTES).enumerate() {
        if 0 < nth {
            std::thread::yield_now();
        }
        let length = reader.u32()? as usize;
        let from = reader.take(length)?;
        if length == frame.len() {
            frame.copy_from_slice(from);
        } else if decompress_into(from, frame).ok()? != frame.len() {
            return None;
        }
    }
    (reader.len() == 0).then_some(value)
}

/// The value of a pointer, of the bytes that it leads to; `None` if they are damaged.
pub fn value_of<'a>(pointer: &Pointer, stored: &'a [u8]) -> Option<Cow<'a, [u8]>> {
    match pointer.original_bytes {
        0 => Some(Cow::Borrowed(stored)),
        bytes if is_planted(Bug::CompressedServed) => {
            let mut value = stored.to_vec();
            value.resize(bytes as usize, 0);
            Some(Cow::Owned(value))
        }
        bytes => decompressed(stored, bytes as usize).map(Cow::Owned),
    }
}

/// The same of bytes that are handed in.
pub fn value_of_owned(pointer: &Pointer, stored: Vec<u8>) -> Option<Vec<u8>> {
    match pointer.original_bytes {
        0 => Some(stored),
        _ => value_of(pointer, &stored).map(Cow::into_owned),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::media::disk::sim::Random;

    fn text(bytes: usize) -> Vec<u8> {
        (0..)
            .flat_map(|line: u32| format!("line {line} of it; ").into_bytes())
            .take(bytes)
            .collect()
    }

    fn noise(bytes: usize) -> Vec<u8> {
        let mut random = Random::new(5);
        (0..bytes).map(|_| random.below(256) as u8).collect()
    }

    #[test]
    fn a_value_comes_back_whatever_its_length_and_however_it_comes() {
        for bytes in [5000, FRAME_BYTES, FRAME_BYTES + 1, 3 * FRAME_BYTES - 1, PIECE_BYTES - 1] {
            let value = text(bytes);
            let stored = compressed(&value).expect("text gains");
            assert!(stored.len() <= bytes - bytes / GAIN_PARTS, "{bytes}");
            assert_eq!(decompressed(&stored, bytes), Some(value.clone()), "{bytes}");
            for step in [1000, FRAME_BYTES - 1, FRAME_BYTES, 2 * FRAME_BYTES + 7] {
                let mut compressor = Compressor::new(bytes);
                for end in (0..bytes).step_by(step).skip(1) {
                    assert!(compressor.go_on(&value[..end], false));
                    assert_eq!(compressor.done, end / FRAME_BYTES * FRAME_BYTES, "whole frames");
                }
                assert!(compressor.go_on(&value, true));
                assert_eq!(compressor.into_stored(), stored, "{bytes} by {step}");
            }
        }
    }

    #[test]
    fn what_gains_too_little_is_not_compressed_and_a_frame_of_noise_is_as_it_was() {
        assert_eq!(compressed(&noise(100_000)), None);
        assert!(!may_gain(BLOCK_BYTES) && may_gain(BLOCK_BYTES + 1) && !may_gain(PIECE_BYTES));
        // A quarter of it, but no block.
        let value = [noise(4500), text(1500)].concat();
        assert_eq!(compressed(&value), None);
        let value = [text(FRAME_BYTES), noise(FRAME_BYTES), text(FRAME_BYTES)].concat();
        let stored = compressed(&value).expect("two thirds of it are text");
        assert!(stored.windows(64).any(|bytes| bytes == &value[FRAME_BYTES..][..64]));
        assert_eq!(decompressed(&stored, value.len()), Some(value));
    }

    /// A crc stands before all this: here nothing does.
    #[test]
    fn any_bytes_give_a_value_of_the_length_that_was_asked_for_or_none() {
        let value = text(2 * FRAME_BYTES + 100);
        let stored = compressed(&value).expect("text gains");
        for bytes in [0, 1, FRAME_BYTES, value.len() - 1, value.len() + 1, 3 * FRAME_BYTES] {
            assert_eq!(decompressed(&stored, bytes), None, "{bytes}");
        }
        for length in (0..stored.len()).step_by(97) {
            assert_eq!(decompressed(&stored[..length], value.len()), None, "{length}");
        }
        let mut random = Random::new(6);
        for _ in 0..500 {
            let mut damaged = stored.clone();
            for _ in 0..=random.below(4) {
                let at = random.below(damaged.len() as u64) as usize;
                damaged[at] = random.below(256) as u8;
            }
            if let Some(read) = decompressed(&damaged, value.len()) {
                assert_eq!(read.len(), value.len());
            }
        }
    }
}
