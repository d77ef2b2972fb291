//! The log on a disk: writes collect in blocks in memory, and a group writes all that changed,
//! together with its large values, and then syncs both disks, which is one where one cache is
//! before both.
//!
//! The block that was changed last stays in memory, so that the next append, which begins in it,
//! reads nothing: whoever appends must not wait for a disk.
//! That block is written again with the same bytes and more behind them. A disk that tears it
//! leaves, sector by sector, old or new bytes, and where records were acknowledged these are equal.

use super::{Region, Written};
use crate::media::bytes::{Blocks, Spare};
use crate::media::disk::{Barrier, Disk, Write, write_together};
use crate::types::BLOCK_BYTES;
use laneway_sync::meter;
use std::collections::BTreeMap;
use std::io::{self, IoSlice, Write as _};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard};

struct Staged {
    bytes: Box<[u8]>,
    /// Counts changes.
    changes: u64,
    /// How many of them are written.
    written: u64,
    /// The number of the write that had the last of these.
    by: u64,
}

impl Staged {
    fn of(bytes: Box<[u8]>) -> Staged {
        Staged { bytes, changes: 0, written: 0, by: 0 }
    }

    /// Takes as much of the parts as it has room for. Returns how much that is.
    fn change(&mut self, skip: usize, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        let changed = (&mut self.bytes[skip..]).write_vectored(parts)?;
        meter::logged(changed);
        self.changes += 1;
        Ok(changed)
    }

    fn is_changed(&self) -> bool {
        self.written < self.changes
    }
}

#[derive(Default)]
struct State {
    blocks: BTreeMap<u64, Staged>,
    /// Memory of such as were let go.
    spare: Vec<Box<[u8]>>,
    /// Counts writes to the disk.
    writes: u64,
    /// The block that was changed last. Others of its group may lie behind it: a segment's header
    /// has a part at the segment's end where the log has grown.
    newest: u64,
}

impl State {
    /// An empty block.
    fn fresh(&mut self) -> Box<[u8]> {
        match self.spare.pop() {
            Some(mut block) => {
                block.fill(0);
                block
            }
            None => vec![0; BLOCK_BYTES].into(),
        }
    }
}

/// The region.
pub struct WalRegion {
    disk: Arc<dyn Disk>,
    state: Mutex<State>,
    /// The memory of the longest run that was written.
    run: Spare,
    /// A statistic, told without the lock.
    written_bytes: AtomicU64,
}

/// The most that one write of a fence takes.
const RUN_BYTES_MAX: usize = 4 << 20;
/// Blocks whose memory is kept for others: as many as one such write has.
const SPARE_BLOCKS_MAX: usize = RUN_BYTES_MAX / BLOCK_BYTES;

/// Blocks that are read: those in memory, and room for those that are not.
struct Range {
    first: u64,
    blocks: Blocks,
    staged: Vec<Option<Box<[u8]>>>,
}

impl Range {
    /// Whether some are on the disk alone.
    fn is_missing(&self) -> bool {
        self.staged.iter().any(Option::is_none)
    }

    /// Copies the bytes from `at` on.
    fn copy_to(mut self, at: u64, into: &mut [u8]) {
        for (to, staged) in self.blocks.as_mut().chunks_mut(BLOCK_BYTES).zip(&self.staged) {
            if let Some(staged) = staged {
                to.copy_from_slice(staged);
            }
        }
        let skip = (at - self.first * BLOCK_BYTES as u64) as usize;
        into.copy_from_slice(&self.blocks.as_slice()[skip..skip + into.len()]);
    }
}

/// Neighbouring blocks on their way out: number of the first, their bytes, their changes.
struct Run {
    first: u64,
    bytes: Blocks,
    changes: Vec<u64>,
}

impl WalRegion {
    /// On all of `disk`.
    pub fn new(disk: Arc<dyn Disk>) -> WalRegion {
        let (state, run) = (Mutex::default(), Spare::new(1));
        WalRegion { disk, state, run, written_bytes: AtomicU64::new(0) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nobody panics inside")
    }

    fn read_block(&self, block: u64) -> io::Result<Box<[u8]>> {
        let mut blocks = Blocks::zeroed(BLOCK_BYTES);
        self.disk.read_all(block * BLOCK_BYTES as u64, blocks.as_mut())?;
        Ok(blocks.as_slice().into())
    }

    /// Looks at staged blocks first: one that leaves meanwhile is on the disk by then.
    fn range(&self, at: u64, bytes: usize) -> Range {
        let first = at / BLOCK_BYTES as u64;
        let end = (at + bytes as u64).div_ceil(BLOCK_BYTES as u64);
        let state = self.lock();
        let staged =
            (first..end).map(|block| state.blocks.get(&block).map(|s| s.bytes.clone())).collect();
        drop(state);
        Range { first, blocks: Blocks::zeroed((end - first) as usize * BLOCK_BYTES), staged }
    }

    /// What has changed, in runs of neighbours.
    fn changed(&self) -> Vec<Run> {
        let state = self.lock();
        let mut runs: Vec<(u64, Vec<&Staged>)> = Vec::new();
        for (&block, staged) in state.blocks.iter().filter(|(_, staged)| staged.is_changed()) {
            match runs.last_mut() {
                Some((first, run))
                    if *first + run.len() as u64 == block
                        && run.len() < RUN_BYTES_MAX / BLOCK_BYTES =>
                {
                    run.push(staged);
                }
                _ => runs.push((block, vec![staged])),
            }
        }
        let copied = |(first, run): (u64, Vec<&Staged>)| {
            let mut bytes = self.run.take(run.len() * BLOCK_BYTES);
            for (to, staged) in bytes.as_mut().chunks_mut(BLOCK_BYTES).zip(&run) {
                to.copy_from_slice(&staged.bytes);
            }
            Run { first, bytes, changes: run.iter().map(|staged| staged.changes).collect() }
        };
        runs.into_iter().map(copied).collect()
    }

    /// Writes in memory, under one lock but where a block is read first. The rest of a block that
    /// begins with it is kept where `keeps_rest`.
    fn stage(
        &self,
        mut at: u64,
        mut parts: &mut [IoSlice<'_>],
        keeps_rest: bool,
    ) -> io::Result<()> {
        let mut left: usize = parts.iter().map(|part| part.len()).sum();
        let mut state = self.lock();
        while left != 0 {
            let block = at / BLOCK_BYTES as u64;
            let skip = (at % BLOCK_BYTES as u64) as usize;
            state.newest = block;
            let changed = if let Some(staged) = state.blocks.get_mut(&block) {
                staged.change(skip, parts)?
            } else {
                let is_whole = skip == 0 && (BLOCK_BYTES <= left || !keeps_rest);
                let bytes = if is_whole {
                    state.fresh()
                } else {
                    drop(state);
                    let bytes = self.read_block(block)?;
                    state = self.lock();
                    bytes
                };
                // Only one thread writes (the log's lock), so nobody has staged it meanwhile.
                let staged = state.blocks.entry(block).or_insert_with(|| Staged::of(bytes));
                staged.change(skip, parts)?
            };
            IoSlice::advance_slices(&mut parts, changed);
            at += changed as u64;
            left -= changed;
        }
        Ok(())
    }

    /// Notes that the disk has these; the number of their write.
    fn note(&self, runs: &[Run]) -> u64 {
        let mut state = self.lock();
        state.writes += 1;
        let by = state.writes;
        for run in runs {
            self.written_bytes.fetch_add(run.bytes.as_slice().len() as u64, Relaxed);
            for (block, &changes) in (run.first..).zip(&run.changes) {
                if let Some(staged) = state.blocks.get_mut(&block) {
                    (staged.written, staged.by) = (changes, by);
                }
            }
        }
        by
    }

    /// Lets go of what is durable, the newest block apart. Until then it is read from here: what a
    /// disk has whose sync failed nobody knows.
    fn let_go(&self, number: u64) {
        let mut state = self.lock();
        let State { blocks, spare, newest, .. } = &mut *state;
        blocks.retain(|block, staged| {
            let stays = staged.is_changed() || number < staged.by || *block == *newest;
            if !stays && spare.len() < SPARE_BLOCKS_MAX {
                spare.push(std::mem::take(&mut staged.bytes));
            }
            stays
        });
    }
}

impl Region for WalRegion {
    fn bytes(&self) -> u64 {
        self.disk.bytes()
    }

    fn read(&self, at: u64, into: &mut [u8]) -> io::Result<()> {
        let mut range = self.range(at, into.len());
        if range.is_missing() {
            self.disk.read_all(range.first * BLOCK_BYTES as u64, range.blocks.as_mut())?;
        }
        range.copy_to(at, into);
        Ok(())
    }

    fn write(&self, at: u64, from: &[u8]) -> io::Result<()> {
        self.stage(at, &mut [IoSlice::new(from)], true)
    }

    fn append(&self, at: u64, parts: &mut [IoSlice<'_>]) -> io::Result<()> {
        self.stage(at, parts, false)
    }

    fn flush(&self, _at: u64, _bytes: u64) -> io::Result<()> {
        Ok(())
    }

    fn fence(&self, why: Barrier) -> io::Result<()> {
        let written = self.write_with(&[])?;
        self.sync(why, &written)
    }

    fn write_with(&self, values: &[Write<'_>]) -> io::Result<Written> {
        let runs = self.changed();
        let disk = &*self.disk;
        let records = runs.iter().map(|run| Write {
            disk,
            at: run.first * BLOCK_BYTES as u64,
            from: run.bytes.as_slice(),
        });
        let records: Vec<Write<'_>> = records.collect();
        // Before they are written: a hole is none afterwards.
        let is_synced = |record: &Write<'_>| {
            let bytes = record.from.len() as u64;
            values.first().is_some_and(|value| disk.is_synced_by(value.disk, record.at, bytes))
        };
        let is_served = !values.is_empty() && records.iter().all(is_synced);
        write_together(&[&records, values].concat())?;
        let number = self.note(&runs);
        runs.into_iter().for_each(|run| self.run.give(run.bytes));
        Ok(Written { number, is_served })
    }

    fn sync(&self, why: Barrier, written: &Written) -> io::Result<()> {
        if !written.is_served {
            self.disk.sync(why)?;
        }
        self.let_go(written.number);
        Ok(())
    }

    fn disk(&self) -> Option<&dyn Disk> {
        Some(&*self.disk)
    }

    fn newer(&self, ranges: &[std::ops::Range<u64>]) -> Vec<(u64, Box<[u8]>)> {
        let block = BLOCK_BYTES as u64;
        let state = self.lock();
        let staged = ranges
            .iter()
            .flat_map(|range| state.blocks.range(range.start / block..range.end.div_ceil(block)));
        staged.map(|(number, staged)| (number * block, staged.bytes.clone())).collect()
    }

    fn reads_wait(&self) -> bool {
        true
    }

    fn written_bytes(&self) -> u64 {
        self.written_bytes.load(Relaxed)
    }

    fn name(&self) -> &'static str {
        "wal"
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::media::disk::sim::{Faults, Power, SimDisk};

    fn append(region: &WalRegion, at: u64, from: &[u8]) {
        region.append(at, &mut [IoSlice::new(from)]).unwrap();
    }

    #[test]
    fn a_block_that_is_begun_by_an_append_is_not_read_and_one_that_is_written_is_kept() {
        let image = vec![7; 4 * BLOCK_BYTES];
        let disk = SimDisk::from_image(image, Power::new(u64::MAX), 1, Faults::default());
        let region = WalRegion::new(Arc::new(disk));
        let block = |number: usize| {
            let mut bytes = vec![0; BLOCK_BYTES];
            region.read((number * BLOCK_BYTES) as u64, &mut bytes).unwrap();
            [bytes[9], bytes[10], bytes[BLOCK_BYTES - 1]]
        };
        // From within the first block to within the third.
        append(&region, 10, &vec![1; 2 * BLOCK_BYTES]);
        assert_eq!([0, 1, 2].map(block), [[7, 1, 1], [1, 1, 1], [1, 0, 0]]);
        append(&region, (2 * BLOCK_BYTES) as u64 + 10, &[2]);
        assert_eq!(block(2), [1, 2, 0]);
        region.write((3 * BLOCK_BYTES) as u64, &[3; 10]).unwrap();
        assert_eq!(block(3), [3, 7, 7]);
    }

    #[test]
    fn parts_lie_one_behind_the_other_wherever_a_block_ends() {
        const AT: usize = BLOCK_BYTES - 100;
        let bytes: Vec<u8> = (1..=251).cycle().take(2 * BLOCK_BYTES + 200).collect();
        let cuts = [[0, 0], [48, 100], [99, 101], [100, 100 + BLOCK_BYTES], [3000, bytes.len()]];
        for [first, second] in cuts {
            let disk = SimDisk::new(4 * BLOCK_BYTES, Power::new(u64::MAX), 1, Faults::default());
            let region = WalRegion::new(Arc::new(disk));
            let parts = [&bytes[..first], &bytes[first..second], &bytes[second..]];
            region.append(AT as u64, &mut parts.map(IoSlice::new)).unwrap();
            let mut read = [0; 4 * BLOCK_BYTES];
            region.read(0, &mut read).unwrap();
            assert_eq!(read[AT..][..bytes.len()], bytes, "cut at {first} and {second}");
            assert_eq!(read.iter().filter(|byte| **byte != 0).count(), bytes.len());
        }
    }

    #[test]
    fn the_memory_of_a_block_that_was_let_go_is_used_again_and_empty() {
        const BLOCK: u64 = BLOCK_BYTES as u64;
        let disk = SimDisk::new(8 * BLOCK_BYTES, Power::new(u64::MAX), 1, Faults::default());
        let region = WalRegion::new(Arc::new(disk));
        for first in [0, 3] {
            append(&region, first * BLOCK, &[9; 3 * BLOCK_BYTES]);
            region.fence(Barrier::Group).unwrap();
        }
        // But the newest block, of either time.
        assert_eq!(region.lock().spare.len(), 3);
        append(&region, 6 * BLOCK, &[1]);
        assert_eq!(region.lock().spare.len(), 2);
        region.fence(Barrier::Group).unwrap();
        let mut bytes = [7; BLOCK_BYTES];
        region.read(6 * BLOCK, &mut bytes).unwrap();
        assert_eq!((bytes[0], &bytes[1..]), (1, &[0; BLOCK_BYTES - 1][..]));
    }

    #[test]
    fn the_block_that_the_next_append_begins_in_is_kept_whatever_its_group_has_behind_it() {
        const BLOCK: u64 = BLOCK_BYTES as u64;
        let disk = SimDisk::new(8 * BLOCK_BYTES, Power::new(u64::MAX), 1, Faults::default());
        let region = WalRegion::new(Arc::new(disk));
        // A segment of a log that has grown: both parts of its header, and its first record.
        append(&region, 0, &[1; BLOCK_BYTES]);
        append(&region, 7 * BLOCK, &[2; BLOCK_BYTES]);
        append(&region, BLOCK, &[3; 100]);
        region.fence(Barrier::Group).unwrap();
        assert!(region.lock().blocks.keys().eq(&[1]), "the others are on the disk");
        append(&region, BLOCK + 100, &[4; BLOCK_BYTES]);
        region.fence(Barrier::Group).unwrap();
        assert!(region.lock().blocks.keys().eq(&[2]));
    }

    #[test]
    fn what_the_disk_lacks_is_newer_and_with_it_the_disk_is_the_region() {
        const BLOCK: u64 = BLOCK_BYTES as u64;
        let power = Power::new(u64::MAX);
        let disk = SimDisk::new(8 * BLOCK_BYTES, power, 1, Faults::default());
        let region = WalRegion::new(Arc::new(disk));
        region.write(0, &[1; 2 * BLOCK_BYTES]).unwrap();
        region.fence(Barrier::Group).unwrap();
        region.write(BLOCK + 7, &[2; 9]).unwrap();
        region.write(5 * BLOCK - 3, &[3; 6]).unwrap();
        let places =
            |ranges: &[_]| region.newer(ranges).iter().map(|(at, _)| *at).collect::<Vec<_>>();
        assert_eq!(places(&[0..BLOCK, 2 * BLOCK..4 * BLOCK]), [0; 0]);
        assert_eq!(
            places(&[BLOCK + 1..BLOCK + 2, 3 * BLOCK..8 * BLOCK]),
            [1, 4, 5].map(|b| b * BLOCK)
        );
        let (mut all, mut read) =
            (Blocks::zeroed(8 * BLOCK_BYTES), Blocks::zeroed(8 * BLOCK_BYTES));
        region.read(0, all.as_mut()).unwrap();
        let newer = region.newer(&[0..4 * BLOCK, 4 * BLOCK..8 * BLOCK]);
        region.disk().unwrap().read_all(0, read.as_mut()).unwrap();
        for (at, block) in newer {
            read.as_mut()[at as usize..][..BLOCK_BYTES].copy_from_slice(&block);
        }
        assert_eq!(read.as_slice(), all.as_slice());
    }
}
