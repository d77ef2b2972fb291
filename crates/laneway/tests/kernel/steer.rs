//! Keys that the kernel steers to their owners, also while these change.

use crate::hosts::{self, Host};
use crate::servers::{Client, HANG, Server, available, value};
use std::net::UdpSocket;
use std::time::Instant;

#[test]
fn steered_requests_reach_their_owners_and_none_is_handed_over() {
    if !available() {
        return;
    }
    let host = Host::new();
    let handed_over = |flags: &[&str]| {
        let flags = [&["-U", "11211", "-t", "4", "--design", "hkh", "--access", "erew"], flags];
        let server = Server::start(&host, &flags.concat());
        let mut client = Client::new(&host, "127.0.0.1:0", "127.0.0.1:11211");
        for number in 0..500 {
            let set = format!("set key{number} 0 0 5\r\nvalue\r\n");
            assert_eq!(client.udp(&set), "STORED\r\n");
            let key = format!("key{number}");
            assert_eq!(client.udp(&format!("get {key}\r\n")), value(&key, "value"));
        }
        let counts = client.stats("udp")["requests_handed_over"].parse::<u64>();
        let steered = client.stats("kernel").get("steered").map(|count| count.parse::<u64>());
        server.stop();
        (counts.expect("a number"), steered.map(|count| count.expect("a number")))
    };
    assert_eq!(handed_over(&["--steer"]), (0, Some(1000)));
    let (software, steered) = handed_over(&[]);
    assert!(software > 500 && steered.is_none(), "{software}");
}

/// What came of a crowd.
struct Crowd {
    requests: u64,
    writes: u64,
    handed_over: u64,
    /// Workers that executed reads of the key.
    readers: usize,
}

/// A crowd of many senders on one key, which is written now and then and must be read as it was
/// written last, until the server has rewritten so many slots, and for a while after that.
fn crowd(access: &str, rewritten_least: u64) -> Crowd {
    const SENDERS: usize = 16;
    const READS_PER_WRITE: usize = 20;
    const ROUNDS_AFTER: u32 = 300;
    const TO: &str = "127.0.0.1:11211";
    let host = Host::new();
    let flags = ["-U", "11211", "-t", "4", "--design", "hkh", "--access", access, "--steer"];
    let hot = ["--hot", "default", "--slot-requests", "200"];
    let server = Server::start(&host, &[&flags[..], &hot].concat());
    let mut client = Client::new(&host, "127.0.0.1:0", TO);
    let senders: Vec<UdpSocket> = (0..SENDERS).map(|_| host.socket("127.0.0.1:0")).collect();
    let (mut requests, mut writes, mut rounds_after) = (0, 0, 0);
    let began = Instant::now();
    while rounds_after < ROUNDS_AFTER {
        let written = format!("written {writes}");
        let set = format!("set crowded 0 0 {}\r\n{written}\r\n", written.len());
        assert_eq!(hosts::ask(&senders[writes as usize % SENDERS], TO, &set), "STORED\r\n");
        for sender in senders.iter().cycle().take(READS_PER_WRITE) {
            let read = hosts::ask(sender, TO, "get crowded\r\n");
            assert_eq!(read, value("crowded", &written));
        }
        assert_eq!(client.udp(&format!("get cold{writes}\r\n")), "END\r\n");
        writes += 1;
        requests += 2 + READS_PER_WRITE as u64;
        if rounds_after > 0 {
            rounds_after += 1;
        } else if client.count("kernel", "slots_rewritten") >= rewritten_least {
            rounds_after = 1;
        }
        assert!(began.elapsed() < HANG, "{:?}", client.stats("hotkeys"));
    }
    assert_eq!(client.count("kernel", "steered"), requests);
    let hot = client.stats("hotkeys");
    let reads = |worker| hot.get(&format!("worker:{worker}:reads")).map(|count| count != "0");
    let readers = (0..4).filter(|worker| reads(*worker) == Some(true)).count();
    let handed_over = client.count("udp", "requests_handed_over");
    server.stop();
    Crowd { requests, writes, handed_over, readers }
}

#[test]
fn the_slot_of_a_hot_key_goes_where_its_owner_is() {
    if !available() {
        return;
    }
    let Crowd { requests, handed_over, readers, .. } = crowd("erew", 3);
    assert!(readers > 1, "nobody else got it");
    assert!(handed_over * 10 < requests, "{handed_over} of {requests} were handed over");
}

#[test]
fn reads_that_need_no_owner_are_spread_by_the_kernel_when_their_key_is_hot() {
    if !available() {
        return;
    }
    let Crowd { writes, handed_over, readers, .. } = crowd("crew", 1);
    assert!(readers > 1, "nobody else reads it");
    assert!(handed_over <= writes, "only writes have an owner: {handed_over} of {writes}");
}
