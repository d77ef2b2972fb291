//! Whether writers who wait for a disk are served sooner with a place and a flush of their own each
//! (a log with two active segments) or in one group that they share (the tier's log as it is).
//!
//! A record is a block of 4 KB, written past the page cache to a file whose blocks were written
//! before, and then synced. In a shared group one block is written for all who came, as short
//! records are; the next group is written while a small one is synced, at most two are under way,
//! and they are synced in their order, as `tier::log::group` does it. Nothing else is done: no
//! record is made, no index changed. So this is the most that two segments could gain.

use crate::median;
use rustix::fs::OFlags;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

pub const BLOCK_BYTES: u64 = 4096;
/// Of each writer's place in the file.
const REGION_BLOCKS: u64 = 2048;
const WRITERS: [usize; 4] = [1, 2, 4, 16];
const WRITERS_MAX: u64 = 16;
/// Blocks of the file.
pub const BLOCKS: u64 = WRITERS_MAX * REGION_BLOCKS;
/// As many groups are under way at most, and one where the last has more records than this: their
/// writers come back together.
const GROUPS_MAX: u64 = 2;
const OVERLAPPED_RECORDS_MAX: u64 = 2;

#[repr(align(4096))]
pub struct Block(pub [u8; BLOCK_BYTES as usize]);

impl Block {
    pub fn new() -> Box<Block> {
        Box::new(Block([7; BLOCK_BYTES as usize]))
    }

    /// Fails if this is not what was written.
    pub fn check(&self) -> io::Result<()> {
        let is_right = self.0.iter().all(|byte| *byte == 7);
        is_right.then_some(()).ok_or_else(|| io::Error::other("a block was read wrongly"))
    }
}

/// How a record becomes durable.
#[derive(Clone, Copy, Debug)]
enum Way {
    /// With those of the others.
    Shared,
    /// By itself: written and then synced.
    Own,
    /// By itself: written so that it is durable when the write ends (`O_DSYNC`).
    OwnDsync,
}

/// A device that groups are written to.
trait Device: Sync {
    /// Writes the group of this number.
    fn write(&self, group: u64) -> io::Result<()>;
    /// Makes durable what was written.
    fn sync(&self) -> io::Result<()>;
}

#[derive(Default)]
struct State {
    /// Records that there are, that are in a group, and that are durable.
    appended: u64,
    grouped: u64,
    durable: u64,
    /// Groups, and how many records the last has.
    begun: u64,
    settled: u64,
    group_records: u64,
    is_writing: bool,
    has_failed: bool,
}

/// Group commit without a thread of its own.
#[derive(Default)]
struct Groups {
    state: Mutex<State>,
    changed: Condvar,
}

impl Groups {
    /// Makes one more record durable, and whatever else waits if nobody does.
    fn commit(&self, device: &impl Device) -> io::Result<()> {
        let mut state = self.state.lock().expect("nobody panics inside");
        state.appended += 1;
        let own = state.appended;
        loop {
            if own <= state.durable {
                return Ok(());
            }
            if state.has_failed {
                return Err(io::Error::other("another writer's group failed"));
            }
            let may_overlap = state.group_records <= OVERLAPPED_RECORDS_MAX;
            let most = if may_overlap { GROUPS_MAX } else { 1 };
            let may_begin = !state.is_writing && state.begun < state.settled + most;
            if state.grouped < own && may_begin {
                break;
            }
            state = self.changed.wait(state).expect("nobody panics inside");
        }
        state.is_writing = true;
        state.begun += 1;
        state.group_records = state.appended - state.grouped;
        state.grouped = state.appended;
        let (group, records) = (state.begun, state.grouped);
        drop(state);
        let written = device.write(group);
        let mut state = self.state.lock().expect("nobody panics inside");
        state.is_writing = false;
        self.changed.notify_all();
        while state.settled + 1 < group && !state.has_failed {
            state = self.changed.wait(state).expect("nobody panics inside");
        }
        drop(state);
        let synced = written.and_then(|()| device.sync());
        let mut state = self.state.lock().expect("nobody panics inside");
        match synced {
            Ok(()) => (state.settled, state.durable) = (group, records),
            Err(_) => state.has_failed = true,
        }
        self.changed.notify_all();
        synced
    }
}

/// The file, opened both ways.
pub struct Disk {
    synced: File,
    dsync: File,
    block: Box<Block>,
}

impl Disk {
    /// A new file whose blocks were all written.
    fn make(path: &Path) -> io::Result<Disk> {
        let open = |flags: OFlags, is_new: bool| {
            let flags = (OFlags::DIRECT | flags).bits().cast_signed();
            OpenOptions::new()
                .read(true)
                .write(true)
                .create_new(is_new)
                .custom_flags(flags)
                .open(path)
        };
        let synced = open(OFlags::empty(), true)?;
        let disk = Disk { dsync: open(OFlags::DSYNC, false)?, synced, block: Block::new() };
        for number in 0..BLOCKS {
            disk.synced.write_all_at(&disk.block.0, number * BLOCK_BYTES)?;
        }
        disk.synced.sync_all()?;
        Ok(disk)
    }

    pub fn file(&self) -> &File {
        &self.synced
    }

    /// The block that all writers write.
    pub fn block(&self) -> &Block {
        &self.block
    }

    /// Where the record of this number goes in a writer's place.
    fn at(writer: u64, number: u64) -> u64 {
        (writer * REGION_BLOCKS + number % REGION_BLOCKS) * BLOCK_BYTES
    }
}

impl Device for Disk {
    fn write(&self, group: u64) -> io::Result<()> {
        self.synced.write_all_at(&self.block.0, Disk::at(0, group))
    }

    fn sync(&self) -> io::Result<()> {
        self.synced.sync_data()
    }
}

/// Microseconds from a record to the next of one writer, on the average.
fn record_us(disk: &Disk, way: Way, writers: usize, time: Duration) -> io::Result<f64> {
    let (groups, stop, records) = (Groups::default(), AtomicBool::new(false), AtomicU64::new(0));
    let write = |writer: u64| -> io::Result<()> {
        let mut number = 0;
        while !stop.load(Relaxed) {
            let (bytes, at) = (&disk.block.0, Disk::at(writer, number));
            match way {
                Way::Shared => groups.commit(disk)?,
                Way::Own => {
                    disk.synced.write_all_at(bytes, at)?;
                    disk.synced.sync_data()?;
                }
                Way::OwnDsync => disk.dsync.write_all_at(bytes, at)?,
            }
            number += 1;
        }
        records.fetch_add(number, Relaxed);
        Ok(())
    };
    let began = Instant::now();
    thread::scope(|scope| {
        let threads: Vec<_> = (0..writers as u64)
            .map(|writer| {
                let write = &write;
                scope.spawn(move || write(writer))
            })
            .collect();
        thread::sleep(time);
        stop.store(true, Relaxed);
        threads.into_iter().try_for_each(|thread| thread.join().expect("it does not panic"))
    })?;
    let elapsed_us = began.elapsed().as_secs_f64() * 1e6;
    Ok(elapsed_us * writers as f64 / records.load(Relaxed).max(1) as f64)
}

/// Does this with a new file, which is removed again.
pub fn on_new(path: &Path, work: impl FnOnce(&Disk) -> io::Result<()>) -> io::Result<()> {
    // A link that leads nowhere is there, too: it is not ours to remove.
    if path.symlink_metadata().is_ok() {
        return Err(io::Error::other(format!("{} is there: name a new file", path.display())));
    }
    let done = Disk::make(path).and_then(|disk| work(&disk));
    // One that could not be opened past the page cache may be there all the same.
    let removed = std::fs::remove_file(path);
    done.and(removed)
}

/// Compares a flush for each writer with one that they share.
pub fn compare_on(disk: &Disk, rounds: u64, time: Duration) -> io::Result<()> {
    println!("writers  shared us  own us  own, O_DSYNC us  own of shared [least..most]");
    for writers in WRITERS {
        let mut times = [const { Vec::new() }; 3];
        let mut ratios = Vec::new();
        for round in 0..rounds {
            let mut ways = [(0, Way::Shared), (1, Way::Own), (2, Way::OwnDsync)];
            // In alternating order.
            if round % 2 == 1 {
                ways.reverse();
            }
            let mut now = [0.0; 3];
            for (nth, way) in ways {
                now[nth] = record_us(disk, way, writers, time)?;
                times[nth].push(now[nth]);
            }
            ratios.push(now[1].min(now[2]) / now[0]);
        }
        ratios.sort_by(f64::total_cmp);
        let [shared, own, dsync] = times.each_mut().map(|times| median(times));
        println!(
            "{writers:>7} {shared:>10.1} {own:>7.1} {dsync:>16.1}  {:.2} [{:.2}..{:.2}]",
            median(&mut ratios),
            ratios[0],
            ratios[ratios.len() - 1]
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts groups that were written and those that were synced. It tells what is wrong by an
    /// error, which the other writers hear of; for one that panics they would wait.
    #[derive(Default)]
    struct Counted {
        written: AtomicU64,
        synced: AtomicU64,
    }

    impl Device for Counted {
        fn write(&self, group: u64) -> io::Result<()> {
            let is_next = self.written.fetch_add(1, Relaxed) + 1 == group;
            is_next.then_some(()).ok_or_else(|| io::Error::other("not one after the other"))
        }

        fn sync(&self) -> io::Result<()> {
            let synced = self.synced.fetch_add(1, Relaxed) + 1;
            let written = self.written.load(Relaxed);
            let is_in_reach = synced <= written && written < synced + GROUPS_MAX;
            is_in_reach.then_some(()).ok_or_else(|| io::Error::other("too many at a time"))
        }
    }

    #[test]
    fn a_record_is_in_a_group_that_was_written_and_synced_and_no_group_is_empty() {
        const RECORDS: u64 = 1000;
        let (groups, device) = (Groups::default(), Counted::default());
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..RECORDS).for_each(|_| groups.commit(&device).unwrap()));
            }
        });
        let state = groups.state.into_inner().unwrap();
        assert_eq!((state.appended, state.durable), (4 * RECORDS, 4 * RECORDS));
        assert!(state.begun == state.settled && state.settled <= 4 * RECORDS);
        assert_eq!(device.synced.into_inner(), state.settled);
    }
}
