//! `stats`: memcached's general names, in its order, then a few of our own.

use super::lines::{Lines, Seconds, numbers};
use crate::counts::counters::Totals;
use crate::counts::watch::ConnectionsWatch;
use crate::event_log::EventCounts;
use crate::execute::VERSION;
use laneway_store::Stats;

/// What `stats` tells.
#[derive(Debug, Clone, Default)]
pub struct GeneralSnapshot {
    /// The process.
    pub pid: u32,
    /// Seconds since the start.
    pub uptime_seconds: u64,
    /// Unix time.
    pub now_seconds: u64,
    /// CPU time of the process in user mode, microseconds.
    pub cpu_user_us: u64,
    /// CPU time of the process in the kernel, microseconds.
    pub cpu_system_us: u64,
    /// Connections.
    pub connections: ConnectionsWatch,
    /// Connections closed for being idle; `None` where that never happens (memcached leaves the
    /// line out then).
    pub idle_kicks: Option<u64>,
    /// File descriptors kept for the server's own use.
    pub reserved_fds: u64,
    /// What was logged for those who watch.
    pub events: EventCounts,
    /// Workers.
    pub workers: u64,
    /// Command counters, all workers.
    pub counters: Totals,
    /// The store.
    pub store: Stats,
    /// Items that the background sweep found expired.
    pub swept: u64,
    /// Design in force, as `--design` names it.
    pub design: &'static str,
    /// Bytes that datagrams take beside the store: requests, replies, their parts, answers.
    pub udp_bytes: u64,
    /// Lines of the server's own log that were dropped.
    pub log_dropped: u64,
}

/// Answer `stats`.
pub fn write_general(snapshot: &GeneralSnapshot, out: &mut Vec<u8>) {
    let mut lines = Lines::new(out);
    process(snapshot, &mut lines);
    commands(&snapshot.counters, &snapshot.store, &mut lines);
    server(snapshot, &mut lines);
    absent(&mut lines);
    event_log(snapshot, &mut lines);
    items(snapshot, &mut lines);
    own(snapshot, &mut lines);
    lines.end();
}

fn process(snapshot: &GeneralSnapshot, lines: &mut Lines<'_>) {
    let connections = &snapshot.connections;
    lines.number("pid", snapshot.pid.into());
    lines.number("uptime", snapshot.uptime_seconds);
    lines.number("time", snapshot.now_seconds);
    lines.text("version", VERSION);
    lines.number("pointer_size", u64::from(usize::BITS));
    lines.shown("rusage_user", Seconds(snapshot.cpu_user_us));
    lines.shown("rusage_system", Seconds(snapshot.cpu_system_us));
    lines.number("max_connections", connections.most);
    lines.number("curr_connections", connections.open);
    lines.number("total_connections", connections.total);
    lines.number("rejected_connections", connections.rejected);
    lines.number("connection_structures", connections.open);
    lines.number("response_obj_oom", 0);
    lines.number("response_obj_count", 0);
    lines.number("response_obj_bytes", 0);
    lines.number("read_buf_count", 0);
    lines.number("read_buf_bytes", 0);
    lines.number("read_buf_bytes_free", 0);
    lines.number("read_buf_oom", 0);
    lines.number("reserved_fds", snapshot.reserved_fds);
}

fn commands(counters: &Totals, store: &Stats, lines: &mut Lines<'_>) {
    numbers!(lines, counters; cmd_get cmd_set cmd_flush cmd_touch cmd_meta get_hits get_misses);
    lines.number("get_expired", store.found_expired);
    lines.number("get_flushed", store.found_flushed);
    numbers!(
        lines, counters; delete_misses delete_hits incr_misses incr_hits decr_misses decr_hits
        cas_misses cas_hits cas_badval touch_hits touch_misses store_too_large store_no_memory
        auth_cmds auth_errors
    );
}

fn server(snapshot: &GeneralSnapshot, lines: &mut Lines<'_>) {
    if let Some(kicks) = snapshot.idle_kicks {
        lines.number("idle_kicks", kicks);
    }
    numbers!(lines, snapshot.counters; bytes_read bytes_written);
    lines.number("limit_maxbytes", snapshot.store.limit_bytes);
    lines.number("accepting_conns", 1);
    lines.number("listen_disabled_num", snapshot.connections.paused);
    lines.number("time_in_listen_disabled_us", 0);
    lines.number("threads", snapshot.workers);
    lines.number("conn_yields", snapshot.counters.conn_yields);
    lines.number("hash_power_level", u64::from(snapshot.store.buckets.max(1).ilog2()));
    lines.number("hash_bytes", snapshot.store.index_bytes);
    lines.number("hash_is_expanding", 0);
}

/// Parts of memcached that are not here: nothing ever happens in them.
fn absent(lines: &mut Lines<'_>) {
    let names = "slab_reassign_rescues slab_reassign_chunk_rescues slab_reassign_evictions_nomem \
        slab_reassign_inline_reclaim slab_reassign_busy_items slab_reassign_busy_deletes \
        slab_reassign_running slabs_moved lru_crawler_running lru_crawler_starts \
        lru_maintainer_juggles malloc_fails log_worker_dropped";
    for name in names.split(' ') {
        lines.number(name, 0);
    }
}

/// What was logged for those who watch, and what comes behind it in memcached.
fn event_log(snapshot: &GeneralSnapshot, lines: &mut Lines<'_>) {
    lines.number("log_worker_written", snapshot.events.logged);
    lines.number("log_watcher_skipped", snapshot.events.skipped);
    lines.number("log_watcher_sent", snapshot.events.sent);
    lines.number("log_watchers", snapshot.events.watchers);
    lines.number("unexpected_napi_ids", 0);
    lines.number("round_robin_fallback", 0);
}

fn items(snapshot: &GeneralSnapshot, lines: &mut Lines<'_>) {
    let store = &snapshot.store;
    lines.number("bytes", store.bytes);
    lines.number("curr_items", store.items);
    lines.number("total_items", store.items_total);
    lines.number("slab_global_page_pool", store.pool_free_bytes / super::slabs::PAGE_BYTES);
    numbers!(lines, store; expired_unfetched evicted_unfetched evicted_active evictions reclaimed);
    lines.number("crawler_reclaimed", snapshot.swept);
    let moves = ["moves_to_cold", "moves_to_warm", "moves_within_lru"];
    for name in ["crawler_items_checked", "lrutail_reflocked"].into_iter().chain(moves) {
        lines.number(name, 0);
    }
    lines.number("direct_reclaims", store.evictions);
    lines.number("lru_bumps_dropped", 0);
}

/// What memcached does not have.
fn own(snapshot: &GeneralSnapshot, lines: &mut Lines<'_>) {
    let store = &snapshot.store;
    lines.text("design", snapshot.design);
    lines.number("metadata_bytes", store.metadata_bytes);
    let per_item = store.metadata_bytes as f64 / store.items.max(1) as f64;
    lines.shown("metadata_bytes_per_item", format_args!("{per_item:.1}"));
    lines.number("index_buckets", store.buckets);
    lines.number("index_buckets_overflow", store.buckets_overflow);
    lines.number("index_slots_filled", store.slots_filled);
    numbers!(lines, store; pool_bytes pool_free_bytes pinned_dead_bytes unpublished_bytes);
    lines.number("udp_bytes", snapshot.udp_bytes);
    lines.number("read_retries", store.read_retries);
    let counters = &snapshot.counters;
    numbers!(lines, counters; auth_limited auth_malformed auth_missing refused_read_only);
    lines.number("resp_keyless", counters.resp_keyless);
    lines.number("rejected_by_address", snapshot.connections.rejected_by_address);
    lines.number("client_throttled", snapshot.counters.client_holds);
    lines.number("client_throttled_ms", snapshot.counters.client_held_nanos / 1_000_000);
    lines.number("listener_throttled", snapshot.counters.listener_holds);
    lines.number("listener_throttled_ms", snapshot.counters.listener_held_nanos / 1_000_000);
    lines.number("log_lines_dropped", snapshot.log_dropped);
}
