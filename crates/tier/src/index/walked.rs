//! Counts by a walk over index, log and sort tables what [`Shared::stats`] counts as items come and
//! go; the counters are checked against it.

use crate::log::Slot;
use crate::stats::{Stats, Usage};
use crate::store::Shared;

impl Shared {
    /// Statistics by a walk.
    pub fn stats_by_walk(&self) -> Stats {
        let free = {
            let writer = self.writer();
            writer.log.slots().iter().filter(|slot| **slot == Slot::Free).count() as u64
        };
        let (log_live_bytes, table_live_bytes, tables) = {
            let accounts = self.accounts();
            let tables: Vec<u64> = accounts.tables.iter().map(|table| table.live).collect();
            (accounts.segments.iter().sum(), tables.iter().sum(), tables.len() as u64)
        };
        let items = self.index.count_by_walk();
        let used = u64::from(self.shape.segments) - free;
        let usage = Usage {
            log_live_bytes,
            table_live_bytes,
            large_live_bytes: Some(items.large_bytes),
            tables,
            log_used_bytes: used * u64::from(self.shape.segment_bytes),
            ..self.usage()
        };
        Stats { items, usage, ..self.stats() }
    }
}
