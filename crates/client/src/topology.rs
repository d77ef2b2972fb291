//! Where a server takes datagrams, and which queue a request goes to: at random for a read, to the
//! key's owner for a write (Minos §4.1), within the NUMA domain of the key (§3.1).
//!
//! Read from `stats topology`. A server that does not tell how it places keys gets everything at
//! random and forwards what it must.

use crate::request::{Repeat, Request};
use laneway_policy::owner::HASH_NAME;
use laneway_policy::{OwnerHash, Placement, WorkerId};

/// The queues of one server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Topology {
    queues: u16,
    port_base: u16,
    placement: Option<Placement>,
    exclusive: bool,
    extended: bool,
    /// What of a request its client may lend; 0: it goes in datagrams.
    lent_bytes_max: usize,
    /// What may not be lent goes in datagrams.
    framed: bool,
}

impl Topology {
    /// One port that takes everything, of a server that may be memcached itself: a request is one
    /// datagram, and nothing is asked for again.
    pub const fn single(port: u16) -> Topology {
        Topology { extended: false, ..Topology::queues(port, 1) }
    }

    /// `queues` from `port_base` on, of a server of this kind.
    pub const fn queues(port_base: u16, queues: u16) -> Topology {
        assert!(queues > 0, "a server has queues");
        Topology {
            queues,
            port_base,
            placement: None,
            exclusive: false,
            extended: true,
            lent_bytes_max: 0,
            framed: true,
        }
    }

    /// `queues` in memory that the server shares, where a request of at most so many bytes is lent
    /// if it is too long for one datagram.
    pub const fn in_memory(queues: u16, lent_bytes_max: usize) -> Topology {
        // There are no frames in memory: what may not be lent may not be longer than one.
        let lent_bytes_max = if lent_bytes_max == 0 { 1 } else { lent_bytes_max };
        Topology { lent_bytes_max, framed: false, ..Topology::queues(0, queues) }
    }

    /// `queues` in memory of a server on another host, where a request of at most so many bytes is
    /// lent if it is too long for one datagram and there is room; 0: none is.
    pub const fn remote(queues: u16, lent_bytes_max: usize) -> Topology {
        Topology { lent_bytes_max, ..Topology::queues(0, queues) }
    }

    /// With keys placed so.
    pub const fn placed(self, placement: Placement) -> Topology {
        let (queues, placement) = (placement.queues(), Some(placement));
        Topology { queues, placement, ..self }
    }

    /// Reads too go to the key's owner (EREW).
    pub const fn exclusive(self) -> Topology {
        Topology { exclusive: true, ..self }
    }

    /// From the answer to `stats topology`; or what is missing in it.
    pub fn read(stats: &[(String, String)]) -> Result<Topology, String> {
        let number = |name: &str| -> Result<Option<u16>, String> {
            let parse = |value: &str| value.parse().map_err(|_| format!("{name} {value}"));
            find(stats, name).map(parse).transpose()
        };
        let port_base = number("udp_port_base")?
            .ok_or("it has no UDP queues; start it with --udp-base PORT")?;
        let queues = number("queues")?.filter(|queues| *queues > 0).ok_or("no queues")?;
        if u32::from(port_base) + u32::from(queues) > 1 << 16 {
            return Err(format!("{queues} queues from port {port_base} on"));
        }
        Topology::queues(port_base, queues).told(stats)
    }

    /// The same with what the answer to `stats topology` says of keys; or what is missing in it.
    pub fn told(self, stats: &[(String, String)]) -> Result<Topology, String> {
        let find = |name| find(stats, name);
        let (topology, queues) = (self, self.queues);
        let topology = if find("access") == Some("erew") { topology.exclusive() } else { topology };
        if find("hash") != Some(HASH_NAME) {
            return Ok(topology);
        }
        let seed = find("hash_seed").and_then(|seed| u64::from_str_radix(seed, 16).ok());
        let seed = seed.ok_or("a hash without a seed")?;
        let domains = find("domains").map_or(Ok(1), str::parse);
        let domains = domains.map_err(|_| "domains that are no number".to_owned())?;
        let placement = Placement::new(seed, queues, domains);
        Ok(topology.placed(placement.ok_or_else(|| format!("{domains} domains"))?))
    }

    /// Whether requests may have several datagrams, and frames may be asked for again.
    pub const fn is_extended(&self) -> bool {
        self.extended
    }

    /// What of a request its client may lend; `None`: it goes in datagrams.
    pub const fn lent_bytes_max(&self) -> Option<usize> {
        if self.lent_bytes_max > 0 { Some(self.lent_bytes_max) } else { None }
    }

    /// Whether what may not be lent goes in datagrams.
    pub const fn is_framed(&self) -> bool {
        self.framed
    }

    /// How many queues there are.
    pub const fn count(&self) -> u16 {
        self.queues
    }

    /// The port of a queue.
    pub const fn port(&self, queue: u16) -> u16 {
        self.port_base + queue
    }

    /// The queue at a port.
    pub fn queue_at(&self, port: u16) -> Option<u16> {
        port.checked_sub(self.port_base).filter(|queue| *queue < self.queues)
    }

    /// The queue for a request, where `draw` is any random number.
    pub fn queue(&self, request: &Request, draw: u64) -> u16 {
        let random = || OwnerHash(draw).queue(self.queues).0;
        let Some(placement) = self.placement else { return random() };
        if request.key().is_empty() {
            return random();
        }
        let hash = placement.hash(request.key());
        let WorkerId(queue) = if request.repeat() == Repeat::Free && !self.exclusive {
            placement.any_of_domain(hash, draw)
        } else {
            placement.owner(hash)
        };
        queue
    }

    /// Whether a read of both keys may go to one queue.
    pub(crate) fn go_together(&self, one: &[u8], other: &[u8]) -> bool {
        let Some(placement) = self.placement else { return true };
        let (one, other) = (placement.hash(one), placement.hash(other));
        if self.exclusive {
            placement.owner(one).0 == placement.owner(other).0
        } else {
            placement.domain(one) == placement.domain(other)
        }
    }
}

fn find<'a>(stats: &'a [(String, String)], name: &str) -> Option<&'a str> {
    stats.iter().find(|(told, _)| told == name).map(|(_, value)| value.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(rows: &[(&str, &str)]) -> Vec<(String, String)> {
        rows.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect()
    }

    #[test]
    fn a_server_tells_where_it_takes_datagrams() {
        let seed = "00000000000000ff";
        let full = told(&[
            ("tcp_port", "11211"),
            ("udp_port_base", "21000"),
            ("queues", "4"),
            ("hash", "owner-1"),
            ("hash_seed", seed),
            ("domains", "2"),
        ]);
        let placement = Placement::new(0xff, 4, 2).expect("four queues make two domains");
        let expected = Topology::queues(21000, 4).placed(placement);
        assert_eq!(Topology::read(&full), Ok(expected));
        assert_eq!((expected.port(3), expected.queue_at(21003)), (21003, Some(3)));
        assert_eq!((expected.queue_at(21004), expected.queue_at(20999)), (None, None));
        let other = told(&[("udp_port_base", "21000"), ("queues", "4"), ("hash", "owner-2")]);
        assert_eq!(Topology::read(&other), Ok(Topology::queues(21000, 4)));
        for bad in [
            &[("queues", "4")][..],
            &[("udp_port_base", "21000")],
            &[("udp_port_base", "21000"), ("queues", "0")],
            &[("udp_port_base", "65535"), ("queues", "2")],
            &[("udp_port_base", "x"), ("queues", "2")],
            &[("udp_port_base", "1"), ("queues", "2"), ("hash", "owner-1")],
        ] {
            assert!(Topology::read(&told(bad)).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn writes_go_to_the_owner_and_reads_to_anybody_of_the_domain() {
        let placement = Placement::new(7, 8, 2).expect("eight queues make two domains");
        let crew = Topology::queues(1000, 8).placed(placement);
        for key in 0..100_u64 {
            let key = format!("key:{key}");
            let hash = placement.hash(key.as_bytes());
            let owner = placement.owner(hash).0;
            let mut seen = [false; 8];
            for draw in 0..64_u64 {
                let draw = draw.wrapping_mul(0x9E37_79B9_7F4A_7C15);
                assert_eq!(crew.queue(&Request::set(key.as_str(), "v"), draw), owner);
                assert_eq!(crew.exclusive().queue(&Request::get(key.as_str()), draw), owner);
                seen[usize::from(crew.queue(&Request::get(key.as_str()), draw))] = true;
            }
            let (first, count) = placement.queues_of(placement.domain(hash));
            let expected =
                |queue: usize| (first.index()..first.index() + count as usize).contains(&queue);
            for (queue, seen) in seen.into_iter().enumerate() {
                assert_eq!(seen, expected(queue), "{key} at queue {queue}");
            }
        }
    }
}
