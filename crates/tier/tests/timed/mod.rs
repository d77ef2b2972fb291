//! A machine whose media take stated times, which are counted: a run repeats exactly, and what it
//! took is what the media did.
#![allow(dead_code)] // each test file uses its part

pub mod timed_disk;
pub mod timed_region;

use laneway_tier::disk::Disk;
use laneway_tier::disk::sim::{Faults, Power, Random, SimDisk};
use laneway_tier::pm::Region;
use laneway_tier::pm::sim::SimRegion;
use laneway_tier::pm::wal::WalRegion;
use laneway_tier::{Media, Settings, Tier};
use std::sync::Arc;
use timed_disk::{DiskTimes, Time, TimedDisk};
use timed_region::{OPTANE_MEMORY, TimedRegion};

/// YCSB's constant.
const ZIPF_EXPONENT: f64 = 0.99;
/// Ranks times this are numbers in another order.
const SCRAMBLE: usize = 7919;

/// Draws items by number.
pub struct Draws {
    /// Sums of weights up to each rank.
    sums: Vec<f64>,
    random: Random,
}

impl Draws {
    pub fn new(records: usize, is_zipf: bool) -> Draws {
        let exponent = if is_zipf { ZIPF_EXPONENT } else { 0.0 };
        let mut sum = 0.0;
        let sums = (1..=records).map(|rank| {
            sum += (rank as f64).powf(-exponent);
            sum
        });
        Draws { sums: sums.collect(), random: Random::new(7) }
    }

    /// By popularity, from 0 on.
    pub fn rank(&mut self) -> usize {
        let records = self.sums.len();
        let share = self.random.below(1 << 32) as f64 / (1_u64 << 32) as f64;
        let at = share * self.sums[records - 1];
        self.sums.partition_point(|sum| *sum <= at).min(records - 1)
    }

    /// The number of the item of a drawn rank.
    pub fn number(&mut self) -> usize {
        let rank = self.rank();
        scrambled(rank, self.sums.len())
    }
}

/// Numbers below `records` in an order that has nothing to do with them.
pub fn scrambled(nth: usize, records: usize) -> usize {
    nth * SCRAMBLE % records
}

/// In the order of their numbers.
pub fn key(number: usize) -> [u8; 16] {
    let mut key = *b"user000000000000";
    key[4..].copy_from_slice(format!("{number:012}").as_bytes());
    key
}

/// Where the log is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Log {
    /// In persistent memory (SplitKV, slide 6).
    Memory,
    /// On a disk like the SSD, behind one cache with it.
    Beside,
}

/// A store on timed media, and their time.
pub struct Timed {
    /// What the store is lent as its clock: the first of `times`.
    pub time: Arc<Time>,
    /// One for each disk that the media are timed as.
    pub times: Vec<Arc<Time>>,
    pub tier: Tier,
}

fn sim_disk(bytes: usize, power: &Arc<Power>) -> SimDisk {
    SimDisk::new(bytes, power.clone(), 1, Faults::default())
}

/// Memory with the times of slide 6.
pub fn memory(bytes: usize, time: &Arc<Time>) -> TimedRegion {
    let inner = SimRegion::new(bytes, Power::new(u64::MAX), Faults::default());
    TimedRegion::new(Arc::new(inner), OPTANE_MEMORY, time.clone())
}

/// A disk with these times.
pub fn disk(bytes: usize, times: DiskTimes, time: &Arc<Time>) -> TimedDisk {
    let inner = sim_disk(bytes, &Power::new(u64::MAX));
    TimedDisk::new(Arc::new(inner), times, time.clone())
}

impl Timed {
    /// A new store.
    pub fn open(log: Log, times: DiskTimes, bytes: (usize, usize), settings: Settings) -> Timed {
        Timed::open_as_each(log, &[times], bytes, settings)
    }

    /// A new store whose media are timed as each of these disks, every one by a time of its own.
    pub fn open_as_each(
        log: Log,
        disks: &[DiskTimes],
        (log_bytes, ssd_bytes): (usize, usize),
        settings: Settings,
    ) -> Timed {
        let times: Vec<Arc<Time>> = disks.iter().map(|_| Time::counted()).collect();
        let timed = |inner: Arc<dyn Disk>| {
            disks.iter().zip(&times).fold(inner, |inner, (disk, time)| -> Arc<dyn Disk> {
                Arc::new(TimedDisk::new(inner, *disk, time.clone()))
            })
        };
        let (region, ssd): (Arc<dyn Region>, Arc<dyn Disk>) = match log {
            Log::Memory => {
                let ssd = Arc::new(sim_disk(ssd_bytes, &Power::new(u64::MAX)));
                let first: Arc<dyn Region> = Arc::new(memory(log_bytes, &times[0]));
                let region = times[1..].iter().fold(first, |inner, time| -> Arc<dyn Region> {
                    Arc::new(TimedRegion::new(inner, OPTANE_MEMORY, time.clone()))
                });
                (region, timed(ssd))
            }
            Log::Beside => {
                let power = Power::new(u64::MAX);
                let log = Arc::new(sim_disk(log_bytes, &power));
                let ssd = Arc::new(sim_disk(ssd_bytes, &power).beside(&log));
                (Arc::new(WalRegion::new(timed(log))), timed(ssd))
            }
        };
        let media = Media { region, ssd };
        let tier = Tier::open(media, settings, 0x7133, &mut |_, _| {}).unwrap().0;
        let time = times[0].clone();
        let clock = time.clone();
        tier.lend_clock(Box::new(move || clock.now()));
        Timed { time, times, tier }
    }

    /// Does what is due; on a machine a thread does it meanwhile.
    pub fn maintain(&self) {
        while self.tier.maintain().unwrap() {}
    }
}
