//! Many runs: points of a figure, each with several seeds, on all threads that may be used.
//!
//! What a point's row says is the mean over seeds with Student's interval for p99; how much was
//! simulated, and how fast, is counted for all. Results do not depend on the number of threads.

use crate::events::NEVER;
use crate::machine::{Halves, Machine, Outcome, State, Traffic, run};
use crate::row::Row;
use crate::stats::{Estimate, SECOND};
use crate::workload::{Mix, Sizes};
use laneway_policy::Design;
use std::collections::HashMap;
use std::io::{IsTerminal, Write};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// How much to simulate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effort {
    /// For a look: wide intervals.
    Quick,
    /// For a document.
    Full,
}

impl Effort {
    /// One or the other.
    pub fn pick<T>(self, quick: T, full: T) -> T {
        match self {
            Effort::Quick => quick,
            Effort::Full => full,
        }
    }
}

/// A study under way.
#[derive(Debug)]
pub struct Study {
    /// How much.
    pub effort: Effort,
    /// The first seed.
    pub seed: u64,
    /// Threads to use.
    pub threads: usize,
    /// Whether to show progress.
    pub progress: bool,
    simulated: AtomicU64,
    busy_ns: AtomicU64,
    /// Rows of points already measured: figures share some, and the same seeds give the same.
    known: Mutex<HashMap<String, Row>>,
}

/// One point of a figure: what its row begins with, and what is to be run.
#[derive(Debug, Clone)]
pub struct Point {
    /// The axes.
    pub row: Row,
    /// The machine; without an epoch of its own it has one of [`EPOCH_REQUESTS`].
    pub machine: Machine,
    /// What arrives.
    pub mix: Mix,
    /// How fast, per second.
    pub rate: f64,
    /// Requests that count, for each seed.
    pub requests: u64,
}

/// Requests in an epoch, on average: enough to be believed at once.
pub const EPOCH_REQUESTS: u64 = laneway_policy::settings::SAMPLES_MIN * 4 / 3;

/// Epochs that do not count where `lanes` has a wire, the only design that asks how the wire is
/// doing: it may take two to see that it is full. What the policy makes of sizes it was taught
/// before (see `machine`).
const EPOCHS_WARMUP: u64 = 3;

/// Requests that do not count at the beginning of a run in which so many do. A trace is the same
/// for all designs: with a wire all wait for what `lanes` needs, or others' rows would count.
pub fn warmup(machine: &Machine, mix: &Mix, requests: u64) -> u64 {
    let asks = machine.settings.design == Design::Lanes || matches!(mix.sizes, Sizes::Trace(_));
    let least = if machine.nic.is_some() && asks { EPOCHS_WARMUP * EPOCH_REQUESTS } else { 0 };
    Traffic::warmup(requests).max(least)
}

impl Point {
    fn run(&self, seed: u64, p99_max: Option<u64>) -> Outcome {
        let mut machine = self.machine.clone();
        if machine.epoch == NEVER {
            machine.epoch = (EPOCH_REQUESTS as f64 / self.rate * SECOND as f64) as u64;
        }
        let mut traffic = Traffic::steady(self.mix.clone(), self.rate, self.requests);
        traffic.warmup = warmup(&machine, &self.mix, self.requests);
        traffic.p99_max = p99_max;
        run(&machine, &traffic, seed)
    }
}

/// What the seeds of a point gave.
#[derive(Debug, Clone, Default)]
pub struct Measured {
    /// One for each seed.
    pub outcomes: Vec<Outcome>,
}

impl Measured {
    /// A figure over the seeds.
    pub fn estimate(&self, figure: impl Fn(&Outcome) -> f64) -> Estimate {
        Estimate::of(&self.outcomes.iter().map(figure).collect::<Vec<f64>>())
    }

    /// Its mean.
    pub fn mean(&self, figure: impl Fn(&Outcome) -> f64) -> f64 {
        self.estimate(figure).mean
    }

    /// p99 over all requests, small and large.
    pub fn p99(&self) -> Estimate {
        self.estimate(|outcome| outcome.all().percentile_us(99.0))
    }

    /// Whether what was measured would be measured of longer runs too: the worst that any seed's
    /// run says of itself, and whether p99 of either class differs from half to half by more than
    /// seeds differ.
    pub fn state(&self) -> State {
        let worst = self.outcomes.iter().map(Outcome::state).max().unwrap_or_default();
        let drifts = |halves: fn(&Outcome) -> Halves| {
            let enough = self.outcomes.iter().all(|o| halves(o).arrived >= DRIFT_REQUESTS_MIN);
            let drift = self.drift(halves);
            enough && drift.mean > DRIFT_MAX && drift.mean - drift.half_width > 0.0
        };
        let drifts = drifts(|outcome| outcome.small_halves) || drifts(|o| o.large_halves);
        if drifts { worst.max(State::Drifting) } else { worst }
    }

    /// How p99 of the second half lies above that of the first, as a logarithm.
    fn drift(&self, halves: impl Fn(&Outcome) -> Halves) -> Estimate {
        self.estimate(|outcome| {
            let [first, second] = halves(outcome).p99_us;
            if first > 0.0 && second > 0.0 { (second / first).ln() } else { 0.0 }
        })
    }

    /// Where requests come by connections and somebody slices: the longest wait of each lane over
    /// all seeds, the bound of that very wait, and whether nobody waited longer than its own bound.
    pub fn waits(&self, row: Row) -> Row {
        let longest = |lane: usize| {
            let waits = self.outcomes.iter().map(|outcome| outcome.slice_waits[lane]);
            waits.max_by_key(|wait| wait.slices).unwrap_or_default()
        };
        let [small, large] = [longest(0), longest(1)];
        if large.bound == 0 {
            return row;
        }
        let mut all = self.outcomes.iter().flat_map(|outcome| outcome.slice_waits);
        row.with("small_slices", small.slices)
            .with("small_bound", small.bound)
            .with("large_slices", large.slices)
            .with("large_bound", large.bound)
            .with("within_bound", all.all(|wait| wait.used <= 1.0))
    }

    /// The row with all that is known of the point.
    pub fn row(&self, row: Row, seed: u64) -> Row {
        let state = self.state();
        // Beyond what the machine can do a percentile says only how long one has looked.
        let shown = |estimate: Estimate| match state {
            State::Overload => Estimate { mean: f64::NAN, half_width: f64::NAN },
            _ => estimate,
        };
        let percentile =
            |percent| shown(self.estimate(|outcome| outcome.all().percentile_us(percent))).mean;
        let small = shown(self.estimate(|outcome| outcome.small.percentile_us(99.0)));
        let large = shown(self.estimate(|outcome| outcome.large.percentile_us(99.0)));
        let p99 = shown(self.p99());
        row.with("p50", percentile(50.0))
            .with("p90", percentile(90.0))
            .sure("p99", p99)
            .with("p999", percentile(99.9))
            .sure("small_p99", small)
            .sure("large_p99", large)
            .with("large_backlog", self.mean(|outcome| outcome.large_backlog))
            .with("small_unfinished", self.mean(|outcome| outcome.small_halves.unfinished as f64))
            .with("large_unfinished", self.mean(|outcome| outcome.large_halves.unfinished as f64))
            .with("small_growth", self.mean(|outcome| outcome.small_halves.growth()))
            .with("large_growth", self.mean(|outcome| outcome.large_halves.growth()))
            .with("small_drift", self.drift(|outcome| outcome.small_halves).mean.exp())
            .with("large_drift", self.drift(|outcome| outcome.large_halves).mean.exp())
            .with("answered_per_s", self.mean(|outcome| outcome.answered_per_s))
            .with("cpu_busy", self.mean(|outcome| outcome.cpu_busy))
            .with("wire_busy", self.mean(|outcome| outcome.wire_busy))
            .with("tx_backlog_p90", self.mean(|outcome| outcome.backlog.percentile_us(90.0)))
            .with("workers_large", self.mean(workers_large))
            .with("state", state.name())
            .with("requests", self.outcomes.iter().map(|outcome| outcome.requests).sum::<u64>())
            .with("seed", seed)
            .with("seeds", self.outcomes.len() as u64)
    }
}

/// Of fewer, p99 of a half is made of fewer than ten.
const DRIFT_REQUESTS_MIN: u64 = 2_000;

/// The logarithm of how much higher p99 may be in the second half: a quarter. Less is not worth a
/// hollow point.
const DRIFT_MAX: f64 = 0.22;

fn workers_large(outcome: &Outcome) -> f64 {
    outcome.plan.as_ref().map_or(0.0, |plan| f64::from(plan.workers_large()))
}

impl Study {
    /// Nothing simulated yet.
    pub fn new(effort: Effort, seed: u64, threads: usize) -> Study {
        Study {
            effort,
            seed,
            threads: threads.max(1),
            progress: std::io::stderr().is_terminal(),
            simulated: AtomicU64::new(0),
            busy_ns: AtomicU64::new(0),
            known: Mutex::default(),
        }
    }

    /// Seeds of each point.
    pub fn seeds(&self) -> u64 {
        self.effort.pick(3, 8)
    }

    /// Requests simulated so far, and per second of one thread.
    pub fn speed(&self) -> (u64, f64) {
        let simulated = self.simulated.load(Relaxed);
        (simulated, simulated as f64 / (self.busy_ns.load(Relaxed).max(1) as f64 / 1e9))
    }

    /// One run, counted.
    pub fn one(&self, point: &Point, seed: u64) -> Outcome {
        self.one_until(point, seed, None)
    }

    /// One run, counted, that is broken off when p99 is certain to be above so many picoseconds.
    pub fn one_until(&self, point: &Point, seed: u64, p99_max: Option<u64>) -> Outcome {
        self.counted(|| {
            let outcome = point.run(seed, p99_max);
            (outcome.simulated, outcome)
        })
    }

    /// Counts requests that `work` says it has simulated.
    pub fn counted<T>(&self, work: impl FnOnce() -> (u64, T)) -> T {
        let begun = Instant::now();
        let (simulated, result) = work();
        self.simulated.fetch_add(simulated, Relaxed);
        self.busy_ns.fetch_add(begun.elapsed().as_nanos() as u64, Relaxed);
        result
    }

    /// All seeds of a point, one after the other.
    pub fn all_seeds(&self, point: &Point) -> Measured {
        Measured { outcomes: self.each_seed().map(|seed| self.one(point, seed)).collect() }
    }

    /// The seeds.
    pub fn each_seed(&self) -> std::ops::Range<u64> {
        self.seed..self.seed + self.seeds()
    }

    /// Measure all points; rows in their order.
    pub fn rows(&self, name: &str, points: &[Point]) -> Vec<Row> {
        self.parallel(name, points, |point| {
            let Point { machine, mix, rate, requests, .. } = point;
            let key = format!("{:?}", (machine, mix, rate, requests));
            let row = self.known(&key, || self.all_seeds(point).row(Row::default(), self.seed));
            point.row.clone().and(row)
        })
    }

    /// What is known by this key, or is found out now.
    pub fn known(&self, key: &str, find: impl FnOnce() -> Row) -> Row {
        let known = || self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(row) = known().get(key) {
            return row.clone();
        }
        let row = find();
        known().insert(key.to_owned(), row.clone());
        row
    }

    /// Do `work` for every task, on all threads; results in the tasks' order.
    pub fn parallel<T: Sync, R: Send>(
        &self,
        name: &str,
        tasks: &[T],
        work: impl Fn(&T) -> R + Sync,
    ) -> Vec<R> {
        let next = AtomicUsize::new(0);
        let results: Vec<Mutex<Option<R>>> = tasks.iter().map(|_| Mutex::new(None)).collect();
        let done = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..self.threads.min(tasks.len()) {
                scope.spawn(|| {
                    loop {
                        // Relaxed: a counter that hands out numbers; results go by the mutexes.
                        let place = next.fetch_add(1, Relaxed);
                        let Some(task) = tasks.get(place) else { break };
                        self.show(name, done.load(Relaxed), tasks.len());
                        let result = work(task);
                        done.fetch_add(1, Relaxed);
                        if let Ok(mut slot) = results[place].lock() {
                            *slot = Some(result);
                        }
                    }
                });
            }
        });
        self.show(name, tasks.len(), tasks.len());
        results.into_iter().filter_map(|slot| slot.into_inner().ok().flatten()).collect()
    }

    /// What is being tried, on a terminal, in place of what was said before; "" takes it away.
    pub fn say(&self, what: &str) {
        if self.progress {
            eprint!("\r{what}\x1b[K");
            let _ = std::io::stderr().flush();
        }
    }

    /// The progress bar, on a terminal.
    fn show(&self, name: &str, done: usize, all: usize) {
        if !self.progress || all == 0 {
            return;
        }
        const WIDTH: usize = 30;
        let full = done * WIDTH / all;
        let bar: String = (0..WIDTH).map(|i| if i < full { '#' } else { '.' }).collect();
        let end = if done == all { "\n" } else { "" };
        let (simulated, _) = self.speed();
        let millions = simulated as f64 / 1e6;
        eprint!("\r{name:<20} [{bar}] {done}/{all}  {millions:.0} M requests{end}");
        let _ = std::io::stderr().flush();
    }
}
