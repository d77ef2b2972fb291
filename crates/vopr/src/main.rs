//! `laneway-vopr`: runs seeds of the whole-server simulation. `cargo xtask vopr` calls it.
#![forbid(unsafe_code)]
#![allow(clippy::disallowed_methods, reason = "`--hours` counts them")]

#[cfg(any(test, feature = "planted"))]
mod hints;
mod planted;

use laneway_store::meter::Work;
use laneway_vopr::counts::Counts;
use laneway_vopr::run::{run, shrink};
use laneway_vopr::swarm::Swarm;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

const HELP: &str = "\
Run the whole server under simulation: one thread, drawn faults, judged replies.

usage: laneway-vopr [--seed N] [--seeds COUNT] [--hours H] [--trace] [--set NAME=NUMBER]...

  --seed N           the first seed (default 1)
  --seeds COUNT      how many seeds (default 1)
  --hours H          go on with further seeds for so long
  --trace            print what each run does
  --set NAME=NUMBER  change a number of the run, as a failure says
  --twice            run each seed twice; both runs must be the same
  --planted          plant each bug in turn, and look for a seed that finds it
  --bug NAME         plant this one alone
  --regressions      for each rare defect a seed must find the bug like it, and pass without it
  --no-shrink        report a failure as it is
  --hints FILE       with --planted, --regressions: which runs found the bugs last, to be tried
                     first; written anew at the end

Exit status 1 if a seed fails: it is printed with the command that repeats it.";

/// Among so many seeds there is some of everything that is drawn.
const SEEDS_OF_ALL: u64 = 100;

#[derive(Default)]
struct Options {
    seed: u64,
    seeds: u64,
    patience: Option<Duration>,
    trace: bool,
    no_shrink: bool,
    twice: bool,
    sets: Vec<(String, u64)>,
    planted: bool,
    bug: Option<String>,
    regressions: bool,
    #[cfg_attr(not(feature = "planted"), allow(dead_code))] // there is nothing to be found
    hints: Option<PathBuf>,
}

fn options() -> Result<Option<Options>, lexopt::Error> {
    use lexopt::prelude::*;
    let mut options = Options { seed: 1, seeds: 1, ..Options::default() };
    let mut parser = lexopt::Parser::from_env();
    while let Some(argument) = parser.next()? {
        match argument {
            Long("seed") => options.seed = parser.value()?.parse()?,
            Long("seeds") => options.seeds = parser.value()?.parse()?,
            Long("hours") => {
                let hours: f64 = parser.value()?.parse()?;
                options.patience = Some(Duration::from_secs_f64(hours * 3600.0));
            }
            Long("trace") => options.trace = true,
            Long("planted") => options.planted = true,
            Long("bug") => options.bug = Some(parser.value()?.string()?),
            Long("regressions") => options.regressions = true,
            Long("hints") => options.hints = Some(parser.value()?.into()),
            Long("twice") => options.twice = true,
            Long("no-shrink") => options.no_shrink = true,
            Long("set") => {
                let text = parser.value()?.string()?;
                let (name, value) = text.split_once('=').ok_or("--set wants NAME=NUMBER")?;
                options.sets.push((name.into(), value.parse().map_err(|_| "not a number")?));
            }
            Short('h') | Long("help") => return Ok(None),
            _ => return Err(argument.unexpected()),
        }
    }
    Ok(Some(options))
}

fn swarm(options: &Options, seed: u64) -> Result<Swarm, String> {
    let mut swarm = Swarm::draw(seed);
    options.sets.iter().try_for_each(|(name, value)| swarm.set(name, *value))?;
    Ok(swarm)
}

fn main() -> ExitCode {
    let options = match options() {
        Ok(Some(options)) => options,
        Ok(None) => {
            println!("{HELP}");
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            eprintln!("laneway-vopr: {error}; --help explains");
            return ExitCode::from(2);
        }
    };
    if let Err(what) = swarm(&options, options.seed) {
        eprintln!("laneway-vopr: --set {what}");
        return ExitCode::from(2);
    }
    // A panic is told with its seed.
    std::panic::set_hook(Box::new(|_| {}));
    if options.planted || options.bug.is_some() {
        return planted::main(&options);
    }
    if options.regressions {
        return planted::regressions(&options);
    }
    let (counts, failed, seeds) = all(&options);
    let told: Vec<String> =
        counts.each().iter().map(|(name, count)| format!("{count} {name}")).collect();
    let Work { bytes, slots, items, keys, waits: _, logged: _ } = counts.work;
    println!("most of a step: {bytes} bytes, {slots} slots, {items} items, {keys} keys");
    println!("{seeds} seeds, {failed} failed: {}", told.join(", "));
    let is_lacking = lacks_judges(&options, &counts, seeds);
    if is_lacking {
        println!(
            "FAIL: no backup came to its end, none was restored, no scrub met a flipped bit, or \
             nobody had a checkpoint or a compaction made, no disks became larger, nobody watched, \
             no session of TLS was taken up again, no certificate refused or none replaced, in \
             shared memory nothing was lent, placed or rung for, or nobody vanished, in {seeds} \
             seeds"
        );
    }
    if failed == 0 && !is_lacking { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Whether so many seeds, drawn as they are, must have made backups and restored some, have had
/// scrubs meet flipped bits, checkpoints and compactions asked for, disks become larger, watchers
/// told events, TLS handshakes of every kind, and all that clients in shared memory do, and have
/// not: a judge that is never asked finds nothing.
fn lacks_judges(options: &Options, counts: &Counts, seeds: u64) -> bool {
    let asked = [counts.backups, counts.restores, counts.scrubs, counts.flips];
    let operated = [counts.checkpoints, counts.compactions, counts.compactions_asked];
    let later = [counts.enlarged, counts.events_told];
    let tls = [counts.handshakes, counts.resumed, counts.strangers, counts.reloads];
    let shm = [counts.shm_lent, counts.shm_placed, counts.shm_rings, counts.shm_gone];
    let is_lacking = [&asked[..], &operated, &later, &tls, &shm].concat().contains(&0);
    options.sets.is_empty() && SEEDS_OF_ALL <= seeds && is_lacking
}

/// Runs every seed, on all CPUs.
fn all(options: &Options) -> (Counts, u64, u64) {
    let began = Instant::now();
    let next = AtomicU64::new(0);
    let counts = Mutex::new(Counts::default());
    let failed = AtomicU64::new(0);
    let fail = |swarm: &Swarm, what: &str| {
        failed.fetch_add(1, Relaxed);
        let (seed, typed) = (swarm.seed, swarm.typed());
        println!("{what}\nFAIL seed {seed}; again with: cargo xtask vopr --seed {seed}{typed}");
    };
    let work = || loop {
        let number = next.fetch_add(1, Relaxed);
        let in_time = options.patience.is_some_and(|patience| began.elapsed() < patience);
        if number >= options.seeds && !in_time {
            return;
        }
        let seed = options.seed + number;
        let swarm = swarm(options, seed).expect("it was tried");
        if options.trace {
            println!("seed {seed}: {swarm}");
        }
        let report = run(&swarm, options.trace);
        counts.lock().expect("nobody panics inside").add(&report.counts);
        report.trace.iter().for_each(|line| println!("{line}"));
        if options.twice && run(&swarm, false).digest != report.digest {
            fail(&swarm, "two runs of this seed differ");
            continue;
        }
        let Some(what) = report.failure else { continue };
        if options.no_shrink {
            fail(&swarm, &what);
            continue;
        }
        let (swarm, report) = shrink(&swarm);
        fail(&swarm, &report.failure.unwrap_or(what));
    };
    let threads = thread::available_parallelism().map_or(1, |number| number.get());
    thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
    let seeds = next.into_inner().saturating_sub(threads as u64);
    let counts = counts.into_inner().expect("nobody panics inside");
    (counts, failed.into_inner(), seeds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_of_seeds_without_a_backup_a_restore_a_scrub_or_a_watcher_fails() {
        let lacks = |counts: &Counts, seeds| lacks_judges(&Options::default(), counts, seeds);
        let without = Counts::default();
        let tls =
            Counts { handshakes: 1, resumed: 1, strangers: 1, reloads: 1, ..Counts::default() };
        let shm = Counts { shm_lent: 1, shm_placed: 1, shm_rings: 1, shm_gone: 1, ..tls };
        let operated = Counts { checkpoints: 1, compactions: 1, ..shm };
        let later = Counts { compactions_asked: 1, enlarged: 1, events_told: 1, ..operated };
        let unrestored = Counts { backups: 1, scrubs: 1, flips: 1, ..later };
        let with = Counts { restores: 1, ..unrestored };
        for counts in [
            &without,
            &unrestored,
            &Counts { flips: 0, ..with },
            &Counts { compactions: 0, ..with },
            &Counts { compactions_asked: 0, ..with },
            &Counts { strangers: 0, ..with },
            &Counts { shm_rings: 0, ..with },
        ] {
            assert!(lacks(counts, SEEDS_OF_ALL));
        }
        assert!(!lacks(&with, SEEDS_OF_ALL));
        assert!(!lacks(&without, SEEDS_OF_ALL - 1));
        let options = Options { sets: vec![("backups".into(), 0)], ..Options::default() };
        assert!(!lacks_judges(&options, &without, SEEDS_OF_ALL));
    }
}
