//! Faults that clients are: they dribble, never read, come and go by thousands, ask for more than
//! there is.

use super::Run;
use crate::place::{self, connect, descriptors, grown_mib, resident_kib, wait_until};
use crate::{Client, Executable, Outcome, Value, failed, passed};
use rustix::net::sockopt::set_socket_linger;
use rustix::process::{Pid, Resource, Rlimit, prlimit};
use std::io::{Read, Write};
use std::time::Duration;

pub const FAULTS: &[Run] = &[
    ("slowloris", slowloris),
    ("churn", churn),
    ("slow-readers", slow_readers),
    ("descriptors", out_of_descriptors),
];

/// One SET and one GET of so many bytes, by a client that behaves; counts the replies.
fn turn(well: &mut Client, answered: &mut u64, length: usize) -> Result<(), String> {
    let value = Value { key: 1, version: *answered, length };
    *answered += 2;
    well.turn("well", value)
}

const DRIBBLERS: usize = 800;

fn slowloris(executable: &Executable) -> Outcome {
    place::need_descriptors(DRIBBLERS)?;
    let server = executable.start("faults-slowloris", &["-m", "64", "-c", "2048"])?;
    let (mut well, mut answered) = (Client::connect(server.address())?, 0);
    turn(&mut well, &mut answered, 100)?;
    let before = resident_kib(server.id())?;
    let requests = ["get dribbled-key-that-never-ends", "set k 0 0 1000000\r\nvalue"];
    let mut streams = Vec::new();
    for number in 0..DRIBBLERS {
        streams.push((connect(server.address())?, requests[number % requests.len()].as_bytes()));
    }
    for at in 0..requests[0].len().min(requests[1].len()) {
        for (stream, request) in &mut streams {
            stream.write_all(&request[at..=at]).map_err(|e| format!("a byte: {e}"))?;
        }
        turn(&mut well, &mut answered, 100)?;
    }
    let grown = grown_mib(&server, before, 64)?;
    drop(streams);
    turn(&mut well, &mut answered, 100)?;
    server.stop()?;
    passed(format!("{answered} requests answered beside them; memory +{grown} MiB"))
}

const CHURNED: usize = 10_000;

fn churn(executable: &Executable) -> Outcome {
    let server = executable.start("faults-churn", &["-m", "64"])?;
    let mut client = Client::connect(server.address())?;
    let connections = client.number("", "curr_connections")?;
    let (opened, before) = (descriptors(server.id()), resident_kib(server.id())?);
    let requests: [&[u8]; 4] = [b"", b"mn\r\n", b"set k 0 0 100000\r\nabc", b"get k\r\nge"];
    for number in 0..CHURNED {
        let mut stream = connect(server.address())?;
        stream.write_all(requests[number % requests.len()]).map_err(|e| format!("sent: {e}"))?;
        if number % 8 >= 4 {
            let linger = set_socket_linger(&stream, Some(Duration::ZERO));
            linger.map_err(|e| format!("SO_LINGER: {e}"))?;
        }
    }
    wait_until("the server has let all connections go", || {
        let now = client.number("", "curr_connections")?;
        // The connection that found the server ready may have been counted before.
        Ok(now <= connections && descriptors(server.id()) <= opened)
    })?;
    let total = client.number("", "total_connections")?;
    if total < CHURNED as u64 {
        return failed(format!("it counts {total} connections of {CHURNED}"));
    }
    let grown = grown_mib(&server, before, 32)?;
    server.stop()?;
    passed(format!("{total} connections came and went; memory +{grown} MiB"))
}

const READERS: usize = 1024;
/// A value of 1 MiB does not fit the default -I with its key.
const WANTED: Value = Value { key: 9, version: 9, length: 1 << 20 };

fn slow_readers(executable: &Executable) -> Outcome {
    place::need_descriptors(READERS)?;
    let server = executable.start("faults-readers", &["-m", "64", "-I", "2m", "-c", "2048"])?;
    let (mut well, mut answered) = (Client::connect(server.address())?, 0);
    turn(&mut well, &mut answered, WANTED.length)?;
    well.set("wanted", WANTED)?;
    let before = resident_kib(server.id())?;
    let mut readers = Vec::new();
    for number in 0..READERS {
        let mut reader = connect(server.address())?;
        reader.write_all(b"get wanted\r\n").map_err(|e| format!("asked: {e}"))?;
        readers.push(reader);
        if number % 16 == 0 {
            turn(&mut well, &mut answered, if number % 128 == 0 { 200_000 } else { 100 })?;
        }
    }
    let grown = grown_mib(&server, before, 64)?;
    for reader in readers.iter_mut().step_by(64) {
        let head = format!("VALUE wanted 0 {}\r\n", WANTED.length);
        let mut reply = vec![0; head.len() + WANTED.length + b"\r\nEND\r\n".len()];
        reader.read_exact(&mut reply).map_err(|e| format!("who reads at last: {e}"))?;
        if !WANTED.is(&reply[head.len()..head.len() + WANTED.length]) {
            return failed("who reads at last gets another value");
        }
    }
    drop(readers);
    turn(&mut well, &mut answered, 100)?;
    server.stop()?;
    passed(format!("{answered} requests answered beside them; memory +{grown} MiB"))
}

const LEFT: u64 = 16;
const COMERS: usize = 64;
const PAUSE_WORDS: &str = "accepting pauses";

fn out_of_descriptors(executable: &Executable) -> Outcome {
    let server = executable.start("faults-descriptors", &["-m", "64"])?;
    let (mut well, mut answered) = (Client::connect(server.address())?, 0);
    turn(&mut well, &mut answered, 100)?;
    let process = i32::try_from(server.id()).ok().and_then(Pid::from_raw);
    let limit = Some(descriptors(server.id()) as u64 + LEFT);
    prlimit(process, Resource::Nofile, Rlimit { current: limit, maximum: limit })
        .map_err(|e| format!("the limit cannot be lowered: {e}"))?;
    let comers = (0..COMERS).map(|_| connect(server.address())).collect::<Result<Vec<_>, _>>()?;
    wait_until("accepting pauses", || {
        turn(&mut well, &mut answered, 100)?;
        Ok(server.log().contains(PAUSE_WORDS))
    })?;
    drop(comers);
    turn(&mut Client::connect(server.address())?, &mut 0, 100)?;
    turn(&mut well, &mut answered, 100)?;
    let pauses = server.log().matches(PAUSE_WORDS).count();
    server.stop()?;
    passed(format!("{answered} requests answered meanwhile; accepting paused {pauses}x"))
}
