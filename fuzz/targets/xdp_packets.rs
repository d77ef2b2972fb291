//! Fuzzes packets that come past the kernel's stack, and the rings and frames they come in.
//!
//! The input is a list of steps of four bytes: a packet is made and spoiled, a part of the input
//! itself is a packet, or one of the two sides goes on. What is checked: nothing panics; what the
//! parser takes says what it would have said composed anew; each frame is in one pair of hands; and
//! what is sent leaves as it was written.

#![no_main]

use laneway_xdp::packet::{Link, Own, compose, parse};
use laneway_xdp::queue::Sizes;
use laneway_xdp::twin;
use libfuzzer_sys::fuzz_target;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

const SIZES: Sizes = Sizes { receive: 8, send: 4 };
const OWN_V4: Own = Own { address: IpAddr::V4(Ipv4Addr::new(10, 9, 0, 1)), scope: 3 };
const OWN_V6: Own =
    Own { address: IpAddr::V6(Ipv6Addr::new(0xfd09, 0, 0, 0, 0, 0, 0, 1)), scope: 3 };
/// Behind every header: flips of bits go this far.
const HEADERS_BYTES: usize = 62;

fuzz_target!(|input: &[u8]| {
    let (mut receiver, mut sender, mut other) = twin::queue(SIZES).expect("memory");
    let mut sent = Vec::new();
    check(input);
    for (number, step) in input.chunks_exact(4).enumerate() {
        let &[what, a, b, c] = step else { unreachable!() };
        match what % 6 {
            0 | 1 => {
                let mut packet = request(what & 8 != 0, usize::from(b) * 7, c);
                for at in [a, b] {
                    let at = usize::from(at) % HEADERS_BYTES.min(packet.len());
                    packet[at] ^= if what % 6 == 0 { 0 } else { c };
                }
                check(&packet);
                other.deliver(&packet);
            }
            2 => {
                let from = (number * 4).min(input.len());
                let packet = &input[from..(from + usize::from(a) * 4).min(input.len())];
                check(packet);
                other.deliver(packet);
            }
            3 => {
                if let Some(packet) = receiver.look() {
                    check(packet);
                    receiver.pass();
                }
                if a & 1 == 0 {
                    receiver.refill();
                }
            }
            4 => {
                if let Some(mut frame) = sender.frame(usize::from(a % 4)) {
                    frame.bytes_mut()[..60].fill(b);
                    if sender.post(frame, 60) {
                        sent.push(vec![b; 60]);
                    }
                }
                sender.publish();
            }
            _ => {
                if let Some(packet) = other.transmit() {
                    assert_eq!(packet, sent.remove(0));
                }
                other.complete(usize::from(a % 3));
            }
        }
        let (held, away) = receiver.held_and_away();
        assert_eq!(held + away, SIZES.receive as usize);
        let (held, away) = sender.held_and_away();
        assert_eq!(held + away, SIZES.send as usize);
    }
    assert_eq!((receiver.astray(), sender.astray()), (0, 0));
});

fn request(is_v6: bool, bytes: usize, with: u8) -> Vec<u8> {
    let own = if is_v6 { OWN_V6 } else { OWN_V4 };
    let peer = match own.address {
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::new(10, 9, 0, 2)),
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::new(0xfd09, 0, 0, 0, 0, 0, 0, 2)),
    };
    let (from, to) = (SocketAddr::new(peer, 4000), SocketAddr::new(own.address, 11211));
    let mut room = vec![0; 2048];
    let link = Link { peer: [2; 6], own: [4; 6] };
    let payload = vec![with; bytes.min(1452)];
    let bytes = compose(&mut room, &link, &from, &to, [&payload[..]]).expect("it fits");
    room.truncate(bytes);
    room
}

/// Whatever is taken can be said again, and then means the same.
fn check(packet: &[u8]) {
    for own in [OWN_V4, OWN_V6] {
        let Ok(datagram) = parse(packet, &own) else { continue };
        let to = SocketAddr::new(own.address, datagram.port);
        let back = Link { peer: datagram.link.own, own: datagram.link.peer };
        let mut room = vec![0; packet.len().max(60)];
        let bytes = compose(&mut room, &back, &datagram.from, &to, [datagram.payload]);
        let again = &room[..bytes.expect("it fitted before")];
        assert_eq!(parse(again, &own), Ok(datagram));
    }
}
