//! The lane as a server uses it: loaded, its memory handed to the store, attached to interfaces,
//! asked for its counts. The same interface stands in a build without the programs, where nothing
//! of it can be made: [`Service::load`] says so.
//!
//! Who is served: packets that come to the server's own address and port, from addresses that were
//! named; without any, from those on the links of the interfaces, which is meant for the loopback.
//! Everybody else's go up to the server, which has means of its own against forged sources. The
//! program runs before any firewall of the host's, so whom it serves, and how much, is decided
//! here. Unit: bytes.

use crate::layout::{PAYLOAD_BYTES_MAX, RATE_PERIOD_NANOS, Range};
use std::net::IpAddr;

/// What a server wants of its lane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceSettings {
    /// The interfaces to attach to.
    pub interfaces: Vec<String>,
    /// At the driver's hook rather than at tc ingress.
    pub xdp: bool,
    /// The server's UDP address; all of an interface's if it is the unspecified one.
    pub address: IpAddr,
    /// Who is served; empty: who is on the interfaces' links.
    pub peers: Vec<Range>,
    /// Memory for items that the lane serves.
    pub items_bytes: u64,
    /// Memory for all items: what the index is to hold.
    pub memory_bytes: u64,
    /// Longest payload of a reply.
    pub payload_bytes_max: u32,
    /// Megabits of replies in a second to one address, on one CPU, elsewhere than at the loopback;
    /// 0: no limit.
    pub rate_megabits: u32,
}

/// What a rate comes to in one of the program's periods; a reply that is longer would never leave.
pub fn period_bytes(rate_megabits: u32) -> u64 {
    u64::from(rate_megabits) * 125_000 * RATE_PERIOD_NANOS / 1_000_000_000
}

// The least that can be asked for lets every reply through now and then.
const _: () = assert!(125_000 * RATE_PERIOD_NANOS / 1_000_000_000 > PAYLOAD_BYTES_MAX as u64 + 48);

/// An item per so many bytes of memory is what the buckets that the lane sees are made for. Of
/// smaller items some lie in buckets behind these, and the lane passes requests for them up.
const BYTES_PER_ITEM: u64 = 128;
/// What a partition of the index grows at.
const ITEMS_PER_BUCKET: u64 = 6;
/// The fewest buckets: one page of each partition.
const BUCKETS_MIN: u64 = 64 * 64;

/// Buckets that the lane sees, for a store of so much memory; and as many overflow buckets.
pub fn buckets_for(memory_bytes: u64) -> u32 {
    let buckets = memory_bytes / BYTES_PER_ITEM / ITEMS_PER_BUCKET;
    let whole = buckets.next_multiple_of(BUCKETS_MIN).max(BUCKETS_MIN);
    u32::try_from(whole).unwrap_or(1 << 31)
}

/// Bytes of an address range written `address/bits` or `address`.
pub fn parse_range(text: &str) -> Option<Range> {
    let (address, bits) = text.split_once('/').map_or((text, None), |(a, b)| (a, Some(b)));
    let address: IpAddr = address.parse().ok()?;
    let all = Range::of(address);
    let Some(bits) = bits else { return Some(all) };
    let prefix_bits = bits.parse().ok().filter(|bits| *bits <= all.prefix_bits)?;
    Some(Range { address, prefix_bits })
}

#[cfg(feature = "kernel")]
pub use real::Service;

#[cfg(feature = "kernel")]
mod real {
    use super::ServiceSettings;
    use crate::capabilities;
    use crate::counts::Counts;
    use crate::error::Error;
    use crate::ethtool;
    use crate::interfaces;
    use crate::lane::{Lane, Program, Room};
    use crate::layout::{LISTED_MAX, REFUSED_MAX, Range, Settings};
    use laneway_store::Window;
    use std::net::IpAddr;
    use std::ops::RangeInclusive;
    use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

    /// The lane of a server.
    #[derive(Debug)]
    pub struct Service {
        settings: ServiceSettings,
        /// Written to while it is opened and closed alone: whoever reads its counts keeps nobody
        /// who serves waiting.
        lane: RwLock<Lane>,
    }

    /// Addresses that no packet from elsewhere can have as its source: our own, and those that are
    /// everybody's on a link.
    fn unbelievable(own: &[IpAddr], links: &[Range]) -> Vec<IpAddr> {
        let near = links.iter().filter(|link| own.iter().any(|address| link.contains(*address)));
        let mut all: Vec<IpAddr> = near.filter_map(Range::broadcast).chain(own.to_vec()).collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// The driver must have a queue for what the program sends.
    fn check_queues(interface: &str) -> Result<(), Error> {
        let Some(queues) = ethtool::virtio_queues(interface)? else { return Ok(()) };
        match ethtool::cpus_possible() {
            Some(cpus) if queues.are_overrun(cpus) => {
                let told = format!(
                    "it is a virtio card of {} queues, more than the {cpus} CPUs, whose driver \
                     then sends replies by queues that there are not, and stops Linux 6.12; have \
                     no more than {cpus} with `ethtool -L {interface} combined {cpus}`, or use \
                     --kernel-lane-hook tc",
                    queues.count
                );
                Err(Error::said(format!("--kernel-lane {interface}"), told))
            }
            _ => Ok(()),
        }
    }

    impl Service {
        /// Load the program and make its arrays. Nothing is served yet.
        pub fn load(settings: &ServiceSettings) -> Result<Service, Error> {
            let what = format!("--kernel-lane {}", settings.interfaces.join(","));
            capabilities::require(&what, capabilities::LANE)?;
            let program = if settings.xdp { Program::Xdp } else { Program::TrafficControl };
            let buckets = super::buckets_for(settings.memory_bytes);
            let items_bytes = usize::try_from(settings.items_bytes).unwrap_or(usize::MAX);
            let room = Room { buckets, overflows: buckets, items_bytes };
            let lane = Lane::load(program, &room)?;
            Ok(Service { settings: settings.clone(), lane: RwLock::new(lane) })
        }

        /// What it was loaded with.
        pub fn settings(&self) -> &ServiceSettings {
            &self.settings
        }

        fn lane(&self) -> RwLockReadGuard<'_, Lane> {
            self.lane.read().unwrap_or_else(PoisonError::into_inner)
        }

        fn lane_mut(&self) -> RwLockWriteGuard<'_, Lane> {
            self.lane.write().unwrap_or_else(PoisonError::into_inner)
        }

        /// The memory for the store to work in.
        pub fn window(&self) -> Result<Window, Error> {
            self.lane().window()
        }

        /// Attach to the interfaces and serve what the store holds, at the server's UDP ports.
        /// `hash_start` is that of the store's hasher.
        pub fn open(
            &self,
            ports: Vec<RangeInclusive<u16>>,
            hash_start: [u64; 4],
            unix_minus_boot_ns: i64,
        ) -> Result<(), Error> {
            let mut lane = self.lane_mut();
            let places = interfaces::look(&self.settings.interfaces)?;
            self.check_features()?;
            let own = if self.settings.address.is_unspecified() {
                let v4 = self.settings.address.is_ipv4();
                places.links.iter().map(|link| link.address).filter(|a| a.is_ipv4() == v4).collect()
            } else {
                vec![self.settings.address]
            };
            let served = match self.settings.peers.is_empty() {
                true => places.links.clone(),
                false => self.settings.peers.clone(),
            };
            let refused = unbelievable(&own, &places.links);
            for (what, count, most) in [
                ("addresses of its own", own.len(), LISTED_MAX),
                ("address ranges to serve; name the peers", served.len(), LISTED_MAX),
                ("own and broadcast addresses", refused.len(), REFUSED_MAX),
                ("interfaces", places.interfaces.len(), LISTED_MAX),
            ] {
                if count > most {
                    let told = format!("{count} {what}: the kernel lane knows {most} at most");
                    return self.refuse(told);
                }
            }
            if served.is_empty() {
                return self.refuse(
                    "the interface has no address, so nobody is on its link; give it one, or \
                     name who is served with --kernel-lane-peers",
                );
            }
            lane.control().open(&Settings {
                ports,
                own,
                served,
                refused,
                interfaces: places.interfaces,
                period_bytes: super::period_bytes(self.settings.rate_megabits),
                mtu_bytes: places.mtu_bytes,
                payload_bytes_max: self.settings.payload_bytes_max,
                hash_start,
                unix_minus_boot_ns,
            });
            for interface in &self.settings.interfaces {
                lane.attach(interface)?;
            }
            Ok(())
        }

        /// What an interface does with packets before the program sees them must leave them as they
        /// came.
        fn check_features(&self) -> Result<(), Error> {
            let (feature, why, name) = match self.settings.xdp {
                true => (
                    ethtool::VLAN_TAKEN_OFF,
                    "it takes VLAN tags off before the lane sees them, which would answer without \
                     the tag",
                    "rxvlan",
                ),
                false => (
                    ethtool::JOINED_UNASKED,
                    "it joins datagrams before the lane sees them, which would answer none",
                    ethtool::JOINED_UNASKED,
                ),
            };
            for interface in self.settings.interfaces.iter().filter(|name| *name != "lo") {
                if ethtool::is_on(interface, feature)? {
                    let told =
                        format!("{why}; turn that off with `ethtool -K {interface} {name} off`");
                    let other =
                        if self.settings.xdp { ", or use --kernel-lane-hook tc" } else { "" };
                    return Err(Error::said(format!("--kernel-lane {interface}"), told + other));
                }
                if self.settings.xdp {
                    check_queues(interface)?;
                }
            }
            Ok(())
        }

        fn refuse(&self, why: impl Into<String>) -> Result<(), Error> {
            Err(Error::said(self.settings.interfaces.join(","), why))
        }

        /// Serve nothing any more, and detach.
        pub fn close(&self) -> Result<(), Error> {
            let mut lane = self.lane_mut();
            lane.control().close();
            for interface in &self.settings.interfaces {
                lane.detach(interface)?;
            }
            Ok(())
        }

        /// The difference of wall clock and time since boot; to be told again now and then.
        pub fn set_clock(&self, unix_minus_boot_ns: i64) {
            self.lane().control().set_clock(unix_minus_boot_ns);
        }

        /// What was counted since it was loaded.
        pub fn counts(&self) -> Result<Counts, Error> {
            self.lane().counts()
        }
    }
}

#[cfg(not(feature = "kernel"))]
pub use absent::Service;

#[cfg(not(feature = "kernel"))]
mod absent {
    use super::ServiceSettings;
    use crate::counts::Counts;
    use crate::error::Error;
    use laneway_store::Window;
    use std::ops::RangeInclusive;

    /// The lane of a server, of which this build has none.
    #[derive(Debug)]
    pub enum Service {}

    impl Service {
        /// Says that there is none, and the way out.
        pub fn load(settings: &ServiceSettings) -> Result<Service, Error> {
            Err(Error::absent(&settings.interfaces.join(",")))
        }

        none! {
            /// What it was loaded with.
            fn settings(&self) -> &ServiceSettings;
            /// The memory for the store to work in.
            fn window(&self) -> Result<Window, Error>;
            /// Attach to the interfaces and serve what the store holds.
            fn open(
                &self,
                _ports: Vec<RangeInclusive<u16>>,
                _hash_start: [u64; 4],
                _unix_minus_boot_ns: i64
            ) -> Result<(), Error>;
            /// Serve nothing any more, and detach.
            fn close(&self) -> Result<(), Error>;
            /// The difference of wall clock and time since boot.
            fn set_clock(&self, _unix_minus_boot_ns: i64);
            /// What was counted since it was loaded.
            fn counts(&self) -> Result<Counts, Error>;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read_with_and_without_a_prefix() {
        let range = |address: &str, prefix_bits| {
            Some(Range { address: address.parse().expect("an address"), prefix_bits })
        };
        for (text, expected) in [
            ("10.1.2.3", range("10.1.2.3", 32)),
            ("10.0.0.0/8", range("10.0.0.0", 8)),
            ("::/0", range("::", 0)),
            ("fd00::1/64", range("fd00::1", 64)),
            ("10.0.0.0/33", None),
            ("10.0.0/8", None),
            ("10.0.0.0/", None),
            ("", None),
        ] {
            assert_eq!(parse_range(text), expected, "{text:?}");
        }
    }

    #[test]
    fn a_rate_is_so_many_bytes_of_a_period() {
        assert_eq!((period_bytes(0), period_bytes(1), period_bytes(1000)), (0, 2097, 2_097_152));
    }

    #[test]
    fn buckets_are_whole_pages_of_every_partition() {
        assert_eq!(buckets_for(0), 4096);
        assert_eq!(buckets_for(64 << 20), 90_112);
        assert_eq!(buckets_for(u64::MAX), 1 << 31);
    }

    #[cfg(not(feature = "kernel"))]
    #[test]
    fn a_build_without_the_programs_says_so_and_the_way_out() {
        let settings = ServiceSettings {
            interfaces: vec!["eth0".into()],
            xdp: false,
            address: [127, 0, 0, 1].into(),
            peers: Vec::new(),
            items_bytes: 1 << 20,
            memory_bytes: 1 << 20,
            payload_bytes_max: 1400,
            rate_megabits: 1000,
        };
        let told = Service::load(&settings).expect_err("there is none").to_string();
        assert!(told.contains("eth0") && told.contains("--features kernel"), "{told}");
    }
}
