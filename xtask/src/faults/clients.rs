//! Faults that clients are: they dribble, never read, come and go by thousands, ask for more than
//! there is.

use super::place::{self, descriptors, resident_kib, wait_until};
use super::{Done, Fault, Seen};
use crate::client::Client;
use crate::random::Value;
use crate::server::{Executable, Server};
use rustix::net::sockopt::set_socket_linger;
use rustix::process::{Pid, Resource, Rlimit, prlimit};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

pub const FAULTS: &[Fault] = &[
    Fault {
        name: "slowloris",
        done: "800 connections send a request byte by byte and never finish it: half of them a \
               GET, half a SET that declares 1 MB.",
        expected: "A well-behaved client has every request answered meanwhile, and resident \
                   memory grows by less than 64 MiB: what is declared and not sent takes nothing.",
        quick: true,
        run: slowloris,
    },
    Fault {
        name: "churn",
        done: "10 000 connections open and close: at once, behind a request, within a value, by \
               FIN and by RST.",
        expected: "Afterwards the server has as many connections and descriptors as before, and \
                   resident memory has grown by less than 32 MiB.",
        quick: true,
        run: churn,
    },
    Fault {
        name: "slow-readers",
        done: "1024 connections ask for a value of 1 MiB and read nothing of it.",
        expected: "A well-behaved client has every request answered, small and large; resident \
                   memory grows by less than 64 MiB; who reads at last gets the value as it was.",
        quick: true,
        run: slow_readers,
    },
    Fault {
        name: "descriptors",
        done: "The limit of descriptors (RLIMIT_NOFILE) is lowered under the running server until \
               16 are left, and 64 connections come.",
        expected: "Who was connected goes on being answered; accepting pauses, with one line in \
                   the log for each pause; once connections go, new ones are served.",
        quick: true,
        run: out_of_descriptors,
    },
    Fault {
        name: "overload",
        done: "16 connections send requests as fast as the server takes them, without waiting for \
               replies, one in 500 for a value of 500 kB: more than it can answer.",
        expected: "No wrong or missing reply; another client has each of its requests answered; \
                   resident memory grows by less than 128 MiB. What share of the throughput \
                   without overload remains is told and not judged.",
        quick: false,
        run: overload,
    },
];

/// A client that behaves: stores a value and reads it, each reply as it must be.
struct WellBehaved {
    client: Client,
    answered: u64,
}

impl WellBehaved {
    fn connect(server: &Server) -> Result<WellBehaved, String> {
        Ok(WellBehaved { client: Client::connect(server.address())?, answered: 0 })
    }

    /// One SET and one GET of so many bytes.
    fn turn(&mut self, length: usize) -> Result<(), String> {
        let value = Value { key: 1, version: self.answered, length };
        let mut bytes = format!("set well 0 0 {length}\r\n").into_bytes();
        value.write(&mut bytes);
        bytes.extend_from_slice(b"\r\nget well\r\n");
        self.client.send(&bytes)?;
        self.client.expect("STORED")?;
        self.client.expect(&format!("VALUE well 0 {length}"))?;
        self.client.body(length, |bytes| value.is(bytes))?;
        self.client.expect("END")?;
        self.answered += 2;
        Ok(())
    }
}

fn connect(server: &Server) -> Result<TcpStream, String> {
    let stream = TcpStream::connect_timeout(&server.address(), place::PATIENCE)
        .map_err(|e| format!("cannot connect: {e}"))?;
    let set = stream.set_read_timeout(Some(place::PATIENCE));
    set.and_then(|()| stream.set_write_timeout(Some(place::PATIENCE)))
        .map_err(|e| format!("cannot set up a connection: {e}"))?;
    Ok(stream)
}

/// Fails if resident memory has grown by `most_mib` since it was `before_kib`; by how much, MiB.
fn grown_mib(server: &Server, before_kib: u64, most_mib: u64) -> Result<u64, String> {
    let grown = resident_kib(server.id())?.saturating_sub(before_kib) >> 10;
    let bounded = grown < most_mib;
    bounded.then_some(grown).ok_or_else(|| format!("memory grew by {grown} MiB, below {most_mib}"))
}

/// A statistic of the general family.
fn statistic(client: &mut Client, name: &str) -> Result<u64, String> {
    let stats = client.stats("")?;
    let found = stats.iter().find(|(known, _)| known == name);
    let number = found.and_then(|(_, value)| value.parse().ok());
    number.ok_or_else(|| format!("`stats` does not tell {name}"))
}

const DRIBBLERS: usize = 800;

fn slowloris(executable: &Executable) -> Done {
    if let Some(why) = place::too_few_descriptors(DRIBBLERS) {
        return Ok(Seen::Skipped(why));
    }
    let server = executable.start("faults-slowloris", &["-m", "64", "-c", "2048"])?;
    let mut well = WellBehaved::connect(&server)?;
    well.turn(100)?;
    let before = resident_kib(server.id())?;
    let requests = ["get dribbled-key-that-never-ends", "set k 0 0 1000000\r\nvalue"];
    let mut streams = Vec::new();
    for number in 0..DRIBBLERS {
        streams.push((connect(&server)?, requests[number % requests.len()].as_bytes()));
    }
    for at in 0..requests[0].len().min(requests[1].len()) {
        for (stream, request) in &mut streams {
            stream.write_all(&request[at..=at]).map_err(|e| format!("a byte: {e}"))?;
        }
        well.turn(100)?;
    }
    let grown = grown_mib(&server, before, 64)?;
    drop(streams);
    well.turn(100)?;
    server.stop()?;
    let answered = well.answered;
    Ok(Seen::Held(format!("{answered} requests answered beside them; memory +{grown} MiB")))
}

const CHURNED: usize = 10_000;

fn churn(executable: &Executable) -> Done {
    let server = executable.start("faults-churn", &["-m", "64"])?;
    let mut client = Client::connect(server.address())?;
    let connections = statistic(&mut client, "curr_connections")?;
    let (opened, before) = (descriptors(server.id()), resident_kib(server.id())?);
    let requests: [&[u8]; 4] = [b"", b"mn\r\n", b"set k 0 0 100000\r\nabc", b"get k\r\nge"];
    for number in 0..CHURNED {
        let mut stream = connect(&server)?;
        stream.write_all(requests[number % requests.len()]).map_err(|e| format!("sent: {e}"))?;
        if number % 8 >= 4 {
            let linger = set_socket_linger(&stream, Some(Duration::ZERO));
            linger.map_err(|e| format!("SO_LINGER: {e}"))?;
        }
    }
    wait_until("the server has let all connections go", || {
        let now = statistic(&mut client, "curr_connections")?;
        // The connection that found the server ready may have been counted before.
        Ok(now <= connections && descriptors(server.id()) <= opened)
    })?;
    let total = statistic(&mut client, "total_connections")?;
    if total < CHURNED as u64 {
        return Err(format!("it counts {total} connections of {CHURNED}"));
    }
    let grown = grown_mib(&server, before, 32)?;
    server.stop()?;
    Ok(Seen::Held(format!("{total} connections came and went; memory +{grown} MiB")))
}

const READERS: usize = 1024;
/// A value of 1 MiB does not fit the default -I with its key.
const WANTED: Value = Value { key: 9, version: 9, length: 1 << 20 };

fn slow_readers(executable: &Executable) -> Done {
    if let Some(why) = place::too_few_descriptors(READERS) {
        return Ok(Seen::Skipped(why));
    }
    let server = executable.start("faults-readers", &["-m", "64", "-I", "2m", "-c", "2048"])?;
    let mut well = WellBehaved::connect(&server)?;
    well.turn(WANTED.length)?;
    let mut bytes = format!("set wanted 0 0 {}\r\n", WANTED.length).into_bytes();
    WANTED.write(&mut bytes);
    bytes.extend_from_slice(b"\r\n");
    well.client.send(&bytes)?;
    well.client.expect("STORED")?;
    let before = resident_kib(server.id())?;
    let mut readers = Vec::new();
    for number in 0..READERS {
        let mut reader = connect(&server)?;
        reader.write_all(b"get wanted\r\n").map_err(|e| format!("asked: {e}"))?;
        readers.push(reader);
        if number % 16 == 0 {
            well.turn(if number % 128 == 0 { 200_000 } else { 100 })?;
        }
    }
    let grown = grown_mib(&server, before, 64)?;
    for reader in readers.iter_mut().step_by(64) {
        let head = format!("VALUE wanted 0 {}\r\n", WANTED.length);
        let mut reply = vec![0; head.len() + WANTED.length + b"\r\nEND\r\n".len()];
        reader.read_exact(&mut reply).map_err(|e| format!("who reads at last: {e}"))?;
        if !WANTED.is(&reply[head.len()..head.len() + WANTED.length]) {
            return Err("who reads at last gets another value".into());
        }
    }
    drop(readers);
    well.turn(100)?;
    server.stop()?;
    let answered = well.answered;
    Ok(Seen::Held(format!("{answered} requests answered beside them; memory +{grown} MiB")))
}

const LEFT: u64 = 16;
const COMERS: usize = 64;
const PAUSE_WORDS: &str = "accepting pauses";

fn out_of_descriptors(executable: &Executable) -> Done {
    let server = executable.start("faults-descriptors", &["-m", "64"])?;
    let mut well = WellBehaved::connect(&server)?;
    well.turn(100)?;
    let process = i32::try_from(server.id()).ok().and_then(Pid::from_raw);
    let limit = Some(descriptors(server.id()) as u64 + LEFT);
    prlimit(process, Resource::Nofile, Rlimit { current: limit, maximum: limit })
        .map_err(|e| format!("the limit cannot be lowered: {e}"))?;
    let comers = (0..COMERS).map(|_| connect(&server)).collect::<Result<Vec<_>, _>>()?;
    wait_until("accepting pauses", || {
        well.turn(100)?;
        Ok(server.log().contains(PAUSE_WORDS))
    })?;
    drop(comers);
    let mut late = WellBehaved::connect(&server)?;
    late.turn(100)?;
    well.turn(100)?;
    let pauses = server.log().matches(PAUSE_WORDS).count();
    server.stop()?;
    let answered = well.answered;
    Ok(Seen::Held(format!("{answered} requests answered meanwhile; accepting paused {pauses}x")))
}

const FLOODERS: usize = 16;
/// Requests in flight on each connection that keep the server busy and no more.
const IN_FLIGHT: u64 = 200;
const FLOOD: Duration = Duration::from_secs(4);
/// Large values: one request in so many.
const LARGE_EVERY: usize = 500;
const SMALL_BYTES: usize = 100;
const LARGE_BYTES: usize = 500_000;

fn overload(executable: &Executable) -> Done {
    let server = executable.start("faults-overload", &["-m", "256"])?;
    let mut well = WellBehaved::connect(&server)?;
    for (key, length) in [("small", SMALL_BYTES), ("large", LARGE_BYTES)] {
        let mut bytes = format!("set {key} 0 0 {length}\r\n").into_bytes();
        Value { key: 0, version: 0, length }.write(&mut bytes);
        bytes.extend_from_slice(b"\r\n");
        well.client.send(&bytes)?;
        well.client.expect("STORED")?;
    }
    let before = resident_kib(server.id())?;
    let peak = flood(&server, &mut well, Some(IN_FLIGHT))?;
    let over = flood(&server, &mut well, None)?;
    let grown = grown_mib(&server, before, 128)?;
    server.stop()?;
    let (share, answered) = (100.0 * over / peak, well.answered);
    Ok(Seen::Held(format!(
        "{over:.0} replies/s under overload, {share:.0} % of the {peak:.0} at {IN_FLIGHT} in \
         flight each; {answered} requests of another client answered; memory +{grown} MiB"
    )))
}

/// Floods for a while, with at most so many requests in flight per connection; replies per second.
fn flood(server: &Server, well: &mut WellBehaved, in_flight: Option<u64>) -> Result<f64, String> {
    let (over, replies) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..FLOODERS)
            .map(|_| scope.spawn(|| one_flood(server, in_flight, &over, &replies)))
            .collect();
        let began = std::time::Instant::now();
        let mut told = Ok(());
        while began.elapsed() < FLOOD && told.is_ok() {
            told = well.turn(SMALL_BYTES);
        }
        let rate = replies.load(Relaxed) as f64 / began.elapsed().as_secs_f64();
        over.store(true, Relaxed);
        for client in clients {
            client.join().unwrap_or_else(|_| Err("a client panicked".into()))?;
        }
        told.map(|()| rate)
    })
}

/// One connection: a thread sends, this one reads every reply and checks it.
fn one_flood(
    server: &Server,
    in_flight: Option<u64>,
    over: &AtomicBool,
    replies: &AtomicU64,
) -> Result<(), String> {
    let mut client = Client::connect(server.address())?;
    let mut sender = client.second_half()?;
    let (sent, read) = (AtomicU64::new(0), AtomicU64::new(0));
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Relaxed) {
                let under_way = sent.load(Relaxed) - read.load(Relaxed);
                if in_flight.is_some_and(|most| most <= under_way) {
                    std::thread::yield_now();
                    continue;
                }
                let number = sent.load(Relaxed) as usize;
                let large = number % LARGE_EVERY == LARGE_EVERY - 1;
                let request: &[u8] = if large { b"get large\r\n" } else { b"get small\r\n" };
                if sender.write_all(request).is_err() {
                    break; // the reader tells why
                }
                sent.fetch_add(1, Relaxed);
            }
            ended.store(true, Relaxed);
        });
        loop {
            let number = read.load(Relaxed);
            if number == sent.load(Relaxed) {
                if ended.load(Relaxed) && number == sent.load(Relaxed) {
                    return Ok(());
                }
                std::thread::yield_now();
                continue;
            }
            let large = number as usize % LARGE_EVERY == LARGE_EVERY - 1;
            let (key, length) = if large { ("large", LARGE_BYTES) } else { ("small", SMALL_BYTES) };
            client.expect(&format!("VALUE {key} 0 {length}"))?;
            client.body(length, |bytes| Value { key: 0, version: 0, length }.is(bytes))?;
            client.expect("END")?;
            read.fetch_add(1, Relaxed);
            replies.fetch_add(1, Relaxed);
        }
    })
}
