//! Fuzzes the frames of UDP: arbitrary datagrams of a few peers, against bounds that are quickly
//! reached.
//!
//! The input is a list of steps of five bytes: peer and time that passes, sequence number, total,
//! length, and what the payload says. What is checked: the bounds hold after every step; a
//! message that becomes whole is what was accepted of it, frame by frame; what is told as missing
//! is what was not accepted; nothing is left when everything has timed out. The whole input is
//! also read as a datagram.

#![no_main]

use laneway_wire::udp::header::{Header, Kind};
use laneway_wire::udp::reassembly::{Bounds, Reassembly, Taken};
use laneway_wire::udp::resend::{Gap, gaps, put_resend};
use libfuzzer_sys::fuzz_target;
use std::collections::BTreeMap;

const BOUNDS: Bounds = Bounds {
    messages_max: 3,
    bytes_max: 6000,
    message_bytes_max: 3000,
    idle_nanos_max: 40,
    stale_nanos_max: 10,
};

/// Lengths by number: edges, and many small ones.
const LENGTHS: [usize; 8] = [0, 1, 2, 3, 100, 101, 1392, 1393];

/// The frames accepted of a peer, the newest under each number: those of a message that was given
/// up are overwritten before a newer one is whole.
type Accepted = BTreeMap<u16, Vec<u8>>;

fuzz_target!(|input: &[u8]| {
    read_as_datagram(input);
    let mut into = Reassembly::new(BOUNDS);
    let mut accepted: BTreeMap<u8, Accepted> = BTreeMap::new();
    let mut now_nanos = 0;
    for step in input.chunks_exact(5) {
        let [peer_and_time, sequence, total, length, content] = step else { unreachable!() };
        now_nanos += u64::from(peer_and_time >> 3);
        let peer = peer_and_time & 7;
        let header = Header {
            request_id: 1,
            sequence: u16::from(*sequence),
            total: number(*total),
            kind: Kind::Data,
        };
        let payload = vec![*content; LENGTHS[usize::from(length & 7)]];
        let frames = accepted.entry(peer).or_default();
        match into.take(peer, header, &payload, now_nanos) {
            Taken::Whole(whole) => {
                frames.insert(header.sequence, payload);
                let expected: Vec<u8> =
                    frames.range(..header.total).flat_map(|(_, frame)| frame.clone()).collect();
                assert_eq!(whole.into_vec(), expected);
                frames.clear();
            }
            Taken::More => {
                frames.insert(header.sequence, payload);
                check_missing(&into.missing(&peer), header.total, frames, header.sequence);
            }
            Taken::Refused(_) => {}
        }
        assert!(into.len() <= BOUNDS.messages_max && into.bytes() <= BOUNDS.bytes_max);
        assert_eq!(into.is_empty(), into.bytes() == 0);
        into.overdue(now_nanos, 5, |_, overdue| assert!(!overdue.gaps.is_empty()));
    }
    into.expire(now_nanos + BOUNDS.idle_nanos_max + 1);
    assert_eq!((into.len(), into.bytes()), (0, 0));
});

/// Small totals, mostly; some that span pieces of memory, some as large as can be.
fn number(byte: u8) -> u16 {
    match byte {
        0..=250 => u16::from(byte),
        251 => 5000,
        _ => u16::MAX,
    }
}

/// Everything that is not missing was accepted, and so was the frame that came last.
fn check_missing(missing: &[Gap], total: u16, frames: &Accepted, sequence: u16) {
    let lacks =
        |number: u16| missing.iter().any(|gap| gap.sequences().contains(&u32::from(number)));
    assert!(!lacks(sequence) && !missing.is_empty());
    assert!(missing.windows(2).all(|pair| pair[0].sequences().end < u32::from(pair[1].first)));
    let here = (0..total.min(300)).filter(|number| !lacks(*number));
    assert!(here.into_iter().all(|number| frames.contains_key(&number)));
}

fn read_as_datagram(input: &[u8]) {
    let Some((header, payload)) = Header::parse(input) else { return };
    // What clients leave in the last two bytes says nothing, so these need not come back.
    let again = header.to_bytes();
    assert_eq!(Header::parse(&again).map(|(header, _)| header), Some(header));
    let named: Vec<Gap> = gaps(payload, header.total).collect();
    assert!(named.iter().all(|gap| gap.sequences().end <= u32::from(header.total)));
    let mut again = Vec::new();
    put_resend(&mut again, header.request_id, header.total, named.iter().copied());
    let (_, payload) = Header::parse(&again).expect("it has a header");
    let told = gaps(payload, header.total);
    assert!(told.eq(named.iter().copied().take(payload.len() / 4)));
}
