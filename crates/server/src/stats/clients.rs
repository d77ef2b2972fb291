//! `stats clients`: who asks for how much.

use super::lines::Lines;
use crate::counts::clients::ClientWatch;

/// Clients told at most: those that most bytes went to and came from.
const CLIENTS_TOLD: usize = 64;

/// Answer `stats clients`.
pub fn write_clients(mut clients: Vec<ClientWatch>, out: &mut Vec<u8>) {
    clients.sort_by_key(|client| std::cmp::Reverse(client.sums.bytes_in + client.sums.bytes_out));
    let mut lines = Lines::new(out);
    for client in clients.iter().take(CLIENTS_TOLD) {
        let mut line = |name: &str, value: u64| {
            // An address of a unix socket may have what would end a name.
            let address =
                client.address.replace(|c: char| c.is_whitespace() || c.is_control(), "_");
            lines.number(&format!("{address}:{name}"), value);
        };
        line("connections", client.connections);
        line("connections_total", client.opened);
        line("requests", client.sums.requests);
        line("requests_large", client.sums.requests_large);
        line("bytes_in", client.sums.bytes_in);
        line("bytes_out", client.sums.bytes_out);
        line("throttled", client.sums.holds);
        line("throttled_ms", client.sums.held_nanos / 1_000_000);
    }
    lines.end();
}
