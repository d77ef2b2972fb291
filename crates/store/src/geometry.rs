//! Sizes: chunks, slab classes, blocks. This is pure arithmetic.
//!
//! Slots grow by 8 bytes up to 256, and by an eighth of an octave from there, so that rounding
//! wastes 7 bytes of a short record at most, and of a longer one an eighth, and 6 % on average.
//! Slots of more than an eighth of a chunk are stretched to share it evenly. The largest class
//! holds the blocks that large items are made of. Unit: bytes.

/// Smallest slot: a header, a key, a value of a few bytes.
pub const SLOT_BYTES_MIN: usize = 24;

/// A record up to this size is small: contiguous, in one slot. Fixed, and unrelated to the lanes'
/// threshold.
pub const SMALL_RECORD_BYTES_MAX: usize = 16 << 10;

/// Blocks of large items are about this large: one slice of a transfer.
pub const BLOCK_BYTES: usize = 32 << 10;

/// Largest chunk.
pub const CHUNK_BYTES_MAX: usize = 256 << 10;
/// Smallest chunk, for stores of a few MiB.
pub const CHUNK_BYTES_MIN: usize = 64 << 10;

/// Chunk size for a memory limit: about 1024 chunks, so that a class with few items strands little.
pub fn chunk_bytes(memory_bytes: u64) -> usize {
    let wanted = (memory_bytes / 1024).next_power_of_two();
    (wanted as usize).clamp(CHUNK_BYTES_MIN, CHUNK_BYTES_MAX)
}

/// Below this size slots grow by so many bytes: most items of a cache are as short. That is eight
/// sizes more than by eighths of an octave. They strand half a chunk each, 0.4 % of a memory of a
/// thousand chunks, and save 4 bytes of an item of 128 to 256, some 2 %.
const FINE_BYTES_END: usize = 256;
const FINE_STEP_BYTES: usize = 8;

/// The slot sizes for chunks of this size, ascending; the last is the block's.
pub fn slot_sizes(chunk_bytes: usize) -> Vec<usize> {
    let mut sizes = Vec::new();
    let mut size = SLOT_BYTES_MIN;
    while size <= BLOCK_BYTES {
        let slots = chunk_bytes / size;
        let stretched = if slots <= 64 { (chunk_bytes / slots) & !7 } else { size };
        if sizes.last().is_none_or(|&last| last < stretched) {
            sizes.push(stretched);
        }
        size += match size < FINE_BYTES_END {
            true => FINE_STEP_BYTES,
            false => (1 << size.ilog2()) / 8,
        };
    }
    if sizes.last() != Some(&BLOCK_BYTES) {
        sizes.push(BLOCK_BYTES);
    }
    sizes
}

/// Numbers of size classes that tools of memcached's know: 1 to 63.
const CLASS_NUMBERS: usize = 63;

/// The number by which a class is told, of so many: from 1, ascending with the size. Where there
/// are more classes than numbers, pairs of the smallest sizes share one.
pub fn class_number(class: usize, classes: usize) -> u32 {
    let pairs = classes.saturating_sub(CLASS_NUMBERS);
    let before = if class < 2 * pairs { class / 2 } else { class - pairs };
    before as u32 + 1
}

/// The slot sizes that the last piece of an item of several pieces is rounded up to (or to a
/// block): few, as every class in use holds a chunk at least, and the rounding is small beside the
/// blocks before it.
const TAIL_BYTES: [usize; 4] = [2 << 10, 4 << 10, 8 << 10, 16 << 10];

/// The slot size for the last piece of an item of several pieces.
pub fn tail_bytes(piece_bytes: usize) -> usize {
    TAIL_BYTES.into_iter().find(|&bytes| piece_bytes <= bytes).unwrap_or(BLOCK_BYTES)
}

/// Division of an offset in a chunk by the slot size, without dividing.
#[derive(Debug, Clone, Copy)]
pub struct Divider {
    reciprocal: u64,
}

const RECIPROCAL_SHIFT: u32 = 40;

impl Divider {
    /// For divisors up to a block.
    pub fn new(divisor: usize) -> Self {
        Divider { reciprocal: (1u64 << RECIPROCAL_SHIFT).div_ceil(divisor as u64) }
    }

    /// `dividend / divisor`, exact below [`CHUNK_BYTES_MAX`]: the reciprocal is too large by less
    /// than 1, so the product by less than 2^18, and a quotient's fraction is at least 2^40 / 2^15
    /// short of the next whole number.
    #[inline]
    pub fn divide(self, dividend: usize) -> usize {
        ((dividend as u64 * self.reciprocal) >> RECIPROCAL_SHIFT) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::class_number;

    #[test]
    fn numbers_of_classes_ascend_without_gaps_to_63_at_most() {
        for classes in [1, 62, 63, 64, 76, 126] {
            let numbers: Vec<u32> = (0..classes).map(|of| class_number(of, classes)).collect();
            assert_eq!((numbers[0], numbers[classes - 1]), (1, classes.min(63) as u32));
            assert!(numbers.windows(2).all(|two| two[1] - two[0] <= 1), "{numbers:?}");
            let largest = numbers.iter().rev().take_while(|&&number| number > 40).count();
            assert!(classes > 80 || largest == classes.min(63).saturating_sub(40), "{numbers:?}");
        }
    }

    use super::*;

    #[test]
    fn every_size_has_a_slot_and_little_is_wasted() {
        for chunk in [CHUNK_BYTES_MIN, CHUNK_BYTES_MIN * 2, CHUNK_BYTES_MAX] {
            let sizes = slot_sizes(chunk);
            assert!(sizes.len() < 255, "a class number is one byte: {}", sizes.len());
            assert!(sizes.is_sorted() && sizes.iter().all(|s| s % 8 == 0));
            assert_eq!(sizes.last(), Some(&BLOCK_BYTES));
            assert!(sizes.iter().any(|s| (SMALL_RECORD_BYTES_MAX..BLOCK_BYTES).contains(s)));
            for pair in sizes.windows(2).filter(|p| p[0] > 128 && chunk / p[0] > 8) {
                assert!(pair[1] as f64 / pair[0] as f64 <= 1.2, "{chunk}: {pair:?}");
            }
            for &size in &sizes {
                let waste = (chunk % size) as f64 / chunk as f64;
                assert!(waste < 0.02, "{chunk} / {size} wastes {waste}");
            }
        }
    }

    #[test]
    fn a_short_record_wastes_less_than_a_word() {
        for chunk in [CHUNK_BYTES_MIN, CHUNK_BYTES_MAX] {
            let sizes = slot_sizes(chunk);
            for bytes in SLOT_BYTES_MIN..=FINE_BYTES_END {
                let slot = sizes.iter().find(|&&size| bytes <= size).expect("a slot for it");
                assert!(slot - bytes < 8, "{bytes} bytes in {slot}");
            }
        }
    }

    #[test]
    fn division_by_reciprocal_is_exact() {
        for divisor in slot_sizes(CHUNK_BYTES_MAX) {
            let divider = Divider::new(divisor);
            for dividend in 0..CHUNK_BYTES_MAX {
                assert_eq!(divider.divide(dividend), dividend / divisor, "{dividend} / {divisor}");
            }
        }
    }
}
