//! Where operators look: `--admin`, checked.

use super::places;
use crate::flags::Flags;
use laneway_admin as admin;
use laneway_server::boot::Server;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::sync::Arc;

/// Descriptors that the endpoint takes: its connections, and what its thread waits with.
pub const DESCRIPTORS: usize = 72;

/// Where to listen, if the flag says so.
pub fn address(flags: &Flags) -> Result<Option<SocketAddr>, String> {
    let Some(text) = flags.admin.as_ref().filter(|_| !flags.handed.admin) else { return Ok(None) };
    let found = match places::known(flags, text, None) {
        Some(known) => known.into_iter().next(),
        None => text.to_socket_addrs().ok().and_then(|mut addresses| addresses.next()),
    };
    let wrong =
        || format!("--admin {text}: must be an address and a port, such as 127.0.0.1:11280");
    found.ok_or_else(wrong).map(Some)
}

/// Listen there, or take what was handed over, before the server has started.
pub fn listen(
    address: Option<SocketAddr>,
    handed: Option<TcpListener>,
) -> Result<Option<admin::Closed>, String> {
    let closed = match (handed, address) {
        (Some(handed), _) => admin::take(handed)
            .map_err(|error| format!("the socket for admin that was handed over: {error}"))?,
        (None, Some(address)) => admin::listen(address).map_err(|error| {
            format!("cannot listen on {address}: {error}; choose another address with --admin")
        })?,
        (None, None) => return Ok(None),
    };
    if !closed.address().ip().is_loopback() {
        log::warn!(
            "--admin {}: whoever reaches this address reads the server's numbers, without a \
             password and in plain text; choose 127.0.0.1, or keep others away by a firewall",
            closed.address()
        );
    }
    Ok(Some(closed))
}

/// Answer from now on that this process lives.
pub fn start(closed: admin::Closed) -> Result<admin::Starting, String> {
    let address = closed.address();
    let starting = closed.start().map_err(|error| format!("--admin {address}: {error}"))?;
    log::info!("dashboard and metrics on http://{address}/");
    Ok(starting)
}

/// Tell of this server from now on.
pub fn tell_of(starting: admin::Starting, server: &Server) -> admin::Running {
    starting.tell_of(Arc::new(server.watch()))
}
