//! What a run is to do, checked.

use crate::draws::Distribution;
use crate::keys::{Content, Sizes};
use crate::workload::Turn;
use std::path::PathBuf;
use std::time::Duration;

/// Which store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EngineKind {
    /// Laneway's tier: small values to the log, large ones to the SSD.
    Tier,
    /// The same, and what is cold in the coldest segment migrates instead of all of the oldest.
    TierHotness,
    /// One path: everything through the log.
    TierLog,
    /// One path: everything straight to the SSD.
    TierSsd,
    /// The boundary between the two moves to where writes take the media less time.
    TierAuto,
    /// RocksDB of the system.
    RocksDb,
    /// The same with large values in files of their own.
    RocksDbBlob,
    /// RocksDB past the kernel's page cache, as the tier is.
    RocksDbDirect,
    /// fjall.
    Fjall,
}

impl EngineKind {
    /// Each by its name.
    pub const ALL: [(&str, EngineKind); 9] = [
        ("tier", EngineKind::Tier),
        ("tier-hotness", EngineKind::TierHotness),
        ("tier-log", EngineKind::TierLog),
        ("tier-ssd", EngineKind::TierSsd),
        ("tier-auto", EngineKind::TierAuto),
        ("rocksdb", EngineKind::RocksDb),
        ("rocksdb-blob", EngineKind::RocksDbBlob),
        ("rocksdb-direct", EngineKind::RocksDbDirect),
        ("fjall", EngineKind::Fjall),
    ];

    /// Whether it is Laneway's.
    pub fn is_tier(self) -> bool {
        self.name().starts_with("tier")
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        let mut all = EngineKind::ALL.iter();
        all.find(|(_, kind)| *kind == self).map_or("?", |(name, _)| name)
    }
}

/// What the log lies on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Backend {
    /// The disk.
    Wal,
    /// Memory that stands for persistent memory, and is lost with the power.
    Emu,
}

/// A run.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Which store.
    pub engine: EngineKind,
    /// What its log lies on.
    pub backend: Backend,
    /// Whether a write is durable when it returns.
    pub synced: bool,
    /// What is run after the load, in order.
    pub turns: Vec<Turn>,
    /// Which keys are asked for.
    pub distribution: Distribution,
    /// How large values are.
    pub sizes: Sizes,
    /// The bytes that values are made of.
    pub content: Content,
    /// Whether the tier compresses what goes straight to the SSD.
    pub compresses: bool,
    /// Items to begin with.
    pub records: u32,
    /// How long each turn takes.
    pub turn: Duration,
    /// How long a store is left to itself between load and turns.
    pub settle: Duration,
    /// How often a store commits whose writes wait in this process.
    pub commit_every: Duration,
    /// The log of the tier, in MiB.
    pub pm_mb: u64,
    /// The store's own cache, in MiB.
    pub cache_mb: u64,
    /// The limit of a memory cgroup, in MiB.
    pub memory_mb: Option<u64>,
    /// Where the data goes.
    pub dir: PathBuf,
    /// Of all random numbers.
    pub seed: u64,
}

impl Plan {
    /// Key and value bytes of the records that a run begins with.
    pub fn data_bytes(&self) -> u64 {
        let item = (crate::keys::KEY_BYTES as u64) * 2 + self.sizes.of_two();
        u64::from(self.records) * item / 2
    }
}
