//! Items and memory, and the durable tier where there is one.

use super::page::{Buckets, Page};
use laneway_server::counts::watch::{
    Dropped, Ended, FLUSH_BUCKETS, FlushTimes, Scrubbed, TierWatch, Usage, WatchSnapshot,
};
use prometheus_client::registry::Unit;
use std::fmt;

pub fn write(snapshot: &WatchSnapshot, page: &mut Page<'_>) -> fmt::Result {
    let store = &snapshot.store;
    page.gauge("items", "Items in memory, now", store.items)?;
    page.gauge_bytes("items", "Their headers, keys and values", store.bytes)?;
    page.counter("items_stored", "Items ever stored", store.items_total)?;
    memory(snapshot, page)?;
    let help = "Live items that went to make room";
    page.counter("evictions", help, store.evictions)?;
    let help = "Of the evicted items, those that nobody had asked for";
    page.counter("evictions_unfetched", help, store.evicted_unfetched)?;
    let help = "Of the evicted items, those asked for since they were last looked at: memory is \
                too small for what is in use";
    page.counter("evictions_active", help, store.evicted_active)?;
    let by = |found: &'static str, count: u64| (vec![("found_by", found)], count as f64);
    page.counters(
        "expired_items",
        "Items that had expired, by who found that",
        None,
        [by("lookup", store.found_expired), by("sweep", snapshot.swept)],
    )?;
    let help = "Optimistic reads that began again, since the item was being written";
    page.counter("read_retries", help, store.read_retries)?;
    snapshot.tier.as_ref().map_or(Ok(()), |tier| write_tier(tier, page))
}

fn memory(snapshot: &WatchSnapshot, page: &mut Page<'_>) -> fmt::Result {
    let store = &snapshot.store;
    let help = "The limit on items and index (-m)";
    page.gauge_bytes("memory_limit", help, store.limit_bytes)?;
    let arena = |arena: &'static str, bytes: u64| (vec![("arena", arena)], bytes);
    page.gauges(
        "memory",
        "Memory by what it is for: chunks that hold items, chunks that are free, the index, and \
         messages of datagrams",
        Some(Unit::Bytes),
        [
            arena("items", store.pool_bytes.saturating_sub(store.pool_free_bytes)),
            arena("free", store.pool_free_bytes),
            arena("index", store.index_bytes),
            arena("datagrams", snapshot.udp_bytes),
        ],
    )?;
    page.gauges(
        "memory_held",
        "Of the memory of items, what is no item: values that arrive, and replaced ones that are \
         still being sent",
        Some(Unit::Bytes),
        [
            (vec![("by", "arriving")], store.unpublished_bytes),
            (vec![("by", "leaving")], store.pinned_dead_bytes),
        ],
    )
}

fn write_tier(tier: &TierWatch, page: &mut Page<'_>) -> fmt::Result {
    let help = "Requests that the durable tier executed";
    page.counter("tier_requests", help, tier.requests)?;
    let help = "Requests that wait for the durable tier, now";
    page.gauge("tier_queue_length", help, tier.queue)?;
    let help = "Items that were brought into memory from the durable tier";
    page.counter("tier_faults", help, tier.faults)?;
    page.counter_bytes("tier_fault", "Bytes of their values", tier.fault_bytes)?;
    page.counter("tier_spills", "Large values written to the SSD", tier.spills)?;
    let help = "Memory of the durable tier's index of all items, which lies beside -m";
    page.gauge_bytes("tier_index", help, tier.index_bytes)?;
    let by = |cause: &'static str, count: u64| (vec![("cause", cause)], count as f64);
    page.counters(
        "tier_refused_writes",
        "Writes that were refused or taken back, by cause: log or SSD is full, memory is short, a \
         medium failed",
        None,
        [
            by("full", tier.refused.full),
            by("memory", tier.refused.memory),
            by("failed", tier.refused.failed),
        ],
    )?;
    let help = "Reads of items that are damaged, or that a device refused to give";
    page.counter("tier_damaged_reads", help, tier.lost)?;
    let classes = [("small", tier.evicted.small), ("large", tier.evicted.large)];
    let by_class = |value: fn(&Dropped) -> u64| {
        classes.map(|(class, dropped)| (vec![("class", class)], value(&dropped) as f64))
    };
    let help = "Items that the durable tier dropped to make room on the SSD";
    page.counters("tier_evicted_items", help, None, by_class(|dropped| dropped.items))?;
    let bytes = by_class(|dropped| dropped.bytes);
    page.counters("tier_evicted", "Bytes of their keys and values", Some(Unit::Bytes), bytes)?;
    let help = "Items that had expired when room was made, and went before any other";
    page.counters("tier_expired_first", help, None, by_class(|dropped| dropped.expired_first))?;
    let took = [(Vec::new(), tier.recovery_ms as f64 / 1e3)];
    let help = "How long the last start took to recover";
    page.gauges("tier_recovery", help, Some(Unit::Seconds), took)?;
    write_usage(&tier.usage, page)?;
    tier.scrub.as_ref().map_or(Ok(()), |scrub| write_scrub(scrub, page))?;
    tier.backups.as_ref().map_or(Ok(()), |backups| write_backups(backups, page))
}

fn write_usage(usage: &Usage, page: &mut Page<'_>) -> fmt::Result {
    let by = |log: u64, ssd: u64| [(vec![("medium", "log")], log), (vec![("medium", "ssd")], ssd)];
    let bytes = || Some(Unit::Bytes);
    let help = "Bytes of each medium: the log, the SSD";
    page.gauges("tier_medium", help, bytes(), by(usage.log_bytes, usage.ssd_bytes))?;
    let help = "Bytes of each medium that are in use: segments of the log, blocks of the SSD";
    page.gauges("tier_used", help, bytes(), by(usage.log_used_bytes, usage.ssd_used_bytes))?;
    if let Some(large) = usage.large_live_bytes {
        let help = "Of these, what is current: records of the log, those of sort tables and large \
                    values, as they are stored";
        let live = by(usage.log_live_bytes, usage.table_live_bytes + large);
        page.gauges("tier_live", help, bytes(), live)?;
    }
    let help =
        "Bytes of the log that are in use beyond where migration begins; 0 where it keeps up";
    page.gauge_bytes("tier_migration_backlog", help, usage.migration_backlog_bytes)?;
    let help = "Values of this size and above go straight to the SSD, smaller ones to the log";
    page.gauge_bytes("tier_split", help, usage.split_bytes)?;
    let help = "Bytes of keys and values that clients wrote";
    page.counter_bytes("tier_user_written", help, usage.user_written_bytes)?;
    let written = by(usage.log_written_bytes, usage.ssd_written_bytes);
    let written = written.map(|(labels, count)| (labels, count as f64));
    page.counters("tier_written", "Bytes written to each medium", bytes(), written)?;
    let times = [("log", &usage.log_flushes), ("ssd", &usage.ssd_flushes)];
    page.histograms(
        "tier_flush_duration",
        "How long each medium took to make durable what was written",
        Unit::Seconds,
        times.map(|(medium, times)| (vec![("medium", medium)], buckets(times))),
    )
}

fn buckets(times: &FlushTimes) -> Buckets {
    let end = |bucket| FlushTimes::end_us(bucket).map_or(f64::INFINITY, |us| us as f64 / 1e6);
    let counts = (0..FLUSH_BUCKETS).map(|bucket| (end(bucket), times.counts[bucket])).collect();
    Buckets { sum: times.nanos as f64 / 1e9, count: times.count(), counts }
}

fn write_scrub(scrub: &Scrubbed, page: &mut Page<'_>) -> fmt::Result {
    let help = "Whole passes over all that is kept durably, which verify it";
    page.counter("tier_scrub_passes", help, scrub.passes)?;
    page.counter_bytes("tier_scrub_read", "Bytes that passes have read", scrub.bytes)?;
    let help = "What they found damaged, each item once";
    page.counter("tier_scrub_damaged", help, scrub.damaged)?;
    let help = "What the last whole pass found damaged";
    page.gauge("tier_scrub_last_damaged", help, scrub.done_damaged)?;
    let help = "When the last whole pass since the start ended, as a unix time; 0 for never";
    let at = [(Vec::new(), scrub.done_seconds)];
    page.gauges("tier_scrub_done_timestamp", help, Some(Unit::Seconds), at)
}

fn write_backups(backups: &Ended, page: &mut Page<'_>) -> fmt::Result {
    let by = |outcome: &'static str, count: u64| (vec![("outcome", outcome)], count as f64);
    page.counters(
        "tier_backups",
        "Backups that have ended since the start, by outcome",
        None,
        [by("done", backups.done), by("failed", backups.failed)],
    )?;
    let help = "When the last whole backup since the start ended, as a unix time; 0 for never";
    let at = [(Vec::new(), backups.done_seconds)];
    page.gauges("tier_backup_done_timestamp", help, Some(Unit::Seconds), at)
}
