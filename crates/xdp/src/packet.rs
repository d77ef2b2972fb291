//! Headers of UDP datagrams in Ethernet packets, over IPv4 (RFC 791, 768) and IPv6 (RFC 8200): what
//! may be believed of one that came, and those of one that leaves.
//!
//! A packet that any of this speaks against is refused as a whole, with the cause: nothing that the
//! kernel's stack would have thrown away gets further here. Packets for the stack (other ports,
//! fragments, IP options, extension headers, VLAN tags) should not have come at all: the BPF
//! program leaves them to it. It knows no datagram's meaning.

use crate::mapped::FRAME_BYTES;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

const ETHERNET_BYTES: usize = 14;
const IPV4_BYTES: usize = 20;
const IPV6_BYTES: usize = 40;
const UDP_BYTES: usize = 8;
/// Shortest Ethernet packet, without its checksum; shorter ones are filled up.
const ETHERNET_BYTES_MIN: usize = 60;

const TYPE_IPV4: u16 = 0x0800;
const TYPE_IPV6: u16 = 0x86dd;
const PROTOCOL_UDP: u8 = 17;
/// Hops that a packet of ours survives.
const HOPS: u8 = 64;
const DO_NOT_FRAGMENT: u16 = 0x4000;

/// Longest packet that a frame holds, without the Ethernet header.
pub const MTU_BYTES_MAX: usize = FRAME_BYTES - ETHERNET_BYTES;

/// The same of one that comes: the kernel keeps room before it (`XDP_PACKET_HEADROOM`).
pub const MTU_BYTES_MAX_RECEIVED: usize = MTU_BYTES_MAX - HEADROOM_BYTES;

/// Where the kernel lays a packet in its frame.
pub const HEADROOM_BYTES: usize = 256;

/// Where on its link a peer is, and we.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Link {
    /// Its Ethernet address, or that of the router to it.
    pub peer: [u8; 6],
    /// The one that it sent to.
    pub own: [u8; 6],
}

/// Who we are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Own {
    /// Our address.
    pub address: IpAddr,
    /// The scope of link-local addresses on the interface: its number.
    pub scope: u32,
}

/// A datagram that came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Datagram<'a> {
    /// Where its sender is on the link.
    pub link: Link,
    /// Who sent it.
    pub from: SocketAddr,
    /// The port that it is for.
    pub port: u16,
    /// What it says.
    pub payload: &'a [u8],
}

/// What speaks against a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wrong {
    /// It ends before its headers do.
    Truncated,
    /// It is none of the packets that are to come here: not UDP over IP, a fragment, with options
    /// or a VLAN tag.
    Kind,
    /// Its lengths disagree.
    Length,
    /// A checksum is wrong, or absent where there must be one.
    Checksum,
    /// No such sender can be: loopback, multicast, nobody, ourselves, port 0.
    Source,
    /// It is for another address.
    Destination,
}

impl Wrong {
    /// Every cause.
    pub const ALL: [Wrong; 6] = [
        Wrong::Truncated,
        Wrong::Kind,
        Wrong::Length,
        Wrong::Checksum,
        Wrong::Source,
        Wrong::Destination,
    ];

    /// As statistics have it.
    pub const fn name(self) -> &'static str {
        match self {
            Wrong::Truncated => "truncated",
            Wrong::Kind => "kind",
            Wrong::Length => "length",
            Wrong::Checksum => "checksum",
            Wrong::Source => "source",
            Wrong::Destination => "destination",
        }
    }
}

/// Sixteen bits at `at`, as they stand on the wire. Callers have looked at the length.
fn wire16(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

/// The ones' complement sum of bytes, added to `sum`. Words are taken as this machine has them: the
/// sum of swapped words is the swapped sum (RFC 1071 §2). At most 65 535 bytes.
fn sum(bytes: &[u8], mut sum: u64) -> u64 {
    let (words, rest) = bytes.as_chunks::<4>();
    for word in words {
        sum += u64::from(u32::from_ne_bytes(*word));
    }
    let mut last = [0; 4];
    last[..rest.len()].copy_from_slice(rest);
    sum + u64::from(u32::from_ne_bytes(last))
}

/// A sum folded into sixteen bits.
fn fold(mut sum: u64) -> u16 {
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// Of the pseudo header: both addresses as they stand in the packet, protocol, length of UDP.
fn sum_pseudo(addresses: &[u8], udp_bytes: u16) -> u64 {
    let rest = u16::from(PROTOCOL_UDP).to_be_bytes();
    let length = udp_bytes.to_be_bytes();
    sum(&[rest[0], rest[1], length[0], length[1]], sum(addresses, 0))
}

/// The datagram in an Ethernet packet for us.
pub fn parse<'a>(packet: &'a [u8], own: &Own) -> Result<Datagram<'a>, Wrong> {
    let (ethernet, rest) = packet.split_first_chunk::<ETHERNET_BYTES>().ok_or(Wrong::Truncated)?;
    let (source, udp, pseudo) = match wire16(ethernet, 12) {
        TYPE_IPV4 => ipv4(rest, own)?,
        TYPE_IPV6 => ipv6(rest, own)?,
        _ => return Err(Wrong::Kind),
    };
    let port = wire16(udp, 0);
    if !is_possible(source, own) || port == 0 {
        return Err(Wrong::Source);
    }
    match (wire16(udp, 6), source) {
        (0, IpAddr::V4(_)) => {} // its sender computed none
        (0, IpAddr::V6(_)) => return Err(Wrong::Checksum),
        // A packet of this very machine, by a virtual interface, may carry the sum of the pseudo
        // header only, for a network card to complete.
        (field, _) if field == u16::from_be_bytes(fold(pseudo).to_ne_bytes()) => {}
        _ if fold(sum(udp, pseudo)) == u16::MAX => {}
        _ => return Err(Wrong::Checksum),
    }
    let [a, b, c, d, e, f, g, h, i, j, k, l, ..] = *ethernet;
    Ok(Datagram {
        link: Link { own: [a, b, c, d, e, f], peer: [g, h, i, j, k, l] },
        from: sender(source, port, own),
        port: wire16(udp, 2),
        payload: &udp[UDP_BYTES..],
    })
}

/// Who sent it, the UDP header and what is behind it, and the sum of the pseudo header.
type Inner<'a> = (IpAddr, &'a [u8], u64);

fn ipv4<'a>(packet: &'a [u8], own: &Own) -> Result<Inner<'a>, Wrong> {
    let ip = packet.first_chunk::<IPV4_BYTES>().ok_or(Wrong::Truncated)?;
    let is_fragment = wire16(ip, 6) & !DO_NOT_FRAGMENT != 0;
    if ip[0] != 0x45 || ip[9] != PROTOCOL_UDP || is_fragment {
        return Err(Wrong::Kind);
    }
    let total = usize::from(wire16(ip, 2));
    let udp = packet.get(IPV4_BYTES..total).ok_or(Wrong::Length)?;
    let udp_bytes = check_length(udp)?;
    if fold(sum(ip, 0)) != u16::MAX {
        return Err(Wrong::Checksum);
    }
    let address = |at: usize| Ipv4Addr::new(ip[at], ip[at + 1], ip[at + 2], ip[at + 3]);
    if own.address != address(16) {
        return Err(Wrong::Destination);
    }
    Ok((address(12).into(), udp, sum_pseudo(&ip[12..20], udp_bytes)))
}

fn ipv6<'a>(packet: &'a [u8], own: &Own) -> Result<Inner<'a>, Wrong> {
    let ip = packet.first_chunk::<IPV6_BYTES>().ok_or(Wrong::Truncated)?;
    if ip[0] >> 4 != 6 || ip[6] != PROTOCOL_UDP {
        return Err(Wrong::Kind);
    }
    let end = IPV6_BYTES + usize::from(wire16(ip, 4));
    let udp = packet.get(IPV6_BYTES..end).ok_or(Wrong::Length)?;
    let udp_bytes = check_length(udp)?;
    let address =
        |at: usize| Ipv6Addr::from(std::array::from_fn::<u8, 16, _>(|number| ip[at + number]));
    if own.address != address(24) {
        return Err(Wrong::Destination);
    }
    Ok((address(8).into(), udp, sum_pseudo(&ip[8..40], udp_bytes)))
}

/// UDP and IP must agree on where the datagram ends.
fn check_length(udp: &[u8]) -> Result<u16, Wrong> {
    if udp.len() < UDP_BYTES {
        return Err(Wrong::Length);
    }
    let told = wire16(udp, 4);
    if usize::from(told) == udp.len() { Ok(told) } else { Err(Wrong::Length) }
}

/// Whether a packet from there can be answered. Whoever says that he is on this host gets more
/// trust than others, and does not come by a link.
fn is_possible(source: IpAddr, own: &Own) -> bool {
    let can_be = match source {
        // Nothing at or above 224.0.0.0 is one host's address.
        IpAddr::V4(v4) => v4.octets()[0] != 0 && !v4.is_loopback() && v4.octets()[0] < 224,
        IpAddr::V6(v6) => {
            let is_nobodys = v6.is_unspecified() || v6.is_loopback() || v6.is_multicast();
            !is_nobodys && v6.to_ipv4_mapped().is_none()
        }
    };
    can_be && source != own.address
}

fn sender(source: IpAddr, port: u16, own: &Own) -> SocketAddr {
    match source {
        IpAddr::V4(v4) => SocketAddr::V4(SocketAddrV4::new(v4, port)),
        IpAddr::V6(v6) => {
            let scope = if v6.is_unicast_link_local() { own.scope } else { 0 };
            SocketAddr::V6(SocketAddrV6::new(v6, port, 0, scope))
        }
    }
}

/// Bytes of all headers of a datagram to an address of that family.
pub const fn headers_bytes(to: &SocketAddr) -> usize {
    let ip = if to.is_ipv4() { IPV4_BYTES } else { IPV6_BYTES };
    ETHERNET_BYTES + ip + UDP_BYTES
}

/// Longest datagram of an interface with that MTU to an address of that family.
pub const fn payload_bytes_max(to: &SocketAddr, mtu_bytes: usize) -> usize {
    mtu_bytes.saturating_sub(headers_bytes(to) - ETHERNET_BYTES)
}

/// Write a datagram of `pieces` from one address to another into `room`. How many bytes the packet
/// has; none if it does not fit, or the addresses are not of one family.
pub fn compose<'a>(
    room: &mut [u8],
    link: &Link,
    from: &SocketAddr,
    to: &SocketAddr,
    pieces: impl IntoIterator<Item = &'a [u8]>,
) -> Option<usize> {
    let headers = headers_bytes(to);
    let mut end = headers;
    for piece in pieces {
        room.get_mut(end..end + piece.len())?.copy_from_slice(piece);
        end += piece.len();
    }
    let packet = room.get_mut(..end.max(ETHERNET_BYTES_MIN))?;
    packet[end..].fill(0);
    let ip_at = ETHERNET_BYTES;
    let udp_at = headers - UDP_BYTES;
    let udp_bytes = u16::try_from(end - udp_at).ok()?;
    packet[..6].copy_from_slice(&link.peer);
    packet[6..12].copy_from_slice(&link.own);
    let pseudo = match (from.ip(), to.ip()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            packet[12..14].copy_from_slice(&TYPE_IPV4.to_be_bytes());
            let ip = &mut packet[ip_at..ip_at + IPV4_BYTES];
            put_ipv4(ip, from, to, udp_bytes.checked_add(IPV4_BYTES as u16)?);
            sum_pseudo(&ip[12..20], udp_bytes)
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            packet[12..14].copy_from_slice(&TYPE_IPV6.to_be_bytes());
            let ip = &mut packet[ip_at..ip_at + IPV6_BYTES];
            put_ipv6(ip, from, to, udp_bytes);
            sum_pseudo(&ip[8..40], udp_bytes)
        }
        _ => return None,
    };
    let udp = &mut packet[udp_at..end];
    udp[..2].copy_from_slice(&from.port().to_be_bytes());
    udp[2..4].copy_from_slice(&to.port().to_be_bytes());
    udp[4..6].copy_from_slice(&udp_bytes.to_be_bytes());
    udp[6..8].fill(0);
    // Zero would say that there is none; both are zero to who adds.
    let field = match !fold(sum(udp, pseudo)) {
        0 => u16::MAX,
        field => field,
    };
    udp[6..8].copy_from_slice(&field.to_ne_bytes());
    Some(packet.len())
}

fn put_ipv4(ip: &mut [u8], from: Ipv4Addr, to: Ipv4Addr, bytes: u16) {
    ip.fill(0);
    ip[0] = 0x45;
    ip[2..4].copy_from_slice(&bytes.to_be_bytes());
    // Without a number of its own: a packet that is not to be fragmented needs none (RFC 6864).
    ip[6..8].copy_from_slice(&DO_NOT_FRAGMENT.to_be_bytes());
    ip[8] = HOPS;
    ip[9] = PROTOCOL_UDP;
    ip[12..16].copy_from_slice(&from.octets());
    ip[16..20].copy_from_slice(&to.octets());
    let field = !fold(sum(ip, 0));
    ip[10..12].copy_from_slice(&field.to_ne_bytes());
}

fn put_ipv6(ip: &mut [u8], from: Ipv6Addr, to: Ipv6Addr, udp_bytes: u16) {
    ip[..4].copy_from_slice(&[0x60, 0, 0, 0]);
    ip[4..6].copy_from_slice(&udp_bytes.to_be_bytes());
    ip[6] = PROTOCOL_UDP;
    ip[7] = HOPS;
    ip[8..24].copy_from_slice(&from.octets());
    ip[24..40].copy_from_slice(&to.octets());
}

#[cfg(test)]
mod tests;
