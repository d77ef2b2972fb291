//! Large values: written straight to free blocks of the SSD, never over anything, and read in
//! pieces of a megabyte, each verified by its crc (SplitKV, the second path; KVell).

use crate::bytes::Blocks;
use crate::disk::Disk;
use crate::pointer::{Extent, PIECE_BYTES, Pointer};
use crate::store::Shared;
use crate::types::{BLOCK_BYTES, Error, Result, doing};
use crc32c::{crc32c, crc32c_append};

/// What is asked of the SSD at once of a value that is read.
const READ_STRETCH_BYTES: usize = 256 << 10;
/// What is verified and copied in one go.
const COPY_STRETCH_BYTES: usize = 64 << 10;

/// Bytes on their way to the SSD. Dropped before `finish`, it gives its blocks back.
pub struct LargeWriter<S: AsRef<Shared>> {
    shared: S,
    pointer: Pointer,
    piece: Blocks,
    filled: usize,
}

impl<S: AsRef<Shared>> LargeWriter<S> {
    /// Takes room for about `bytes`; more is taken when more is written.
    pub fn new(shared: S, bytes: u64) -> Result<LargeWriter<S>> {
        let blocks = u32::try_from(bytes.div_ceil(BLOCK_BYTES as u64))
            .map_err(|_| Error::SsdFull { blocks: bytes / BLOCK_BYTES as u64 })?;
        let extents = shared.as_ref().space.take(blocks)?;
        let pointer = Pointer { bytes: 0, extents, crcs: Vec::new() };
        let piece = Blocks::zeroed((bytes as usize).clamp(1, PIECE_BYTES));
        Ok(LargeWriter { shared, pointer, piece, filled: 0 })
    }

    /// Appends bytes.
    pub fn write(&mut self, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            if self.piece.as_slice().len() < PIECE_BYTES.min(self.filled + bytes.len()) {
                let mut longer = Blocks::zeroed(PIECE_BYTES);
                longer.as_mut()[..self.filled]
                    .copy_from_slice(&self.piece.as_slice()[..self.filled]);
                self.piece = longer;
            }
            let room = self.piece.as_slice().len() - self.filled;
            let (now, later) = bytes.split_at(room.min(bytes.len()));
            self.piece.as_mut()[self.filled..self.filled + now.len()].copy_from_slice(now);
            self.filled += now.len();
            bytes = later;
            if self.filled == PIECE_BYTES {
                self.write_piece()?;
            }
        }
        Ok(())
    }

    fn write_piece(&mut self) -> Result<()> {
        let shared = self.shared.as_ref();
        let index = self.pointer.crcs.len();
        self.pointer.bytes += self.filled as u64;
        let needed = self.pointer.bytes.div_ceil(BLOCK_BYTES as u64);
        let held: u64 = self.pointer.extents.iter().map(|e| u64::from(e.blocks)).sum();
        if held < needed {
            let more = shared.space.take((needed - held) as u32)?;
            self.pointer.extents.extend(more);
        }
        let bytes = self.filled.next_multiple_of(BLOCK_BYTES);
        self.piece.as_mut()[self.filled..bytes].fill(0);
        let mut from = &self.piece.as_slice()[..bytes];
        for part in self.pointer.parts(index) {
            let (now, later) = from.split_at(part.bytes);
            doing("write a large value", shared.ssd.write_all(part.at, now))?;
            from = later;
        }
        shared.counters.ssd_bytes.add(bytes as u64);
        self.pointer.crcs.push(crc32c(&self.piece.as_slice()[..self.filled]));
        self.filled = 0;
        Ok(())
    }

    /// Writes what is left and gives back room that was not used. What the pointer says is durable
    /// after the next sync.
    pub fn finish(mut self) -> Result<Pointer> {
        if 0 < self.filled {
            self.write_piece()?;
        }
        let mut pointer = std::mem::take(&mut self.pointer);
        let needed = pointer.bytes.div_ceil(BLOCK_BYTES as u64);
        let (kept, spare) = cut(&pointer.extents, needed);
        self.shared.as_ref().space.free(&spare);
        pointer.extents = joined(kept);
        Ok(pointer)
    }
}

impl<S: AsRef<Shared>> Drop for LargeWriter<S> {
    fn drop(&mut self) {
        self.shared.as_ref().space.free(&self.pointer.extents);
    }
}

/// The first `blocks` blocks, and the rest.
fn cut(extents: &[Extent], mut blocks: u64) -> (Vec<Extent>, Vec<Extent>) {
    let (mut kept, mut spare) = (Vec::new(), Vec::new());
    for extent in extents {
        let count = blocks.min(u64::from(extent.blocks)) as u32;
        blocks -= u64::from(count);
        kept.extend((0 < count).then_some(Extent { start: extent.start, blocks: count }));
        let rest = Extent { start: extent.start + count, blocks: extent.blocks - count };
        spare.extend((0 < rest.blocks).then_some(rest));
    }
    (kept, spare)
}

/// Neighbours as one.
fn joined(extents: Vec<Extent>) -> Vec<Extent> {
    let mut all: Vec<Extent> = Vec::new();
    for extent in extents {
        match all.last_mut() {
            Some(last) if last.start + last.blocks == extent.start => last.blocks += extent.blocks,
            _ => all.push(extent),
        }
    }
    all
}

/// Reads piece `index`; `None` if its crc is wrong.
///
/// Between two stretches others may have the CPU: a scheduler that does not take it away by itself
/// would have a server's small requests wait for the whole piece.
pub fn read_piece(ssd: &dyn Disk, pointer: &Pointer, index: usize) -> Result<Option<Vec<u8>>> {
    let bytes = pointer.piece_bytes(index);
    let mut blocks = Blocks::zeroed(bytes);
    let mut at = 0;
    for part in pointer.parts(index) {
        let into = &mut blocks.as_mut()[at..at + part.bytes];
        for (nth, stretch) in into.chunks_mut(READ_STRETCH_BYTES).enumerate() {
            let from = part.at + (nth * READ_STRETCH_BYTES) as u64;
            doing("read a large value", ssd.read_all(from, stretch))?;
            std::thread::yield_now();
        }
        at += part.bytes;
    }
    let (mut crc, mut piece) = (0, Vec::with_capacity(bytes));
    for stretch in blocks.as_slice()[..bytes].chunks(COPY_STRETCH_BYTES) {
        crc = crc32c_append(crc, stretch);
        piece.extend_from_slice(stretch);
        std::thread::yield_now();
    }
    Ok((pointer.crcs.get(index) == Some(&crc)).then_some(piece))
}

/// Whether a large value is whole on the SSD.
pub fn is_there(ssd: &dyn Disk, pointer: &Pointer) -> Result<bool> {
    for index in 0..pointer.pieces() {
        if read_piece(ssd, pointer, index)?.is_none() {
            return Ok(false);
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cutting_and_joining_keep_every_block() {
        let extents = [Extent { start: 1, blocks: 3 }, Extent { start: 4, blocks: 5 }];
        let (kept, spare) = cut(&extents, 4);
        assert_eq!(joined(kept), [Extent { start: 1, blocks: 4 }]);
        assert_eq!(spare, [Extent { start: 5, blocks: 4 }]);
    }
}
