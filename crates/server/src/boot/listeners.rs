//! The listeners of TCP and of the unix socket.

use super::StartError;
use crate::settings::{Port, Settings};
use laneway_transport::socket::Listener;
use std::io;

/// The listeners that encrypt nothing; of each whether it is read-only; and the first one where
/// nothing but RESP is spoken.
pub fn listen(settings: &Settings) -> Result<(Vec<Listener>, Vec<bool>, usize), StartError> {
    let mut listeners = for_all(settings)?;
    let resp_from = listeners.len();
    listeners.extend(tcp(&settings.resp.addresses, settings.backlog)?);
    let (listeners, read_only) = listeners.into_iter().unzip();
    Ok((listeners, read_only, resp_from))
}

/// Those of memcached's clients, each with whether it is read-only.
fn for_all(settings: &Settings) -> Result<Vec<(Listener, bool)>, StartError> {
    if let Some((path, mode)) = &settings.unix {
        let listener = Listener::unix(path, *mode, settings.backlog);
        let place = path.display().to_string();
        return Ok(vec![(listener.map_err(|error| StartError::Listen(place, error))?, false)]);
    }
    tcp(&settings.addresses, settings.backlog)
}

/// Listeners at these addresses, each with whether it is read-only.
pub fn tcp(ports: &[Port], backlog: i32) -> Result<Vec<(Listener, bool)>, StartError> {
    let mut listeners = Vec::new();
    for Port { address, read_only } in ports {
        match Listener::tcp(*address, backlog) {
            Ok(listener) => listeners.push((listener, *read_only)),
            // A machine without IPv6 still serves the IPv4 wildcard.
            Err(error)
                if address.is_ipv6()
                    && address.ip().is_unspecified()
                    && error.kind() != io::ErrorKind::AddrInUse
                    && !listeners.is_empty() => {}
            Err(error) => return Err(StartError::Listen(address.to_string(), error)),
        }
    }
    Ok(listeners)
}
