//! The doors for clients over RDMA: one at each TCP address, of one client table, each with a
//! thread that sleeps until somebody comes or goes. No request passes it.

use super::Gate;
use super::door::Running;
use super::listeners::lacks_ipv6;
use crate::settings::{RdmaSettings, Settings};
use crate::shared::Shared;
use laneway_rdma::door::Door;
use laneway_rdma::verbs::card::Card;
use laneway_rdma::verbs::{Bounds, ClientTable, Grants, Trouble, WINDOW};
use laneway_transport::socket::Listener;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

/// Why no client can come over RDMA.
#[derive(Debug)]
pub enum ClientTableError {
    /// There is no such device, or it refuses.
    Device(Trouble),
    /// The door cannot be listened at.
    Listen(SocketAddr, io::Error),
}

impl fmt::Display for ClientTableError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ClientTableError::Device(trouble) => {
                write!(f, "--rdma: {trouble}. Without --rdma the server runs; see laneway doctor")
            }
            ClientTableError::Listen(address, error) => {
                write!(f, "cannot listen on {address}: {error}; choose another with --rdma-port")
            }
        }
    }
}

/// Doors that nobody has come through yet.
pub struct Closed {
    doors: Vec<(Door<Listener, ClientTable>, UnixStream)>,
    /// Who has come through.
    pub client_table: Arc<ClientTable>,
    /// Where they are, with the ports that the kernel chose.
    pub addresses: Vec<SocketAddr>,
}

/// What is granted to all clients of unreliable connections together.
const GRANTED_BYTES_MAX: usize = 128 << 20;
/// What one of them gets, at least and at most; between these twice the largest item.
const GRANT_BYTES_MIN: usize = 1 << 20;
const GRANT_BYTES_MAX: usize = 8 << 20;

fn grants(item_bytes_max: usize) -> Grants {
    let client_bytes = (2 * item_bytes_max).clamp(GRANT_BYTES_MIN, GRANT_BYTES_MAX);
    Grants { client_bytes, all_bytes: GRANTED_BYTES_MAX }
}

/// Open the device and listen, if that is asked for.
pub fn listen(settings: &Settings) -> Result<Option<Closed>, ClientTableError> {
    let Some(RdmaSettings { place, addresses, limits }) = &settings.rdma else {
        return Ok(None);
    };
    let bounds = Bounds { lanes: settings.workers, window: WINDOW };
    let card = Card::open(place).map_err(ClientTableError::Device)?;
    let grants = grants(settings.item_bytes_max);
    let client_table =
        ClientTable::new(card, bounds, *limits, grants).map_err(ClientTableError::Device)?;
    let client_table = Arc::new(client_table);
    let (mut doors, mut told) = (Vec::new(), Vec::new());
    for address in addresses {
        let wrong = |error| ClientTableError::Listen(*address, error);
        match Listener::tcp(*address, settings.backlog) {
            Ok(listener) => {
                told.extend(listener.address());
                doors.push(Door::new(listener, client_table.clone()).map_err(wrong)?);
            }
            Err(error) if lacks_ipv6(*address, &error) && !doors.is_empty() => {}
            Err(error) => return Err(wrong(error)),
        }
    }
    Ok(Some(Closed { doors, client_table, addresses: told }))
}

impl Closed {
    /// Let clients in.
    pub fn open<S: Send + 'static>(
        self,
        shared: &Arc<Shared<S>>,
        gate: &Gate,
    ) -> io::Result<Vec<Running>> {
        let doors = self.doors.into_iter();
        doors.map(|door| Running::open("rdma", door, shared.clone(), gate)).collect()
    }
}
