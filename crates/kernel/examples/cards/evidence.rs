//! That the card does what it is there for: without that all the rest would show nothing.

use crate::frame::fold;
use crate::hosts;
use crate::kinds::pseudo_of;
use crate::raw::Watch;
use crate::site::{Card, LANE, PORTS, Site};
use nix::sys::socket::{setsockopt, sockopt};
use std::time::{Duration, Instant};

const SAMPLE: usize = 32;
/// Of a train that is to be joined.
const TRAIN: usize = 8;
const SEGMENT_BYTES: usize = 100;
const ATTEMPTS: usize = 200;
const PATIENCE: Duration = Duration::from_secs(60);
/// What the Intel card's driver calls packets whose sums the card has looked at.
const LOOKED_AT: &str = "rx_csum_offload_good";

/// How many of a client's ordinary requests come with the pseudo header's sum alone.
pub fn unfinished(site: &Site) -> usize {
    let watch = Watch::open(&site.server);
    let asking = site.client.socket("10.9.0.2:0");
    let port = asking.local_addr().expect("it is bound").port();
    let ports = [port.to_be_bytes(), PORTS[LANE].to_be_bytes()].concat();
    let request = hosts::datagram("mn\r\n");
    let (mut seen, mut unfinished) = (0, 0);
    let began = Instant::now();
    for number in 0..SAMPLE {
        asking.send_to(&request, ("10.9.0.1", PORTS[LANE])).expect("sent");
        while seen <= number {
            assert!(began.elapsed() < PATIENCE, "{seen} of {SAMPLE} came");
            let Some(frame) = watch.next() else {
                std::thread::yield_now();
                continue;
            };
            // Ethernet and IPv4, without options.
            if frame.len() > 42 && frame[12..15] == [8, 0, 0x45] && frame[34..38] == ports[..] {
                seen += 1;
                let sum = u16::from_be_bytes([frame[40], frame[41]]);
                unfinished += usize::from(sum == fold(pseudo_of(&frame)));
            }
        }
    }
    unfinished
}

/// Checks that checksums come as this kind of card has them; in words.
pub fn sums(site: &Site) -> String {
    let looked_at = || site.counted().get(LOOKED_AT).copied().unwrap_or_default();
    let before = if site.card == Card::Intel { looked_at() } else { 0 };
    let unfinished = unfinished(site);
    match site.card {
        Card::Virtio | Card::Virtual => {
            // One of 65536 whole ones is the same.
            assert!(unfinished >= SAMPLE, "only {unfinished} of {SAMPLE} sums are unfinished");
            format!("{unfinished} of {SAMPLE} checksums come unfinished")
        }
        Card::Intel => {
            let good = looked_at() - before;
            assert!(unfinished <= 1, "{unfinished} of {SAMPLE} sums are unfinished");
            assert!(good >= SAMPLE as u64, "the card looked at {good} of {SAMPLE} sums");
            format!("the card has looked at {good} checksums of {SAMPLE} packets and more")
        }
    }
}

/// Checks that the card's driver joins datagrams where a socket asks for it; in words.
pub fn joined(site: &Site) -> String {
    let listening = site.server.socket("10.9.0.1:12000");
    setsockopt(&listening, sockopt::UdpGroSegment, &true).expect("UDP_GRO");
    listening.set_read_timeout(Some(Duration::from_secs(1))).expect("a time-out");
    let asking = site.client.socket("10.9.0.2:0");
    setsockopt(&asking, sockopt::UdpGsoSegment, &(SEGMENT_BYTES as i32)).expect("UDP_SEGMENT");
    let (train, mut bytes) = ([b'x'; TRAIN * SEGMENT_BYTES], [0; 4096]);
    let mut longest = 0;
    for _ in 0..ATTEMPTS {
        asking.send_to(&train, "10.9.0.1:12000").expect("sent");
        let mut heard = 0;
        while heard < train.len() {
            let Ok(length) = listening.recv(&mut bytes) else { break };
            heard += length;
            longest = longest.max(length);
        }
        if longest >= train.len() / 2 {
            return format!("{} datagrams are joined where a socket asks", longest / SEGMENT_BYTES);
        }
    }
    panic!("nothing is joined here ({longest} bytes at most), so this shows nothing")
}
