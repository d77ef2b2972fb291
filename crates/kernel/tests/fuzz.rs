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
use common::writer::{Attributes, PLAIN, PORT, Writer};
use laneway_kernel::Program;
use laneway_wire::{GetVerb, Limits, Request};
use std::collections::BTreeMap;
use std::net::IpAddr;

const OWN: [&str; 2] = ["10.9.0.1", "fd09::1"];
const SEED: u64 = 0x0f_ca57;
const FRAMES: u64 = 100_000;
/// Ethernet and IPv6 headers.
const LENGTH_MIN: usize = 14 + 40;
/// Keys of a `get` that the lane's program answers, and its longest request: `bpf/scratch.h`.
const KEYS_MAX: usize = 16;
const REQUEST_BYTES_MAX: usize = 1024 - 16;
/// Longest text of a frame made here: trial runs take no much longer ones.
const TEXT_BYTES_MAX: usize = 1200;
/// What the lane's program knows of meta flags.
const FLAGS: &[u8] = b"vfsctkqO";

struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        (self.0 >> 33) as usize % end
    }

    fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }

    fn of<'a, T: ?Sized>(&mut self, all: &[&'a T]) -> &'a T {
        all[self.below(all.len())]
    }
}

/// Keys and values of every awkward length.
fn stored() -> BTreeMap<Vec<u8>, (Vec<u8>, u32)> {
    let key = |length: usize| (0..length).map(|i| b'A' + ((i * 7 + length) % 50) as u8).collect();
    let value = |length: usize| vec![b'a' + (length % 26) as u8; length];
    [(1, 0), (7, 5), (8, 8), (9, 300), (16, 1), (31, 77), (249, 3), (250, 1000)]
        .map(|(key_bytes, value_bytes)| {
            (key(key_bytes), (value(value_bytes), (key_bytes % 3) as u32))
        })
        .into()
}

/// A line that is often a request for a key that is there.
fn line(random: &mut Random, keys: &[&[u8]]) -> Vec<u8> {
    let odd: [&[u8]; 4] = [b"no-such-key", b"", &[b'k'; 251], b"with\0zero"];
    let key = if random.one_in(8) { random.of(&odd) } else { random.of(keys) };
    let space: &[u8] = if random.one_in(16) { b"  " } else { b" " };
    let end: &[u8] = if random.one_in(16) {
        random.of(&["\n", "", "\r\n\r\n", " \r\n"]).as_bytes()
    } else {
        b"\r\n"
    };
    let mut line = Vec::new();
    if random.one_in(2) {
        let verb =
            if random.one_in(8) { random.of(&["gets", "gat 0", "GET", "ge"]) } else { "get" };
        line.extend([verb.as_bytes(), space, key].concat());
        let further = if random.one_in(2) { random.below(KEYS_MAX + 2) } else { 0 };
        // Mostly short ones with short values, so that many fit.
        let few = if random.one_in(4) { keys } else { &keys[1..4] };
        for _ in 0..further {
            let key = if random.one_in(64) { random.of(&odd) } else { random.of(few) };
            if line.len() + key.len() < TEXT_BYTES_MAX {
                let space = if random.one_in(128) { b"  ".as_slice() } else { space };
                line.extend([space, key].concat());
            }
        }
    } else {
        let verb =
            if random.one_in(8) { random.of(&["mg  ", "me ", "md ", "mgx "]) } else { "mg " };
        line.extend([verb.as_bytes(), key].concat());
        for _ in 0..random.below(6) {
            line.extend(space);
            let known =
                if random.one_in(16) { b"hlbNIx"[random.below(6)] } else { FLAGS[random.below(8)] };
            line.push(known);
            if known == b'O' {
                line.extend(vec![b'o'; random.below(36)]);
            }
        }
    }
    line.extend(end);
    line
}

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

/// The reply that the server's grammar asks for, if the text is one request for stored keys.
fn reply_to(text: &[u8], stored: &BTreeMap<Vec<u8>, (Vec<u8>, u32)>) -> Option<Vec<u8>> {
    let frame = laneway_wire::parse(text, &Limits::default()).ok()??;
    if frame.head_bytes != text.len() {
        return None;
    }
    match frame.request {
        Request::Get(get) if get.verb == GetVerb::Get => {
            let mut reply = Vec::new();
            for key in get.keys {
                let (value, flags) = stored.get(key)?;
                let head = format!(" {flags} {}\r\n", value.len());
                reply.extend([b"VALUE ", key, head.as_bytes(), value, b"\r\n"].concat());
            }
            Some([&reply[..], b"END\r\n"].concat())
        }
        Request::MetaGet(meta) => {
            let key = meta.key.token;
            let (value, flags) = stored.get(key)?;
            let mut reply = format!("VA {}", value.len()).into_bytes();
            for flag in meta.flags.each() {
                match flag[0] {
                    b'v' | b'q' => continue,
                    b'f' => reply.extend(format!(" f{flags}").bytes()),
                    b's' => reply.extend(format!(" s{}", value.len()).bytes()),
                    b'c' => reply.extend(format!(" c{}", PLAIN.seq).bytes()),
                    b't' => reply.extend(b" t-1"),
                    b'k' => reply.extend([b" k", key].concat()),
                    b'O' => reply.extend([b" ", flag].concat()),
                    _ => return None,
                }
            }
            let value = [b"\r\n", &value[..], b"\r\n"].concat();
            meta.flags.value.then(|| [reply, value].concat())
        }
        _ => None,
    }
}

/// Whether a request that has a reply is one that the lane must know: single spaces, not too many
/// keys, each flag a letter, an opaque apart.
fn is_plain(text: &[u8]) -> bool {
    let Some(line) = text.strip_suffix(b"\r\n") else { return false };
    let words: Vec<&[u8]> = line.split(|&byte| byte == b' ').collect();
    let is_known = match words[0] {
        b"get" => words.len() <= KEYS_MAX + 1 && text.len() <= REQUEST_BYTES_MAX,
        _ => words[2..].iter().all(|flag| flag.len() == 1 || flag.starts_with(b"O")),
    };
    words.iter().all(|word| !word.is_empty()) && is_known
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
