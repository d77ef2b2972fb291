//! fjall, an LSM tree in Rust.
//!
//! Synced: a write, then `persist` of the journal by fdatasync; it has no group commit. Unsynced:
//! its default, the journal is handed to the kernel with each write and synced by nobody. Values
//! are random bytes, so compression is off.

use super::{Each, Engine, Places, Result};
use crate::plan::{Backend, Plan};
use fjall::config::CompressionPolicy;
use fjall::{CompressionType, Database, Keyspace, KeyspaceCreateOptions, PersistMode};
use serde_json::{Value, json};

/// Half of the default: some five of them may wait to be written, of which the default takes more
/// than a bounded memory has.
const MEMTABLE_BYTES: u64 = 32 << 20;

/// fjall.
pub struct FjallEngine {
    database: Database,
    items: Keyspace,
    synced: bool,
}

impl FjallEngine {
    /// Opens it.
    pub fn open(plan: &Plan, places: &Places) -> Result<FjallEngine> {
        if plan.backend == Backend::Emu {
            return Err("--backend emu: fjall has its journal beside its tables; use wal".into());
        }
        let path = places.disk.path().join("fjall");
        let database = Database::builder(path)
            .cache_size(plan.cache_mb << 20)
            .journal_compression(CompressionType::None)
            .open()
            .map_err(told)?;
        let options = || {
            KeyspaceCreateOptions::default()
                .max_memtable_size(MEMTABLE_BYTES)
                .data_block_compression_policy(CompressionPolicy::disabled())
                .index_block_compression_policy(CompressionPolicy::disabled())
        };
        let items = database.keyspace("items", options).map_err(told)?;
        Ok(FjallEngine { database, items, synced: plan.synced })
    }
}

fn told(error: fjall::Error) -> String {
    format!("fjall: {error}")
}

impl Engine for FjallEngine {
    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.load(key, value)?;
        if self.synced { self.commit() } else { Ok(()) }
    }

    fn load(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.items.insert(key, value).map_err(told)
    }

    fn get(&self, key: &[u8], out: &mut Vec<u8>) -> Result<bool> {
        out.clear();
        let found = self.items.get(key).map_err(told)?;
        if let Some(value) = &found {
            out.extend_from_slice(value);
        }
        Ok(found.is_some())
    }

    fn delete(&self, key: &[u8]) -> Result<()> {
        self.items.remove(key).map_err(told)?;
        if self.synced { self.commit() } else { Ok(()) }
    }

    fn scan(&self, from: &[u8], limit: usize, each: Each<'_>) -> Result<()> {
        for item in self.items.range(from..).take(limit) {
            let (key, value) = item.into_inner().map_err(told)?;
            each(&key, &value)?;
        }
        Ok(())
    }

    fn commit(&self) -> Result<()> {
        self.database.persist(PersistMode::SyncData).map_err(told)
    }

    fn facts(&self) -> Value {
        json!({ "tables_bytes": self.items.disk_space() })
    }

    fn version(&self) -> String {
        format!("fjall {}", locked_version("fjall"))
    }

    fn close(self: Box<Self>) -> Result<()> {
        self.commit() // dropped then, which ends its threads
    }
}

/// The version of a dependency that this program was built with.
fn locked_version(name: &str) -> &'static str {
    let lock = include_str!("../../Cargo.lock");
    let entry = lock.split("[[package]]").find_map(|entry| {
        let mut lines = entry.lines().filter(|line| !line.is_empty());
        (lines.next()? == format!("name = \"{name}\"")).then(|| lines.next())?
    });
    let version = entry.and_then(|line| line.strip_prefix("version = \"")?.strip_suffix('"'));
    version.unwrap_or("of an unknown version")
}
