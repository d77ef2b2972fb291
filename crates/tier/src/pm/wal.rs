//! The log on a disk: writes collect in blocks in memory, and a fence writes all that changed as
//! one synchronous write (O_DIRECT and RWF_DSYNC on a file).
//!
//! The newest block stays in memory, so that the next group, which begins in it, reads nothing.
//! That block is written again with the same bytes and more behind them. A disk that tears it
//! leaves, sector by sector, old or new bytes, and where records were acknowledged these are equal.

use super::Region;
use crate::bytes::Blocks;
use crate::disk::{Barrier, Disk};
use crate::types::BLOCK_BYTES;
use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};

struct Staged {
    bytes: Box<[u8]>,
    /// Counts writes; 0 when the disk has all of it.
    changes: u64,
}

#[derive(Default)]
struct State {
    blocks: BTreeMap<u64, Staged>,
    written_bytes: u64,
}

/// The region.
pub struct WalRegion {
    disk: Arc<dyn Disk>,
    state: Mutex<State>,
}

/// The most that one write of a fence takes.
const RUN_BYTES_MAX: usize = 4 << 20;

/// Neighbouring blocks on their way out: number of the first, their bytes, their changes.
struct Run {
    first: u64,
    bytes: Blocks,
    changes: Vec<u64>,
}

impl WalRegion {
    /// On all of `disk`.
    pub fn new(disk: Arc<dyn Disk>) -> WalRegion {
        WalRegion { disk, state: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nobody panics inside")
    }

    fn read_block(&self, block: u64) -> io::Result<Box<[u8]>> {
        let mut blocks = Blocks::zeroed(BLOCK_BYTES);
        self.disk.read_all(block * BLOCK_BYTES as u64, blocks.as_mut())?;
        Ok(blocks.as_slice().into())
    }

    /// What has changed, in runs of neighbours.
    fn changed(&self) -> Vec<Run> {
        let state = self.lock();
        let mut runs: Vec<(u64, Vec<&Staged>)> = Vec::new();
        for (&block, staged) in state.blocks.iter().filter(|(_, staged)| staged.changes != 0) {
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
            let mut bytes = Blocks::zeroed(run.len() * BLOCK_BYTES);
            for (to, staged) in bytes.as_mut().chunks_mut(BLOCK_BYTES).zip(&run) {
                to.copy_from_slice(&staged.bytes);
            }
            Run { first, bytes, changes: run.iter().map(|staged| staged.changes).collect() }
        };
        runs.into_iter().map(copied).collect()
    }

    /// Lets go of what the disk has, the newest block apart.
    fn settle(&self, run: &Run) {
        let mut state = self.lock();
        state.written_bytes += run.bytes.as_slice().len() as u64;
        let last = run.first + run.changes.len() as u64 - 1;
        for (block, &changes) in (run.first..).zip(&run.changes) {
            let Some(staged) = state.blocks.get_mut(&block) else { continue };
            if staged.changes == changes {
                staged.changes = 0;
                if block != last {
                    state.blocks.remove(&block);
                }
            }
        }
        // An older "newest" block that nobody wrote to again.
        state.blocks.retain(|&block, staged| staged.changes != 0 || block == last);
    }
}

impl Region for WalRegion {
    fn bytes(&self) -> u64 {
        self.disk.bytes()
    }

    fn read(&self, at: u64, into: &mut [u8]) -> io::Result<()> {
        let first = at / BLOCK_BYTES as u64;
        let end = (at + into.len() as u64).div_ceil(BLOCK_BYTES as u64);
        let skip = (at % BLOCK_BYTES as u64) as usize;
        let mut blocks = Blocks::zeroed((end - first) as usize * BLOCK_BYTES);
        // Staged blocks are looked at first: one that leaves meanwhile is on the disk by then.
        let mut missing = false;
        let staged: Vec<Option<Box<[u8]>>> = {
            let state = self.lock();
            (first..end).map(|block| state.blocks.get(&block).map(|s| s.bytes.clone())).collect()
        };
        missing |= staged.iter().any(Option::is_none);
        if missing {
            self.disk.read_all(first * BLOCK_BYTES as u64, blocks.as_mut())?;
        }
        for (to, staged) in blocks.as_mut().chunks_mut(BLOCK_BYTES).zip(&staged) {
            if let Some(staged) = staged {
                to.copy_from_slice(staged);
            }
        }
        into.copy_from_slice(&blocks.as_slice()[skip..skip + into.len()]);
        Ok(())
    }

    fn write(&self, at: u64, from: &[u8]) -> io::Result<()> {
        let mut at = at;
        let mut from = from;
        while !from.is_empty() {
            let block = at / BLOCK_BYTES as u64;
            let skip = (at % BLOCK_BYTES as u64) as usize;
            let count = from.len().min(BLOCK_BYTES - skip);
            let (now, later) = from.split_at(count);
            let held = self.lock().blocks.contains_key(&block);
            // Only one thread writes (the log's lock), so nobody stages the block meanwhile; one
            // that a fence lets go of meanwhile is read again.
            let fetched = match held || count == BLOCK_BYTES {
                true => None,
                false => Some(self.read_block(block)?),
            };
            let mut state = self.lock();
            let fetched = match (state.blocks.contains_key(&block), fetched) {
                (false, None) if count < BLOCK_BYTES => {
                    drop(state);
                    let bytes = self.read_block(block)?;
                    state = self.lock();
                    Some(bytes)
                }
                (_, fetched) => fetched,
            };
            let staged = state.blocks.entry(block).or_insert_with(|| Staged {
                bytes: fetched.unwrap_or_else(|| vec![0; BLOCK_BYTES].into()),
                changes: 0,
            });
            staged.bytes[skip..skip + count].copy_from_slice(now);
            staged.changes += 1;
            drop(state);
            at += count as u64;
            from = later;
        }
        Ok(())
    }

    fn flush(&self, _at: u64, _bytes: u64) -> io::Result<()> {
        Ok(())
    }

    fn fence(&self, why: Barrier) -> io::Result<()> {
        let runs = self.changed();
        if why == Barrier::Recovery {
            self.disk.sync(why)?;
        }
        for run in runs {
            self.disk.write_all_durable(
                run.first * BLOCK_BYTES as u64,
                run.bytes.as_slice(),
                why,
            )?;
            self.settle(&run);
        }
        Ok(())
    }

    fn reads_wait(&self) -> bool {
        true
    }

    fn written_bytes(&self) -> u64 {
        self.lock().written_bytes
    }

    fn name(&self) -> &'static str {
        "wal"
    }
}
