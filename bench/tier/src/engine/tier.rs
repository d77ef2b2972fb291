//! Laneway's tier: split by size as it is meant, or by one path as its rivals do (SplitKV,
//! HotStorage'20, "Evaluation": KVell has no persistent memory; others put everything into it).
//!
//! Synced: each write waits for its group. Unsynced: somebody commits every few milliseconds, and
//! what is not committed is not shown, unless the cache holds it.

use super::cache::Cache;
use super::{Each, Engine, Places, Result};
use crate::plan::{Backend, EngineKind, Plan};
use laneway_tier::{
    Backend as PmBackend, Directory, DirectorySettings, Durability, Found, ItemMeta, MigrateBy,
    Shown,
};
use serde_json::{Value, json};
use std::cell::Cell;
use std::ops::Range;
use std::time::{Duration, Instant};

/// The SSD is made this much larger than the data, for what is written before older copies go.
const SSD_OVER_DATA: u64 = 4;
const SSD_BYTES_MIN: u64 = 1 << 30;
/// From this length on values are compressed, if any are: the server's default.
const COMPRESS_FROM: usize = 8 << 10;

thread_local! {
    /// A thread's room for what a scan copies: out of memory, out of what is read.
    static COPIES: Cell<(Copies, Copies)> = Cell::default();
}

/// Values of a scan by the number of their item in it.
#[derive(Default)]
struct Copies {
    bytes: Vec<u8>,
    places: Vec<Option<Range<usize>>>,
}

impl Copies {
    /// Of so many items none yet.
    fn begin(&mut self, items: usize) {
        self.bytes.clear();
        self.places.clear();
        self.places.resize(items, None);
    }

    fn keep(&mut self, number: usize, value: &[u8]) {
        let begin = self.bytes.len();
        self.bytes.extend_from_slice(value);
        self.places[number] = Some(begin..self.bytes.len());
    }

    fn get(&self, number: usize) -> Option<&[u8]> {
        self.places[number].clone().map(|place| &self.bytes[place])
    }
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
            EngineKind::TierAuto => behaviour.split_adapts = true,
            EngineKind::TierHotness => behaviour.migrate_by = Some(MigrateBy::Hotness),
            _ => {}
        }
        if !plan.synced {
            behaviour.durability = Durability::Interval;
        }
        behaviour.compress_from = plan.compresses.then_some(COMPRESS_FROM);
        let (store, report) = Directory::open(&settings, &mut |_, _| {}).map_err(told)?;
        if plan.engine == EngineKind::TierAuto {
            let start = Instant::now();
            store.lend_clock(Box::new(move || start.elapsed().as_nanos() as u64));
        }
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
    fn bring_in(&self, cache: &Cache, key: &[u8], item: Shown<'_>) {
        let stripe = cache.stripe(key);
        if self.store.look(key).is_some_and(|look| look.sequence == item.sequence) {
            stripe.keep(key, item.value, item.sequence);
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
        // What memory does not have is read at once, and what it has is copied meanwhile.
        let (mut here, mut read) = COPIES.take();
        let found = self.store.range(from, None, limit);
        let keys: Vec<&[u8]> = found.iter().map(Found::key).collect();
        let sought = cache.seek(&keys);
        let numbers = 0..found.len();
        let (near, far): (Vec<usize>, Vec<usize>) =
            numbers.partition(|&number| cache.may_have(&sought, number));
        let wanted: Vec<&Found> = far.iter().map(|&number| &found[number]).collect();
        here.begin(found.len());
        read.begin(found.len());
        let copy = || {
            for &number in &near {
                let bytes = &mut here.bytes;
                here.places[number] = cache.append(&sought, number, keys[number], bytes);
            }
        };
        let mut failed = None;
        self.store.read_found(&wanted, copy, |nth, shown| match shown {
            Ok(Some(shown)) => {
                read.keep(far[nth], shown.value);
                self.bring_in(cache, keys[far[nth]], shown);
            }
            Ok(None) => {}
            Err(error) => failed = Some(error),
        });
        // What has left memory meanwhile.
        for &number in near.iter().filter(|&&number| here.places[number].is_none()) {
            if let Some(item) = self.store.get(keys[number]).map_err(told)? {
                read.keep(number, &item.value);
            }
        }
        if let Some(error) = failed {
            return Err(told(error));
        }
        for (number, key) in keys.into_iter().enumerate() {
            here.get(number).or(read.get(number)).map_or(Ok(()), |value| each(key, value))?;
        }
        COPIES.set((here, read));
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
            "compressed_values": stats.compressed_values,
            "groups": stats.groups,
            "grouped_records": stats.grouped_records,
            "stalls": stats.stalls,
            "split_bytes": stats.usage.split_bytes,
            "split_moves": stats.usage.split_moves,
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
