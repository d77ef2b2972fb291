//! `INFO`: what there is of Redis' sections.

use crate::core::Core;
use crate::counts::counters::Totals;
use crate::counts::cpu_time::cpu_us;
use crate::resp::options::is;
use laneway_store::Stats;
use laneway_transport::Transport;
use laneway_wire::resp::Args;
use std::sync::atomic::Ordering::Relaxed;

/// The version of Redis whose commands these are, for clients that ask which they may use.
pub const REDIS_VERSION: &str = "7.2.4";

/// A section's name, and its lines.
type Section = (&'static str, Vec<(&'static str, String)>);

/// Bytes as `INFO` writes them beside their number.
fn human(bytes: u64) -> String {
    let units = [(30, "G"), (20, "M"), (10, "K")];
    match units.into_iter().find(|(shift, _)| bytes >> shift > 0) {
        Some((shift, unit)) => format!("{:.2}{unit}", bytes as f64 / (1_u64 << shift) as f64),
        None => format!("{bytes}B"),
    }
}

/// Whether a section is asked for.
fn is_wanted(mut sections: Args<'_>, name: &str) -> bool {
    const ALL: [&str; 3] = ["all", "default", "everything"];
    let is_it = |section: &[u8]| is(section, name) || ALL.iter().any(|all| is(section, all));
    sections.left() == 0 || sections.any(is_it)
}

impl<T: Transport> Core<T> {
    /// `INFO [section ...]`
    pub(crate) fn resp_info(&self, sections: Args<'_>) -> Vec<u8> {
        let shared = &self.shared;
        let totals = shared.totals();
        let stats = shared.store_stats();
        let all = [self.of_server(&stats), self.of_work(&totals, &stats)].concat();
        let mut text = String::new();
        for (name, lines) in all.iter().filter(|(name, _)| is_wanted(sections, name)) {
            let gap = if text.is_empty() { "" } else { "\r\n" };
            let title = match *name {
                "cpu" => "CPU".to_owned(),
                name => name[..1].to_uppercase() + &name[1..],
            };
            text += &format!("{gap}# {title}\r\n");
            lines.iter().for_each(|(field, value)| text += &format!("{field}:{value}\r\n"));
        }
        text.into_bytes()
    }

    fn of_server(&self, stats: &Stats) -> Vec<Section> {
        let (shared, connections) = (&self.shared, &self.shared.connections);
        let uptime = self.now.seconds().saturating_sub(shared.started_seconds);
        let policy = if shared.settings.store_mode { "noeviction" } else { "allkeys-lfu" };
        let used = stats.pool_bytes.saturating_sub(stats.pool_free_bytes);
        vec![
            (
                "server",
                vec![
                    ("redis_version", REDIS_VERSION.into()),
                    ("server_name", "laneway".into()),
                    ("laneway_version", env!("CARGO_PKG_VERSION").into()),
                    ("redis_mode", "standalone".into()),
                    ("os", std::env::consts::OS.into()),
                    ("arch_bits", usize::BITS.to_string()),
                    ("process_id", std::process::id().to_string()),
                    ("uptime_in_seconds", uptime.to_string()),
                    ("uptime_in_days", (uptime / 86_400).to_string()),
                ],
            ),
            (
                "clients",
                vec![
                    ("connected_clients", connections.open.load(Relaxed).to_string()),
                    ("maxclients", shared.settings.connections_max.to_string()),
                    ("blocked_clients", "0".into()),
                ],
            ),
            (
                "memory",
                vec![
                    ("used_memory", used.to_string()),
                    ("used_memory_human", human(used)),
                    ("maxmemory", stats.limit_bytes.to_string()),
                    ("maxmemory_human", human(stats.limit_bytes)),
                    ("maxmemory_policy", policy.into()),
                ],
            ),
            (
                "persistence",
                vec![
                    ("loading", "0".into()),
                    ("aof_enabled", u8::from(self.keeps()).to_string()), // the log of the folder
                ],
            ),
        ]
    }

    fn of_work(&self, totals: &Totals, stats: &Stats) -> Vec<Section> {
        let connections = &self.shared.connections;
        // Whoever reads the number of keys expects the others behind it, which nobody counts.
        let keys = ("db0", format!("keys={},expires=0,avg_ttl=0", stats.items));
        let expired = stats.reclaimed.saturating_sub(stats.reclaimed_flushed);
        let (user, system) = cpu_us();
        let seconds = |us: u64| format!("{}.{:06}", us / 1_000_000, us % 1_000_000);
        vec![
            (
                "stats",
                vec![
                    ("total_connections_received", connections.total.load(Relaxed).to_string()),
                    ("rejected_connections", connections.rejected.load(Relaxed).to_string()),
                    ("total_commands_processed", commands(totals).to_string()),
                    ("expired_keys", expired.to_string()),
                    ("evicted_keys", stats.evictions.to_string()),
                    ("keyspace_hits", totals.get_hits.to_string()),
                    ("keyspace_misses", totals.get_misses.to_string()),
                ],
            ),
            ("replication", vec![("role", "master".into()), ("connected_slaves", "0".into())]),
            ("cpu", vec![("used_cpu_sys", seconds(system)), ("used_cpu_user", seconds(user))]),
            ("cluster", vec![("cluster_enabled", "0".into())]),
            ("keyspace", if stats.items > 0 { vec![keys] } else { Vec::new() }),
        ]
    }
}

/// Requests about keys, each key of those about several counted, and RESP's about none. Latencies
/// are counted by more, and dearer to read: there are clients that send `INFO` with every
/// connection.
fn commands(totals: &Totals) -> u64 {
    let removed = totals.delete_hits + totals.delete_misses;
    let counted = totals.incr_hits + totals.incr_misses + totals.decr_hits + totals.decr_misses;
    totals.cmd_get + totals.cmd_set + totals.cmd_touch + removed + counted + totals.resp_keyless
}

#[cfg(test)]
mod tests {
    use super::human;

    #[test]
    fn bytes_are_written_in_the_largest_unit_that_fits() {
        for (bytes, text) in
            [(0, "0B"), (1023, "1023B"), (1024, "1.00K"), (64 << 20, "64.00M"), (3 << 29, "1.50G")]
        {
            assert_eq!(human(bytes), text);
        }
    }
}
