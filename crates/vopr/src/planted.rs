//! Plants each bug in turn, and tells the first seed that finds it. One that no seed finds is a
//! hole in the simulation, and a failure.

#[cfg(feature = "planted")]
use crate::Options;
use std::process::ExitCode;

/// Seeds that are tried at least.
#[cfg(feature = "planted")]
const SEEDS_MIN: u64 = 100;

#[cfg(not(feature = "planted"))]
pub fn main<T>(_: &T) -> ExitCode {
    eprintln!("laneway-vopr: built without bugs; `cargo xtask vopr --planted` builds it with them");
    ExitCode::from(2)
}

#[cfg(not(feature = "planted"))]
pub fn regressions() -> ExitCode {
    main(&())
}

/// For each real defect: a seed that finds the bug that is like it, and passes without.
#[cfg(feature = "planted")]
pub fn regressions() -> ExitCode {
    use laneway_sync::planted::{Bug, plant};
    use laneway_vopr::regressions::{ALL, TRIES};
    use laneway_vopr::run::run;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
    let (next, failed) = (AtomicUsize::new(0), AtomicUsize::new(0));
    // A bug is planted for one thread.
    on_all_cpus(|| {
        while let Some(regression) = ALL.get(next.fetch_add(1, Relaxed)) {
            let bug = Bug::ALL.iter().find(|(_, name, _)| *name == regression.bug);
            let &(bug, ..) = bug.expect("a bug that there is");
            plant(Some(bug));
            let found = regression.swarms().find(|swarm| run(swarm, false).failure.is_some());
            plant(None);
            let what = match &found {
                None => format!("none of {TRIES} seeds finds {}", regression.bug),
                Some(swarm) => match run(swarm, false).failure {
                    Some(what) => format!("seed {}{}: {what}", swarm.seed, swarm.typed()),
                    None => continue,
                },
            };
            failed.fetch_add(1, Relaxed);
            println!("FAIL {}: {what}", regression.name);
        }
    });
    let failed = failed.into_inner();
    println!("{} regressions, {failed} failed", ALL.len());
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

#[cfg(feature = "planted")]
pub fn main(options: &Options) -> ExitCode {
    use laneway_sync::planted::Bug;
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
    let only = options.bug.as_deref();
    let is_chosen = |name: &str| only.is_none_or(|only| only == name);
    let chosen: Vec<_> = Bug::ALL.iter().filter(|(_, name, _)| is_chosen(name)).collect();
    if chosen.is_empty() {
        let names: Vec<&str> = Bug::ALL.iter().map(|(_, name, _)| *name).collect();
        eprintln!("laneway-vopr: there is no such bug; there are {}", names.join(", "));
        return ExitCode::from(2);
    }
    let next = AtomicUsize::new(0);
    let rows = Mutex::new(Vec::new());
    let work = || {
        while let Some(&&(bug, name, text)) = chosen.get(next.fetch_add(1, Relaxed)) {
            let found = find(bug, name, options);
            rows.lock().expect("nobody panics inside").push((name, text, found));
        }
    };
    on_all_cpus(work);
    let mut rows = rows.into_inner().expect("nobody panics inside");
    rows.sort_by_key(|(name, ..)| *name);
    println!("| bug | what it is | seed | how it shows |\n|---|---|---|---|");
    let mut missed = Vec::new();
    for (name, text, found) in &rows {
        match found {
            Some((seed, how)) => println!("| {name} | {text} | {seed} | {how} |"),
            None => {
                missed.push(*name);
                println!("| {name} | {text} | none | |");
            }
        }
    }
    if missed.is_empty() {
        println!("{} planted bugs, all found", rows.len());
        return ExitCode::SUCCESS;
    }
    println!("{} planted bugs, not found: {}", rows.len(), missed.join(", "));
    ExitCode::FAILURE
}

#[cfg(feature = "planted")]
fn find(bug: laneway_sync::planted::Bug, name: &str, options: &Options) -> Option<(u64, String)> {
    use laneway_vopr::regressions::{ALL, Regression};
    use laneway_vopr::run::run;
    laneway_sync::planted::plant(Some(bug));
    // What is rare has runs of its own.
    let known = ALL.iter().filter(|regression| regression.bug == name);
    let known = known.flat_map(Regression::swarms);
    let seeds = options.seed..options.seed + options.seeds.max(SEEDS_MIN);
    let drawn = seeds.map(|seed| crate::swarm(options, seed).expect("it was tried"));
    let found = known.chain(drawn).find_map(|swarm| {
        let (seed, failure) = (swarm.seed, run(&swarm, false).failure?);
        let line = failure.lines().next().unwrap_or_default();
        Some((seed, line.chars().take(90).collect::<String>().replace('|', "/")))
    });
    laneway_sync::planted::plant(None);
    found
}

/// Carries this out on a thread for each CPU.
#[cfg(feature = "planted")]
fn on_all_cpus(work: impl Fn() + Send + Copy) {
    let threads = std::thread::available_parallelism().map_or(1, |number| number.get());
    std::thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
}
