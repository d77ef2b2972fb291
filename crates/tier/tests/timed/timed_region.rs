//! Persistent memory that takes the time that is stated for it, as `timed_disk` has it for disks.
//! What is written goes to the processor's cache and takes none; to flush it does, by its length.

use super::timed_disk::{Latency, Time};
use laneway_tier::disk::Barrier;
use laneway_tier::pm::Region;
use std::io::{self, IoSlice};
use std::sync::Arc;

/// The times of a region.
#[derive(Debug, Clone, Copy)]
pub struct RegionTimes {
    /// Of a read.
    pub read: Latency,
    /// Of a flush of so many bytes.
    pub flush: Latency,
    /// Of a fence, in nanoseconds.
    pub fence_nanos: u64,
}

/// SplitKV, slide 6: random writes of Optane DC persistent memory, flushed and fenced. The slide
/// has no reads; 0.3 µs for a line and 6 GB/s are what others measured.
pub const OPTANE_MEMORY: RegionTimes = RegionTimes {
    read: Latency(&[(64, 300), (4 << 10, 980), (1 << 20, 175_000)]),
    flush: Latency(&[
        (64, 180),
        (256, 200),
        (1 << 10, 430),
        (4 << 10, 1_050),
        (16 << 10, 3_900),
        (64 << 10, 15_500),
        (256 << 10, 61_880),
        (1 << 20, 247_000),
        (4 << 20, 1_440_000),
        (16 << 20, 6_840_000),
    ]),
    fence_nanos: 0,
};

/// The region. A group is flushed as in memory; where the log is on a disk, time that disk.
pub struct TimedRegion {
    inner: Arc<dyn Region>,
    times: RegionTimes,
    time: Arc<Time>,
}

impl TimedRegion {
    /// In front of `inner`, which should take no time of its own and lie on no disk.
    pub fn new(inner: Arc<dyn Region>, times: RegionTimes, time: Arc<Time>) -> TimedRegion {
        assert!(inner.disk().is_none(), "the times of a log on a disk are those of the disk");
        TimedRegion { inner, times, time }
    }
}

impl Region for TimedRegion {
    fn bytes(&self) -> u64 {
        self.inner.bytes()
    }

    fn read(&self, at: u64, into: &mut [u8]) -> io::Result<()> {
        self.time.pass(self.times.read.of(into.len() as u64));
        self.inner.read(at, into)
    }

    fn write(&self, at: u64, from: &[u8]) -> io::Result<()> {
        self.inner.write(at, from)
    }

    fn append(&self, at: u64, parts: &mut [IoSlice<'_>]) -> io::Result<()> {
        self.inner.append(at, parts)
    }

    fn load(&self, at: u64) -> u64 {
        self.inner.load(at)
    }

    fn store(&self, at: u64, word: u64) -> io::Result<()> {
        self.inner.store(at, word)
    }

    fn flush(&self, at: u64, bytes: u64) -> io::Result<()> {
        self.time.pass(self.times.flush.of(bytes));
        self.inner.flush(at, bytes)
    }

    fn fence(&self, why: Barrier) -> io::Result<()> {
        self.time.pass(self.times.fence_nanos);
        self.inner.fence(why)
    }

    fn reads_wait(&self) -> bool {
        self.inner.reads_wait()
    }

    fn written_bytes(&self) -> u64 {
        self.inner.written_bytes()
    }

    fn name(&self) -> &'static str {
        self.inner.name()
    }
}

mod tests {
    use super::*;
    use laneway_tier::disk::sim::{Faults, Power};
    use laneway_tier::pm::sim::SimRegion;

    #[test]
    fn a_flush_takes_its_time_and_makes_durable_and_a_write_takes_none() {
        let power = Power::new(u64::MAX);
        let inner = Arc::new(SimRegion::new(8192, power, Faults::default()));
        let time = Time::counted();
        let region = TimedRegion::new(inner.clone(), OPTANE_MEMORY, time.clone());
        region.write(64, &[7; 256]).unwrap();
        assert_eq!(time.now(), 0);
        region.flush(64, 256).unwrap();
        region.fence(Barrier::Group).unwrap();
        assert_eq!(time.now(), 200, "slide 6");
        assert!((0..20).all(|seed| inner.crash_image(seed)[64..320] == [7; 256]));
        let mut back = [0; 64];
        region.read(64, &mut back).unwrap();
        assert_eq!((back, time.now()), ([7; 64], 500));
    }
}
