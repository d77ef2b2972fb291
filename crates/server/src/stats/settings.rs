//! `stats settings`: memcached's names, in its order. Where a setting tunes a part that is not
//! here, the line says that the part is off, or gives memcached's default.

use super::lines::Lines;

/// What `stats settings` tells.
#[derive(Debug, Clone, Default)]
pub struct SettingsSnapshot {
    /// Memory limit, bytes.
    pub memory_bytes: u64,
    /// Most connections at a time.
    pub connections_max: u64,
    /// TCP port; 0 if none.
    pub tcp_port: u16,
    /// UDP port; 0 if none.
    pub udp_port: u16,
    /// Listen addresses as given.
    pub interface: Option<String>,
    /// Level of logging.
    pub verbosity: u32,
    /// Whether items are evicted.
    pub evicts: bool,
    /// Path of the unix socket.
    pub unix_path: Option<String>,
    /// Its permission bits.
    pub unix_mode: u32,
    /// `shutdown` is allowed.
    pub shutdown: bool,
    /// Workers.
    pub workers: u64,
    /// `stats detail on` was said.
    pub detail: bool,
    /// Requests of one connection served in one turn.
    pub requests_per_turn: u64,
    /// CAS ids are kept.
    pub cas: bool,
    /// Kernel queue of connections.
    pub backlog: u64,
    /// Largest item, bytes.
    pub item_bytes_max: u64,
    /// Which of memcached's protocols are served, in its word.
    pub binding: &'static str,
    /// Clients of the binary protocol say who they are.
    pub auth_binary: bool,
    /// Those of the text protocol do.
    pub auth_text: bool,
    /// `flush_all` is allowed.
    pub flush: bool,
    /// `stats cachedump` is allowed.
    pub dump: bool,
    /// Bytes that the event log takes once somebody watches; 0 where nobody may.
    pub event_log_bytes: u64,
    /// Seconds after which idle connections are closed; 0 never.
    pub idle_timeout_seconds: u64,
    /// TLS in memcached's names; none where it is off.
    pub tls: Vec<(&'static str, String)>,
    /// Our own settings: name and value, as flags name them.
    pub own: Vec<(&'static str, String)>,
}

/// Answer `stats settings`.
pub fn write_settings(snapshot: &SettingsSnapshot, out: &mut Vec<u8>) {
    let mut lines = Lines::new(out);
    listening(snapshot, &mut lines);
    limits(snapshot, &mut lines);
    absent(snapshot, &mut lines);
    for (name, value) in &snapshot.own {
        lines.text(name, value);
    }
    lines.end();
}

fn listening(snapshot: &SettingsSnapshot, lines: &mut Lines<'_>) {
    lines.number("maxbytes", snapshot.memory_bytes);
    lines.number("maxconns", snapshot.connections_max);
    lines.number("tcpport", snapshot.tcp_port.into());
    lines.number("udpport", snapshot.udp_port.into());
    lines.text("inter", snapshot.interface.as_deref().unwrap_or("NULL"));
    lines.number("verbosity", snapshot.verbosity.into());
    lines.number("oldest", 0);
    lines.text("evictions", if snapshot.evicts { "on" } else { "off" });
    lines.text("domain_socket", snapshot.unix_path.as_deref().unwrap_or("NULL"));
    lines.shown("umask", format_args!("{:o}", snapshot.unix_mode));
    lines.yes("shutdown_command", snapshot.shutdown);
}

fn limits(snapshot: &SettingsSnapshot, lines: &mut Lines<'_>) {
    lines.text("growth_factor", "1.25");
    lines.number("chunk_size", 48);
    lines.number("num_threads", snapshot.workers);
    lines.number("num_threads_per_udp", snapshot.workers);
    lines.text("stat_key_prefix", ":");
    lines.yes("detail_enabled", snapshot.detail);
    lines.number("reqs_per_event", snapshot.requests_per_turn);
    lines.yes("cas_enabled", snapshot.cas);
    lines.number("tcp_backlog", snapshot.backlog);
    lines.text("binding_protocol", snapshot.binding);
    lines.yes("auth_enabled_sasl", snapshot.auth_binary);
    lines.yes("auth_enabled_ascii", snapshot.auth_text);
    lines.number("item_size_max", snapshot.item_bytes_max);
    lines.yes("maxconns_fast", true);
    lines.number("hashpower_init", 0);
}

fn absent(snapshot: &SettingsSnapshot, lines: &mut Lines<'_>) {
    lines.yes("slab_reassign", false);
    lines.number("slab_automove", 0);
    lines.text("slab_automove_ratio", "0.80");
    lines.number("slab_automove_window", 30);
    lines.number("slab_chunk_max", snapshot.item_bytes_max);
    lines.yes("lru_crawler", true); // the background sweep
    lines.number("lru_crawler_sleep", 0);
    lines.number("lru_crawler_tocrawl", 0);
    lines.number("tail_repair_time", 0);
    lines.yes("flush_enabled", snapshot.flush);
    lines.yes("dump_enabled", snapshot.dump);
    lines.text("hash_algorithm", "siphash-1-3");
    lines.yes("lru_maintainer_thread", false);
    lines.yes("lru_segmented", false);
    for (name, value) in LRU {
        lines.text(name, value);
    }
    lines.number("idle_timeout", snapshot.idle_timeout_seconds);
    lines.number("watcher_logbuf_size", 0);
    lines.number("worker_logbuf_size", snapshot.event_log_bytes);
    lines.number("read_buf_mem_limit", 0);
    lines.yes("track_sizes", true);
    lines.yes("inline_ascii_response", false);
    for (name, value) in EXTSTORE {
        lines.text(name, value);
    }
    lines.text("slab_automove_freeratio", "0.010");
    lines.yes("ext_drop_unread", false);
    lines.yes("ssl_enabled", !snapshot.tls.is_empty());
    for (name, value) in &snapshot.tls {
        lines.text(name, value);
    }
    lines.number("num_napi_ids", 0);
    lines.text("memory_file", "(null)");
    lines.number("client_flags_size", size_of::<u32>() as u64);
}

/// memcached's defaults of its lists of items, which are not here.
const LRU: [(&str, &str); 6] = [
    ("hot_lru_pct", "20"),
    ("warm_lru_pct", "40"),
    ("hot_max_factor", "0.20"),
    ("warm_max_factor", "2.00"),
    ("temp_lru", "no"),
    ("temporary_ttl", "61"),
];

/// memcached's defaults of extstore, which is not here.
const EXTSTORE: [(&str, &str); 9] = [
    ("ext_item_size", "512"),
    ("ext_item_age", "4294967295"),
    ("ext_low_ttl", "0"),
    ("ext_recache_rate", "2000"),
    ("ext_wbuf_size", "4194304"),
    ("ext_compact_under", "0"),
    ("ext_drop_under", "0"),
    ("ext_max_sleep", "1000000"),
    ("ext_max_frag", "0.80"),
];
