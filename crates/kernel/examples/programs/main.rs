//! What one run of each program costs, by the kernel's own run-time statistics: steering, with and
//! without its sketch, on the loopback of a network namespace made here; the lane's hits and
//! misses, at tc ingress of virtual Ethernet between two more. Prints one line of JSON, in
//! nanoseconds a datagram. The statistics time each run by two looks at the clock, which are part
//! of it: so at both hooks a program that does nothing is timed as well.
//!
//! usage: programs [DATAGRAMS]; root, or what the kernel lane needs and CAP_SYS_ADMIN
#![forbid(unsafe_code)]
#![allow(clippy::disallowed_methods, reason = "it measures")]

#[allow(dead_code)] // a part of it is used
#[path = "../../tests/common/hosts.rs"]
mod hosts;
#[allow(dead_code)]
#[path = "../../tests/common/writer.rs"]
mod writer;

use aya::Ebpf;
use aya::programs::{SchedClassifier, SkReuseport, TcAttachType};
use aya::sys::{Stats, enable_stats};
use hosts::{Host, INTERFACE};
use laneway_kernel::layout::{Lead, STEER_SLOTS};
use laneway_kernel::steering::middle_of_slot;
use laneway_kernel::{Program, Steer};
use laneway_policy::owner::{OwnerHash, SEED};
use socket2::{Domain, Socket, Type};
use std::error::Error;
use std::net::{SocketAddr, UdpSocket};
use std::process::ExitCode;
use std::time::{Duration, Instant};
use writer::{PLAIN, Writer};

const DATAGRAMS: usize = 200_000;
const QUEUES: u16 = 4;
const PORT_SHARED: &str = "127.0.0.1:11211";
const SERVER: &str = "10.9.0.1:11211";
/// How keys that are there begin.
const STORED: &str = "k";
/// Keys asked for, of 16 bytes.
const KEYS: usize = 1024;
const VALUE_BYTES: usize = 100;
/// Keys asked for in one datagram, and values of which its reply has room for as many.
const SEVERAL: usize = 16;
const SHORT_BYTES: usize = 48;
/// Datagrams before they are taken out: so many fit into any socket's buffer.
const BURST: usize = 32;
/// A timeslot, and what makes a key hot in it: about those of `--hot` with four workers.
const SLOT_DATAGRAMS: usize = 64 * BURST;
const HOT_REQUESTS: u16 = 32;
/// Only what was lost is waited for so long.
const PATIENCE: Duration = Duration::from_secs(10);

type Result<T> = std::result::Result<T, Box<dyn Error>>;

fn main() -> ExitCode {
    let datagrams = match std::env::args().nth(1).map(|text| text.parse()) {
        None => DATAGRAMS,
        Some(Ok(datagrams)) if datagrams >= BURST => datagrams,
        Some(_) => {
            eprintln!("usage: programs [DATAGRAMS], at least {BURST}");
            return ExitCode::from(2);
        }
    };
    match measure(datagrams) {
        Ok(line) => {
            println!("{line}");
            ExitCode::SUCCESS
        }
        Err(why) => {
            eprintln!("programs: {why}");
            ExitCode::FAILURE
        }
    }
}

fn measure(datagrams: usize) -> Result<String> {
    let missing = laneway_kernel::probe::layers().into_iter();
    if let Some(layer) = missing.filter(|l| l.name != "AF_XDP").find(|l| l.missing.is_some()) {
        return Err(layer.to_string().into());
    }
    let _kept = enable_stats(Stats::RunTime)?;
    let idle_steer = nothing_steered(datagrams)?;
    let plain = steering(datagrams, 0)?;
    let sketch = steering(datagrams, HOT_REQUESTS)?;
    let idle_lane = nothing_answered(datagrams)?;
    let hit = lane(datagrams, STORED, 1, VALUE_BYTES)?;
    let several = lane(datagrams, STORED, SEVERAL, SHORT_BYTES)? / SEVERAL as f64;
    let miss = lane(datagrams, "m", 1, VALUE_BYTES)?;
    Ok(format!(
        "{{\"datagrams\": {datagrams}, \"steer_ns\": {plain:.1}, \"steer_sketch_ns\": {sketch:.1}, \
         \"steer_nothing_ns\": {idle_steer:.1}, \"lane_hit_ns\": {hit:.1}, \
         \"lane_hit_of_16_ns\": {several:.1}, \"lane_miss_ns\": {miss:.1}, \
         \"lane_nothing_ns\": {idle_lane:.1}}}"
    ))
}

/// Requests for all keys, in an order without rhythm.
fn requests(prefix: &str) -> Vec<Vec<u8>> {
    requests_of(1, prefix)
}

/// The same of so many keys each.
fn requests_of(several: usize, prefix: &str) -> Vec<Vec<u8>> {
    let keys: Vec<String> =
        (0..KEYS).map(|i| format!(" {prefix}{:015}", (i * 617) % KEYS)).collect();
    let request = |keys: &[String]| hosts::datagram(&format!("get{}\r\n", keys.concat()));
    keys.chunks(several).map(request).collect()
}

/// Sockets that share a port of a host of their own, and one that asks them.
struct Group {
    sockets: Vec<UdpSocket>,
    asking: UdpSocket,
    _host: Host,
}

impl Group {
    fn new() -> Result<Group> {
        let host = Host::new();
        let sockets: Vec<UdpSocket> = (0..QUEUES).map(|_| host.run(sharing)).collect();
        let asking = host.socket("127.0.0.1:0");
        asking.connect(PORT_SHARED)?;
        Ok(Group { sockets, asking, _host: host })
    }

    fn empty(&self) -> usize {
        self.sockets.iter().map(empty).sum()
    }
}

/// Steer so many datagrams; `hot_requests` 0 is without the sketch.
fn steering(datagrams: usize, hot_requests: u16) -> Result<f64> {
    let group = Group::new()?;
    let mut steer = Steer::load(SEED)?;
    for (index, socket) in group.sockets.iter().enumerate() {
        steer.set_socket(index as u32, socket)?;
    }
    for slot in 0..STEER_SLOTS {
        let owner = OwnerHash(middle_of_slot(slot)).queue(QUEUES).0;
        steer.set_slot(slot, Lead::Socket(owner.into()));
    }
    steer.set_receivers(QUEUES.into());
    steer.set_hot_requests(hot_requests);
    steer.attach(&group.sockets[0])?;
    let taken = |sent: usize| {
        if sent.is_multiple_of(SLOT_DATAGRAMS) {
            steer.end_timeslot();
        }
        group.empty()
    };
    let ns = mean(datagrams, &group.asking, &requests("k"), taken, || steer.run_statistics())?;
    let counts = steer.counts()?;
    match counts.steered >= datagrams as u64 && counts.unsteered + counts.socketless == 0 {
        true => Ok(ns),
        false => Err(format!("not all were steered: {counts:?}").into()),
    }
}

/// The programs that do nothing.
fn idle() -> Result<Ebpf> {
    Ok(Ebpf::load(aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/empty.o")))?)
}

fn statistics(ebpf: &Ebpf, name: &str) -> Option<(u64, Duration)> {
    let info = ebpf.program(name)?.info().ok()?;
    Some((info.run_count(), info.run_time()))
}

/// Steer by a program that does nothing, which leaves it to the kernel.
fn nothing_steered(datagrams: usize) -> Result<f64> {
    const NAME: &str = "nothing_steered";
    let group = Group::new()?;
    let mut ebpf = idle()?;
    let program: &mut SkReuseport = ebpf.program_mut(NAME).ok_or(NAME)?.try_into()?;
    program.load()?;
    program.attach(&group.sockets[0])?;
    let run = || statistics(&ebpf, NAME);
    mean(datagrams, &group.asking, &requests("k"), |_| group.empty(), run)
}

/// The same at tc ingress, by a program that passes everything up.
fn nothing_answered(datagrams: usize) -> Result<f64> {
    const NAME: &str = "nothing_answered";
    let (server, client) = hosts::connected();
    let mut ebpf = idle()?;
    let program: &mut SchedClassifier = ebpf.program_mut(NAME).ok_or(NAME)?.try_into()?;
    program.load()?;
    server.run(|| program.attach(INTERFACE, TcAttachType::Ingress))?;
    let (passed, asking) = (server.socket(SERVER), client.socket("10.9.0.2:0"));
    passed.set_nonblocking(true)?;
    asking.connect(SERVER)?;
    let run = || statistics(&ebpf, NAME);
    mean(datagrams, &asking, &requests("k"), |_| empty(&passed), run)
}

fn sharing() -> UdpSocket {
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, None).expect("a socket");
    socket.set_reuse_port(true).expect("an option");
    socket.bind(&PORT_SHARED.parse::<SocketAddr>().expect("an address").into()).expect("bound");
    socket.set_nonblocking(true).expect("an option");
    socket.into()
}

/// What a datagram costs the lane that asks for `several` keys: those that are there, or none of
/// them.
fn lane(datagrams: usize, prefix: &str, several: usize, value_bytes: usize) -> Result<f64> {
    let (server, client) = hosts::connected();
    let mut writer = Writer::new(Program::TrafficControl, &["10.9.0.1"])?;
    let value = vec![b'x'; value_bytes];
    for i in 0..KEYS {
        writer.set(format!("{STORED}{i:015}").as_bytes(), &value, PLAIN);
    }
    server.run(|| writer.lane.attach(INTERFACE))?;
    let (passed, asking) = (server.socket(SERVER), client.socket("10.9.0.2:0"));
    passed.set_nonblocking(true)?;
    asking.set_nonblocking(true)?;
    asking.connect(SERVER)?;
    let requests = requests_of(several, prefix);
    let taken = |_| empty(if prefix == STORED { &asking } else { &passed });
    mean(datagrams, &asking, &requests, taken, || writer.lane.run_statistics())
}

/// Send so many, have them taken out in between (`taken` is told how many were sent), and tell the
/// mean time of a run meanwhile.
fn mean(
    datagrams: usize,
    asking: &UdpSocket,
    requests: &[Vec<u8>],
    taken: impl Fn(usize) -> usize,
    statistics: impl Fn() -> Option<(u64, Duration)>,
) -> Result<f64> {
    let none = "this kernel tells no run-time statistics";
    let before = statistics().ok_or(none)?;
    let (mut sent, mut got) = (0, 0);
    while sent < datagrams {
        for _ in 0..BURST {
            asking.send(&requests[sent % requests.len()])?;
            sent += 1;
        }
        let began = Instant::now();
        while got < sent {
            got += taken(sent);
            if began.elapsed() > PATIENCE {
                return Err(format!("{got} of {sent} datagrams arrived").into());
            }
        }
    }
    let after = statistics().ok_or(none)?;
    let runs = after.0 - before.0;
    if runs < sent as u64 {
        return Err(format!("{runs} runs for {sent} datagrams").into());
    }
    Ok((after.1 - before.1).as_nanos() as f64 / runs as f64)
}

/// Take out what has come.
fn empty(socket: &UdpSocket) -> usize {
    let mut bytes = [0; 2048];
    std::iter::from_fn(|| socket.recv(&mut bytes).ok()).count()
}
