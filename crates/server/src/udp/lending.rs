//! Chooses who moves the long messages of clients that open memory to the server, by where these
//! clients are.

use laneway_rdma::contract::{Lenders, Peer};
use laneway_transport::datagram::{Datagrams, Whence};
use laneway_transport::rdma;
use std::net::SocketAddr;

/// See the module's page.
#[derive(Default)]
pub struct Lending {
    here: Option<Box<dyn Lenders>>,
    afar: Option<Box<dyn Lenders>>,
}

impl Lending {
    /// By these queues.
    pub fn of(datagrams: &dyn Datagrams) -> Lending {
        Lending { here: datagrams.lenders(Whence::Here), afar: datagrams.lenders(Whence::Afar) }
    }

    /// Of this client, if it is one that may lend.
    pub fn to(&self, peer: &SocketAddr) -> Option<(&dyn Lenders, Peer)> {
        let (whence, peer) = rdma::whence(peer)?;
        let lenders = match whence {
            Whence::Here => &self.here,
            Whence::Afar => &self.afar,
        };
        Some((lenders.as_deref()?, peer))
    }
}
