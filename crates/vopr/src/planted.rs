//! Plants each bug in turn, and tells the first seed that finds it. One that no seed finds is a
//! hole in the simulation, and a failure.

#[cfg(feature = "planted")]
use crate::{Options, hints::Hints};
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
pub fn regressions<T>(options: &T) -> ExitCode {
    main(options)
}

/// For each real defect: a seed that finds the bug that is like it, and passes without.
#[cfg(feature = "planted")]
pub fn regressions(options: &Options) -> ExitCode {
    use laneway_sync::planted::{Bug, plant};
    use laneway_vopr::regressions::{ALL, TRIES};
    use laneway_vopr::run::run;
    use laneway_vopr::swarm::Swarm;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
    let (next, failed) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let hints = Hints::read(options.hints.as_deref());
    // A bug is planted for one thread.
    on_all_cpus(|| {
        while let Some(regression) = ALL.get(next.fetch_add(1, Relaxed)) {
            let bug = Bug::ALL.iter().find(|(_, name, _)| *name == regression.bug);
            let &(bug, ..) = bug.expect("a bug that there is");
            plant(Some(bug));
            let fails = |swarm: &Swarm| run(swarm, false).failure;
            let found = hints.found(regression.name, || regression.swarms(), fails);
            plant(None);
            let what = match &found {
                None => format!("none of {TRIES} seeds finds {}", regression.bug),
                Some((swarm, _)) => match run(swarm, false).failure {
                    Some(what) => format!("seed {}{}: {what}", swarm.seed, swarm.typed()),
                    None => continue,
                },
            };
            failed.fetch_add(1, Relaxed);
            println!("FAIL {}: {what}", regression.name);
        }
    });
    let failed = failed.into_inner();
    keep(&hints, options);
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
    let hints = Hints::read(options.hints.as_deref());
    let work = || {
        while let Some(&&(bug, name, text)) = chosen.get(next.fetch_add(1, Relaxed)) {
            let found = find(bug, name, options, &hints);
            rows.lock().expect("nobody panics inside").push((name, text, found));
        }
    };
    on_all_cpus(work);
    keep(&hints, options);
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
fn find(
    bug: laneway_sync::planted::Bug,
    name: &str,
    options: &Options,
    hints: &Hints,
) -> Option<(u64, String)> {
    use laneway_vopr::regressions::{ALL, Regression};
    use laneway_vopr::run::run;
    laneway_sync::planted::plant(Some(bug));
    let runs = || {
        // What is rare has runs of its own.
        let known = ALL.iter().filter(move |regression| regression.bug == name);
        let seeds = options.seed..options.seed + options.seeds.max(SEEDS_MIN);
        let drawn = seeds.map(move |seed| crate::swarm(options, seed).expect("it was tried"));
        known.flat_map(Regression::swarms).chain(drawn)
    };
    let found = hints.found(name, runs, |swarm| run(swarm, false).failure);
    laneway_sync::planted::plant(None);
    let (swarm, failure) = found?;
    let line = failure.lines().next().unwrap_or_default();
    Some((swarm.seed, line.chars().take(90).collect::<String>().replace('|', "/")))
}

/// For the next time. Without them it only takes longer.
#[cfg(feature = "planted")]
fn keep(hints: &Hints, options: &Options) {
    if let Err(error) = hints.write(options.hints.as_deref()) {
        eprintln!("laneway-vopr: --hints: {error}");
    }
}

/// Carries this out on a thread for each CPU.
#[cfg(feature = "planted")]
fn on_all_cpus(work: impl Fn() + Send + Copy) {
    let threads = std::thread::available_parallelism().map_or(1, |number| number.get());
    std::thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
}
