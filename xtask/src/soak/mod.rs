//! A long run in which everything changes and half the clients misbehave.
//!
//! The share of large requests (p_L) is drawn anew each second, so that the control loop moves
//! workers between the lanes all the time. Well-behaved clients verify every reply; misbehaving
//! ones do what the seed says. At the end: no wrong or missing reply, roles that really changed,
//! resident memory that does not grow, and a server that ends with 0 on SIGTERM.
//! Does not measure speed: nothing here fails for being slow, only for not answering.

mod mischief;
mod mix;
mod watch;
mod well;

use crate::outcome::{Failure, Outcome, failed, passed};
use crate::random::Random;
use crate::server::{Executable, Server};
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};
use watch::Watch;

pub const HELP: &str = "\
Serve well-behaved and misbehaving clients while the share of large requests changes each second.

usage: cargo xtask soak [--minutes 10 | --seconds N] [--workers 4] [--seed 1] [flags]

  --minutes N, --seconds N   how long (default 10 minutes)
  --workers N                worker threads of the server (default 4)
  --seed N                   what the clients draw from (default 1)
  --clients N                clients, half of them misbehaving (default 16)
  --server PROGRAM           test this executable instead of Laneway; roles are then not counted
  --server-flag FLAG         one more word for the server's command line; may be repeated

Fails on: a wrong reply, a missing reply, an error to a well-behaved client, fewer than 300 changes
of role in 10 minutes (a shorter run: in proportion; up to two workers have no roles), resident
memory that grows by 1 % or more over the second half (linear fit of its floor; under 3 minutes
5 %, as the pool is still warming up), a server that dies or does not end with 0.";

const ROLE_CHANGES_PER_MINUTE_MIN: f64 = 30.0;
const WORKERS_WITHOUT_ROLES_MAX: usize = 2;
const GROWTH_MAX: f64 = 0.01;
const GROWTH_SHORT_MAX: f64 = 0.05;
const SHORT: Duration = Duration::from_secs(180);
/// One plan per step of p_L; the limit holds the clients' items many times over, so that nothing
/// is ever evicted and a miss is an error.
const SERVER_FLAGS: &[&str] = &["-m", "1024", "-c", "4096"];
/// Believe an epoch of the few thousand requests that verifying clients manage on a small machine.
const LANEWAY_FLAGS: &[&str] = &["--samples-min", "1000"];
const TICK: Duration = Duration::from_millis(100);
const STEP: Duration = Duration::from_secs(1);
/// How many lines of progress a run prints.
const REPORTS: u32 = 20;

struct Options {
    length: Duration,
    workers: usize,
    seed: u64,
    clients: usize,
    server: Option<PathBuf>,
    server_flags: Vec<String>,
}

impl Options {
    fn read(mut parser: lexopt::Parser) -> Result<Options, Failure> {
        use lexopt::prelude::*;
        let mut options = Options {
            length: Duration::from_secs(600),
            workers: 4,
            seed: 1,
            clients: 16,
            server: None,
            server_flags: Vec::new(),
        };
        while let Some(argument) = parser.next()? {
            match argument {
                Long("minutes") => {
                    options.length = Duration::from_secs(60 * parser.value()?.parse::<u64>()?);
                }
                Long("seconds") => options.length = Duration::from_secs(parser.value()?.parse()?),
                Long("workers") => options.workers = parser.value()?.parse()?,
                Long("seed") => options.seed = parser.value()?.parse()?,
                Long("clients") => options.clients = parser.value()?.parse()?,
                Long("server") => options.server = Some(parser.value()?.into()),
                Long("server-flag") => options.server_flags.push(parser.value()?.string()?),
                _ => return Err(Failure::Usage(argument.unexpected().to_string())),
            }
        }
        if options.length < Duration::from_secs(5) {
            return Err(Failure::Usage("--seconds must be at least 5, to fit a slope".into()));
        }
        if options.clients < 2 {
            return Err(Failure::Usage("--clients must be at least 2: one of each kind".into()));
        }
        Ok(options)
    }
}

/// What all clients share.
pub struct Stage {
    /// Where the server answers.
    pub address: std::net::SocketAddr,
    /// Requests in 10 000 that are large, now.
    pub large_parts: AtomicU32,
    /// Set when the run is over.
    pub over: AtomicBool,
    /// Replies verified.
    pub verified: AtomicU64,
    /// Bytes of values verified.
    pub verified_bytes: AtomicU64,
    /// Misdeeds done, by kind.
    pub misdeeds: [AtomicU64; mischief::KINDS.len()],
    /// What went wrong for a well-behaved client.
    pub errors: Mutex<Vec<String>>,
}

impl Stage {
    fn new(address: std::net::SocketAddr) -> Stage {
        Stage {
            address,
            large_parts: AtomicU32::new(0),
            over: AtomicBool::new(false),
            verified: AtomicU64::new(0),
            verified_bytes: AtomicU64::new(0),
            misdeeds: [const { AtomicU64::new(0) }; mischief::KINDS.len()],
            errors: Mutex::new(Vec::new()),
        }
    }

    /// Whether the clients should stop.
    pub fn is_over(&self) -> bool {
        self.over.load(Relaxed)
    }

    fn error(&self, text: String) {
        self.errors.lock().expect("no client panics with the list in hand").push(text);
    }

    fn first_error(&self) -> Option<String> {
        self.errors.lock().expect("no client panics with the list in hand").first().cloned()
    }
}

pub fn main(parser: lexopt::Parser) -> Outcome {
    let options = Options::read(parser)?;
    let executable = Executable::named_or_laneway(options.server.as_deref())?;
    let threads = options.workers.to_string();
    let mut flags = vec!["-t", &threads];
    flags.extend(SERVER_FLAGS);
    if !executable.is_memcached() {
        flags.extend(LANEWAY_FLAGS);
    }
    flags.extend(options.server_flags.iter().map(String::as_str));
    let mut server = executable.start("soak", &flags)?;
    // Up to two workers time-share: there are no roles that could change.
    let roles = !executable.is_memcached() && WORKERS_WITHOUT_ROLES_MAX < options.workers;
    let watch = Watch::begin(&server, roles)?;
    let stage = Stage::new(server.address());
    let watch = std::thread::scope(|scope| {
        for client in 0..options.clients as u64 {
            let (stage, seed) = (&stage, options.seed);
            match client % 2 {
                0 => scope.spawn(move || well::behave(stage, seed, client)),
                _ => scope.spawn(move || mischief::misbehave(stage, seed, client)),
            };
        }
        let ended = conduct(&options, &stage, &mut server, watch);
        stage.over.store(true, Relaxed);
        ended
    })?;
    report(&options, &stage, &watch);
    judge(&options, &stage, &watch)?;
    server.stop()?;
    passed(format!(
        "{} replies verified ({} MB), {} role changes, {} misdeeds, memory {:+.2} %",
        stage.verified.load(Relaxed),
        stage.verified_bytes.load(Relaxed) >> 20,
        watch.role_changes(),
        stage.misdeeds.iter().map(|m| m.load(Relaxed)).sum::<u64>(),
        100.0 * watch.growth()
    ))
}

/// Steps p_L, samples, and says how it goes, until the time is over or something went wrong.
fn conduct(
    options: &Options,
    stage: &Stage,
    server: &mut Server,
    mut watch: Watch,
) -> Result<Watch, String> {
    let mut random = Random::new(options.seed, u64::MAX);
    let began = Instant::now();
    let (mut steps, mut reports) = (0_u32, 1_u32);
    while began.elapsed() < options.length {
        if steps * STEP <= began.elapsed() {
            stage.large_parts.store(mix::large_parts(steps, &mut random), Relaxed);
            watch.sample(began.elapsed())?;
            steps += 1;
        }
        if options.length * reports / REPORTS <= began.elapsed() {
            progress(options, stage, &watch, began.elapsed());
            reports += 1;
        }
        server.check_alive()?;
        if stage.first_error().is_some() {
            break;
        }
        std::thread::sleep(TICK);
    }
    watch.sample(began.elapsed())?;
    Ok(watch)
}

fn progress(options: &Options, stage: &Stage, watch: &Watch, elapsed: Duration) {
    println!(
        "soak {:>4}/{} s  {:>9} replies verified  {:>4} role changes  {:>6} KB resident",
        elapsed.as_secs(),
        options.length.as_secs(),
        stage.verified.load(Relaxed),
        watch.role_changes(),
        watch.resident_kb()
    );
}

fn report(options: &Options, stage: &Stage, watch: &Watch) {
    for (kind, count) in mischief::KINDS.iter().zip(&stage.misdeeds) {
        println!("misdeed: {:<28} {:>7}", kind.name, count.load(Relaxed));
    }
    println!(
        "resident: {} KB at the end, its floor {:+.2} % over the second half; seed {}",
        watch.resident_kb(),
        100.0 * watch.growth(),
        options.seed
    );
}

fn judge(options: &Options, stage: &Stage, watch: &Watch) -> Result<(), Failure> {
    if let Some(error) = stage.first_error() {
        let count = stage.errors.lock().map_or(0, |errors| errors.len());
        return Err(Failure::Failed(format!("{count} errors to well-behaved clients: {error}")));
    }
    if let Some(kind) =
        mischief::KINDS.iter().zip(&stage.misdeeds).find(|(_, count)| count.load(Relaxed) == 0)
    {
        return Err(Failure::Failed(format!("nobody did `{}`: run longer", kind.0.name)));
    }
    let minutes = options.length.as_secs_f64() / 60.0;
    let wanted = (ROLE_CHANGES_PER_MINUTE_MIN * minutes) as u64;
    if watch.counts_roles() && watch.role_changes() < wanted {
        let seen = watch.role_changes();
        return Err(Failure::Failed(format!("{seen} role changes, at least {wanted} expected")));
    }
    let growth_max = if options.length < SHORT { GROWTH_SHORT_MAX } else { GROWTH_MAX };
    if growth_max <= watch.growth() {
        return failed(format!(
            "resident memory grows by {:.2} % over the second half, {:.0} % allowed",
            100.0 * watch.growth(),
            100.0 * growth_max
        ))
        .map(|_| ());
    }
    Ok(())
}
