//! The core in a program that has a loop, a socket and a clock of its own.
//!
//! `laneway serve --udp-base 11300` in another terminal, then
//! `cargo run -p laneway-client --example own_loop [HOST:PORT]`.
#![allow(clippy::disallowed_methods, reason = "a loop has a clock")]
use laneway_client::{Client, Core, Error, Request, Settings};
use std::net::{SocketAddr, ToSocketAddrs, UdpSocket};
use std::time::{Duration, Instant};

fn main() -> Result<(), Error> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:11211".into());
    run(&address, Settings::default())
}

/// Everything, against the server whose TCP address this is, with this patience.
pub fn run(address: &str, settings: Settings) -> Result<(), Error> {
    let topology = *Client::connect_with(address, settings.clone())?.topology();
    let server = address.to_socket_addrs()?.next().expect("the client has found it");

    let socket = UdpSocket::bind("0.0.0.0:0")?;
    let begun = Instant::now();
    let now_nanos = || begun.elapsed().as_nanos() as u64;
    let mut core = Core::new(settings, topology, 0x5EED);
    core.push(Request::set("loop", vec![7; 100_000]), now_nanos())?;

    let (mut out, mut room) = (Vec::new(), [0; 2048]);
    let mut answers = 0;
    while !core.is_idle() {
        // 1. Send what there is to send.
        while let Some(departure) = core.transmit(now_nanos(), &mut out) {
            let to = SocketAddr::new(server.ip(), topology.port(departure.queue));
            for datagram in out.chunks(departure.segment_bytes) {
                socket.send_to(datagram, to)?;
            }
        }
        // 2. Wait for a datagram, but no longer than until there is something to do.
        if let Some(wake_nanos) = core.wake_nanos() {
            let wait = wake_nanos.saturating_sub(now_nanos()).max(1);
            socket.set_read_timeout(Some(Duration::from_nanos(wait)))?;
            if let Ok((length, from)) = socket.recv_from(&mut room)
                && let Some(queue) = topology.queue_at(from.port())
                && from.ip() == server.ip()
            {
                core.feed(queue, &room[..length], now_nanos());
            }
        }
        // 3. Do what is due, and take the answers.
        core.tick(now_nanos());
        while let Some((ticket, answer)) = core.answer() {
            println!("{ticket:?}: {:?}", answer?);
            answers += 1;
            if answers == 1 {
                core.push(Request::get("loop"), now_nanos())?;
                core.push(Request::get("nobody"), now_nanos())?;
            }
        }
    }
    println!("{:?}", core.counts());
    Ok(())
}
