//! What queueing alone allows, at no cost but service: the same arrivals as [`crate::machine`]
//! draws by the same seed, served by disciplines that no server has to pay for.
//!
//! - *M/G/1*: a queue for each core, as requests come; what a design without any idea is like.
//! - *M/G/k*: one queue for all cores, in order of arrival, each request to its end.
//! - *chunks*: one queue for all cores; a request is served a slice at a time, and goes to the
//!   queue's end with what is left.
//! - *SRPT*: the requests with the least left are served, and who comes with less pushes them off;
//!   no discipline has a lower mean, and none that is told sizes a much lower small p99.
//!
//! Unit: picoseconds.

use crate::machine::{Costs, Outcome};
use crate::stats::{Latencies, SECOND};
use crate::workload::{Draw, Mix};
use laneway_load::random::Random;
use laneway_policy::SLICE_BYTES;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

/// A discipline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bound {
    /// A queue for each core.
    OneEach,
    /// One for all.
    Shared,
    /// One of slices.
    Chunks,
    /// The shortest remaining first.
    Srpt,
}

impl Bound {
    /// All of them.
    pub const ALL: [Bound; 4] = [Bound::OneEach, Bound::Shared, Bound::Chunks, Bound::Srpt];

    /// As figures name it.
    pub const fn name(self) -> &'static str {
        match self {
            Bound::OneEach => "M/G/1",
            Bound::Shared => "M/G/k",
            Bound::Chunks => "chunks",
            Bound::Srpt => "SRPT",
        }
    }
}

/// What arrives at what.
#[derive(Debug, Clone)]
pub struct Given {
    /// What a request costs.
    pub costs: Costs,
    /// What it is.
    pub mix: Mix,
    /// Cores.
    pub workers: u16,
    /// Requests per second.
    pub rate: f64,
    /// Requests that count; a fifth more come first.
    pub requests: u64,
}

#[derive(Debug, Clone, Copy)]
struct Job {
    arrived: u64,
    left: u64,
    chunk: u64,
    large: bool,
    counted: bool,
    spare: u16,
}

struct Arrivals<'a> {
    given: &'a Given,
    random: Random,
    draw: Draw,
    now: u64,
    count: u64,
}

impl Iterator for Arrivals<'_> {
    type Item = Job;

    fn next(&mut self) -> Option<Job> {
        let warmup = self.given.requests / 5;
        if self.count == warmup + self.given.requests {
            return None;
        }
        let gap = self.random.exponential(SECOND as f64 / self.given.rate) as u64;
        self.now += gap.max(1);
        let drawn = self.draw.draw(&mut self.random);
        let left = self.given.costs.of(&drawn);
        let slices = u64::from(drawn.bytes).div_ceil(SLICE_BYTES.0).max(1);
        let counted = self.count >= warmup;
        self.count += 1;
        let chunk = left.div_ceil(slices);
        let (arrived, large, spare) = (self.now, drawn.large, drawn.spare);
        Some(Job { arrived, left, chunk, large, counted, spare })
    }
}

#[derive(Default)]
struct Seen {
    small: Latencies,
    large: Latencies,
}

impl Seen {
    fn answered(&mut self, job: &Job, at: u64) {
        if job.counted {
            let lane = if job.large { &mut self.large } else { &mut self.small };
            lane.record(at - job.arrived);
        }
    }
}

/// Run a discipline.
pub fn run(bound: Bound, given: &Given, seed: u64) -> Outcome {
    let arrivals = Arrivals {
        given,
        random: Random::stream(seed, 0),
        draw: Draw::new(&given.mix),
        now: 0,
        count: 0,
    };
    let workers = usize::from(given.workers);
    let seen = match bound {
        Bound::OneEach => one_each(arrivals, workers),
        Bound::Shared => shared(arrivals, workers),
        Bound::Chunks => chunks(arrivals, workers),
        Bound::Srpt => srpt(arrivals, workers),
    };
    let simulated = given.requests + given.requests / 5;
    let Seen { small, large } = seen;
    Outcome { small, large, requests: given.requests, simulated, ..Outcome::default() }
}

fn one_each(arrivals: Arrivals<'_>, workers: usize) -> Seen {
    let mut seen = Seen::default();
    let mut free_at = vec![0_u64; workers];
    for job in arrivals {
        let free = &mut free_at[(usize::from(job.spare) * workers) >> 16];
        *free = (*free).max(job.arrived) + job.left;
        seen.answered(&job, *free);
    }
    seen
}

fn shared(arrivals: Arrivals<'_>, workers: usize) -> Seen {
    let mut seen = Seen::default();
    let mut free_at: BinaryHeap<Reverse<u64>> = (0..workers).map(|_| Reverse(0)).collect();
    for job in arrivals {
        let Reverse(free) = free_at.pop().unwrap_or_default();
        let done = free.max(job.arrived) + job.left;
        seen.answered(&job, done);
        free_at.push(Reverse(done));
    }
    seen
}

fn chunks(arrivals: Arrivals<'_>, workers: usize) -> Seen {
    let mut seen = Seen::default();
    let mut queue: VecDeque<Job> = VecDeque::new();
    // When a slice is over, and whose it is; the place makes equal times fall in one order.
    let mut running: BinaryHeap<Reverse<(u64, usize)>> = BinaryHeap::new();
    let mut jobs: Vec<Option<Job>> = vec![None; workers];
    let mut arrivals = arrivals.peekable();
    loop {
        let over = running.peek().map(|Reverse((at, _))| *at);
        let comes = arrivals.peek().map(|job| job.arrived);
        let now = match (over, comes) {
            (None, None) => return seen,
            (Some(over), Some(comes)) if comes < over => comes,
            (None, Some(comes)) => comes,
            (Some(over), _) => over,
        };
        if over == Some(now) {
            if let Some(Reverse((_, place))) = running.pop()
                && let Some(job) = jobs[place].take()
            {
                match job.left {
                    0 => seen.answered(&job, now),
                    _ => queue.push_back(job),
                }
            }
        } else {
            queue.extend(arrivals.next());
        }
        while let (Some(place), false) = (jobs.iter().position(Option::is_none), queue.is_empty()) {
            let Some(mut job) = queue.pop_front() else { break };
            let slice = job.left.min(job.chunk);
            job.left -= slice;
            jobs[place] = Some(job);
            running.push(Reverse((now + slice, place)));
        }
    }
}

fn srpt(arrivals: Arrivals<'_>, workers: usize) -> Seen {
    let mut seen = Seen::default();
    // Under way, with the time at which each would be done; and those with more left than they.
    let mut running: Vec<(u64, Job)> = Vec::with_capacity(workers);
    let mut waiting: BTreeMap<(u64, u64), Job> = BTreeMap::new();
    let mut arrivals = arrivals.peekable();
    loop {
        let first = (0..running.len()).min_by_key(|&place| running[place].0);
        let comes = arrivals.peek().map(|job| job.arrived);
        match (first, comes) {
            (None, None) => return seen,
            (Some(first), comes) if comes.is_none_or(|comes| running[first].0 <= comes) => {
                let (now, job) = running.swap_remove(first);
                seen.answered(&job, now);
                if let Some(((left, _), job)) = waiting.pop_first() {
                    running.push((now + left, job));
                }
            }
            _ => {
                let Some(job) = arrivals.next() else { return seen };
                let now = job.arrived;
                running.push((now + job.left, job));
                if running.len() > workers {
                    let last = (0..running.len()).max_by_key(|&place| running[place].0);
                    let (done, job) = running.swap_remove(last.unwrap_or(0));
                    waiting.insert((done - now, job.arrived), job);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::{Machine, Traffic};
    use laneway_policy::Design;

    fn given(load: f64, mix: Mix) -> Given {
        let costs = Costs::UNIT;
        let rate = load * 8.0 * SECOND as f64 / costs.mean_service(&mix);
        Given { costs, mix, workers: 8, rate, requests: 300_000 }
    }

    #[test]
    fn the_machine_without_costs_is_one_of_them() {
        let given = given(0.8, Mix::bimodal(100));
        for (bound, central_queue) in [(Bound::OneEach, false), (Bound::Shared, true)] {
            let machine = Machine {
                costs: given.costs,
                batch: 1,
                central_queue,
                ..Machine::new(Design::Hkh, 8)
            };
            let traffic = Traffic::steady(given.mix.clone(), given.rate, given.requests);
            let machine = crate::machine::run(&machine, &traffic, 3).small;
            let bound = run(bound, &given, 3).small;
            assert_eq!(bound.count(), machine.count());
            assert_eq!(bound.percentile_us(99.0), machine.percentile_us(99.0));
            assert!((bound.mean_us() / machine.mean_us() - 1.0).abs() < 1e-6);
        }
    }

    #[test]
    fn nobody_has_a_lower_mean_than_srpt_and_every_request_is_answered() {
        let given = given(0.9, Mix::bimodal(100));
        let outcomes = Bound::ALL.map(|bound| run(bound, &given, 1));
        let means = outcomes.each_ref().map(|outcome| outcome.all().mean_us());
        assert!(outcomes.iter().all(|outcome| outcome.all().count() == given.requests));
        assert!(means[..3].iter().all(|mean| *mean > means[3]), "{means:?}");
        let small = outcomes.each_ref().map(|outcome| outcome.small.percentile_us(99.0));
        assert!(small[3] < small[2] && small[2] < small[1] && small[1] < small[0], "{small:?}");
    }
}
