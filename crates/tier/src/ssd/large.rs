//! Large values: written straight to free blocks of the SSD, never over anything, and read in
//! pieces of a megabyte, each verified by its crc (SplitKV, the second path; KVell).
//!
//! A long one is written as it arrives, one of a piece when it is all there: it may be compressed
//! ([`crate::ssd::compress`]). A short one waits in memory for its group, which writes all of its
//! values and its records at once; meanwhile it is read from there.

use crate::media::bytes::{Blocks, Spare};
use crate::media::disk::{Disk, Write};
use crate::ssd::compress::{Compressor, compressed, value_of_owned};
use crate::ssd::pointer::{Extent, PIECE_BYTES, Pointer};
use crate::ssd::value::{Large, WAITING_BYTES_MAX, WAITING_VALUE_BYTES_MAX, room_of};
use crate::store::{Owner, Shared};
use crate::types::{BLOCK_BYTES, Error, Result, doing};
use crc32c::{crc32c, crc32c_append};
use laneway_sync::planted::{Bug, is_planted};
use smallvec::{SmallVec, smallvec};
use std::sync::Arc;

/// Neighbours of a group are written as one up to this length.
const RUN_BYTES_MAX: usize = 1 << 20;
/// The memory of so many such runs is kept for the next group: of what waits where one begins.
pub const SPARE_RUNS_MAX: usize = (WAITING_BYTES_MAX / 2) as usize / RUN_BYTES_MAX;
/// What is asked of the SSD at once of a value that is read.
const READ_STRETCH_BYTES: usize = 256 << 10;
/// What is verified and copied in one go.
const COPY_STRETCH_BYTES: usize = 64 << 10;

/// Bytes on their way to the SSD. Dropped before `finish`, it gives its blocks back.
pub struct LargeWriter<S: AsRef<Shared>> {
    shared: S,
    owner: Owner,
    pointer: Pointer,
    piece: Blocks,
    filled: usize,
    /// Of a value that is to be compressed, and may still gain by that.
    compressor: Option<Compressor>,
}

impl<S: AsRef<Shared>> LargeWriter<S> {
    /// Takes room for about `bytes`; more is taken when more is written.
    pub fn new(shared: S, bytes: u64, owner: Owner) -> Result<LargeWriter<S>> {
        let blocks = u32::try_from(bytes.div_ceil(BLOCK_BYTES as u64))
            .map_err(|_| Error::SsdFull { blocks: bytes / BLOCK_BYTES as u64 })?;
        let extents = shared.as_ref().take_blocks(blocks, owner)?;
        let pointer = Pointer { extents: extents.into(), ..Pointer::default() };
        let piece = Blocks::zeroed((bytes as usize).clamp(1, PIECE_BYTES));
        let compresses = owner == Owner::User && shared.as_ref().compresses(bytes as usize);
        let compressor = compresses.then(|| Compressor::new(bytes as usize));
        Ok(LargeWriter { shared, owner, pointer, piece, filled: 0, compressor })
    }

    /// Appends bytes. Of a value that is compressed whole frames of what has come are.
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
            self.go_on_compressing(false);
            if self.filled == PIECE_BYTES {
                self.write_piece()?;
            }
        }
        Ok(())
    }

    fn go_on_compressing(&mut self, is_all: bool) {
        let there = &self.piece.as_slice()[..self.filled];
        if let Some(compressor) = &mut self.compressor
            && !compressor.go_on(there, is_all)
        {
            self.compressor = None;
        }
    }

    /// The value is all there: what is stored takes its place, where that gains enough.
    fn compress(&mut self) {
        self.go_on_compressing(true);
        let is_in_piece = self.pointer.crcs.is_empty();
        let Some(compressor) = self.compressor.take().filter(|_| is_in_piece) else { return };
        let stored = compressor.into_stored();
        if stored.is_empty() {
            return; // nothing has come
        }
        self.pointer.original_bytes = self.filled as u32;
        self.piece.as_mut()[..stored.len()].copy_from_slice(&stored);
        self.filled = stored.len();
    }

    fn write_piece(&mut self) -> Result<()> {
        let shared = self.shared.as_ref();
        let index = self.pointer.crcs.len();
        self.pointer.bytes += self.filled as u64;
        let needed = self.pointer.bytes.div_ceil(BLOCK_BYTES as u64);
        let held: u64 = self.pointer.extents.iter().map(|e| u64::from(e.blocks)).sum();
        if held < needed {
            let more = shared.take_blocks((needed - held) as u32, self.owner)?;
            self.pointer.extents.extend(more);
        }
        let bytes = self.filled.next_multiple_of(BLOCK_BYTES);
        self.piece.as_mut()[self.filled..bytes].fill(0);
        let (mut nanos, mut from) = (0, &self.piece.as_slice()[..bytes]);
        shared.clocked(&mut nanos, || -> Result<()> {
            for part in self.pointer.parts(index) {
                let (now, later) = from.split_at(part.bytes);
                doing("write a large value", shared.ssd.write_all(part.at, now))?;
                from = later;
            }
            Ok(())
        })?;
        if self.owner == Owner::User && index == 0 && self.filled <= WAITING_VALUE_BYTES_MAX {
            shared.split.spill_took(bytes as u64, nanos);
        }
        shared.counters.ssd_bytes.add(bytes as u64);
        self.pointer.crcs.push(crc32c(&self.piece.as_slice()[..self.filled]));
        self.filled = 0;
        Ok(())
    }

    /// Writes what is left and gives back room that was not used. What the pointer says is durable
    /// after the next sync.
    pub fn finish(mut self) -> Result<Pointer> {
        self.compress();
        self.finish_writing()
    }

    fn finish_writing(mut self) -> Result<Pointer> {
        if 0 < self.filled {
            self.write_piece()?;
        }
        Ok(self.trimmed())
    }

    /// As `finish`, but that a short value waits for its group if there is room for it.
    pub fn finish_for_group(mut self) -> Result<Large> {
        self.compress();
        let held: u64 = self.pointer.extents.iter().map(|e| u64::from(e.blocks)).sum();
        let needed = self.filled.div_ceil(BLOCK_BYTES) as u64;
        let is_all = self.pointer.crcs.is_empty() && needed <= held;
        if !is_all || !self.shared.as_ref().waiting.take(self.filled) {
            return self.finish_writing().map(Large::from);
        }
        let bytes: Arc<[u8]> = self.piece.as_slice()[..self.filled].into();
        self.pointer.bytes = bytes.len() as u64;
        self.pointer.crcs.push(crc32c(&bytes));
        Ok(Large::waiting(self.trimmed(), bytes))
    }

    fn trimmed(&mut self) -> Pointer {
        let mut pointer = std::mem::take(&mut self.pointer);
        let needed = pointer.bytes.div_ceil(BLOCK_BYTES as u64);
        let (kept, spare) = cut(&pointer.extents, needed);
        self.shared.as_ref().space.free(&spare);
        pointer.extents = joined(kept);
        pointer
    }
}

/// A value that is there as a whole and waits for its group, if there is room for it.
pub fn waiting(shared: &Shared, value: &[u8]) -> Result<Option<Large>> {
    if !shared.waiting.take(value.len()) {
        return Ok(None);
    }
    let compressed = if shared.compresses(value.len()) { compressed(value) } else { None };
    let original_bytes = if compressed.is_some() { value.len() as u32 } else { 0 };
    let stored = compressed.as_deref().unwrap_or(value);
    shared.waiting.give(room_of(value.len()) - room_of(stored.len()));
    let blocks = stored.len().div_ceil(BLOCK_BYTES) as u32;
    let extents = match shared.take_blocks(blocks, Owner::User) {
        Ok(extents) => extents,
        Err(error) => {
            shared.waiting.give(room_of(stored.len()));
            return Err(error);
        }
    };
    let (bytes, crcs) = (stored.len() as u64, smallvec![crc32c(stored)]);
    let extents = SmallVec::from_slice(&extents);
    let pointer = Pointer { bytes, extents, crcs, original_bytes };
    Ok(Some(Large::waiting(pointer, stored.into())))
}

/// Values of a group as they go to the SSD: neighbours as one.
#[derive(Default)]
pub struct Runs(Vec<(u64, Blocks)>);

impl Runs {
    /// Of these values; those that do not wait are there already.
    pub fn of(values: &[Arc<Large>], spare: &Spare) -> Runs {
        let mut parts: Vec<(u64, Arc<[u8]>, std::ops::Range<usize>)> = Vec::new();
        for value in values {
            let Some(bytes) = value.bytes_waiting() else { continue };
            let mut from = 0;
            // A value that waits is shorter than a piece.
            for part in value.parts(0) {
                let to = bytes.len().min(from + part.bytes);
                parts.push((part.at, bytes.clone(), from..to));
                from = to;
            }
        }
        parts.sort_unstable_by_key(|(at, ..)| *at);
        let length = |range: &std::ops::Range<usize>| range.len().next_multiple_of(BLOCK_BYTES);
        let mut runs = Runs::default();
        let mut rest = &parts[..];
        while let Some((start, ..)) = rest.first() {
            let mut total = 0;
            let joined = rest.iter().take_while(|(at, _, range)| {
                let fits = *at == start + total as u64 && total + length(range) <= RUN_BYTES_MAX;
                total += if fits { length(range) } else { 0 };
                fits
            });
            let (run, later) = rest.split_at(joined.count());
            let mut blocks = spare.take(total);
            for (at, bytes, range) in run {
                let from = (at - start) as usize;
                let (to, end) = (from + range.len(), from + length(range));
                blocks.as_mut()[from..to].copy_from_slice(&bytes[range.clone()]);
                blocks.as_mut()[to..end].fill(0);
            }
            runs.0.push((*start, blocks));
            rest = later;
        }
        runs
    }

    /// Where each goes on `disk`.
    pub fn writes<'a>(&'a self, disk: &'a dyn Disk) -> Vec<Write<'a>> {
        let write =
            |(at, blocks): &'a (u64, Blocks)| Write { disk, at: *at, from: blocks.as_slice() };
        self.0.iter().map(write).collect()
    }

    /// They are written: their memory is used again.
    pub fn give_back(self, spare: &Spare) {
        self.0.into_iter().for_each(|(_, blocks)| spare.give(blocks));
    }

    /// How many bytes they are.
    pub fn bytes(&self) -> u64 {
        self.0.iter().map(|(_, blocks)| blocks.as_slice().len() as u64).sum()
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
fn joined(extents: Vec<Extent>) -> SmallVec<[Extent; 1]> {
    let mut all: SmallVec<[Extent; 1]> = SmallVec::new();
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
/// would have a server's small requests wait for the whole piece. A piece of one stretch gives it
/// up to nobody: that would cost a short value more than reading it.
pub fn read_piece(ssd: &dyn Disk, pointer: &Pointer, index: usize) -> Result<Option<Vec<u8>>> {
    let bytes = pointer.piece_bytes(index);
    let mut blocks = Blocks::zeroed(bytes);
    let mut at = 0;
    for part in pointer.parts(index) {
        let into = &mut blocks.as_mut()[at..at + part.bytes];
        for (nth, stretch) in into.chunks_mut(READ_STRETCH_BYTES).enumerate() {
            yield_between(nth);
            let from = part.at + (nth * READ_STRETCH_BYTES) as u64;
            doing("read a large value", ssd.read_all(from, stretch))?;
        }
        at += part.bytes;
    }
    let (mut crc, mut piece) = (0, Vec::with_capacity(bytes));
    for (nth, stretch) in blocks.as_slice()[..bytes].chunks(COPY_STRETCH_BYTES).enumerate() {
        yield_between(nth);
        crc = crc32c_append(crc, stretch);
        piece.extend_from_slice(stretch);
    }
    let is_whole = pointer.crcs.get(index) == Some(&crc) || is_planted(Bug::ChecksumIgnored);
    Ok(is_whole.then_some(piece))
}

/// Reads piece `index` of a value, whatever is stored of it; `None` if it is damaged.
pub fn read_value_piece(
    ssd: &dyn Disk,
    pointer: &Pointer,
    index: usize,
) -> Result<Option<Vec<u8>>> {
    let stored = read_piece(ssd, pointer, index)?;
    Ok(stored.and_then(|stored| value_of_owned(pointer, stored)))
}

/// Before a stretch that others come before.
fn yield_between(nth: usize) {
    if 0 < nth {
        std::thread::yield_now();
    }
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
        assert_eq!(joined(kept)[..], [Extent { start: 1, blocks: 4 }]);
        assert_eq!(spare, [Extent { start: 5, blocks: 4 }]);
    }

    #[test]
    fn a_run_in_memory_that_was_used_before_is_zero_behind_each_value() {
        let (spare, mut used) = (Spare::new(1), Blocks::zeroed(3 * BLOCK_BYTES));
        used.as_mut().fill(7);
        let place = used.as_slice().as_ptr();
        spare.give(used);
        let value = |start: u32, bytes: usize| {
            let extents = smallvec![Extent { start, blocks: bytes.div_ceil(BLOCK_BYTES) as u32 }];
            let pointer = Pointer { bytes: bytes as u64, extents, ..Pointer::default() };
            Arc::new(Large::waiting(pointer, vec![1_u8; bytes].into()))
        };
        // Neighbours: the one that is first on the SSD came last.
        let runs = Runs::of(&[value(6, 10), value(4, BLOCK_BYTES + 10)], &spare);
        let [(at, blocks)] = &runs.0[..] else { panic!("they are one run") };
        assert_eq!((*at, blocks.as_slice().as_ptr()), (4 * BLOCK_BYTES as u64, place));
        let behind = [0_u8; BLOCK_BYTES - 10];
        let wanted = [&[1_u8; BLOCK_BYTES + 10][..], &behind, &[1; 10], &behind].concat();
        assert!(blocks.as_slice() == wanted, "bytes of an earlier group");
        runs.give_back(&spare);
        assert_eq!(spare.take(1).as_slice().as_ptr(), place);
    }
}
