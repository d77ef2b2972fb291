//! Cores that a scheduler grants while requests wait and that go when they find none: Shenango
//! (Ousterhout et al., NSDI'19) and Caladan (Fried et al., OSDI'20), without what the latter does
//! about neighbours on the machine.
//!
//! A request comes to a queue of some core that is granted. A core serves its own queue in order of
//! arrival, each request to its end; then it takes half of another's, rounded up; where nothing
//! waits it searches on for a while, and goes. The scheduler looks at all queues at set times, and
//! grants one more core if the request at the front of any has waited for such a time or longer; to
//! a server without cores it grants one as soon as a request comes. A core comes some time later.
//!
//! Spares the rival: the scheduler has a core of its own and takes no time, a search sees at once
//! what comes, and there is always a core to grant. Not modelled: hyperthreads, what else would
//! run on cores that are gone, a wire. Unit: picoseconds.

use super::{Central, Doing, Request, Run};
use crate::events::NEVER;

/// Which cores are granted, and what they come to over time.
#[derive(Debug, Default)]
pub(super) struct Cores {
    granted: u64,
    area: f64,
    since: u64,
}

impl Cores {
    fn change(&mut self, now: u64, granted: u64) {
        self.area += f64::from(self.granted.count_ones()) * (now - self.since) as f64;
        (self.granted, self.since) = (granted, now);
    }

    /// Cores granted, on average from `from` until now; from now on it is counted anew.
    pub(super) fn mean_since(&mut self, from: u64, now: u64) -> f64 {
        self.change(now, self.granted);
        std::mem::take(&mut self.area) / (now - from).max(1) as f64
    }

    fn is_granted(&self, worker: usize) -> bool {
        self.granted >> worker & 1 == 1
    }

    /// The core that comes after so many granted ones.
    fn nth(&self, nth: u32) -> usize {
        let rest = (0..nth).fold(self.granted, |rest, _| rest & (rest - 1));
        rest.trailing_zeros() as usize
    }
}

impl Run<'_> {
    /// At the start all cores are there, and search.
    pub(super) fn grant_all(&mut self) {
        self.cores.change(0, u64::MAX >> (64 - self.workers.len()));
        (0..self.workers.len()).for_each(|worker| self.next_work(worker));
    }

    /// The queue that a request comes to.
    pub(super) fn queue_granted(&mut self, spare: u16) -> usize {
        if self.cores.granted == 0 {
            self.grant();
        }
        let nth = (u32::from(spare) * self.cores.granted.count_ones()) >> 16;
        self.cores.nth(nth)
    }

    /// A request has come into a queue.
    pub(super) fn wake_granted(&mut self, queue: usize, interval: u64) {
        let scheduler = self.source_cores();
        if !self.looks {
            self.looks = true;
            self.events.set(scheduler, (self.now / interval + 1) * interval);
        }
        match self.asleep >> queue & 1 {
            1 => self.wake(queue),
            _ => self.wake_one(u64::MAX),
        }
    }

    /// What a core does next; one that finds nothing searches for so long.
    pub(super) fn next_granted(&mut self, worker: usize, search: u64) {
        if !self.cores.is_granted(worker) {
            return;
        }
        let own = self.rx[worker].pop_front().map(|request| (request, 0));
        let found = own.or_else(|| self.take_half(worker).map(|one| (one, self.costs.steal)));
        if let Some((request, extra)) = found {
            self.begin(worker, Doing::Serve(request), request.service + extra);
            return;
        }
        self.asleep |= 1 << worker;
        if !matches!(self.workers[worker].doing, Doing::Search) {
            self.workers[worker].doing = Doing::Search;
            self.events.set(worker, self.now + search);
        }
    }

    /// Half of what waits with another; the first of it is to be served.
    fn take_half(&mut self, worker: usize) -> Option<Request> {
        let all = self.rx.len();
        let from = (self.arrivals % all as u64) as usize;
        let mut others = (from..from + all).map(|number| number % all);
        let whose = others.find(|&other| !self.rx[other].is_empty())?;
        let half = self.rx[whose].len().div_ceil(2);
        let mut own = std::mem::take(&mut self.rx[worker]);
        own.extend(self.rx[whose].drain(..half));
        let first = own.pop_front();
        self.rx[worker] = own;
        first
    }

    /// A search has ended.
    pub(super) fn core_goes(&mut self, worker: usize) {
        self.asleep &= !(1 << worker);
        self.cores.change(self.now, self.cores.granted & !(1 << worker));
    }

    /// The first core that is not granted comes, if there is one.
    fn grant(&mut self) {
        let Some(Central::Grant { coming, .. }) = self.machine.central else { return };
        let worker = self.cores.granted.trailing_ones() as usize;
        if worker < self.workers.len() {
            self.cores.change(self.now, self.cores.granted | 1 << worker);
            self.workers[worker].doing = Doing::Come;
            self.events.set(worker, self.now + coming);
        }
    }

    /// The scheduler looks at the queues.
    pub(super) fn look_at_queues(&mut self) {
        let Some(Central::Grant { interval, .. }) = self.machine.central else { return };
        let fronts = self.rx.iter().filter_map(|queue| queue.front());
        let oldest = fronts.map(|request| request.came).min();
        self.looks = oldest.is_some();
        let next = if self.looks { self.now + interval } else { NEVER };
        let scheduler = self.source_cores();
        self.events.set(scheduler, next);
        if oldest.is_some_and(|came| self.now - came >= interval) {
            self.grant();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Machine, Traffic};
    use super::*;
    use crate::stats::US;
    use crate::workload::Mix;
    use laneway_policy::Design;

    #[test]
    fn a_core_without_work_takes_half_of_anothers_in_their_order() {
        let central = Some(Central::Grant { interval: 10 * US, coming: US, search: US });
        let machine = Machine { central, ..Machine::new(Design::Hkh, 2) };
        let traffic = Traffic::steady(Mix::bimodal(1), 1.0, 1);
        let mut run = Run::new(&machine, &traffic, 1);
        run.grant_all();
        for bytes in 1..=7 {
            let (request, _) = run.next_request();
            run.enter(Request { bytes, ..request }, 0);
        }
        let waits = |run: &Run<'_>| {
            let bytes = |queue: &std::collections::VecDeque<Request>| {
                queue.iter().map(|request| request.bytes).collect::<Vec<_>>()
            };
            run.rx.iter().map(bytes).collect::<Vec<_>>()
        };
        // The first one is served by the core it came to, the second by the one that searched.
        assert_eq!(waits(&run), [vec![3, 4, 5, 6, 7], vec![]]);
        run.now = 5 * US;
        run.worker_done(1);
        assert!(matches!(run.workers[1].doing, Doing::Serve(request) if request.bytes == 3));
        assert_eq!(waits(&run), [vec![6, 7], vec![4, 5]]);
        run.worker_done(0);
        assert!(matches!(run.workers[0].doing, Doing::Serve(request) if request.bytes == 6));
    }

    #[test]
    fn one_core_is_granted_at_a_look_and_none_for_a_shorter_wait() {
        let central = Some(Central::Grant { interval: 10 * US, coming: US, search: US });
        let machine = Machine { central, ..Machine::new(Design::Hkh, 4) };
        let traffic = Traffic::steady(Mix::bimodal(1), 1.0, 1);
        let mut run = Run::new(&machine, &traffic, 1);
        let (first, _) = run.next_request();
        let granted = |run: &Run<'_>| run.cores.granted;
        (run.now, run.asleep) = (2 * US, 0);
        for _ in 0..3 {
            run.enter(first, 0);
        }
        assert_eq!(granted(&run), 0b1, "there was none");
        for (now, cores) in [(10, 0b1), (20, 0b11), (30, 0b111), (40, 0b1111), (50, 0b1111)] {
            run.now = now * US;
            run.look_at_queues();
            assert_eq!(granted(&run), cores, "at {now} µs");
        }
    }
}
