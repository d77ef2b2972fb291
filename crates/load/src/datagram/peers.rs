//! To which port of the server a request goes.

use crate::random::Random;
use crate::workload::Operation;
use laneway_policy::Placement;
use std::net::{Ipv4Addr, SocketAddr, ToSocketAddrs};

/// The ports of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peers {
    /// The first port.
    pub first: SocketAddr,
    /// The client chooses among the server's queues: any for a GET, the owner's for a PUT (Minos
    /// §4.1; MICA's CREW). Without one there is one port, and the kernel or the server chooses.
    pub placement: Option<Placement>,
}

impl Peers {
    /// The ports of the server at `host`: from `port` on, one for each queue that there is to
    /// choose among.
    pub fn new(host: &str, port: u16, placement: Option<Placement>) -> Result<Self, String> {
        let found = (host, port)
            .to_socket_addrs()
            .map_err(|error| format!("UDP port {port} of {host}: {error}"))?;
        let first =
            chosen(found).ok_or_else(|| format!("UDP port {port} of {host}: no such host"))?;
        let peers = Peers { first, placement };
        if u32::from(port) + u32::from(peers.queues()) > 1 << 16 {
            let queues = peers.queues();
            return Err(format!("UDP ports from {port} on: {queues} queues reach beyond 65535"));
        }
        Ok(peers)
    }

    /// How many ports there are.
    pub fn queues(&self) -> u16 {
        self.placement.map_or(1, |placement| placement.queues())
    }

    /// Where a request goes.
    pub fn choose(&self, operation: Operation, key: &[u8], random: &mut Random) -> SocketAddr {
        let Some(placement) = self.placement else { return self.first };
        let hash = placement.hash(key);
        let queue = match operation {
            Operation::Get => placement.any_of_domain(hash, random.word()),
            _ => placement.owner(hash),
        };
        SocketAddr::new(self.first.ip(), self.first.port() + queue.0)
    }
}

/// Of the addresses of a name, that at which a server takes datagrams unless it is told otherwise:
/// 127.0.0.1, or else the first. Nobody refuses a datagram, so a wrong one would not be noticed.
fn chosen(mut found: impl Iterator<Item = SocketAddr> + Clone) -> Option<SocketAddr> {
    let here = found.clone().find(|address| address.ip() == Ipv4Addr::LOCALHOST);
    here.or_else(|| found.next())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn localhost_is_where_servers_take_datagrams_whatever_its_first_address_is() {
        for (found, wanted) in [
            (&["[::1]:7", "127.0.0.1:7"][..], Some("127.0.0.1:7")),
            (&["127.0.0.1:7", "[::1]:7"], Some("127.0.0.1:7")),
            (&["[2001:db8::1]:7", "192.0.2.1:7"], Some("[2001:db8::1]:7")),
            (&["[::1]:7"], Some("[::1]:7")),
            (&[], None),
        ] {
            let address = |text: &&str| -> SocketAddr { text.parse().expect("an address") };
            assert_eq!(chosen(found.iter().map(address)), wanted.as_ref().map(address));
        }
    }

    #[test]
    fn ports_that_do_not_exist_are_refused() {
        let placement = Placement::new(1, 4, 1);
        let message = Peers::new("127.0.0.1", 65_533, placement).expect_err("four");
        assert!(message.contains("from 65533 on"), "{message}");
        assert!(Peers::new("127.0.0.1", 65_532, placement).is_ok());
    }
}
