//! Media that take the time that is stated for them: a disk in front of which every read, write and
//! sync lasts as long as a table says. `timed_region` is the same for persistent memory.
//!
//! The time is counted: nothing waits, and a run repeats exactly. It adds up what the media do,
//! whichever thread asks for it: it is what the work costs the media, not how long a machine with
//! several of them would take.
//!
//! SplitKV's figures are of media that are no longer made; with its slide 6 they can be had.

use laneway_tier::disk::{Barrier, Disk};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// How long an operation takes by its size: points of bytes and nanoseconds, both rising. Between
/// two it lies on the line between them; below the first it takes as long as that; beyond the last
/// it takes as long for each byte as that.
#[derive(Debug, Clone, Copy)]
pub struct Latency(pub &'static [(u64, u64)]);

impl Latency {
    /// In nanoseconds, of an operation of so many bytes.
    pub fn of(self, bytes: u64) -> u64 {
        let points = self.0;
        let above = points.partition_point(|(size, _)| *size < bytes);
        let below = above.checked_sub(1).and_then(|below| points.get(below));
        match (below, points.get(above)) {
            (None, None) => 0,
            (None, Some(&(_, nanos))) => nanos,
            (Some(&(size, nanos)), None) => nanos * bytes / size,
            (Some(&(size, nanos)), Some(&(size_above, nanos_above))) => {
                nanos + (nanos_above - nanos) * (bytes - size) / (size_above - size)
            }
        }
    }
}

/// The times of a disk.
#[derive(Debug, Clone, Copy)]
pub struct DiskTimes {
    /// Of a read.
    pub read: Latency,
    /// Of a write.
    pub write: Latency,
    /// Of a sync, in nanoseconds.
    pub sync_nanos: u64,
}

/// SplitKV, slide 6: random writes of an Optane SSD, which are durable when they end. The slide has
/// no reads; 10 µs for a block and 2.4 GB/s are what the maker says of that drive.
pub const OPTANE_SSD: DiskTimes = DiskTimes {
    read: Latency(&[(4 << 10, 10_000), (1 << 20, 445_000)]),
    write: Latency(&[
        (4 << 10, 14_090),
        (16 << 10, 21_440),
        (64 << 10, 45_790),
        (256 << 10, 145_580),
        (1 << 20, 532_000),
        (4 << 20, 2_091_000),
        (16 << 20, 8_223_000),
    ]),
    sync_nanos: 0,
};

/// A flash drive with a cache that survives a loss of power, as a data sheet has it: 20 µs for a
/// block and 2 GB/s written, 80 µs and 3.2 GB/s read; a sync is a command that has nothing to do.
pub const FLASH_SSD: DiskTimes = DiskTimes {
    read: Latency(&[(4 << 10, 80_000), (1 << 20, 407_000)]),
    write: Latency(&[(4 << 10, 20_000), (1 << 20, 542_000)]),
    sync_nanos: 8_000,
};

/// A virtual machine's disk, as docs/performance-log.md has measured one: a block is written in
/// 50 µs, and durable in 94; 64 KiB in 104.
pub const VIRTUAL_DISK: DiskTimes = DiskTimes {
    read: Latency(&[(4 << 10, 90_000), (64 << 10, 100_000), (1 << 20, 600_000)]),
    write: Latency(&[(4 << 10, 50_000), (64 << 10, 60_000), (1 << 20, 560_000)]),
    sync_nanos: 44_000,
};

/// The time that timed media have taken, in nanoseconds.
pub struct Time(AtomicU64);

impl Time {
    /// Counted from 0.
    pub fn counted() -> Arc<Time> {
        Arc::new(Time(AtomicU64::new(0)))
    }

    /// Nanoseconds that have passed.
    pub fn now(&self) -> u64 {
        // Who compares two times is the thread between whose doings they lie.
        self.0.load(Relaxed)
    }

    /// Lets so many nanoseconds pass.
    pub fn pass(&self, nanos: u64) {
        self.0.fetch_add(nanos, Relaxed);
    }
}

/// The disk. It has no file for the kernel's queue, so that nothing goes past its times.
pub struct TimedDisk {
    inner: Arc<dyn Disk>,
    times: DiskTimes,
    time: Arc<Time>,
}

impl TimedDisk {
    /// In front of `inner`, which should take no time of its own.
    pub fn new(inner: Arc<dyn Disk>, times: DiskTimes, time: Arc<Time>) -> TimedDisk {
        TimedDisk { inner, times, time }
    }
}

impl Disk for TimedDisk {
    fn bytes(&self) -> u64 {
        self.inner.bytes()
    }

    fn read_some(&self, at: u64, into: &mut [u8]) -> io::Result<usize> {
        let bytes = self.inner.read_some(at, into)?;
        self.time.pass(self.times.read.of(bytes as u64));
        Ok(bytes)
    }

    fn write_some(&self, at: u64, from: &[u8]) -> io::Result<usize> {
        let bytes = self.inner.write_some(at, from)?;
        self.time.pass(self.times.write.of(bytes as u64));
        Ok(bytes)
    }

    fn sync(&self, why: Barrier) -> io::Result<()> {
        self.inner.sync(why)?;
        self.time.pass(self.times.sync_nanos);
        Ok(())
    }

    fn is_synced_by(&self, other: &dyn Disk, at: u64, bytes: u64) -> bool {
        self.inner.is_synced_by(other, at, bytes)
    }

    fn cache(&self) -> Option<u64> {
        self.inner.cache()
    }
}

mod tests {
    use super::*;
    use laneway_tier::disk::sim::{Faults, Power, SimDisk};

    const BLOCK: usize = 4096;

    /// A buffer as disks want it.
    #[repr(align(4096))]
    struct Block([u8; BLOCK]);

    fn disk(time: &Arc<Time>) -> TimedDisk {
        let inner = SimDisk::new(16 * BLOCK, Power::new(u64::MAX), 1, Faults::default());
        TimedDisk::new(Arc::new(inner), VIRTUAL_DISK, time.clone())
    }

    #[test]
    fn an_operation_takes_what_the_points_around_its_size_say() {
        let latency = Latency(&[(100, 10), (200, 20), (400, 120)]);
        let sizes = [0, 99, 100, 150, 200, 201, 300, 400, 800];
        assert_eq!(sizes.map(|bytes| latency.of(bytes)), [10, 10, 10, 15, 20, 20, 70, 120, 240]);
        assert_eq!(Latency(&[]).of(7), 0);
        assert_eq!(OPTANE_SSD.write.of(32 << 10), 21_440 + (45_790 - 21_440) / 3);
    }

    #[test]
    fn reads_writes_and_syncs_take_their_times_and_do_what_they_did() {
        let time = Time::counted();
        let disk = disk(&time);
        let mut block = Block([7; BLOCK]);
        disk.write_all(BLOCK as u64, &block.0).unwrap();
        assert_eq!(time.now(), 50_000);
        disk.sync(Barrier::Data).unwrap();
        assert_eq!(time.now(), 94_000, "as measured");
        block.0.fill(0);
        disk.read_all(BLOCK as u64, &mut block.0).unwrap();
        assert_eq!(time.now(), 184_000);
        assert!(block.0.iter().all(|&byte| byte == 7));
        assert!(disk.file().is_none() && disk.bytes() == 16 * BLOCK as u64);
    }
}
