//! RocksDB, the system's, by its C interface.
#![allow(unsafe_code, reason = "calls of C")]

mod handle;
pub mod library;

use super::{Each, Engine, Places, Result};
use crate::plan::Plan;
use handle::Handle;
use serde_json::{Value, json};

/// RocksDB.
pub struct RocksEngine {
    handle: Handle,
    synced: bool,
}

impl RocksEngine {
    /// Opens it.
    pub fn open(plan: &Plan, places: &Places) -> Result<RocksEngine> {
        let path = places.disk.path().join("rocksdb");
        let log = places.log("rocksdb-log");
        Ok(RocksEngine { handle: Handle::open(plan, &path, log.as_deref())?, synced: plan.synced })
    }
}

impl Engine for RocksEngine {
    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.handle.put(key, value, self.synced)
    }

    fn load(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.handle.put(key, value, false)
    }

    fn get(&self, key: &[u8], out: &mut Vec<u8>) -> Result<bool> {
        self.handle.get(key, out)
    }

    fn delete(&self, key: &[u8]) -> Result<()> {
        self.handle.delete(key, self.synced)
    }

    fn scan(&self, from: &[u8], limit: usize, each: Each<'_>) -> Result<()> {
        self.handle.scan(from, limit, each)
    }

    fn commit(&self) -> Result<()> {
        self.handle.sync_log()
    }

    fn facts(&self) -> Value {
        let number = |name| self.handle.property(name).and_then(|text| text.parse::<u64>().ok());
        json!({
            "tables_bytes": number(c"rocksdb.total-sst-files-size"),
            "blobs_bytes": number(c"rocksdb.total-blob-file-size"),
            "compaction_pending": number(c"rocksdb.compaction-pending"),
        })
    }

    fn version(&self) -> String {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
        file_of(&maps, "librocksdb").unwrap_or("RocksDB").to_owned()
    }

    fn close(self: Box<Self>) -> Result<()> {
        self.handle.sync_log() // dropped then, which closes it
    }
}

/// The name of the file that is mapped, whose name begins so.
fn file_of<'a>(maps: &'a str, start: &str) -> Option<&'a str> {
    let names = maps.lines().filter_map(|line| line.rsplit('/').next());
    let mut ours = names.filter(|name| name.starts_with(start));
    ours.next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_is_known_by_the_file_that_is_mapped() {
        let maps =
            "7f0 r-xp 0 0 1 /usr/lib/libc.so.6\n7f1 r-xp 0 0 2 /usr/lib/librocksdb.so.7.8.3\n";
        assert_eq!(file_of(maps, "librocksdb"), Some("librocksdb.so.7.8.3"));
        assert_eq!(file_of(maps, "libother"), None);
    }
}
