//! Laneway's tier: split by size as it is meant, or by one path as its rivals do (SplitKV,
//! HotStorage'20, "Evaluation": KVell has no persistent memory; others put everything into it).
//!
//! Synced: each write waits for its group. Unsynced: somebody commits every few milliseconds, and
//! what is not committed is not shown, unless the cache holds it.

use super::cache::Cache;
use super::{Each, Engine, Places, Result};
use crate::plan::{Backend, EngineKind, Plan};
use laneway_tier::{
    Backend as PmBackend, Directory, DirectorySettings, Durability, Item, ItemMeta, MigrateBy,
};
use serde_json::{Value, json};
use std::cell::Cell;
use std::time::Duration;

/// The SSD is made this much larger than the data, for what is written before older copies go.
const SSD_OVER_DATA: u64 = 4;
const SSD_BYTES_MIN: u64 = 1 << 30;

thread_local! {
    /// A thread's room for what a scan copies out of memory.
    static COPIES: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// The tier.
pub struct TierEngine {
    store: Directory,
    cache: Option<Cache>,
    commit_every: Option<Duration>,
}

impl TierEngine {
    /// Opens it.
    pub fn open(plan: &Plan, places: &Places) -> Result<TierEngine> {
        let mut settings = DirectorySettings::new(places.disk.path().join("tier"));
        settings.pm_path = places.log("pm");
        settings.backend = match plan.backend {
            Backend::Wal => PmBackend::Wal,
            Backend::Emu => PmBackend::UnsafeVolatile,
        };
        settings.pm_bytes = plan.pm_mb << 20;
        settings.ssd_bytes = (plan.data_bytes() * SSD_OVER_DATA).max(SSD_BYTES_MIN);
        let behaviour = &mut settings.settings;
        match plan.engine {
            EngineKind::TierLog => behaviour.split_bytes = usize::MAX,
            EngineKind::TierSsd => behaviour.split_bytes = 0,
            EngineKind::TierAge => behaviour.migrate_by = MigrateBy::Age,
            _ => {}
        }
        if !plan.synced {
            behaviour.durability = Durability::Interval;
        }
        let (store, report) = Directory::open(&settings, &mut |_, _| {}).map_err(told)?;
        match report.problems.first() {
            Some(problem) => Err(format!("the tier was opened with a problem: {problem}")),
            None => Ok(TierEngine {
                store,
                cache: (plan.cache_mb != 0).then(|| Cache::new(plan.cache_mb)).transpose()?,
                commit_every: (!plan.synced).then_some(plan.commit_every),
            }),
        }
    }

    fn keep(&self, key: &[u8], value: &[u8], sequence: u64) {
        if let Some(cache) = &self.cache {
            cache.stripe(key).keep(key, value, sequence);
        }
    }

    /// Keeps a copy of what was read without the stripe of its key. Whoever has published a newer
    /// one since, so that it is not what the tier holds, keeps that when it gets the stripe.
    fn bring_in(&self, cache: &Cache, key: &[u8], item: &Item) {
        let stripe = cache.stripe(key);
        if self.store.look(key).is_some_and(|look| look.sequence == item.sequence) {
            stripe.keep(key, &item.value, item.sequence);
        }
    }

    fn read(&self, key: &[u8], out: &mut Vec<u8>) -> Result<Option<u64>> {
        Ok(self.store.get(key).map_err(told)?.map(|item| {
            *out = item.value;
            item.sequence
        }))
    }
}

fn told(error: laneway_tier::Error) -> String {
    error.to_string()
}

impl Engine for TierEngine {
    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        let sequence = self.store.put(key, value, ItemMeta::default()).map_err(told)?;
        self.keep(key, value, sequence);
        Ok(())
    }

    fn load(&self, key: &[u8], value: &[u8]) -> Result<()> {
        let ticket = self.store.submit_put(key, value, ItemMeta::default(), None).map_err(told)?;
        self.keep(key, value, ticket.sequence);
        Ok(())
    }

    fn get(&self, key: &[u8], out: &mut Vec<u8>) -> Result<bool> {
        let Some(cache) = &self.cache else {
            return Ok(self.read(key, out)?.is_some());
        };
        if cache.get(key, out) {
            return Ok(true);
        }
        let stripe = cache.stripe(key);
        // Somebody may have brought it in while we waited for the stripe.
        if cache.get(key, out) {
            return Ok(true);
        }
        let sequence = self.read(key, out)?;
        if let Some(sequence) = sequence {
            stripe.keep(key, out, sequence);
        }
        Ok(sequence.is_some())
    }

    fn delete(&self, key: &[u8]) -> Result<()> {
        let stripe = self.cache.as_ref().map(|cache| cache.stripe(key));
        self.store.delete(key).map_err(told)?;
        if let Some(stripe) = stripe {
            stripe.forget(key);
        }
        Ok(())
    }

    fn scan(&self, from: &[u8], limit: usize, each: Each<'_>) -> Result<()> {
        let Some(cache) = &self.cache else {
            for (key, item) in self.store.scan(from, None, limit) {
                each(&key, &item.map_err(told)?.value)?;
            }
            return Ok(());
        };
        // What memory has is taken from there, the rest is read at once.
        let mut copies = COPIES.take();
        copies.clear();
        let found = self.store.range(from, None, limit).into_iter();
        let found: Vec<_> = found.map(|(key, _)| (cache.append(&key, &mut copies), key)).collect();
        let missing = found.iter().filter(|(copy, _)| copy.is_none());
        let missing: Vec<&[u8]> = missing.map(|(_, key)| &**key).collect();
        let mut read = self.store.get_many(&missing).into_iter();
        for (copy, key) in &found {
            if let Some(copy) = copy {
                each(key, &copies[copy.clone()])?;
            } else if let Some(item) = read.next().transpose().map_err(told)?.flatten() {
                each(key, &item.value)?;
                self.bring_in(cache, key, &item);
            }
        }
        COPIES.set(copies);
        Ok(())
    }

    fn commit(&self) -> Result<()> {
        self.store.commit().map_err(told)
    }

    fn commit_every(&self) -> Option<Duration> {
        self.commit_every
    }

    fn facts(&self) -> Value {
        let stats = self.store.stats();
        json!({
            "space_used_bytes": stats.log_used_bytes + stats.ssd_bytes - stats.ssd_free_bytes,
            "write_amplification": stats.write_amplification(),
            "user_written_bytes": stats.user_written_bytes,
            "media_written_bytes": stats.media_written_bytes,
            "waiting_bytes_most": stats.waiting_bytes_most,
            "groups": stats.groups,
            "grouped_records": stats.grouped_records,
            "stalls": stats.stalls,
            "kept_records": stats.kept_records,
            "migrated_records": stats.migrated_records,
            "segments_freed": stats.segments_freed,
            "tables_freed": stats.tables_freed,
            "checkpoints": stats.checkpoints,
        })
    }

    fn version(&self) -> String {
        format!("laneway-tier, format {}", laneway_tier::FORMAT_VERSION)
    }

    fn close(self: Box<Self>) -> Result<()> {
        self.store.close().map_err(told)
    }
}
