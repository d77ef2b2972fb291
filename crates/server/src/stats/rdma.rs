//! `stats rdma`: clients over RDMA, what their requests cost the card at this side, what was lost,
//! and every way in which what they wrote was bad.

use super::lines::Lines;
use laneway_rdma::verbs::{Bounds, ClientTable};
use std::sync::atomic::Ordering::Relaxed;

/// Answer `stats rdma`. `None`: no clients over RDMA are served.
pub fn write_rdma(client_table: Option<&ClientTable>, out: &mut Vec<u8>) {
    let mut lines = Lines::new(out);
    lines.yes("rdma", client_table.is_some());
    if let Some(client_table) = client_table {
        lines.text("device", &client_table.place().to_string());
        let Bounds { lanes, window } = client_table.bounds();
        let limits = client_table.limits();
        let (clients, writers) = (client_table.count(), client_table.writers());
        for (name, number) in [
            ("clients", clients),
            ("clients_max", limits.clients),
            ("slots_clients", writers),
            ("slots_clients_max", limits.slots),
            ("datagram_clients", clients.saturating_sub(writers)),
            ("lanes", lanes),
            ("window", window),
            ("client_bytes", client_table.client_bytes()),
            ("granted_bytes", client_table.granted_bytes()),
            ("datagram_places", client_table.datagram_places()),
        ] {
            lines.number(name, number as u64);
        }
        lines.number("clients_come", client_table.clients_come.load(Relaxed));
        lines.number("clients_refused", client_table.clients_refused.load(Relaxed));
        lines.number("hellos_bad", client_table.hellos_bad.load(Relaxed));
        for (name, count) in client_table.sums() {
            lines.number(name, count);
        }
    }
    lines.end();
}
