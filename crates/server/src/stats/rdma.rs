//! `stats rdma`: clients over RDMA, what their requests cost the card at this side, what was lost,
//! and every way in which what they wrote was bad.

use super::lines::Lines;
use laneway_rdma::verbs::{Bounds, Hall};
use std::sync::atomic::Ordering::Relaxed;

/// Answer `stats rdma`. `None`: no clients over RDMA are served.
pub fn write_rdma(hall: Option<&Hall>, out: &mut Vec<u8>) {
    let mut lines = Lines::new(out);
    lines.yes("rdma", hall.is_some());
    if let Some(hall) = hall {
        lines.text("device", &hall.domain().card().place().to_string());
        let Bounds { lanes, window } = hall.bounds();
        for (name, number) in [
            ("clients", hall.count()),
            ("clients_max", hall.clients().len()),
            ("lanes", lanes),
            ("window", window),
            ("client_bytes", hall.client_bytes()),
            ("granted_bytes", hall.granted_bytes()),
        ] {
            lines.number(name, number as u64);
        }
        lines.number("clients_come", hall.clients_come.load(Relaxed));
        lines.number("clients_refused", hall.clients_refused.load(Relaxed));
        lines.number("hellos_bad", hall.hellos_bad.load(Relaxed));
        for (name, count) in hall.sums() {
            lines.number(name, count);
        }
    }
    lines.end();
}
