//! Whether completions (io_uring) cost a server less than readiness (epoll) does: two echo servers
//! of one thread, the same client, one request in flight on each connection or several. What each
//! costs a request is the server's CPU time; the two take turns, and the ratio of each pair counts.
//!
//! This is the probe by which `laneway serve` chooses epoll: a server saves no more than an echo
//! does, since all that it does besides costs the same by either way.
//!
//! With `disk` it is two other probes: a flush for each writer, or one that they share ([`disk`]),
//! and io_uring beside calls that wait ([`disk_ring`]).

#![deny(unsafe_code)]

mod client;
mod disk;
mod disk_ring;
mod readiness;
mod uring;

use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

const HELP: &str = "\
Compare the CPU time of an echo server by epoll and by io_uring (multishot receive into provided
buffers, sends submitted together, SINGLE_ISSUER and DEFER_TASKRUN).

usage: io-probe [ROUNDS [SECONDS]]            default: 9 rounds, 2 seconds each side
       io-probe disk FILE [ROUNDS [SECONDS]]  blocks of 4 KB of a new FILE of 128 MiB: a flush for
                                              each writer beside one that they share; io_uring
                                              beside calls that wait, for writes and for reads

The server stays on CPU 0, the client on CPU 1. Ratios are medians over adjacent pairs, with the
least and the most.";

/// Bytes of a request: a `get` with a key of 30 bytes.
pub const REQUEST_BYTES: usize = 40;
/// Bytes of a reply: a value of 100 bytes, its head and `END`.
pub const REPLY: [u8; 140] = [b'x'; 140];
/// Bytes that one receive takes at most.
pub const RECEIVE_BYTES: usize = 2048;

/// Connections, and requests in flight on each.
const LOADS: [(usize, usize); 6] = [(1, 1), (8, 16), (16, 1), (64, 1), (256, 1), (1000, 1)];

/// A server thread and its client share this.
#[derive(Default)]
pub struct Run {
    pub stop: AtomicBool,
    pub requests: AtomicU64,
}

type Serve = fn(Vec<TcpStream>, &Run) -> std::io::Result<()>;

fn main() -> std::io::Result<()> {
    let mut words: Vec<String> = std::env::args().skip(1).collect();
    let is_disk = words.first().is_some_and(|word| word == "disk") && 1 < words.len();
    let disk = is_disk.then(|| words.drain(..2).nth(1)).flatten();
    let numbers: Vec<Option<u64>> = words.iter().map(|text| text.parse().ok()).collect();
    if numbers.len() > 2 || numbers.contains(&None) || numbers.contains(&Some(0)) {
        eprintln!("{HELP}");
        std::process::exit(2);
    }
    let number = |at: usize, or| numbers.get(at).copied().flatten().unwrap_or(or);
    let (rounds, seconds) = (number(0, 9), number(1, 2));
    if let Some(file) = disk {
        let time = Duration::from_secs(seconds);
        return disk::on_new(Path::new(&file), |disk| {
            disk::compare_on(disk, rounds, time)?;
            disk_ring::compare_on(disk, rounds, time)
        });
    }
    println!("connections  in flight  epoll us  io_uring us  ratio [least..most]");
    for (connections, depth) in LOADS {
        let one = |serve| cpu_us_per_request(serve, connections, depth, seconds);
        let (mut epoll, mut uring, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
        for round in 0..rounds {
            // In alternating order.
            let (a, b) = if round % 2 == 0 {
                let first = one(readiness::serve)?;
                (first, one(uring::serve)?)
            } else {
                let first = one(uring::serve)?;
                (one(readiness::serve)?, first)
            };
            epoll.push(a);
            uring.push(b);
            ratios.push(b / a);
        }
        ratios.sort_by(f64::total_cmp);
        println!(
            "{connections:>11} {depth:>10} {:>9.2} {:>12.2}  {:.2} [{:.2}..{:.2}]",
            median(&mut epoll),
            median(&mut uring),
            median(&mut ratios),
            ratios[0],
            ratios[ratios.len() - 1]
        );
    }
    Ok(())
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// CPU time of the server for each request, in microseconds.
fn cpu_us_per_request(
    serve: Serve,
    connections: usize,
    depth: usize,
    seconds: u64,
) -> std::io::Result<f64> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..connections {
        let client = TcpStream::connect(address)?;
        let (server, _) = listener.accept()?;
        for stream in [&client, &server] {
            stream.set_nodelay(true)?;
            stream.set_nonblocking(true)?;
        }
        ours.push(server);
        theirs.push(client);
    }
    let run = Arc::new(Run::default());
    let server = thread::spawn({
        let run = run.clone();
        move || -> std::io::Result<f64> {
            client::stay_on(0)?;
            let before = client::thread_cpu();
            serve(ours, &run)?;
            Ok((client::thread_cpu() - before).as_secs_f64())
        }
    });
    let asked = client::ask(&theirs, depth, Duration::from_secs(seconds));
    run.stop.store(true, Relaxed);
    let spent = server.join().expect("the server does not panic")?;
    asked?;
    Ok(spent * 1e6 / run.requests.load(Relaxed).max(1) as f64)
}
