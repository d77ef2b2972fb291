//! Faults of the machine: it halts the server, has too little memory or CPU for it, steps its
//! clock, takes no log.

use super::Run;
use crate::server::{Executable, free_address};
use crate::{
    Client, Failure, Folder, Guarded, Outcome, Value, failed, passed, place, process, random,
    skipped,
};
use rustix::process::Signal;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

pub const FAULTS: &[Run] = &[
    ("stop-continue", stop_continue),
    ("log-full", log_full),
    ("memory", little_memory),
    ("cpu-starvation", cpu_starvation),
    ("clock-steps", clock_steps),
];

const HALT: Duration = Duration::from_secs(1);
const CLIENTS: u64 = 8;

fn stop_continue(executable: &Executable) -> Outcome {
    let server = executable.start("faults-stop", &["-m", "64"])?;
    let mut clients =
        (0..CLIENTS).map(|_| Client::connect(server.address())).collect::<Result<Vec<_>, _>>()?;
    let value = Value { key: 1, version: 1, length: 300_000 };
    clients[0].turn("halted", value)?;
    let ask = |client: &mut Client| client.send(b"get halted\r\n");
    clients.iter_mut().try_for_each(ask)?;
    server.signal(Signal::STOP);
    let mut late = Client::connect(server.address())?; // the kernel accepts for it
    late.send(b"mn\r\n")?;
    clients.iter_mut().try_for_each(ask)?;
    std::thread::sleep(HALT);
    server.signal(Signal::CONT);
    late.expect("MN")?;
    for client in &mut clients {
        for _ in 0..2 {
            client.expect(&format!("VALUE halted 0 {}", value.length))?;
            client.rest(value)?;
        }
        client.turn("after", Value { length: 100, ..value })?;
    }
    server.stop()?;
    passed(format!("{CLIENTS} connections and a new one had every reply"))
}

fn log_full(executable: &Executable) -> Outcome {
    let to_full = ["sh", "-c", "exec \"$@\" 2>/dev/full", "sh"];
    let server = executable.start_at("faults-log", free_address()?, &to_full, &["-vvv"])?;
    for number in 0..10 {
        let mut client = Client::connect(server.address())?;
        client.turn("logged", Value { key: 1, version: number, length: 100 })?;
    }
    server.stop()?;
    passed("ten connections came and went, and a stop")
}

const MEMORY_MIB: u64 = 256;
const MEMORY_FLAG: &str = "256";
const TIMES_STORED: u64 = 3;

/// A memory cgroup, removed when this is dropped; its processes must have ended.
struct Cgroup {
    path: PathBuf,
    /// The file that tells how often the limit was met by an end.
    kills: &'static str,
}

impl Cgroup {
    /// In the first or the second version of cgroups; an error says why there can be none.
    fn make(limit_bytes: u64) -> Result<Cgroup, String> {
        let name = format!("laneway-faults-{}", std::process::id());
        let first = Path::new("/sys/fs/cgroup/memory");
        let (root, limit, kills) = match first.is_dir() {
            true => (first, "memory.limit_in_bytes", "memory.oom_control"),
            false => (Path::new("/sys/fs/cgroup"), "memory.max", "memory.events"),
        };
        let group = Cgroup { path: root.join(name), kills };
        let wrong = |error: std::io::Error| format!("no memory cgroup can be made: {error}");
        std::fs::create_dir(&group.path).map_err(wrong)?;
        std::fs::write(group.path.join(limit), limit_bytes.to_string()).map_err(wrong)?;
        Ok(group)
    }

    /// How many processes the kernel has ended in it.
    fn killed(&self) -> u64 {
        let text = std::fs::read_to_string(self.path.join(self.kills)).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("oom_kill "));
        line.and_then(|number| number.trim().parse().ok()).unwrap_or(0)
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // Its last process may still be on its way out.
        process::poll(Duration::from_secs(1), || std::fs::remove_dir(&self.path).ok());
    }
}

fn little_memory(executable: &Executable) -> Outcome {
    let limit = (MEMORY_MIB << 20) * 11 / 10;
    let group = Cgroup::make(limit).map_err(Failure::Skipped)?;
    let procs = group.path.join("cgroup.procs").display().to_string();
    let into = ["sh", "-c", "echo $$ >\"$0\" && exec \"$@\"", &procs];
    let flags = ["-m", MEMORY_FLAG, "-t", "2"];
    let mut server = executable.start_at("faults-memory", free_address()?, &into, &flags)?;
    let stored = store_much(server.address());
    let killed = group.killed();
    let resident = place::resident_kib(server.id()).unwrap_or(0) >> 10;
    if killed > 0 {
        return failed(format!("the kernel ended {killed} process in the cgroup"));
    }
    server.check_alive()?;
    let (stored, there) = stored?;
    server.stop()?;
    passed(format!(
        "{stored} values stored, {there} of the last 1000 there and right; {resident} MiB \
         resident of {} allowed",
        limit >> 20
    ))
}

/// Stores values until they amount to several times the memory; how many, and how many of the last
/// thousand are still there, each of which must be right.
fn store_much(address: SocketAddr) -> Result<(u64, u64), String> {
    const LENGTHS: [usize; 6] = [10, 100, 1_000, 10_000, 100_000, 500_000];
    let mut client = Client::connect(address)?;
    let mut random = random::stream(3, 3);
    let (mut bytes, mut values) = (0, Vec::new());
    while bytes < TIMES_STORED * (MEMORY_MIB << 20) {
        let key = values.len() as u64;
        let length = LENGTHS[random.usize(..LENGTHS.len())] + random.usize(..10);
        let value = Value { key, version: 1, length };
        client.set(&key.to_string(), value)?;
        values.push(value);
        bytes += length as u64;
    }
    let mut there = 0;
    for value in values.iter().rev().take(1000) {
        client.send(format!("get {}\r\n", value.key).as_bytes())?;
        let line = client.line()?;
        if line == "END" {
            continue; // evicted, as it may be
        }
        client.rest(*value)?;
        there += 1;
    }
    Ok((values.len() as u64, there))
}

const HOGS: usize = 4;
const STARVED_TURNS: u64 = 50;
/// A process that computes, and ends by itself should this one be killed.
const HOG: [&str; 7] = ["-c", "0", "timeout", "120", "sh", "-c", "while :; do :; done"];

fn cpu_starvation(executable: &Executable) -> Outcome {
    let log = process::scratch_dir("logs")?.join("faults-hog.log");
    let hog = || {
        let mut command = Command::new("taskset");
        Guarded::start(command.args(HOG), &log)
    };
    let hogs = (0..HOGS).map(|_| hog()).collect::<Result<Vec<_>, _>>()?;
    let starved = ["nice", "-n", "10", "taskset", "-c", "0"];
    let flags = ["-m", "64", "-t", "2"];
    let server = executable.start_at("faults-starved", free_address()?, &starved, &flags)?;
    let mut client = Client::connect(server.address())?;
    for version in 0..STARVED_TURNS {
        let length = if version % 10 == 0 { 300_000 } else { 100 };
        client.turn("starved", Value { key: 1, version, length })?;
    }
    drop(hogs);
    server.stop()?;
    passed(format!("{} requests answered beside {HOGS} hogs", STARVED_TURNS * 2))
}

/// Seconds of expiry of the item that must go.
const SHORT_SECONDS: u32 = 3;
const LONG_SECONDS: u32 = 100_000;

fn clock_steps(executable: &Executable) -> Outcome {
    let Some(library) = libfaketime() else {
        let why = "libfaketime is not installed (Debian: faketime), and stepping the machine's own \
                   clock would harm others";
        return skipped(why);
    };
    let folder = Folder::make("clock")?;
    let file = folder.file("offset");
    let step = |offset: &str| process::write(&file, offset);
    step("+0")?;
    let (preload, file_setting) =
        (format!("LD_PRELOAD={library}"), format!("FAKETIME_TIMESTAMP_FILE={file}"));
    let stepped =
        ["env", &preload, &file_setting, "FAKETIME_NO_CACHE=1", "FAKETIME_DONT_FAKE_MONOTONIC=1"];
    // The library reads the file from within the server: a sandbox would refuse that, unseen.
    let flags = ["-m", "64", "--sandbox", "off"];
    let server = executable.start_at("faults-clock", free_address()?, &stepped, &flags)?;
    let mut client = Client::connect(server.address())?;
    let value = Value { key: 1, version: 1, length: 100 };
    for offset in ["+1d", "-1d", "+0"] {
        client.set("ever", value)?;
        client.send_set("long", LONG_SECONDS, value)?;
        client.expect("STORED")?;
        step(offset)?;
        client.send_set("short", SHORT_SECONDS, value)?;
        client.expect("STORED")?;
        for key in ["ever", "long"] {
            if !is_there(&mut client, key)? {
                return failed(format!("at {offset} the item `{key}` is gone"));
            }
        }
        place::wait_until("an item with an expiry goes", || Ok(!is_there(&mut client, "short")?))?;
        if !is_there(&mut client, "ever")? || !is_there(&mut client, "long")? {
            return failed(format!("at {offset} an item is gone before its time"));
        }
    }
    server.stop()?;
    passed("after each of three steps only the item with 3 s went")
}

fn is_there(client: &mut Client, key: &str) -> Result<bool, String> {
    client.send(format!("mg {key}\r\n").as_bytes())?;
    match client.line()?.as_str() {
        "HD" => Ok(true),
        "EN" => Ok(false),
        other => Err(format!("`mg {key}` was answered by `{other}`")),
    }
}

fn libfaketime() -> Option<String> {
    let folders = std::fs::read_dir("/usr/lib").ok()?.flatten();
    let files = folders.map(|folder| folder.path().join("faketime/libfaketimeMT.so.1"));
    files.into_iter().find(|file| file.is_file()).map(|file| file.display().to_string())
}
