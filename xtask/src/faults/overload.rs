//! Overload: more requests than the server can answer, by streams and by datagrams.
//!
//! Throughput is counted in replies for each second of CPU time that the server's threads took,
//! and never in replies per second: clients and other programs share the machine, and take CPU
//! time from the server as soon as they have more to do. An overloaded server always has work, so
//! its throughput on CPUs of its own is this figure times their number; it falls where a reply
//! costs more under overload, and that is what is judged. That the server had work is read from
//! the scheduler: the time in which it ran, or waited for a CPU that others had. Rounds of peak and
//! overload alternate, so that whatever else the machine does falls upon both; the median of their
//! ratios counts. Server and clients have a CPU each: hundreds of client threads on its CPU would
//! empty its caches between any two requests, which clients on other machines do not.

use super::Run;
use crate::place::{self, resident_kib};
use crate::server::{Executable, Server, free_address};
use crate::{Client, Failure, Outcome, Value, failed, passed, skipped};
use laneway_load::cpu::CpuTime;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

pub const FAULTS: &[Run] = &[("overload", by_streams), ("overload-udp", by_datagrams)];

/// Share of the time in which the server has something to do, where a load counts as overload.
const BUSY_MIN: f64 = 0.9;
/// Of the throughput at the peak this much remains.
const REMAINS_MIN: f64 = 0.9;
const ROUNDS: usize = 9;
const ROUND: Duration = Duration::from_millis(700);
const SMALL_BYTES: usize = 100;
const LARGE_BYTES: usize = 500_000;

/// What a stretch of load came to.
struct Stretch {
    replies: u64,
    cpu: CpuTime,
    wall_s: f64,
}

impl Stretch {
    /// Runs `load` for a round; it counts replies and returns once the flag is set.
    fn of(
        server: &Server,
        load: impl FnOnce(&AtomicBool, &AtomicU64) -> Result<(), String>,
    ) -> Result<Stretch, String> {
        let (over, replies) = (AtomicBool::new(false), AtomicU64::new(0));
        let (began, before) = (Instant::now(), place::cpu_time(server.id())?);
        load(&over, &replies)?;
        let (after, wall_s) = (place::cpu_time(server.id())?, began.elapsed().as_secs_f64());
        Ok(Stretch { replies: replies.into_inner(), cpu: after.since(before), wall_s })
    }

    fn per_cpu_second(&self) -> f64 {
        self.replies as f64 / (self.cpu.busy_ns as f64 / 1e9)
    }

    /// Share of the time in which the server had something to do.
    fn busy(&self) -> f64 {
        (self.cpu.busy_ns + self.cpu.kept_waiting_ns) as f64 / 1e9 / self.wall_s
    }
}

/// Rounds of both kinds in turn, and what they come to.
#[derive(Default)]
struct Rounds {
    remains: Vec<f64>,
    peak: Vec<f64>,
    busy: Vec<f64>,
}

impl Rounds {
    fn add(&mut self, peak: &Stretch, over: &Stretch) {
        self.remains.push(over.per_cpu_second() / peak.per_cpu_second());
        self.peak.push(peak.per_cpu_second());
        self.busy.push(over.busy().min(peak.busy()));
    }

    /// Fails if too little remains.
    fn judge(mut self) -> Outcome {
        let (remains, busy) = (median(&mut self.remains), median(&mut self.busy));
        let told = format!(
            "{:.0} % [{:.0}..{:.0}] of the peak's {:.0} replies per CPU-second remain; the server \
             had something to do {:.0} % of the time",
            100.0 * remains,
            100.0 * self.remains[0],
            100.0 * self.remains[self.remains.len() - 1],
            median(&mut self.peak),
            100.0 * busy,
        );
        if busy < BUSY_MIN {
            return skipped(format!("the clients here cannot overload it: {told}"));
        }
        if REMAINS_MIN <= remains { passed(told) } else { failed(told) }
    }
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// While it lives this process leaves one CPU to the server.
struct Apart {
    all: CpuSet,
    server: String,
}

impl Apart {
    fn from_here() -> Result<Apart, Failure> {
        let told = |e| format!("which CPUs this process may use: {e}");
        let all = sched_getaffinity(None).map_err(told)?;
        let first = (0..CpuSet::MAX_CPU).find(|&cpu| all.is_set(cpu)).unwrap_or(0);
        let mut rest = all;
        rest.unset(first);
        if rest.count() == 0 {
            return skipped("server and clients need a CPU each");
        }
        sched_setaffinity(None, &rest).map_err(told)?;
        Ok(Apart { all, server: first.to_string() })
    }

    /// What starts the server there.
    fn wrapper(&self) -> [&str; 3] {
        ["taskset", "-c", &self.server]
    }
}

impl Drop for Apart {
    fn drop(&mut self) {
        let _ = sched_setaffinity(None, &self.all); // later faults have fewer CPUs, no more
    }
}

/// The calling thread gives way to whoever measures.
fn drop_priority() {
    let _ = rustix::process::nice(NICE); // without it the measured waits are longer, no more
}

const NICE: i32 = 5;

fn store(client: &mut Client) -> Result<(), String> {
    let values = [("small", SMALL_BYTES), ("large", LARGE_BYTES)];
    let stored = |(key, length)| client.set(key, Value { key: 0, version: 0, length });
    values.into_iter().try_for_each(stored)
}

/// The reply to a GET of `key`.
fn reply(key: &str, length: usize) -> Vec<u8> {
    let mut bytes = format!("VALUE {key} 0 {length}\r\n").into_bytes();
    Value { key: 0, version: 0, length }.write(&mut bytes);
    bytes.extend_from_slice(b"\r\nEND\r\n");
    bytes
}

/// How many connections flood, and how many groups of requests each has under way at most.
#[derive(Clone, Copy)]
struct Load {
    connections: usize,
    groups_max: usize,
}

const PEAK: Load = Load { connections: 8, groups_max: 4 };
/// The server takes no more than its buffers hold.
const OVER: Load = Load { connections: 16, groups_max: 1 << 16 };
/// Requests that are sent by one call.
const GROUP: usize = 50;
/// One group in so many ends with a request for the large value.
const GROUPS_A_LARGE: usize = 10;

fn by_streams(executable: &Executable) -> Outcome {
    let apart = Apart::from_here()?;
    let wrapper = apart.wrapper();
    let flags = ["-m", "256", "-t", "1"];
    let server = executable.start_at("faults-overload", free_address()?, &wrapper, &flags)?;
    store(&mut Client::connect(server.address())?)?;
    let before = resident_kib(server.id())?;
    let (mut rounds, mut waits) = (Rounds::default(), Waits::default());
    for _ in 0..ROUNDS {
        let peak = flood(&server, PEAK, &mut Waits::default())?;
        let over = flood(&server, OVER, &mut waits)?;
        rounds.add(&peak, &over);
    }
    let grown = place::grown_mib(&server, before, 128)?;
    server.stop()?;
    let (remains, first) = (rounds.judge(), waits.judge()?);
    passed(format!("{}; {first}; memory +{grown} MiB", remains?))
}

/// A small reply takes this share of a large one's time at most. Where requests are served in the
/// order of their coming, or large ones to their end, they take about as long.
const FIRST_MAX: f64 = 0.5;

/// What another client waits for its replies meanwhile, in seconds.
#[derive(Default)]
struct Waits {
    small: Vec<f64>,
    large: Vec<f64>,
}

impl Waits {
    fn ask(&mut self, client: &mut Client) -> Result<(), String> {
        for (key, length, waits) in
            [("small", SMALL_BYTES, &mut self.small), ("large", LARGE_BYTES, &mut self.large)]
        {
            let began = Instant::now();
            ask(client, key, length)?;
            waits.push(began.elapsed().as_secs_f64());
        }
        Ok(())
    }

    fn judge(&mut self) -> Result<String, String> {
        let (small, large) = (median(&mut self.small), median(&mut self.large));
        let told = format!("median wait small {:.1} ms, large {:.1} ms", 1e3 * small, 1e3 * large);
        if small <= FIRST_MAX * large { Ok(told) } else { Err(told) }
    }
}

fn ask(client: &mut Client, key: &str, length: usize) -> Result<(), String> {
    client.get(key, Value { key: 0, version: 0, length })
}

/// Has another client ask for a round, and ends these clients.
fn for_a_round(
    over: &AtomicBool,
    clients: Vec<ScopedJoinHandle<'_, Result<(), String>>>,
    mut ask: impl FnMut() -> Result<(), String>,
) -> Result<(), String> {
    let (began, mut told) = (Instant::now(), Ok(()));
    while began.elapsed() < ROUND && told.is_ok() {
        told = ask();
    }
    over.store(true, Relaxed);
    place::join(clients)?;
    told
}

/// Floods for a round.
fn flood(server: &Server, load: Load, waits: &mut Waits) -> Result<Stretch, String> {
    let mut other = Client::connect(server.address())?;
    Stretch::of(server, |over, replies| {
        std::thread::scope(|scope| {
            let floods: Vec<_> = (0..load.connections)
                .map(|_| scope.spawn(|| one_flood(server, load, over, replies)))
                .collect();
            for_a_round(over, floods, || waits.ask(&mut other))
        })
    })
}

/// One connection: a thread sends groups, this one reads their replies.
fn one_flood(
    server: &Server,
    load: Load,
    over: &AtomicBool,
    replies: &AtomicU64,
) -> Result<(), String> {
    drop_priority();
    let mut stream = place::connect(server.address())?;
    let sender = stream.try_clone().map_err(|e| format!("a connection cannot be shared: {e}"))?;
    let (sent, under_way) = sync_channel(load.groups_max);
    std::thread::scope(|scope| {
        scope.spawn(|| send_groups(sender, sent, over));
        let read = read_groups(&mut stream, under_way, over, replies);
        let _ = stream.shutdown(Shutdown::Both); // who sends waits for room no longer
        read
    })
}

fn send_groups(mut stream: TcpStream, sent: SyncSender<bool>, over: &AtomicBool) {
    drop_priority();
    let plain = b"get small\r\n".repeat(GROUP);
    let mut ending = b"get small\r\n".repeat(GROUP - 1);
    ending.extend_from_slice(b"get large\r\n");
    for number in 1.. {
        let large = number % GROUPS_A_LARGE == 0;
        // Who reads ends for a reason of its own, which it tells.
        let stands = sent.send(large).is_ok();
        if !stands || stream.write_all(if large { &ending } else { &plain }).is_err() {
            return;
        }
        if over.load(Relaxed) {
            return;
        }
    }
}

fn read_groups(
    stream: &mut TcpStream,
    under_way: Receiver<bool>,
    over: &AtomicBool,
    replies: &AtomicU64,
) -> Result<(), String> {
    let plain = reply("small", SMALL_BYTES).repeat(GROUP);
    let mut ending = reply("small", SMALL_BYTES).repeat(GROUP - 1);
    ending.extend(reply("large", LARGE_BYTES));
    let mut buffer = vec![0; 64 << 10];
    for large in under_way {
        let mut expected = if large { &ending[..] } else { &plain[..] };
        while !expected.is_empty() && !over.load(Relaxed) {
            let most = buffer.len().min(expected.len());
            let got = stream.read(&mut buffer[..most]).map_err(|e| format!("no reply: {e}"))?;
            if got == 0 || buffer[..got] != expected[..got] {
                return Err("a reply is missing or wrong".into());
            }
            expected = &expected[got..];
        }
        if over.load(Relaxed) {
            return Ok(());
        }
        replies.fetch_add(GROUP as u64, Relaxed);
    }
    Ok(())
}

const SOCKETS: usize = 8;
/// Threads that send without end.
const SENDERS: usize = 2;
/// Datagrams that a socket has under way at the peak.
const BURST: usize = 16;
/// How long a reply may take that was not lost.
const LOST: Duration = Duration::from_millis(200);
/// Requests sent for each that is answered, where it counts as overload.
const OFFERED_MIN: f64 = 2.0;
const REQUEST: &[u8] = b"\0\x01\0\0\0\x01\0\0get small\r\n";

fn by_datagrams(executable: &Executable) -> Outcome {
    let apart = Apart::from_here()?;
    let (address, wrapper) = (free_address()?, apart.wrapper());
    let port = address.port().to_string();
    let flags = ["-m", "64", "-t", "1", "-U", &port];
    let server = executable.start_at("faults-overload-udp", address, &wrapper, &flags)?;
    let mut client = Client::connect(server.address())?;
    store(&mut client)?;
    let before = resident_kib(server.id())?;
    let (mut rounds, mut offered) = (Rounds::default(), Vec::new());
    for _ in 0..ROUNDS {
        let (peak, _) = rain(&server, &mut client, Some(BURST))?;
        let (over, sent) = rain(&server, &mut client, None)?;
        rounds.add(&peak, &over);
        offered.push(sent as f64 / over.replies as f64);
    }
    let grown = place::grown_mib(&server, before, 64)?;
    server.stop()?;
    let (remains, offered) = (rounds.judge()?, median(&mut offered));
    if offered < OFFERED_MIN {
        let why = format!("the clients here offer {offered:.1} requests for each reply only");
        return skipped(why);
    }
    passed(format!("{remains}; {offered:.1} requests for each reply; memory +{grown} MiB"))
}

/// Sends datagrams for a round, at most so many at a time; with how many it sent.
fn rain(
    server: &Server,
    client: &mut Client,
    burst: Option<usize>,
) -> Result<(Stretch, u64), String> {
    let sockets = (0..SOCKETS).map(|_| socket(server)).collect::<Result<Vec<_>, _>>()?;
    let sent = AtomicU64::new(0);
    let stretch = Stretch::of(server, |over, replies| {
        std::thread::scope(|scope| {
            let (sent, some) = (&sent, sockets.len() / SENDERS);
            if burst.is_none() {
                for some in sockets.chunks(some) {
                    scope.spawn(move || send_all(some, over, sent));
                }
            }
            let takers: Vec<_> = sockets
                .iter()
                .map(|socket| scope.spawn(move || take_all(socket, burst, over, sent, replies)))
                .collect();
            for_a_round(over, takers, || ask(client, "small", SMALL_BYTES))
        })
    })?;
    Ok((stretch, sent.into_inner()))
}

fn socket(server: &Server) -> Result<UdpSocket, String> {
    let told = |e: std::io::Error| format!("a socket for datagrams: {e}");
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).map_err(told)?;
    socket.connect(server.address()).map_err(told)?;
    socket.set_read_timeout(Some(LOST)).map_err(told)?;
    Ok(socket)
}

/// Sends without end, by each of these sockets in turn.
fn send_all(sockets: &[UdpSocket], over: &AtomicBool, sent: &AtomicU64) {
    for socket in sockets.iter().cycle() {
        if over.load(Relaxed) {
            return;
        }
        for _ in 0..BURST {
            let _ = socket.send(REQUEST); // what the kernel refuses was offered all the same
        }
        sent.fetch_add(BURST as u64, Relaxed);
    }
}

/// Takes the replies; with `burst` it also sends so many requests at a time.
fn take_all(
    socket: &UdpSocket,
    burst: Option<usize>,
    over: &AtomicBool,
    sent: &AtomicU64,
    replies: &AtomicU64,
) -> Result<(), String> {
    while !over.load(Relaxed) {
        for _ in 0..burst.unwrap_or(0) {
            socket.send(REQUEST).map_err(|e| format!("a request: {e}"))?;
            sent.fetch_add(1, Relaxed);
        }
        replies.fetch_add(take_replies(socket, burst.unwrap_or(BURST))?, Relaxed);
    }
    Ok(())
}

/// Takes so many replies, fewer if the rest stays away.
fn take_replies(socket: &UdpSocket, most: usize) -> Result<u64, String> {
    let (expected, mut buffer) = (reply("small", SMALL_BYTES), [0; 2048]);
    for taken in 0..most {
        match socket.recv(&mut buffer) {
            Ok(length) if buffer[..length].get(8..) == Some(&expected) => {}
            Ok(_) => return Err("a datagram is no reply to what was asked".into()),
            Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(taken as u64),
            Err(e) => return Err(format!("no reply: {e}")),
        }
    }
    Ok(most as u64)
}
