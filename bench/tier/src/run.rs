//! The load and the turns: closed loop, so many threads, each with one operation under way.
//!
//! Latencies are those of a closed loop: a store that stalls is asked less meanwhile, and only the
//! operations under way are charged for it. What is compared is how much gets done.

use crate::draws::Draws;
use crate::engine::Engine;
use crate::frontier::Frontier;
use crate::keys::{Items, KEY_BYTES, name, number_of};
use crate::measure::Used;
use crate::plan::Plan;
use crate::workload::{Operation, SCAN_ITEMS_MAX, Turn};
use hdrhistogram::Histogram;
use laneway_load::random::Random;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// More threads than this load no faster.
const LOAD_THREADS_MAX: usize = 4;
/// Records between two commits of a load that has to be durable.
const LOAD_COMMIT_RECORDS: u32 = 256;
/// Two significant digits: 1 % of a latency.
const DIGITS: u8 = 2;
/// An hour; no operation takes that long, and what does counts as that.
const LATENCY_NS_MAX: u64 = 3_600_000_000_000;
/// The streams of random numbers that are not a turn's.
const LOAD_STREAM: u64 = 1 << 32;

/// What a load or a turn came to.
pub struct Outcome {
    /// Operations, by their latency in nanoseconds.
    pub latencies: Histogram<u64>,
    /// How long it took.
    pub took: Duration,
    /// What this process used meanwhile.
    pub used: Used,
    /// Key and value bytes written.
    pub user_bytes: u64,
}

/// One run on one store.
pub struct Bench<'a> {
    plan: &'a Plan,
    items: Items,
    draws: Draws,
    frontier: Frontier,
}

struct Tally {
    latencies: Histogram<u64>,
    user_bytes: u64,
}

/// What a thread works with.
struct Hands<'a> {
    engine: &'a dyn Engine,
    random: Random,
    value: Vec<u8>,
    tally: Tally,
}

/// None yet.
fn latencies() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LATENCY_NS_MAX, DIGITS).expect("good bounds, two digits")
}

impl Hands<'_> {
    fn new(engine: &dyn Engine, seed: u64, stream: u64) -> Hands<'_> {
        let tally = Tally { latencies: latencies(), user_bytes: 0 };
        Hands { engine, random: Random::stream(seed, stream), value: Vec::new(), tally }
    }

    fn timed(
        &mut self,
        operation: impl FnOnce(&mut Self) -> Result<(), String>,
    ) -> Result<(), String> {
        let began = Instant::now();
        operation(self)?;
        self.tally.latencies.saturating_record(began.elapsed().as_nanos() as u64);
        Ok(())
    }
}

impl<'a> Bench<'a> {
    /// As `plan` says.
    pub fn new(plan: &'a Plan) -> Bench<'a> {
        Bench {
            plan,
            items: Items::new(plan.seed, plan.sizes, plan.content),
            draws: Draws::new(plan.distribution, plan.records),
            frontier: Frontier::new(plan.records),
        }
    }

    /// Writes the first records and commits them.
    pub fn load(&self, engine: &dyn Engine) -> Result<Outcome, String> {
        let threads = self.plan.turns.iter().map(|turn| turn.threads).max().unwrap_or(1);
        let threads = threads.min(LOAD_THREADS_MAX);
        self.with_threads(engine, threads, |thread, stop| {
            let mut hands = Hands::new(engine, self.plan.seed, LOAD_STREAM + thread as u64);
            let mine = (thread as u32..self.plan.records).step_by(threads);
            for (count, number) in mine.enumerate() {
                hands.timed(|hands| self.write(hands, number, true))?;
                if self.plan.synced && count as u32 % LOAD_COMMIT_RECORDS == LOAD_COMMIT_RECORDS - 1
                {
                    engine.commit()?;
                }
                if stop.load(Relaxed) {
                    break;
                }
            }
            engine.commit()?;
            Ok(hands.tally)
        })
    }

    /// One workload; `at` says which turn it is.
    pub fn turn(&self, engine: &dyn Engine, at: usize, turn: &Turn) -> Result<Outcome, String> {
        let until = Instant::now() + self.plan.turn;
        self.with_threads(engine, turn.threads, |thread, stop| {
            let stream = (at as u64) << 16 | thread as u64;
            let mut hands = Hands::new(engine, self.plan.seed, stream);
            while Instant::now() < until && !stop.load(Relaxed) {
                let operation = turn.workload.operation(&mut hands.random);
                let number = self.subject(operation, &mut hands.random);
                hands.timed(|hands| self.operate(hands, operation, number))?;
            }
            Ok(hands.tally)
        })
        .map_err(|error| format!("workload {}: {error}", turn.name))
    }

    /// Reads `count` items, the latest among them: what a restart has to bring back.
    pub fn probe(&self, engine: &dyn Engine, count: u32) -> Result<(), String> {
        let mut hands = Hands::new(engine, self.plan.seed, LOAD_STREAM - 1);
        let readable = self.frontier.readable();
        for number in (0..readable).step_by((readable / count).max(1) as usize) {
            self.read(&mut hands, number)?;
        }
        self.read(&mut hands, readable - 1)
    }

    fn with_threads<F>(
        &self,
        engine: &dyn Engine,
        threads: usize,
        work: F,
    ) -> Result<Outcome, String>
    where
        F: Fn(usize, &AtomicBool) -> Result<Tally, String> + Sync,
    {
        let (stop, ended) = (&AtomicBool::new(false), &AtomicBool::new(false));
        let (before, began) = (Used::now()?, Instant::now());
        let tallies = std::thread::scope(|scope| {
            let committer = scope.spawn(|| self.commit_until(engine, ended));
            let work = &work;
            let guarded = move |thread| {
                let result = work(thread, stop);
                // One that failed ends the others.
                stop.fetch_or(result.is_err(), Relaxed);
                result
            };
            let workers: Vec<_> =
                (0..threads).map(|thread| scope.spawn(move || guarded(thread))).collect();
            let joined: Vec<_> = workers.into_iter().map(|worker| worker.join()).collect();
            ended.store(true, Relaxed); // the committer looks again within an interval
            committer.thread().unpark();
            let committed = committer.join().expect("committing does not panic");
            let tallies: Result<Vec<Tally>, String> =
                joined.into_iter().map(|tally| tally.expect("a worker panicked")).collect();
            committed.and(tallies)
        })?;
        let (took, used) = (began.elapsed(), Used::now()?.since(&before));
        let mut latencies = latencies();
        for tally in &tallies {
            latencies.add(&tally.latencies).map_err(|error| error.to_string())?;
        }
        let user_bytes = tallies.iter().map(|tally| tally.user_bytes).sum();
        Ok(Outcome { latencies, took, used, user_bytes })
    }

    /// Commits at an interval where the store wants that, and moves the frontier along; a last time
    /// when the others have ended.
    fn commit_until(&self, engine: &dyn Engine, ended: &AtomicBool) -> Result<(), String> {
        let Some(every) = engine.commit_every() else { return Ok(()) };
        loop {
            let is_last = ended.load(Relaxed);
            let written = self.frontier.written();
            engine.commit()?;
            self.frontier.show(written);
            if is_last {
                return Ok(());
            }
            std::thread::park_timeout(every);
        }
    }

    /// The item that an operation is about.
    fn subject(&self, operation: Operation, random: &mut Random) -> u32 {
        match operation {
            Operation::Insert => self.frontier.take(),
            Operation::ReadLatest => self.draws.latest(self.frontier.readable(), random),
            _ => self.draws.number(random),
        }
    }

    fn operate(
        &self,
        hands: &mut Hands<'_>,
        operation: Operation,
        number: u32,
    ) -> Result<(), String> {
        match operation {
            Operation::Read | Operation::ReadLatest => self.read(hands, number),
            Operation::Update => self.write(hands, number, false),
            Operation::Insert => {
                self.write(hands, number, false)?;
                let below = self.frontier.wrote(number);
                if hands.engine.commit_every().is_none() {
                    self.frontier.show(below);
                }
                Ok(())
            }
            Operation::Scan => self.scan(hands, number),
            Operation::ReadModifyWrite => {
                self.read(hands, number)?;
                self.write(hands, number, false)
            }
        }
    }

    fn write(&self, hands: &mut Hands<'_>, number: u32, is_load: bool) -> Result<(), String> {
        let version = hands.random.word() as u32;
        self.items.write(number, version, &mut hands.value);
        hands.tally.user_bytes += (KEY_BYTES + hands.value.len()) as u64;
        match is_load {
            true => hands.engine.load(&name(number), &hands.value),
            false => hands.engine.put(&name(number), &hands.value),
        }
    }

    fn read(&self, hands: &mut Hands<'_>, number: u32) -> Result<(), String> {
        match hands.engine.get(&name(number), &mut hands.value)? {
            true => self.items.check(number, &hands.value),
            false => Err(format!("item {number} is gone")),
        }
    }

    /// From an item on, so at least that one is found.
    fn scan(&self, hands: &mut Hands<'_>, number: u32) -> Result<(), String> {
        let limit = 1 + hands.random.below(SCAN_ITEMS_MAX) as usize;
        let mut last: Option<[u8; KEY_BYTES]> = None;
        hands.engine.scan(&name(number), limit, &mut |key, value| {
            let found = number_of(key).ok_or("a scan brought a key that nobody wrote")?;
            let is_next = last.map_or(found == number, |last| last < name(found));
            last = Some(name(found));
            match is_next {
                true => self.items.check(found, value),
                false => Err(format!("a scan from item {number} brought {found} out of order")),
            }
        })?;
        last.map(|_| ()).ok_or_else(|| format!("a scan from item {number} brought nothing"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies_of_any_length_are_kept() {
        let mut latencies = latencies();
        for nanoseconds in [1, 1_000, 1_000_000, 20_000_000_000, LATENCY_NS_MAX * 2] {
            latencies.saturating_record(nanoseconds);
            let most = nanoseconds.min(LATENCY_NS_MAX) as f64;
            let kept = latencies.max() as f64;
            assert!((kept / most - 1.0).abs() < 0.02, "{nanoseconds}: {kept}");
        }
    }
}
