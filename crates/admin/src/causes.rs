//! Counts of refused and abandoned requests and connections by cause. `/metrics` and `/api/state`
//! use the same names.

use laneway_server::counts::watch::WatchSnapshot;

/// Each cause, and how often.
pub fn causes(snapshot: &WatchSnapshot) -> [(&'static str, u64); 12] {
    let (totals, connections) = (&snapshot.totals, &snapshot.connections);
    [
        ("malformed_request", totals.malformed),
        ("item_too_large", totals.store_too_large),
        ("out_of_memory", totals.store_no_memory),
        ("too_many_connections", connections.rejected),
        ("no_descriptors", connections.paused),
        ("idle_timeout", connections.idle_kicked),
        ("wrong_password", totals.auth_errors),
        ("password_limit", totals.auth_limited),
        ("malformed_password", totals.auth_malformed),
        ("no_password", totals.auth_missing),
        ("too_many_of_address", connections.rejected_by_address),
        ("read_only_port", totals.refused_read_only),
    ]
}
