//! To which port of the server a request goes.

use crate::random::Random;
use crate::workload::Operation;
use laneway_policy::Placement;
use std::net::{Ipv4Addr, SocketAddr, ToSocketAddrs};

/// The ports of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peers {
    first: SocketAddr,
    /// The client chooses among the server's queues: any for a GET, the owner's for a PUT (Minos
    /// §4.1; MICA's CREW). Without one there is one port, and the kernel or the server chooses.
    placement: Option<Placement>,
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

    /// How one is chosen, in a word.
    pub fn choice_name(&self) -> &'static str {
        if self.placement.is_some() { "any" } else { "server" }
    }

    /// The first port.
    pub fn first(&self) -> SocketAddr {
        self.first
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
    use std::collections::BTreeSet;

    fn ports(placement: Option<Placement>, operation: Operation, keys: &[&[u8]]) -> BTreeSet<u16> {
        let peers = Peers::new("127.0.0.1", 7_000, placement).expect("good");
        let mut random = Random::new(3);
        let mut draw = |key| peers.choose(operation, key, &mut random).port();
        keys.iter().cycle().take(400).map(|key| draw(key)).collect()
    }

    #[test]
    fn gets_go_anywhere_and_puts_to_the_owner() {
        let placement = Placement::new(1, 4, 1).expect("good");
        let one: &[&[u8]] = &[b"0123abcd"];
        let all = BTreeSet::from([7_000, 7_001, 7_002, 7_003]);
        let owner = 7_000 + placement.owner(placement.hash(one[0])).0;
        for (by, operation, expected) in [
            (None, Operation::Get, BTreeSet::from([7_000])),
            (None, Operation::Set, BTreeSet::from([7_000])),
            (Some(placement), Operation::Get, all),
            (Some(placement), Operation::Set, BTreeSet::from([owner])),
        ] {
            assert_eq!(ports(by, operation, one), expected, "{by:?} {operation:?}");
        }
        let many: Vec<Vec<u8>> = (0..100).map(|n: u32| n.to_le_bytes().repeat(2)).collect();
        let many: Vec<&[u8]> = many.iter().map(Vec::as_slice).collect();
        assert_eq!(ports(Some(placement), Operation::Set, &many).len(), 4);
    }

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
