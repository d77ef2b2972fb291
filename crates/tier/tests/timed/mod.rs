//! A machine whose media take stated times, which are counted: a run repeats exactly, and what it
//! took is what the media did.
#![allow(dead_code)] // each test file uses its part

use laneway_tier::disk::Disk;
use laneway_tier::disk::sim::{Faults, Power, SimDisk};
use laneway_tier::disk::timed::{DiskTimes, Time, TimedDisk};
use laneway_tier::pm::Region;
use laneway_tier::pm::sim::SimRegion;
use laneway_tier::pm::timed::{OPTANE_MEMORY, TimedRegion};
use laneway_tier::pm::wal::WalRegion;
use laneway_tier::{Media, Settings, Tier};
use std::sync::Arc;

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
    pub time: Arc<Time>,
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
    pub fn open(
        log: Log,
        times: DiskTimes,
        (log_bytes, ssd_bytes): (usize, usize),
        settings: Settings,
    ) -> Timed {
        let time = Time::counted();
        let timed = |inner: Arc<dyn Disk>| Arc::new(TimedDisk::new(inner, times, time.clone()));
        let (region, ssd): (Arc<dyn Region>, Arc<dyn Disk>) = match log {
            Log::Memory => {
                let ssd = Arc::new(sim_disk(ssd_bytes, &Power::new(u64::MAX)));
                (Arc::new(memory(log_bytes, &time)), timed(ssd))
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
        let clock = time.clone();
        tier.lend_clock(Box::new(move || clock.now()));
        Timed { time, tier }
    }

    /// Does what is due; on a machine a thread does it meanwhile.
    pub fn maintain(&self) {
        while self.tier.maintain().unwrap() {}
    }
}
