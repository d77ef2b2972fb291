//! A data folder on simulated media, for a server without threads; and hands that wait as long as
//! the test wants.

use laneway_server::durable::hands::{DeviceExecutor, Done, Inline, Order};
use laneway_tier::disk::sim::{Faults, Power, SimDisk};
use laneway_tier::pm::wal::WalRegion;
use laneway_tier::{Durability, Error, Media, MigrateBy, Request, Result, Settings, Tier};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

pub const SEGMENT_BYTES: u32 = 32 << 10;

/// Power, and two disks on it.
pub struct Machine {
    pub power: Arc<Power>,
    pub log: Arc<SimDisk>,
    pub ssd: Arc<SimDisk>,
}

impl Machine {
    pub fn new(log_bytes: usize, ssd_bytes: usize) -> Machine {
        Machine::of(u64::MAX, vec![0; log_bytes], vec![0; ssd_bytes])
    }

    pub fn of(fails_at: u64, log: Vec<u8>, ssd: Vec<u8>) -> Machine {
        let power = Power::new(fails_at);
        let disk =
            |image| Arc::new(SimDisk::from_image(image, power.clone(), 1, Faults::default()));
        let (log, ssd) = (disk(log), disk(ssd));
        Machine { power, log, ssd }
    }

    /// One of the states that a loss of power leaves.
    pub fn crashed(&self, seed: u64) -> Machine {
        let (log, ssd) = (self.log.crash_image(seed), self.ssd.crash_image(seed ^ 0x55));
        Machine::of(u64::MAX, log, ssd)
    }

    /// The same with disks that are longer by so many bytes, which may be anything.
    pub fn longer(&self, log_bytes: usize, ssd_bytes: usize, behind: u8) -> Machine {
        let (mut log, mut ssd) = (self.log.image(), self.ssd.image());
        log.resize(log.len() + log_bytes, behind);
        ssd.resize(ssd.len() + ssd_bytes, behind);
        Machine::of(u64::MAX, log, ssd)
    }

    pub fn open(&self, settings: Settings) -> Result<Arc<Tier>> {
        self.open_as(settings, 7)
    }

    /// The same; a store that is made has this number.
    pub fn open_as(&self, settings: Settings, id: u64) -> Result<Arc<Tier>> {
        let (tier, problems) = self.open_damaged(settings, id)?;
        if !problems.is_empty() {
            return Err(Error::Corrupt(problems.join("; "))); // a crash damages nothing
        }
        Ok(tier)
    }

    /// The same, with what was found damaged.
    pub fn open_damaged(&self, settings: Settings, id: u64) -> Result<(Arc<Tier>, Vec<String>)> {
        let region = Arc::new(WalRegion::new(self.log.clone()));
        let media = Media { region, ssd: self.ssd.clone() };
        let (tier, report) = Tier::open(media, settings, id, &mut |_, _| {})?;
        Ok((Arc::new(tier), report.problems))
    }
}

pub fn settings() -> Settings {
    Settings {
        split_bytes: 2048,
        segment_bytes: SEGMENT_BYTES,
        table_bytes: 16 << 10,
        migrate_percent: 60,
        checkpoint_bytes: 200 << 10,
        durability: Durability::Ack,
        // What is appended again, too, moves about.
        migrate_by: Some(MigrateBy::Hotness),
        index: None,
        background: false,
        ..Settings::default()
    }
}

/// What ends, and what waits.
#[derive(Default)]
pub struct Gate {
    pub commits_wait: AtomicBool,
    pub reads_wait: AtomicBool,
    pub spills_wait: AtomicBool,
    pub room_waits: AtomicBool,
    pub counts_wait: AtomicBool,
}

/// How a rig keeps items.
#[derive(Clone)]
pub struct Kept {
    pub tier: Arc<Tier>,
    pub interval: Option<Duration>,
    pub gate: Arc<Gate>,
}

impl Kept {
    pub fn of(tier: &Arc<Tier>) -> Kept {
        Kept { tier: tier.clone(), interval: None, gate: Arc::default() }
    }

    pub fn hands(&self) -> Box<dyn DeviceExecutor> {
        let inline = Inline::new(self.tier.clone());
        let gate = self.gate.clone();
        Box::new(Slow { inline, gate, orders: Vec::new(), reads: Vec::new() })
    }
}

/// Carries out what the gate lets through, in the order of its kind.
struct Slow {
    inline: Inline,
    gate: Arc<Gate>,
    orders: Vec<Order>,
    reads: Vec<(u64, Request)>,
}

impl DeviceExecutor for Slow {
    fn order(&mut self, order: Order) {
        self.orders.push(order);
    }

    fn read(&mut self, number: u64, request: Request) {
        self.reads.push((number, request));
    }

    fn collect(&mut self, into: &mut Vec<Done>) {
        let inline = &mut self.inline;
        let gate = &self.gate;
        let goes = |order: &mut Order| match order {
            Order::Commit => !gate.commits_wait.load(Relaxed),
            Order::Spill { .. } => !gate.spills_wait.load(Relaxed),
            Order::Write { .. } | Order::Flush { .. } => !gate.room_waits.load(Relaxed),
            Order::Count { .. } | Order::Checkpoint { .. } => !gate.counts_wait.load(Relaxed),
        };
        for order in self.orders.extract_if(.., goes) {
            inline.order(order);
        }
        if !gate.reads_wait.load(Relaxed) {
            for (number, request) in self.reads.drain(..) {
                inline.read(number, request);
            }
        }
        inline.collect(into);
    }
}
