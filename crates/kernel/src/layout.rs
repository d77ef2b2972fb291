//! The mapped arrays as this side sees them; `bpf/lane.h` is the other side. A loader compares the
//! sizes, the tests the meaning.
//!
//! Buckets, overflow buckets and records are those of `laneway_store::layout`. All words are
//! atomic: the programs read them at any moment.

use std::net::{IpAddr, Ipv4Addr};
use std::ops::RangeInclusive;
use std::sync::atomic::{
    AtomicI64, AtomicU32, AtomicU64,
    Ordering::{Relaxed, Release},
};

/// Bytes of one element of the array of items. Records of the lane do not cross its end.
pub const ITEMS_ELEMENT_BYTES: usize = 1 << 20;

/// In an element's last bytes the lane serves no record (it passes the request up): so many, that
/// a read of the longest record ends inside.
pub const RECORD_BYTES_MAX: usize = 2048;

/// One hit mark stands for so many bytes. Records begin at least 24 bytes apart, so no two share
/// one.
pub const MARK_GRANULE_BYTES: usize = 16;

/// Where marks saturate.
pub const MARK_MAX: u8 = 3;

/// Addresses and ranges that a lane can be told, and interfaces.
pub const LISTED_MAX: usize = 8;

/// Sources that a lane can be told not to believe.
pub const REFUSED_MAX: usize = 2 * LISTED_MAX;

/// Replies to one address are counted by periods of so many nanoseconds.
pub const RATE_PERIOD_NANOS: u64 = 1 << 24;

/// Ranges of ports that a lane can be told.
pub const PORTS_MAX: usize = 2;

/// Longest UDP payload of a reply: what an Ethernet packet holds.
pub const PAYLOAD_BYTES_MAX: u32 = 1472;

/// Slots of the steering table: the 12 highest bits of the owner's hash.
pub const STEER_SLOTS: usize = 4096;

/// The slot of a hash.
pub const fn slot_of(hash: u64) -> usize {
    (hash >> (u64::BITS - STEER_SLOTS.ilog2())) as usize
}

/// Where a slot's datagrams go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lead {
    /// To the socket of this index.
    Socket(u32),
    /// To any of those that receive, by their sender.
    Anyone,
}

impl Lead {
    /// As the table has it.
    #[cfg(feature = "kernel")]
    pub(crate) const fn word(self) -> u32 {
        match self {
            Lead::Socket(index) => index,
            Lead::Anyone => u32::MAX, // STEER_ANYONE in `bpf/lane.h`
        }
    }
}

/// Hot keys kept in one timeslot.
pub const HOT_MAX: usize = 64;

/// Cells of the sketch.
pub const SKETCH_CELLS: usize = 4 * 4096;

/// What an interface is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Interface {
    /// Its number.
    pub index: u32,
    /// Its Ethernet address.
    pub ethernet: [u8; 6],
    /// Longest packet, without the Ethernet header.
    pub mtu_bytes: usize,
}

impl Interface {
    /// The Ethernet address as the programs compare it: in the lower six bytes of a word.
    pub(crate) fn ethernet_word(&self) -> u64 {
        let mut bytes = [0; 8];
        bytes[..6].copy_from_slice(&self.ethernet);
        u64::from_ne_bytes(bytes)
    }
}

/// Addresses that begin alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    /// Any address of the range.
    pub address: IpAddr,
    /// Leading bits that count, up to 32 or 128.
    pub prefix_bits: u8,
}

impl Range {
    /// One address.
    pub fn of(address: IpAddr) -> Range {
        Range { address, prefix_bits: if address.is_ipv4() { 32 } else { 128 } }
    }

    /// The address of everybody in it, where it is an IPv4 network that has one (RFC 3021).
    pub fn broadcast(&self) -> Option<IpAddr> {
        let IpAddr::V4(address) = self.address else { return None };
        let hosts = u32::MAX.checked_shr(self.prefix_bits.into()).filter(|hosts| *hosts > 1)?;
        Some(Ipv4Addr::from_bits(address.to_bits() | hosts).into())
    }

    /// Whether an address is in it.
    pub fn contains(&self, address: IpAddr) -> bool {
        let ([a, b, c, d], [e, f, ..]) = (self.words(), Range::of(address).words());
        (a ^ e) & c == 0 && (b ^ f) & d == 0
    }

    /// Address and mask as the programs compare them: IPv6, IPv4 mapped into it.
    fn words(self) -> [u64; 4] {
        let (address, prefix_bits) = match self.address {
            IpAddr::V4(address) => (address.to_ipv6_mapped(), u32::from(self.prefix_bits) + 96),
            IpAddr::V6(address) => (address, u32::from(self.prefix_bits)),
        };
        let mask = u128::MAX.checked_shl(128 - prefix_bits.min(128)).unwrap_or(0);
        let halves = |number: u128| [((number >> 64) as u64).to_be(), (number as u64).to_be()];
        let ([a, b], [c, d]) = (halves(address.to_bits()), halves(mask));
        [a, b, c, d]
    }
}

/// What the lane's program is told, word by word at any time.
#[derive(Debug)]
#[repr(C)]
pub struct Control {
    hash_start: [AtomicU64; 4],
    unix_minus_boot_ns: AtomicI64,
    flush: AtomicU32,
    open: AtomicU32,
    payload_bytes_max: AtomicU32,
    mtu_bytes: AtomicU32,
    own_count: AtomicU32,
    served_count: AtomicU32,
    refused_count: AtomicU32,
    place_count: AtomicU32,
    period_bytes: AtomicU64,
    ports: [[AtomicU32; 2]; PORTS_MAX],
    own: [[AtomicU64; 4]; LISTED_MAX],
    served: [[AtomicU64; 4]; LISTED_MAX],
    refused: [[AtomicU64; 4]; REFUSED_MAX],
    /// Number and Ethernet address.
    places: [[AtomicU64; 2]; LISTED_MAX],
    buckets: [AtomicU64; laneway_store::layout::PARTITIONS],
}

/// What the lane serves. Until [`Control::open`] it serves nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// UDP ports. At most [`PORTS_MAX`] ranges.
    pub ports: Vec<RangeInclusive<u16>>,
    /// Own addresses: packets to others are not the lane's. At most [`LISTED_MAX`].
    pub own: Vec<IpAddr>,
    /// Who is served; empty means everybody. At most [`LISTED_MAX`].
    pub served: Vec<Range>,
    /// Sources that are nobody's: own addresses, and those of broadcasts. Not asked at the
    /// loopback. At most [`REFUSED_MAX`].
    pub refused: Vec<IpAddr>,
    /// The interfaces: at XDP packets are served whose Ethernet address is theirs. At most
    /// [`LISTED_MAX`].
    pub interfaces: Vec<Interface>,
    /// Bytes of replies to one address in [`RATE_PERIOD_NANOS`], on one CPU; 0: no limit. Not asked
    /// at the loopback.
    pub period_bytes: u64,
    /// The interface's MTU.
    pub mtu_bytes: u32,
    /// Longest UDP payload of a reply, at most [`PAYLOAD_BYTES_MAX`]. Memcached's datagrams have
    /// 1400.
    pub payload_bytes_max: u32,
    /// SipHash's four words, from the store's hasher.
    pub hash_start: [u64; 4],
    /// Wall clock minus time since boot.
    pub unix_minus_boot_ns: i64,
}

impl Control {
    /// Serve by these settings. At most [`LISTED_MAX`] of a list count.
    pub fn open(&self, settings: &Settings) {
        self.open.store(0, Relaxed);
        let none = [0, 0];
        let ports = settings.ports.iter().map(|ports| {
            let (first, last) = (u32::from(*ports.start()), u32::from(*ports.end()));
            [first, (last + 1).saturating_sub(first)]
        });
        for (words, range) in self.ports.iter().zip(ports.chain(std::iter::repeat(none))) {
            words.iter().zip(range).for_each(|(word, value)| word.store(value, Relaxed));
        }
        for (word, value) in self.hash_start.iter().zip(settings.hash_start) {
            word.store(value, Relaxed);
        }
        self.set_clock(settings.unix_minus_boot_ns);
        self.mtu_bytes.store(settings.mtu_bytes, Relaxed);
        let payload_bytes_max = settings.payload_bytes_max.min(PAYLOAD_BYTES_MAX);
        self.payload_bytes_max.store(payload_bytes_max, Relaxed);
        let own: Vec<Range> = settings.own.iter().copied().map(Range::of).collect();
        list(&self.own, &self.own_count, &own);
        list(&self.served, &self.served_count, &settings.served);
        let refused: Vec<Range> = settings.refused.iter().copied().map(Range::of).collect();
        list(&self.refused, &self.refused_count, &refused);
        for (place, interface) in self.places.iter().zip(&settings.interfaces) {
            place[0].store(interface.index.into(), Relaxed);
            place[1].store(interface.ethernet_word(), Relaxed);
        }
        let place_count = settings.interfaces.len().min(LISTED_MAX) as u32;
        self.place_count.store(place_count, Relaxed);
        self.period_bytes.store(settings.period_bytes, Relaxed);
        // (A) pairs with the program's first load: who sees it open sees the rest.
        self.open.store(1, Release);
    }

    /// Serve nothing any more.
    pub fn close(&self) {
        self.open.store(0, Relaxed);
    }

    /// The difference of wall clock and time since boot; to be told again now and then.
    pub fn set_clock(&self, unix_minus_boot_ns: i64) {
        self.unix_minus_boot_ns.store(unix_minus_boot_ns, Relaxed);
    }

    /// The flush generation of live records. Others are dead from now on.
    pub fn set_flush(&self, generation: u32) {
        self.flush.store(generation % laneway_store::layout::FLUSH_GENERATIONS, Relaxed);
    }

    /// How many primary buckets a partition has.
    pub fn set_buckets(&self, partition: usize, buckets: u64) {
        // (B) pairs with the program's load of the count: the buckets were written before.
        self.buckets[partition].store(buckets, Release);
    }
}

fn list(places: &[[AtomicU64; 4]], count: &AtomicU32, ranges: &[Range]) {
    for (place, range) in places.iter().zip(ranges) {
        for (word, value) in place.iter().zip(range.words()) {
            word.store(value, Relaxed);
        }
    }
    count.store(ranges.len().min(places.len()) as u32, Relaxed);
}

/// What the steering program is told, and what it found.
#[derive(Debug)]
#[repr(C)]
pub struct SteerWords {
    pub(crate) seed: AtomicU64,
    pub(crate) stamp: AtomicU32,
    pub(crate) hot_requests: AtomicU32,
    pub(crate) receivers: AtomicU32,
    /// Always 0.
    zero: AtomicU32,
    pub(crate) hot_count: AtomicU64,
    pub(crate) hot: [AtomicU64; HOT_MAX],
    pub(crate) socket: [AtomicU32; STEER_SLOTS],
    pub(crate) cells: [AtomicU32; SKETCH_CELLS],
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_has_its_hosts_and_an_address_of_everybody() {
        let range = |text: &str, prefix_bits| Range {
            address: text.parse().expect("an address"),
            prefix_bits,
        };
        let broadcast = |text, bits| range(text, bits).broadcast().map(|ip| ip.to_string());
        assert_eq!(broadcast("10.9.0.1", 24).as_deref(), Some("10.9.0.255"));
        assert_eq!(broadcast("10.9.0.1", 0).as_deref(), Some("255.255.255.255"));
        assert_eq!(
            [("10.9.0.1", 31), ("10.9.0.1", 32), ("fd09::1", 64)].map(|(t, b)| broadcast(t, b)),
            [const { None }; 3]
        );
        for (network, bits, address, is_in) in [
            ("10.9.0.1", 24, "10.9.0.77", true),
            ("10.9.0.1", 24, "10.9.1.77", false),
            ("10.9.0.1", 0, "1.2.3.4", true),
            ("10.9.0.1", 0, "fd09::1", false),
            ("fd09::1", 64, "fd09::2", true),
            ("fd09::1", 64, "fd09:0:0:1::2", false),
        ] {
            let address = address.parse().expect("an address");
            assert_eq!(range(network, bits).contains(address), is_in, "{network} {address}");
        }
    }

    #[test]
    fn a_range_is_compared_as_ipv6_in_network_order() {
        let words = Range { address: [10, 1, 2, 3].into(), prefix_bits: 8 }.words();
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        assert_eq!(bytes[..16], [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 10, 1, 2, 3]);
        assert_eq!(bytes[16..], [[255; 13].as_slice(), &[0; 3]].concat());
        let all = Range { address: "fd00::1".parse().expect("an address"), prefix_bits: 0 };
        assert_eq!(all.words()[2..], [0, 0]);
        assert_eq!(Range::of("::1".parse().expect("an address")).words()[2..], [u64::MAX; 2]);
    }
}
