//! Four workers under SCHED_FIFO on one CPU must make progress.
//!
//! Under this policy a thread runs until it blocks or yields; a worker that spun for another would
//! keep that other from ever running. So an unbounded spin anywhere in the server hangs here; with
//! `--idle spin`, too, where workers never sleep.
//! The clients run on the other CPUs; on a machine with one CPU they could not run at all.

use crate::server::free_address;
use crate::{Client, Executable, Outcome, Value, flags, passed, place, process, skipped};
use std::net::SocketAddr;
use std::process::Command;
use std::time::Instant;

const WORKERS: usize = 4;
const CONNECTIONS: usize = 8;
const ROUNDS: usize = 60;
/// Small, below a slice, a few slices, most of the default item limit.
const LENGTHS: [usize; 4] = [100, 10_000, 200_000, 900_000];
const WRAPPER: [&str; 6] = ["chrt", "-f", "1", "taskset", "-c", "0"];
/// The kernel's number for SCHED_FIFO in /proc/PID/task/TID/stat.
const POLICY_FIFO: &str = "1";
/// The policy is field 41 of stat; we count from after the name, which is field 2.
const POLICY_FIELD: usize = 41 - 3;

pub fn main(parser: lexopt::Parser) -> Outcome {
    flags::none(parser)?;
    if std::thread::available_parallelism().map_or(1, |n| n.get()) < 2 {
        return skipped("one CPU: clients beside a SCHED_FIFO server would never run");
    }
    let mut probe = Command::new(WRAPPER[0]);
    if !process::works(probe.args(&WRAPPER[1..]).arg("true")) {
        return skipped("no right to real-time scheduling here (`chrt -f 1 true` fails)");
    }
    let (executable, threads) = (Executable::laneway()?, WORKERS.to_string());
    let blocking = answered(&executable, &["-t", &threads])?;
    let spinning = answered(&executable, &["-t", &threads, "--idle", "spin"]);
    let spinning = spinning.map_err(|why| format!("--idle spin: {why}"))?;
    passed(format!(
        "{} requests over {CONNECTIONS} connections answered by {WORKERS} workers on one CPU in \
         {blocking:.1} s, and in {spinning:.1} s with --idle spin",
        CONNECTIONS * ROUNDS * 2,
    ))
}

/// Starts the server with these flags, has all clients converse with it, and ends it; how long the
/// conversations took, in seconds.
fn answered(executable: &Executable, flags: &[&str]) -> Result<f64, String> {
    let mut server = executable.start_at("sched-fifo", free_address()?, &WRAPPER, flags)?;
    let fifo = threads_under_fifo(server.id());
    if fifo < WORKERS {
        return Err(format!("only {fifo} threads run under SCHED_FIFO, {WORKERS} expected"));
    }
    let began = Instant::now();
    let address = server.address();
    let spoken = std::thread::scope(|scope| {
        let client = |client: usize| scope.spawn(move || converse(address, client as u64));
        place::join((0..CONNECTIONS).map(client).collect::<Vec<_>>())
    });
    spoken.map_err(|why| format!("a request was not answered: {why}"))?;
    let took = began.elapsed().as_secs_f64();
    server.check_alive()?;
    server.stop()?;
    Ok(took)
}

fn threads_under_fifo(id: u32) -> usize {
    let tasks = std::fs::read_dir(format!("/proc/{id}/task")).into_iter().flatten().flatten();
    let under_fifo = |stat: &String| {
        let after = stat.rsplit(')').next().unwrap_or_default();
        after.split_whitespace().nth(POLICY_FIELD) == Some(POLICY_FIFO)
    };
    tasks
        .filter_map(|task| std::fs::read_to_string(task.path().join("stat")).ok())
        .filter(under_fifo)
        .count()
}

/// A fixed number of sets and gets, each answered before the client's patience ends.
fn converse(address: SocketAddr, client: u64) -> Result<(), String> {
    let mut connection = Client::connect(address)?;
    for round in 0..ROUNDS {
        // Clients are out of step, so that large and small requests are always in flight together.
        let length = LENGTHS[(round + client as usize) % LENGTHS.len()];
        let value = Value { key: client, version: round as u64, length };
        connection.turn(&format!("fifo-{client}"), value)?;
    }
    Ok(())
}
