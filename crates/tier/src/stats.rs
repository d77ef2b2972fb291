//! Keeps the tier's statistics.
//!
//! Statistics only: nothing hangs on the order of these atomics, which are all relaxed.

use crate::background::bell::Bell;
use crate::background::compaction::{Asked, Compaction};
use crate::background::pace::Pace;
use crate::index::Counts;
use crate::index::tally::Tally;
use crate::media::flushes::{FlushTimes, Flushes};
use crate::types::IndexKind;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A counter.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds.
    pub fn add(&self, count: u64) {
        self.0.fetch_add(count, Relaxed);
    }

    /// The count.
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// The tier's counters.
#[derive(Default)]
pub struct Counters {
    /// Key and value bytes that users wrote.
    pub user_bytes: Counter,
    /// Bytes written to the SSD: values, sort tables, checkpoints, superblocks.
    pub ssd_bytes: Counter,
    /// Groups made durable.
    pub groups: Counter,
    /// Records in them.
    pub grouped_records: Counter,
    /// Writers that had to make room themselves.
    pub stalls: Counter,
    /// Records that were appended again because they were hot.
    pub kept_records: Counter,
    /// Records that went to sort tables.
    pub migrated_records: Counter,
    /// Records of expired items that a deletion took the place of.
    pub expired_records: Counter,
    /// Small items dropped to make room, and their key and value bytes.
    pub evicted_small: Counter,
    /// See above.
    pub evicted_small_bytes: Counter,
    /// The same of large ones.
    pub evicted_large: Counter,
    /// See above.
    pub evicted_large_bytes: Counter,
    /// Blocks of the SSD that they had, about.
    pub evicted_blocks: Counter,
    /// Small items that had expired when room was made, and went before any other.
    pub expired_first_small: Counter,
    /// The same of large ones.
    pub expired_first_large: Counter,
    /// Segments emptied.
    pub segments_freed: Counter,
    /// Sort tables emptied.
    pub tables_freed: Counter,
    /// Checkpoints made.
    pub checkpoints: Counter,
    /// Checkpoints for which there was no room.
    pub checkpoints_refused: Counter,
    /// Bytes that migration and compaction wrote: sort tables, and records appended again.
    pub moved_bytes: Counter,
    /// Turns of theirs that went beyond their rate, for want of room.
    pub rate_yields: Counter,
    /// Values that were stored compressed.
    pub compressed_values: Counter,
    /// Their bytes.
    pub compressed_from_bytes: Counter,
    /// What was stored of them.
    pub compressed_to_bytes: Counter,
    /// The rate of migration and compaction.
    pub pace: Pace,
    /// The compaction of the whole store that goes on beside everything else.
    pub compaction: Asked,
    /// What there is.
    pub tally: Tally,
    /// How long flushes take.
    pub flushes: Flushes,
    /// No count: wakes who maintains the store.
    pub bell: Bell,
}

/// What was dropped to make room on the SSD, by class.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Evicted {
    /// Small items.
    pub small: Dropped,
    /// Large ones.
    pub large: Dropped,
}

/// The same of one class.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Dropped {
    /// Items that had not expired.
    pub items: u64,
    /// Their key and value bytes.
    pub bytes: u64,
    /// Items that had expired, and went before any other.
    pub expired_first: u64,
}

impl Counters {
    /// What was dropped so far.
    pub fn evicted(&self) -> Evicted {
        Evicted {
            small: Dropped {
                items: self.evicted_small.get(),
                bytes: self.evicted_small_bytes.get(),
                expired_first: self.expired_first_small.get(),
            },
            large: Dropped {
                items: self.evicted_large.get(),
                bytes: self.evicted_large_bytes.get(),
                expired_first: self.expired_first_large.get(),
            },
        }
    }
}

/// What is used of the media, what was written there, and how long that took: told without a lock
/// and without a walk. In bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// The log's segments, in use or not.
    pub log_bytes: u64,
    /// Segments of it that are in use.
    pub log_used_bytes: u64,
    /// Current records in them.
    pub log_live_bytes: u64,
    /// The SSD.
    pub ssd_bytes: u64,
    /// Blocks of it that are in use, checkpoints and superblocks included.
    pub ssd_used_bytes: u64,
    /// Current records in sort tables.
    pub table_live_bytes: u64,
    /// What is stored of large items' values; nothing where the index is in persistent memory,
    /// which a walk tells.
    pub large_live_bytes: Option<u64>,
    /// Sort tables, in number.
    pub tables: u64,
    /// Values of this size and above go straight to the SSD.
    pub split_bytes: u64,
    /// How often that changed.
    pub split_moves: u64,
    /// Segments that are in use beyond the share at which migration begins: 0 where it keeps up.
    pub migration_backlog_bytes: u64,
    /// Keys and values that users wrote.
    pub user_written_bytes: u64,
    /// Written to the log's medium since the store was opened.
    pub log_written_bytes: u64,
    /// The same to the SSD.
    pub ssd_written_bytes: u64,
    /// Flushes of the log.
    pub log_flushes: FlushTimes,
    /// Those of the SSD.
    pub ssd_flushes: FlushTimes,
}

impl Usage {
    /// What is current: records in log and sort tables, deletions among them, and large values.
    pub fn live_bytes(&self) -> Option<u64> {
        Some(self.log_live_bytes + self.table_live_bytes + self.large_live_bytes?)
    }

    /// Bytes in use on both media for each that is current; 0 where none is.
    pub fn space_amplification(&self) -> Option<f64> {
        let held = self.log_used_bytes + self.ssd_used_bytes;
        let live = self.live_bytes()?;
        Some(if live == 0 { 0.0 } else { held as f64 / live as f64 })
    }
}

/// `stats tier`, as a value.
#[derive(Debug, Clone, Default)]
pub struct Stats {
    /// Which index says where everything is.
    pub index: IndexKind,
    /// How much memory that takes.
    pub index_bytes: u64,
    /// Items by medium.
    pub items: Counts,
    /// What is used of the media, and was written.
    pub usage: Usage,
    /// Sort tables.
    pub tables: u64,
    /// Bytes of current records in the log.
    pub log_live_bytes: u64,
    /// Bytes of the region that are in use.
    pub log_used_bytes: u64,
    /// Bytes of the log's segments, in use or not.
    pub log_bytes: u64,
    /// Free bytes of the SSD.
    pub ssd_free_bytes: u64,
    /// Bytes of the SSD.
    pub ssd_bytes: u64,
    /// Key and value bytes that users wrote.
    pub user_written_bytes: u64,
    /// Bytes that went to both media for them.
    pub media_written_bytes: u64,
    /// Bytes of large values that wait in memory for their group.
    pub waiting_bytes: u64,
    /// The most that waited at once; there is a bound.
    pub waiting_bytes_most: u64,
    /// Groups made durable.
    pub groups: u64,
    /// Records in them.
    pub grouped_records: u64,
    /// Writers that had to make room themselves.
    pub stalls: u64,
    /// Bytes that migration and compaction may write a second; 0 for any number.
    pub migrate_rate: u64,
    /// Bytes that they wrote: sort tables, and records appended again.
    pub moved_bytes: u64,
    /// Turns of theirs that went beyond the rate, for want of room.
    pub rate_yields: u64,
    /// Values that were stored compressed.
    pub compressed_values: u64,
    /// Their bytes.
    pub compressed_from_bytes: u64,
    /// What was stored of them, but for the ends of blocks.
    pub compressed_to_bytes: u64,
    /// The last compaction of the whole store beside everything else.
    pub compaction: Compaction,
    /// Records appended again because they were hot.
    pub kept_records: u64,
    /// Records that went to sort tables.
    pub migrated_records: u64,
    /// Records of expired items that a deletion took the place of, instead of their being moved.
    pub expired_records: u64,
    /// What was dropped to make room on the SSD.
    pub evicted: Evicted,
    /// Segments emptied.
    pub segments_freed: u64,
    /// Sort tables emptied.
    pub tables_freed: u64,
    /// Checkpoints made.
    pub checkpoints: u64,
    /// Checkpoints for which there was no room.
    pub checkpoints_refused: u64,
    /// Whether the boundary between the two ways of a value moves.
    pub split_adapts: bool,
    /// Whether a flush failed, so that writes are refused.
    pub poisoned: bool,
}

impl Stats {
    /// Bytes written to the media for each byte a user wrote.
    pub fn write_amplification(&self) -> f64 {
        self.media_written_bytes as f64 / self.user_written_bytes.max(1) as f64
    }
}
