//! The stores, each behind the same few calls.

mod cache;
mod fjall;
mod rocksdb;
#[cfg(test)]
mod tests;
mod tier;

use crate::folder::Folder;
use crate::plan::{Backend, EngineKind, Plan};
use serde_json::Value;
use std::path::PathBuf;
use std::time::Duration;

/// What a call came to; an error says what and where.
pub type Result<T> = std::result::Result<T, String>;

/// Hears of each item of a scan: its key and its value.
pub type Each<'a> = &'a mut dyn FnMut(&[u8], &[u8]) -> Result<()>;

/// A store. Any thread may call it.
pub trait Engine: Send + Sync {
    /// Writes an item, as durable as was asked for when it returns.
    fn put(&self, key: &[u8], value: &[u8]) -> Result<()>;

    /// Writes an item that need not be durable before the next [`Engine::commit`].
    fn load(&self, key: &[u8], value: &[u8]) -> Result<()>;

    /// Reads an item over `out`; false if there is none.
    fn get(&self, key: &[u8], out: &mut Vec<u8>) -> Result<bool>;

    /// Deletes an item, if there is one.
    #[cfg_attr(not(test), expect(dead_code, reason = "YCSB deletes nothing; the tests do"))]
    fn delete(&self, key: &[u8]) -> Result<()>;

    /// The first `limit` items from `from` on, in order.
    fn scan(&self, from: &[u8], limit: usize, each: Each<'_>) -> Result<()>;

    /// Makes durable what was written so far.
    fn commit(&self) -> Result<()>;

    /// How often somebody has to commit, if the store does not do so itself; a write may be
    /// invisible until then.
    fn commit_every(&self) -> Option<Duration> {
        None
    }

    /// What the store tells of itself; `space_used_bytes` where files alone do not tell it.
    fn facts(&self) -> Value;

    /// Its version.
    fn version(&self) -> String;

    /// Closes it as its users would before they end.
    fn close(self: Box<Self>) -> Result<()>;
}

/// Where a store's files go.
pub struct Places {
    /// On the disk.
    pub disk: Folder,
    /// In memory, for what stands for persistent memory.
    pub memory: Option<Folder>,
}

impl Places {
    /// Fresh ones.
    pub fn new(plan: &Plan) -> Result<Places> {
        let memory = match plan.backend {
            Backend::Wal => None,
            Backend::Emu => Some(Folder::new(std::path::Path::new(MEMORY))?),
        };
        Ok(Places { disk: Folder::new(&plan.dir)?, memory })
    }

    /// Where the log goes, if not beside the rest.
    fn log(&self, name: &str) -> Option<PathBuf> {
        self.memory.as_ref().map(|folder| folder.path().join(name))
    }

    /// What the store takes, of memory that stands for a disk too.
    pub fn bytes(&self) -> u64 {
        self.disk.bytes() + self.memory.as_ref().map_or(0, Folder::bytes)
    }
}

/// Where files are memory.
const MEMORY: &str = "/dev/shm";

/// Opens a store, or makes it where there is none.
pub fn open(plan: &Plan, places: &Places) -> Result<Box<dyn Engine>> {
    match plan.engine {
        EngineKind::Tier
        | EngineKind::TierHotness
        | EngineKind::TierLog
        | EngineKind::TierSsd
        | EngineKind::TierAuto => Ok(Box::new(tier::TierEngine::open(plan, places)?)),
        EngineKind::RocksDb | EngineKind::RocksDbBlob | EngineKind::RocksDbDirect => {
            Ok(Box::new(rocksdb::RocksEngine::open(plan, places)?))
        }
        EngineKind::Fjall => Ok(Box::new(fjall::FjallEngine::open(plan, places)?)),
    }
}
