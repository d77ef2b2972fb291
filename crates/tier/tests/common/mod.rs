//! A simulated machine that stores lie on, small enough to crash thousands of times.
#![allow(dead_code)] // each test file uses its part

use laneway_tier::disk::sim::{Faults, Power, SimDisk};
use laneway_tier::disk::{Barrier, Disk};
use laneway_tier::pm::Region;
use laneway_tier::pm::sim::SimRegion;
use laneway_tier::pm::wal::WalRegion;
use laneway_tier::{Durability, Media, MigrateBy, Report, Result, Settings, Tier, WhenFull};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

pub const SEGMENT_BYTES: u32 = 16 << 10;
pub const PM_BYTES: usize = 10 * SEGMENT_BYTES as usize;
pub const SSD_BYTES: usize = 2 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Simulated persistent memory.
    Pm,
    /// The same without any flush.
    PmDeaf,
    /// Simulated persistent memory, with the index in it.
    PmFair,
    /// The same without any flush.
    PmFairDeaf,
    /// The log on a simulated disk.
    Wal,
    /// The same, behind one cache with the SSD.
    WalBeside,
}

impl Kind {
    /// Whether the index is in persistent memory.
    pub fn is_fair(self) -> bool {
        matches!(self, Kind::PmFair | Kind::PmFairDeaf)
    }
}

enum Log {
    Pm(Arc<SimRegion>),
    Wal(Arc<SimDisk>),
}

/// Power, and two media on it.
pub struct Machine {
    pub power: Arc<Power>,
    kind: Kind,
    log: Log,
    pub ssd: Arc<SimDisk>,
}

/// Counts reads.
pub struct Counting(pub Arc<SimDisk>, pub Arc<AtomicU64>);

impl Disk for Counting {
    fn bytes(&self) -> u64 {
        self.0.bytes()
    }

    fn read_some(&self, at: u64, into: &mut [u8]) -> io::Result<usize> {
        self.1.fetch_add(1, Relaxed);
        self.0.read_some(at, into)
    }

    fn write_some(&self, at: u64, from: &[u8]) -> io::Result<usize> {
        self.0.write_some(at, from)
    }

    fn sync(&self, why: Barrier) -> io::Result<()> {
        self.0.sync(why)
    }
}

impl Machine {
    pub fn new(kind: Kind, faults: &Faults) -> Machine {
        Machine::sized(kind, faults, SSD_BYTES)
    }

    /// With an SSD of so many bytes.
    pub fn sized(kind: Kind, faults: &Faults, ssd_bytes: usize) -> Machine {
        // Half of the memory is the index's, where it is there.
        let pm_bytes = if kind.is_fair() { 2 * PM_BYTES } else { PM_BYTES };
        Machine::of(kind, faults, u64::MAX, vec![0; pm_bytes], vec![0; ssd_bytes])
    }

    pub fn of(kind: Kind, faults: &Faults, fails_at: u64, log: Vec<u8>, ssd: Vec<u8>) -> Machine {
        let power = Power::new(fails_at);
        let disk = |image| SimDisk::from_image(image, power.clone(), fails_at, faults.clone());
        let region = |image| SimRegion::from_image(image, power.clone(), faults.clone());
        let log = match kind {
            Kind::Pm | Kind::PmFair => Log::Pm(Arc::new(region(log))),
            Kind::PmDeaf | Kind::PmFairDeaf => Log::Pm(Arc::new(region(log).without_flushes())),
            Kind::Wal | Kind::WalBeside => Log::Wal(Arc::new(disk(log))),
        };
        let ssd = match &log {
            Log::Wal(log) if kind == Kind::WalBeside => disk(ssd).beside(log),
            _ => disk(ssd),
        };
        let ssd = Arc::new(ssd);
        Machine { power, kind, log, ssd }
    }

    /// One of the states that a loss of power leaves, on a machine of its own.
    pub fn crashed(&self, seed: u64, faults: &Faults, fails_at: u64) -> Machine {
        let log = match &self.log {
            Log::Pm(region) => region.crash_image(seed),
            Log::Wal(disk) => disk.crash_image(seed),
        };
        Machine::of(self.kind, faults, fails_at, log, self.ssd.crash_image(seed ^ 0x55))
    }

    /// The same on media that are longer by so many bytes, with a power of its own.
    pub fn longer(&self, faults: &Faults, fails_at: u64, more: (usize, usize)) -> Machine {
        let (mut log, mut ssd) = self.images();
        log.resize(log.len() + more.0, 0);
        ssd.resize(ssd.len() + more.1, 0);
        Machine::of(self.kind, faults, fails_at, log, ssd)
    }

    /// What both media hold: log, SSD.
    pub fn images(&self) -> (Vec<u8>, Vec<u8>) {
        let log = match &self.log {
            Log::Pm(region) => region.image(),
            Log::Wal(disk) => disk.image(),
        };
        (log, self.ssd.image())
    }

    pub fn media(&self) -> Media {
        let region: Arc<dyn Region> = match &self.log {
            Log::Pm(region) => region.clone(),
            Log::Wal(disk) => Arc::new(WalRegion::new(disk.clone())),
        };
        Media { region, ssd: self.ssd.clone() }
    }

    /// The disk that the log is on.
    pub fn log_disk(&self) -> Arc<SimDisk> {
        match &self.log {
            Log::Wal(disk) => disk.clone(),
            Log::Pm(_) => panic!("the log is on no disk"),
        }
    }

    pub fn set_log_faults(&self, faults: Faults) {
        self.log_disk().set_faults(faults);
    }

    pub fn open(&self, settings: Settings) -> Result<(Tier, Report)> {
        Tier::open(self.media(), settings, 0x1234_5678_9abc_def0, &mut |_, _| {})
    }
}

pub fn settings() -> Settings {
    Settings {
        split_bytes: 1024,
        split_adapts: false,
        segment_bytes: SEGMENT_BYTES,
        compress_from: None,
        table_bytes: 8 << 10,
        durability: Durability::Ack,
        migrate_by: Some(MigrateBy::Hotness),
        when_full: WhenFull::Refuse,
        migrate_percent: 60,
        checkpoint_bytes: 40 << 10,
        index: None,
        pad_groups: false,
        accept_lost_log: false,
        background: false,
    }
}

/// The slot of the segment whose header has the highest generation, in a log of such segments.
pub fn newest_slot(log: &[u8], segment_bytes: u32) -> usize {
    let slots = log.chunks(segment_bytes as usize).enumerate();
    let generation = |bytes: &[u8]| u64::from_le_bytes(bytes[24..32].try_into().unwrap());
    slots.max_by_key(|(_, bytes)| generation(bytes)).unwrap().0
}

/// A value that tells which write it comes from, in every part.
pub fn value(version: u64, bytes: usize) -> Vec<u8> {
    (0..bytes as u64).map(|at| (version.wrapping_mul(31) + at * 7 + (at >> 8)) as u8).collect()
}
