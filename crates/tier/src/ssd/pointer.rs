//! Where a large value lies on the SSD: extents of blocks, and a crc for each piece of a megabyte
//! (docs/disk-format.md, "Pointer").
//!
//! It departs from SplitKV, whose slab slots carry headers on the SSD: the header of a large item
//! is a record in the log, so it shares the group's one flush, a value of 4096 bytes stays one
//! write of one block, and recovery reads no slab.

use crate::media::bytes::{Put, Reader};
use crate::types::{BLOCK_BYTES, VALUE_BYTES_MAX};
use smallvec::SmallVec;

/// A crc covers this much of a value, so that a slice can be verified without the rest.
pub const PIECE_BYTES: usize = 1 << 20;
/// A value lies in at most this many extents.
pub const EXTENTS_MAX: usize = 256;

/// Neighbouring blocks of the SSD.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Extent {
    /// The first.
    pub start: u32,
    /// How many.
    pub blocks: u32,
}

/// Where bytes lie.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pointer {
    /// How many bytes.
    pub bytes: u64,
    /// In this order.
    pub extents: SmallVec<[Extent; 1]>,
    /// One for each piece.
    pub crcs: SmallVec<[u32; 1]>,
    /// The length of the value of which this is stored compressed; 0 if it is stored as it is.
    pub original_bytes: u32,
}

/// A part of a piece: where on the SSD, and how many bytes of blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    /// Byte offset on the SSD.
    pub at: u64,
    /// Whole blocks.
    pub bytes: usize,
}

impl Pointer {
    /// The length of the value, whatever is stored of it.
    pub fn value_bytes(&self) -> u64 {
        match self.original_bytes {
            0 => self.bytes,
            bytes => bytes.into(),
        }
    }

    /// How many pieces. A value of one piece is stored in one, too.
    pub fn pieces(&self) -> usize {
        (self.bytes as usize).div_ceil(PIECE_BYTES)
    }

    /// How many bytes of the value piece `index` holds.
    pub fn piece_bytes(&self, index: usize) -> usize {
        (self.bytes as usize - index * PIECE_BYTES).min(PIECE_BYTES)
    }

    /// The blocks that hold piece `index`.
    pub fn parts(&self, index: usize) -> Vec<Part> {
        let mut skip = (index * PIECE_BYTES / BLOCK_BYTES) as u64;
        let mut left = self.piece_bytes(index).div_ceil(BLOCK_BYTES) as u64;
        let mut parts = Vec::new();
        for extent in &self.extents {
            let blocks = u64::from(extent.blocks);
            if skip < blocks && 0 < left {
                let count = (blocks - skip).min(left);
                let at = (u64::from(extent.start) + skip) * BLOCK_BYTES as u64;
                parts.push(Part { at, bytes: count as usize * BLOCK_BYTES });
                left -= count;
                skip = 0;
            } else {
                skip = skip.saturating_sub(blocks);
            }
        }
        parts
    }

    /// Appends it.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_u64(self.bytes);
        out.put_u32(self.extents.len() as u32);
        out.put_u32(self.crcs.len() as u32 + u32::from(self.original_bytes != 0));
        for extent in &self.extents {
            out.put_u32(extent.start);
            out.put_u32(extent.blocks);
        }
        for &crc in &self.crcs {
            out.put_u32(crc);
        }
        if self.original_bytes != 0 {
            out.put_u32(self.original_bytes);
        }
    }

    /// Reads one that lies within `blocks` blocks and holds at most `bytes_max`.
    pub fn decode(reader: &mut Reader<'_>, blocks: u64, bytes_max: u64) -> Option<Pointer> {
        let bytes = reader.u64()?;
        let (extents, crcs) = (reader.u32()? as usize, reader.u32()? as usize);
        if bytes_max < bytes || reader.len() < extents.checked_mul(8)?.checked_add(crcs * 4)? {
            return None;
        }
        // No value was ever given more; a checkpoint may have more.
        if bytes_max <= VALUE_BYTES_MAX as u64 && EXTENTS_MAX < extents {
            return None;
        }
        let mut pointer = Pointer { bytes, ..Pointer::default() };
        let mut held = 0;
        for _ in 0..extents {
            let extent = Extent { start: reader.u32()?, blocks: reader.u32()? };
            if blocks < u64::from(extent.start) + u64::from(extent.blocks) {
                return None;
            }
            held += u64::from(extent.blocks);
            pointer.extents.push(extent);
        }
        let pieces = pointer.pieces();
        for _ in 0..crcs.min(pieces) {
            pointer.crcs.push(reader.u32()?);
        }
        let is_told = match crcs.checked_sub(pieces) {
            Some(0) => true,
            // One more than there are pieces: the length that it had before it was compressed.
            Some(1) => {
                pointer.original_bytes = reader.u32()?;
                let original = u64::from(pointer.original_bytes);
                (1..original).contains(&bytes) && original < PIECE_BYTES as u64
            }
            _ => false,
        };
        let whole = held == bytes.div_ceil(BLOCK_BYTES as u64) && is_told;
        whole.then_some(pointer)
    }

    /// As a record's body.
    pub fn of_value(body: &[u8], blocks: u64) -> Option<Pointer> {
        let mut reader = Reader::new(body);
        let pointer = Pointer::decode(&mut reader, blocks, VALUE_BYTES_MAX as u64)?;
        (reader.len() == 0).then_some(pointer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use smallvec::smallvec;

    fn pointer() -> Pointer {
        let extents =
            smallvec![Extent { start: 10, blocks: 100 }, Extent { start: 500, blocks: 157 }];
        let (bytes, crcs) = (PIECE_BYTES as u64 + 1, smallvec![1, 2]);
        Pointer { bytes, extents, crcs, original_bytes: 0 }
    }

    #[test]
    fn a_pointer_reads_back_as_it_was() {
        let mut bytes = Vec::new();
        pointer().encode(&mut bytes);
        assert_eq!(Pointer::of_value(&bytes, 1000), Some(pointer()));
        assert_eq!(Pointer::of_value(&bytes, 600), None, "it reaches beyond the SSD");
        assert_eq!(Pointer::of_value(&bytes[..bytes.len() - 1], 1000), None);
    }

    #[test]
    fn a_compressed_value_tells_its_length_and_one_that_cannot_be_is_none() {
        let read = |bytes: u64, original_bytes| {
            let extents = smallvec![Extent { start: 40, blocks: bytes.div_ceil(4096) as u32 }];
            let pointer = Pointer { bytes, extents, crcs: smallvec![7], original_bytes };
            let mut out = Vec::new();
            pointer.encode(&mut out);
            (Pointer::of_value(&out, 1000) == Some(pointer.clone())).then(|| pointer.value_bytes())
        };
        assert_eq!(read(5000, 0), Some(5000));
        assert_eq!(read(5000, 5001), Some(5001));
        assert_eq!(read(5000, PIECE_BYTES as u32 - 1), Some(PIECE_BYTES as u64 - 1));
        for original in [1, 4999, 5000, PIECE_BYTES as u32, u32::MAX] {
            assert_eq!(read(5000, original), None, "{original}");
        }
    }

    #[test]
    fn pieces_cross_extents() {
        let block = BLOCK_BYTES as u64;
        let first = vec![
            Part { at: 10 * block, bytes: 100 * BLOCK_BYTES },
            Part { at: 500 * block, bytes: 156 * BLOCK_BYTES },
        ];
        assert_eq!(pointer().parts(0), first);
        assert_eq!(pointer().parts(1), [Part { at: 656 * block, bytes: BLOCK_BYTES }]);
    }
}
