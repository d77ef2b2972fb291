//! A long run in which everything changes, half the clients misbehave, and a server is restarted.
//!
//! It runs two servers at once. One has less memory than its clients have keys, so it evicts; the
//! other keeps everything in a data folder and is ended every few minutes, by SIGTERM and SIGKILL
//! in turn. At both, clients write the same keys by TCP, RESP and UDP and have every reply judged
//! ([`crate::judge`]); others write and delete keys of their own; half misbehave (`mischief.rs`).
//! The share of large requests (p_L) is drawn anew each second, so that the control loop moves
//! workers between the lanes all the time, and the hot set moves every few seconds. Does not
//! measure speed: nothing here fails for being slow, only for not answering.

mod datagrams;
mod durable;
mod mischief;
mod mix;
mod report;
mod sharer;
mod stage;
mod watch;

use crate::{Executable, Failure, Outcome, Server, passed, random};
use durable::DurableServer;
use report::Report;
use sharer::Protocol;
use stage::{Scene, Served, Space, Stage};
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

const WORKERS_WITHOUT_ROLES_MAX: usize = 2;
/// Clients of each server; half of them misbehave, and each kind of the others is there.
const CLIENTS: usize = 12;
/// Both believe an epoch of the few hundred requests that verifying clients manage on a busy
/// machine.
const COMMON_FLAGS: &[&str] = &["-c", "4096", "--samples-min", "200", "--udp-base", "-1"];
/// At their mean lengths the large keys alone exceed `-m 64`; and so do small ones, nearly.
const EVICTING: &[&str] = &["-m", "64"];
const EVICTING_SPACE: Space = Space { small: 120_000, large: 400 };
/// Some 60 MB, and the keys that clients have for themselves.
const DURABLE_SPACE: Space = Space { small: 20_000, large: 240 };
const TICK: Duration = Duration::from_millis(100);
const STEP: Duration = Duration::from_secs(1);
/// Steps between two shifts of the hot set.
const SHIFT_STEPS: u32 = 3;
/// How many lines of progress a run prints.
const REPORTS: u32 = 20;

/// The flags, checked.
pub struct Options {
    length: Duration,
    workers: usize,
    seed: u64,
}

impl Options {
    fn read(mut parser: lexopt::Parser) -> Result<Options, Failure> {
        let mut options = Options { length: Duration::from_secs(600), workers: 4, seed: 1 };
        flags!(parser, {
            Long("minutes") => {
                options.length = Duration::from_secs(60 * parser.value()?.parse::<u64>()?);
            }
            Long("seconds") => options.length = Duration::from_secs(parser.value()?.parse()?),
            Long("workers") => options.workers = parser.value()?.parse()?,
            Long("seed") => options.seed = parser.value()?.parse()?,
        });
        let seconds = options.length.as_secs();
        if seconds < 10 {
            return Err(Failure::Usage(format!(
                "--seconds {seconds}: at least 10, to restart a server a few times"
            )));
        }
        Ok(options)
    }

    /// The words behind a server's `-l` and `-p`.
    fn flags(&self, own: &[&str]) -> Vec<String> {
        let threads = ["-t".to_owned(), self.workers.to_string()];
        own.iter().chain(COMMON_FLAGS).map(|word| word.to_string()).chain(threads).collect()
    }

    /// Up to two workers time-share: there are no roles that could change.
    fn counts_roles(&self) -> bool {
        WORKERS_WITHOUT_ROLES_MAX < self.workers
    }
}

pub fn main(parser: lexopt::Parser) -> Outcome {
    let options = Options::read(parser)?;
    let executable = Executable::laneway()?;
    let words = options.flags(EVICTING);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let mut server = executable.start("soak-evicting", &words)?;
    let scene = Scene::default();
    let served = Served::new("the evicting server", server.address());
    let evicting = Stage::new(&scene, &served, EVICTING_SPACE, true);
    let mut durable_server = DurableServer::start(&executable, &options)?;
    let served = Served::new("the durable server", durable_server.address());
    let durable = Stage::new(&scene, &served, DURABLE_SPACE, false);
    durable.make_counter()?;
    let stages = [&evicting, &durable];
    let mut report = Report::new(&server, options.counts_roles())?;
    let conducted = std::thread::scope(|scope| {
        for stage in stages {
            for client in 0..CLIENTS {
                let seed = options.seed;
                scope.spawn(move || play(stage, seed, client));
            }
        }
        let (durable_server, stage) = (&mut durable_server, &durable);
        scope.spawn(move || {
            let kept = durable_server.keep(stage);
            kept.unwrap_or_else(|why| stage.error(why));
        });
        let conducted = conduct(&options, &stages, &mut server, &mut report);
        scene.over.store(true, Relaxed);
        conducted
    });
    report.misdeeds(&stages);
    // An error is told before whatever it led to.
    report.errors(&scene)?;
    conducted?;
    let durable_server = durable_server.finish(&durable)?;
    let told = report.judge(&options, &stages, &durable_server)?;
    server.stop()?;
    passed(told)
}

/// One client of one server, until the run is over: every second one misbehaves.
fn play(stage: &Stage, seed: u64, client: usize) {
    let writer = client / 2;
    let either = [Protocol::Text, Protocol::Resp][writer / 3 % 2];
    match (client % 2, stage.evicts, writer % 3) {
        (1, ..) => mischief::misbehave(stage, seed, client as u64),
        (_, true, 1) => sharer::share(stage, Protocol::Text, seed, writer),
        (_, true, 2) => sharer::share(stage, Protocol::Resp, seed, writer),
        (_, true, _) => datagrams::share(stage, seed, writer),
        (_, false, 0) => {
            let own = stage.own(writer);
            let made = own.make_counter().map(|()| sharer::share(&own, either, seed, writer));
            made.unwrap_or_else(|why| stage.error(why));
        }
        (_, false, 1) => sharer::share(stage, either, seed, writer),
        (_, false, _) => datagrams::share(stage, seed, writer),
    }
}

/// Steps p_L and the hot set, samples, and says how it goes, until the time is over or something
/// went wrong.
fn conduct(
    options: &Options,
    stages: &[&Stage],
    server: &mut Server,
    report: &mut Report,
) -> Result<(), String> {
    let scene = stages[0].scene;
    let mut random = random::stream(options.seed, u64::MAX);
    let began = Instant::now();
    let (mut steps, mut reports) = (0_u32, 1_u32);
    while began.elapsed() < options.length {
        if steps * STEP <= began.elapsed() {
            scene.large_parts.store(mix::large_parts(steps, &mut random), Relaxed);
            steps += 1;
            if steps.is_multiple_of(SHIFT_STEPS) {
                scene.hot_shifts.fetch_add(1, Relaxed);
            }
            report.sample(began.elapsed())?;
        }
        if options.length * reports / REPORTS <= began.elapsed() {
            report.progress(options, stages, began.elapsed());
            reports += 1;
        }
        server.check_alive()?;
        if scene.errors().0 > 0 {
            break;
        }
        std::thread::sleep(TICK);
    }
    report.sample(began.elapsed())
}
