//! Ethernet frames with UDP datagrams: made, taken apart, their checksums computed by the book
//! (RFC 1071), apart from what the program does.

use std::net::IpAddr;

pub const CLIENT_PORT: u16 = 40_000;
const ETHERNET_BYTES: usize = 14;
const UDP: u8 = 17;

/// One request in a frame, to be spoilt at will.
#[derive(Clone)]
pub struct Frame {
    pub source: IpAddr,
    pub to: IpAddr,
    pub port: u16,
    /// Request id, sequence, total, what memcached reserves.
    pub head: [u16; 4],
    pub text: Vec<u8>,
}

impl Frame {
    pub fn v4(text: &[u8]) -> Frame {
        let (source, to) = ([10, 9, 0, 2].into(), [10, 9, 0, 1].into());
        Frame { source, to, port: 11211, head: [0x4243, 0, 1, 0], text: text.to_vec() }
    }

    pub fn v6(text: &[u8]) -> Frame {
        let address = |text: &str| text.parse().expect("an address");
        Frame { source: address("fd09::2"), to: address("fd09::1"), ..Frame::v4(text) }
    }

    /// The bytes, with whole checksums.
    pub fn bytes(&self) -> Vec<u8> {
        let mut udp = Vec::new();
        udp.extend(CLIENT_PORT.to_be_bytes());
        udp.extend(self.port.to_be_bytes());
        udp.extend((16 + self.text.len() as u16).to_be_bytes());
        udp.extend([0, 0]);
        udp.extend(self.head.iter().flat_map(|number| number.to_be_bytes()));
        udp.extend(&self.text);
        let sum = match !fold(sum(&udp) + pseudo(self.source, self.to, udp.len())) {
            0 => 0xffff,
            sum => sum,
        };
        udp[6..8].copy_from_slice(&sum.to_be_bytes());
        let mut frame = vec![0; 12];
        match (self.source, self.to) {
            (IpAddr::V4(source), IpAddr::V4(to)) => {
                frame.extend([8, 0]);
                let mut ip = vec![0x45, 0];
                ip.extend((20 + udp.len() as u16).to_be_bytes());
                ip.extend([0x12, 0x34, 0x40, 0, 63, UDP, 0, 0]);
                ip.extend(source.octets());
                ip.extend(to.octets());
                let sum = !fold(self::sum(&ip));
                ip[10..12].copy_from_slice(&sum.to_be_bytes());
                frame.extend(ip);
            }
            (IpAddr::V6(source), IpAddr::V6(to)) => {
                frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
                frame.extend((udp.len() as u16).to_be_bytes());
                frame.extend([UDP, 63]);
                frame.extend(source.octets());
                frame.extend(to.octets());
            }
            _ => panic!("addresses of one family"),
        }
        frame.extend(udp);
        frame
    }
}

/// A reply, taken apart; panics where a length or a checksum is wrong.
pub fn open(frame: &[u8]) -> Frame {
    let ip = &frame[ETHERNET_BYTES..];
    let length = |bytes: &[u8]| usize::from(u16::from_be_bytes([bytes[0], bytes[1]]));
    let (source, to, udp): (IpAddr, IpAddr, &[u8]) = match ip[0] {
        0x45 => {
            assert_eq!(frame[12..14], [8, 0]);
            assert_eq!(fold(sum(&ip[..20])), 0xffff, "the IP header's checksum");
            assert_eq!(length(&ip[2..]), ip.len(), "the IP header's length");
            let address = |at: usize| <[u8; 4]>::try_from(&ip[at..at + 4]).expect("four").into();
            (address(12), address(16), &ip[20..])
        }
        _ => {
            assert_eq!(frame[12..14], [0x86, 0xdd]);
            assert_eq!(length(&ip[4..]) + 40, ip.len(), "the IP header's length");
            let address = |at: usize| <[u8; 16]>::try_from(&ip[at..at + 16]).expect("16").into();
            (address(8), address(24), &ip[40..])
        }
    };
    assert_eq!(length(&udp[4..]), udp.len(), "the UDP header's length");
    assert_eq!(fold(sum(udp) + pseudo(source, to, udp.len())), 0xffff, "the UDP checksum");
    assert_eq!(udp[2..4], CLIENT_PORT.to_be_bytes(), "the port");
    let number = |at: usize| u16::from_be_bytes([udp[at], udp[at + 1]]);
    let head = [number(8), number(10), number(12), number(14)];
    Frame { source, to, port: number(0), head, text: udp[16..].to_vec() }
}

pub fn sum(bytes: &[u8]) -> u64 {
    let word = |pair: &[u8]| u64::from(pair[0]) << 8 | u64::from(*pair.get(1).unwrap_or(&0));
    bytes.chunks(2).map(word).sum()
}

pub fn pseudo(source: IpAddr, to: IpAddr, udp_bytes: usize) -> u64 {
    let octets = |address: IpAddr| match address {
        IpAddr::V4(address) => sum(&address.octets()),
        IpAddr::V6(address) => sum(&address.octets()),
    };
    octets(source) + octets(to) + udp_bytes as u64 + u64::from(UDP)
}

pub fn fold(mut sum: u64) -> u16 {
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}
