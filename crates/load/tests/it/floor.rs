//! The floor answers what the load generator asks, over TCP and UDP, and nothing else.

use crate::within_tries;
use laneway_load::cli;
use laneway_load::connection::WRONG_LENGTH;
use laneway_load::floor::{Template, flags};
use laneway_load::run::run;
use std::net::{TcpListener, UdpSocket};

/// Starts a floor; returns its port.
fn floor(value_bytes: usize) -> u16 {
    let (listener, socket) = loop {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        // Whoever has the UDP port of this number, another number has it not.
        if let Ok(socket) = UdpSocket::bind(address) {
            break (listener, socket);
        }
    };
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || flags::serve(&listener, &socket, &Template::new(value_bytes)));
    port
}

const TCP_AND_UDP: [&str; 2] = ["", "--udp --timeout-ms 60000"];

/// Hits, and why it failed, of a run in whose window something was due.
fn verdict_of(port: u16, value_bytes: usize, flags: &str) -> (u64, Option<String>) {
    let line = format!(
        "--server 127.0.0.1:{port} --floor --value-bytes {value_bytes} --keys 1000 --closed \
         --depth 8 --connections 3 --warmup 0 --duration 0.1 --drain 60 {flags}"
    );
    let plan = cli::plan(line.split_ascii_whitespace()).unwrap();
    let ran = within_tries(|| {
        let ran = run(&plan).unwrap().runs.remove(0);
        (ran.requests.counts.due > 0).then_some(ran)
    });
    (ran.requests.counts.hits, ran.verdict.failed)
}

#[test]
fn every_reply_of_a_floor_is_right_whatever_its_length() {
    for value_bytes in [0, 1, 100, 1_353, 1_361, 1_362, 100_000] {
        let port = floor(value_bytes);
        for flags in TCP_AND_UDP {
            let (hits, failed) = verdict_of(port, value_bytes, flags);
            assert!(hits > 0 && failed.is_none(), "{value_bytes} B {flags}: {hits} {failed:?}");
        }
    }
}

#[test]
fn a_get_of_many_keys_has_as_many_right_values() {
    let port = floor(100);
    let (hits, failed) = verdict_of(port, 100, "--keys-per-get 50");
    assert!(hits > 0 && failed.is_none(), "{hits} {failed:?}");
}

#[test]
fn a_floor_of_another_length_is_noticed() {
    let port = floor(100);
    for flags in TCP_AND_UDP {
        let (hits, failed) = verdict_of(port, 101, flags);
        let failed = failed.expect("wrong replies");
        assert!(hits == 0 && failed.contains(WRONG_LENGTH), "{flags}: {hits} {failed}");
    }
}
