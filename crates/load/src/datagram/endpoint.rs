//! Where a server's UDP ports are, as the server itself tells.
//!
//! A server of ours answers `stats topology` with its queues' ports and what places a key;
//! memcached answers with nothing, and then its UDP port has the number of its TCP port, as is its
//! habit.

use super::memory;
use super::peers::Peers;
use super::remote::Way;
use super::{Door, LargeSets, Options};
use crate::admin::{self, Stats, number};
use crate::connection::Target;
use crate::dialect::Dialect;
use laneway_policy::{Placement, owner};
use laneway_rdma::verbs::{Place, Service};
use std::time::Duration;

/// What the flags say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// Which way.
    pub by: By,
    /// When a request is given up.
    pub timeout: Duration,
}

/// A way to a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum By {
    /// UDP, to this one port; where it is not given, the server is asked.
    Ports(Option<u16>),
    /// Memory shared with the server.
    Memory {
        /// Clients beside, of the same memory, that ask for nothing.
        idle: usize,
    },
    /// Its memory, over RDMA, with this device.
    Rdma(Place, Option<Service>),
}

impl Wanted {
    /// Finds the ports of the server at `target`.
    pub fn resolve(&self, target: &Target, dialect: Dialect) -> Result<Options, String> {
        let Target::Tcp(address) = target else {
            return Err("--udp: needs a --server with an address, not a --socket".into());
        };
        if dialect != Dialect::Text {
            return Err("--udp: only memcached's protocol goes over UDP".into());
        }
        let (host, tcp_port) = address
            .rsplit_once(':')
            .and_then(|(host, port)| Some((host.trim_matches(['[', ']']), port.parse().ok()?)))
            .ok_or_else(|| format!("--server {address}: must be HOST:PORT"))?;
        let told = admin::stats(target, dialect, "topology").unwrap_or_default();
        let (port, placement) = match &self.by {
            By::Memory { idle } => {
                let path = told.get("shm_path").ok_or(
                    "--transport shm: the server hands out no memory; start it with --shm PATH on \
                     this host",
                )?;
                return self.by_door(&told, Door::Memory { path: path.into(), idle: *idle });
            }
            By::Rdma(place, service) => {
                let port: u16 = number(&told, "rdma_port").ok_or(
                    "--transport rdma: the server takes no clients over RDMA; start it with \
                     --rdma DEVICE",
                )?;
                let door = match host.contains(':') {
                    true => format!("[{host}]:{port}"),
                    false => format!("{host}:{port}"),
                };
                let (place, service) = (place.clone(), *service);
                return self.by_door(&told, Door::Rdma(Way { door, place, service }));
            }
            By::Ports(Some(port)) => (*port, None),
            By::Ports(None) => match told_base(&told) {
                Some((base, queues, domains)) => (base, Some(placement(&told, queues, domains)?)),
                None => (number(&told, "udp_port").unwrap_or(tcp_port), None),
            },
        };
        let is_unknown = told.get("hash").is_some_and(|name| name != owner::HASH_NAME);
        if placement.is_some() && is_unknown {
            return Err(format!(
                "--udp: the server places keys by {}, which this client does not know; give \
                 --udp-port, so that the server chooses",
                told["hash"]
            ));
        }
        // By UDP to whom it is known to understand it.
        let large_sets = match told.is_empty() {
            true => LargeSets::Tcp,
            false => LargeSets::Udp,
        };
        Ok(Options {
            peers: Peers::new(host, port, placement)?,
            door: None,
            large_sets,
            timeout: self.timeout,
        })
    }

    /// Of a server that gives room in its memory, as it tells.
    fn by_door(&self, told: &Stats, door: Door) -> Result<Options, String> {
        let (queues, domains) = (number(told, "queues"), number(told, "domains"));
        let queues = queues.ok_or("--transport: the server does not tell its queues")?;
        let placement = placement(told, queues, domains.unwrap_or(1))?;
        Ok(Options {
            peers: Peers::new(&memory::QUEUES_AT.to_string(), 0, Some(placement))?,
            door: Some(door),
            large_sets: LargeSets::Udp,
            timeout: self.timeout,
        })
    }
}

/// What places keys on queues.
fn placement(told: &Stats, queues: u16, domains: u16) -> Result<Placement, String> {
    let seed = told.get("hash_seed").and_then(|digits| u64::from_str_radix(digits, 16).ok());
    Placement::new(seed.unwrap_or(owner::SEED), queues, domains).ok_or_else(|| {
        format!("--udp: {queues} queues in {domains} NUMA domains cannot be chosen among")
    })
}

fn told_base(told: &Stats) -> Option<(u16, u16, u16)> {
    let (base, queues) = (number(told, "udp_port_base")?, number(told, "queues")?);
    (base > 0 && queues > 0).then(|| (base, queues, number(told, "domains").unwrap_or(1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(text: &str) -> Stats {
        let pairs = text.split(',').filter_map(|pair| pair.split_once('='));
        pairs.map(|(name, value)| (name.into(), value.into())).collect()
    }

    #[test]
    fn a_topology_is_read() {
        let all = told("udp_port_base=9000,queues=4,domains=2,hash_seed=00000000000000ff");
        assert_eq!(told_base(&all), Some((9_000, 4, 2)));
        assert_eq!(placement(&all, 4, 2), Ok(Placement::new(255, 4, 2).expect("good")));
        assert_eq!(told_base(&told("tcp_port=11211,queues=4")), None);
        assert_eq!(told_base(&Stats::new()), None);
    }

    #[test]
    fn what_cannot_be_asked_by_udp_is_refused() {
        let timeout = Duration::from_millis(250);
        let wanted = Wanted { by: By::Ports(None), timeout };
        let tcp = |address: &str| Target::Tcp(address.into());
        for (target, dialect, words) in [
            (Target::Unix("/s".into()), Dialect::Text, "not a --socket"),
            (tcp("127.0.0.1:1"), Dialect::Resp, "only memcached's protocol"),
            (tcp("nowhere"), Dialect::Text, "must be HOST:PORT"),
        ] {
            let message = wanted.resolve(&target, dialect).expect_err(words);
            assert!(message.contains(words), "{message}");
        }
    }
}
