//! Memory that devices take directly: whole blocks at a block's boundary.

use laneway_tier::BLOCK_BYTES;

/// Bytes at a multiple of a block.
pub struct Aligned {
    bytes: Vec<u8>,
    start: usize,
    length: usize,
}

impl Aligned {
    /// Zeros, this many, in whole blocks.
    pub fn zeroed(length: usize) -> Aligned {
        assert!(length.is_multiple_of(BLOCK_BYTES), "{length} bytes are no whole blocks");
        let bytes = vec![0; length + BLOCK_BYTES];
        // The vector never grows, so its bytes stay where they are.
        let address = bytes.as_ptr().addr();
        Aligned { start: address.next_multiple_of(BLOCK_BYTES) - address, bytes, length }
    }

    /// The bytes.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + self.length]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_begins_at_a_block_wherever_the_allocator_put_it() {
        for blocks in 1..20 {
            let mut aligned = Aligned::zeroed(blocks * BLOCK_BYTES);
            let bytes = aligned.bytes_mut();
            assert_eq!(
                (bytes.as_ptr().addr() % BLOCK_BYTES, bytes.len()),
                (0, blocks * BLOCK_BYTES)
            );
        }
    }
}
