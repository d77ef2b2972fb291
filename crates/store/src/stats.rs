//! The store in numbers. Sums over partitions and classes, taken while others work: each number is
//! true by itself.

use crate::{
    counts::Counts,
    store::Store,
    types::{ClassStats, Stats},
};
use laneway_sync::prim::{AtomicU64, Ordering::Relaxed};

impl Store {
    /// Counts and sizes.
    pub fn stats(&self) -> Stats {
        let partitions = self.index.partitions();
        let counts = || partitions.iter().map(|partition| &partition.counts);
        let sum = |f: fn(&Counts) -> &AtomicU64| -> u64 {
            counts().map(|counts| f(counts).load(Relaxed)).sum()
        };
        let items = sum(|counts| &counts.items);
        let (buckets, buckets_overflow) = self.index.counts();
        let index_bytes = self.index.bytes();
        let (chunk_bytes, free_bytes) = self.memory.pool_bytes();
        let counters = &self.counters;
        // A gauge that two threads move may be below zero for a moment.
        let gauge = |counter: &AtomicU64| (counter.load(Relaxed) as i64).max(0) as u64;
        Stats {
            items,
            items_total: counts().map(Counts::items_total).sum(),
            bytes: sum(|counts| &counts.bytes),
            limit_bytes: self.memory.limit_bytes(),
            evictions: counters.evictions.load(Relaxed),
            evicted_unfetched: counters.evicted_unfetched.load(Relaxed),
            evicted_active: counters.evicted_active.load(Relaxed),
            expired_unfetched: counters.expired_unfetched.load(Relaxed),
            found_expired: counters.found_expired.load(Relaxed),
            found_flushed: counters.found_flushed.load(Relaxed),
            reclaimed: counters.reclaimed.load(Relaxed),
            reclaimed_flushed: counters.reclaimed_flushed.load(Relaxed),
            index_bytes,
            buckets,
            buckets_overflow,
            slots_filled: items,
            metadata_bytes: index_bytes
                + sum(|counts| &counts.header_bytes)
                + self.memory.side_bytes()
                + counters.piece_list_bytes.load(Relaxed),
            pool_bytes: chunk_bytes + free_bytes,
            pool_free_bytes: free_bytes,
            pinned_dead_bytes: gauge(&counters.pinned_dead_bytes),
            unpublished_bytes: gauge(&counters.unpublished_bytes),
            read_retries: counters.read_retries.load(Relaxed),
            seq: self.seq(),
            window_bytes: self.memory.window_bytes() as u64,
            window_items: self.memory.window_slots_used(),
            promotions: counters.promotions.load(Relaxed),
            demotions: counters.demotions.load(Relaxed),
        }
    }

    /// Items that were evicted so far, without all that [`Store::stats`] adds up.
    pub fn evicted_items(&self) -> u64 {
        self.counters.evictions.load(Relaxed)
    }

    /// Every slab class that has chunks.
    pub fn class_stats(&self) -> Vec<ClassStats> {
        self.memory.class_stats()
    }

    /// Slots in use, by items and drafts, over all classes: what a test of leaks counts.
    pub fn slots_used(&self) -> u64 {
        self.memory.slots_used()
    }
}

#[cfg(test)]
mod tests {
    use crate::{store::Store, types::Config};
    use std::{sync::mpsc, thread, time::Duration};

    /// Who watches a server reads them, and nobody is to wait for that. (Of the window's classes,
    /// which a store without one does not have, slots are counted as of all.)
    #[test]
    fn statistics_wait_for_nobody_who_stores_or_sweeps() {
        let config =
            Config { memory_bytes: 32 << 20, item_bytes_max: 48 << 20, ..Config::default() };
        let store = Store::new(config).expect("a small store");
        let classes = store.memory.classes_beside(0);
        let classes: Vec<_> = classes.map(|class| store.memory.class(class).lock()).collect();
        let partitions = store.index.partitions().iter();
        let splits: Vec<_> = partitions.map(|partition| partition.splitting.lock()).collect();
        let turns = (store.drain.lock(), store.window_drain.lock(), store.sweeper.lock());
        let (store, (done, is_done)) = (&store, mpsc::channel());
        thread::scope(|scope| {
            scope.spawn(move || {
                let told = (store.stats().items, store.slots_used());
                done.send(told).expect("somebody waits");
            });
            let told = is_done.recv_timeout(Duration::from_secs(60));
            drop((classes, splits, turns));
            assert_eq!(told, Ok((0, 0)), "it waits for a lock");
        });
    }
}
