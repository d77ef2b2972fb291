//! `stats tier`: what is kept durably, where, and at what cost.

use super::lines::Lines;
use crate::counts::watch::{Scrubbed, TierWatch};
use laneway_tier::{FlushTimes, Report, Stats};

/// What `stats tier` tells.
#[derive(Debug, Clone, Default)]
pub struct TierSnapshot {
    /// The tier's own.
    pub stats: Stats,
    /// Writes are durable when they are acknowledged.
    pub waits: bool,
    /// Items are dropped where the SSD has no room.
    pub evicts: bool,
    /// What an operator watches of it.
    pub watch: TierWatch,
    /// Changes that waited until the log had room.
    pub set_aside: u64,
    /// Reads that were answered with what was there before a change under way.
    pub answered_before: u64,
    /// Items dropped because they had expired.
    pub expired: u64,
    /// Replies that wait to be true now.
    pub held: u64,
    /// What was found at the last start.
    pub report: Report,
}

/// Answer `stats tier`. `None`: nothing is kept durably.
pub fn write_tier(snapshot: Option<&TierSnapshot>, out: &mut Vec<u8>) {
    let mut lines = Lines::new(out);
    lines.yes("tier", snapshot.is_some());
    if let Some(snapshot) = snapshot {
        lines.shown("index", format_args!("{}", snapshot.stats.index.name()));
        lines.number("index_bytes", snapshot.stats.index_bytes);
    }
    if let Some(snapshot) = snapshot {
        media(&mut lines, &snapshot.stats);
        work(&mut lines, snapshot);
        scrubs(&mut lines, snapshot.watch.scrub);
        let report = &snapshot.report;
        lines.number("recovery_ms", snapshot.watch.recovery_ms);
        lines.number("recovery_items", report.items);
        lines.number("recovery_entries_read", report.entries_read);
        lines.number("recovery_checkpoint_bytes", report.checkpoint_bytes);
        lines.number("recovery_replayed_bytes", report.replayed_bytes);
        lines.number("recovery_table_bytes", report.table_bytes);
        lines.number("recovery_problems", report.problems.len() as u64);
    }
    lines.end();
}

fn scrubs(lines: &mut Lines<'_>, scrub: Option<Scrubbed>) {
    lines.yes("scrub", scrub.is_some());
    let Some(scrub) = scrub else { return };
    lines.number("scrub_passes", scrub.passes);
    lines.number("scrub_last_ended", scrub.done_seconds);
    lines.number("scrub_last_damaged", scrub.done_damaged);
    lines.number("scrub_damaged", scrub.damaged);
    lines.number("scrub_bytes_read", scrub.bytes);
    lines.number("scrub_pass_bytes", scrub.now_bytes);
    lines.number("scrub_pass_bytes_all", scrub.now_total_bytes);
}

fn media(lines: &mut Lines<'_>, stats: &Stats) {
    let items = &stats.items;
    lines.number("items_log", items.small_in_log);
    lines.number("items_sort_tables", items.small_on_ssd);
    lines.number("items_large", items.large);
    lines.number("items_lost", items.lost);
    lines.number("tombstones", items.tombstones);
    lines.number("sort_tables", stats.tables);
    lines.number("log_bytes", stats.log_bytes);
    lines.number("log_bytes_used", stats.log_used_bytes);
    lines.number("log_bytes_live", stats.log_live_bytes);
    lines.number("ssd_bytes", stats.ssd_bytes);
    lines.number("ssd_bytes_free", stats.ssd_free_bytes);
    lines.number("user_bytes_written", stats.user_written_bytes);
    lines.number("media_bytes_written", stats.media_written_bytes);
    lines.number("large_bytes_waiting", stats.waiting_bytes);
    lines.number("large_bytes_waiting_most", stats.waiting_bytes_most);
    lines.shown("write_amplification", format_args!("{:.3}", stats.write_amplification()));
    let usage = &stats.usage;
    lines.number("log_bytes_written", usage.log_written_bytes);
    lines.number("ssd_bytes_written", usage.ssd_written_bytes);
    lines.number("sort_tables_bytes_live", usage.table_live_bytes);
    lines.number("large_bytes_live", usage.large_live_bytes.unwrap_or(0));
    let amplification = usage.space_amplification().unwrap_or(0.0);
    lines.shown("space_amplification", format_args!("{amplification:.3}"));
    lines.number("migration_backlog_bytes", usage.migration_backlog_bytes);
    lines.text("split", if stats.split_adapts { "auto" } else { "fixed" });
    lines.number("split_bytes", usage.split_bytes);
    lines.number("split_moves", usage.split_moves);
    lines.number("compressed_values", stats.compressed_values);
    lines.number("compressed_from_bytes", stats.compressed_from_bytes);
    lines.number("compressed_to_bytes", stats.compressed_to_bytes);
    flushes(lines, ["log_flushes", "log_flush_us_mean"], LOG_FLUSH_US, &usage.log_flushes);
    flushes(lines, ["ssd_flushes", "ssd_flush_us_mean"], SSD_FLUSH_US, &usage.ssd_flushes);
}

/// Percentiles are told by these names.
const LOG_FLUSH_US: [&str; 3] = ["log_flush_us_p50", "log_flush_us_p99", "log_flush_us_p999"];
const SSD_FLUSH_US: [&str; 3] = ["ssd_flush_us_p50", "ssd_flush_us_p99", "ssd_flush_us_p999"];

fn flushes(lines: &mut Lines<'_>, names: [&str; 2], percentiles: [&str; 3], times: &FlushTimes) {
    lines.number(names[0], times.count());
    lines.number(names[1], times.nanos / 1000 / times.count().max(1));
    for (name, permille) in percentiles.into_iter().zip([500, 990, 999]) {
        lines.number(name, times.us_at(permille));
    }
}

fn work(lines: &mut Lines<'_>, snapshot: &TierSnapshot) {
    let (stats, watch) = (&snapshot.stats, &snapshot.watch);
    lines.text("durability", if snapshot.waits { "ack" } else { "interval" });
    lines.text("when_full", if snapshot.evicts { "evict" } else { "refuse" });
    lines.yes("writes_refused_until_restart", stats.poisoned);
    lines.number("groups", stats.groups);
    lines.number("group_records", stats.grouped_records);
    let mean = stats.grouped_records as f64 / stats.groups.max(1) as f64;
    lines.shown("group_records_mean", format_args!("{mean:.1}"));
    lines.number("stalls", stats.stalls);
    lines.number("records_migrated", stats.migrated_records);
    lines.number("migrate_rate", stats.migrate_rate);
    lines.number("migrate_rate_yields", stats.rate_yields);
    lines.number("bytes_migrated", stats.moved_bytes);
    lines.text("compaction", stats.compaction.standing.name());
    lines.number("compaction_bytes_done", stats.compaction.done_bytes);
    lines.number("compaction_bytes_all", stats.compaction.all_bytes);
    lines.number("records_kept_hot", stats.kept_records);
    lines.number("records_expired", stats.expired_records);
    lines.number("evicted_items", stats.evicted.small.items + stats.evicted.large.items);
    lines.number("evicted_items_small", stats.evicted.small.items);
    lines.number("evicted_items_large", stats.evicted.large.items);
    lines.number("evicted_bytes", stats.evicted.small.bytes + stats.evicted.large.bytes);
    lines.number("evicted_bytes_small", stats.evicted.small.bytes);
    lines.number("evicted_bytes_large", stats.evicted.large.bytes);
    lines.number("expired_first_small", stats.evicted.small.expired_first);
    lines.number("expired_first_large", stats.evicted.large.expired_first);
    lines.number("segments_freed", stats.segments_freed);
    lines.number("sort_tables_freed", stats.tables_freed);
    lines.number("checkpoints", stats.checkpoints);
    lines.number("checkpoints_refused", stats.checkpoints_refused);
    lines.number("executor_requests", watch.requests);
    lines.number("executor_queue", watch.queue);
    lines.number("replies_held", snapshot.held);
    lines.number("items_brought_in", watch.faults);
    lines.number("bytes_brought_in", watch.fault_bytes);
    lines.number("large_written", watch.spills);
    lines.number("set_aside", snapshot.set_aside);
    lines.number("answered_before", snapshot.answered_before);
    lines.number("writes_refused", watch.refused.total());
    lines.number("items_expired", snapshot.expired);
    lines.number("reads_lost", watch.lost);
}
