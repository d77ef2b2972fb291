//! Random and mutated frames through both programs (BPF_PROG_TEST_RUN), and the server's own parser
//! as the judge: what is answered must be a request for stored keys by that grammar, in a frame
//! whose headers and checksums hold, and answered by the letter; what is plain and whole, and whose
//! reply a packet holds, must be answered.
//!
//! Seeds are fixed; `LANEWAY_FUZZ_SEED` and `LANEWAY_FUZZ_FRAMES` choose others.
#![cfg(feature = "kernel")]
#![forbid(unsafe_code)]

mod common;

use common::frame::{self, CLIENT_PORT, Frame, fold, pseudo, sum};
use common::requests::{Random, SEQ, is_plain, line, reply_to, stored};
use common::writer::{Attributes, PLAIN, PORT, Writer};
use laneway_kernel::Program;
use std::net::IpAddr;

const OWN: [&str; 2] = ["10.9.0.1", "fd09::1"];
const SEED: u64 = 0x0f_ca57;
const FRAMES: u64 = 100_000;
/// Ethernet and IPv6 headers.
const LENGTH_MIN: usize = 14 + 40;
const _: () = assert!(PLAIN.seq == SEQ);

/// What the frame says, if all its headers and sums hold and it is for us.
fn text_of(bytes: &[u8]) -> Option<Vec<u8>> {
    let number = |at: usize| Some(u16::from_be_bytes([*bytes.get(at)?, *bytes.get(at + 1)?]));
    let ip = bytes.get(14..)?;
    let (source, to, ip_bytes, whole): (IpAddr, IpAddr, usize, usize) = match number(12)? {
        0x0800 if ip.first() == Some(&0x45) && ip.len() >= 20 => {
            let plain = number(14 + 6)? & 0xbfff == 0 && ip[9] == 17;
            if !plain || fold(sum(&ip[..20])) != 0xffff {
                return None;
            }
            let address = |at: usize| <[u8; 4]>::try_from(&ip[at..at + 4]).ok().map(IpAddr::from);
            (address(12)?, address(16)?, 20, usize::from(number(14 + 2)?))
        }
        0x86dd if ip.first()? >> 4 == 6 && ip.len() >= 40 => {
            if ip[6] != 17 {
                return None;
            }
            let address = |at: usize| <[u8; 16]>::try_from(&ip[at..at + 16]).ok().map(IpAddr::from);
            (address(8)?, address(24)?, 40, usize::from(number(14 + 4)?) + 40)
        }
        _ => return None,
    };
    let udp = ip.get(ip_bytes..whole)?;
    let word = |at: usize| Some(u16::from_be_bytes([*udp.get(at)?, *udp.get(at + 1)?]));
    let ours = OWN.iter().any(|own| own.parse() == Ok(to)) && word(2)? == PORT;
    if !ours || usize::from(word(4)?) != udp.len() || udp.len() < 16 {
        return None;
    }
    let (said, pseudo) = (word(6)?, pseudo(source, to, udp.len()));
    let none = said == 0 && source.is_ipv4();
    // The sum of the pseudo header alone is what a packet of this machine carries.
    if !none && said != fold(pseudo) && (said == 0 || fold(sum(udp) + pseudo) != 0xffff) {
        return None;
    }
    ([word(10)?, word(12)?] == [0, 1]).then(|| udp[16..].to_vec())
}

/// Whether a packet holds a reply of this text to a frame.
fn fits(frame: &[u8], reply: &[u8]) -> bool {
    udp_at(frame) - 14 + 16 + reply.len() <= 1500
}

/// Whether a whole checksum is by chance that of the pseudo header alone, which at tc the kernel
/// must look at.
fn is_ambiguous(frame: &[u8]) -> bool {
    let udp = &frame[udp_at(frame)..];
    udp[6..8] == fold(addresses_and_length(frame)).to_be_bytes()
}

/// Where the UDP header of a frame is.
fn udp_at(frame: &[u8]) -> usize {
    14 + if frame[12..14] == [8, 0] { 20 } else { 40 }
}

/// The sum of a frame's pseudo header.
fn addresses_and_length(frame: &[u8]) -> u64 {
    let at = udp_at(frame);
    let addresses = &frame[at - if at == 34 { 8 } else { 32 }..at];
    sum(addresses) + (frame.len() - at) as u64 + 17
}

fn hunt(program: Program, seed: u64, frames: u64) {
    let mut writer = Writer::new(program, &OWN).expect("the probe said that it can be loaded");
    let stored = stored();
    for (key, (value, flags)) in &stored {
        writer.set(key, value, Attributes { flags: *flags, ..PLAIN });
    }
    let keys: Vec<&[u8]> = stored.keys().map(Vec::as_slice).collect();
    let mut random = Random(seed);
    let (mut hits, mut spoilt_hits, mut several_hits) = (0, 0, 0);
    for number in 0..frames {
        let request = line(&mut random, &keys);
        let whole = if random.one_in(2) { Frame::v4 } else { Frame::v6 };
        let mut bytes = whole(&request).bytes();
        let spoilt = random.one_in(2);
        for _ in 0..if spoilt { 1 + random.below(3) } else { 0 } {
            let at = random.below(bytes.len());
            match random.below(16) {
                // Trial runs refuse what has no room for its IP header.
                0 => bytes.truncate(at.max(LENGTH_MIN)),
                1 => bytes.extend(vec![random.below(256) as u8; 1 + random.below(40)]),
                2 => bytes[at] = random.below(256) as u8,
                _ => bytes[at] ^= 1 << random.below(8),
            }
        }
        let told =
            || format!("frame {number} of LANEWAY_FUZZ_SEED={seed}, {program:?}: {bytes:x?}");
        let answered = writer.lane.try_frame(&bytes, 1).expect("a trial run");
        let expected = text_of(&bytes).and_then(|text| Some((reply_to(&text, &stored)?, text)));
        if !answered.hit {
            assert_eq!(answered.frame, bytes, "what is passed is unchanged: {}", told());
            if let (Some((reply, text)), false) = (&expected, spoilt) {
                let is_for_it = is_plain(text) && fits(&bytes, reply) && !is_ambiguous(&bytes);
                assert!(!is_for_it, "{:?} was not answered: {}", text.escape_ascii(), told());
            }
            continue;
        }
        let Some((reply, text)) = expected else { panic!("answered: {}", told()) };
        let frame = replied(&answered.frame);
        assert_eq!(frame, reply, "{}", told());
        hits += 1;
        spoilt_hits += u64::from(spoilt);
        several_hits += u64::from(text.starts_with(b"get ") && text[4..].contains(&b' '));
    }
    println!(
        "{program:?}: {hits} of {frames} frames answered, {spoilt_hits} of them spoilt ones, \
         {several_hits} of several keys"
    );
    let tell_something = spoilt_hits > 0 && several_hits > frames / 50;
    assert!(hits > frames / 20 && tell_something, "the frames are too bad to tell anything");
}

/// The text of a reply. Where the request had no whole checksum the reply has none either.
fn replied(frame: &[u8]) -> Vec<u8> {
    let at = udp_at(frame);
    let port = u16::from_be_bytes([frame[at + 2], frame[at + 3]]);
    if port == CLIENT_PORT && fold(sum(&frame[at..]) + addresses_and_length(frame)) == 0xffff {
        return frame::open(frame).text;
    }
    frame[at + 16..].to_vec()
}

#[test]
fn what_is_answered_is_what_the_servers_own_parser_understands() {
    if !common::available() {
        return;
    }
    let number = |name: &str, default: u64| match std::env::var(name) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{name}={text}: not a number")),
        Err(_) => default,
    };
    let seed = number("LANEWAY_FUZZ_SEED", SEED);
    let frames = number("LANEWAY_FUZZ_FRAMES", FRAMES);
    for program in [Program::TrafficControl, Program::Xdp] {
        hunt(program, seed, frames);
    }
}
