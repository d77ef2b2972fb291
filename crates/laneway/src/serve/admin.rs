//! Where operators look: `--admin`, checked.

use super::places;
use crate::flags::Flags;
use laneway_admin as admin;
use laneway_server::boot::Server;
use laneway_server::settings::Settings;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::sync::Arc;

/// Descriptors that the endpoint takes: its connections, and what its thread waits with.
pub const DESCRIPTORS: usize = 72;

/// Where to listen, if the flag says so: at all addresses of its name.
pub fn addresses(flags: &Flags) -> Result<Vec<SocketAddr>, String> {
    let Some(text) = flags.admin.as_ref().filter(|_| !flags.handed.admin) else {
        return Ok(Vec::new());
    };
    let mut found = match places::known(flags, text, None) {
        Some(known) => known,
        None => text.to_socket_addrs().map_or(Vec::new(), Iterator::collect),
    };
    if found.is_empty() {
        return Err(format!(
            "--admin {text}: must be an address and a port, such as 127.0.0.1:11280"
        ));
    }
    // Names are told with an address twice, by some files of hosts.
    found.sort_unstable();
    found.dedup();
    Ok(found)
}

/// Refuses an address that clients come by: it would be refused to them as another server's.
pub fn check_apart(addresses: &[SocketAddr], settings: &Settings) -> Result<(), String> {
    let encrypted =
        settings.tls.iter().flat_map(|tls| tls.addresses.iter().chain(&tls.resp_addresses));
    let plain = settings.addresses.iter().chain(&settings.resp.addresses);
    for port in plain.chain(encrypted) {
        if let Some(place) = addresses.iter().find(|place| meets(place, &port.address)) {
            return Err(format!(
                "--admin {place}: clients come by {}, as -l, -p and --resp have it; choose another \
                 port, such as 11280",
                port.address
            ));
        }
    }
    Ok(())
}

/// Whether the kernel lets nobody listen at both. Unlike that of clients, the wildcard of IPv6 has
/// the addresses of IPv4, too.
fn meets(place: &SocketAddr, of_clients: &SocketAddr) -> bool {
    let has_all = place.is_ipv6() && place.ip().is_unspecified() && place.port() != 0;
    places::meet(place, of_clients) || (has_all && place.port() == of_clients.port())
}

/// Listen there, or take what was handed over, before the server has started.
pub fn listen(
    addresses: &[SocketAddr],
    handed: Option<TcpListener>,
) -> Result<Option<admin::Closed>, String> {
    let closed = match (handed, addresses) {
        (Some(handed), _) => admin::take(handed)
            .map_err(|error| format!("the socket for admin that was handed over: {error}"))?,
        (None, []) => return Ok(None),
        (None, addresses) => admin::listen(addresses).map_err(|error| {
            let places: Vec<String> = addresses.iter().map(ToString::to_string).collect();
            let places = places.join(", ");
            format!("cannot listen on {places}: {error}; choose another address with --admin")
        })?,
    };
    if let Some(address) = closed.addresses().iter().find(|address| !address.ip().is_loopback()) {
        log::warn!(
            "--admin {address}: whoever reaches this address reads the server's numbers, without \
             a password and in plain text; choose 127.0.0.1, or keep others away by a firewall",
        );
    }
    Ok(Some(closed))
}

/// Answer from now on that this process lives.
pub fn start(closed: admin::Closed) -> Result<admin::Starting, String> {
    let places = closed.addresses().iter().map(|address| format!("http://{address}/"));
    let places = places.collect::<Vec<_>>().join(" ");
    let starting = closed.start().map_err(|error| format!("--admin: {error}"))?;
    log::info!("dashboard and metrics on {places}");
    Ok(starting)
}

/// Tell of this server from now on.
pub fn tell_of(starting: admin::Starting, server: &Server) -> admin::Running {
    starting.tell_of(Arc::new(server.watch()))
}
