//! `stats shm`: clients in memory, what their requests cost at this side, and every way in which
//! what they wrote was bad.

use super::lines::Lines;
use laneway_rdma::layout::Terms;
use laneway_rdma::region::Registry;
use std::sync::atomic::Ordering::Relaxed;

/// Answer `stats shm`. `None`: no clients in memory are served.
pub fn write_shm(registry: Option<&Registry>, path: Option<&str>, out: &mut Vec<u8>) {
    let mut lines = Lines::new(out);
    lines.yes("shm", registry.is_some());
    if let Some(registry) = registry {
        if let Some(path) = path {
            lines.text("path", path);
        }
        let Terms { lanes, window, replies, loans, bulk_bytes, places, reply_bytes } =
            registry.terms();
        for (name, number) in [
            ("clients", registry.count()),
            ("clients_max", registry.clients().len()),
            ("lanes", lanes),
            ("window", window),
            ("replies", replies),
            ("loans", loans),
            ("bulk_bytes", bulk_bytes),
            ("places", places),
            ("reply_bytes", reply_bytes),
            ("region_bytes", registry.terms().region_bytes()),
        ] {
            lines.number(name, number as u64);
        }
        lines.number("clients_come", registry.clients_come.load(Relaxed));
        lines.number("clients_refused", registry.clients_refused.load(Relaxed));
        lines.number("hellos_bad", registry.hellos_bad.load(Relaxed));
        for (name, count) in registry.sums() {
            lines.number(name, count);
        }
    }
    lines.end();
}
